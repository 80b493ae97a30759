"""Correct answers to notebook 06 in different styles."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.model import FeedForward, LayerNorm, MultiHeadAttention, ResidualConnection


class LayerInSteps(nn.Module):
    """Take only the norms from the residual connections, and do the additions in separate steps."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        self.residuals = nn.ModuleList([ResidualConnection(d_model), ResidualConnection(d_model)])
        self.feed_forward = FeedForward(d_model, d_ff, dropout=dropout)
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.drop = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x, source_mask=None):
        norm_1, norm_2 = self.residuals[0].norm, self.residuals[1].norm
        if self.norm_first:
            y = norm_1(x)
            x = x + self.drop(self.self_attention(y, y, y, source_mask))
            return x + self.drop(self.feed_forward(norm_2(x)))
        x = norm_1(x + self.drop(self.self_attention(x, x, x, source_mask)))
        return norm_2(x + self.drop(self.feed_forward(x)))


class LayerWithNamedFunction(nn.Module):
    def __init__(self, width, heads, hidden, rate=0.0, first=False):
        super().__init__()
        for name, part in {
            "feed_forward": FeedForward(width, hidden, rate),
            "residuals": nn.ModuleDict({str(i): ResidualConnection(width, rate, first) for i in range(2)}),
            "self_attention": MultiHeadAttention(width, heads, rate),
        }.items():
            self.add_module(name, part)
        for parameter in self.parameters():
            nn.init.constant_(parameter, 0.1)

    def forward(self, x, source_mask=None):
        def attend_to_itself(y):
            return self.self_attention(query=y, key=y, value=y, mask=source_mask)

        for residual, sublayer in zip(self.residuals.values(), (attend_to_itself, self.feed_forward), strict=True):
            x = residual(x, sublayer)
        return x


class LayerByKernels(nn.Module):
    """Use torch's own functions for every operation, and an additive mask."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(d_model) for _ in range(2))
        self.heads, self.p, self.norm_first = n_heads, dropout, norm_first

    def attend(self, attention, asking, asked, mask):
        pairs = (attention.w_q, asking), (attention.w_k, asked), (attention.w_v, asked)
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w, x in pairs)
        if mask is not None:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -1e9)
        p = self.p if self.training else 0.0
        return attention.w_o(F.scaled_dot_product_attention(q, k, v, mask, p).transpose(1, 2).flatten(2))

    def feed(self, x):
        f = self.feed_forward
        return f.w_2(F.dropout(F.relu(f.w_1(x)), self.p, self.training))

    def connect(self, x, *sublayers):
        for residual, sublayer in zip(self.residuals, sublayers, strict=True):
            gain, bias = residual.norm.gain, residual.norm.bias
            y = F.layer_norm(x, gain.shape, gain, bias) if self.norm_first else x
            x = x + F.dropout(sublayer(y), self.p, self.training)
            x = x if self.norm_first else F.layer_norm(x, gain.shape, gain, bias)
        return x

    def forward(self, x, source_mask=None):
        return self.connect(x, lambda y: self.attend(self.self_attention, y, y, source_mask), self.feed)


class StackOfCopies(nn.Module):
    """Copy one layer, because identical initial weights are allowed."""

    Layer = LayerInSteps

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        layer = self.Layer(d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(n_layers))
        if norm_first:
            self.norm = LayerNorm(d_model)
        self.norm_first = norm_first

    def forward(self, x, *others):
        for layer in self.layers:
            x = layer(x, *others)
        return self.norm(x) if self.norm_first else x


class StackInSequence(nn.Module):
    Layer = LayerByKernels

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm = LayerNorm(d_model) if norm_first else None
        self.layers = nn.Sequential()
        for _ in range(n_layers):
            self.layers.append(self.Layer(d_model, n_heads, d_ff, dropout, norm_first))

    def forward(self, x, *others):
        i = 0
        while i < len(self.layers):
            x = self.layers[i].forward(x, *others)
            i += 1
        return x if self.norm is None else self.norm(x)


class StackByRecursion(nn.Module):
    Layer = LayerWithNamedFunction

    def __init__(self, depth, *sizes):
        super().__init__()
        self.layers = nn.ModuleDict({f"{i}": self.Layer(*sizes) for i in range(depth)})
        self.norm = LayerNorm(sizes[0]) if sizes[4:] and sizes[4] else nn.Sequential()

    def forward(self, x, *others):
        def through(layers, x):
            return through(layers[1:], layers[0](x, *others)) if layers else x

        return self.norm(through(list(self.layers.values()), x))


VARIANTS = {
    "EncoderLayer": [LayerInSteps, LayerWithNamedFunction, LayerByKernels],
    "Encoder": [StackOfCopies, StackInSequence, StackByRecursion],
}
