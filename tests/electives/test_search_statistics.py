"""Without these tests, an interval could be too narrow, or an estimate of the best score could be too optimistic."""

import itertools
import math
from statistics import mean

import numpy as np
import pandas as pd
import pytest

from transformer_lab.electives.search_statistics import correlation_interval, expected_best


@pytest.mark.parametrize("values", [[34.0, 30.0, 32.0], [1.5, -2.0, 1.5, 7.0]])
@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_the_expected_best_is_the_mean_over_all_samples(values, n):
    """The expected best is, by definition, the mean of the best run over all samples of n runs with replacement."""
    assert expected_best(values, n) == pytest.approx(mean(max(draw) for draw in itertools.product(values, repeat=n)))


def test_the_rank_correlation_is_that_of_pandas():
    """Both lists contain ties."""
    rng = np.random.default_rng(1)
    for count in (5, 20, 60):
        x, y = rng.integers(0, 6, count), rng.integers(0, 9, count)
        expected = pd.Series(x).rank().corr(pd.Series(y).rank())
        assert correlation_interval(x, y)[0] == pytest.approx(expected)


def test_the_interval_by_hand():
    """Five runs have a rank correlation of 0.8: artanh 0.8 = 1.0986, ± 1.95996 times √(1.32 / 2) = 0.8124."""
    correlation, low, high = correlation_interval([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert correlation == pytest.approx(0.8)
    assert low == pytest.approx(math.tanh(1.0986123 - 1.959964 * 0.8124038), abs=1e-6)
    assert high == pytest.approx(math.tanh(1.0986123 + 1.959964 * 0.8124038), abs=1e-6)


@pytest.mark.parametrize(("truth", "confidence"), [(0.0, 0.95), (0.6, 0.95), (-0.8, 0.8)])
def test_the_interval_contains_the_truth_as_often_as_it_promises(truth, confidence):
    """For normal x and y with Pearson correlation r, the true rank correlation is 6/π arcsin(r/2) (Pearson 1907).

    With 1,000 searches, the coverage has a standard error of 0.7% at 95%, and of 1.3% at 80%. The formula is an
    approximation: Bonett and Wright report coverages that are off by up to about 2%.
    """
    rng = np.random.default_rng(7)
    straight = 2 * math.sin(math.pi * truth / 6)
    held = 0
    for _ in range(1000):
        x = rng.standard_normal(20)
        y = straight * x + math.sqrt(1 - straight**2) * rng.standard_normal(20)
        _, low, high = correlation_interval(x, y, confidence)
        held += low <= truth <= high
    assert held / 1000 == pytest.approx(confidence, abs=0.035)


def test_the_interval_is_that_of_the_bootstrap():
    """The bootstrap does not need a formula, because it resamples the trials of the same search with replacement."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(150)
    y = 0.6 * x + 0.8 * rng.standard_normal(150)
    draws = [correlation_interval(x[chosen], y[chosen])[0] for chosen in rng.integers(0, 150, (600, 150))]
    _, low, high = correlation_interval(x, y)
    assert np.quantile(draws, [0.025, 0.975]) == pytest.approx([low, high], abs=0.05)
