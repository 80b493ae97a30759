"""Schematics that explain an idea before the code does."""

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lab.plots.figures import DARK, LIGHT, PALE, RUST, blank_axes, new_picture
from transformer_lab.plots.shapes import add_box, add_cell, draw_arrow, write


def draw_masking(scores: Tensor, mask: Tensor, words: Sequence[str]) -> Figure:
    """Draw how a mask changes attention weights (section 3.2.3): scores, mask, masked scores, and weights.

    Args:
        scores: `(query, key)`.
        mask: `(query, key)`, boolean; True means "may attend". Each row has at least one True.
        words: The words of the sentence, which label the rows and columns.
    """
    masked = scores.masked_fill(~mask, float("-inf"))
    tables = [
        ("scores", scores, "{:.1f}"),
        ("mask", mask, "{}"),
        ("masked scores", masked, "{:.1f}"),
        ("weights", masked.softmax(-1), "{:.2f}"),
    ]
    figure = new_picture(
        f"Four tables whose rows are queries and whose columns are keys ({', '.join(words)}). From left to right: the "
        "scores, the mask, the scores with minus infinity wherever the mask is False, and the weights, which are 0 "
        "there.",
        9.6,
        2.9,
        layout="none",
    )
    axes = figure.add_axes((0.1, 0.2, 0.89, 0.67))
    size, gap = len(words), 1.35
    axes.set(xlim=(0, 4 * size + 3 * gap), ylim=(size, 0), yticks=[row + 0.5 for row in range(size)], yticklabels=words)
    starts = [number * (size + gap) for number in range(4)]
    axes.set_xticks([start + column + 0.5 for start in starts for column in range(size)], 4 * list(words), rotation=90)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for start, (title, table, form) in zip(starts, tables, strict=True):
        _table(axes, start, table, ~mask, form)
        write(axes, start + size / 2, -0.15, title, va="bottom", fontsize=11)
    for start, step in zip(starts, ("", "fill", "softmax"), strict=False):
        left = start + size + 0.15
        draw_arrow(axes, (left, size / 2), (left + gap - 0.3, size / 2), linewidth=1, shrinkA=2, shrinkB=2)
        write(axes, left + gap / 2 - 0.15, size / 2 - 0.12, step, va="bottom", fontsize=9)
    axes.set_ylabel("query")
    return figure


def _table(axes: Axes, left: float, table: Tensor, hidden: Tensor, form: str) -> None:
    """Draw a table of numbers as squares, with its left edge at `left` and the hidden numbers in orange."""
    for row in range(table.size(0)):
        for column in range(table.size(1)):
            off = bool(hidden[row, column])
            fill, look = ("#fdebdc", {"color": RUST, "weight": "bold"}) if off else (PALE, {})
            text = form.format(table[row, column].item()).replace("-inf", "−∞")
            add_cell(axes, left + column, row, text, fill, linewidth=2, fontsize=9, **look)


def draw_token_path(words: Sequence[str], vectors: Tensor, encoding: Tensor) -> Figure:
    """Draw how the input of the first layer is computed: scaled embeddings plus positional encodings (section 3.4).

    Args:
        words: The words of a sentence.
        vectors: The embeddings of the words, already multiplied by √d_model, `(length, d_model)`.
        encoding: The positional encodings, `(length, d_model)`.
    """
    titles = ("row of the table × √d_model", "position", "input of the first layer")
    figure = new_picture(
        "Three tables of numbers, one row per word: take the word's row from the embedding table, multiply it by the "
        "square root of d_model, and add the encoding of its position to get the input of the first layer.",
        9.6,
        2.6,
        layout="none",
    )
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
        write(axes, left + d_model / 2, -0.2, title, va="bottom", fontsize=10.5)
        write(axes, left + d_model / 2, length + 0.15, "features", va="top", fontsize=9, color="0.35")
        if number:
            write(axes, left - gap / 2, length / 2, "+="[number - 1], fontsize=16)
    return figure


def _signed_table(axes: Axes, left: float, table: Tensor) -> None:
    """Draw a table with its left edge at `left`: positive numbers are purple, negative numbers orange."""
    for row in range(table.size(0)):
        for column in range(table.size(1)):
            value = table[row, column].item()  # adding 0.0 below turns -0.0 into 0.0
            text, color = f"{round(value, 2) + 0.0:.2f}", colormaps["PuOr"](0.5 + value / 6)
            add_cell(axes, left + column, row, text, color, linewidth=2, fontsize=8.5)


def draw_cache(words: Sequence[str]) -> Figure:
    """Draw which keys and values each decoding step computes, with and without a cache.

    Args:
        words: The tokens that the decoder reads. Each step reads one more token than the previous step.
    """
    n = len(words)
    counts = {"without a cache": n * (n + 1) // 2, "with a cache": n}
    figure = new_picture(
        f"Two staircases of squares, with a row for each of {n} decoding steps and a column for each token read so "
        f"far. Without a cache, all {counts['without a cache']} squares are computed. With a cache, only the last "
        f"square of each row is computed, {n} in all, and the others are read from the cache.",
        8.4,
        0.42 * n + 1.0,
    )
    for axes, (title, count) in zip(figure.subplots(1, 2, sharey=True), counts.items(), strict=True):
        for step in range(n):
            for position in range(step + 1):
                computed = title == "without a cache" or position == step
                label, fill, color = ("new", DARK, "white") if computed else ("kept", PALE, "black")
                add_cell(axes, position, step, label, fill, fontsize=8.5, color=color)
        axes.set(xlim=(0, n), ylim=(n, 0), title=f"{title}: {count} computed")
        axes.set_xticks([position + 0.5 for position in range(n)], words)
        axes.set_yticks([step + 0.5 for step in range(n)], [f"step {step + 1}" for step in range(n)])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    return figure


def draw_ngrams(words: Sequence[str], matched: Sequence[Sequence[bool]]) -> Figure:
    """Draw the n-grams of a sentence as boxes, one row per n, with the number of matches (Papineni et al. 2002).

    Args:
        words: The tokens of a translation.
        matched: For each n = 1, 2, …, one row that says whether each n-gram of the translation, from left to right,
            counts as a match.
    """
    text = "; ".join(f"{sum(row)} of {len(row)} {n}-grams" for n, row in enumerate(matched, 1))
    figure = new_picture(
        f"The n-grams of “{' '.join(words)}” as boxes, one row for each n. In the reference: {text}.",
        1.2 * len(words) + 2.6,
        0.62 * len(matched) + 0.2,
    )
    axes = blank_axes(figure, (-1.0, len(words) + 1.1), (len(matched), 0))
    for n, row in enumerate(matched, 1):
        y = n - 0.5
        write(axes, -0.1, y, f"n = {n}", ha="right", fontsize=10)
        for start, match in enumerate(row):
            x = start + n / 2  # centers the rows on each other, like a pyramid
            fill, color, line = (PALE, DARK, "-") if match else ("#fdebdc", RUST, "--")
            add_box(axes, x, y, 0.86, 0.74, fill, rounding=0.08, edgecolor=color, linestyle=line)
            write(axes, x, y, "\n".join(_two_lines(words[start : start + n])), fontsize=8.5, color=color)
        write(axes, len(words) + 0.1, y, f"{sum(row)} of {len(row)}", ha="left", fontsize=11)
    return figure


def _two_lines(words: Sequence[str]) -> list[str]:
    """Put one or two words on one line, and three or more on two lines."""
    half = (len(words) + 1) // 2
    return [" ".join(words)] if len(words) < 3 else [" ".join(words[:half]), " ".join(words[half:])]


def draw_residual_stream() -> Figure:
    """Draw four sublayers along the residual stream, in post-norm order (section 3.1) and in pre-norm order."""
    figure = new_picture(
        "Two residual streams from left to right, each with four sublayers that read from it and add to it. In "
        "post-norm, the stream itself goes through a norm after every addition. In pre-norm, only the inputs of the "
        "sublayers are normalized; the stream is a running sum, with one norm at the end.",
        9.6,
        5.2,
    )
    for bottom, norm_first in ((0.5, False), (0.0, True)):
        _stream(blank_axes(figure, (-1.5, 19.2), (-2.3, 3.3), (0.01, bottom, 0.98, 0.5)), norm_first)
    return figure


def _stream(axes: Axes, norm_first: bool) -> None:
    name = "pre-norm" if norm_first else "post-norm (the paper)"
    write(axes, -1.4, 2.75, name, ha="left", fontsize=11.5, weight="bold")
    color, sublayers = (DARK if norm_first else "0.25"), ["attention", "feed-\nforward"] * 2
    axes.plot([-0.6, 18.2], [0, 0], color=color, linewidth=3.2, solid_capstyle="butt", zorder=1)
    draw_arrow(axes, (18.1, 0), (18.75, 0), color=color, linewidth=3.2, shrinkA=2, shrinkB=2)
    write(axes, -0.75, 0, "$x_0$", ha="right", fontsize=12)
    sums = ["x_0"]
    for number, sublayer in enumerate(sublayers):
        left = 4.25 * number
        plus = left + 3.0
        thin = {"color": "0.35", "linewidth": 1.2, "zorder": 0}
        axes.plot([left, left], [0, 1.75], **thin)
        if norm_first:
            _block(axes, left, 0.85, 1.25, 0.55, "norm", "#fff7d6")
        fill = LIGHT if sublayer == "attention" else "#c7e9c0"
        axes.plot([left, plus], [1.75, 1.75], **thin)
        draw_arrow(axes, (plus, 1.77), (plus, 0.3), color="0.35", linewidth=1.2, shrinkA=2)
        _block(axes, left + 1.25, 1.75, 2.1, 1.1, sublayer, fill)
        write(axes, plus + 0.12, 1.1, f"$s_{number + 1}$", ha="left", fontsize=11)
        axes.plot(plus, 0, "o", markersize=13, markerfacecolor="white", markeredgecolor=color, zorder=3)
        write(axes, plus, -0.02, "+", fontsize=11, zorder=4)
        sums.append(f"s_{number + 1}")
        if norm_first:
            write(axes, plus - 0.2, -0.75, f"${' + '.join(sums)}$", fontsize=9.5, color=color)
        else:
            _block(axes, plus + 0.62, 0, 0.52, 1.25, "norm", "#fff7d6", rotation=90)
    if norm_first:
        _block(axes, 17.4, 0, 0.52, 1.25, "norm", "#fff7d6", rotation=90)
        text = "The stream is a running sum. Each sublayer reads a normalized copy of it and adds its result."
    else:
        text = "Every addition is followed by a norm, so whatever travels along the stream is rescaled at each step."
    write(axes, 8.6, -1.6, text, fontsize=10, color="0.2")


def _block(
    axes: Axes, x: float, y: float, width: float, height: float, label: str, fill: str, rotation: float = 0
) -> None:
    """Draw a labeled box around `(x, y)`."""
    add_box(axes, x, y, width, height, fill, rounding=0.12, linewidth=0.8, zorder=2)
    write(axes, x, y, label, fontsize=9.5, rotation=rotation, linespacing=0.95, zorder=3)


def draw_layer(words: Sequence[str], memory: Sequence[str] = ()) -> Figure:
    """Draw one layer (section 3.1) as a stack of sublayers over a sentence. Lines show which words attend to which.

    Args:
        words: The words of the sentence, one per column.
        memory: The words of the source sentence. If given, the layer is a decoder layer, with a causal mask and
            cross-attention.
    """
    rows = ["self-attention", *(["cross-attention"] if memory else []), "feed-forward"]
    notes = {
        "self-attention": "each word looks at itself and\nthe words before it" if memory else "each looks at all words",
        "cross-attention": "each word looks at\nthe whole source",
        "feed-forward": "each word on its own",
    }
    figure = new_picture(
        f"One {'decoder' if memory else 'encoder'} layer over the words {', '.join(words)}, from bottom to top. "
        + " ".join(f"{row.capitalize()}: {notes[row]}.".replace("\n", " ") for row in rows)
        + " After each of them, the result is added to the word's own line, and the sum is normalized.",
        8.4,
        1.0 + 1.25 * len(rows),
    )
    first, step, height = 4.4, 1.7, 2.0
    every_column = [first + step * number for number in range(len(memory) + len(words))]
    memory_columns, columns = every_column[: len(memory)], every_column[len(memory) :]
    top = height * len(rows)
    axes = blank_axes(figure, (0, columns[-1] + 1.2), (-0.75, top + 0.6), (0.01, 0.02, 0.98, 0.96))
    for x, word in zip(columns, words, strict=True):
        axes.plot([x, x], [-0.15, top + 0.3], color="0.25", linewidth=2.2, zorder=1)
        write(axes, x, -0.45, word, fontsize=11)

    for number, row in enumerate(rows):
        y = height * number
        axes.text(0.1, y + 0.85, row, fontsize=11, weight="bold", va="bottom")
        axes.text(0.1, y + 0.72, notes[row], fontsize=9, va="top", color="0.3")
        for j, x in enumerate(columns):
            if row == "feed-forward":
                axes.plot([x, x + 0.45, x + 0.45, x], [y + 0.2, y + 0.45, y + 1.15, y + 1.4], color="0.45", linewidth=1)
                _block(axes, x + 0.45, y + 0.8, 0.62, 0.5, "FFN", "#c7e9c0")
                attended, start = [], y
            elif row == "cross-attention":
                attended, start = memory_columns, y + 0.2
            else:
                attended, start = columns[:j] if memory else columns[:j] + columns[j + 1 :], y + 0.1
            for other in attended:  # a line to each word from the words it attends to
                axes.plot([other, x], [start, y + 1.4], color=DARK, linewidth=1, alpha=0.65, zorder=2)
            axes.plot(x, y + 1.55, "o", markersize=11, markerfacecolor="#fff7d6", markeredgecolor="0.3", zorder=4)
            write(axes, x, y + 1.54, "+", fontsize=10, zorder=5)
        if row == "cross-attention":
            for x, word in zip(memory_columns, memory, strict=True):
                axes.plot(x, y + 0.15, "s", markersize=9, color=LIGHT, markeredgecolor="0.3", zorder=4)
                write(axes, x, y - 0.15, word, va="top", fontsize=11)
            middle = (memory_columns[0] + memory_columns[-1]) / 2
            write(axes, middle, y - 0.62, "memory", va="top", fontsize=9, color="0.3")
    return figure


LOOP_BOXES = {  # x and y of each box's center, and whether the box is an exercise
    "a batch": (0, 2, False),
    "shift_target": (2, 2, True),
    "label_smoothing_loss": (6.5, 2, True),
    "evaluate": (1.5, 1, True),
    "Transformer": (4, 1, True),
    "warmup_rate": (1.5, 0, True),
    "optimizer": (4, 0, False),
    "backward, clip": (6.5, 0, False),
}
LOOP_ARROWS = (
    ("a batch", "shift_target", "", "center"),
    ("shift_target", "Transformer", "input", "left"),
    ("shift_target", "label_smoothing_loss", "labels", "center"),
    ("Transformer", "label_smoothing_loss", "logits", "right"),
    ("label_smoothing_loss", "backward, clip", "loss", "left"),
    ("backward, clip", "optimizer", "gradient", "center"),
    ("optimizer", "Transformer", "new weights", "left"),
    ("warmup_rate", "optimizer", "learning rate", "center"),
    ("Transformer", "evaluate", "", "center"),
)


def draw_training_loop() -> Figure:
    """Draw the training loop (section 5): from a batch to the loss, and from the loss to new weights."""
    figure = new_picture(
        "A loop of boxes: shift_target splits a batch into the decoder's input and the labels; the Transformer turns "
        "the input into logits; label_smoothing_loss compares the logits with the labels; backward turns the loss into "
        "a gradient; the optimizer gives the Transformer new weights, using the learning rate from warmup_rate. The "
        "evaluate function looks at the Transformer from outside the loop.",
        9,
        3.2,
    )
    axes = figure.subplots()
    boxes = {}
    for name, (x, y, is_yours) in LOOP_BOXES.items():
        colors = {"facecolor": PALE, "edgecolor": DARK} if is_yours else {"facecolor": "white", "edgecolor": "0.5"}
        text = axes.text(x, y, name, ha="center", va="center", bbox={"boxstyle": "round,pad=0.4"} | colors)
        boxes[name] = text.get_bbox_patch()
    for start, end, label, side in LOOP_ARROWS:
        (x, y), (to_x, to_y) = LOOP_BOXES[start][:2], LOOP_BOXES[end][:2]
        style = {"arrowstyle": "-|>", "color": "0.35", "patchA": boxes[start], "patchB": boxes[end]}
        axes.annotate("", (to_x, to_y), (x, y), arrowprops=style, zorder=4)
        shift = {"left": 0.1, "center": 0, "right": -0.1}[side]
        axes.text((x + to_x) / 2 + shift, (y + to_y) / 2 + 0.06, label, ha=side, va="bottom", fontsize=9)
    axes.set(xlim=(-0.7, 7.8), ylim=(-0.3, 2.3))
    axes.axis("off")
    return figure


def draw_next_token_questions(read: str, predicted: str, highlight: int) -> Figure:
    """Draw a text below the characters to predict, with lines from each prediction to the characters it is based on.

    Args:
        read: The characters that the model reads.
        predicted: The character to predict at each position. It has the same length as `read`.
        highlight: The position, from 0, whose incoming lines are drawn in color.
    """
    figure = new_picture(
        f"{len(read)} characters in a row, and above each one the character that the model has to predict there: the "
        "next one in the text. Lines lead from each character to the predictions at its own position and at all later "
        "positions, but not to any earlier ones.",
        8,
        2.9,
    )
    axes = figure.subplots()
    text = {"ha": "center", "va": "center", "fontsize": 13, "family": "monospace", "color": "black"}
    for position, (below, above) in enumerate(zip(read, predicted, strict=True)):
        for later in range(position, len(read)):
            chosen = later == highlight
            axes.plot([position, later], [0.14, 0.86], color=DARK if chosen else "0.85", zorder=1 + chosen)
        for height, character, fill, edge in ((0, below, "white", "0.5"), (1, above, PALE, DARK)):
            box = {"boxstyle": "round", "facecolor": fill, "edgecolor": edge}
            axes.text(position, height, character.replace(" ", "▁"), bbox=box, **text)
    axes.text(-0.6, 0, "input", ha="right", va="center")
    axes.text(-0.6, 1, "prediction", ha="right", va="center")
    axes.set(xlim=(-2, len(read) - 0.4), ylim=(-0.3, 1.3))
    axes.axis("off")
    return figure
