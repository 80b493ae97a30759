"""Statistics for a few training runs: the expected best of n, and a confidence interval for a correlation."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np


def expected_best(values: Sequence[float], n: int) -> float:
    """How good the best of `n` runs is in the mean, if each of them is like a random one of those measured.

    Dodge et al. 2019 ("Show Your Work", section 3.1): the n runs are drawn from the N `values` with replacement, so
    that the best of them is at most the i-th smallest value with probability (i / N) ** n.

    Args:
        values: What each measured run has reached, in any order; more is better.
        n: How many runs one would have picked the best of, from 1; it may be greater than N.

    Raises:
        ValueError: There are no values, or `n` is below 1.
    """
    if len(values) == 0 or n < 1:
        raise ValueError(f"{len(values)} values and n = {n}, but both must be at least 1")
    count = len(values)
    shares = [(i / count) ** n - ((i - 1) / count) ** n for i in range(1, count + 1)]
    return sum(share * value for share, value in zip(shares, sorted(values), strict=True))


def correlation_interval(
    x: Sequence[float], y: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Spearman's rank correlation of `x` and `y`, with a confidence interval.

    Equal values share the mean of their ranks. The interval is even around z = artanh(correlation) (Fisher 1915), with
    the standard error sqrt((1 + correlation² / 2) / (count - 3)) that z has for ranks (Bonett and Wright 2000).

    Args:
        x: One number for each of `count` runs.
        y: Another number for each run, in the same order.
        confidence: In so many of all searches the interval holds the true correlation: between 0 and 1.

    Returns:
        `(correlation, low, high)`. Where the order is the same, or just the opposite, all three are 1 or -1.

    Raises:
        ValueError: `x` and `y` have different lengths, there are fewer than 4 runs, or all values of a side are equal.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    count = len(x)
    if count != len(y) or count < 4:
        raise ValueError(f"{count} and {len(y)} values, but both sides need as many, and at least 4")
    x, y = ((side[:, None] > side).sum(axis=1) + (side[:, None] == side).sum(axis=1) / 2 for side in (x, y))  # ranks
    x, y = x - x.mean(), y - y.mean()
    length = math.sqrt((x @ x) * (y @ y))
    if length == 0:
        raise ValueError("all values of one side are equal: what does not change is correlated with nothing")
    correlation = float(x @ y) / length
    if abs(correlation) > 1 - 1e-12:  # artanh has no number for 1
        return (math.copysign(1.0, correlation),) * 3
    z = math.atanh(correlation)
    error = math.sqrt((1 + correlation**2 / 2) / (count - 3))
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return correlation, math.tanh(z - reach), math.tanh(z + reach)
