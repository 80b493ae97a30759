"""Correct answers to notebook 05 in different styles."""

import torch
import torch.nn.functional as F
from torch import einsum, nn


class NormByKernel(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class NormBySums(nn.Module):
    """Compute the variance as the mean of the squares minus the square of the mean."""

    def __init__(self, n, e=1e-5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))
        self.gain = nn.Parameter(torch.full((n,), 1.0))
        self.e, self.n = e, n

    def forward(self, t):
        mean = t.sum(-1, keepdim=True) / self.n
        variance = ((t * t).sum(-1, keepdim=True) / self.n - mean * mean).clamp(min=0)
        return (t - mean) * torch.rsqrt(variance + self.e) * self.gain + self.bias


class NormByMatrix(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps = eps
        self.register_buffer("centre", torch.eye(d_model) - 1 / d_model)

    def forward(self, x):
        x = x @ self.centre
        return x / torch.sqrt(einsum("...d,...d->...", x, x)[..., None] / x.size(-1) + self.eps) * self.gain + self.bias


class FeedForwardByEinsum(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.w_2 = nn.Linear(d_ff, d_model)
        self.w_1 = nn.Linear(d_model, d_ff)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.p = dropout

    def forward(self, x):
        hidden = einsum("...d,fd->...f", x, self.w_1.weight) + self.w_1.bias
        hidden = F.dropout(hidden.clamp(min=0), self.p, self.training)
        return einsum("...f,df->...d", hidden, self.w_2.weight) + self.w_2.bias


class FeedForwardDroppingBeforeRelu(nn.Module):
    """Apply dropout before the ReLU. The result is the same, because ReLU commutes with nonnegative factors."""

    def __init__(self, width, hidden, rate=0.0):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.drop, self.act = nn.Dropout(rate, inplace=True), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.w_2(self.act(self.drop(self.w_1(x))))


class FeedForwardByConvolution(nn.Module):
    """Use two convolutions with kernel size 1, as section 3.3 describes."""

    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        hidden = F.conv1d(x.mT, self.w_1.weight[..., None], self.w_1.bias).relu()
        return F.conv1d(self.dropout(hidden), self.w_2.weight[..., None], self.w_2.bias).mT


class ResidualInSteps(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm_first = norm_first
        self.norm = NormByKernel(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        shortcut = x
        if self.norm_first:
            x = self.norm(x)
        x = sublayer(x)
        x = self.drop(x)
        x = x + shortcut
        return x if self.norm_first else self.norm(x)


class ResidualByIdentities(nn.Module):
    def __init__(self, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm = NormBySums(d_model)
        self.p, self.order = dropout, (lambda y: y, self.norm)[:: -1 if norm_first else 1]

    def forward(self, x, sublayer):
        before, after = self.order
        return after(torch.add(x, F.dropout(sublayer(before(x)), self.p, training=self.training)))


class ResidualWithOwnDropout(nn.Module):
    def __init__(self, size, rate=0.0, first=False):
        super().__init__()
        self.norm = NormByMatrix(size)
        self.rate, self.first = rate, first

    def forward(self, x, f):
        y = f(self.norm(x) if self.first else x)
        if self.training and self.rate > 0:
            y = torch.where(torch.rand(y.shape) < self.rate, 0.0, y / (1 - self.rate))
        total = torch.stack([x, y]).sum(0)
        return total if self.first else self.norm(total)


VARIANTS = {
    "LayerNorm": [NormByKernel, NormBySums, NormByMatrix],
    "FeedForward": [
        FeedForwardByEinsum,
        FeedForwardDroppingBeforeRelu,
        FeedForwardByConvolution,
    ],
    "ResidualConnection": [ResidualInSteps, ResidualByIdentities, ResidualWithOwnDropout],
}
