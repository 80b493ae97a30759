"""BLEU (Papineni et al. 2002), implemented from scratch. For scores to report, use `score_translations` (sacreBLEU)."""

import math
from collections import Counter
from collections.abc import Sequence


def ngram_precision(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], n: int) -> float:
    """Return the fraction of the hypotheses' n-grams that are also in their references (Papineni et al., section 2.1).

    Args:
        hypotheses: The translations, each a list of tokens.
        references: One for each hypothesis, in the same order.
        n: Length of the n-grams, at least 1.

    Returns:
        One fraction for the whole corpus. Within a sentence, an n-gram counts at most as often as it occurs in the
        reference. If the hypotheses have no n-grams at all, the result is 0.0.

    Raises:
        ValueError: `hypotheses` and `references` differ in length.
    """
    matches = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        counts = Counter(tuple(hypothesis[i : i + n]) for i in range(len(hypothesis) - n + 1))
        reference_counts = Counter(tuple(reference[i : i + n]) for i in range(len(reference) - n + 1))
        matches += (counts & reference_counts).total()  # the smaller of the two counts of each n-gram
        total += counts.total()
    return matches / total if total else 0.0


def brevity_penalty(hypothesis_length: int, reference_length: int) -> float:
    """Return the factor that penalizes translations for being too short (Papineni et al. 2002, section 2.2.2).

    Args:
        hypothesis_length: Total number of tokens in all hypotheses.
        reference_length: Total number of tokens in all references.

    Returns:
        1.0 if the hypotheses are at least as long as the references, and exp(1 - reference_length / hypothesis_length)
        if they are shorter. If the hypotheses have no tokens at all, the result is 0.0, regardless of the references.
    """
    if hypothesis_length == 0:
        return 0.0
    return math.exp(min(0.0, 1 - reference_length / hypothesis_length))


def bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Return corpus BLEU, from 0 to 100: the geometric mean of the 1- to 4-gram precisions times the brevity penalty.

    Args:
        hypotheses: The translations, each a list of tokens.
        references: One for each hypothesis, in the same order.

    Returns:
        The same score as sacreBLEU for the same tokens with `tokenize="none"` and `smooth_method="none"`. It is 0.0 if
        any of the four precisions is 0.

    Raises:
        ValueError: `hypotheses` and `references` differ in length.
    """
    precisions = [ngram_precision(hypotheses, references, n) for n in range(1, 5)]
    if min(precisions) == 0.0:
        return 0.0
    hypothesis_length, reference_length = sum(map(len, hypotheses)), sum(map(len, references))
    geometric_mean = math.exp(sum(math.log(precision) for precision in precisions) / 4)
    return 100 * brevity_penalty(hypothesis_length, reference_length) * geometric_mean
