"""Alignment error rate: how well attention matches a gold word alignment."""

from torch import Tensor


def alignment_error_rate(weights: Tensor, gold: Tensor) -> float:
    """The alignment error rate of Och and Ney (2003), where every gold link is a sure one.

    Each row of the weights proposes one link, to the column of its greatest weight. With A the proposed links and G the
    gold ones, the rate is 1 - 2|A ∩ G| / (|A| + |G|): 0.0 when they are the same, 1.0 when they share none.

    Args:
        weights: attention, `(query, key)`: rows are target tokens, columns source tokens.
        gold: boolean, the same shape; True where the two tokens are linked.

    Raises:
        ValueError: the shapes differ.
    """
    if weights.shape != gold.shape:
        raise ValueError(f"weights {tuple(weights.shape)} and gold {tuple(gold.shape)} must have the same shape")
    if weights.dim() != 2 or weights.numel() == 0:
        raise ValueError(f"weights {tuple(weights.shape)} must be (query, key) with at least one of each")
    strongest = weights.argmax(dim=-1, keepdim=True)  # (query, 1)
    hits = gold.gather(-1, strongest).sum().item()
    return 1 - 2 * hits / (weights.size(0) + gold.sum().item())
