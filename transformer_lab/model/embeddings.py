"""Sections 3.4 and 3.5: token embeddings and positions."""

import math

import torch
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """Look up a vector for each token and multiply it by √d_model (section 3.4).

    The vector for `pad_id` starts at zero, and the lookup never passes a gradient to it.

    Raises:
        ValueError: `pad_id` is outside the vocabulary.
    """

    def __init__(self, vocab_size: int, d_model: int, pad_id: int) -> None:
        super().__init__()
        if not 0 <= pad_id < vocab_size:
            raise ValueError(f"pad_id {pad_id} is not a token of a vocabulary of {vocab_size}")
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the vectors, `(batch, length, d_model)`, for token IDs `(batch, length)`."""
        return self.embedding(tokens) * self.scale  # (batch, length, d_model)


def sinusoidal_encoding(length: int, d_model: int) -> Tensor:
    """Return the table of positional encodings from section 3.5.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), and PE(pos, 2i + 1) is the cosine of the same angle.

    Args:
        length: Number of positions. The first one is position 0.
        d_model: Number of features; must be even.

    Returns:
        `(length, d_model)`, in torch's default dtype.

    Raises:
        ValueError: `d_model` is odd, so one sine would have no cosine.
    """
    if d_model % 2:
        raise ValueError(f"d_model {d_model} is odd, but each sine needs a cosine: use {d_model - 1} or {d_model + 1}")
    # Use float64: in float32, an angle of 500 would be accurate only to 3e-5.
    positions = torch.arange(length, dtype=torch.float64)[:, None]  # (length, 1)
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2)
    angles = positions * frequencies  # (length, d_model / 2)
    encoding = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (length, d_model)
    return encoding.to(torch.get_default_dtype())


class PositionalEncoding(nn.Module):
    """Add positional encodings to the embeddings (section 3.5) and apply dropout to the sum (section 5.4).

    Raises:
        ValueError: `d_model` is odd.
    """

    def __init__(self, d_model: int, dropout: float = 0.0, max_length: int = 512) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        # A constant rather than a parameter: it moves to the model's device but is neither trained nor saved.
        self.register_buffer("encoding", sinusoidal_encoding(max_length, d_model), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the positional encodings to `x`, `(batch, length, d_model)`, and apply dropout. The shape stays the same.

        Raises:
            ValueError: The sequence is longer than `max_length`.
        """
        length, max_length = x.size(1), self.encoding.size(0)
        if length > max_length:
            raise ValueError(
                f"sequence of {length} tokens, but max_length is {max_length}: raise max_length in TransformerConfig"
            )
        return self.dropout(x + self.encoding[:length])
