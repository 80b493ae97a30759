"""BLEU (Papineni et al. 2002), written out. Scores that are published come from sacreBLEU: `score_translations`."""

import math
from collections import Counter
from collections.abc import Sequence


def ngram_precision(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], n: int) -> float:
    """The share of the hypotheses' n-grams that their references hold too (Papineni et al. 2002, section 2.1).

    Args:
        hypotheses: the translations, each a list of tokens.
        references: one for each hypothesis, in the same order.
        n: length of the n-grams, from 1.

    Returns:
        A fraction over the whole corpus. Within a sentence an n-gram counts at most as often as its reference has it.
        0.0 where the hypotheses have no n-gram.

    Raises:
        ValueError: not as many references as hypotheses.
    """
    matches = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        counts = Counter(tuple(hypothesis[i : i + n]) for i in range(len(hypothesis) - n + 1))
        reference_counts = Counter(tuple(reference[i : i + n]) for i in range(len(reference) - n + 1))
        matches += (counts & reference_counts).total()  # the smaller of the two counts of each n-gram
        total += counts.total()
    return matches / total if total else 0.0


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    """Short translations have high precision; this factor makes up for it (Papineni et al. 2002, section 2.2.2).

    Args:
        hypothesis_length: tokens in all hypotheses together.
        reference_length: tokens in all references together.

    Returns:
        1.0 for hypotheses at least as long as the references, else exp(1 - reference_length / hypothesis_length);
        0.0 for hypotheses without a token, whatever the references are.
    """
    if hypothesis_length == 0:
        return 0.0
    return math.exp(min(0.0, 1 - reference_length / hypothesis_length))


def bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU from 0 to 100: the geometric mean of the precisions of 1- to 4-grams times the brevity penalty.

    Args:
        hypotheses: the translations, each a list of tokens.
        references: one for each hypothesis, in the same order.

    Returns:
        What sacreBLEU gives for the same tokens with `tokenize="none"` and `smooth_method="none"`: 0.0 as soon as one
        of the four precisions is 0.

    Raises:
        ValueError: not as many references as hypotheses.
    """
    precisions = [ngram_precision(hypotheses, references, n) for n in range(1, 5)]
    if min(precisions) == 0.0:
        return 0.0
    hypothesis_length, reference_length = sum(map(len, hypotheses)), sum(map(len, references))
    geometric_mean = math.exp(sum(math.log(precision) for precision in precisions) / 4)
    return 100 * brevity_penalty(hypothesis_length, reference_length) * geometric_mean
