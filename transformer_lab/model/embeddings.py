"""Sections 3.4 and 3.5: token embeddings and positions."""

import math

import torch
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """Section 3.4: a vector for each token, multiplied by √d_model.

    The vector of `pad_id` starts at zero and gets no gradient here; an output layer that shares the weight may move it.

    Raises:
        ValueError: `pad_id` is not a token of the vocabulary.
    """

    def __init__(self, vocab_size: int, d_model: int, pad_id: int) -> None:
        super().__init__()
        if not 0 <= pad_id < vocab_size:
            raise ValueError(f"pad_id {pad_id} is not a token of a vocabulary of {vocab_size}")
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """`(batch, length)` integers to `(batch, length, d_model)`."""
        return self.embedding(tokens) * self.scale  # (batch, length, d_model)


def sinusoidal_encoding(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos of the same angle, section 3.5.

    Returns:
        `(length, d_model)` in torch's default dtype.

    Raises:
        ValueError: `d_model` is odd, so that a sine would have no cosine.
    """
    if d_model % 2:
        raise ValueError(f"d_model {d_model} is odd: each sine needs its cosine, take {d_model - 1} or {d_model + 1}")
    # In float64, because float32 knows an angle of 500 to 3e-5 only.
    positions = torch.arange(length, dtype=torch.float64)[:, None]  # (length, 1)
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2)
    angles = positions * frequencies  # (length, d_model / 2)
    encoding = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (length, d_model)
    return encoding.to(torch.get_default_dtype())


class PositionalEncoding(nn.Module):
    """Section 3.5: add the positions to the embeddings; section 5.4: drop out the sum.

    Raises:
        ValueError: `d_model` is odd.
    """

    def __init__(self, d_model: int, dropout: float = 0.0, max_length: int = 512) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        # A constant, not a parameter: it moves with the model to its device but is neither trained nor saved.
        self.register_buffer("encoding", sinusoidal_encoding(max_length, d_model), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, length, d_model)` to the same shape.

        Raises:
            ValueError: the sequence is longer than `max_length`.
        """
        length, max_length = x.size(1), self.encoding.size(0)
        if length > max_length:
            raise ValueError(
                f"sequence of {length} tokens, but max_length is {max_length}: raise max_length in TransformerConfig"
            )
        return self.dropout(x + self.encoding[:length])
