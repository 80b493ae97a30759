"""Explore how switching off attention heads affects a translation and the BLEU score on a small test set."""

import functools
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from ipywidgets import Button, GridBox, HBox, Label, Layout, Text, ToggleButton, VBox
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from transformer_lab.errors import InputError
from transformer_lab.evaluation import cased_bleu, without_heads
from transformer_lab.plots.figures import DARK, MIDDLE, ORANGE, as_html, new_picture, page_axes
from transformer_lab.plots.heatmaps import STACKS, check_stack, first_words
from transformer_lab.plots.interactive_figure import Explorer
from transformer_lab.plots.text_shapes import token_fonts, write_shapes
from transformer_lab.plural import plural

Head = tuple[str, int, int]  # stack, layer, and head, such as ("cross", 0, 3)
PALE = "#c6dbef"
TOP, ROW, BAR, SIGN = 0.35, 0.27, 2.3, 10  # inches: top margin, row height, bar for BLEU 100; points: font size
LINE = 112  # maximum number of characters in a line


def draw_without_heads(
    translator: Any, sentence: str, pairs: Sequence[tuple[str, str]], off: Collection[Head] = ()
) -> Figure:
    """Show which heads are off and how that changes a sentence's translation and a test set's BLEU score (0 to 100).

    Translations use greedy decoding. A head that is off outputs zeros (Michel et al. 2019).

    Args:
        translator: A `Translator`.
        sentence: A sentence in the source language.
        pairs: The test set: a few dozen sentences, each paired with its reference translation.
        off: The heads to switch off, each as `(stack, layer, head)`, such as `("cross", 0, 3)`. The names of the stacks
            are the same as in `draw_attention`. Layers and heads are counted from 0.

    Raises:
        InputError: A head does not exist, the test set is empty, a sentence cannot be translated, or the model has no
            attention hook.
    """
    measured = _Measured(translator, pairs)
    _check_heads(translator, off)
    measured.score_with_and_without(frozenset(off))
    return _draw(translator, sentence, frozenset(off), measured)


def explore_heads(translator: Any, sentence: str, pairs: Sequence[tuple[str, str]]) -> Explorer:
    """Return a widget that shows `draw_without_heads`, with a text field for the sentence and a switch for each head.

    Args:
        translator: A `Translator`.
        sentence: The initial sentence, in the source language.
        pairs: The test set. Whenever you switch a head on or off, the new translation of the sentence is shown first.
            Then the test set is translated again, which takes less than a second for a few dozen pairs.

    Raises:
        InputError: The test set is empty, a sentence cannot be translated, or the model has no attention hook.
    """
    config = translator.model.config
    measured = _Measured(translator, pairs)
    field = Text(sentence, description="Sentence", continuous_update=False, layout=Layout(width="98%"))
    switches = {
        (stack, layer, head): ToggleButton(
            value=True,
            description=str(head),
            tooltip=f"{STACKS[stack][0]}, layer {layer}, head {head}",
            layout=Layout(width="34px", padding="0"),
        )
        for stack in STACKS
        for layer in range(config.n_layers)
        for head in range(config.n_heads)
    }
    all_on = Button(description="all on", layout=Layout(width="80px"))
    explained = Label("Each row is a layer.", layout=Layout(margin="0 1em 0 0"))

    def switch_all_on(_: Any) -> None:
        for switch in switches.values():
            switch.value = True

    def draw(sentence: str, **_: bool) -> Any:
        off = frozenset(head for head, switch in switches.items() if not switch.value)
        readable, remark.value = first_words(sentence)
        figure = _draw(translator, readable, off, measured, with_switches=False)  # the widget has buttons for them
        return figure if off in measured.scores else (figure, lambda: measured.score_with_and_without(off))

    all_on.on_click(switch_all_on)
    grids = [
        VBox([
            Label(STACKS[stack][0]),
            GridBox(
                [switch for head, switch in switches.items() if head[0] == stack],
                layout=Layout(grid_template_columns=f"repeat({config.n_heads}, 38px)"),
            ),
        ], layout=Layout(margin="0 2em 0 0"))
        for stack in STACKS
    ]  # fmt: skip
    remark = Label()
    controls = {"sentence": field} | {" ".join(map(str, head)): switch for head, switch in switches.items()}
    explorer = Explorer(controls, draw, rows=[field, remark, HBox([*grids, VBox([explained, all_on])])])
    explorer.still = as_html(_draw(translator, first_words(sentence)[0], frozenset(), measured))
    return explorer


class _Measured:
    """Translations and BLEU scores with some heads off, each computed only once."""

    def __init__(self, translator: Any, pairs: Sequence[tuple[str, str]]) -> None:
        if not pairs:
            raise InputError("the test set is empty: give a few dozen pairs of a sentence and its reference")
        self.translator, self.count = translator, len(pairs)
        self.sources, self.references = ([pair[side] for pair in pairs] for side in (0, 1))
        self.scores: dict[frozenset[Head], float] = {}  # BLEU for each set of heads that are off
        self.translation = functools.cache(self._translation)

    def _translation(self, sentence: str, off: frozenset[Head]) -> str:
        return self._translate([sentence], off)[0]

    def score_with_and_without(self, off: frozenset[Head]) -> None:
        """Measure BLEU twice: with all heads on, and with the heads in `off` switched off."""
        for heads in (frozenset(), off):
            if heads not in self.scores:
                translations = self._translate(self.sources, heads)
                language = self.translator.tokenizer.target
                self.scores[heads] = cased_bleu(translations, self.references, language)

    def _translate(self, sentences: list[str], off: frozenset[Head]) -> list[str]:
        heads = [(STACKS[stack][1].format(layer), head) for stack, layer, head in sorted(off)]
        try:
            with without_heads(self.translator.model, heads):
                return self.translator.translate(sentences, beam_size=1)
        except ValueError as error:  # raised by `without_heads` if no module has the hook
            raise InputError(str(error)) from error


def _check_heads(translator: Any, off: Collection[Head]) -> None:
    config = translator.model.config
    for stack, layer, head in off:
        check_stack(stack)
        for what, given, limit in (("layer", layer, config.n_layers), ("head", head, config.n_heads)):
            if not 0 <= given < limit:
                raise InputError(f"there is no {what} {given}: this model has {what}s 0 to {limit - 1}")


def _draw(
    translator: Any, sentence: str, off: frozenset[Head], measured: _Measured, with_switches: bool = True
) -> Figure:
    config = translator.model.config
    every = frozenset()
    before, after = (measured.translation(sentence, heads) for heads in (every, off))
    scores = [measured.scores.get(heads) for heads in (every, off)]
    written = ["not measured yet" if score is None else f"{score:.1f}" for score in scores]

    named = ", ".join(f"{stack} layer {layer} head {head}" for stack, layer, head in sorted(off)) or "none"
    without = f"without {plural(len(off), 'head')}"
    figure = new_picture(
        f"Heads that are off: {named}. All heads on: {before!r}, BLEU {written[0]}. {without.capitalize()}: {after!r}, "
        f"BLEU {written[1]}.",
        max(8.6, 4.0 + 3 * 0.32 * config.n_heads),
        1.4 + ROW * config.n_layers,
    )
    axes, width = page_axes(figure), figure.get_figwidth()
    each = (width - 4.0) / 3 + 0.1  # width of one stack's switches, including the layer names
    for number_of_stack, stack in enumerate(STACKS if with_switches else ()):
        is_on = [
            [(stack, layer, head) not in off for head in range(config.n_heads)] for layer in range(config.n_layers)
        ]
        _draw_switches(axes, STACKS[stack][0], is_on, 0.65 + number_of_stack * (each + 0.35), each - 0.35)
    left, high = width - 2.55 if with_switches else 0.15, ROW * config.n_layers
    sentences = f"BLEU of {plural(measured.count, 'sentence')}"
    axes.text(left + BAR / 2, TOP - 0.1, sentences, fontsize=10, ha="center")
    places = [TOP + high * share for share in (0.27, 0.73)]
    axes.barh(places, BAR, left=left, height=0.3 * high, color="white", edgecolor="0.8")
    lengths = [BAR * (score or 0.0) / 100 for score in scores]
    axes.barh(places, lengths, left=left, height=0.3 * high, color=[PALE, MIDDLE])
    for place, name in zip(places, ("all heads", without), strict=True):
        axes.text(left + 0.06, place, f"{name}: {written[name != 'all heads']}", va="center")
    look = {"va": "top", "fontsize": 10, "parse_math": False, "family": token_fonts()}
    for line, text in enumerate([sentence, f"all heads: {before}", f"{without}: {after}"]):
        y = TOP + high + 0.28 + 0.24 * line
        axes.text(0.15, y, textwrap.shorten(text, LINE, placeholder=" …"), **look)
    return figure


def _draw_switches(axes: Axes, title: str, is_on: Sequence[Sequence[bool]], left: float, wide: float) -> None:
    """Draw one row per layer and one cell per head.

    The cell is dark if the head is on. It is white with a cross if the head is off.
    """
    layers, heads = len(is_on), len(is_on[0])
    columns = [left + wide * head / heads for head in range(heads + 1)]
    rows = [TOP + ROW * layer for layer in range(layers + 1)]
    colors = ListedColormap(["white", DARK])
    axes.pcolormesh(columns, rows, is_on, cmap=colors, vmin=0, vmax=1, edgecolors="0.6", linewidth=1)
    signs = [
        (columns[head] + wide / heads / 2, rows[layer] + ROW / 2, *((str(head), "white") if on else ("×", ORANGE)))
        for layer, row in enumerate(is_on)
        for head, on in enumerate(row)
    ]
    names = [(left - 0.31, rows[layer] + ROW / 2, f"layer {layer}", "black") for layer in range(layers)]
    write_shapes(axes, signs + names, SIGN)
    axes.text(left + wide / 2, TOP - 0.1, title, fontsize=10, ha="center")
