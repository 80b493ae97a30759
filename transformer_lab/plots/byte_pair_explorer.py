"""Byte-pair encoding step by step: the symbols of a text after each merge, and the number of symbols per word."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ipywidgets import Button, HBox, IntSlider, Layout, Text
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lab.data.byte_pairs import END_OF_WORD, merge_pair
from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DARK, LIGHT, ORANGE, PALE, axes_in_inches, new_picture, tidy
from transformer_lab.plots.interactive_figure import Explorer
from transformer_lab.plots.shapes import add_cell
from transformer_lab.plural import plural
from transformer_lab.reimplementations import reimplements

Merges = Sequence[tuple[str, str]]

SHADES = (PALE, LIGHT)  # fill colors that alternate from word to word
SHOWN_END = "·"  # shown in place of `</w>`, which is wider than most symbols

COLUMNS = 96  # characters per row, not counting the label
LABEL_COLUMNS = 13
INCHES_A_COLUMN = 0.088  # width of a character
ROW = 0.3  # row height in inches
MOST_CHARACTERS = 300


def cut_into_words(text: str) -> list[str]:
    """Split a string into words. Any character that is neither part of a word nor whitespace is a separate token."""
    return re.findall(r"\w+|[^\w\s]", text)


def stages(word: str, merges: Merges) -> list[tuple[int, list[str]]]:
    """Return a word's symbols before the first merge and after each merge that changes them (Sennrich et al. 2016).

    Args:
        word: The word, without an end-of-word symbol.
        merges: The merges, in the order they were learned.

    Returns:
        Pairs `(n, symbols)`: the symbols after the first `n` merges, starting with `n` = 0. The symbols in the last
        pair are the result of `apply_bpe`.
    """
    return _stages(word, merges, {pair: step for step, pair in enumerate(merges, start=1)})


@reimplements("apply_bpe")
def _stages(word: str, merges: Merges, steps: Mapping[tuple[str, str], int]) -> list[tuple[int, list[str]]]:
    symbols = [*word, END_OF_WORD]
    stages_so_far = [(0, symbols)]
    while True:
        # Apply each merge only once, even if a later merge creates the same pair again.
        to_come = [step for pair in pairwise(symbols) if (step := steps.get(pair, 0)) > stages_so_far[-1][0]]
        if not to_come:
            return stages_so_far
        step = min(to_come)
        symbols = merge_pair(symbols, tuple(merges[step - 1]))
        stages_so_far.append((step, symbols))


def symbols_per_word(word_counts: Mapping[str, int], merges: Merges) -> list[float]:
    """Return the mean number of symbols per word after 0, 1, 2, … merges.

    Args:
        word_counts: How often each word occurs. The mean is over all occurrences.
        merges: The merges, in the order they were learned.

    Raises:
        InputError: There are no words.
    """
    occurrences = sum(word_counts.values())
    if not occurrences:
        raise InputError("word_counts is empty: count the words of some sentences")
    steps = {pair: step for step, pair in enumerate(merges, start=1)}
    changes = [0] * (len(merges) + 1)
    for word, count in word_counts.items():
        cuts = _stages(word, merges, steps)
        changes[0] += count * len(cuts[0][1])
        for (_, before), (step, after) in pairwise(cuts):
            changes[step] += count * (len(after) - len(before))
    return [total / occurrences for total in accumulate(changes)]


def draw_byte_pairs(
    merges: Merges,
    sentences: Mapping[str, str],
    word_counts: Mapping[str, Mapping[str, int]],
    steps: Sequence[int],
) -> Figure:
    """Draw sentences as symbols after some of the merges, and plot symbols per word against the number of merges.

    Args:
        merges: The merges, in the order they were learned.
        sentences: Maps the name of each language to a sentence of at most 300 characters.
        word_counts: Maps the name of each language to its words and their counts.
        steps: The numbers of merges after which to draw the sentences, each from 0 to `len(merges)`. Symbols created by
            the last of these merges are outlined.

    Raises:
        InputError: A step is out of range, a sentence is empty or too long, or a language has no words.
    """
    return _draw(merges, sentences, _curves(merges, sentences, word_counts), steps)


def _curves(
    merges: Merges, sentences: Mapping[str, str], word_counts: Mapping[str, Mapping[str, int]]
) -> dict[str, list[float]]:
    missing = [language for language in sentences if language not in word_counts]
    if missing or not sentences:
        raise InputError(f"word_counts has no {missing[0] if missing else 'language'}: count words for each sentence")
    return {language: symbols_per_word(word_counts[language], merges) for language in sentences}


def _draw(
    merges: Merges, sentences: Mapping[str, str], curves: Mapping[str, Sequence[float]], steps: Sequence[int]
) -> Figure:
    for step in steps:
        if not 0 <= step <= len(merges):
            raise InputError(f"there is no step {step}: give a number from 0 to {len(merges)}, the number of merges")
    blocks = []
    spoken = []
    for step in steps:
        rows = {}
        for language, text in sentences.items():
            words = [stages(word, merges[:step])[-1][1] for word in _words(language, text)]
            rows[language] = _wrapped(words)
            symbols, cut = plural(sum(map(len, words)), "symbol"), plural(len(words), "word")
            spoken.append(f"after {plural(step, 'merge')}, the {language} text has {symbols} for {cut}")
        blocks.append((step, rows))

    lines = sum(1 + sum(map(len, rows.values())) for _, rows in blocks)
    ends = ", ".join(f"{language} from {curve[0]:.1f} to {curve[-1]:.1f}" for language, curve in curves.items())
    height = ROW * (lines + 0.5)
    figure = new_picture(
        f"Text split into symbols: {'; '.join(spoken)}. Below, symbols per word against the number of merges: {ends}.",
        (LABEL_COLUMNS + COLUMNS) * INCHES_A_COLUMN,
        height + 2.75,
        layout="none",
    )
    width, whole = figure.get_size_inches()
    _draw_text(axes_in_inches(figure, 0.12, whole - height - 0.1, width - 0.24, height), blocks, merges, lines)
    _draw_curves(axes_in_inches(figure, 0.65, 0.5, width - 0.8, 2.0), curves, steps)
    return figure


def _words(language: str, text: str) -> list[str]:
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"the {language} text has {len(text)} characters: give at most {MOST_CHARACTERS}")
    words = cut_into_words(text)
    if not words:
        raise InputError(f"the {language} text is blank: type a word or two")
    return words


def _shown(symbol: str) -> str:
    return symbol.removesuffix(END_OF_WORD) + SHOWN_END if symbol.endswith(END_OF_WORD) else symbol


def _width(symbol: str) -> float:
    return len(_shown(symbol)) + 0.7


def _wrapped(words: Sequence[Sequence[str]]) -> list[list[tuple[float, int, str]]]:
    """Lay out symbols in rows of `(column, word index, symbol)`. If a word or symbol does not fit, start a new row."""
    rows: list[list[tuple[float, int, str]]] = [[]]
    column = 0.0
    for index, symbols in enumerate(words):
        whole = sum(map(_width, symbols))
        if column and column + min(whole, COLUMNS) > COLUMNS:  # keep each word on one row if possible
            rows.append([])
            column = 0.0
        for symbol in symbols:
            if column and column + _width(symbol) > COLUMNS:
                rows.append([])
                column = 0.0
            rows[-1].append((column, index, symbol))
            column += _width(symbol)
        column += 0.8
    return rows


def _draw_text(axes: Axes, blocks: Sequence[tuple[int, Mapping]], merges: Merges, lines: int) -> None:
    axes.set(xlim=(-LABEL_COLUMNS, COLUMNS + 0.5), ylim=(lines + 0.2, -0.3))
    axes.axis("off")
    line = 0
    for step, rows in blocks:
        made = "".join(merges[step - 1]) if step else None
        title = f"no merges yet: characters, with {SHOWN_END} at the end of each word"
        if step:
            title = f"{plural(step, 'merge')}, the last one {' + '.join(map(_shown, merges[step - 1]))}"
        axes.text(-LABEL_COLUMNS, line + 0.5, title, va="center", weight="bold", fontsize=10, parse_math=False)
        line += 1
        for language, rows_of_text in rows.items():
            axes.text(-LABEL_COLUMNS, line + 0.5, language, va="center", fontsize=10, parse_math=False)
            for row in rows_of_text:
                for column, word, symbol in row:
                    edge = {"edge": ORANGE, "linewidth": 2} if symbol == made else {"linewidth": 0.5}
                    shape = {"width": _width(symbol) - 0.15, "height": 0.8} | edge
                    look = {"family": "monospace", "fontsize": 9.5, "parse_math": False}
                    add_cell(axes, column, line + 0.1, _shown(symbol), SHADES[word % 2], **shape, **look)
                line += 1


def _draw_curves(axes: Axes, curves: Mapping[str, Sequence[float]], steps: Sequence[int]) -> None:
    for (language, curve), color, style in zip(curves.items(), (DARK, ORANGE, "0.3"), ("-", "--", ":"), strict=False):
        axes.plot(range(len(curve)), curve, style, color=color, linewidth=2, label=language)
        axes.plot(steps, [curve[step] for step in steps], "o", color=color)
    for step in steps:
        axes.axvline(step, color="0.8", linewidth=1, zorder=0)
    length = max(map(len, curves.values())) - 1
    axes.set(xlabel="merges", ylabel="symbols per word", xlim=(-0.01 * length, 1.01 * length or 1))
    axes.set_ylim(0, 1.1 * max(max(curve) for curve in curves.values()))
    axes.locator_params(axis="x", integer=True)
    axes.legend(frameon=False)
    tidy(axes)


def explore_byte_pairs(
    merges: Merges, sentences: Mapping[str, str], word_counts: Mapping[str, Mapping[str, int]]
) -> Any:
    """Return a widget that shows `draw_byte_pairs` for text that you type, merge by merge.

    There is a text field for each language, a slider for the number of merges, and three buttons: back one merge,
    forward one merge, and forward to the next merge that changes the text.

    Args:
        merges: The merges, in the order they were learned.
        sentences: Maps the name of each language to its initial text.
        word_counts: Maps the name of each language to its words and their counts.

    Raises:
        InputError: `draw_byte_pairs` cannot draw the initial text. If it cannot draw a later text, the widget shows the
            error message.
    """
    wide = Layout(width="98%")
    fields = {
        language: Text(text, description=language, continuous_update=False, layout=wide)
        for language, text in sentences.items()
    }
    slider = IntSlider(0, 0, len(merges), description="Merges", tooltip="how many", layout=Layout(width="60%"))
    back, on, to_change = (Button(description=name) for name in ("− 1", "+ 1", "next change"))
    curves = _curves(merges, sentences, word_counts)

    def texts() -> dict[str, str]:
        return {language: field.value for language, field in fields.items()}

    def draw(**_: Any) -> Figure:  # ignores names, because a language may have the same name as a variable
        return _draw(merges, texts(), curves, [slider.value])

    def move(steps: int) -> None:
        slider.value = min(max(slider.value + steps, 0), len(merges))

    def go_to_next_change(_: Any) -> None:
        words = {word for text in texts().values() for word in cut_into_words(text)}
        later = [step for word in words for step, _ in stages(word, merges) if step > slider.value]
        slider.value = min(later, default=len(merges))

    back.on_click(lambda _: move(-1))
    on.on_click(lambda _: move(1))
    to_change.on_click(go_to_next_change)
    controls = {f"text in {language}": field for language, field in fields.items()} | {"merges": slider}
    return Explorer(controls, draw, [*fields.values(), HBox([slider, back, on, to_change])])
