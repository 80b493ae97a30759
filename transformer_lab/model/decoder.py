"""Section 3.1: the decoder."""

from torch import Tensor, nn

from transformer_lab.model.attention import MultiHeadAttention
from transformer_lab.model.sublayers import FeedForward, LayerNorm, ResidualConnection


class DecoderLayer(nn.Module):
    """Apply masked self-attention, cross-attention to the encoder's output, and the feed-forward network.

    Each of the three has its own residual connection.
    """

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.0, norm_first: bool = False) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm_first) for _ in range(3))

    def forward(
        self, x: Tensor, memory: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Apply the three sublayers.

        Args:
            x: The target, `(batch, target, d_model)`.
            memory: The encoder's output, `(batch, source, d_model)`.
            source_mask: Boolean tensor that broadcasts to `(batch, heads, target, source)`; True means "may attend".
            target_mask: The same for self-attention; broadcasts to `(batch, heads, target, target)`.

        Returns:
            `(batch, target, d_model)`.
        """
        x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, target_mask))
        x = self.residuals[1](x, lambda x: self.cross_attention(x, memory, memory, source_mask))
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """Stack `n_layers` decoder layers. With `norm_first`, a final `LayerNorm` follows, because no layer ends in one."""

    def __init__(
        self, n_layers: int, d_model: int, n_heads: int, d_ff: int, dropout: float = 0.0, norm_first: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(n_layers))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(
        self, x: Tensor, memory: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Pass `x` through all layers. Arguments and result are as in `DecoderLayer.forward`."""
        for layer in self.layers:
            x = layer(x, memory, source_mask, target_mask)
        return self.norm(x)
