"""Plot the curves of training runs, from `metrics.jsonl` or live during training."""

import sys
import time
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DARK, LIGHT, MIDDLE, ORANGE, as_html, new_picture, tidy
from transformer_lab.plots.lines import name_line
from transformer_lab.training.records import read_metrics

LOOKS = [("black", "--", "s"), (ORANGE, "-", "o"), (DARK, "-.", "^"), (MIDDLE, ":", "D")]  # color, line, marker


def plot_training(metrics_path: str | Path) -> Figure:
    """Plot the loss (nats per token), learning rate, and validation BLEU of a training run.

    Args:
        metrics_path: The run's `metrics.jsonl`, or the folder that contains it.

    Raises:
        InputError: The file does not exist or contains no records.
    """
    path = Path(metrics_path)
    path = path / "metrics.jsonl" if path.is_dir() else path
    records = read_metrics(path)
    if not records:
        raise InputError(f"{path} contains no training records: give the metrics.jsonl of a run, or its folder")
    return draw_curves(records)


def draw_curves(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the `plot_training` figure from records (described in `transformer_lab.training.records`)."""
    steps = [record for record in records if record["kind"] == "step"]
    epochs = [record for record in records if record["kind"] == "epoch"]
    scored, scores = _points(epochs, "validation_bleu", "epoch")
    figure = new_picture(_in_words(steps, epochs, scores), 10.5, 3.2)
    loss, rate, bleu = figure.subplots(1, 3, width_ratios=[2, 1, 1])

    loss.plot(*_points(steps, "loss"), color=LIGHT, linewidth=1, label="training: every step")
    marks = {"markersize": 5, "linewidth": 1.5}
    loss.plot(*_points(epochs, "train_loss"), color=DARK, marker="o", label="training: mean of the epoch", **marks)
    validation = {"color": "black", "linestyle": "--", "marker": "s", "label": "validation (labels not smoothed)"}
    loss.plot(*_points(epochs, "validation_loss"), **validation, **marks)
    loss.set(title="Loss (nats per token)", xlabel="step")
    loss.set_ylim(bottom=0)
    loss.legend(frameon=False, fontsize=9)

    rate.plot(*_points(steps, "rate"), color=DARK)
    rate.set(title="Learning rate", xlabel="step")
    rate.set_ylim(bottom=0)
    rate.ticklabel_format(axis="y", scilimits=(-2, 4))

    bleu.plot(scored, scores, "o-", color=DARK)
    bleu.set(title="Validation BLEU", xlabel="epoch", ylim=(0, 100 if max(scores, default=0) > 60 else 60))
    bleu.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    bleu.margins(x=0.15)
    if len(scored) < 2:
        bleu.set_xlim(0.5, 2.5)
    if scored:
        # Above and to the left, because the line usually rises toward this point
        place = {"ha": "right", "va": "baseline", "xytext": (-4, 6), "fontsize": 10}
        name_line(bleu, scored[-1], scores[-1], f"{scores[-1]:.1f}", "black", **place)
    tidy(loss, rate, bleu, grid="y")
    return figure


def compare_runs(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Plot several training runs together: validation loss and BLEU by epoch, and validation loss by time in minutes.

    Args:
        runs: Maps the name of each run to its records, as returned by `transformer_lab.training.read_metrics`.
    """
    epochs_of = {
        name: [record | {"minutes": record["seconds"] / 60} for record in records if record["kind"] == "epoch"]
        for name, records in runs.items()
    }
    words = " ".join(f"{name}: {_where_it_came_to(epochs)}" for name, epochs in epochs_of.items())
    figure = new_picture(f"Several training runs, plotted against epochs and against minutes. {words}", 10.5, 3.4)
    loss, bleu, minutes = figure.subplots(1, 3)
    for axes, x, y, title, label in (
        (loss, "epoch", "validation_loss", "Validation loss (nats per token)", "epoch"),
        (bleu, "epoch", "validation_bleu", "Validation BLEU (greedy)", "epoch"),
        (minutes, "minutes", "validation_loss", "Validation loss", "minutes (logarithmic)"),
    ):
        for (name, epochs), (color, line, mark) in zip(epochs_of.items(), cycle(LOOKS), strict=False):
            look = {"color": color, "linestyle": line, "marker": mark, "markersize": 4, "linewidth": 1.5}
            axes.plot(*_points(epochs, y, x), label=name, **look)
        axes.set(title=title, xlabel=label)
        tidy(axes, grid="y")
        axes.set_ylim(bottom=0)
    for axes in (loss, bleu):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    minutes.set_xscale("log")
    minutes.xaxis.set_major_formatter("{x:g}")
    loss.legend(frameon=False, fontsize=9)
    return figure


def _where_it_came_to(epochs: Sequence[Mapping[str, Any]]) -> str:
    if not epochs:
        return "no epoch yet."
    last = epochs[-1]
    _, scores = _points(epochs, "validation_bleu")
    loss = "undefined" if last["validation_loss"] is None else f"{last['validation_loss']:.2f}"
    bleu = f", BLEU {scores[-1]:.1f}" if scores else ""
    return f"after epoch {last['epoch']} and {last['minutes']:.1f} minutes, the loss is {loss}{bleu}."


def _points(records: Sequence[Mapping[str, Any]], y: str, x: str = "step") -> tuple[list[float], list[float]]:
    finite = [record for record in records if record.get(y) is not None]
    return [record[x] for record in finite], [record[y] for record in finite]


def _in_words(steps: Sequence[Mapping], epochs: Sequence[Mapping], scores: Sequence[float]) -> str:
    text = f"Training curves after {steps[-1]['step'] if steps else 0} steps."
    _, losses = _points(steps, "loss")
    if losses:
        text += f" The training loss went from {losses[0]:.2f} to {losses[-1]:.2f}."
    if epochs and epochs[-1].get("validation_loss") is not None:
        text += f" The validation loss is {epochs[-1]['validation_loss']:.2f}."
    if scores:
        text += f" The validation BLEU is {scores[-1]:.1f}."
    return text


class LiveCurve:
    """A plot of a training run that updates itself in the notebook: `train(..., on_log=LiveCurve())`.

    The last plot remains as the cell's output. Outside a notebook, nothing is shown, so call `figure()` to get the
    plot. When a resumed run repeats a step, the step's old record is dropped.

    Args:
        seconds: Minimum time between updates, in seconds. Drawing the plot takes as long as several training steps.
    """

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self.records: list[Mapping[str, Any]] = []
        self._drawn = -float("inf")
        self._shown = None

    def __call__(self, record: Mapping[str, Any]) -> None:
        if record["kind"] == "step":
            while self.records and self.records[-1].get("step", record["step"]) >= record["step"]:
                self.records.pop()
        self.records.append(record)
        if record["kind"] != "step" or time.perf_counter() - self._drawn >= self.seconds:
            self._show()
            self._drawn = time.perf_counter()

    def figure(self) -> Figure:
        """Return a figure of the curves so far."""
        return draw_curves(self.records)

    def _show(self) -> None:
        if "IPython" not in sys.modules:
            return
        from IPython import get_ipython
        from IPython.display import HTML, display

        shell = get_ipython()
        if shell is None or not hasattr(shell, "kernel"):  # a terminal can't show figures
            return
        picture = HTML(as_html(self.figure()))
        if self._shown is None:
            self._shown = display(picture, display_id=True)
        else:
            self._shown.update(picture)
