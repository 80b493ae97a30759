"""Padding and causal masks of two sentences, with the words along both axes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from ipywidgets import Checkbox, HBox, Layout, Text
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lab import model
from transformer_lab.errors import InputError
from transformer_lab.plots.figures import axes_in_inches, new_picture
from transformer_lab.plots.heatmaps import label_length, label_rows_and_columns
from transformer_lab.plots.interactive_figure import Explorer

PAD = "<pad>"
MOST_WORDS = 14
SENTENCES = ("the dog sees the cat", "dogs run")


def draw_masks(
    sentences: Sequence[str] = SENTENCES,
    padding: bool = True,
    causal: bool = True,
    padding_mask: Callable = model.padding_mask,
    causal_mask: Callable = model.causal_mask,
) -> Figure:
    """Draw the masks of two sentences in one batch, and show the shapes of the masks that are combined (section 3.2.3).

    Args:
        sentences: Two sentences of at most 14 words each, with spaces between words. The shorter one is padded.
        padding: Whether to hide padding.
        causal: Whether to hide later positions.
        padding_mask: `model.padding_mask` or your own version of it.
        causal_mask: `model.causal_mask` or your own version of it.

    Raises:
        InputError: A sentence is empty or has more than 14 words.
    """
    rows = [sentence.split() for sentence in sentences]
    for number, row in enumerate(rows, 1):
        if not row:
            raise InputError(f"sentence {number} is empty: write a word or more")
        if len(row) > MOST_WORDS:
            raise InputError(f"sentence {number} has {len(row)} words: the picture has room for {MOST_WORDS}")
    length = max(map(len, rows))
    words = [row + [PAD] * (length - len(row)) for row in rows]
    tokens = torch.tensor([[int(word != PAD) for word in row] for row in words])  # only padding matters
    mask, made_of = torch.ones(2, 1, 1, 1, dtype=torch.bool), []
    if padding:
        mask = mask & padding_mask(tokens, 0)
        made_of.append(f"padding {tuple(padding_mask(tokens, 0).shape)}")
    if causal:
        mask = mask & causal_mask(length)
        made_of.append(f"future {tuple(causal_mask(length).shape)}")
    gives = "give" if len(made_of) == 2 else "gives"
    shape = f"{' and '.join(made_of)} {gives} {tuple(mask.shape)}" if made_of else "no mask: every word sees every word"
    hidden = " and ".join(name for name, on in (("padding", padding), ("the future", causal)) if on) or "nothing"
    text = f"Masks of two sentences, with words on both axes. Rows are queries and columns are keys. Hidden: {hidden}."
    return _draw_tables(mask, words, ("first sentence", "second sentence"), shape, text)


def compare_masks(mask: Tensor, sentences: Sequence[Sequence[str]], titles: Sequence[str]) -> Figure:
    """Draw the masks of the sentences in a batch side by side.

    Args:
        mask: Boolean, broadcasts to `(batch, 1, length, length)`; True means "may attend".
        sentences: The words of each sentence, all padded to the same length.
        titles: The title of each sentence's mask.
    """
    text = (
        f"Masks with words on both axes: {', '.join(titles)}. Rows are queries and columns are keys. A dot means True."
    )
    return _draw_tables(mask, sentences, titles, "", text)


def _draw_tables(
    mask: Tensor, words: Sequence[Sequence[str]], titles: Sequence[str], heading: str, text: str
) -> Figure:
    """Draw a mask for each sentence. Positions that may be attended to are dark and have a dot."""
    # Place everything in inches.
    length = len(words[0])
    side = max(2.4, 0.34 * length)
    cell = side / length
    labels = max(label_length(row, cell) for row in words)
    left, width = labels + 0.5, max(len(words) * (side + labels + 0.5) + 0.3, 6.2)
    height = side + labels + (1.2 if heading else 0.85)
    figure = new_picture(text, width, height, layout="none")
    tables = mask.expand(len(words), 1, length, length)[:, 0]
    for column, (table, row, title) in enumerate(zip(tables, words, titles, strict=True)):
        axes = axes_in_inches(figure, left + column * (side + labels + 0.5), labels + 0.5, side, side)
        axes.pcolormesh(table, cmap="Blues", vmin=0, vmax=1.4, edgecolors="0.75", linewidth=0.6)
        axes.set(xlim=(0, length), ylim=(length, 0))
        queries, keys = torch.nonzero(table, as_tuple=True)
        axes.plot(keys + 0.5, queries + 0.5, "o", color="white", markersize=5)
        label_rows_and_columns(axes, row, row, cell, "query", "key")
        axes.set_title(title, fontsize=10, parse_math=False)
    figure.suptitle(heading, fontsize=11, y=1 - 0.1 / height, va="top")
    return figure


def explore_masks(padding_mask: Callable = model.padding_mask, causal_mask: Callable = model.causal_mask) -> Any:
    """Return a widget that shows `draw_masks` with two text fields and a checkbox for each mask.

    Args:
        padding_mask: `model.padding_mask` or your own version of it.
        causal_mask: `model.causal_mask` or your own version of it.
    """
    style = {"description_width": "9em"}
    controls = {
        "first": Text(SENTENCES[0], description="First sentence", style=style, layout=Layout(width="30em")),
        "second": Text(SENTENCES[1], description="Second sentence", style=style, layout=Layout(width="30em")),
        "padding": Checkbox(True, description="hide padding", indent=False),
        "causal": Checkbox(True, description="hide the future", indent=False),
    }

    def draw(first: str, second: str, padding: bool, causal: bool) -> Figure:
        return draw_masks((first, second), padding, causal, padding_mask, causal_mask)

    first, second, *switches = controls.values()
    return Explorer(controls, draw, [first, second, HBox(switches)])
