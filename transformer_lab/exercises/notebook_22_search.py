"""Notebook 22, a search: how good the best of n runs is by luck alone, and how sure a correlation is."""

import functools
import math
from itertools import pairwise, permutations, product
from statistics import NormalDist

import numpy as np

from transformer_lab.electives.search_statistics import correlation_interval, expected_best
from transformer_lab.exercises.compare import compare, short_and_apart
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark


def different_scores(draw: Draw, count: int) -> list[float]:
    """Scores from about 20 on, each greater than the one before."""
    steps = draw.integers(count, low=1, high=9).cumsum(0)
    return [20 + step / 2 for step in steps.tolist()]


def difference_in_numbers(expected, received, names):
    """What the engine itself would say, with the numbers beside it."""
    differences, remarks = compare(expected, received, names)
    if not differences:
        return Remark(" ".join(remarks)) if remarks else None
    said = []
    for difference in differences[:2]:
        wanted, got = short_and_apart(difference.expected, difference.received)
        numbers = f"`{difference.where}`: expected {wanted}, received {got}"
        said.append(numbers if difference.kind in ("value", "nan") else difference.says)
    return "; ".join(said)


def what_comes_of_it(subject, **inputs):
    """For inputs that are to be refused: what comes back, or the name of what is raised."""
    try:
        return {"returned": subject(*inputs.values())}
    except Exception as error:
        return {"raised": type(error).__name__}


def refused_in_words(inputs, received):
    if "raised" in received:
        error = received["raised"]
        if error == "ValueError":
            return None
        return Remark(f"It refuses with {error}; a `ValueError` that says why is meant.")
    value = received["returned"]
    if value is None:
        return "None comes back (is there a `return`?); a `ValueError` is meant"
    numbers = value if isinstance(value, list | tuple) else [value]
    if any(number != number for number in numbers):
        return "NaN (not a number) comes back; a `ValueError` is meant"
    return "nothing is raised; a `ValueError` is meant"


# --- expected_best ----------------------------------------------------------------------------------------------------


def greatest_last(draw: Draw, count: int, n: int) -> dict:
    """The first ones are not in order either, so that to forget to sort shows."""
    scores = different_scores(draw, count)
    return {"values": [*scores[1:-1], scores[0], scores[-1]], "n": n}


def with_equal_scores(draw: Draw) -> dict:
    low, middle, high = different_scores(draw, 3)
    return {"values": [middle, middle, low, middle, high], "n": 3}


def around_zero(draw: Draw) -> dict:
    """Minus a loss, for instance: more is better here too."""
    return {"values": [score - 32 for score in greatest_last(draw, 6, 4)["values"]], "n": 4}


def best_twice(subject, values, n):
    """Asked twice about the same runs: by a formula, both are the same."""
    first, again = subject(values, n), subject(values, n)
    if isinstance(first, float | int) and isinstance(again, float | int) and first == first and first != again:
        return "another number each time"
    return first


def best_of_many(subject, values, n):
    """The same, where n is greater than the number of runs. Whoever refuses that is told so."""
    try:
        first, again = subject(values, n), subject(values, n)
    except ValueError:
        return "refused"
    if isinstance(first, float | int) and isinstance(again, float | int) and first == first and first != again:
        return "another number each time"
    return first


def best_agrees(inputs, expected, received):
    if isinstance(received, str) and received == "another number each time":
        return "asked twice about the same runs, it gives two numbers"
    if isinstance(received, str) and received == "refused":
        return f"it refuses n = {inputs['n']} of {len(inputs['values'])} runs with a ValueError"
    return difference_in_numbers(expected, received, ("best",))


def best_in_two_orders(subject, values, n, order):
    return {"as measured": subject(values, n), "in another order": subject([values[i] for i in order], n)}


def order_of_runs_does_not_matter(inputs, received):
    if abs(received["as measured"] - received["in another order"]) > 1e-9:
        return "the same runs in another order give another number"
    return None


def best_of_more_and_more(subject, values, numbers_of_runs):
    found = []
    for n in numbers_of_runs:
        try:
            found.append(subject(values, n))
        except ValueError:
            return f"n = {n} is refused with a ValueError"
    return found


def from_the_mean_to_the_best(inputs, received):
    values = inputs["values"]
    if isinstance(received, str):
        return received
    if any(after < before - 1e-9 for before, after in pairwise(received)):
        return "the best of more runs is worse than the best of fewer"
    if received[-1] > max(values) + 1e-9:
        return "it is better than the best of all that were measured"
    if received[0] < min(values) - 1e-9:
        return "it is worse than the worst that was measured"
    return None


def refused(values, n):
    if len(values) == 0 or n < 1:
        raise ValueError("no runs")


def best_with(shares, order=sorted):
    """An `expected_best` with other weights, `shares(count, n)`, or values in another order."""

    def best(values, n):
        refused(values, n)
        weights = shares(len(values), n)
        return sum(weight * value for weight, value in zip(weights, order(values), strict=True))

    return best


def right_shares(count, n):
    return [(i / count) ** n - ((i - 1) / count) ** n for i in range(1, count + 1)]


def best_of(choose):
    def best(values, n):
        refused(values, n)
        return choose(values, n)

    return best


def best_of_distinct(values, n):
    refused(values, n)
    values = sorted(set(values))
    return sum(share * value for share, value in zip(right_shares(len(values), n), values, strict=True))


def best_without_replacement(values, n):
    refused(values, n)
    count, values = len(values), sorted(values)
    return sum(math.comb(i - 1, n - 1) * values[i - 1] for i in range(1, count + 1)) / math.comb(count, n)


def best_that_sorts_in_place(values, n):
    refused(values, n)
    values.sort()
    return sum(share * value for share, value in zip(right_shares(len(values), n), values, strict=True))


def best_of_random_draws(values, n):
    return sum(max(np.random.choice(values, n)) for _ in range(300)) / 300


def best_of_as_many_as_measured(values, n):
    refused(values, n)
    if n > len(values):
        raise ValueError("more than there are")
    return expected_best(values, n)


def best_without_looking_at_values(values, n):
    refused([0], n)
    return best_of_whatever(values, n)


def best_without_looking_at_n(values, n):
    refused(values, 1)
    return best_of_whatever(values, n)


def best_of_a_bell(values, n):
    return float(np.mean(values) + np.std(values) * math.sqrt(2 * math.log(n)))


def best_of_whatever(values, n):
    return sum(share * value for share, value in zip(right_shares(len(values), n), sorted(values), strict=True))


EXPECTED_BEST = Exercise(
    answer=expected_best,
    points=2,
    minutes=20,
    returns=("best",),
    axes={"values": "run"},
    probes=[
        Probe("two of three runs", lambda draw: greatest_last(draw, 3, 2), best_twice, agrees=best_agrees),
        Probe("one of five runs", lambda draw: greatest_last(draw, 5, 1), best_twice, agrees=best_agrees),
        Probe("three of six runs", lambda draw: greatest_last(draw, 6, 3), best_twice, agrees=best_agrees),
        Probe("runs with equal scores", with_equal_scores, best_twice, agrees=best_agrees),
        Probe("scores around zero", around_zero, best_twice, agrees=best_agrees),
        Probe("more runs than were measured", lambda draw: greatest_last(draw, 3, 5), best_of_many, agrees=best_agrees),
    ],
    properties=[
        Property(
            "the order of the runs does not matter",
            lambda draw: greatest_last(draw, 5, 2) | {"order": draw.order(5)},
            order_of_runs_does_not_matter,
            best_in_two_orders,
        ),
        Property(
            "more runs are never worse, and never better than the best that was measured",
            lambda draw: {
                "values": greatest_last(draw, 4, 1)["values"],
                "numbers_of_runs": [1, 2, 3, 5, 10, 40],
            },
            from_the_mean_to_the_best,
            best_of_more_and_more,
        ),
        Property(
            "no values: a ValueError",
            lambda draw: {"values": [], "n": 2},
            refused_in_words,
            what_comes_of_it,
            costs=0.5,
        ),
        Property(
            "the best of no run, n = 0: a ValueError",
            lambda draw: {"values": different_scores(draw, 3), "n": 0},
            refused_in_words,
            what_comes_of_it,
            costs=0.5,
        ),
    ],
    misconceptions=[
        Misconception(
            "best_of_all",
            best_of(lambda values, n: max(values)),
            "It is the best of all runs that were measured, whatever `n` is. Asked for is what somebody who makes `n` "
            "runs may expect; of few runs that is less (Dodge et al. 2019, section 3.1).",
        ),
        Misconception(
            "best_of_the_first",
            best_of(lambda values, n: max(values[:n])),
            "It is the best of the first `n` runs. That is one draw out of many, and it depends on which run happened "
            "to come first. Asked for is the mean over all ways to draw `n` runs.",
        ),
        Misconception(
            "mean_of_all",
            best_of(lambda values, n: sum(values) / len(values)),
            "It is the mean of the runs. That is right for `n` = 1 only; the best of several is better than the mean, "
            "and by how much is the question.",
        ),
        Misconception(
            "mean_of_the_best",
            best_of(lambda values, n: sum(sorted(values)[-n:]) / len(values[-n:])),
            "It is the mean of the `n` best runs. Nobody who makes `n` runs gets just those: draw `n` at random, take "
            "the best of them, and average over all draws.",
        ),
        Misconception(
            "expected_worst",
            best_with(right_shares, order=lambda values: sorted(values, reverse=True)),
            "The weights meet the values the wrong way round: this is the expected *worst* of `n`. (i / N) ** n is the "
            "share of the draws that stay among the i *smallest*, so sort from the smallest up, and count from there.",
        ),
        Misconception(
            "not_sorted",
            best_with(right_shares, order=list),
            "The values are not sorted. (i / N) ** n is the probability that all `n` runs are among the i smallest, so "
            "the i-th weight belongs to the i-th smallest value.",
        ),
        Misconception(
            "cumulative",
            best_with(lambda count, n: [(i / count) ** n for i in range(1, count + 1)]),
            "The weights are the probabilities that the best is *at most* the i-th value. They add up to more than 1. "
            "The probability that it *is* the i-th value is the difference of two neighbours.",
        ),
        Misconception(
            "off_by_one",
            best_with(lambda count, n: [((i + 1) / count) ** n - (i / count) ** n for i in range(1, count + 1)]),
            "The weights are shifted by one place: (i + 1) / N stands where i / N is meant. Then they do not add up to "
            "1. Count i from 1, and subtract the one *before*.",
        ),
        Misconception(
            "counted_from_zero",
            best_with(lambda count, n: [(i / count) ** n - ((i - 1) / count) ** n for i in range(count)]),
            "i counts from 0, as `range(N)` and `enumerate` do, and in the formula from 1. So the smallest value gets "
            "the weight 0 - (-1 / N) ** n, and the greatest that of its neighbour: `range(1, N + 1)`.",
        ),
        Misconception(
            "density",
            best_with(lambda count, n: [n * (i / count) ** (n - 1) / count for i in range(1, count + 1)]),
            "The weights are the derivative n · (i / N) ** (n - 1) / N, as if there were infinitely many runs. There "
            "are N, and the weights should add up to 1: take the difference of two neighbouring powers.",
        ),
        Misconception(
            "power_outside",
            best_with(lambda count, n: [(1 / count) ** n] * count),
            "Each value gets the weight (1 / N) ** n: the probability that *all* `n` draws are this one run. For the "
            "best, the others may also be any of the smaller ones: (i / N) ** n - ((i - 1) / N) ** n.",
        ),
        Misconception(
            "without_replacement",
            best_without_replacement,
            "The `n` runs are drawn without replacement: no run comes twice. That is another estimate, that of Tang et "
            "al. (2020), without bias for the runs at hand. It has no answer where `n` is greater than the number of "
            "runs. Here they are put back, as in Dodge et al. (2019).",
        ),
        Misconception(
            "equal_scores_once",
            best_of_distinct,
            "Runs with equal scores are counted once: a `set` loses them. Two runs that reach the same are two runs, "
            "and make that score twice as likely.",
        ),
        Misconception(
            "quantile",
            best_of(lambda values, n: float(np.quantile(values, n / (n + 1)))),
            "It is a quantile of the runs, n / (n + 1). That is where the best of `n` lies roughly, for many evenly "
            "spread values; the mean over all draws can be computed exactly.",
        ),
        Misconception(
            "bell_curve",
            best_of(best_of_a_bell),
            "It is the mean plus the standard deviation times √(2 ln n): an approximation for many draws from a bell "
            "curve. It can be better than every run that was measured. Use the measured values themselves.",
        ),
        Misconception(
            "sorted_in_place",
            best_that_sorts_in_place,
            "The list is sorted in place, and whoever has passed it finds their runs in another order. `sorted(values)`"
            " makes a new list.",
        ),
        Misconception(
            "nothing_refused",
            best_of_whatever,
            "Without values, or for the best of no run, a number comes back. That looks like a measured score: raise a "
            "`ValueError`.",
        ),
        Misconception(
            "no_values_unchecked",
            best_without_looking_at_values,
            "Without values a number comes back. That looks like a measured score: raise a `ValueError`.",
        ),
        Misconception(
            "no_run_unchecked",
            best_without_looking_at_n,
            "For the best of no run, `n` = 0, a number comes back. Nobody has measured it: raise a `ValueError` where "
            "`n` is below 1.",
        ),
        Misconception(
            "no_more_than_measured",
            best_of_as_many_as_measured,
            "It refuses an `n` greater than the number of runs. The draws are put back, so there may be more of them "
            "than runs: the best of 5 like these 3 is a fair question, if one whose answer is too low.",
        ),
        Misconception(
            "drawn_at_random",
            best_of(best_of_random_draws),
            "It draws runs at random and averages, so that each call gives another number, a little beside the right "
            "one. The mean over *all* draws needs none: sum the probabilities times the values.",
        ),
    ],
    hints=[
        "Sort the values. When is the best of `n` draws at most the i-th smallest? When every single draw is.",
        "One draw is among the i smallest of N with probability i / N, and all `n` of them with (i / N) ** n. "
        "“Exactly the i-th” is “at most the i-th” minus “at most the one before”.",
        "`shares = [(i / count) ** n - ((i - 1) / count) ** n for i in range(1, count + 1)]`, then the sum of share "
        "times value over `zip(shares, sorted(values))`. Before that, the two cases that are refused.",
    ],
)

# --- correlation_interval ---------------------------------------------------------------------------------------------


def in_a_mixed_order(draw: Draw, ranks: list[int], confidence: float = 0.95) -> dict:
    """y rises with the ranks given, x with the place, by uneven steps; the runs come in any order."""
    count = len(ranks)
    x, y = different_scores(draw, count), different_scores(draw, count)
    pairs = [(x[i], y[ranks[i]]) for i in draw.order(count)]
    return {"x": [one for one, _ in pairs], "y": [other for _, other in pairs], "confidence": confidence}


def rates_and_scores(draw: Draw) -> dict:
    """The rates are powers of ten, so that without ranks only the greatest counts. They do not come sorted."""
    scores = different_scores(draw, 8)
    ranks = [1, 0, 3, 2, 6, 7, 5, 4]
    order = [2, 5, 0, 7, 1, 4, 6, 3]
    return {"x": [10.0 ** (i - 5) for i in order], "y": [scores[ranks[i]] for i in order]}


def heads_and_scores(draw: Draw) -> dict:
    """Both sides have equal values."""
    scores = different_scores(draw, 4)
    heads = [1.0, 2.0, 4.0, 8.0, 1.0, 4.0, 4.0, 2.0]
    ranks = [0, 1, 3, 2, 0, 1, 3, 3]
    return {"x": heads, "y": [scores[rank] for rank in ranks]}


def five_and_their_squares(draw: Draw) -> dict:
    runs = in_a_mixed_order(draw, [3, 0, 4, 1, 2])
    return {"x": runs["x"], "x_squared": [one**2 for one in runs["x"]], "y": runs["y"]}


def two_perfect_orders(draw: Draw) -> dict:
    scores = different_scores(draw, 6)
    return {"x": different_scores(draw, 6), "y": scores, "opposite": [-one for one in scores]}


def three_runs(draw: Draw) -> dict:
    """Their order is not perfect, so that an interval is asked for, and there is none."""
    low, middle, high = different_scores(draw, 3)
    return {"x": different_scores(draw, 3), "y": [middle, low, high]}


@functools.cache
def ranks_of_their_own(side):
    """All rankings in which no two values share a rank, the greater of two values before the smaller."""
    places = [[place for place, one in enumerate(side) if one == value] for value in sorted(set(side))]
    orders = [sum(chosen, ()) for chosen in product(*(permutations(group) for group in places))]
    return [np.argsort(order) for order in orders]  # `order` has the places from the smallest value on


@functools.cache
def correlations_without_shared_ranks(x, y):
    """Every rank correlation that comes out if equal values are ranked one after the other, whichever comes first."""
    squares = {int(((one - other) ** 2).sum()) for one in ranks_of_their_own(x) for other in ranks_of_their_own(y)}
    count = len(x)
    return [1 - 6 * square / (count * (count**2 - 1)) for square in squares]


def interval_agrees(inputs, expected, received):
    if isinstance(received, list | tuple) and len(received) == 3 and isinstance(received[0], float):
        by_place = correlations_without_shared_ranks(tuple(inputs["x"]), tuple(inputs["y"]))
        if any(abs(received[0] - one) < 1e-9 for one in by_place):
            return "it is the correlation of ranks that equal values do not share"
    return difference_in_numbers(expected, received, ("correlation", "low", "high"))


def intervals_in_orders(subject, x, y, orders):
    return [list(subject([x[i] for i in order], [y[i] for i in order])) for order in orders]


def order_of_trials_does_not_matter(inputs, received):
    first, *others = received
    if any(abs(one - other) > 1e-5 for more in others for one, other in zip(first, more, strict=True)):
        return "the same runs in another order give another result"
    return None


def interval_of_perfect_orders(subject, x, y, opposite):
    return {"the same order": list(subject(x, y)), "the opposite": list(subject(x, opposite))}


def perfect_is_one(inputs, received):
    for given, sign in (("the same order", 1.0), ("the opposite", -1.0)):
        if not all(abs(number - sign) < 1e-3 for number in received[given]):
            return f"{given}: all three are to be {sign:g}"
    return None


def intervals_of_stretched(subject, x, x_squared, y):
    return {"as they are": list(subject(x, y)), "squared": list(subject(x_squared, y))}


def stretching_changes_nothing(inputs, received):
    pairs = zip(received["as they are"], received["squared"], strict=True)
    if any(abs(one - other) > 1e-6 for one, other in pairs):
        return "squaring the (positive) numbers of one side keeps their order, and yet the result changes"
    return None


def bounds_are_in_order(inputs, received):
    correlation, low, high = received
    if not -1 - 1e-9 <= low <= high <= 1 + 1e-9:
        return "`low` and `high` are not between -1 and 1, the lower one first"
    if not low <= correlation <= high:
        return "the correlation lies outside of its own interval"
    return None


def average_ranks(side):
    side = np.asarray(side, dtype=float)
    return (side[:, None] > side).sum(axis=1) + ((side[:, None] == side).sum(axis=1) + 1) / 2


def first_come_ranks(side):
    return np.argsort(np.argsort(side, kind="stable"), kind="stable") + 1.0


def smallest_ranks(side):
    side = np.asarray(side, dtype=float)
    return (side[:, None] > side).sum(axis=1) + 1.0


def dense_ranks(side):
    return np.unique(side, return_inverse=True)[1] + 1.0


def numbers(side):
    return np.asarray(side, dtype=float)


def pearson(x, y):
    x, y = x - x.mean(), y - y.mean()
    length = math.sqrt((x @ x) * (y @ y))
    if length == 0:
        raise ValueError("all equal")
    return float(x @ y) / length


def by_differences(x, y):
    if len(set(x)) == 1 or len(set(y)) == 1:
        raise ValueError("all equal")
    count = len(x)
    return float(1 - 6 * ((x - y) ** 2).sum() / (count * (count**2 - 1)))


def kendall(x, y):
    if len(set(x)) == 1 or len(set(y)) == 1:
        raise ValueError("all equal")
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i in range(len(x)) for j in range(i)]
    one, other = (math.sqrt(sum(abs(pair[side]) for pair in signs)) for side in (0, 1))
    return float(sum(a * b for a, b in signs) / (one * other))


def rank_error(correlation, count):
    return math.sqrt((1 + correlation**2 / 2) / (count - 3))


def two_sided(confidence):
    return NormalDist().inv_cdf((1 + confidence) / 2)


def on_z(correlation, reach):
    z = math.atanh(correlation)
    return math.tanh(z - reach), math.tanh(z + reach)


def on_r(correlation, reach):
    return correlation - reach, correlation + reach


def on_r_clipped(correlation, reach):
    return max(-1.0, correlation - reach), min(1.0, correlation + reach)


def on_z_and_left_there(correlation, reach):
    return math.atanh(correlation) - reach, math.atanh(correlation) + reach


def on_tanh(correlation, reach):
    return math.tanh(correlation - reach), math.tanh(correlation + reach)


def interval_with(rank=(average_ranks, average_ranks), relate=pearson, error=rank_error, quantile=two_sided,
                  bounds=on_z, least=4, perfect=lambda sign: (sign, sign, sign)):  # fmt: skip
    """A `correlation_interval` with one thing changed."""

    def interval(x, y, confidence=0.95):
        if len(x) != len(y) or len(x) < least:
            raise ValueError("too few")
        correlation = relate(rank[0](x), rank[1](y))
        if abs(correlation) > 1 - 1e-12 and perfect:
            return perfect(math.copysign(1.0, correlation))
        reach = quantile(confidence) * error(correlation, len(x))
        return (correlation, *bounds(correlation, reach))

    return interval


def unequal_sides_cut(x, y, confidence=0.95):
    count = min(len(x), len(y))
    return correlation_interval(x[:count], y[:count], confidence)


def interval_that_ranks_by_place(x, y, confidence=0.95):
    if len(set(x)) == 1 or len(set(y)) == 1:
        raise ValueError("all equal")
    return interval_with(rank=(first_come_ranks, first_come_ranks))(x, y, confidence)


def error_without_looking(correlation, count):
    return rank_error(correlation, count) if count > 3 else math.inf


def low_before_correlation(x, y, confidence=0.95):
    correlation, low, high = correlation_interval(x, y, confidence)
    return low, correlation, high


def interval_of_equal_values(x, y, confidence=0.95):
    if len(x) == len(y) and (len(set(x)) == 1 or len(set(y)) == 1):
        return (float("nan"),) * 3
    return correlation_interval(x, y, confidence)


CORRELATION_INTERVAL = Exercise(
    answer=correlation_interval,
    points=3,
    minutes=30,
    returns=("correlation", "low", "high"),
    axes={"x": "run", "y": "run"},
    banned=("scipy.stats.",),
    probes=[
        Probe("five runs", lambda draw: in_a_mixed_order(draw, [1, 0, 2, 4, 3])),
        Probe("a correlation below zero", lambda draw: in_a_mixed_order(draw, [6, 7, 3, 5, 4, 1, 0, 2])),
        Probe("a learning rate over eight powers of ten", rates_and_scores),
        Probe("numbers of heads: equal values", heads_and_scores, agrees=interval_agrees),
        Probe("a confidence of 80 %", lambda draw: in_a_mixed_order(draw, [2, 0, 1, 3, 6, 4, 5], 0.8), weight=0.5),
        Probe("a confidence of 99 %", lambda draw: in_a_mixed_order(draw, [1, 0, 4, 2, 3, 6, 5], 0.99), weight=0.5),
    ],
    properties=[
        Property(
            "the bounds are in order, and between -1 and 1",
            lambda draw: in_a_mixed_order(draw, [0, 2, 1, 3, 5, 4], 0.99),
            bounds_are_in_order,
        ),
        Property(
            "what keeps the order changes nothing",
            five_and_their_squares,
            stretching_changes_nothing,
            intervals_of_stretched,
        ),
        Property(
            "the order of the runs changes nothing",
            lambda draw: heads_and_scores(draw) | {"orders": [draw.order(8), draw.order(8), draw.order(8)]},
            order_of_trials_does_not_matter,
            intervals_in_orders,
        ),
        Property(
            "a perfect order: 1 or -1, three times",
            two_perfect_orders,
            perfect_is_one,
            interval_of_perfect_orders,
        ),
        Property(
            "different lengths: a ValueError",
            lambda draw: {"x": different_scores(draw, 5)[::-1], "y": different_scores(draw, 4)},
            refused_in_words,
            what_comes_of_it,
            costs=0.5,
        ),
        Property(
            "three runs only: a ValueError",
            three_runs,
            refused_in_words,
            what_comes_of_it,
            costs=0.5,
        ),
        Property(
            "a side of equal values: a ValueError",
            lambda draw: {"x": different_scores(draw, 5), "y": different_scores(draw, 1) * 5},
            refused_in_words,
            what_comes_of_it,
            costs=0.5,
        ),
    ],
    misconceptions=[
        Misconception(
            "no_ranks",
            interval_with(rank=(numbers, numbers)),
            "The numbers themselves are correlated, not their ranks. That is Pearson's correlation: it asks for a "
            "straight line, and of rates from 0.00001 to 100 only the greatest counts. Rank both sides first.",
        ),
        Misconception(
            "one_side_ranked",
            interval_with(rank=(average_ranks, numbers)),
            "Only `x` is replaced by its ranks; `y` is still in its own units. Spearman's correlation ranks both.",
        ),
        Misconception(
            "argsort_once",
            interval_with(rank=(lambda s: np.argsort(s, kind="stable"),) * 2),
            "`argsort` gives the places of the smallest, the second smallest and so on, which are not the ranks. The "
            "rank of a value is how many are below it. `argsort` of `argsort` gives that where no two are equal; equal "
            "ones are to share the mean of their ranks.",
        ),
        Misconception(
            "ties_by_place",
            interval_that_ranks_by_place,
            "Equal values get different ranks, by their place in the list; `argsort` of `argsort` does that. So the "
            "result depends on the order in which the trials happened to run. Equal values share the mean of their "
            "ranks.",
        ),
        Misconception(
            "ties_get_the_lowest",
            interval_with(rank=(smallest_ranks, smallest_ranks)),
            "Equal values all get the lowest of their ranks, as in sports. Then the ranks of the others are not in the "
            "middle any more: equal values share the *mean* of their ranks.",
        ),
        Misconception(
            "dense_ranks",
            interval_with(rank=(dense_ranks, dense_ranks)),
            "Equal values get one rank, and the next value the very next, as if each value were there once. With three "
            "trials of 4 heads, those of 8 heads rank three places higher: equal values share the mean of their ranks.",
        ),
        Misconception(
            "formula_without_ties",
            interval_with(relate=by_differences),
            "It is 1 - 6 Σd² / (n (n² - 1)), the formula of old textbooks. It is right only where no two values are "
            "equal. Pearson's formula on the ranks is right everywhere.",
        ),
        Misconception(
            "kendall",
            interval_with(relate=kendall),
            "It is Kendall's tau, which counts pairs of runs that are in the same order. A good measure, but another: "
            "it is smaller, and its z has another standard error. Spearman's is Pearson's formula on the ranks.",
        ),
        Misconception(
            "one_side_upside_down",
            interval_with(rank=(average_ranks, lambda side: average_ranks([-one for one in side]))),
            "One side is ranked from the greatest down and the other from the smallest up, so the sign is wrong.",
        ),
        Misconception(
            "even_around_the_correlation",
            interval_with(bounds=on_r),
            "The interval is even around the correlation itself, and can go beyond 1. Near 1 there is less room above "
            "than below: go to z = artanh(correlation), and come back with tanh (Fisher 1915).",
        ),
        Misconception(
            "cut_off_at_one",
            interval_with(bounds=on_r_clipped),
            "The interval is even around the correlation, and cut off at 1. An upper bound of exactly 1 says that a "
            "perfect correlation is possible; it is not. Go to z = artanh(correlation), and come back with tanh.",
        ),
        Misconception(
            "left_on_z",
            interval_with(bounds=on_z_and_left_there),
            "The bounds are still those of z. They have to come back with tanh, or they are no correlations.",
        ),
        Misconception(
            "tanh_without_artanh",
            interval_with(bounds=on_tanh),
            "The bounds come back with tanh, but never went: z is artanh of the correlation, and the reach is added "
            "there.",
        ),
        Misconception(
            "error_of_pearson",
            interval_with(error=lambda correlation, count: 1 / math.sqrt(count - 3)),
            "The standard error is 1 / √(count - 3), which is that of Pearson's correlation. Ranks say a little less, "
            "and the interval would be too narrow: √((1 + correlation² / 2) / (count - 3)) (Bonett and Wright 2000).",
        ),
        Misconception(
            "divided_by_count",
            interval_with(error=lambda correlation, count: math.sqrt((1 + correlation**2 / 2) / count)),
            "The standard error is divided by the root of `count`; it is that of `count - 3`. With a dozen trials that "
            "makes the interval a good deal too narrow.",
        ),
        Misconception(
            "variance_for_error",
            interval_with(error=lambda correlation, count: (1 + correlation**2 / 2) / (count - 3)),
            "The root is missing: this is the variance of z. Its standard error is the root of it.",
        ),
        Misconception(
            "one_sided",
            interval_with(quantile=lambda confidence: NormalDist().inv_cdf(confidence)),
            "The quantile is that of `confidence`, 1.64 for 95 %. But what is left out is left out on both sides, half "
            "of it each: the quantile of (1 + confidence) / 2, which is 1.96.",
        ),
        Misconception(
            "confidence_for_error",
            interval_with(quantile=lambda confidence: NormalDist().inv_cdf(1 - confidence / 2)),
            "`confidence` is taken for the probability of an error: 0.95 gives the interval for 5 %, and a greater "
            "confidence makes it narrower. The quantile is that of (1 + confidence) / 2.",
        ),
        Misconception(
            "always_95",
            interval_with(quantile=lambda confidence: two_sided(0.95)),
            "The interval is that of 95 % whatever `confidence` says: 1.96 stands for `inv_cdf((1 + confidence) / 2)`.",
        ),
        Misconception(
            "literal_196",
            interval_with(quantile=lambda confidence: 1.96),
            "The reach is 1.96 standard errors, whatever `confidence` says. 1.96 belongs to 95 %, and is rounded: the "
            "quantile is `NormalDist().inv_cdf((1 + confidence) / 2)`, which is 1.959964 there, and 2.575829 at 99 %.",
        ),
        Misconception(
            "one_standard_error",
            interval_with(quantile=lambda confidence: 1.0),
            "The reach is one standard error, which holds the true correlation in 68 % of all searches. Multiply by "
            "the normal distribution's quantile of (1 + confidence) / 2.",
        ),
        Misconception(
            "bounds_swapped",
            interval_with(bounds=lambda correlation, reach: on_z(correlation, reach)[::-1]),
            "The upper bound comes before the lower one: `(correlation, low, high)` is asked for.",
        ),
        Misconception(
            "low_first",
            low_before_correlation,
            "The three numbers are right, but `low` comes first and the correlation second: `(correlation, low, high)` "
            "is asked for.",
        ),
        Misconception(
            "perfect_order_crashes",
            interval_with(perfect=None),
            "A perfect order has a correlation of 1, and artanh has no number for that. With few trials it happens: "
            "return 1 three times (or -1) before the transformation.",
        ),
        Misconception(
            "lengths_unchecked",
            unequal_sides_cut,
            "With another number of values in `y` than in `x` it goes on with the shorter list. Then the runs of one "
            "side may not be those of the other: raise a `ValueError`.",
        ),
        Misconception(
            "three_runs_unchecked",
            interval_with(least=3, error=error_without_looking),
            "Of three runs it makes an interval, although the error is divided by √(3 - 3): NumPy takes that for "
            "infinity, and the interval goes from -1 to 1. Fewer than 4 runs have none: raise a `ValueError`.",
        ),
        Misconception(
            "equal_values_give_nan",
            interval_of_equal_values,
            "If all values of a side are equal it divides 0 by 0, and NaN comes back, for which every comparison is "
            "false. What does not change is correlated with nothing: raise a `ValueError`.",
        ),
    ],
    hints=[
        "Three steps. Replace every value by its rank, and let equal ones share the mean of theirs. Correlate the "
        "ranks (Pearson's formula). Then go to z, make the interval there, and come back.",
        "The rank of a value: how many are smaller, plus half of how many are equal. Subtract the mean on both sides; "
        "the correlation is the dot product divided by the root of the product of the two sums of squares. "
        "`NormalDist().inv_cdf((1 + confidence) / 2)` is the 1.96.",
        "`z = math.atanh(correlation)`, `error = math.sqrt((1 + correlation**2 / 2) / (count - 3))`, and then "
        "`math.tanh(z - quantile * error), math.tanh(z + quantile * error)`. Before that: refuse what cannot be "
        "correlated, and return 1 or -1 three times where artanh has no number.",
    ],
)

EXERCISES = [EXPECTED_BEST, CORRELATION_INTERVAL]
