"""Correct answers to notebook 01 in different styles."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import einsum, nn


def softmax_by_logarithm(x):
    top = np.max(x, axis=-1, keepdims=True)
    return np.exp(x - top - np.log(np.sum(np.exp(x - top), axis=-1, keepdims=True)))


def softmax_row_by_row(scores):
    result = np.empty_like(scores)
    for index in np.ndindex(scores.shape[:-1]):
        row = scores[index]
        exponentials = np.exp(row - max(row))
        result[index] = exponentials / sum(exponentials)
    return result


def softmax_through_torch(scores):
    return torch.softmax(torch.from_numpy(scores), dim=-1).numpy()


def softmax_in_float32(scores):
    scores = (scores - scores.max(-1, keepdims=True)).astype(np.float32)
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def numpy_attention_by_einsum(query, key, value):
    weights = softmax_by_logarithm(np.einsum("bqd,bkd->bqk", query, key) * query.shape[-1] ** -0.5)
    return np.einsum("bqk,bkd->bqd", weights, value), weights


def numpy_attention_by_loops(q, k, v):
    outputs, all_weights = [], []
    for one_q, one_k, one_v in zip(q, k, v, strict=True):
        scores = np.array([[np.dot(a, b) for b in one_k] for a in one_q]) / math.sqrt(q.shape[2])
        weights = softmax_row_by_row(scores)
        outputs.append(weights @ one_v)
        all_weights.append(weights)
    return np.stack(outputs), np.stack(all_weights)


def numpy_attention_scaling_first(query, key, value):
    root = np.sqrt(np.sqrt(query.shape[-1]))
    weights = softmax_by_logarithm(np.matmul(query / root, np.transpose(key / root, (0, 2, 1))))
    return [np.matmul(weights, value), weights]


def attention_by_einsum(query, key, value, mask=None, dropout=None):
    scores = einsum("...qd,...kd->...qk", query, key) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = F.softmax(scores, dim=-1)
    return einsum("...qk,...kd->...qd", dropout(weights) if dropout else weights, value), weights


def attention_with_additive_mask(q, k, v, mask=None, dropout=None):
    scores = torch.matmul(q, k.mT) * (1 / math.sqrt(q.size(-1)))
    if mask is not None:
        bias = torch.zeros(mask.shape)
        bias[~mask] = -1e9
        scores = scores + bias
    weights = torch.softmax(scores, -1)
    if dropout is not None:
        return torch.matmul(dropout(weights), v), weights
    return torch.matmul(weights, v), weights


def attention_with_where(query, key, value, mask=None, dropout=None):
    scores = query.matmul(key.swapaxes(-1, -2)).div(math.sqrt(key.shape[-1]))
    if mask is not None:
        empty = ~mask.any(-1, keepdim=True)
        scores = torch.where(mask | empty, scores, -torch.inf)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = torch.where(empty, 0.0, weights)
    return (dropout or nn.Identity())(weights) @ value, weights


def attention_by_exponentials(query, key, value, mask=None, dropout=None):
    scores = (query.unsqueeze(-2) * key.unsqueeze(-3)).sum(-1) / math.sqrt(query.size(-1))
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    if mask is not None:
        exponentials = exponentials * mask
    weights = exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-12)
    kept = weights if dropout is None else dropout(weights)
    return (kept.unsqueeze(-1) * value.unsqueeze(-3)).sum(-2), weights


def attention_by_the_fused_kernel(query, key, value, mask=None, dropout=None):
    identity = torch.eye(key.size(-2)).expand(*key.shape[:-1], key.size(-2))
    weights = F.scaled_dot_product_attention(query, key, identity, attn_mask=mask)
    return (weights if dropout is None else dropout(weights)) @ value, weights


class HeadByEinsum(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_v = nn.Linear(d_model, d_k)
        self.w_k = nn.Linear(d_model, d_k)
        self.w_q = nn.Linear(d_model, d_k)
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.1)

    def forward(self, query, key, value, mask=None):
        return attention_by_einsum(self.w_q(query), self.w_k(key), self.w_v(value), mask)[0]


class HeadWithFusedKernel(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        for name in ("w_q", "w_k", "w_v"):
            setattr(self, name, nn.Linear(d_model, d_k))

    def forward(self, query, key, value, mask=None):
        return F.scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)


class HeadByHand(nn.Module):
    def __init__(self, width, head_width):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(width, head_width) for _ in range(3))
        self.scale = head_width**-0.5

    def forward(self, q, k, v, m=None):
        q = q @ self.w_q.weight.T + self.w_q.bias
        k = k @ self.w_k.weight.T + self.w_k.bias
        v = v @ self.w_v.weight.T + self.w_v.bias
        scores = torch.bmm(q, k.transpose(1, 2)) * self.scale
        if m is not None:
            scores = scores + (~m).double() * -1e30
        return torch.bmm(scores.softmax(2), v)


VARIANTS = {
    "softmax": [softmax_by_logarithm, softmax_row_by_row, softmax_through_torch, softmax_in_float32],
    "numpy_attention": [numpy_attention_by_einsum, numpy_attention_by_loops, numpy_attention_scaling_first],
    "scaled_dot_product_attention": [
        attention_by_einsum,
        attention_with_additive_mask,
        attention_with_where,
        attention_by_exponentials,
        attention_by_the_fused_kernel,
    ],
    "SingleHeadAttention": [HeadByEinsum, HeadWithFusedKernel, HeadByHand],
}
