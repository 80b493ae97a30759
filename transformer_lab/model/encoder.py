"""Section 3.1: the encoder."""

from torch import Tensor, nn

from transformer_lab.model.attention import MultiHeadAttention
from transformer_lab.model.sublayers import FeedForward, LayerNorm, ResidualConnection


class EncoderLayer(nn.Module):
    """Apply self-attention and then the feed-forward network. Each has its own residual connection."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.0, norm_first: bool = False) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm_first) for _ in range(2))

    def forward(self, x: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Apply the two sublayers.

        Args:
            x: The source, `(batch, source, d_model)`.
            source_mask: Boolean tensor that broadcasts to `(batch, heads, source, source)`; True means "may attend".

        Returns:
            `(batch, source, d_model)`.
        """
        x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, source_mask))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """Stack `n_layers` encoder layers. With `norm_first`, a final `LayerNorm` follows, because no layer ends in one."""

    def __init__(
        self, n_layers: int, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.0, norm_first: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(self, x: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Pass `x` through all layers. Arguments and result are as in `EncoderLayer.forward`."""
        for layer in self.layers:
            x = layer(x, source_mask)
        return self.norm(x)
