"""Schematics of attention, with the shapes of the tensors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformer_lab.plots.figures import DARK, LIGHT, new_picture
from transformer_lab.plots.text_shapes import token_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUERY, KEY, VALUE, NEUTRAL, LINE = LIGHT, "#fdd0a2", "#c7e9c0", "#f2f2f2", "0.25"


def _blank_axes(figure: "Figure", width: float, height: float) -> "Axes":
    axes = figure.subplots()
    axes.set(xlim=(-0.05, width), ylim=(0, height), aspect="equal")
    axes.set_axis_off()
    return axes


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": LINE, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 10}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def _shade(weight: float) -> tuple[float, float, float]:
    """Return a color between white for 0 and `DARK` for 1."""
    return 1 - 0.97 * weight, 1 - 0.68 * weight, 1 - 0.39 * weight


# --- notebook 01: a word that looks at another ----------------------------------------------------------------------


def draw_word_weights(rows: Sequence[tuple[Sequence[str], Sequence[float], str]]) -> "Figure":
    """Draw one head's weights just before a word is written: a row of shaded tokens per sentence.

    Args:
        rows: The tokens of each sentence, their weights, and the next word.
    """
    from matplotlib.patches import Rectangle

    words = "; ".join(
        "before {}, {:.2f} of the weight is on {}".format(written, *max(zip(weights, tokens, strict=True)))
        for tokens, weights, written in rows
    )
    width = max(len(tokens) for tokens, _, _ in rows) * 1.15 + 2.9
    figure = new_picture(f"What one head looks at: {words}.", width, 0.85 * len(rows) + 0.1)
    axes = _blank_axes(figure, width, 0.85 * len(rows) + 0.1)
    for number, (tokens, weights, written) in enumerate(reversed(rows)):
        bottom = 0.85 * number + 0.35
        for column, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
            left, middle = 1.15 * column, 1.15 * column + 0.55
            look = {"facecolor": _shade(weight), "edgecolor": "0.6", "linewidth": 0.8}
            axes.add_patch(Rectangle((left, bottom), 1.1, 0.42, **look))
            color = "white" if weight > 0.5 else "black"
            centered = {"ha": "center", "va": "center"}
            centered |= {"family": token_fonts()}
            axes.text(middle, bottom + 0.21, token.lstrip("▁"), fontsize=10.5, color=color, **centered)
            axes.text(middle, bottom - 0.15, f"{weight:.2f}", fontsize=8.5, color="0.35", **centered)
        end = 1.15 * len(tokens)
        _arrow(axes, (end + 0.1, bottom + 0.21), (end + 0.75, bottom + 0.21))
        axes.text(end + 0.85, bottom + 0.21, written.lstrip("▁"), ha="left", va="center", fontsize=12, weight="bold")
    return figure


# --- notebook 01: scaled dot-product attention ----------------------------------------------------------------------


def draw_attention_steps() -> "Figure":
    """Draw scaled dot-product attention as five steps on small matrices, from queries and keys to the output."""
    text = (
        "Scaled dot-product attention in five steps. Compare: queries of shape query by d_k times transposed keys, d_k "
        "by key, give scores of shape query by key. Scale: divide by the square root of d_k. Mask: hide some scores. "
        "Softmax: each row becomes weights that add up to 1. Mix: weights times values, key by d_v, give the output, "
        "query by d_v."
    )
    figure = new_picture(text, 9.6, 5.0)
    axes = _blank_axes(figure, 28.8, 15.0)
    queries, keys, d_k, d_v = 3, 4, 2, 5
    hidden = {(0, 2), (0, 3), (1, 3)}
    shares = [[0.7, 0.3, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.6, 0.1, 0.2]]

    def sign(x: float, y: float, symbol: str, size: float = 15) -> None:
        axes.text(x, y, symbol, ha="center", va="center", fontsize=size)

    def step(x: float, y: float, words: str) -> None:
        axes.text(x, y, words, ha="left", va="center", fontsize=10.5, weight="bold", color=DARK)

    top, low = 10.6, 3.2  # y of the center of each row of matrices
    step(0.5, 14.3, "1  Compare: every query with every key")
    _matrix(axes, 0.5, top, queries, d_k, QUERY, "Q", "(query, d_k)")
    sign(3.5, top, "·")
    _matrix(axes, 4.5, top, d_k, keys, KEY, "Kᵀ", "(d_k, key)")
    sign(9.4, top, "=")
    _matrix(axes, 10.3, top, queries, keys, NEUTRAL, "scores", "(query, key)")

    step(17.4, 14.3, "2  Scale")
    _arrow(axes, (15.0, top), (18.4, top))
    axes.text(16.7, top + 0.5, "÷ √d_k", ha="center", va="bottom", fontsize=11)
    _matrix(axes, 19.2, top, queries, keys, NEUTRAL, "scaled scores", "(query, key)")

    step(0.5, 6.9, "3  Mask")
    _matrix(axes, 0.5, low, queries, keys, NEUTRAL, "hidden: ×", "(query, key)", crossed=hidden)
    step(6.4, 6.9, "4  Softmax of each row")
    _arrow(axes, (5.2, low), (8.0, low))
    _matrix(axes, 8.8, low, queries, keys, NEUTRAL, "weights", "(query, key)", shades=shares)
    step(15.2, 6.9, "5  Mix the values")
    sign(13.8, low, "·")
    _matrix(axes, 14.8, low, keys, d_v, VALUE, "V", "(key, d_v)")
    sign(20.9, low, "=")
    _matrix(axes, 21.9, low, queries, d_v, QUERY, "output", "(query, d_v)")
    return figure


def _matrix(
    axes: "Axes",
    left: float,
    middle: float,
    rows: int,
    columns: int,
    fill: str,
    name: str,
    shape: str,
    crossed: set[tuple[int, int]] = frozenset(),
    shades: Sequence[Sequence[float]] | None = None,
) -> None:
    """Draw a matrix of unit cells with its name above it and its shape below it."""
    from matplotlib.patches import Rectangle

    top = middle + rows / 2
    for row in range(rows):
        for column in range(columns):
            color = _shade(shades[row][column]) if shades else fill
            corner = (left + column, top - row - 1)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=color, edgecolor="0.45", linewidth=0.8))
            if (row, column) in crossed:
                axes.text(left + column + 0.5, top - row - 0.5, "×", ha="center", va="center", fontsize=12, color="0.3")
    axes.text(left + columns / 2, top + 0.25, name, ha="center", va="bottom", fontsize=10.5)
    axes.text(left + columns / 2, top - rows - 0.3, shape, ha="center", va="top", fontsize=9, color="0.35")


# --- notebook 02: multi-head attention ------------------------------------------------------------------------------


def draw_multi_head_steps() -> "Figure":
    """Draw multi-head attention as in figure 2 of the paper, with the function and the shape of each step."""
    from matplotlib.patches import FancyBboxPatch

    text = (
        "Multi-head attention, from bottom to top. Query, key, and value each go through a linear layer: w_q, w_k, "
        "w_v. split_heads splits each result into heads. Every head attends on its own. combine_heads puts the heads "
        "next to each other again, and a last linear layer, w_o, gives the output."
    )
    figure = new_picture(text, 8.4, 5.6)
    axes = _blank_axes(figure, 12.6, 8.4)

    def box(x: float, y: float, width: float, label: str, fill: str, copies: int = 1) -> None:
        for copy in reversed(range(copies)):
            corner = (x - width / 2 + 0.16 * copy, y - 0.32 + 0.14 * copy)
            look = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": fill, "edgecolor": "0.4"}
            axes.add_patch(FancyBboxPatch(corner, width, 0.64, **look))
        axes.text(x, y, label, ha="center", va="center", fontsize=10)

    def beside(y: float, what: str, shape: str) -> None:
        axes.text(7.7, y, what, ha="left", va="center", fontsize=10, weight="bold", color=DARK)
        axes.text(7.7, y - 0.36, shape, ha="left", va="center", fontsize=9, color="0.35")

    inputs = ((1.6, "query", "w_q", QUERY), (3.9, "key", "w_k", KEY), (6.2, "value", "w_v", VALUE))
    for x, name, layer, fill in inputs:
        axes.text(x, 0.3, name, ha="center", va="center", fontsize=11)
        _arrow(axes, (x, 0.55), (x, 1.05))
        box(x, 1.4, 1.7, layer, fill)
        _arrow(axes, (x, 1.75), (x, 2.4))
        box(x, 2.75, 1.7, "heads", fill, copies=3)
        _arrow(axes, (x, 3.4), (x, 4.15))
    box(3.9, 4.5, 6.3, "scaled dot-product attention", QUERY, copies=3)
    _arrow(axes, (3.9, 5.15), (3.9, 5.7))
    box(3.9, 6.05, 6.3, "heads next to each other", NEUTRAL)
    _arrow(axes, (3.9, 6.4), (3.9, 6.95))
    box(3.9, 7.3, 1.7, "w_o", NEUTRAL)
    _arrow(axes, (3.9, 7.65), (3.9, 8.2))
    axes.text(4.1, 8.0, "output", ha="left", va="center", fontsize=11)
    beside(7.45, "linear layer w_o", "(batch, length, d_model)")
    beside(6.2, "combine_heads", "(batch, length, d_model)")
    beside(4.8, "self.attend, for all heads at once", "(batch, heads, length, d_k)")
    beside(3.05, "split_heads", "(batch, heads, length, d_k)")
    beside(1.55, "linear layers w_q, w_k, w_v", "(batch, length, d_model)")
    return figure
