"""Schematics of attention that show the shape of each tensor."""

from collections.abc import Collection, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lab.plots.figures import DARK, LIGHT, new_picture
from transformer_lab.plots.shapes import add_box, add_cell, draw_arrow, write
from transformer_lab.plots.text_shapes import token_fonts

QUERY, KEY, VALUE, NEUTRAL = LIGHT, "#fdd0a2", "#c7e9c0", "#f2f2f2"


def _blank_axes(figure: Figure, width: float, height: float) -> Axes:
    axes = figure.subplots()
    axes.set(xlim=(-0.05, width), ylim=(0, height), aspect="equal")
    axes.set_axis_off()
    return axes


def _shade(weight: float) -> tuple[float, float, float]:
    """Return the RGB color for a weight, from white (0) to `DARK` (1)."""
    return 1 - 0.97 * weight, 1 - 0.68 * weight, 1 - 0.39 * weight


# --- notebook 01: a word that attends to other words ----------------------------------------------------------------


def draw_word_weights(rows: Sequence[tuple[Sequence[str], Sequence[float], str]]) -> Figure:
    """Draw one head's weights as the model predicts a word: one row of shaded tokens per sentence.

    Args:
        rows: For each sentence, its tokens, their weights (0 to 1), and the word that is predicted.
    """
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
            left, look = 1.15 * column, {"family": token_fonts(), "color": "white" if weight > 0.5 else "black"}
            shape = {"width": 1.1, "height": 0.42, "edge": "0.6", "linewidth": 0.8}
            add_cell(axes, left, bottom, token.lstrip("▁"), _shade(weight), fontsize=10.5, **shape, **look)
            write(axes, left + 0.55, bottom - 0.15, f"{weight:.2f}", fontsize=8.5, color="0.35", family=token_fonts())
        end, middle = 1.15 * len(tokens), bottom + 0.21
        draw_arrow(axes, (end + 0.1, middle), (end + 0.75, middle))
        write(axes, end + 0.85, middle, written.lstrip("▁"), ha="left", fontsize=12, weight="bold")
    return figure


# --- notebook 01: scaled dot-product attention ----------------------------------------------------------------------


def draw_attention_steps() -> Figure:
    """Draw scaled dot-product attention (section 3.2.1) as five steps on small matrices, from queries to output."""
    text = (
        "Scaled dot-product attention in five steps. Compare: multiply the queries (query × d_k) by the transposed "
        "keys (d_k × key) to get the scores (query × key). Scale: divide by the square root of d_k. Mask: hide some "
        "scores. Softmax: turn each row into weights that add up to 1. Mix: multiply the weights by the values (key × "
        "d_v) to get the output (query × d_v)."
    )
    figure = new_picture(text, 9.6, 5.0)
    axes = _blank_axes(figure, 28.8, 15.0)
    queries, keys, d_k, d_v = 3, 4, 2, 5
    hidden = {(0, 2), (0, 3), (1, 3)}
    shares = [[0.7, 0.3, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.6, 0.1, 0.2]]
    top, low = 10.6, 3.2  # y-coordinate of the center of each row of matrices

    steps = (
        (0.5, 14.3, "1  Compare: every query with every key"),
        (17.4, 14.3, "2  Scale"),
        (0.5, 6.9, "3  Mask"),
        (6.4, 6.9, "4  Softmax of each row"),
        (15.2, 6.9, "5  Mix the values"),
    )
    for x, y, words in steps:
        write(axes, x, y, words, ha="left", fontsize=10.5, weight="bold", color=DARK)
    for x, y, symbol in ((3.5, top, "·"), (9.4, top, "="), (13.8, low, "·"), (20.9, low, "=")):
        write(axes, x, y, symbol, fontsize=15)
    for y, start, end in ((top, 15.0, 18.4), (low, 5.2, 8.0)):
        draw_arrow(axes, (start, y), (end, y))
    write(axes, 16.7, top + 0.5, "÷ √d_k", va="bottom", fontsize=11)

    _matrix(axes, 0.5, top, queries, d_k, QUERY, "Q", "(query, d_k)")
    _matrix(axes, 4.5, top, d_k, keys, KEY, "Kᵀ", "(d_k, key)")
    _matrix(axes, 10.3, top, queries, keys, NEUTRAL, "scores", "(query, key)")
    _matrix(axes, 19.2, top, queries, keys, NEUTRAL, "scaled scores", "(query, key)")
    _matrix(axes, 0.5, low, queries, keys, NEUTRAL, "hidden: ×", "(query, key)", crossed=hidden)
    _matrix(axes, 8.8, low, queries, keys, NEUTRAL, "weights", "(query, key)", shades=shares)
    _matrix(axes, 14.8, low, keys, d_v, VALUE, "V", "(key, d_v)")
    _matrix(axes, 21.9, low, queries, d_v, QUERY, "output", "(query, d_v)")
    return figure


def _matrix(
    axes: Axes,
    left: float,
    middle: float,
    rows: int,
    columns: int,
    fill: str,
    name: str,
    shape: str,
    crossed: Collection[tuple[int, int]] = (),
    shades: Sequence[Sequence[float]] | None = None,
) -> None:
    """Draw a matrix of unit cells, with its name above and its shape below."""
    top, look = middle + rows / 2, {"edge": "0.45", "linewidth": 0.8, "fontsize": 12, "color": "0.3"}
    for row in range(rows):
        for column in range(columns):
            color = _shade(shades[row][column]) if shades else fill
            add_cell(axes, left + column, top - row - 1, "×" if (row, column) in crossed else "", color, **look)
    write(axes, left + columns / 2, top + 0.25, name, va="bottom", fontsize=10.5)
    write(axes, left + columns / 2, top - rows - 0.3, shape, va="top", fontsize=9, color="0.35")


# --- notebook 02: multi-head attention ------------------------------------------------------------------------------


def draw_multi_head_steps() -> Figure:
    """Draw multi-head attention (section 3.2.2, figure 2), with the function and output shape of each step."""
    text = (
        "Multi-head attention, from bottom to top. Query, key, and value each go through a linear layer: w_q, w_k, "
        "or w_v. split_heads splits each result into heads. Each head computes its own attention. combine_heads puts "
        "the heads side by side again, and a final linear layer, w_o, produces the output."
    )
    figure = new_picture(text, 8.4, 5.6)
    axes = _blank_axes(figure, 12.6, 8.4)

    def box(x: float, y: float, width: float, label: str, fill: str, copies: int = 1) -> None:
        for copy in reversed(range(copies)):
            add_box(axes, x + 0.16 * copy, y + 0.14 * copy, width, 0.64, fill)
        write(axes, x, y, label, fontsize=10)

    inputs = ((1.6, "query", "w_q", QUERY), (3.9, "key", "w_k", KEY), (6.2, "value", "w_v", VALUE))
    for x, name, layer, fill in inputs:
        write(axes, x, 0.3, name, fontsize=11)
        box(x, 1.4, 1.7, layer, fill)
        box(x, 2.75, 1.7, "heads", fill, copies=3)
        for start, end in ((0.55, 1.05), (1.75, 2.4), (3.4, 4.15)):
            draw_arrow(axes, (x, start), (x, end))
    box(3.9, 4.5, 6.3, "scaled dot-product attention", QUERY, copies=3)
    box(3.9, 6.05, 6.3, "heads next to each other", NEUTRAL)
    box(3.9, 7.3, 1.7, "w_o", NEUTRAL)
    for start, end in ((5.15, 5.7), (6.4, 6.95), (7.65, 8.2)):
        draw_arrow(axes, (3.9, start), (3.9, end))
    write(axes, 4.1, 8.0, "output", ha="left", fontsize=11)
    notes = (
        (7.45, "linear layer w_o", "(batch, length, d_model)"),
        (6.2, "combine_heads", "(batch, length, d_model)"),
        (4.8, "self.attend, for all heads at once", "(batch, heads, length, d_k)"),
        (3.05, "split_heads", "(batch, heads, length, d_k)"),
        (1.55, "linear layers w_q, w_k, w_v", "(batch, length, d_model)"),
    )
    for y, function, shape in notes:
        write(axes, 7.7, y, function, ha="left", fontsize=10, weight="bold", color=DARK)
        write(axes, 7.7, y - 0.36, shape, ha="left", fontsize=9, color="0.35")
    return figure
