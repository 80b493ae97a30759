"""Without these tests, the figures of a search could show the wrong trials or claim more than the data supports."""

import pandas as pd
import pytest

from transformer_lab.electives.search import HYPER_PARAMETERS, Plan, base_preset
from transformer_lab.electives.search_statistics import correlation_interval, expected_best
from transformer_lab.errors import InputError
from transformer_lab.plots.search_results import (
    draw_correlations,
    draw_expected_best,
    draw_finalists,
    draw_importance,
    draw_intervals,
    draw_parallel,
    draw_pruning,
    draw_slices,
    explore_intervals,
)


@pytest.fixture
def trials() -> pd.DataFrame:
    """Return twelve trials, two of which failed. BLEU rises with the learning rate and falls with dropout."""
    rows = []
    for number in range(12):
        state = {3: "diverged", 5: "out of memory", 7: "pruned"}.get(number, "complete")
        bleu = {"diverged": 0.0, "out of memory": None, "pruned": 4.0}.get(state, 10.0 + 3 * number)
        curve = {"diverged": [], "out of memory": [], "pruned": [4.0]}.get(state, [5.0, 10.0 + 3 * number])
        numbers = (
            2 ** (number % 4),
            1 + number % 3,
            0.001 * 1.3**number,
            256 * 2 ** (number % 2),
            0.3 - 0.02 * number,
            0.1,
        )
        rows.append(
            dict(zip(HYPER_PARAMETERS, numbers, strict=True))
            | {"number": number, "state": state, "bleu": bleu, "curve": curve, "epochs": len(curve)}
        )
    return pd.DataFrame(rows)


@pytest.fixture
def finalists() -> pd.DataFrame:
    return pd.DataFrame({"of": [11, 11, 10, 10], "seed": [2, 3, 2, 3], "bleu": [40.0, 42.0, 41.0, None]})


def test_every_trial_with_a_bleu_is_a_line(trials, cut_off):
    figure = draw_parallel(trials)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 7]
    assert len(lines) == 11  # all except the one that ran out of memory
    heights = sorted(line.get_ydata()[-1] for line in lines)
    assert (heights[0], heights[-1]) == (0, 1)
    assert sum(line.get_linestyle() == ":" for line in lines) == 2
    assert "The best, with BLEU 43.0, has heads 8, layers 3" in figure.get_label()
    assert cut_off(figure) == []


def test_axes_are_as_long_as_the_range_that_was_searched(trials, cut_off):
    """If the axes were fitted to the trials, the best trial could seem to be at the end of the range searched."""
    plan = Plan(base_preset())
    figure = draw_parallel(trials, plan)
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"0.0003", "0.03", "128", "1024", "8", "0.3"} <= texts
    heights = {line.get_ydata()[2] for line in figure.axes[0].lines if len(line.get_xdata()) == 7}
    assert 0 < min(heights) < max(heights) < 1  # the sampled learning rates are inside the range
    assert cut_off(figure) == []


def test_the_legend_names_what_there_is(trials):
    def named(table):
        return {text.get_text() for text in draw_slices(table).axes[2].get_legend().get_texts()}

    assert named(trials) == {"complete", "pruned", "diverged"}
    assert named(trials[trials["state"] != "diverged"]) == {"complete", "pruned"}


def test_a_slice_has_a_point_for_each_trial(trials, cut_off):
    figure = draw_slices(trials)
    assert len(figure.axes) == 6
    for name, axes in zip(HYPER_PARAMETERS, figure.axes, strict=True):
        points = sorted(map(tuple, axes.collections[0].get_offsets().tolist()))
        assert points == sorted((row[name], row["bleu"]) for _, row in trials.dropna(subset="bleu").iterrows())
    assert "9 complete, 1 diverged, 1 pruned" in figure.get_label()
    assert cut_off(figure) == []


def test_importance_is_next_to_chance(trials, cut_off):
    figure = draw_importance(trials, shuffles=10)
    assert "by chance up to" in figure.get_label()
    assert "Beyond chance: " in figure.get_label()
    assert len(figure.axes[0].patches) == 12
    assert cut_off(figure) == []


def test_an_interval_over_zero_is_gray_and_the_intervals_are_yours(trials, cut_off):
    asked = []

    def interval(x, y):
        asked.append((x, y))
        return correlation_interval(x, y)

    figure = draw_correlations(trials, interval)
    assert len(asked) == 6
    bars = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2][:5]  # smoothing was always the same
    judged = trials.dropna(subset="bleu")
    for name, bar in zip(HYPER_PARAMETERS, bars, strict=False):
        _, low, high = correlation_interval(judged[name], judged["bleu"])
        assert list(bar.get_xdata()) == [low, high]
        assert (bar.get_color() == "0.6") == (low < 0 < high)
    assert cut_off(figure) == []


def test_pruning_counts_the_epochs_saved(trials, cut_off):
    figure = draw_pruning(trials)
    assert "10 trials. Pruned: 1, which saved 1 of 20 epochs" in figure.get_label()
    assert cut_off(figure) == []


def test_finalists_are_next_to_the_score_they_were_chosen_for(trials, finalists, cut_off):
    figure = draw_finalists(trials, finalists)
    assert "trial 11 was chosen for its score of 43.0; its mean is 41.0 over 2 other seeds" in figure.get_label()
    axes = figure.axes[0]
    figure.canvas.draw()  # the legend uses the runs' markers, so it must not overlap them
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1
    assert "trial 10 was chosen for its score of 40.0; its mean is 41.0 over 1 other seed" in figure.get_label()
    assert cut_off(figure) == []


def test_the_expected_best_is_yours(cut_off):
    runs = {"one": [30.0, 32.0, 34.0], "other": [31.0, 31.5]}
    figure = draw_expected_best(runs, lambda values, n: expected_best(values, n) + 100)
    (one, other) = figure.axes[0].lines
    assert one.get_ydata() == pytest.approx([expected_best(runs["one"], n) + 100 for n in (1, 2, 3)])
    assert len(other.get_ydata()) == 3
    (too_low,) = figure.axes[0].patches
    assert too_low.get_extents().x0 < too_low.get_extents().x1
    assert "From n = 1 on, which is half of the runs" in figure.get_label()  # half of the shorter series
    assert cut_off(figure) == []


def test_intervals_that_miss_the_truth_are_counted(cut_off):
    figure = draw_intervals(20, 0.3, lambda x, y: (0.5, 0.4, 0.6))
    assert "40 of the intervals miss the truth" in figure.get_label()
    assert "0 of the intervals miss" in draw_intervals(20, 0.3, lambda x, y: (0.5, 0.2, 0.6)).get_label()
    assert cut_off(figure) == []
    with pytest.raises(InputError, match="cannot be drawn"):
        draw_intervals(3)


def test_the_explorer_draws_what_its_sliders_say():
    explorer = explore_intervals()
    before = explorer.picture.value
    explorer.controls["correlation"].value = 0.2
    explorer.controls["trials"].value = 320
    assert "40 searches of 320 trials each, where the true rank correlation is 0.2" in explorer.picture.value
    assert explorer.picture.value != before


@pytest.mark.parametrize("draw", [draw_parallel, draw_slices, draw_correlations, draw_pruning])
def test_an_empty_table_is_refused(trials, draw):
    with pytest.raises(InputError, match="nothing to draw"):
        draw(trials.iloc[:0])
