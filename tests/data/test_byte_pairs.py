"""`learn_bpe` and `apply_bpe` must follow algorithm 1 of Sennrich et al. (2016) to the letter."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from transformer_lab.data import apply_bpe, learn_bpe
from transformer_lab.data.byte_pairs import END_OF_WORD, merge_pair


def learn_by_recounting(word_counts: dict[str, int], n_merges: int) -> tuple[list[tuple[str, str]], dict]:
    """Count all pairs again before each merge, as algorithm 1 does."""
    words = {word: [*word, END_OF_WORD] for word in word_counts}
    merges = []
    for _ in range(n_merges):
        counts = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                counts[pair] += word_counts[word]
        if not counts:
            break
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        words = {word: merge_pair(symbols, merges[-1]) for word, symbols in words.items()}
    return merges, words


def test_the_example_of_the_paper():
    """Figure 1 of Sennrich et al. (2016) breaks ties differently, so only the merges without a tie are compared."""
    merges = learn_bpe({"low": 5, "lowest": 2, "newer": 6, "wider": 3}, 10)
    assert merges[:3] == [("e", "r"), ("er", "</w>"), ("l", "o")]
    assert apply_bpe("lower", merges) == ["low", "er</w>"]


@pytest.mark.parametrize("seed", range(50))
def test_updated_counts_equal_fresh_counts(seed: int):
    """The counts are updated after each merge. If a pair were forgotten or counted twice, the vocabulary would change.

    An alphabet of three letters produces many repeats such as `aaa`, in which pairs overlap.
    """
    generator = random.Random(seed)
    word_counts = {
        "".join(generator.choice("abc") for _ in range(generator.randint(0, 9))): generator.randint(1, 4)
        for _ in range(8)
    }
    n_merges = generator.randint(0, 60)
    merges, words = learn_by_recounting(word_counts, n_merges)
    assert learn_bpe(word_counts, n_merges) == merges
    assert {word: apply_bpe(word, merges) for word in word_counts} == words


@pytest.mark.parametrize(
    ("word_counts", "n_merges", "merges"),
    [
        ({"ba": 1, "ab": 1}, 1, [("a", "</w>")]),  # ties are broken alphabetically
        ({"dc": 2, "ba": 2}, 1, [("a", "</w>")]),
        ({"ab": 3}, 100, [("a", "b"), ("ab", "</w>")]),  # then every word is a single symbol
        ({}, 5, []),
    ],
)
def test_merges_by_hand(word_counts, n_merges, merges):
    assert learn_bpe(word_counts, n_merges) == merges


def test_a_merge_runs_from_left_to_right_and_uses_no_symbol_twice():
    assert apply_bpe("aaaaa", [("a", "a")]) == ["aa", "aa", "a", "</w>"]
    assert apply_bpe("xé😀", [("a", "b")]) == ["x", "é", "😀", "</w>"]  # unknown characters stay


def test_a_thousand_merges_of_real_words_make_frequent_words_whole(multi30k):
    counts = Counter(word for _, english in multi30k.train[:5000] for word in english.split())
    merges = learn_bpe(counts, 1000)
    assert len(merges) == len(set(merges)) == 1000
    assert apply_bpe("woman", merges) == ["woman</w>"]
    assert "".join(apply_bpe("unforgettable", merges)) == "unforgettable</w>"
