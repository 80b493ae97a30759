"""Who may look at whom (sections 3.1 and 3.2.3). A mask is boolean, and True means "may attend"."""

import torch
from torch import Tensor


def padding_mask(tokens: Tensor, pad_id: int) -> Tensor:
    """Hide padding from every query.

    Args:
        tokens: `(batch, length)`, integers.
        pad_id: the token that fills up short sentences.

    Returns:
        `(batch, 1, 1, length)`, boolean: the last axis is the keys'.
    """
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int, device: torch.device | str | None = None) -> Tensor:
    """Hide the future: position i may attend to positions 0 to i, itself included.

    Returns:
        `(1, 1, length, length)`, boolean: rows are queries, columns are keys.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def target_mask(tokens: Tensor, pad_id: int) -> Tensor:
    """What the decoder's self-attention may see: no future and no padding.

    Args:
        tokens: `(batch, length)`, integers.
        pad_id: the padding token of the target language.

    Returns:
        `(batch, 1, length, length)`, boolean.
    """
    return padding_mask(tokens, pad_id) & causal_mask(tokens.size(1), tokens.device)
