"""Schematics: drawings that explain an idea before the code does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from transformer_lab.plots.figures import new_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK = "#08519c"
ORANGE = "#b84300"


def draw_masking(scores: Tensor, mask: Tensor, words: Sequence[str]) -> "Figure":
    """Draw the four steps from scores to weights: scores, mask, masked scores, and softmax.

    Args:
        scores: `(query, key)`.
        mask: `(query, key)`, boolean. At least one key of each query is True.
        words: The words of the sentence, which label both axes.
    """
    masked = scores.masked_fill(~mask, float("-inf"))
    tables = [
        ("scores", scores, "{:.1f}"),
        ("mask", mask, "{}"),
        ("masked scores", masked, "{:.1f}"),
        ("weights", masked.softmax(-1), "{:.2f}"),
    ]
    figure = new_picture(
        f"Four tables from left to right, rows are queries and columns are keys ({', '.join(words)}): the scores, the "
        "mask, the scores with minus infinity wherever the mask is False, and the weights, which are 0 there.",
        9.6,
        2.9,
    )
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.1, 0.2, 0.89, 0.67))
    size, gap = len(words), 1.35
    axes.set(xlim=(0, 4 * size + 3 * gap), ylim=(size, 0), yticks=[row + 0.5 for row in range(size)], yticklabels=words)
    starts = [number * (size + gap) for number in range(4)]
    axes.set_xticks([start + column + 0.5 for start in starts for column in range(size)], 4 * list(words), rotation=90)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for start, (title, table, form) in zip(starts, tables, strict=True):
        _table(axes, start, table, ~mask, form)
        axes.text(start + size / 2, -0.15, title, ha="center", va="bottom", fontsize=11)
    for start, step in zip(starts, ("", "fill", "softmax"), strict=False):
        left = start + size + 0.15
        style = {"arrowstyle": "-|>", "color": "0.25", "mutation_scale": 10}
        axes.annotate("", (left + gap - 0.3, size / 2), (left, size / 2), arrowprops=style)
        axes.text(left + gap / 2 - 0.15, size / 2 - 0.12, step, ha="center", va="bottom", fontsize=9)
    axes.set_ylabel("query")
    return figure


def _table(axes: "Axes", left: float, table: Tensor, hidden: Tensor, form: str) -> None:
    """Draw a table of numbers as squares whose left edge is at `left`, the hidden ones in orange."""
    from matplotlib.patches import Rectangle

    for row in range(table.size(0)):
        for column in range(table.size(1)):
            value, off = table[row, column].item(), bool(hidden[row, column])
            look = {"facecolor": "#fdebdc" if off else "#deebf7", "edgecolor": "white", "linewidth": 2}
            axes.add_patch(Rectangle((left + column, row), 1, 1, **look))
            text = form.format(value).replace("-inf", "−∞")
            axes.text(left + column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9,
                      color=ORANGE if off else "black", weight="bold" if off else "normal")  # fmt: skip


def draw_token_path(words: Sequence[str], vectors: Tensor, encoding: Tensor) -> "Figure":
    """Draw how each word's vector becomes the input of the first layer: scaled row plus position.

    Args:
        words: The words of a sentence.
        vectors: Their rows of the table, already multiplied by √d_model, `(length, d_model)`.
        encoding: The positions, `(length, d_model)`.
    """
    titles = ("row of the table × √d_model", "position", "input of the first layer")
    figure = new_picture(
        "Three tables of numbers with one row per word: the word's row of the table times the square root of d_model, "
        "plus its position, equals the input of the first layer.",
        9.6,
        2.6,
    )
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.14, 0.14, 0.85, 0.72))
    length, d_model = vectors.shape
    gap = 1.0
    axes.set(xlim=(0, 3 * d_model + 2 * gap), ylim=(length, 0), xticks=[])
    names = [f"{word}   position {number}" for number, word in enumerate(words)]
    axes.set_yticks([row + 0.5 for row in range(length)], names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for number, (title, table) in enumerate(zip(titles, (vectors, encoding, vectors + encoding), strict=True)):
        left = number * (d_model + gap)
        _signed_table(axes, left, table)
        axes.text(left + d_model / 2, -0.2, title, ha="center", va="bottom", fontsize=10.5)
        axes.text(left + d_model / 2, length + 0.15, "features", ha="center", va="top", fontsize=9, color="0.35")
        if number:
            axes.text(left - gap / 2, length / 2, "+="[number - 1], ha="center", va="center", fontsize=16)
    return figure


def _signed_table(axes: "Axes", left: float, table: Tensor) -> None:
    """Draw a table of numbers whose left edge is at `left`: purple for positive numbers, orange for negative ones."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    for row in range(table.size(0)):
        for column in range(table.size(1)):
            value = table[row, column].item()  # below, + 0.0 turns -0.0 into 0.0
            color = colormaps["PuOr"](0.5 + value / 6)
            axes.add_patch(Rectangle((left + column, row), 1, 1, facecolor=color, edgecolor="white", linewidth=2))
            text = f"{round(value, 2) + 0.0:.2f}"
            axes.text(left + column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=8.5)
