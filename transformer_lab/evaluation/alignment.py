"""Alignment error rate: how well attention matches a gold word alignment."""

from torch import Tensor


def alignment_error_rate(weights: Tensor, gold: Tensor) -> float:
    """Compute the alignment error rate (Och and Ney 2003), counting all gold links as sure.

    Each row of the weights proposes one link, to the column with its highest weight. If A are the proposed links and G
    the gold links, the rate is 1 - 2|A ∩ G| / (|A| + |G|). It is 0.0 if they are the same and 1.0 if they share none.

    Args:
        weights: The attention of one head, `(query, key)`. Rows are target tokens, and columns are source tokens.
        gold: Boolean, with the same shape; True where the two tokens are linked.

    Raises:
        ValueError: The shapes differ.
    """
    if weights.shape != gold.shape:
        raise ValueError(f"weights {tuple(weights.shape)} and gold {tuple(gold.shape)} must have the same shape")
    if weights.dim() != 2 or weights.numel() == 0:
        raise ValueError(f"weights {tuple(weights.shape)} must be (query, key) with at least one of each")
    strongest = weights.argmax(dim=-1, keepdim=True)  # (query, 1)
    hits = gold.gather(-1, strongest).sum().item()
    return 1 - 2 * hits / (weights.size(0) + gold.sum().item())
