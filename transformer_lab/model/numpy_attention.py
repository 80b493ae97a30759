"""Section 3.2.1 in NumPy: attention small enough to check by hand."""

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    """Turn scores into positive weights that add up to 1 along the last axis.

    The largest score of each row is subtracted first, which keeps `exp` from overflowing and does not change the
    weights.

    Args:
        scores: Array of any shape `(..., key)`.

    Returns:
        Array of the same shape.
    """
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def numpy_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute scaled dot-product attention (equation 1 of the paper) without a mask or dropout.

    Args:
        query: `(batch, query, d_k)`.
        key: `(batch, key, d_k)`.
        value: `(batch, key, d_v)`.

    Returns:
        `(output, weights)` of shapes `(batch, query, d_v)` and `(batch, query, key)`.
    """
    d_k = query.shape[-1]
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(d_k)  # (batch, query, key)
    weights = softmax(scores)
    return weights @ value, weights  # (batch, query, d_v)
