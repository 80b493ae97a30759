"""Correct answers to notebook 09 in different styles."""

import re
from collections import Counter, OrderedDict
from itertools import chain, pairwise, zip_longest

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]


def vocabulary_by_loops(sentences, min_frequency=1):
    from torchtext.vocab import Vocab

    counts = {}
    for sentence in sentences:
        for token in sentence:
            counts[token] = counts.get(token, 0) + 1
    return Vocab(Counter(counts), min_freq=min_frequency, specials=SPECIALS)


def vocabulary_by_update(sentences, min_frequency=1):
    from torchtext.vocab import Vocab

    counts = Counter()
    for sentence in sentences:
        counts.update(sentence)
    kept = Counter({token: count for token, count in counts.items() if count >= min_frequency})
    return Vocab(kept, specials=("<pad>", "<bos>", "<eos>", "<unk>"), specials_first=True)


def vocabulary_by_hand(sentences, min_frequency=1):
    from torchtext.vocab import Vocab

    counts = Counter(chain.from_iterable(sentences))
    vocabulary = Vocab(Counter(), specials=SPECIALS)
    for token, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if count >= min_frequency and token not in SPECIALS:
            vocabulary.stoi[token] = len(vocabulary.itos)
            vocabulary.itos.append(token)
    return vocabulary


def learn_by_recounting(word_counts, n_merges):
    words = [([*word, "</w>"], count) for word, count in word_counts.items()]
    merges = []
    for _ in range(n_merges):
        counts = {}
        for symbols, count in words:
            for left, right in pairwise(symbols):
                counts[left, right] = counts.get((left, right), 0) + count
        if not counts:
            return merges
        left, right = sorted(counts, key=lambda pair: (-counts[pair], pair))[0]
        merges.append((left, right))
        for symbols, _ in words:
            position = 0
            while position < len(symbols) - 1:
                if symbols[position] == left and symbols[position + 1] == right:
                    symbols[position : position + 2] = [left + right]
                position += 1
    return merges


def learn_by_regular_expression(word_counts, n_merges):
    """Follow the paper's listing, with lookarounds that keep symbols whole."""
    vocabulary = OrderedDict((" ".join([*word, "</w>"]), count) for word, count in word_counts.items())
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for word, frequency in vocabulary.items():
            symbols = word.split()
            for i in range(len(symbols) - 1):
                pairs[symbols[i], symbols[i + 1]] += frequency
        if len(pairs) == 0:
            break
        highest = max(pairs.values())
        best = min(pair for pair in pairs if pairs[pair] == highest)
        bigram = re.compile(r"(?<!\S)" + re.escape(" ".join(best)) + r"(?!\S)")
        vocabulary = {bigram.sub("".join(best), word): frequency for word, frequency in vocabulary.items()}
        merges.append(best)
    return merges


def learn_with_lists_for_pairs(word_counts, n_merges):
    return [list(pair) for pair in learn_by_regular_expression(word_counts, n_merges)]


def join(symbols, left, right):
    if len(symbols) < 2:
        return symbols
    if symbols[0] == left and symbols[1] == right:
        return [left + right, *join(symbols[2:], left, right)]
    return [symbols[0], *join(symbols[1:], left, right)]


def apply_by_recursion(word, merges):
    if not merges:
        return [*word, "</w>"]
    return join(apply_by_recursion(word, merges[:-1]), *merges[-1])


def apply_by_rank(word, merges):
    """Repeatedly merge the lowest-ranked pair that is present, as libraries do."""
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    symbols = [*word, "</w>"]
    while True:
        present = [(ranks.get(pair, len(ranks)), i) for i, pair in enumerate(pairwise(symbols))]
        if not present or min(present)[0] == len(ranks):
            return symbols
        _, i = min(present)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


def apply_by_regular_expression(word, merges):
    text = " ".join(word) + " </w>"
    for left, right in merges:
        text = re.sub(rf"(?<!\S){re.escape(left)} {re.escape(right)}(?!\S)", left + right, text)
    return text.split(" ")


def pad_by_the_library(sequences, pad_id):
    tensors = [torch.tensor(sequence) for sequence in sequences]
    return pad_sequence(tensors, batch_first=True, padding_value=pad_id)


def pad_by_zip_longest(sequences, pad_id):
    return torch.tensor(list(zip_longest(*sequences, fillvalue=pad_id))).T


def pad_in_numpy(sequences, pad_id):
    padded = np.full((len(sequences), max(len(s) for s in sequences)), pad_id, dtype=np.int64)
    for index, sequence in enumerate(sequences):
        padded[index, : len(sequence)] = sequence
    return torch.from_numpy(padded)


def batches_from_the_longest(lengths, max_tokens):
    if any(length > max_tokens for length in lengths):
        raise ValueError("too long")
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    batches = []
    while order:
        size = max_tokens // lengths[order[0]]
        batches.append(order[:size])
        order = order[size:]
    return batches


def batches_in_order(lengths, max_tokens):
    """Take sentences in their given order, which follows the rules but wastes space."""
    batches, current, longest = [], [], 0
    for index, length in enumerate(lengths):
        if length > max_tokens:
            raise ValueError(f"{length} > {max_tokens}")
        if current and (len(current) + 1) * max(longest, length) > max_tokens:
            batches.append(current)
            current, longest = [], 0
        current.append(index)
        longest = max(longest, length)
    if current:
        batches.append(current)
    return batches


def batches_by_argsort(lengths, max_tokens):
    batches = [[]]
    for index in np.argsort(lengths, kind="stable").tolist():
        if lengths[index] > max_tokens:
            raise ValueError(index)
        if (len(batches[-1]) + 1) * lengths[index] > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return [tuple(batch) for batch in batches if batch]


VARIANTS = {
    "build_vocabulary": [vocabulary_by_loops, vocabulary_by_update, vocabulary_by_hand],
    "learn_bpe": [learn_by_recounting, learn_by_regular_expression, learn_with_lists_for_pairs],
    "apply_bpe": [apply_by_recursion, apply_by_rank, apply_by_regular_expression],
    "pad_batch": [pad_by_the_library, pad_by_zip_longest, pad_in_numpy],
    "token_batches": [batches_from_the_longest, batches_in_order, batches_by_argsort],
}
