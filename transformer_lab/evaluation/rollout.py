"""Attention rollout: trace the output of a stack back to its input tokens."""

import torch
from torch import Tensor


def attention_rollout(weights: Tensor) -> Tensor:
    """Compute attention rollout (Abnar and Zuidema 2020): how much each input token contributes to each output.

    Args:
        weights: The self-attention of one sentence, `(layers, heads, length, length)`, with the lowest layer first.

    Returns:
        `(length, length)`. Rows are outputs of the top layer, columns are input tokens, and each row sums to 1.
    """
    identity = torch.eye(weights.size(-1), dtype=weights.dtype, device=weights.device)
    rollout = identity
    for attention in weights.mean(dim=1):  # (length, length), the lowest layer first
        mixed = attention + identity  # the identity is the residual connection
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        rollout = mixed @ rollout
    return rollout
