"""The course's own BLEU agrees with sacreBLEU."""

import gzip
import math
import random

import pytest
from sacrebleu.metrics import BLEU

from transformer_lab.evaluation import bleu, brevity_penalty, ngram_precision


def sacrebleu_of_tokens(hypotheses, references) -> float:
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    lines = [[" ".join(tokens) for tokens in side] for side in (hypotheses, references)]
    return metric.corpus_score(lines[0], [lines[1]]).score


def damaged(sentence: list[str], rng: random.Random, words: list[str]) -> list[str]:
    """Return what a bad translator might write: words are dropped, replaced, repeated, and moved."""
    result = []
    for word in sentence:
        chance = rng.random()
        if chance < 0.1:
            continue
        result.append(rng.choice(words) if chance < 0.2 else word)
        if chance > 0.9:
            result.append(word)
    if rng.random() < 0.3:
        rng.shuffle(result)
    return result


@pytest.mark.parametrize(
    ("hypotheses", "references", "precision"),
    [
        ([["the"] * 7], [["the", "cat", "is", "on", "the", "mat"]], 2 / 7),  # the example from Papineni et al.
        ([list("abc"), ["x"]], [list("abc"), ["y"]], 3 / 4),  # one fraction over the corpus, not a mean
        ([["a"], ["b"]], [["b"], ["a"]], 0.0),  # a match in another sentence does not count
        ([[], []], [["word"] * 9, ["word"]], 0.0),
        ([], [], 0.0),
    ],
)
def test_precision_by_hand(hypotheses, references, precision):
    assert ngram_precision(hypotheses, references, 1) == precision


def test_brevity_penalty_penalizes_only_short_translations():
    assert brevity_penalty(12, 12) == brevity_penalty(13, 12) == 1.0
    assert brevity_penalty(6, 12) == pytest.approx(math.exp(-1), rel=1e-15)
    assert brevity_penalty(0, 12) == brevity_penalty(0, 0) == 0.0


def test_sides_of_different_length_are_refused():
    """Without `strict`, zip would stop at the end of the shorter side and ignore the remaining sentences."""
    with pytest.raises(ValueError, match="zip"):
        bleu([["a"]], [["a"], ["b"]])


@pytest.mark.parametrize("seed", range(20))
def test_equals_sacrebleu_on_random_tokens(seed):
    """A small alphabet yields many repeated n-grams. Lengths start at 0 to get empty sentences and zero precisions."""
    rng = random.Random(seed)
    words = list("abcde")[: rng.randint(1, 5)]
    references = [rng.choices(words, k=rng.randint(1, 12)) for _ in range(rng.randint(1, 8))]
    hypotheses = [rng.choices(words, k=rng.randint(0, 12)) for _ in references]
    assert bleu(hypotheses, references) == pytest.approx(sacrebleu_of_tokens(hypotheses, references), rel=1e-12)


def test_perfect_is_100_and_one_missing_order_is_0():
    """As with sacreBLEU's smooth_method="none", the whole score is 0 if no 4-gram matches."""
    assert bleu([list("abcde")], [list("abcde")]) == pytest.approx(100.0, rel=1e-15)
    assert bleu([list("abcxe")], [list("abcde")]) == sacrebleu_of_tokens([list("abcxe")], [list("abcde")]) == 0.0


def test_equals_sacrebleu_on_real_sentences(real_data):
    """Real text has thousands of n-grams. Some translations are shorter than their references, others longer."""
    with gzip.open(real_data / "multi30k" / "test_2017_flickr.en.gz", "rt", encoding="utf-8") as file:
        references = [line.split() for line in file]
    words = sorted({word for sentence in references for word in sentence})
    rng = random.Random(1)
    hypotheses = [damaged(sentence, rng, words) for sentence in references]
    shorter, longer = [tokens[:-2] for tokens in hypotheses], [[*tokens, "."] for tokens in hypotheses]
    for chosen in (hypotheses, shorter, longer):
        expected = sacrebleu_of_tokens(chosen, references)
        assert 5 < expected < 95
        assert bleu(chosen, references) == pytest.approx(expected, rel=1e-12)
