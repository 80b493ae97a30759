"""Correct answers to notebook 02 in different styles."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.model import scaled_dot_product_attention


def split_by_chunks(x, n_heads):
    if x.size(-1) % n_heads != 0:
        raise ValueError(f"{x.size(-1)} features, {n_heads} heads")
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def split_by_slices(x, n_heads):
    d_k, rest = divmod(x.size(2), n_heads)
    if rest:
        raise ValueError("uneven")
    heads = x.new_zeros(x.size(0), n_heads, x.size(1), d_k)
    for head in range(n_heads):
        heads[:, head] = x[:, :, head * d_k : (head + 1) * d_k]
    return heads


def split_without_validation(x, n_heads):
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def combine_by_cat(x):
    return torch.cat([x[:, head] for head in range(x.size(1))], dim=-1)


def combine_by_permute(x):
    b, h, n, d = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(b, n, h * d)


def combine_by_flatten(x):
    return x.swapaxes(1, 2).flatten(-2)


class MultiHeadByEinsum(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"{d_model} and {n_heads}")
        self.h, self.d = n_heads, d_model // n_heads
        self.w_o = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_q = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)
        self.attend = self.by_einsum
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    @staticmethod
    def by_einsum(q, k, v, mask, dropout):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores + torch.where(mask, 0.0, -1e9)
        weights = dropout(scores.softmax(-1))
        return torch.einsum("bhqk,bhkd->bhqd", weights, v), weights

    def heads(self, layer, x):
        weight = layer.weight.view(self.h, self.d, -1)
        return torch.einsum("bnm,hdm->bhnd", x, weight) + layer.bias.view(1, self.h, 1, self.d)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(self.w_q, query), self.heads(self.w_k, key), self.heads(self.w_v, value)
        out, _ = self.attend(q, k, v, mask, self.drop)
        return torch.einsum("bhnd,mhd->bnm", out, self.w_o.weight.view(-1, self.h, self.d)) + self.w_o.bias


class MultiHeadWithFusedKernel(nn.Module):
    def __init__(self, width, heads, p=0.0):
        super().__init__()
        if width % heads != 0:
            raise ValueError(f"width {width}, heads {heads}")
        self.heads = heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(p)

    def attend(self, q, k, v, mask, dropout):
        p = dropout.p if dropout.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, p), None

    def forward(self, q, k, v, mask=None):
        q, k, v = (
            split_by_chunks(layer(x), self.heads)
            for layer, x in zip((self.w_q, self.w_k, self.w_v), (q, k, v), strict=True)
        )
        return self.w_o(combine_by_cat(self.attend(q, k, v, mask, self.dropout)[0]))


class MultiHeadHeadByHead(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        self.d_k, rest = divmod(d_model, n_heads)
        if rest:
            raise ValueError("uneven")
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.register_module(name, nn.Linear(d_model, d_model))
        self.p = dropout
        self.attend = self.one_by_one

    def dropout(self, weights):
        return F.dropout(weights, self.p, self.training)

    def one_by_one(self, q, k, v, mask, dropout):
        outputs = []
        for head in range(q.size(1)):
            own = mask[:, min(head, mask.size(1) - 1)] if mask is not None else None
            outputs.append(scaled_dot_product_attention(q[:, head], k[:, head], v[:, head], own, dropout)[0])
        return torch.stack(outputs, dim=1), None

    def forward(self, query, key, value, mask=None):
        def split(x):
            return torch.stack(x.split(self.d_k, dim=-1), dim=1)

        heads, _ = self.attend(split(self.w_q(query)), split(self.w_k(key)), split(self.w_v(value)), mask, self.dropout)
        return self.w_o(torch.cat(heads.unbind(1), dim=-1))


class MultiHeadByKeyword(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)
        self.attend = scaled_dot_product_attention

    def forward(self, query, key, value, mask=None):
        q, k, v = (split_without_validation(layer(x), self.n_heads)
                   for layer, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value)))  # fmt: skip
        output, _ = self.attend(q, k, v, mask=mask, dropout=self.dropout)
        return self.w_o(combine_by_flatten(output))


VARIANTS = {
    "split_heads": [split_by_chunks, split_by_slices, split_without_validation],
    "combine_heads": [combine_by_cat, combine_by_permute, combine_by_flatten],
    "MultiHeadAttention": [MultiHeadByEinsum, MultiHeadWithFusedKernel, MultiHeadHeadByHead, MultiHeadByKeyword],
}
