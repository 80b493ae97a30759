import random
from collections import Counter
from itertools import pairwise

import pytest

from transformer_lab.data import apply_bpe, learn_bpe
from transformer_lab.data.byte_pairs import END_OF_WORD, merge_pair


def learn_by_recounting(word_counts: dict[str, int], n_merges: int) -> tuple[list[tuple[str, str]], dict]:
    """Algorithm 1 to the letter: counts all pairs anew before each merge."""
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
    """Figure 1 of Sennrich et al. (2016); there ties fall otherwise, so only the certain merges are compared."""
    merges = learn_bpe({"low": 5, "lowest": 2, "newer": 6, "wider": 3}, 10)
    assert merges[:3] == [("e", "r"), ("er", "</w>"), ("l", "o")]
    assert apply_bpe("lower", merges) == ["low", "er</w>"]


@pytest.mark.parametrize("seed", range(100))
def test_kept_counts_equal_fresh_counts(seed: int):
    """The counts are carried from merge to merge; a pair forgotten or counted twice would change the vocabulary.

    Three letters give many repeats such as `aaa`, where pairs overlap.
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


def test_of_equal_counts_the_smallest_pair_is_merged():
    assert learn_bpe({"ba": 1, "ab": 1}, 1) == [("a", "</w>")]
    assert learn_bpe({"dc": 2, "ba": 2}, 1) == [("a", "</w>")]


def test_learning_ends_when_every_word_is_one_symbol():
    assert learn_bpe({"ab": 3}, 100) == [("a", "b"), ("ab", "</w>")]
    assert learn_bpe({}, 5) == []


def test_a_merge_runs_from_left_to_right_and_uses_no_symbol_twice():
    assert merge_pair(["a", "a", "a"], ("a", "a")) == ["aa", "a"]
    assert apply_bpe("aaaaa", [("a", "a")]) == ["aa", "aa", "a", "</w>"]


def test_unknown_characters_stay():
    assert apply_bpe("xé😀", [("a", "b")]) == ["x", "é", "😀", "</w>"]


def test_a_thousand_merges_on_real_words_leave_frequent_words_whole(multi30k):
    counts = Counter(word for _, english in multi30k.train[:5000] for word in english.split())
    merges = learn_bpe(counts, 1000)
    assert len(merges) == len(set(merges)) == 1000
    assert apply_bpe("woman", merges) == ["woman</w>"]
    assert "".join(apply_bpe("unforgettable", merges)) == "unforgettable</w>"
