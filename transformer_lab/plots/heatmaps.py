"""Attention weights as heat maps: rows are queries, columns are keys, and every row and column carries its token."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import new_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One hue from white to dark: nothing is lost in grey print, or to a reader who does not see some colours.
COLOURS = "Blues"

# What a stack is called, the name of its module, and whose tokens are its queries and its keys (section 3.2.3).
STACKS = {
    "encoder": ("Encoder self-attention", "encoder.layers.{}.self_attention", "source", "source"),
    "decoder": ("Decoder self-attention", "decoder.layers.{}.self_attention", "target", "target"),
    "cross": ("Cross-attention", "decoder.layers.{}.cross_attention", "target", "source"),
}

LANGUAGES = {"de": "German", "en": "English", "fr": "French", "zh": "Chinese"}

WIDE_FONTS = (
    "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei", "Arial Unicode MS", "Segoe UI Symbol"
)  # fmt: skip

CELL = 0.36  # inches a token, while the sentence is short
LONGEST_SIDE = 11.0  # inches
MOST_WORDS = 30  # that an explorer reads: it answers at once, and its picture can be read


def attention_heatmap(
    weights: Any,
    query_tokens: Sequence[str],
    key_tokens: Sequence[str],
    title: str,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw one head's weights on a scale from 0 to 1.

    Args:
        weights: `(query, key)`, a tensor or an array.
        query_tokens: One for each row, from top to bottom.
        key_tokens: One for each column, from left to right.
        title: Names the stack, the layer and the head.
        axes: Where to draw, without a colour bar; a new figure with one, if it is not given.

    Returns:
        The axes drawn on. The figure is its `figure`.

    Raises:
        InputError: The tokens do not fit the weights.
    """
    import seaborn

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
    seaborn.heatmap(
        weights,
        ax=axes,
        vmin=0.0,
        vmax=1.0,
        cmap=COLOURS,
        square=True,
        linewidths=0.4,
        linecolor="0.88",
        cbar=False,
        xticklabels=False,
        yticklabels=False,
    )
    label_with_tokens(axes.xaxis, key_tokens, cell, rotation=90)
    label_with_tokens(axes.yaxis, query_tokens, cell, rotation=0)
    axes.set(xlabel="key", ylabel="query")
    axes.set_title(title, fontsize=11, parse_math=False)
    if alone:
        _add_colour_bar(axes, [axes], cell * len(query_tokens))
    return axes


def _add_colour_bar(drawn: "Axes", neighbours: Any, height: float) -> None:
    """A bar as wide as a token, beside a map of `height` inches."""
    aspect = max(6.0, 0.8 * height / 0.2)
    bar = drawn.figure.colorbar(drawn.collections[0], ax=neighbours, shrink=0.8, aspect=aspect, pad=0.02, panchor="C")
    bar.set_label("attention weight")
    bar.outline.set_visible(False)


def _cell_size(queries: int, keys: int) -> float:
    """Inches: smaller for a long sentence, larger for one of a word or two."""
    return max(min(CELL, LONGEST_SIDE / max(queries, keys, 1)), 1.2 / max(queries, 1))


@functools.cache
def token_fonts() -> list[str]:
    """matplotlib's own font, then those of this machine that have Chinese characters or signs that it lacks."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in WIDE_FONTS if name in installed)]


def _font_size(cell: float) -> float:
    return min(10.0, max(4.5, 28 * cell))


def label_length(tokens: Sequence[str], cell: float) -> float:
    """About how many inches the longest label takes."""
    return _font_size(cell) / 72 * 0.62 * max((len(token) for token in tokens), default=0)


def label_with_tokens(axis: Any, tokens: Sequence[str], cell: float, rotation: int) -> None:
    """A tick in the middle of every cell. Dollar signs are text here, not formulas."""
    axis.set_ticks([position + 0.5 for position in range(len(tokens))], labels=list(tokens))
    for label in axis.get_ticklabels():
        label.set(rotation=rotation, fontsize=_font_size(cell), parse_math=False, family=token_fonts())
    axis.set_tick_params(length=0)


def strongest_links(weights: Any, query_tokens: Sequence[str], key_tokens: Sequence[str]) -> str:
    """The three strongest links in words: the gist of a heat map for those who do not see it."""
    if not weights.size:
        return "It is empty."
    order = weights.ravel().argsort()[::-1][:3]
    links = [(query_tokens[index // len(key_tokens)], key_tokens[index % len(key_tokens)], index) for index in order]
    named = [f"{query} to {key} ({weights.ravel()[index]:.2f})" for query, key, index in links]
    return f"The strongest weights go from {', '.join(named)}."


def draw_attention(
    translator: Any, sentence: str, stack: str = "cross", layer: int = -1, head: int | None = None
) -> "Figure":
    """Draw what a layer attends to while the model translates a sentence.

    Args:
        translator: A `Translator`.
        sentence: In the source language.
        stack: "encoder", "decoder" (its self-attention) or "cross" (the decoder's attention to the encoder).
        layer: Counted from 0; negative numbers count from the last.
        head: Counted from 0, or from the last if negative; all heads side by side if it is not given.

    Raises:
        InputError: There is no such stack, layer or head, or the sentence cannot be translated.
    """
    check_stack(stack)
    return draw_recorded_attention(*translator.attention(sentence), languages_of(translator), stack, layer, head)


def languages_of(translator: Any) -> dict[str, str]:
    """The names of the two languages, by side."""
    sides = {"source": translator.tokenizer.source, "target": translator.tokenizer.target}
    return {side: LANGUAGES.get(code, code) for side, code in sides.items()}


def first_words(text: str) -> tuple[str, str]:
    """The first `MOST_WORDS` words of a text, and what to say if that is not all of it."""
    words = text.split()
    if len(words) <= MOST_WORDS:
        return text, ""
    return " ".join(words[:MOST_WORDS]), f"Of {len(words)} words the first {MOST_WORDS} are read."


def check_stack(stack: str) -> None:
    """Raises InputError if `stack` is none of `STACKS`."""
    if stack not in STACKS:
        raise InputError(f"there is no stack {stack!r}: choose one of {', '.join(STACKS)}")


def draw_recorded_attention(
    recorded: Mapping[str, Tensor],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    languages: Mapping[str, str],
    stack: str,
    layer: int,
    head: int | None,
) -> "Figure":
    """As `draw_attention`, from what `Translator.attention` has returned: weights and tokens of one sentence."""
    # rows are queries in the language of the query, columns are keys in that of the key
    check_stack(stack)
    name, module, *sides = STACKS[stack]
    layer = _index("layer", layer, sum(module.format(number) in recorded for number in range(len(recorded))))
    weights = recorded[module.format(layer)][0]  # (heads, query, key)
    queries, keys = ({"source": source_tokens, "target": target_tokens}[side] for side in sides)
    if head is None:
        return _draw_all_heads(weights, queries, keys, [languages[side] for side in sides], f"{name}, layer {layer}")
    head = _index("head", head, len(weights))
    axes = attention_heatmap(weights[head], queries, keys, f"{name}, layer {layer}, head {head}")
    axes.set(xlabel=f"key ({languages[sides[1]]})", ylabel=f"query ({languages[sides[0]]})")
    if sides[0] == "target":
        cell = _cell_size(len(queries), len(keys))
        label_with_next_tokens(axes, [*queries, "<eos>"], cell)
        axes.figure.set_figwidth(axes.figure.get_figwidth() + label_length(queries, cell) + 0.25)
    return axes.figure


def label_with_next_tokens(axes: "Axes", tokens: Sequence[str], cell: float) -> None:
    """On the right of each row, the token that the decoder predicts there: it reads `A` and writes `dog`.

    Args:
        axes: A heat map whose queries are all of `tokens` but the last one.
        tokens: One more than there are rows.
        cell: Inches a token.
    """
    following = axes.secondary_yaxis("right")
    label_with_tokens(following.yaxis, tokens[1:], cell, rotation=0)
    following.set_ylabel("next token", color="0.4")
    following.tick_params(labelcolor="0.4")
    following.spines["right"].set_visible(False)


def _index(what: str, given: int, count: int) -> int:
    if not -count <= given < count:
        raise InputError(f"there is no {what} {given}: this model has {what}s 0 to {count - 1} (or -{count} to -1)")
    return given % count


def _draw_all_heads(
    weights: Tensor, queries: Sequence[str], keys: Sequence[str], languages: Sequence[str], title: str
) -> "Figure":
    heads = len(weights)
    columns = min(heads, 4 if heads > 6 or len(keys) < 14 else 2)
    rows = -(-heads // columns)
    cell = min(_cell_size(len(queries), len(keys)), 2.6 * LONGEST_SIDE / (columns * len(keys)), 0.3)
    width = columns * (cell * len(keys) + 0.15) + label_length(queries, cell) + 1.6
    height = rows * (cell * len(queries) + 0.35) + label_length(keys, cell) + 0.9
    axes_in_words = f"Rows are {languages[0]} tokens, columns {languages[1]} tokens."
    text = f"Heat maps of {heads} heads side by side: {title}. {axes_in_words}"
    figure = new_picture(text, width, height)
    grid = figure.subplots(rows, columns, squeeze=False)
    for head, axes in enumerate(grid.flat):
        if head >= heads:
            axes.set_axis_off()
            continue
        attention_heatmap(weights[head], queries, keys, f"head {head}", axes)
        label_with_tokens(axes.xaxis, keys, cell, rotation=90)
        label_with_tokens(axes.yaxis, queries, cell, rotation=0)
        axes.set(xlabel="", ylabel="")
        axes.tick_params(labelleft=head % columns == 0, labelbottom=head + columns >= heads)  # the outer ones
    figure.suptitle(title, fontsize=12)
    figure.supxlabel(f"key ({languages[1]})", fontsize=10)
    figure.supylabel(f"query ({languages[0]})", fontsize=10)
    _add_colour_bar(grid[0, 0], grid, rows * cell * len(queries))
    return figure
