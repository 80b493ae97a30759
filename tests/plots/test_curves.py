"""Without these tests, a curve could differ from the log, or live figures could accumulate in a notebook."""

import json

import nbformat
import numpy as np
import pytest

from transformer_lab.errors import InputError
from transformer_lab.plots import LiveCurve, compare_runs, plot_training

RECORDS = [
    {"kind": "step", "step": 1, "epoch": 1, "loss": 8.0, "rate": 0.001},
    {"kind": "step", "step": 2, "epoch": 1, "loss": 6.0, "rate": 0.002},
    {"kind": "epoch", "epoch": 1, "step": 2, "train_loss": 7.0, "validation_loss": 5.5, "validation_bleu": None},
    {"kind": "step", "step": 3, "epoch": 2, "loss": None, "rate": 0.001},
    {"kind": "step", "step": 4, "epoch": 2, "loss": 4.0, "rate": 0.0},
    {"kind": "epoch", "epoch": 2, "step": 4, "train_loss": 4.5, "validation_loss": 3.5, "validation_bleu": 31.5},
    {"kind": "end", "chosen": "epoch 2", "validation_bleu": 32.0, "seconds": 9.0},
]


def lines(axes) -> dict:
    return {line.get_label(): list(zip(*map(list, line.get_data()), strict=True)) for line in axes.lines}


def test_the_curves_are_the_records(tmp_path, cut_off):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS) + '{"kind": "st')
    figure = plot_training(tmp_path)
    loss, rate, bleu = figure.axes
    assert lines(loss) == {
        "training: every step": [(1, 8.0), (2, 6.0), (4, 4.0)],  # an infinite loss is left out, not drawn as 0
        "training: mean of the epoch": [(2, 7.0), (4, 4.5)],
        "validation (labels not smoothed)": [(2, 5.5), (4, 3.5)],
    }
    assert [point for line in lines(rate).values() for point in line] == [(1, 0.001), (2, 0.002), (3, 0.001), (4, 0.0)]
    assert [point for line in lines(bleu).values() for point in line] == [(2, 31.5)]
    assert [axes.get_xlabel() for axes in figure.axes] == ["step", "step", "epoch"]
    assert cut_off(figure) == []
    assert "went from 8.00 to 4.00. The validation loss is 3.50. The validation BLEU is 31.5." in figure.get_label()


@pytest.mark.parametrize("content", [None, "", "no json"])
def test_a_file_without_records_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"metrics\.jsonl contains no training records"):
        plot_training(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("count", range(len(RECORDS) + 1))
def test_a_run_can_be_drawn_at_any_moment(count, cut_off):
    """The live figure is drawn even before the first epoch has ended, when no score is known yet."""
    curve = LiveCurve()
    for record in RECORDS[:count]:
        curve(record)
    assert cut_off(curve.figure()) == []


TIMED = [record | {"seconds": 60.0 * record["epoch"]} for record in RECORDS if record["kind"] == "epoch"]


def test_runs_side_by_side_share_their_axes(cut_off):
    """Each run has its own color, line style, and marker in the shared axes, and the alt text describes each run."""
    yours = [TIMED[0] | {"validation_loss": 4.5, "seconds": 6.0}]
    figure = compare_runs({"recorded": [*RECORDS[:2], *TIMED], "yours": yours, "not begun": []})
    loss, bleu, minutes = figure.axes
    assert lines(loss) == {"recorded": [(1, 5.5), (2, 3.5)], "yours": [(1, 4.5)], "not begun": []}
    assert lines(bleu) == {"recorded": [(2, 31.5)], "yours": [], "not begun": []}
    assert lines(minutes) == {"recorded": [(1, 5.5), (2, 3.5)], "yours": [(0.1, 4.5)], "not begun": []}
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in loss.lines}) == 3
    assert "recorded: after epoch 2 and 2.0 minutes, the loss is 3.50, BLEU 31.5." in figure.get_label()
    assert "not begun: no epoch yet." in figure.get_label()
    assert cut_off(figure) == []


def test_a_live_curve_goes_on_with_a_continued_run():
    """A resumed run repeats the steps after its last checkpoint. Those steps must not be drawn twice."""
    curve, again = LiveCurve(), RECORDS[3] | {"loss": 5.0}
    for record in [*RECORDS, again]:
        curve(record)
    assert curve.records == [*RECORDS[:3], again]


def test_outside_of_a_notebook_nothing_is_shown(capsys):
    curve = LiveCurve(seconds=0)
    for record in RECORDS:
        curve(record)
    assert capsys.readouterr() == ("", "")
    assert np.isclose(curve.figure().axes[2].lines[0].get_ydata(), 31.5).all()


def test_in_a_notebook_one_picture_is_redrawn_and_the_last_one_stays():
    import nbclient

    source = f"""
from transformer_lab.plots import LiveCurve
curve = LiveCurve(seconds=1000)  # after the first figure, only the end of an epoch or run is drawn
for record in {RECORDS!r}:
    curve(record)
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/html"].startswith('<img alt="Training curves after 4 steps.')
