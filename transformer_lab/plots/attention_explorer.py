"""Explorers for any function that draws a figure, and for a model's attention as it translates."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ipywidgets import Dropdown, HBox, IntSlider, Label, Layout, Text, ToggleButtons, interactive
from matplotlib.figure import Figure

from transformer_lab.plots.figures import DARK, ORANGE, axes_in_inches, new_picture, tidy
from transformer_lab.plots.heatmaps import (
    STACKS,
    RecordedAttention,
    attention_of,
    chosen_weights,
    draw_all_heads,
    draw_map,
    first_words,
    follows_itself,
    index_of,
    label_length,
    label_with_next_tokens,
)
from transformer_lab.plots.interactive_figure import Explorer

ALL, MEAN = "all", "mean"
NOTHING = -1  # not None, because a control whose value is None looks empty
CELL = 0.34  # inches per token; smaller in a long sentence


def explore(draw: Callable[..., Figure], **choices: Any) -> Any:
    """Return a widget with a figure and a control for each argument in `choices`, similar to `ipywidgets.interact`.

    Args:
        draw: A function that returns a figure. The default values of its parameters are the initial values of the
            controls.
        choices: The choices for each argument, as in `interact`. `(0, 10)` creates a slider, a list creates a menu, and
            a boolean creates a checkbox.
    """
    defaults = inspect.signature(draw).parameters
    controls = {
        name: interactive.widget_from_abbrev(choice, defaults[name].default) for name, choice in choices.items()
    }
    for name, control in controls.items():
        control.description = name
    return Explorer(controls, draw)


def draw_heads(
    recorded: RecordedAttention,
    stack: str,
    layer: int,
    heads: Sequence[int | str],
    word: int | None = None,
    written: int | None = None,
) -> Figure:
    """Draw the heat maps of one or more heads side by side. The other arguments are those of `draw_attention`.

    Args:
        heads: Indices of heads, or "mean" for the mean of all heads. Negative indices count from the last head.
        word: Index of a query, from 0. Its weights are also drawn as bars. By default, no bars are drawn.
        written: Number of decoder tokens to draw. By default, draw all of them.

    Raises:
        InputError: The stack, layer, or head does not exist.
    """
    following = [*recorded.target_tokens, "<eos>"]
    recorded = replace(recorded, target_tokens=recorded.target_tokens[:written])
    weights, queries, keys, names, title = chosen_weights(recorded, stack, layer)
    weights = weights[:, : len(queries), : len(keys)]
    heads = [head if head == MEAN else index_of("head", head, len(weights)) for head in heads]
    word = None if word is None or word >= len(queries) else word
    titles = ["the mean of all heads" if head == MEAN else f"head {head}" for head in heads]
    text = f"Heat map: {title}, {' next to '.join(titles)}. Rows are {names[0]} tokens."
    if word is not None:
        text += f" Below, the weights of {queries[word]}."

    # Place everything in inches.
    cell = min(CELL, 11.5 / (len(heads) * max(len(keys), 1)), 9.0 / max(len(queries), 1))
    left, gap, right = label_length(queries, cell) + 0.5, 0.4, 0.2
    follows = follows_itself(stack) and len(heads) == 1
    if follows:
        right += label_length(following, cell) + 0.35
    map_width, map_height = cell * len(keys), cell * len(queries)
    below = label_length(keys, cell) + 0.45
    bars = 1.25 if word is not None else 0.0
    width = max(left + len(heads) * (map_width + gap) - gap + right, 4.2)
    height = 0.62 + map_height + below + bars
    figure = new_picture(text, width, height, layout="none")
    figure.suptitle(title, fontsize=11, y=1 - 0.1 / height, va="top")
    for column, (head, head_title) in enumerate(zip(heads, titles, strict=True)):
        table = weights.mean(dim=0) if head == MEAN else weights[head]
        start = left + column * (map_width + gap)
        axes = axes_in_inches(figure, start, below + bars, map_width, map_height)
        values, labels = table.detach().float().cpu().numpy(), (f"query ({names[0]})", f"key ({names[1]})")
        draw_map(axes, values, [] if column else queries, keys, head_title, cell, *labels)
        if follows:
            label_with_next_tokens(axes, following[: len(queries) + 1], cell)
        if word is None:
            continue
        axes.axhspan(word, word + 1, fill=False, edgecolor=ORANGE, linewidth=2)
        chart = axes_in_inches(figure, start, 0.15, map_width, bars - 0.45)
        chart.bar([position + 0.5 for position in range(len(keys))], table[word].tolist(), color=DARK)
        chart.set(xlim=(0, len(keys)), ylim=(0, 1), xticks=[], yticks=[0, 1], ylabel="" if column else "weight")
        chart.set_title(f"what {queries[word]} looks at", fontsize=9, parse_math=False)
        tidy(chart)
    return figure


def explore_attention(translator: Any, sentence: str) -> Any:
    """Return a widget that shows attention heat maps.

    It has controls for the sentence, stack, layer, and head, and a button for each query. A second head can be shown
    next to the first, and a slider sets how many tokens of the translation are shown.

    Args:
        translator: A `Translator`.
        sentence: The initial sentence, in the source language.

    Raises:
        InputError: The initial sentence cannot be translated, or the model has no attention hook. If a later sentence
            cannot be translated, the widget shows the error message.
    """

    @functools.lru_cache(maxsize=8)  # so that moving a slider does not repeat the translation
    def translate(text: str) -> tuple[RecordedAttention, str]:
        readable, remark = first_words(text)
        recorded = attention_of(translator, readable)
        return recorded, f"{remark} Translation: {translator.translate([readable])[0]}".strip()

    config = translator.model.config
    numbers = [(str(head), head) for head in range(config.n_heads)]
    narrow = {"style": {"description_width": "6em"}, "layout": Layout(width="16em")}
    controls = {
        "sentence": Text(sentence, description="Sentence", continuous_update=False, layout=Layout(width="98%")),
        "stack": Dropdown(
            options=[(name, key) for key, (name, *_) in STACKS.items()], value="cross", description="Stack"
        ),
        "layer": IntSlider(config.n_layers - 1, 0, config.n_layers - 1, description="Layer", tooltip="counted from 0"),
        "head": Dropdown(options=[("all", ALL), ("mean", MEAN), *numbers], value=0, description="Head", **narrow),
        "beside": Dropdown(options=[("none", NOTHING), ("mean", MEAN), *numbers], description="Beside it", **narrow),
        "written": IntSlider(1, 1, 1, description="Words written", style={"description_width": "7em"}),
        "word": ToggleButtons(options=[("no word", NOTHING)], description="Look at", style={"button_width": "auto"}),
    }
    translation = Label()

    def offer_words(recorded: RecordedAttention) -> None:
        """Update the buttons and the range of the slider for this sentence."""
        target_tokens = recorded.target_tokens
        queries = target_tokens if follows_itself(controls["stack"].value) else recorded.source_tokens
        if [name for name, _ in controls["word"].options][1:] != list(queries):
            controls["word"].options = [("no word", NOTHING), *((token, index) for index, token in enumerate(queries))]
        if controls["written"].max != len(target_tokens):
            controls["written"].max = len(target_tokens)
            controls["written"].value = len(target_tokens)

    def draw(sentence: str, stack: str, layer: int, head: int | str, beside: int | str, **_: Any) -> Figure:
        recorded, translation.value = translate(sentence)
        offer_words(recorded)
        if head == ALL:
            return draw_all_heads(*chosen_weights(recorded, stack, layer))
        heads = [head] if beside == NOTHING else [head, beside]
        word, written = controls["word"].value, controls["written"].value
        return draw_heads(recorded, stack, layer, heads, None if word == NOTHING else word, written)

    rows = [
        controls["sentence"],
        HBox([controls["stack"], controls["layer"]]),
        HBox([controls["head"], controls["beside"], controls["written"]]),
        controls["word"],
        translation,
    ]
    return Explorer(controls, draw, rows)
