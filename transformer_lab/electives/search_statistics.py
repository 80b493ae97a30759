"""Statistics for a few training runs: the expected best score of n runs, and confidence intervals for correlations."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np


def expected_best(values: Sequence[float], n: int) -> float:
    """Return the expected best of `n` runs, assuming that each is sampled at random from the measured runs.

    Dodge et al. 2019 ("Show Your Work", section 3.1): the n runs are sampled from the N `values` with replacement, so
    the best of them is at most the i-th smallest value with probability (i / N) ** n.

    Args:
        values: The scores of the measured runs, in any order; higher is better.
        n: The number of runs that the best is chosen from, at least 1. It may be larger than N.

    Raises:
        ValueError: `values` is empty, or `n` is below 1.
    """
    if len(values) == 0 or n < 1:
        raise ValueError(f"got {len(values)} values and n = {n}, but both numbers must be at least 1")
    count = len(values)
    shares = [(i / count) ** n - ((i - 1) / count) ** n for i in range(1, count + 1)]
    return sum(share * value for share, value in zip(shares, sorted(values), strict=True))


def correlation_interval(
    x: Sequence[float], y: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return Spearman's rank correlation of `x` and `y` with a confidence interval.

    Equal values share the mean of their ranks. The interval is symmetric around z = artanh(correlation) (Fisher 1915),
    with the standard error sqrt((1 + correlation² / 2) / (count - 3)) that z has for ranks (Bonett and Wright 2000).

    Args:
        x: One number for each of `count` runs.
        y: Another number for each run, in the same order.
        confidence: The confidence level, between 0 and 1: the share of searches whose interval would contain the true
            correlation.

    Returns:
        `(correlation, low, high)`. If `x` and `y` have the same order, all three are 1; if they have opposite orders,
        all three are -1.

    Raises:
        ValueError: `x` and `y` differ in length, there are fewer than 4 runs, or all values of `x` or of `y` are equal.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    count = len(x)
    if count != len(y) or count < 4:
        raise ValueError(f"got {count} and {len(y)} values, but both sides need the same number of values, at least 4")
    x, y = ((side[:, None] > side).sum(axis=1) + (side[:, None] == side).sum(axis=1) / 2 for side in (x, y))  # ranks
    x, y = x - x.mean(), y - y.mean()
    length = math.sqrt((x @ x) * (y @ y))
    if length == 0:
        raise ValueError("all values on one side are equal, so there is no correlation")
    correlation = float(x @ y) / length
    if abs(correlation) > 1 - 1e-12:  # artanh isn't defined for 1
        return (math.copysign(1.0, correlation),) * 3
    z = math.atanh(correlation)
    error = math.sqrt((1 + correlation**2 / 2) / (count - 3))
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return correlation, math.tanh(z - reach), math.tanh(z + reach)
