"""Correct answers to notebook 04 in different styles."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class EmbeddingByOneHot(nn.Module):
    """Initialize differently, look vectors up by matrix multiplication, and mask padding in each call."""

    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        nn.init.xavier_uniform_(self.embedding.weight)
        self.pad_id = pad_id

    def forward(self, tokens):
        weight = self.embedding.weight
        one_hot = F.one_hot(tokens, weight.size(0)).to(weight.dtype)
        one_hot[..., self.pad_id] = 0
        return one_hot @ weight * weight.size(1) ** 0.5


class EmbeddingByFunctional(nn.Module):
    def __init__(self, n, width, pad):
        super().__init__()
        self.embedding = nn.Embedding(n, width, pad)
        self.register_buffer("factor", torch.tensor(float(width)).sqrt())

    def forward(self, ids):
        return self.factor * F.embedding(ids, self.embedding.weight, self.embedding.padding_idx)


class EmbeddingRowByRow(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.embedding.weight[pad_id].zero_()
        self.root = math.sqrt(d_model)

    def forward(self, tokens):
        sentences = [torch.stack([self.embedding(token) for token in sentence]) for sentence in tokens]
        result = torch.stack(sentences)
        result *= self.root
        return result


def encoding_of_the_annotated_transformer(length, d_model):
    if d_model % 2 != 0:
        raise ValueError("d_model must be even")
    pe = torch.zeros(length, d_model)
    position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


def encoding_by_loops(length, d_model):
    if d_model & 1:
        raise ValueError(f"{d_model} is odd")
    rows = [
        [(math.cos if j % 2 else math.sin)(pos / 10000 ** ((j - j % 2) / d_model)) for j in range(d_model)]
        for pos in range(length)
    ]
    return torch.tensor(rows)


def encoding_through_numpy(length, d_model):
    if d_model % 2:
        raise ValueError
    angles = np.outer(np.arange(length), np.power(10000.0, -np.arange(0, d_model, 2) / d_model))
    table = np.empty((length, d_model), dtype=np.float32)
    table[:, ::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return torch.from_numpy(table)


def encoding_with_phase(length, d_model):
    if d_model % 2:
        raise ValueError("odd")
    frequency = (10000.0 ** (-torch.arange(0, d_model, 2) / d_model)).repeat_interleave(2)
    phase = torch.tensor([0.0, math.pi / 2]).repeat(d_model // 2)
    return torch.sin(torch.arange(length).unsqueeze(-1) * frequency + phase)


class PositionsPersistent(nn.Module):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__()
        self.drop = nn.Dropout(p=dropout)
        self.register_buffer("pe", encoding_of_the_annotated_transformer(max_length, d_model).unsqueeze(0))

    def forward(self, x):
        if x.shape[1] > self.pe.shape[1]:
            raise ValueError(f"{x.shape[1]} > {self.pe.shape[1]}")
        x = x + self.pe[:, : x.shape[1]].requires_grad_(False)
        return self.drop(x)


class PositionsOnTheFly(nn.Module):
    """Compute the positions in every call, without a table."""

    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__()
        self.p, self.max_length = dropout, max_length

    def forward(self, x):
        length, d_model = x.shape[1:]
        if self.max_length < length:
            raise ValueError(f"sequence of {length} tokens, but max_length is {self.max_length}")
        table = encoding_by_loops(length, d_model).to(x)
        return F.dropout(x + table, self.p, self.training)


class PositionsByEmbedding(nn.Module):
    """Look up positions in a fixed table with torch's embedding function."""

    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__()
        self.max_length = max_length
        self.dropout = dropout
        self.register_buffer("table", encoding_with_phase(max_length, d_model), persistent=False)

    def forward(self, x):
        if x.size(1) > self.max_length:
            raise ValueError("too long")
        positions = torch.arange(x.size(1), device=x.device).expand(x.size(0), -1)
        total = x + F.embedding(positions, self.table)
        if self.training and self.dropout:
            total = total * (torch.rand_like(total) >= self.dropout) / (1 - self.dropout)
        return total


class PositionsMovedInForward(nn.Module):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.encoding = encoding_through_numpy(max_length, d_model)

    def forward(self, x):
        _, length, _ = x.shape
        if length > len(self.encoding):
            raise ValueError(f"{length} tokens are more than {len(self.encoding)}")
        return self.dropout(x.add(self.encoding[:length].to(x.device)))


VARIANTS = {
    "TokenEmbedding": [EmbeddingByOneHot, EmbeddingByFunctional, EmbeddingRowByRow],
    "sinusoidal_encoding": [
        encoding_of_the_annotated_transformer,
        encoding_by_loops,
        encoding_through_numpy,
        encoding_with_phase,
    ],
    "PositionalEncoding": [PositionsPersistent, PositionsOnTheFly, PositionsByEmbedding, PositionsMovedInForward],
}
