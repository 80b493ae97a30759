"""Attention weights as heat maps. Rows are queries, columns are keys, and each is labeled with its token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import axes_in_inches, new_picture
from transformer_lab.plots.text_shapes import advance, token_fonts

# A single hue from white to dark works in a grayscale printout and for color-blind readers.
COLORS = "Blues"

# Each stack's title, the names of its modules, and which side its queries and keys come from (section 3.2.3).
STACKS = {
    "encoder": ("Encoder self-attention", "encoder.layers.{}.self_attention", "source", "source"),
    "decoder": ("Decoder self-attention", "decoder.layers.{}.self_attention", "target", "target"),
    "cross": ("Cross-attention", "decoder.layers.{}.cross_attention", "target", "source"),
}

LANGUAGES = {"de": "German", "en": "English", "fr": "French", "zh": "Chinese"}

CELL = 0.36  # inches per token; smaller in a long sentence
LONGEST_SIDE = 11.0  # maximum width or height of a map, in inches
MOST_WORDS = 30  # with more words, an explorer would be slow and its figure illegible


def attention_heatmap(
    weights: Any,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str],
    title: str,
    axes: Axes | None = None,
) -> Axes:
    """Draw one head's attention weights on a color scale from 0 to 1.

    Args:
        weights: `(query, key)`, a tensor or an array.
        query_tokens: One token per row, from top to bottom.
        key_tokens: One token per column, from left to right.
        title: The title of the map, such as the stack, layer, and head.
        axes: The axes to draw on. If given, draw no color bar. By default, draw a new figure with a color bar.

    Returns:
        The axes. Their `figure` attribute is the whole figure.

    Raises:
        InputError: The shape of the weights is not `(query tokens, key tokens)`.
    """
    if isinstance(weights, Tensor):
        weights = weights.detach().float().cpu().numpy()
    if weights.shape != (len(query_tokens), len(key_tokens)):
        raise InputError(
            f"weights of shape {tuple(weights.shape)} do not fit {len(query_tokens)} query tokens (rows) "
            f"and {len(key_tokens)} key tokens (columns)"
        )
    cell = _cell_size(len(query_tokens), len(key_tokens))
    alone = axes is None
    if axes is None:
        map_width, labels = cell * len(key_tokens), label_length(query_tokens, cell)
        title_over_left, title_over_right = (0.052 * len(title) - map_width / 2 - side for side in (labels + 0.5, 1.0))
        width = map_width + labels + 1.5 + 2 * max(0.0, title_over_left, title_over_right)
        height = cell * len(query_tokens) + label_length(key_tokens, cell) + 0.8
        text = f"Heat map: {title}. {strongest_links(weights, query_tokens, key_tokens)}"
        axes = new_picture(text, width, height).subplots()
    draw_map(axes, weights, query_tokens, key_tokens, title, cell, "query", "key")
    if alone:
        aspect = max(6.0, 0.8 * cell * len(query_tokens) / 0.2)  # makes the color bar as wide as a cell
        place = {"ax": [axes], "shrink": 0.8, "aspect": aspect, "pad": 0.02, "panchor": "C"}
        _label_color_bar(axes.figure.colorbar(axes.collections[0], **place))
    return axes


def draw_map(
    axes: Axes,
    weights: Any,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str],
    title: str,
    cell: float,
    query: str = "",
    key: str = "",
) -> None:
    """Draw the map that `attention_heatmap` shows, without a color bar. `weights` is an array, `(query, key)`.

    `seaborn.heatmap` would draw the same map, but it renders the whole figure to check whether labels overlap, which
    is too slow for an explorer. The other arguments are those of `label_rows_and_columns`.
    """
    queries, keys = weights.shape
    axes.pcolormesh(weights, vmin=0.0, vmax=1.0, cmap=COLORS, linewidth=0.4, edgecolors="0.88")
    axes.set(xlim=(0, keys), ylim=(queries, 0), aspect="equal")
    axes.spines[:].set_visible(False)
    label_rows_and_columns(axes, query_tokens, key_tokens, cell, query, key)
    axes.set_title(title, fontsize=11, parse_math=False)


def _label_color_bar(bar: Any) -> None:
    bar.set_label("attention weight")
    bar.outline.set_visible(False)


def _cell_size(queries: int, keys: int) -> float:
    """Return the width of a cell, in inches. Cells are smaller for long sentences and larger for one or two tokens."""
    return max(min(CELL, LONGEST_SIDE / max(queries, keys, 1)), 1.2 / max(queries, 1))


def _font_size(cell: float) -> float:
    return min(10.0, max(4.5, 28 * cell))


def label_length(tokens: Sequence[str], cell: float) -> float:
    """Return the length of the longest token's label, in inches. `cell` is the width of a cell, also in inches."""
    return _font_size(cell) / 72 * max((sum(map(advance, token)) for token in tokens), default=0)


def label_with_tokens(axes: Axes, side: str, tokens: Sequence[str], cell: float, **look: Any) -> None:
    """Write a token next to each row or below each column. Dollar signs are treated as plain text, not as formulas.

    The labels are text objects with `side` as their `gid`, because matplotlib's ticks take ten times as long to create.

    Args:
        axes: The axes of the map, with one data unit per token.
        side: "query" (left of the rows), "next" (right of the rows), or "key" (below the columns).
        tokens: The tokens, from top to bottom or from left to right.
        cell: Inches per token.
        look: Properties of the labels, such as `color`.
    """
    rows, columns, gap = axes.get_ylim()[0], axes.get_xlim()[1], 0.05 / cell
    aligned = {
        "query": {"ha": "right", "va": "center"},
        "next": {"ha": "left", "va": "center"},
        "key": {"ha": "center", "va": "top", "rotation": 90},
    }[side]
    look |= {"fontsize": _font_size(cell), "parse_math": False, "family": token_fonts(), "gid": side} | aligned
    for position, token in enumerate(tokens):
        place = {"query": (-gap, position + 0.5), "next": (columns + gap, position + 0.5),
                 "key": (position + 0.5, rows + gap)}[side]  # fmt: skip
        axes.text(*place, token, **look)


def label_rows_and_columns(
    axes: Axes, query_tokens: Sequence[str], key_tokens: Sequence[str], cell: float, query: str, key: str
) -> None:
    """Label each row and column with its token instead of a tick, and the axes with the strings `query` and `key`.

    If a list of tokens is empty, its side has no labels. `cell` is in inches per token.
    """
    axes.set(xticks=[], yticks=[])
    label_with_tokens(axes, "key", key_tokens, cell)
    label_with_tokens(axes, "query", query_tokens, cell)
    axes.set_ylabel(query if query_tokens else "", labelpad=72 * label_length(query_tokens, cell) + 7)
    axes.set_xlabel(key if key_tokens else "", labelpad=72 * label_length(key_tokens, cell) + 7)


def strongest_links(weights: Any, query_tokens: Sequence[str], key_tokens: Sequence[str]) -> str:
    """Describe the three largest weights of an array `(query, key)`, for readers who cannot see the heat map."""
    if not weights.size:
        return "It is empty."
    rows, columns = np.unravel_index(weights.ravel().argsort()[::-1][:3], weights.shape)
    links = zip(rows, columns, strict=True)
    named = [f"{query_tokens[row]} to {key_tokens[column]} ({weights[row, column]:.2f})" for row, column in links]
    return f"The strongest weights go from {', '.join(named)}."


def draw_attention(
    translator: Any, sentence: str, stack: str = "cross", layer: int = -1, head: int | None = None
) -> Figure:
    """Draw the attention weights of a layer as the model translates a sentence.

    Args:
        translator: A `Translator`.
        sentence: A sentence in the source language.
        stack: "encoder" (self-attention), "decoder" (self-attention), or "cross" (from the decoder to the encoder).
        layer: Index of the layer, from 0. Negative indices count from the last layer.
        head: Index of the head, from 0. Negative indices count from the last head. By default, draw all heads side by
            side.

    Raises:
        InputError: The stack, layer, or head does not exist, the sentence cannot be translated, or the model has no
            attention hook.
    """
    check_stack(stack)
    weights, queries, keys, names, title = chosen_weights(attention_of(translator, sentence), stack, layer)
    if head is None:
        return draw_all_heads(weights, queries, keys, names, title)
    head = index_of("head", head, len(weights))
    axes = attention_heatmap(weights[head], queries, keys, f"{title}, head {head}")
    axes.set(xlabel=f"key ({names[1]})", ylabel=f"query ({names[0]})")
    if follows_itself(stack):
        cell = _cell_size(len(queries), len(keys))
        label_with_next_tokens(axes, [*queries, "<eos>"], cell)
        axes.figure.set_figwidth(axes.figure.get_figwidth() + label_length(queries, cell) + 0.25)
    return axes.figure


@dataclass(frozen=True)
class RecordedAttention:
    """The result of `Translator.attention` for one sentence, plus the names of the two languages."""

    weights: Mapping[str, Tensor]  # by module name; each `(1, heads, query, key)`
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]  # the decoder's input, which starts with <bos>
    languages: Mapping[str, str]  # by side, "source" or "target"


def attention_of(translator: Any, sentence: str) -> RecordedAttention:
    """Record all attention weights as the model translates a sentence.

    Raises:
        InputError: The sentence cannot be translated, or the model has no attention hook.
    """
    codes = {"source": translator.tokenizer.source, "target": translator.tokenizer.target}
    languages = {side: LANGUAGES.get(code, code) for side, code in codes.items()}
    try:
        return RecordedAttention(*translator.attention(sentence), languages)
    except ValueError as error:  # raised by `record_attention` if no module has the hook
        raise InputError(str(error)) from error


def first_words(text: str) -> tuple[str, str]:
    """Return the first `MOST_WORDS` words of a text, and a note for the reader.

    If no words were dropped, the note is an empty string.
    """
    words = text.split()
    if len(words) <= MOST_WORDS:
        return text, ""
    return " ".join(words[:MOST_WORDS]), f"Only the first {MOST_WORDS} of {len(words)} words are used."


def check_stack(stack: str) -> None:
    """Raise InputError if `stack` is not one of `STACKS`."""
    if stack not in STACKS:
        raise InputError(f"there is no stack {stack!r}: choose one of {', '.join(STACKS)}")


def chosen_weights(
    recorded: RecordedAttention, stack: str, layer: int
) -> tuple[Tensor, list[str], list[str], list[str], str]:
    """Return the weights of one layer and everything needed to label them.

    Returns:
        `(weights, query_tokens, key_tokens, languages, title)`. The shape of the weights is `(heads, query, key)`. The
        first language belongs to the queries, and the second belongs to the keys. The title names the stack and layer.

    Raises:
        InputError: The stack or layer does not exist.
    """
    check_stack(stack)
    name, module, *sides = STACKS[stack]
    layer = index_of("layer", layer, layers_of(recorded, stack))
    tokens = {"source": recorded.source_tokens, "target": recorded.target_tokens}
    queries, keys = (list(tokens[side]) for side in sides)
    weights = recorded.weights[module.format(layer)][0]
    return weights, queries, keys, [recorded.languages[side] for side in sides], f"{name}, layer {layer}"


def layers_of(recorded: RecordedAttention, stack: str) -> int:
    """Return the number of layers in a stack that have recorded weights."""
    module = STACKS[stack][1]
    return sum(module.format(layer) in recorded.weights for layer in range(len(recorded.weights)))


def follows_itself(stack: str) -> bool:
    """Return whether each row of the stack predicts the next row's token, as in decoder self-attention."""
    return STACKS[stack][2] == "target"


def label_with_next_tokens(axes: Axes, tokens: Sequence[str], cell: float) -> None:
    """Write the token that the decoder predicts to the right of each row, such as `dog` to the right of `A`.

    `tokens` are the tokens of the rows, followed by the token predicted at the last row.
    """
    label_with_tokens(axes, "next", tokens[1:], cell, color="0.4")
    columns, rows = axes.get_xlim()[1], axes.get_ylim()[0]
    beyond = columns + (label_length(tokens[1:], cell) + 0.12) / cell
    axes.text(beyond, rows / 2, "next token", rotation=90, ha="left", va="center", color="0.4")


def index_of(what: str, given: int, count: int) -> int:
    """Convert the index of a "layer" or "head" to one from 0 to `count` - 1. Negative indices count from the last.

    Raises:
        InputError: The index is out of range, or `count` is 0.
    """
    if not count:
        raise InputError(f"this model exposes no {what}s in that stack: build its attention from MultiHeadAttention")
    if not -count <= given < count:
        raise InputError(f"there is no {what} {given}: this model has {what}s 0 to {count - 1} (or -{count} to -1)")
    return given % count


def draw_all_heads(
    weights: Tensor, queries: Sequence[str], keys: Sequence[str], languages: Sequence[str], title: str
) -> Figure:
    """Draw the heat maps of all heads side by side. The arguments are what `chosen_weights` returns."""
    heads = len(weights)
    columns = min(heads, 4 if heads > 6 or len(keys) < 14 else 2)
    rows = -(-heads // columns)
    cell = min(_cell_size(len(queries), len(keys)), 2.6 * LONGEST_SIDE / (columns * len(keys)), 0.3)
    # Place everything in inches.
    map_width, map_height = cell * len(keys), cell * len(queries)
    step_x, step_y = map_width + max(0.15, 0.55 - map_width), map_height + 0.35
    left, below = label_length(queries, cell) + 0.5, label_length(keys, cell) + 0.5
    width, height = left + columns * step_x + 1.0, below + rows * step_y + 0.45
    text = (
        f"Heat maps of {heads} heads side by side: {title}. Rows are {languages[0]} tokens, and columns are "
        f"{languages[1]} tokens."
    )
    figure = new_picture(text, width, height, layout="none")
    for head in range(heads):
        row, column = divmod(head, columns)
        low = below + (rows - 1 - row) * step_y
        axes = axes_in_inches(figure, left + column * step_x, low, map_width, map_height)
        lowest = head + columns >= heads
        tokens = queries if column == 0 else [], keys if lowest else []
        draw_map(axes, weights[head].detach().float().cpu().numpy(), *tokens, f"head {head}", cell)
    figure.suptitle(title, fontsize=12, y=1 - 0.1 / height, va="top")
    middle = left + (columns * step_x) / 2, below + (rows * step_y - 0.35) / 2
    figure.supxlabel(f"key ({languages[1]})", fontsize=10, x=middle[0] / width, y=0.08 / height, va="bottom")
    figure.supylabel(f"query ({languages[0]})", fontsize=10, x=0.08 / width, y=middle[1] / height, ha="left")
    long = min(max(0.8 * (rows * step_y - 0.35), 1.2), height - 0.9)
    place = axes_in_inches(figure, width - 0.9, middle[1] - long / 2, 0.2, long)
    _label_color_bar(figure.colorbar(figure.axes[0].collections[0], cax=place))
    return figure
