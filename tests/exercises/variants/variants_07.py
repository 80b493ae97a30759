"""Correct answers to notebook 07 in different styles."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.model import FeedForward, LayerNorm, MultiHeadAttention, ResidualConnection


class LayerInSteps(nn.Module):
    """Take only the norms from the residual connections, and do the additions in separate steps."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        self.residuals = nn.ModuleList([ResidualConnection(d_model) for _ in range(3)])
        self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout=dropout)
        self.drop_1, self.drop_2, self.drop_3 = nn.Dropout(dropout), nn.Dropout(dropout), nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x, memory, source_mask=None, target_mask=None):
        norm_1, norm_2, norm_3 = (residual.norm for residual in self.residuals)
        if self.norm_first:
            y = norm_1(x)
            x = x + self.drop_1(self.self_attention(y, y, y, target_mask))
            x = x + self.drop_2(self.cross_attention(norm_2(x), memory, memory, source_mask))
            return x + self.drop_3(self.feed_forward(norm_3(x)))
        x = norm_1(x + self.drop_1(self.self_attention(x, x, x, target_mask)))
        x = norm_2(x + self.drop_2(self.cross_attention(x, memory, memory, source_mask)))
        return norm_3(x + self.drop_3(self.feed_forward(x)))


class LayerWithNamedFunctions(nn.Module):
    def __init__(self, width, heads, hidden, rate=0.0, first=False):
        super().__init__()
        self.residuals = nn.Sequential(*(ResidualConnection(width, rate, norm_first=first) for _ in "abc"))
        self.feed_forward = FeedForward(width, hidden, rate)
        self.cross_attention, self.self_attention = (MultiHeadAttention(width, heads, rate) for _ in range(2))
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x, memory, source_mask=None, target_mask=None):
        def look_back(y):
            return self.self_attention(query=y, key=y, value=y, mask=target_mask)

        def look_across(y):
            return self.cross_attention(query=y, key=memory, value=memory, mask=source_mask)

        for i, sublayer in enumerate([look_back, look_across, self.feed_forward]):
            x = self.residuals[i](x, sublayer)
        return x


class LayerByKernels(nn.Module):
    """Use torch's own functions for every operation, and additive masks."""

    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads)
        self.cross_attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(d_model) for _ in range(3))
        self.heads, self.p, self.norm_first = n_heads, dropout, norm_first

    def attend(self, a, asking, asked, mask):
        pairs = ((a.w_q, asking), (a.w_k, asked), (a.w_v, asked))
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w, x in pairs)
        if mask is not None:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -1e9)
        p = self.p if self.training else 0.0
        return a.w_o(F.scaled_dot_product_attention(q, k, v, mask, p).transpose(1, 2).flatten(2))

    def forward(self, x, memory, source_mask=None, target_mask=None):
        f = self.feed_forward
        for number, residual in enumerate(self.residuals):
            gain, bias = residual.norm.gain, residual.norm.bias
            y = F.layer_norm(x, gain.shape, gain, bias) if self.norm_first else x
            if number == 0:
                y = self.attend(self.self_attention, y, y, target_mask)
            elif number == 1:
                y = self.attend(self.cross_attention, y, memory, source_mask)
            else:
                y = f.w_2(F.dropout(F.relu(f.w_1(y)), self.p, self.training))
            x = x + F.dropout(y, self.p, self.training)
            x = x if self.norm_first else F.layer_norm(x, gain.shape, gain, bias)
        return x


class StackOfCopies(nn.Module):
    """Copy one layer, because identical initial weights are allowed."""

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        layer = LayerInSteps(d_model, n_heads, d_ff, dropout, norm_first)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(n_layers))
        if norm_first:
            self.norm = LayerNorm(d_model)
        self.norm_first = norm_first

    def forward(self, x, memory, source_mask=None, target_mask=None):
        for layer in self.layers:
            x = layer(x, memory, source_mask, target_mask)
        return self.norm(x) if self.norm_first else x


class StackByIndex(nn.Module):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm = LayerNorm(d_model) if norm_first else None
        self.layers = nn.Sequential()
        for _ in range(n_layers):
            self.layers.append(LayerByKernels(d_model, n_heads, d_ff, dropout, norm_first))

    def forward(self, x, memory, source_mask=None, target_mask=None):
        i = 0
        while i < len(self.layers):
            x = self.layers[i].forward(x, memory, target_mask=target_mask, source_mask=source_mask)
            i += 1
        return x if self.norm is None else self.norm(x)


class StackByRecursion(nn.Module):
    def __init__(self, depth, *sizes):
        super().__init__()
        self.layers = nn.ModuleDict({f"{i}": LayerWithNamedFunctions(*sizes) for i in range(depth)})
        self.norm = LayerNorm(sizes[0]) if sizes[4:] and sizes[4] else nn.Sequential()

    def forward(self, x, *others):
        def through(layers, x):
            return through(layers[1:], layers[0](x, *others)) if layers else x

        return self.norm(through(list(self.layers.values()), x))


VARIANTS = {
    "DecoderLayer": [LayerInSteps, LayerWithNamedFunctions, LayerByKernels],
    "Decoder": [StackOfCopies, StackByIndex, StackByRecursion],
}
