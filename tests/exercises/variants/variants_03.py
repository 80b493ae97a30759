"""Correct answers to notebook 03 in different styles."""

import numpy as np
import torch


def padding_by_view(tokens, pad_id):
    batch, length = tokens.shape
    return tokens.ne(pad_id).view(batch, 1, 1, length)


def padding_by_unsqueeze(x, pad):
    return ~(x == pad).unsqueeze(1).unsqueeze(2)


def padding_by_loops(tokens, pad_id):
    mask = torch.zeros(len(tokens), 1, 1, tokens.shape[1], dtype=torch.bool)
    for row, sentence in enumerate(tokens.tolist()):
        for column, token in enumerate(sentence):
            mask[row, 0, 0, column] = token != pad_id
    return mask


def causal_by_comparison(length, device=None):
    positions = torch.arange(length, device=device)
    return (positions[:, None] >= positions[None, :]).view(1, 1, length, length)


def causal_by_numpy(n, device=None):
    return torch.from_numpy(np.tril(np.ones((1, 1, n, n))).astype(bool)).to(device)


def causal_by_triu(length, device="cpu"):
    return torch.triu(torch.ones((1, 1, length, length), device=device), diagonal=1) == 0


def causal_by_loops(length, device=None):
    rows = [[column <= row for column in range(length)] for row in range(length)]
    return torch.tensor([[rows]], device=device)


def target_by_product(tokens, pad_id):
    return padding_by_view(tokens, pad_id) * causal_by_comparison(tokens.size(1), tokens.device)


def target_by_loops(tokens, pad_id):
    batch, length = tokens.shape
    mask = torch.zeros(batch, 1, length, length, dtype=torch.bool, device=tokens.device)
    for b in range(batch):
        for i in range(length):
            for j in range(i + 1):
                mask[b, 0, i, j] = bool(tokens[b, j] != pad_id)
    return mask


def target_by_tril(tokens, pad_id):
    length = tokens.shape[1]
    return (tokens != pad_id)[:, None, None].expand(-1, 1, length, -1).tril()


VARIANTS = {
    "padding_mask": [padding_by_view, padding_by_unsqueeze, padding_by_loops],
    "causal_mask": [causal_by_comparison, causal_by_numpy, causal_by_triu, causal_by_loops],
    "target_mask": [target_by_product, target_by_loops, target_by_tril],
}
