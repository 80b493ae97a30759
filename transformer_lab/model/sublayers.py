"""Layer normalization and residual connections (section 3.1), and the feed-forward network (section 3.3)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """Normalize each position to mean 0 and variance 1, then apply a gain and a bias (Ba et al. 2016)."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize `x`, `(..., d_model)`, along its last axis. The shape stays the same."""
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = centered.square().mean(dim=-1, keepdim=True)  # `x.var(correction=0)` is slow on a CPU
        return self.gain * centered / torch.sqrt(variance + self.eps) + self.bias


class FeedForward(nn.Module):
    """Compute FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 at each position (equation 2 in section 3.3)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network to `x`, `(batch, length, d_model)`. The shape stays the same."""
        return self.w_2(self.dropout(self.w_1(x).relu()))  # (batch, length, d_ff) inside


class ResidualConnection(nn.Module):
    """Add a sublayer's output to its input, with layer normalization and with dropout on the output (section 5.4).

    The paper normalizes the sum: `LayerNorm(x + Sublayer(x))` (section 3.1). With `norm_first`, the sublayer's input is
    normalized instead (pre-norm, Xiong et al. 2020).
    """

    def __init__(self, d_model: int, dropout: float = 0.0, norm_first: bool = False) -> None:
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the output of `sublayer` to `x`, `(batch, length, d_model)`. The shape stays the same."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))
