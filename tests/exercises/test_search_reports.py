"""Without these, who makes a common mistake in notebook 22 would be told nothing, or something untrue, about it."""

import random
from statistics import NormalDist

import numpy as np

from transformer_lab.electives.search_statistics import correlation_interval, expected_best
from transformer_lab.exercises import find_exercise, run_check


def report_on(name, subject) -> tuple[str, tuple[str, ...]]:
    report = run_check(find_exercise(name), subject)
    return str(report), report.misconceptions


def test_ties_by_place_are_named_whatever_order_a_sort_gives_them():
    """NumPy's `argsort` keeps equal values in order on one machine and not on another: here they are shuffled."""

    def ranks(side):
        draw = random.Random(len(side) + 1)
        order = sorted(range(len(side)), key=lambda place: (side[place], draw.random()))
        return np.argsort(order)

    def ranked_by_place(x, y, confidence=0.95):
        if len(set(x)) == 1 or len(set(y)) == 1:
            raise ValueError("all equal")
        return correlation_interval(ranks(x), ranks(y), confidence)

    text, named = report_on("correlation_interval", ranked_by_place)
    assert named == ("ties_by_place",)
    assert "it is the correlation of ranks that equal values do not share" in text


def test_a_rounded_quantile_is_named_and_shown_to_differ():
    """1.96 for 1.959964 changes the fifth digit: with four, a report would say that two equal numbers differ."""

    def rounded(x, y, confidence=0.95):
        return correlation_interval(x, y, 2 * NormalDist().cdf(1.96) - 1)

    text, named = report_on("correlation_interval", rounded)
    assert named == ("literal_196",)
    expected, received = text.split("`low`: expected ")[-1].splitlines()[0].split(", received ")
    assert expected != received


def test_a_simulation_is_named_although_its_numbers_are_nobodys():
    def simulated(values, n):
        if not values or n < 1:
            raise ValueError("no runs")
        return sum(max(random.choices(values, k=n)) for _ in range(500)) / 500

    text, named = report_on("expected_best", simulated)
    assert named == ("drawn_at_random",)
    assert "it set a global random seed" not in text


def test_who_refuses_in_own_words_is_understood():
    """An exception's message is the student's own, so that misconceptions cannot have the same."""

    def careful(values, n):
        if n > len(values):
            raise ValueError("I have not seen so many")
        return expected_best(values, n)

    assert report_on("expected_best", careful)[1] == ("no_more_than_measured",)


def test_without_a_return_no_number_is_spoken_of():
    def forgetful(values, n):
        best = expected_best(values, n) if values and n else 0.0
        print(best)

    text, named = report_on("expected_best", forgetful)
    assert named == ()
    assert "is there a `return`?" in text
    assert "a number comes back" not in text


def test_the_input_that_is_not_refused_is_the_one_that_is_shown():
    def trusting(values, n):
        return sum(values) * 0 if not values else expected_best(values, n)

    text, named = report_on("expected_best", trusting)
    assert named == ("no_values_unchecked",)
    assert "values = []\n\nn = 2\n" in text

    def equal_is_nothing(x, y, confidence=0.95):
        if len(x) == len(y) and len(set(y)) == 1:
            return 0.0, -1.0, 1.0
        return correlation_interval(x, y, confidence)

    shown = report_on("correlation_interval", equal_is_nothing)[0].split("The smallest input that fails")[1]
    side = shown.split("y = [")[1].split("]")[0].split(", ")
    assert len(side) == 5
    assert len(set(side)) == 1
