"""Draw figure 1 of the paper, and label each part with the number of the notebook that builds it."""

from collections.abc import Collection

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy import linspace, pi, sin

from transformer_lab.plots.figures import DARK, LIGHT, new_picture
from transformer_lab.plots.shapes import add_box, draw_arrow, write

# Colors of the parts. Their lightness differs, too, so you can tell them apart in a grayscale printout.
ATTENTION, FEED_FORWARD, NORM, EMBEDDING, OUTPUT = LIGHT, "#c7e9c0", "#fff7d6", "#fdd0a2", "#d9d3e8"
LIT = DARK

ENCODER, DECODER = 3.0, 8.0  # x-coordinate of each column's center
WIDTH, HEIGHT = 3.0, 0.5  # size of a box

# label, fill color, notebook numbers, x and y of the center
BOXES = [
    ("Embedding", EMBEDDING, (4,), ENCODER, 1.35),
    ("Multi-head attention", ATTENTION, (1, 2), ENCODER, 3.35),
    ("Add & norm", NORM, (5,), ENCODER, 4.0),
    ("Feed-forward", FEED_FORWARD, (5,), ENCODER, 5.0),
    ("Add & norm", NORM, (5,), ENCODER, 5.65),
    ("Embedding", EMBEDDING, (4,), DECODER, 1.35),
    ("Masked attention", ATTENTION, (2, 3), DECODER, 3.35),
    ("Add & norm", NORM, (5,), DECODER, 4.0),
    ("Cross-attention", ATTENTION, (2,), DECODER, 5.0),
    ("Add & norm", NORM, (5,), DECODER, 5.65),
    ("Feed-forward", FEED_FORWARD, (5,), DECODER, 6.65),
    ("Add & norm", NORM, (5,), DECODER, 7.3),
    ("Linear, softmax", OUTPUT, (8,), DECODER, 8.45),
]


def draw_architecture(highlight: Collection[int] = ()) -> Figure:
    """Draw the whole Transformer (figure 1 of the paper).

    Args:
        highlight: The numbers of the notebooks whose parts are highlighted, such as `[5]`.
    """
    words = f", with the parts of notebook {', '.join(map(str, sorted(highlight)))} highlighted" if highlight else ""
    text = (
        f"The Transformer{words}. On the left, the encoder: embedding and position, then a stack of layers of "
        "multi-head attention and feed-forward, each followed by add and norm. On the right, the decoder: it has the "
        "same structure, except that its self-attention is masked and is followed by cross-attention to the encoder's "
        "output. A linear layer and a softmax then predict the next word."
    )
    figure = new_picture(text, 7.6, 7.2)
    axes = figure.subplots()
    axes.set(xlim=(-0.2, 11.2), ylim=(0.1, 9.7), aspect="auto")
    axes.set_axis_off()

    _frame(axes, ENCODER, 2.75, 6.05, "encoder layer", 6, highlight, side="left")
    _frame(axes, DECODER, 2.75, 7.7, "decoder layer", 7, highlight, side="right")
    for label, fill, notebooks, x, y in BOXES:
        _box(axes, label, fill, notebooks, x, y, highlight)
    for x, tokens in ((ENCODER, "Ein  Hund  rennt"), (DECODER, "<bos>  A  dog")):
        _tokens(axes, x, 0.45, tokens, 9, highlight)
        _arrow(axes, (x, 0.68), (x, 1.08))
        _arrow(axes, (x, 1.62), (x, 3.08))
        _position(axes, x, 2.15, highlight)
    _tokens(axes, DECODER, 9.4, "A  dog  runs", 11, highlight)

    for x, sublayers in ((ENCODER, (3.35, 5.0)), (DECODER, (3.35, 5.0, 6.65))):
        for sublayer in sublayers:
            _arrow(axes, (x, sublayer + 0.27), (x, sublayer + 0.38))
            _residual(axes, x, sublayer, sublayer + 0.65)
    for x, below, above in ((ENCODER, 4.0, 5.0), (DECODER, 4.0, 5.0), (DECODER, 5.65, 6.65), (DECODER, 7.3, 8.45)):
        _arrow(axes, (x, below + 0.27), (x, above - 0.27))
    _arrow(axes, (DECODER, 8.72), (DECODER, 9.18))
    # The encoder's output goes to every layer of the decoder.
    between = (ENCODER + DECODER) / 2
    axes.plot([ENCODER, ENCODER, between, between], [5.92, 6.5, 6.5, 5.0], color="0.25", linewidth=1.1)
    _arrow(axes, (between, 5.0), (DECODER - WIDTH / 2 - 0.02, 5.0))
    axes.text((ENCODER + between) / 2, 6.6, "memory", ha="center", va="bottom", fontsize=9, color="0.25")
    return figure


def _number(axes: Axes, x: float, y: float, notebooks: Collection[int], lit: bool = False) -> None:
    text = " ".join(f"{notebook:02}" for notebook in notebooks)
    write(axes, x, y, text, ha="right", fontsize=7.5, color="white" if lit else "0.35", family="monospace")


def _box(
    axes: Axes, label: str, fill: str, notebooks: Collection[int], x: float, y: float, highlight: Collection[int]
) -> None:
    lit = any(notebook in highlight for notebook in notebooks)
    add_box(axes, x, y, WIDTH, HEIGHT, LIT if lit else "0.95" if highlight else fill, linewidth=0.8)
    color = "white" if lit else "0.45" if highlight else "black"
    write(axes, x - WIDTH / 2 + 0.12, y, label, ha="left", fontsize=9.5, color=color)
    _number(axes, x + WIDTH / 2 - 0.1, y, notebooks, lit)


def _frame(
    axes: Axes, x: float, bottom: float, top: float, label: str, notebook: int, highlight: Collection[int], side: str
) -> None:
    lit = notebook in highlight
    width, x, y = WIDTH + 0.75, x - 0.125, (bottom + top) / 2
    edge = {"edgecolor": LIT, "linewidth": 2.5} if lit else {"edgecolor": "0.55", "linewidth": 1.0, "linestyle": "--"}
    add_box(axes, x, y, width, top - bottom, "none", rounding=0.2, **edge)
    outside, align = (x - width / 2 - 0.12, "right") if side == "left" else (x + width / 2 + 0.12, "left")
    look = {"color": LIT, "weight": "bold"} if lit else {"color": "0.25"}
    write(axes, outside, y, f"N ×\n{label}\n{notebook:02}", ha=align, fontsize=9, **look)


def _tokens(axes: Axes, x: float, y: float, tokens: str, notebook: int, highlight: Collection[int]) -> None:
    look = {"color": LIT, "weight": "bold"} if notebook in highlight else {}
    write(axes, x, y, tokens, fontsize=10, **look)
    _number(axes, x + WIDTH / 2 + 0.05, y, (notebook,))


def _position(axes: Axes, x: float, y: float, highlight: Collection[int]) -> None:
    """Draw the plus sign on an arrow, and the positional encoding (a wave) that is added there."""
    lit = 4 in highlight
    axes.plot(x, y, "o", markersize=13, markerfacecolor="white", markeredgecolor=LIT if lit else "0.4")
    write(axes, x, y, "+", fontsize=11)
    wave = linspace(0, 1, 60)
    axes.plot(x - 1.25 + 0.75 * wave, y + 0.12 * sin(4 * pi * wave), color=LIT if lit else "0.4", linewidth=1.4)
    _arrow(axes, (x - 0.48, y), (x - 0.2, y))
    write(axes, x + 0.28, y, "position", ha="left", fontsize=9, color=LIT if lit else "0.25")
    _number(axes, x + WIDTH / 2 - 0.1, y, (4,))


def _residual(axes: Axes, x: float, sublayer: float, norm: float) -> None:
    """Draw the residual connection around a sublayer, from its input to its "add & norm" box."""
    left, below = x - WIDTH / 2 - 0.25, sublayer - 0.45
    axes.plot([x, left, left], [below, below, norm], color="0.25", linewidth=1.1)
    _arrow(axes, (left, norm), (x - WIDTH / 2 - 0.02, norm))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    draw_arrow(axes, start, end, mutation_scale=9)
