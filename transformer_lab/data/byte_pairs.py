"""Byte-pair encoding (Sennrich et al. 2016), which section 5.1 uses to split words into subwords."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

END_OF_WORD = "</w>"


def learn_bpe(word_counts: Mapping[str, int], n_merges: int) -> list[tuple[str, str]]:
    """Return the merges learned from word counts, in order (Sennrich et al. 2016, algorithm 1).

    Every word starts as its characters followed by the symbol `</w>`. Each step merges the most frequent pair of
    adjacent symbols into one symbol; ties go to the smallest pair. Learning stops after `n_merges`, or when every
    word is a single symbol.
    """
    words = [[*word, END_OF_WORD] for word in word_counts]
    weights = list(word_counts.values())
    pair_counts: Counter[tuple[str, str]] = Counter()
    words_with: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for index, symbols in enumerate(words):
        for pair in pairwise(symbols):
            pair_counts[pair] += weights[index]
            words_with[pair].add(index)

    merges = []
    while pair_counts and len(merges) < n_merges:
        highest = max(pair_counts.values())
        best = min(pair for pair, count in pair_counts.items() if count == highest)
        merges.append(best)
        # Only words with this pair change: subtract their old pairs from the counts, and add the new ones.
        for index in list(words_with[best]):
            for pair in pairwise(words[index]):
                pair_counts[pair] -= weights[index]
                words_with[pair].discard(index)
            before = set(pairwise(words[index]))
            words[index] = merge_pair(words[index], best)
            for pair in pairwise(words[index]):
                pair_counts[pair] += weights[index]
                words_with[pair].add(index)
            for pair in before:
                if not words_with[pair]:
                    del pair_counts[pair], words_with[pair]
    return merges


def apply_bpe(word: str, merges: Sequence[tuple[str, str]]) -> list[str]:
    """Split a word into symbols by applying the learned merges in order. Unknown characters stay as they are."""
    symbols = [*word, END_OF_WORD]
    for pair in merges:
        symbols = merge_pair(symbols, pair)
    return symbols


def merge_pair(symbols: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join every occurrence of the pair, from left to right: `a a a` with (a, a) becomes `aa a`."""
    merged = []
    position = 0
    while position < len(symbols):
        if tuple(symbols[position : position + 2]) == pair:
            merged.append(pair[0] + pair[1])
            position += 2
        else:
            merged.append(symbols[position])
            position += 1
    return merged
