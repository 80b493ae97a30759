"""Section 3.2: attention."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(Q Kᵀ / √d_k) V (equation 1 in section 3.2.1).

    Args:
        query: `(..., query, d_k)`.
        key: `(..., key, d_k)`.
        value: `(..., key, d_v)`.
        mask: Boolean tensor that broadcasts to `(..., query, key)`; True means "may attend". If a query has no allowed
            key, all its weights are zero.
        dropout: Function to apply to the weights. It is called once, with the whole tensor.

    Returns:
        `(output, weights)` of shapes `(..., query, d_v)` and `(..., query, key)`. Dropout affects only the output.
    """
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)  # (..., query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # the softmax made rows with no allowed key uniform
    attended = weights if dropout is None else dropout(weights)
    return attended @ value, weights  # (..., query, d_v)


class SingleHeadAttention(nn.Module):
    """One attention head with learned projections (section 3.2.2)."""

    def __init__(self, d_model: int, d_k: int) -> None:
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k)
        self.w_k = nn.Linear(d_model, d_k)
        self.w_v = nn.Linear(d_model, d_k)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project the three inputs and attend.

        Args:
            query: `(batch, query, d_model)`.
            key: `(batch, key, d_model)`.
            value: `(batch, key, d_model)`.
            mask: Boolean tensor that broadcasts to `(batch, query, key)`; True means "may attend".

        Returns:
            `(batch, query, d_k)`.
        """
        output, _ = scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)
        return output


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split the last axis into heads and move the heads next to the batch.

    Args:
        x: `(batch, length, d_model)`.
        n_heads: Number of heads; must divide `d_model`.

    Returns:
        `(batch, n_heads, length, d_k)` with `d_k = d_model / n_heads`. Head `h` gets features `h * d_k` through
        `(h + 1) * d_k - 1`.

    Raises:
        ValueError: `n_heads` does not divide `d_model`.
    """
    batch, length, d_model = x.shape
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"d_model {d_model} is not divisible by n_heads {n_heads}")
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)  # (batch, heads, length, d_k)


def combine_heads(x: Tensor) -> Tensor:
    """Join the heads along the last axis. This is the inverse of `split_heads`.

    Args:
        x: `(batch, heads, length, d_k)`.

    Returns:
        `(batch, length, heads * d_k)`.
    """
    batch, heads, length, d_k = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * d_k)  # (batch, length, d_model)


class MultiHeadAttention(nn.Module):
    """Multi-head attention (section 3.2.2): several heads attend at once, each with `d_model / n_heads` features.

    All attention happens in `attend`. Replace it to use a faster kernel or to look at the weights. It is called with
    `(query, key, value, mask, dropout)`, the first three of shape `(batch, heads, length, d_k)`, and returns
    `(output, weights)`, where the weights may be None.

    Raises:
        ValueError: `n_heads` does not divide `d_model`.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            raise ValueError(f"d_model {d_model} is not divisible by n_heads {n_heads}")
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.attend = scaled_dot_product_attention

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Project, split into heads, attend, combine, project.

        Args:
            query: `(batch, query, d_model)`.
            key: `(batch, key, d_model)`.
            value: `(batch, key, d_model)`.
            mask: Boolean tensor that broadcasts to `(batch, heads, query, key)`; True means "may attend".

        Returns:
            `(batch, query, d_model)`.
        """
        q = split_heads(self.w_q(query), self.n_heads)  # (batch, heads, query, d_k)
        k = split_heads(self.w_k(key), self.n_heads)  # (batch, heads, key, d_k)
        v = split_heads(self.w_v(value), self.n_heads)  # (batch, heads, key, d_k)
        output, _ = self.attend(q, k, v, mask, self.dropout)  # (batch, heads, query, d_k)
        return self.w_o(combine_heads(output))  # (batch, query, d_model)
