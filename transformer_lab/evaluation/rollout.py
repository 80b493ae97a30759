"""Attention rollout: trace the output of a stack back to its input tokens."""

import torch
from torch import Tensor


def attention_rollout(weights: Tensor) -> Tensor:
    """Compute attention rollout (Abnar and Zuidema 2020): how much of each input token is in each output of a stack.

    Args:
        weights: The self-attention of one sentence, `(layers, heads, length, length)`, with the lowest layer first.

    Returns:
        `(length, length)`: the rows are outputs of the top layer, the columns are input tokens, and each row sums to 1.
    """
    identity = torch.eye(weights.size(-1), dtype=weights.dtype, device=weights.device)
    rollout = identity
    for attention in weights.mean(dim=1):  # (length, length), the lowest layer first
        mixed = attention + identity  # the residual connection carries each token past the attention
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        rollout = mixed @ rollout
    return rollout
