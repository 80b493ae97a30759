"""Reports for notebook 22 name common mistakes in code of any style and make no false claims."""

import random
from statistics import NormalDist

import numpy as np
import pytest

from transformer_lab.electives.search_statistics import correlation_interval, expected_best
from transformer_lab.exercises import find_exercise, run_check


def report_on(name, subject) -> tuple[str, tuple[str, ...]]:
    report = run_check(find_exercise(name), subject)
    return str(report), report.misconceptions


RANKS = {
    "NumPy's default sort": lambda side: np.argsort(np.argsort(side)),
    "a stable sort": lambda side: np.argsort(np.argsort(side, kind="stable"), kind="stable"),
    "Python's sort": lambda side: np.argsort(sorted(range(len(side)), key=side.__getitem__)),
    "the highest first": lambda side: np.argsort(sorted(range(len(side)), key=lambda place: -side[place])),
}


@pytest.mark.parametrize("ranks", RANKS.values(), ids=RANKS)
def test_ties_by_place_are_named_whichever_sort_ranks_them(ranks):
    """NumPy's default `argsort` keeps equal values in order on some machines but not on others."""

    def ranked_by_place(x, y, confidence=0.95):
        return correlation_interval(ranks(x), ranks(y), confidence)

    text, named = report_on("correlation_interval", ranked_by_place)
    assert named == ("ties_by_place",), text


def test_a_rounded_quantile_is_named_and_shown_to_differ():
    """Rounding 1.959964 to 1.96 changes the fifth digit. A report with only four digits would show equal numbers."""

    def rounded(x, y, confidence=0.95):
        return correlation_interval(x, y, 2 * NormalDist().cdf(1.96) - 1)

    text, named = report_on("correlation_interval", rounded)
    assert named == ("always_95",)
    expected, received = text.split("`low`: expected ")[-1].splitlines()[0].split("; got ")
    assert expected != received


def test_it_says_which_of_the_returned_numbers_is_right():
    def with_bounds_of_its_own(x, y, confidence=0.95):
        correlation, low, high = correlation_interval(x, y, confidence)
        return correlation, low / 2, high / 2

    text, named = report_on("correlation_interval", with_bounds_of_its_own)
    assert named == ()
    assert "`correlation` is right; only `low` and `high` differ." in text


def test_a_simulation_is_named_although_its_numbers_are_its_own():
    def simulated(values, n):
        if not values or n < 1:
            raise ValueError("no runs")
        return sum(max(random.choices(values, k=n)) for _ in range(500)) / 500

    text, named = report_on("expected_best", simulated)
    assert named == ("drawn_at_random",)
    assert "it set a global random seed" not in text


def test_a_refusal_in_other_words_is_understood():
    """Students write their own exception messages, so the catalog cannot list all possible messages."""

    def careful(values, n):
        if n > len(values):
            raise ValueError("I have not seen so many")
        return expected_best(values, n)

    assert report_on("expected_best", careful)[1] == ("n_limited",)


def test_a_missing_return_is_not_called_a_number():
    def forgetful(values, n):
        best = expected_best(values, n) if values and n else 0.0
        print(best)

    text, named = report_on("expected_best", forgetful)
    assert named == ()
    assert "is there a `return`?" in text
    assert "a result that looks like any other" not in text


def test_arguments_that_make_no_sense_are_remarked_on():
    """The exercise does not teach argument validation, so an answer without a `ValueError` still passes."""

    def trusting(values, n):
        return sum(values) * 0 if not values else expected_best(values, n)

    report = run_check(find_exercise("expected_best"), trusting)
    assert report.passed
    assert "Expected a `ValueError` for an empty list of values" in " ".join(report.remarks)

    def equal_is_nothing(x, y, confidence=0.95):
        if len(x) == len(y) and len(set(y)) == 1:
            return float("nan"), -1.0, 1.0
        return correlation_interval(x, y, confidence)

    report = run_check(find_exercise("correlation_interval"), equal_is_nothing)
    assert report.passed
    assert "nothing was raised, and NaN (not a number) was returned" in " ".join(report.remarks)
