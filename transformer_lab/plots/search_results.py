"""Figures of a hyperparameter search: its trials, the effect of each hyperparameter, pruning, and finalists."""

import math
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import seaborn as sns
from ipywidgets import FloatSlider, SelectionSlider
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame

from transformer_lab.electives.search import HYPER_PARAMETERS, Plan, importance
from transformer_lab.electives.search_statistics import correlation_interval, expected_best
from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DARK, MIDDLE, ORANGE, new_picture, tidy
from transformer_lab.plots.interactive_figure import Explorer
from transformer_lab.plural import plural

GRAY = "0.6"
NAMES = {
    "n_heads": "heads",
    "n_layers": "layers",
    "peak_rate": "peak learning rate",
    "max_tokens": "tokens per batch",
    "dropout": "dropout",
    "label_smoothing": "smoothing",
}
BY_FACTORS = {"n_heads", "peak_rate", "max_tokens"}  # drawn on a logarithmic scale
MARKS = {"complete": "o", "pruned": "v", "diverged": "X"}

Interval = Callable[[Sequence[float], Sequence[float]], tuple[float, float, float]]


def judged(trials: DataFrame) -> DataFrame:
    """Return the trials that have a BLEU score. Most figures show only these trials.

    Raises:
        InputError: No trial has a BLEU score.
    """
    scored = trials.dropna(subset="bleu")
    if scored.empty:
        raise InputError("no trial has a BLEU score yet: there is nothing to draw")
    return scored


def draw_parallel(trials: DataFrame, plan: Plan | None = None) -> Figure:
    """Draw parallel coordinates: one line per trial, through its six hyperparameters to its BLEU score.

    Args:
        trials: The table of trials in a search (`transformer_lab.electives.search.Results.trials`).
        plan: The plan of the same search. If given, each axis covers the whole range searched; otherwise, it covers
            only the range of values that were sampled.

    Raises:
        InputError: No trial has a BLEU score.
    """
    scored = judged(trials).sort_values("bleu")  # draw the best trial last, on top of the others
    best = scored.iloc[-1]
    described = ", ".join(f"{NAMES[name]} {best[name]:.3g}" for name in HYPER_PARAMETERS)
    figure = new_picture(
        f"{len(scored)} trials, each a line through its heads, layers, peak learning rate, tokens per batch, "
        f"dropout, and smoothing to its BLEU. The best, with BLEU {best['bleu']:.1f}, has {described}.",
        10.5,
        3.8,
    )
    axes = figure.subplots()
    columns = [*HYPER_PARAMETERS, "bleu"]
    scales = {name: (LogNorm if name in BY_FACTORS else Normalize)(*_ends(scored, name, plan)) for name in columns}
    seen_on_white = ListedColormap(sns.color_palette("cividis_r", 256)[80:])
    colors = ScalarMappable(Normalize(0, max(scored["bleu"].max(), 1)), seen_on_white)
    for _, trial in scored.iterrows():
        heights = [0.5 if scale.vmin == scale.vmax else scale(trial[name]) for name, scale in scales.items()]
        finished = trial["state"] == "complete"
        look = {"linestyle": "-" if finished else ":", "linewidth": 1.6 if finished else 1.3}
        axes.plot(range(len(columns)), heights, color=colors.to_rgba(trial["bleu"]), **look)
    for place, scale in enumerate(scales.values()):
        axes.axvline(place, color="0.4", linewidth=0.8, zorder=0)
        for height, end, side in ((0, scale.vmin, "top"), (1, scale.vmax, "bottom")):
            written = f"{end:.3g}" if end < 1000 else f"{end:.0f}"
            axes.text(place, height + (0.04 if height else -0.04), written, ha="center", va=side, fontsize=9)
    axes.set_xticks(range(len(columns)), [NAMES.get(name, "BLEU") for name in columns])
    axes.tick_params(axis="x", length=0, pad=12)
    axes.set(ylim=(-0.15, 1.15), yticks=[], title="One line per trial; dotted if it was pruned or diverged")
    axes.spines[:].set_visible(False)
    figure.colorbar(colors, ax=axes, label="BLEU", fraction=0.03)
    return figure


def draw_slices(trials: DataFrame) -> Figure:
    """Plot the BLEU score against each of the six hyperparameters.

    Args:
        trials: The table of trials in a search.

    Raises:
        InputError: No trial has a BLEU score.
    """
    scored = judged(trials)
    counts = ", ".join(f"{count} {state}" for state, count in scored["state"].value_counts().items())
    figure = new_picture(
        f"BLEU of {len(scored)} trials ({counts}) against heads, layers, peak learning rate, tokens per batch, "
        f"dropout, and smoothing. BLEU ranges from {scored['bleu'].min():.1f} to {scored['bleu'].max():.1f}.",
        10.5,
        5,
    )
    colors = {"complete": DARK, "pruned": MIDDLE, "diverged": ORANGE}
    states = [state for state in MARKS if state in set(scored["state"])]
    figure.get_layout_engine().set(wspace=0.06)  # keeps a panel's last tick label away from the next panel
    for index, (name, axes) in enumerate(zip(HYPER_PARAMETERS, figure.subplots(2, 3, sharey=True).flat, strict=True)):
        look = {"hue": "state", "hue_order": states, "palette": colors, "style": "state", "style_order": states}
        sns.scatterplot(scored, x=name, y="bleu", markers=MARKS, s=55, ax=axes, legend=index == 2, **look)
        _scale(axes, scored, name)
        axes.set(xlabel=NAMES[name], ylabel="BLEU")
        axes.set_ylim(bottom=-0.04 * max(scored["bleu"].max(), 1))  # leaves room for a marker at 0
        tidy(axes, grid="y")
        if index == 2:
            axes.legend(frameon=False, fontsize=9, title=None)
    return figure


def draw_importance(trials: DataFrame, shuffles: int = 50) -> Figure:
    """Draw each hyperparameter's importance (PED-ANOVA, Watanabe et al. 2023) and the importance expected by chance.

    Args:
        trials: The table of trials in a search. At least 8 trials must have a BLEU score.
        shuffles: How many times to shuffle the BLEU scores among the trials. The gray bars show the 95th percentile of
            the importance after shuffling.

    Raises:
        InputError: Fewer than 8 trials have a BLEU score.
    """
    table = importance(trials, shuffles)
    table["label"] = table["name"].map(NAMES)
    beyond = list(table.loc[table["importance"] > table["by_chance"], "label"])
    figure = new_picture(
        "The importance of each hyperparameter, most important first: "
        + ", ".join(
            f"{row.label} {row.importance:.2f} (by chance up to {row.by_chance:.2f})" for row in table.itertuples()
        )
        + f". Beyond chance: {', '.join(beyond) or 'none'}.",
        8,
        3,
    )
    axes = figure.subplots()
    sns.barplot(table, x="by_chance", y="label", color="0.85", width=0.8, ax=axes, label="95% of shuffles")
    sns.barplot(table, x="importance", y="label", color=DARK, width=0.35, ax=axes, label="measured")
    axes.set(xlabel="importance for reaching the best quarter (PED-ANOVA)", ylabel="")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    tidy(axes, grid="x")
    return figure


def draw_correlations(trials: DataFrame, interval: Interval = correlation_interval) -> Figure:
    """Draw each hyperparameter's rank correlation with BLEU and its 95% confidence interval.

    Args:
        trials: The table of trials in a search.
        interval: `correlation_interval` or your own version of it.

    Raises:
        InputError: No trial has a BLEU score.
    """
    scored = judged(trials)
    rows = []
    for name in HYPER_PARAMETERS:
        try:
            rows.append((NAMES[name], *interval(list(scored[name]), list(scored["bleu"]))))
        except ValueError:  # too few values, or all values are equal
            rows.append((NAMES[name], math.nan, math.nan, math.nan))
    figure = new_picture(
        f"Rank correlations with BLEU over {len(scored)} trials, and 95% intervals: "
        + ", ".join(f"{label} {r:+.2f} from {low:+.2f} to {high:+.2f}" for label, r, low, high in rows)
        + ".",
        8,
        3.2,
    )
    axes = figure.subplots()
    for place, (_, correlation, low, high) in enumerate(rows):
        sure = low * high > 0
        axes.plot([low, high], [place, place], color=DARK if sure else GRAY, linewidth=3, solid_capstyle="round")
        axes.plot(correlation, place, "o" if sure else "D", color=DARK if sure else GRAY, markersize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set(
        xlim=(-1, 1), xlabel=f"rank correlation with BLEU, {len(scored)} trials, 95% interval; gray includes zero"
    )
    tidy(axes, grid="x")
    return figure


def draw_pruning(trials: DataFrame, score: str = "validation BLEU") -> Figure:
    """Draw each trial's score after each epoch, and mark where trials were pruned.

    Args:
        trials: The table of trials in a search. Only the columns `curve`, `epochs`, and `state` are used.
        score: The name of the score.

    Raises:
        InputError: No trial has finished an epoch.
    """
    begun = trials[trials["curve"].map(len) > 0]
    if begun.empty:
        raise InputError("no trial has finished an epoch yet: there is nothing to draw")
    pruned = begun[begun["state"] == "pruned"]
    saved = sum(begun["epochs"].max() - pruned["epochs"])
    figure = new_picture(
        f"The {score} after each epoch of {len(begun)} trials. Pruned: {len(pruned)}, which saved {saved} of "
        f"{begun['epochs'].max() * len(begun)} epochs.",
        7.5,
        3.4,
    )
    axes = figure.subplots()
    for _, trial in begun.iterrows():
        stopped = trial["state"] == "pruned"
        epochs = range(1, len(trial["curve"]) + 1)
        look = {"color": MIDDLE, "linestyle": ":"} if stopped else {"color": DARK, "linewidth": 1.2}
        axes.plot(epochs, trial["curve"], **look)
        axes.plot(epochs[-1], trial["curve"][-1], "v" if stopped else "o", color=look["color"], markersize=6)
    axes.plot([], [], "-o", color=DARK, label="complete")
    axes.plot([], [], ":v", color=MIDDLE, label=f"pruned: {saved} epochs saved")
    axes.set(xlabel="epoch", ylabel=score)
    axes.set_ylim(bottom=-0.04 * max(axes.get_ylim()[1], 1))  # leaves room for a marker at 0
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    tidy(axes, grid="y")
    return figure


def draw_finalists(trials: DataFrame, finalists: DataFrame) -> Figure:
    """Draw each finalist's BLEU scores with new seeds next to the score for which it was chosen.

    Args:
        trials: The table of trials in a search.
        finalists: The table of finalists in the same search.

    Raises:
        InputError: No finalist has been trained yet.
    """
    runs = finalists.dropna(subset="bleu")
    if runs.empty:
        raise InputError("no finalist has been trained yet: there is nothing to draw")
    groups = runs.groupby("of", sort=False)["bleu"].agg(["mean", "size"])
    groups["chosen"] = trials.set_index("number")["bleu"]
    words = [
        f"trial {number} was chosen for its score of {chosen:.1f}; its mean is {mean:.1f} "
        f"over {plural(count, 'other seed')}"
        for number, mean, count, chosen in groups.itertuples()
    ]
    figure = new_picture(f"The finalists: {'; '.join(words)}.", 7, 3)
    axes = figure.subplots()
    places = np.arange(len(groups))
    axes.plot(places, groups["chosen"], "*", color=ORANGE, markersize=15, label="the score it was chosen for")
    place_of_each_run = groups.index.get_indexer(runs["of"])
    axes.plot(place_of_each_run + 0.15, runs["bleu"], "o", color=DARK, alpha=0.8, label="with other seeds")
    lines = axes.plot([places + 0.08, places + 0.22], 2 * [groups["mean"]], color="black")
    lines[0].set_label("mean")
    axes.set_xticks(places + 0.08, [f"trial {number}" for number in groups.index])
    axes.set(ylabel="validation BLEU", xlim=(-0.5, len(groups) - 0.35))
    axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)  # above the axes
    tidy(axes, grid="y")
    return figure


def draw_expected_best(
    runs: Mapping[str, Sequence[float]], best: Callable[[Sequence[float], int], float] = expected_best
) -> Figure:
    """Draw the expected best score of n runs, for n from 1 to the number of runs (Dodge et al. 2019).

    The estimate cannot exceed the best score that was measured, so it is too low when n is close to the number of runs.
    The background is gray where n is more than half the number of runs.

    Args:
        runs: Maps the name of each series of runs to the scores of its runs. Up to three series are allowed.
        best: `expected_best` or your own version of it.
    """
    longest, half = max(map(len, runs.values())), min(map(len, runs.values())) / 2
    curves = {name: [best(values, n) for n in range(1, longest + 1)] for name, values in runs.items()}
    figure = new_picture(
        "The expected best of n runs. "
        + " ".join(
            f"{name}: {curve[0]:.1f} for one run, {curve[-1]:.1f} for {longest}." for name, curve in curves.items()
        )
        + f" From n = {half:g} on, which is half of the runs, the estimate is too low.",
        7,
        3.2,
    )
    axes = figure.subplots()
    for (name, curve), (color, line) in zip(
        curves.items(), [(DARK, "-o"), (ORANGE, "--s"), ("black", ":^")], strict=False
    ):
        axes.plot(range(1, longest + 1), curve, line, color=color, markersize=4, label=name)
    axes.axvspan(half, longest, color="0.93", zorder=0, label="more than half of the runs: too low")
    axes.set(xlabel="n, the number of runs that the best is chosen from", ylabel="expected BLEU of the best")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, loc="upper left")
    tidy(axes, grid="y")
    return figure


def draw_intervals(
    trials: int = 20, correlation: float = 0.0, interval: Interval = correlation_interval, searches: int = 40
) -> Figure:
    """Simulate many searches with a known true correlation, and draw the confidence interval from each search.

    Args:
        trials: Number of trials in each search, at least 4.
        correlation: The true rank correlation of a hyperparameter with the score, from -0.95 to 0.95.
        interval: `correlation_interval` or your own version of it.
        searches: Number of searches, at least 1.

    Raises:
        InputError: An argument is out of range.
    """
    if trials < 4 or abs(correlation) > 0.95 or searches < 1:
        raise InputError(f"{trials} trials, a correlation of {correlation}, and {searches} searches cannot be drawn")
    # Two normal variables with this Pearson correlation have the given rank correlation (Pearson 1907).
    straight = 2 * math.sin(math.pi * correlation / 6)
    draw, intervals = random.Random(trials), []
    for _ in range(searches):
        x = [draw.gauss(0, 1) for _ in range(trials)]
        y = [straight * one + math.sqrt(1 - straight**2) * draw.gauss(0, 1) for one in x]
        intervals.append(interval(x, y))
    intervals.sort()
    missed = sum(not low <= correlation <= high for _, low, high in intervals)
    figure = new_picture(
        f"{searches} searches of {trials} trials each, where the true rank correlation is {correlation:g}. They find "
        f"correlations from {intervals[0][0]:.2f} to {intervals[-1][0]:.2f}; {missed} of the intervals miss the truth.",
        8,
        3.4,
    )
    axes = figure.subplots()
    for place, (middle, low, high) in enumerate(intervals):
        holds = low <= correlation <= high
        axes.plot([place, place], [low, high], color=MIDDLE if holds else ORANGE, linewidth=3 if holds else 4)
        axes.plot(place, middle, "o" if holds else "X", color=DARK if holds else "black", markersize=4 if holds else 7)
    axes.axhline(correlation, color="black", linewidth=1.2)
    axes.set(
        ylim=(-1.05, 1.05),
        xticks=[],
        xlabel=f"{searches} searches of {trials} trials each, sorted by the correlation they found",
        ylabel="rank correlation",
        title=f"{missed} of {searches} intervals miss the true correlation (line)",
    )
    tidy(axes, grid="y")
    return figure


def explore_intervals(interval: Interval = correlation_interval) -> Explorer:
    """Return a widget that shows `draw_intervals` with sliders for the number of trials and the true correlation.

    Args:
        interval: `correlation_interval` or your own version of it.
    """
    controls = {
        "trials": SelectionSlider(options=[4, 6, 10, 20, 40, 80, 160, 320], value=20, description="Trials"),
        "correlation": FloatSlider(0.5, min=-0.9, max=0.9, step=0.1, description="Truth"),
    }
    return Explorer(controls, lambda **chosen: draw_intervals(**chosen, interval=interval))


def _ends(trials: DataFrame, name: str, plan: Plan | None) -> tuple[float, float]:
    """Return the lowest and highest values on an axis."""
    searched = plan.space().get(name) if plan else None
    if searched is not None:
        choices = getattr(searched, "choices", None) or (searched.low, searched.high)
        return min(choices), max(choices)
    low = 0.0 if name in ("bleu", "dropout", "label_smoothing") else trials[name].min()
    return low, trials[name].max()


def _scale(axes: Axes, trials: DataFrame, name: str) -> None:
    if name == "peak_rate":
        axes.set_xscale("log")
    elif name in BY_FACTORS:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(trials[name].unique()), [f"{value:g}" for value in sorted(trials[name].unique())])
        axes.minorticks_off()
    elif name == "n_layers":
        axes.set_xticks(sorted(trials[name].unique()))
    else:
        axes.xaxis.set_major_formatter("{x:g}")
