"""Notebook 22, hyperparameter search: random search, the expected best of n runs, and a correlation's interval."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, combinations
from statistics import mean, median, median_high, median_low

from transformer_lab.electives.search_by_hand import random_search
from transformer_lab.electives.search_statistics import correlation_interval, expected_best
from transformer_lab.exercises.comparison import compare, short_and_apart
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import outcome
from transformer_lab.exercises.rules import requirement
from transformer_lab.exercises.sampling import InputSampler


def different_scores(sampler: InputSampler, count: int) -> list[float]:
    """Return increasing scores, starting at about 20."""
    return ((200 + sampler.integers(count, low=3, high=40).cumsum(0)) / 10).tolist()


def result_or_error(subject, **inputs):
    return outcome(subject, *inputs.values())


def refused_or_remarked(what: str):
    """Return a rule for invalid arguments that remarks on anything other than a `ValueError`."""

    def rule(inputs, received):
        if received["raised"] == "ValueError":
            return None
        if received["raised"] != "nothing":
            return Remark(f"For {what}, expected a `ValueError` that explains what's wrong; got {received['raised']}.")
        value = received["returned"]
        numbers = value if isinstance(value, list | tuple) else [value]
        if value is None:
            came = "None"
        elif any(number != number for number in numbers):
            came = "NaN (not a number)"
        else:
            came = "a result that looks like any other"
        return Remark(f"Expected a `ValueError` for {what}; nothing was raised, and {came} was returned.")

    return rule


# --- random_search ----------------------------------------------------------------------------------------------------


def epochs_trained(curves, startup, warmup, middle=median, kept=False, below=float.__lt__, at=0) -> list[int]:
    """Return the number of epochs after which each trial ends. If the trial was pruned, the number is negative.

    The defaults implement the exercise's rule. Other arguments implement rules that are easily mistaken for it: a
    different `middle`, pruned trials `kept` for comparison, a different `below`, or scores `at` a different epoch.
    """
    ended: list[int] = []
    for curve in curves:
        finished = [other for other, end in zip(curves, ended, strict=False) if end > 0]
        end = len(curve)
        for epoch in range(warmup + 1, len(curve) + 1):
            others = [other[min(epoch - 1 + at, len(other) - 1)] for other in finished]
            if kept:
                others += [other[epoch - 1] for other, end in zip(curves, ended, strict=False) if -end >= epoch]
            if len(finished) >= startup and below(float(curve[epoch - 1]), float(middle(others))):
                end = -epoch
                break
        ended.append(end)
    return ended


def hidden_mistakes(curves, startup: int, warmup: int, tie: bool) -> int:
    """Count the mistaken rules under which the trials would end as they should, and other things that are missing.

    At least two trials should be pruned. If `tie` is true, a score should equal the median, and otherwise none should.
    """
    rule, last = partial(epochs_trained, curves), len(curves[0])
    right = rule(startup, warmup)
    settings = {(startup + 1, warmup), (max(startup - 1, 1), warmup), (1, warmup)}
    settings |= {(startup, warmup + 1), (startup, max(warmup - 1, 0)), (startup, 0)}
    mistaken = [
        *[rule(*setting) for setting in settings - {(startup, warmup)}],
        *[rule(startup, warmup, middle=middle) for middle in (mean, min, max, median_low, median_high)],
        rule(startup, warmup, kept=True),
        rule(startup, warmup, below=float.__gt__),
        rule(startup, warmup, at=-1),
        rule(startup, warmup, at=last),
        rule(startup, warmup, at=last, middle=max),
        [-abs(end) if min(right[: trial + 1]) < 0 else end for trial, end in enumerate(right)],  # all the later ones
    ]
    has_tie = rule(startup, warmup, below=float.__le__) != right
    return mistaken.count(right) + (has_tie != tie) + (sum(end < 0 for end in right) < 2)


def rising_curves(
    sampler: InputSampler, trials: int, epochs: int, startup: int, warmup: int, high: int = 40, tie: bool = False
) -> dict:
    """Return curves that never fall and with which every mistake in `hidden_mistakes` shows.

    To get there, replace one random curve after another by a new one, and keep it unless more mistakes are hidden.
    Scores are multiples of 0.25, so that every way to compute their mean gives exactly the same result.

    On such curves, it makes no difference whether a trial's latest or its best score is compared. Both are common.
    """

    def curve() -> list[float]:
        return (sampler.integers(epochs, low=1, high=high).cumsum(0) / 4).tolist()

    curves = [curve() for _ in range(trials)]
    hidden = hidden_mistakes(curves, startup, warmup, tie)
    while hidden:
        changed = curves.copy()
        changed[sampler.integer(0, trials - 1)] = curve()
        hidden_then = hidden_mistakes(changed, startup, warmup, tie)
        if hidden_then <= hidden:
            curves, hidden = changed, hidden_then
    rates = [(number + 1) / 1000 for number in sampler.order(99)[:trials]]
    return {"rates": rates, "curves": curves, "startup": startup, "warmup": warmup}


def search_these_curves(subject, rates, curves, startup, warmup):
    """Run a search that samples the rates in order. Training with a rate yields that rate's curve."""
    from itertools import cycle

    rate_of_trial, curve_of = cycle(rates), dict(zip(rates, curves, strict=True))

    def sample():
        return {"rate": next(rate_of_trial)}

    def train(hyperparameters):
        yield from curve_of[hyperparameters["rate"]]

    results = subject(sample, train, len(rates), startup, warmup)
    if results is None:
        return None
    if not all(isinstance(one, tuple | list) and len(one) == 3 for one in results):
        return "no triples"
    return [[hyperparameters["rate"], list(curve), bool(pruned)] for hyperparameters, curve, pruned in results]


NO_TRIPLES = "expected a list with one tuple `(hyperparameters, curve, pruned)` per trial"


def same_trials(inputs, expected, received):
    if received is None:
        return "it returns None: is there a `return`?"
    if not isinstance(received, list):
        return NO_TRIPLES
    if len(received) != len(expected):
        return f"expected the results of {len(expected)} trials; got {len(received)}"
    for number, (wanted, got) in enumerate(zip(expected, received, strict=True)):
        if got[0] != wanted[0]:
            return f"trial {number}: expected the rate of sample {number}, {wanted[0]}; got {got[0]}"
        full = inputs["curves"][number]
        if got[1] not in (full[: len(got[1])], full[: len(wanted[1])]):
            return f"trial {number}: expected the curve {wanted[1]}; got {got[1]}"
    if _endings(received) != _endings(expected):
        return f"expected these trials to be pruned: {_endings(expected)}; got: {_endings(received)}"
    return None


def _endings(results) -> str:
    """List the pruned trials and when they ended, plus any others that wrongly ended early."""
    longest = max(len(curve) for _, curve, _ in results)
    said = [
        f"{number} (after epoch {len(curve)}{'' if pruned else ', but not marked as pruned'})"
        for number, (_, curve, pruned) in enumerate(results)
        if pruned or len(curve) < longest
    ]
    return ", ".join(said) or "none"


search_probe = partial(Probe, call=search_these_curves, compare_results=same_trials)


def epochs_of_training(subject, rates, curves, startup, warmup):
    """For each trial, return how many scores were requested and how many its curve contains."""
    asked = []

    def sample():
        asked.append(0)
        return {"trial": len(asked) - 1}

    def train(hyperparameters):
        for score in curves[hyperparameters["trial"] % len(curves)]:
            asked[hyperparameters["trial"]] += 1
            yield score

    results = subject(sample, train, len(curves), startup, warmup)
    if not results or not all(isinstance(one, tuple | list) and len(one) == 3 for one in results):
        return {"asked": asked, "curves": None}
    return {"asked": asked, "curves": [len(curve) for _, curve, _ in results]}


def no_more_than_needed(inputs, received):
    if len(received["asked"]) != len(inputs["curves"]):
        return f"`sample` was called {len(received['asked'])} times for {len(inputs['curves'])} trials"
    if received["curves"] is None:
        return NO_TRIPLES
    if any(asked > length for asked, length in zip(received["asked"], received["curves"], strict=False)):
        return "a pruned trial was trained further, so pruning it saved nothing"
    return None


RANDOM_SEARCH = Exercise(
    answer=random_search,
    points=3,
    minutes=25,
    returns=("results",),
    axes={"curves": "trial epoch"},
    probes=[
        search_probe("a few short trials", lambda sampler: rising_curves(sampler, 7, 3, startup=2, warmup=1)),
        search_probe(
            "more trials with more epochs",
            lambda sampler: rising_curves(sampler, sampler.integer(9, 11), sampler.integer(4, 5), startup=3, warmup=1),
        ),
        search_probe("a longer warm-up", lambda sampler: rising_curves(sampler, 8, 5, startup=2, warmup=2)),
        search_probe("no warm-up", lambda sampler: rising_curves(sampler, 8, 4, startup=1, warmup=0)),
        search_probe(
            "a score that equals the median",
            lambda sampler: rising_curves(sampler, 8, 3, startup=3, warmup=1, high=5, tie=True),
        ),
    ],
    properties=[
        Property(
            "a pruned trial isn't trained any further",
            lambda sampler: rising_curves(sampler, 7, 4, startup=2, warmup=1),
            no_more_than_needed,
            epochs_of_training,
        ),
    ],
)

# --- expected_best ----------------------------------------------------------------------------------------------------


def highest_last(sampler: InputSampler, count: int, n: int) -> dict:
    """Return unsorted scores, with the best one last, to catch code that forgets to sort.

    Each gap between two neighboring scores is larger than the one before, but none is twice as large as another. So no
    median or mean of some of the scores equals the result by chance.
    """
    gaps = sorted(20 + number for number in sampler.order(20)[:count])
    scores = [(200 + total) / 10 for total in accumulate(gaps)]
    return {"values": [*scores[1:-1], scores[0], scores[-1]], "n": n}


def with_equal_scores(sampler: InputSampler) -> dict:
    """Start with the highest score, so that the scores are never sorted.

    Without repetitions, the lower scores would be more likely than they are.
    """
    low, middle, high = different_scores(sampler, 3)
    values = sampler.shuffled([low, middle, middle, middle] + [high] * sampler.integer(1, 3))
    return {"values": [high, *values], "n": sampler.integer(2, 4)}


def around_zero(sampler: InputSampler) -> dict:
    """Return scores above and below zero, such as negated losses, for which higher is also better."""
    inputs = highest_last(sampler, sampler.integer(5, 7), sampler.integer(3, 4))
    return inputs | {"values": [round(score - 27, 1) for score in inputs["values"]]}


def more_than_measured(sampler: InputSampler) -> dict:
    count = sampler.integer(3, 4)
    return highest_last(sampler, count, count + sampler.integer(1, 3))


def best_asked_twice(subject, values, n):
    """Return the result. If it changes between calls, as in a simulation, or if `n` is rejected, return a string."""
    try:
        first, *again = [subject(values, n) for _ in range(5)]
    except ValueError:
        if n > len(values):
            return "refused"
        raise
    numbers = [one for one in (first, *again) if isinstance(one, float | int) and one == one]
    return "another number each time" if len(set(numbers)) > 1 else first


def best_agrees(inputs, expected, received):
    if isinstance(received, str) and received == "another number each time":
        return "called twice with the same runs, it returns two different numbers"
    if isinstance(received, str) and received == "refused":
        return f"it rejects n = {inputs['n']} for {len(inputs['values'])} runs with a `ValueError`"
    differences, remarks = compare(expected, received, ("best",))
    if not differences:
        return Remark(" ".join(remarks)) if remarks else None
    if differences[0].kind not in ("value", "nan"):
        return differences[0].says
    wanted, got = short_and_apart(expected, received)
    return f"`best`: expected {wanted}; got {got}"


best_probe = partial(Probe, call=best_asked_twice, compare_results=best_agrees)


def order_afterwards(subject, values, n):
    own = list(values)
    subject(own, n)
    return own != values


EXPECTED_BEST = Exercise(
    answer=expected_best,
    points=2,
    minutes=20,
    returns=("best",),
    axes={"values": "run"},
    probes=[
        best_probe("a few runs", lambda sampler: highest_last(sampler, sampler.integer(3, 4), sampler.integer(2, 3))),
        best_probe("the best of one run", lambda sampler: highest_last(sampler, sampler.integer(4, 6), 1)),
        best_probe(
            "more runs to choose from",
            lambda sampler: highest_last(sampler, sampler.integer(6, 8), sampler.integer(3, 5)),
        ),
        best_probe("runs with equal scores", with_equal_scores),
        best_probe("scores around zero", around_zero),
        best_probe("the best of more runs than were measured", more_than_measured),
    ],
    properties=[
        requirement(
            "the caller's list isn't rearranged",
            lambda sampler: highest_last(sampler, 5, 2),
            lambda inputs, rearranged: not rearranged,
            "your function rearranges the list that the caller passed in",
            order_afterwards,
            penalty=0,  # any change to the input costs points anyway
        ),
        Property(
            "no values at all",
            lambda sampler: {"values": [], "n": 2},
            refused_or_remarked("an empty list of values"),
            result_or_error,
        ),
        Property(
            "the best of no runs, n = 0",
            lambda sampler: {"values": different_scores(sampler, 3), "n": 0},
            refused_or_remarked("n = 0"),
            result_or_error,
        ),
    ],
)

# --- correlation_interval ---------------------------------------------------------------------------------------------

CLOSE = 1e-6  # 1.96 in place of 1.959964 changes the bounds by about 1e-5


def squares(ranks: Sequence[int], others: Sequence[int]) -> int:
    return sum((one - other) ** 2 for one, other in zip(ranks, others, strict=True))


def mixed_ranks(sampler: InputSampler, count: int, sign: int = 1) -> list[int]:
    """Return an order whose correlation with 0, 1, 2, … has the given sign but is not perfect.

    It also differs from Kendall's correlation.
    """
    while True:
        noise = sampler.integers(count, low=0, high=sampler.integer(count // 2, 2 * count)).tolist()
        ranks = sorted(range(count), key=lambda rank: rank + noise[rank])
        correlation = 1 - 6 * squares(ranks, range(count)) / (count * (count**2 - 1))
        kendall = mean(1 if one < other else -1 for one, other in combinations(ranks, 2))
        if 0.2 <= correlation <= 0.95 and abs(correlation - kendall) > 1e-3:
            return ranks if sign > 0 else ranks[::-1]


def mixed_order(sampler: InputSampler, ranks: list[int]) -> list[int]:
    """Return an order of the runs with which ranks and the results of a single `argsort` correlate differently."""
    while True:
        order = sampler.order(len(ranks))
        others = [ranks[i] for i in order]
        positions = [sorted(range(len(ranks)), key=side.__getitem__) for side in (order, others)]
        if squares(order, others) != squares(*positions):
            return order


def mixed_runs(sampler: InputSampler, low: int, high: int, sign: int = 1, confidence: float = 0.95) -> dict:
    """Return `x` and `y` without ties, with uneven steps in both, and with the runs in random order."""
    count = sampler.integer(low, high)
    ranks = mixed_ranks(sampler, count, sign)
    x, y = different_scores(sampler, count), different_scores(sampler, count)
    order = mixed_order(sampler, ranks)
    return {"x": [x[i] for i in order], "y": [y[ranks[i]] for i in order], "confidence": confidence}


def rates_and_scores(sampler: InputSampler) -> dict:
    """Return learning rates that are powers of ten: without ranks, only the highest rate would matter."""
    count = sampler.integer(9, 12)
    scores, ranks = different_scores(sampler, count), mixed_ranks(sampler, count)
    order = mixed_order(sampler, ranks)
    return {"x": [10.0 ** (i - 5) for i in order], "y": [scores[ranks[i]] for i in order]}


def heads_and_scores(sampler: InputSampler) -> dict:
    """Return `x` and `y` with ties, so that each wrong way to rank them leads to a different correlation.

    The ties differ between `x` and `y`, so the variances of their ranks also differ.
    """
    import pandas as pd

    while True:
        count = sampler.integer(7, 9)
        heads = [2.0**power for power in sampler.integers(count, low=0, high=3).tolist()]
        scores = different_scores(sampler, 4)
        y = [scores[rank] for rank in sampler.integers(count, low=0, high=3).tolist()]
        if all(len(set(side)) > 2 and 2 <= max(Counter(side).values()) <= 3 for side in (heads, y)):
            sides = pd.DataFrame({"x": heads, "y": y})
            found = [sides.rank(method=method).corr().loc["x", "y"] for method in RANKINGS]
            apart = all(abs(one - other) > 0.01 for one, other in combinations(found, 2))
            variances = sides.rank().var()
            spread_apart = abs(variances["x"] / variances["y"] - 1) > 0.01
            if apart and spread_apart and found[0] > 0.1 and max(map(abs, found)) < 0.95:
                return {"x": heads, "y": y}


RANKINGS = ("average", "min", "max", "dense", "first")  # the first one is right: equal values share their mean rank


def perfect_order(sampler: InputSampler, sign: float) -> dict:
    scores = different_scores(sampler, 6)
    return {"x": different_scores(sampler, 6), "y": scores if sign > 0 else scores[::-1]}


def three_runs(sampler: InputSampler) -> dict:
    """Return three imperfectly ordered runs, which are too few for an interval."""
    low, middle, high = different_scores(sampler, 3)
    return {"x": different_scores(sampler, 3), "y": [middle, low, high]}


def three_times(sign: float):
    def rule(inputs, received):
        if len(received) != 3 or not all(abs(number - sign) < 1e-3 for number in received):  # also rejects NaN
            return f"expected all three numbers to be {sign:g}"
        return None

    return rule


CORRELATION_INTERVAL = Exercise(
    answer=correlation_interval,
    points=3,
    minutes=30,
    returns=("correlation", "low", "high"),
    axes={"x": "run", "y": "run"},
    banned=("scipy.stats.",),
    probes=[
        Probe("a few runs", lambda sampler: mixed_runs(sampler, 6, 9), tolerance=CLOSE),
        Probe(
            "a correlation below zero",
            lambda sampler: mixed_runs(sampler, 8, 10, sign=-1, confidence=sampler.integer(192, 198) / 200),
            tolerance=CLOSE,
        ),
        Probe("learning rates over several powers of ten", rates_and_scores, tolerance=CLOSE),
        Probe("numbers of heads and scores, with equal values", heads_and_scores, tolerance=CLOSE),
        Probe(
            "a confidence below 95%",
            lambda sampler: mixed_runs(sampler, 7, 10, confidence=sampler.integer(11, 18) / 20),
            weight=0.5,
            tolerance=CLOSE,
        ),
        Probe(
            "a confidence above 95%",
            lambda sampler: mixed_runs(sampler, 7, 10, confidence=sampler.integer(196, 199) / 200),
            weight=0.5,
            tolerance=CLOSE,
        ),
    ],
    properties=[
        Property(
            "the same order on both sides gives 1 three times",
            lambda sampler: perfect_order(sampler, 1.0),
            three_times(1.0),
            penalty=0.5,
        ),
        Property(
            "the opposite order gives -1 three times",
            lambda sampler: perfect_order(sampler, -1.0),
            three_times(-1.0),
            penalty=0.5,
        ),
        Property(
            "sides of different lengths",
            lambda sampler: {"x": different_scores(sampler, 5)[::-1], "y": different_scores(sampler, 4)},
            refused_or_remarked("sides of different lengths"),
            result_or_error,
        ),
        Property("three runs only", three_runs, refused_or_remarked("fewer than 4 runs"), result_or_error),
        Property(
            "a side whose values are all equal",
            lambda sampler: {"x": different_scores(sampler, 5), "y": different_scores(sampler, 1) * 5},
            refused_or_remarked("a side whose values are all equal"),
            result_or_error,
        ),
    ],
)

EXERCISES = [RANDOM_SEARCH, EXPECTED_BEST, CORRELATION_INTERVAL]
