"""Correct answers to notebook 07 in different styles."""

from torch import nn
from variants import variants_06

from transformer_lab.model import FeedForward, MultiHeadAttention, ResidualConnection


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


class LayerByKernels(variants_06.LayerByKernels):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.cross_attention = MultiHeadAttention(d_model, n_heads)
        self.residuals.append(ResidualConnection(d_model))

    def forward(self, x, memory, source_mask=None, target_mask=None):
        return self.connect(
            x,
            lambda y: self.attend(self.self_attention, y, y, target_mask),
            lambda y: self.attend(self.cross_attention, y, memory, source_mask),
            self.feed,
        )


class StackOfCopies(variants_06.StackOfCopies):
    Layer = LayerInSteps


class StackInSequence(variants_06.StackInSequence):
    Layer = LayerByKernels


class StackByRecursion(variants_06.StackByRecursion):
    Layer = LayerWithNamedFunctions


VARIANTS = {
    "DecoderLayer": [LayerInSteps, LayerWithNamedFunctions, LayerByKernels],
    "Decoder": [StackOfCopies, StackInSequence, StackByRecursion],
}
