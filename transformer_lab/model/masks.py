"""Masks: which query may attend to which key (sections 3.1 and 3.2.3). They are boolean; True means "may attend"."""

import torch
from torch import Tensor


def padding_mask(tokens: Tensor, pad_id: int) -> Tensor:
    """Return a mask that keeps every query from attending to padding.

    Args:
        tokens: `(batch, length)`, integers.
        pad_id: The ID of the padding token.

    Returns:
        `(batch, 1, 1, length)`, boolean. The last axis is the key axis.
    """
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int, device: torch.device | str | None = None) -> Tensor:
    """Return a mask that hides the future: position i may attend to positions 0 through i.

    Args:
        length: Number of positions.
        device: Where to create the mask, as in `torch.ones`.

    Returns:
        `(1, 1, length, length)`, boolean. Rows are queries, and columns are keys.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def target_mask(tokens: Tensor, pad_id: int) -> Tensor:
    """Return the mask for the decoder's self-attention, which hides both padding and the future.

    Args:
        tokens: `(batch, length)`, integers.
        pad_id: The ID of the target language's padding token.

    Returns:
        `(batch, 1, length, length)`, boolean, on the same device as `tokens`.
    """
    return padding_mask(tokens, pad_id) & causal_mask(tokens.size(1), tokens.device)
