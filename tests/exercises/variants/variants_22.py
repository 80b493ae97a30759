"""Correct answers to notebook 22 in different styles."""

import itertools
import math
from statistics import NormalDist, correlation, mean

import numpy as np
import pandas as pd

# --- random_search ----------------------------------------------------------------------------------------------------


def search_with_while(sample, train, trials, startup=5, warmup=1):
    results, finished = [], []
    while len(results) < trials:
        setting, scores = sample(), []
        for epoch, score in enumerate(train(setting)):
            scores.append(score)
            if epoch < warmup or len(finished) < startup:
                continue
            if np.median([curve[epoch] for curve in finished]) > score:
                results.append((setting, scores, True))
                break
        else:
            finished.append(scores)
            results.append((setting, scores, False))
    return results


def search_with_a_pruner_of_its_own(sample, train, trials, startup=5, warmup=1):
    results = []

    def falls_behind(curve):
        others = sorted(other[len(curve) - 1] for _, other, pruned in results if not pruned)
        if len(others) < startup or len(curve) <= warmup:
            return False
        half = len(others) // 2
        middle = others[half] if len(others) % 2 else (others[half - 1] + others[half]) / 2
        return curve[-1] < middle

    for _ in range(trials):
        chosen = sample()
        training, curve, pruned = iter(train(chosen)), [], False
        while not pruned:
            try:
                curve.append(next(training))
            except StopIteration:
                break
            pruned = falls_behind(curve)
        results.append((chosen, curve, pruned))
    return results


def search_by_best_score(sample, train, trials, startup=5, warmup=1):
    """Compare best scores, as Optuna does. Startup counts every trial, because no startup trial is pruned."""
    results = []
    for number in range(trials):
        hyperparameters = sample()
        curve = []
        results.append([hyperparameters, curve, False])
        for score in train(hyperparameters):
            curve += [score]
            if number >= startup and len(curve) > warmup:
                at_this_epoch = [other[len(curve) - 1] for _, other, pruned in results[:-1] if pruned is False]
                if max(curve) < np.quantile(at_this_epoch, 0.5):
                    results[-1][2] = True
                    break
    return results


# --- expected_best ----------------------------------------------------------------------------------------------------


def best_by_all_draws(values, n):
    """Average the best score over every possible sample of n runs, or use the formula if there are too many samples."""
    if not len(values) or n <= 0:
        raise ValueError("nothing to choose from")
    if len(values) ** n > 5000:
        return best_by_numpy(values, n)
    return mean(max(sampler) for sampler in itertools.product(values, repeat=n))


def best_by_numpy(values, n):
    if np.size(values) < 1 or n < 1:
        raise ValueError("no runs")
    at_most = (np.arange(np.size(values) + 1) / np.size(values)) ** n
    return float(np.dot(np.diff(at_most), np.sort(values)))


def best_by_steps(values, n):
    """Start with the smallest value, and add each step to the next value, weighted by a probability.

    The weight is the probability that the best run exceeds the value below the step.
    """
    ordered = sorted(values)
    if not ordered or n < 1:
        raise ValueError("no runs")
    best = ordered[0]
    for place, (below, above) in enumerate(itertools.pairwise(ordered), start=1):
        best += (above - below) * (1 - (place / len(ordered)) ** n)
    return best


def best_by_shares_of_each_value(runs, n):
    """Use the distribution function at each distinct value."""
    count = len(runs)
    if count == 0 or n < 1:
        raise ValueError("no runs")
    total = 0.0
    for value in set(runs):
        at_most = sum(other <= value for other in runs) / count
        below = sum(other < value for other in runs) / count
        total += value * (at_most**n - below**n)
    return total


# --- correlation_interval ---------------------------------------------------------------------------------------------


def interval_by_pandas(x, y, confidence=0.95):
    if len(x) != len(y) or len(x) <= 3:
        raise ValueError("lengths")
    r = pd.Series(x).rank().corr(pd.Series(y).rank())
    if math.isnan(r):
        raise ValueError("no variance")
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.clip(r, -1, 1))
    half = NormalDist().inv_cdf(1 - (1 - confidence) / 2) * np.sqrt((1 + r * r / 2) / (len(x) - 3))
    return r, np.tanh(z - half), np.tanh(z + half)


def interval_in_plain_python(x, y, confidence=0.95):
    def ranks(side):
        ordered = sorted(side)
        return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in side]

    n = len(x)
    if n < 4 or n != len(y):
        raise ValueError("lengths")
    r = correlation(ranks(list(x)), ranks(list(y)))  # raises StatisticsError, a ValueError, if all values are equal
    if 1 - abs(r) < 1e-9:
        return (float(round(r)),) * 3
    z = 0.5 * math.log((1 + r) / (1 - r))
    bounds = []
    for sign in (-1, 1):
        moved = z + sign * NormalDist(0, 1).inv_cdf(0.5 + confidence / 2) * ((2 + r**2) / (2 * (n - 3))) ** 0.5
        bounds.append((math.exp(2 * moved) - 1) / (math.exp(2 * moved) + 1))
    return (r, *bounds)


def interval_by_numpy(x, y, confidence=0.95):
    x, y = np.array(x), np.array(y)
    if x.shape != y.shape:
        raise ValueError("shapes")
    if x.size < 4:
        raise ValueError("too few")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise ValueError("constant")

    def ranks(side):
        _, inverse, counts = np.unique(side, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    r = float(np.clip(np.corrcoef(ranks(x), ranks(y))[0, 1], -1 + 1e-15, 1 - 1e-15))
    distribution = NormalDist(np.arctanh(r), np.sqrt((1 + r**2 / 2) / (x.size - 3)))
    outside = (1 - confidence) / 2
    return [r, np.tanh(distribution.inv_cdf(outside)), np.tanh(distribution.inv_cdf(1 - outside))]


VARIANTS = {
    "random_search": [search_with_while, search_with_a_pruner_of_its_own, search_by_best_score],
    "expected_best": [best_by_all_draws, best_by_numpy, best_by_steps, best_by_shares_of_each_value],
    "correlation_interval": [interval_by_pandas, interval_in_plain_python, interval_by_numpy],
}
