"""Draw a beam search as a tree: the hypotheses it kept, those it dropped, and the one that greedy decoding chose."""

import functools
import html
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from ipywidgets import HTML, FloatSlider, HBox, IntSlider, Layout, Text
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from transformer_lab.decoding.beam import length_penalty
from transformer_lab.decoding.search_tree import SearchTree, search_tree
from transformer_lab.decoding.translator import DEFAULT_ALPHA
from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DARK, new_picture, page_axes
from transformer_lab.plots.heatmaps import first_words
from transformer_lab.plots.interactive_figure import Explorer
from transformer_lab.plots.text_shapes import has_shape, token_fonts, write_shapes

ANSWER, ALIVE, LEFT_BEHIND, NEVER_KEPT, GREEDY = DARK, "#c6dbef", "0.95", "white", "#fdae6b"
ROW, GAP, LETTER = 0.4, 0.16, 0.079  # inches: row height, space between columns, character width
TOKEN, NUMBER = 9, 7.5  # font sizes of tokens and scores, in points
LONGEST_SEARCH = 60  # maximum number of tokens in a hypothesis
WIDEST = 6  # maximum beam size in the explorer


class _Box(NamedTuple):
    """A node as it is drawn. The y-coordinates are in inches, and `face` is the color of the box."""

    tree: SearchTree
    place: int
    name: str
    y: float
    parent_y: float
    face: str


def draw_beam(translator: Any, sentence: str, beam_size: int = 3, alpha: float = DEFAULT_ALPHA) -> Figure:
    """Draw the beam search for a sentence as a tree, with the result of greedy decoding above it (section 6.1).

    Args:
        translator: A `Translator`.
        sentence: A sentence in the source language.
        beam_size: Number of hypotheses to keep.
        alpha: Exponent of the length penalty (Wu et al. 2016).

    Raises:
        InputError: The sentence cannot be translated, or `beam_size` is below 1.
    """
    tree, greedy = (search(translator, sentence, size) for size in (beam_size, 1))
    return draw_tree(tree, token_names(translator, tree), alpha, greedy=(greedy, token_names(translator, greedy)))


def search(translator: Any, sentence: str, beam_size: int) -> SearchTree:
    """Run a beam search for a sentence and return its tree.

    With a beam size of 1 (greedy decoding), the tree has only one branch.

    Raises:
        InputError: The sentence cannot be translated, or `beam_size` is below 1.
    """
    if beam_size < 1:
        raise InputError(f"beam_size is {beam_size}, but must be at least 1")
    device = next(translator.model.parameters()).device
    source = torch.tensor(translator.encode([sentence]), device=device)  # (1, source)
    limit = min(source.size(1) + 50, translator.model.config.max_length, LONGEST_SEARCH)
    return search_tree(translator.model, source, beam_size, limit)


def token_names(translator: Any, tree: SearchTree) -> list[str]:
    """Return each node's token as a string, in the order of `tree.nodes`."""
    return translator.tokenizer.target_tokens([node.token for node in tree.nodes])


def draw_tree(
    tree: SearchTree,
    names: Sequence[str],
    alpha: float,
    step: int | None = None,
    greedy: tuple[SearchTree, Sequence[str]] | None = None,
) -> Figure:
    """Draw a beam search.

    Each column is a step. Each box shows a token and the log-probability of its hypothesis up to that token.

    Args:
        tree: The search.
        names: The label of each node.
        alpha: Exponent of the length penalty, which decides which hypothesis wins at the end.
        step: Draw the search up to this step, including the candidates that this step dropped. By default, draw the
            whole search, but leave out all candidates that were dropped.
        greedy: A greedy search (beam size 1) to draw above the tree, along with the labels of its nodes.
    """
    last = len(tree.beams) - 1
    at_end = step is None or step >= last
    step = last if at_end else max(0, step)
    faces = _faces(tree, alpha, step, at_end)
    top = 0.55 + (1.5 * ROW if greedy else 0)
    ys = {place: top + ROW * row for place, row in _rows(tree, set(faces)).items()}
    parents = {place: max(0, tree.nodes[place].parent) for place in faces}
    boxes = [_Box(tree, place, names[place], ys[place], ys[parents[place]], faces[place]) for place in sorted(faces)]
    if greedy:
        line, texts = greedy
        path = line.path(line.beams[-1][0])
        shown = path if at_end else path[:step]
        boxes = [_Box(line, place, texts[place], 0.55, 0.55, GREEDY) for place in shown] + boxes
    left, widths = _columns(boxes)
    width = max(left[-1] + widths[-1] + (1.85 if at_end else 0.25), 6.5)
    figure = new_picture(_in_words(tree, names, alpha, step, at_end, greedy), width, max(ys.values()) + 0.35)
    axes = page_axes(figure)
    title = f"beam of {max(map(len, tree.beams))}, alpha {alpha:g}" + ("" if at_end else f", step {step} of {last}")
    axes.text(0.25, 0.2, title, fontsize=10, va="center")
    if greedy:
        axes.text(left[0], 0.55, "greedy", va="center", fontsize=9, color="#a63603")
    _draw_boxes(axes, boxes, left, widths, alpha if at_end else None)
    return figure


def _faces(tree: SearchTree, alpha: float, step: int, at_end: bool) -> dict[int, str]:
    """Return the box color of each node that is drawn after a step."""
    in_beams = {place for beam in tree.beams[: step + 1] for place in beam}
    tried = set() if at_end else {place for place, node in enumerate(tree.nodes) if node.length == step}
    alive = {0, *(place for end in tree.beams[step] for place in tree.path(end))}
    answer = {0, *tree.path(tree.best(alpha))} if at_end else set()
    faces = dict.fromkeys(tried, NEVER_KEPT) | dict.fromkeys(in_beams, LEFT_BEHIND)
    for places, face in ((alive, ALIVE), (answer, ANSWER)):
        faces |= dict.fromkeys(places & faces.keys(), face)
    return faces


def _draw_boxes(
    axes: Axes, boxes: Sequence[_Box], left: Sequence[float], widths: Sequence[float], alpha: float | None
) -> None:
    """Draw the boxes of nodes one by one, and then all text and lines at once.

    If `alpha` is given, also write the normalized scores of the hypotheses of the last step.
    """
    looks = {ANSWER: ("white", ANSWER), ALIVE: ("black", ANSWER), GREEDY: ("black", "#a63603")}
    tokens: list[tuple[float, float, str, str]] = []  # x, y, text, color
    scores: list[tuple[float, float, str, str]] = []
    lines: dict[tuple[str, float], list] = defaultdict(list)  # grouped by color and width
    for tree, place, name, y, parent_y, face in boxes:
        node = tree.nodes[place]
        text_color, line_color = looks.get(face, ("0.35", "0.65"))
        start, end = left[node.length], left[node.length] + widths[node.length]
        border = {"edgecolor": line_color, "linewidth": 2.0 if tree.finished(place) else 0.8}
        look = {"boxstyle": "round,pad=0,rounding_size=0.06", "facecolor": face, "zorder": 3} | border
        # Unlike `add_patch`, this does not recompute the limits of the axes, which are already set.
        axes.add_artist(FancyBboxPatch((start, y - 0.15), end - start, 0.3, **look))
        middle = (start + end) / 2
        tokens.append((middle, y - 0.055 if node.length else y, name, text_color))
        if node.length:
            scores.append((middle, y + 0.09, f"{node.score:.2f}", text_color))
            before, turn = left[node.length - 1] + widths[node.length - 1], start - GAP / 2
            color_and_width = (ANSWER, 2.0) if face == ANSWER else (line_color if face == GREEDY else "0.65", 0.9)
            lines[color_and_width].append([(before, parent_y), (turn, parent_y), (turn, y), (start, y)])
        if alpha is not None and place in tree.beams[-1]:
            penalty, normalized = length_penalty(node.length, alpha), tree.normalized_score(place, alpha)
            divided = f"{node.score:.2f} / {penalty:.2f} = {normalized:.2f}"
            weight = "bold" if face == ANSWER else "normal"
            axes.text(end + 0.08, y, divided, va="center", fontsize=8, weight=weight)
    for (color, width), paths in lines.items():
        drawn = LineCollection(paths, colors=color, linewidths=width, zorder=2 if color == ANSWER else 1)
        axes.add_collection(drawn, autolim=False)
    write_shapes(axes, scores, NUMBER, zorder=4)
    _write_tokens(axes, tokens)


def _write_tokens(axes: Any, tokens: Sequence[tuple[float, float, str, str]]) -> None:
    """Draw tokens as shapes. If the first font lacks a character (such as a Chinese one), draw ordinary text."""
    write_shapes(axes, [token for token in tokens if has_shape(token[2])], TOKEN, zorder=4)
    look = {"ha": "center", "va": "center", "zorder": 4, "parse_math": False, "family": token_fonts()}
    for x, y, token, color in tokens:
        if not has_shape(token):
            axes.text(x, y, token, fontsize=TOKEN, color=color, **look)


def _columns(boxes: Sequence[_Box]) -> tuple[list[float], list[float]]:
    """Return each column's left edge and width, in inches. The longest token in a column determines its width."""
    widths: dict[int, float] = defaultdict(lambda: 0.4)
    for box in boxes:
        length = box.tree.nodes[box.place].length
        widths[length] = max(widths[length], LETTER * len(box.name) + 0.12)
    wide = [widths[column] for column in sorted(widths)]
    return [0.25 + sum(wide[:column]) + GAP * column for column in range(len(wide))], wide


def _rows(tree: SearchTree, shown: set[int]) -> dict[int, int]:
    """Assign rows so that no branches cross.

    Each node is in the same row as its best child. Worse children are in the rows below.
    """
    children: dict[int, list[int]] = {place: [] for place in shown}
    for place in shown - {0}:
        children[tree.nodes[place].parent].append(place)
    rows: dict[int, int] = {}
    free_rows = itertools.count()

    def place_branch(place: int) -> None:
        best_first = sorted(children[place], key=lambda child: tree.nodes[child].score, reverse=True)
        for child in best_first:
            place_branch(child)
        rows[place] = rows[best_first[0]] if best_first else next(free_rows)

    place_branch(0)
    return rows


def _in_words(tree: SearchTree, names: Sequence[str], alpha: float, step: int, at_end: bool, greedy: Any) -> str:
    def written(tree: SearchTree, names: Sequence[str], place: int) -> str:
        return " ".join(names[p] for p in tree.path(place)) or "nothing"

    if not at_end:
        beam = "; ".join(f"{written(tree, names, p)} ({tree.nodes[p].score:.2f})" for p in tree.beams[step])
        return f"Tree of a beam search after step {step}. In the beam, with log-probabilities: {beam}."
    best = tree.best(alpha)
    text = (
        f"Tree of a beam search. The best of {len(tree.beams[-1])} final hypotheses is {written(tree, names, best)} "
        f"with log-probability {tree.nodes[best].score:.2f}."
    )
    if greedy:
        line, texts = greedy
        end = line.beams[-1][0]
        text += f" Greedy decoding gives {written(line, texts, end)} with log-probability {line.nodes[end].score:.2f}."
    return text


def explore_beam(translator: Any, sentence: str) -> Any:
    """Return a widget that shows the tree of a beam search, with sliders for beam size, alpha, and step.

    Args:
        translator: A `Translator`.
        sentence: The initial sentence, in the source language. The widget has a text field for it.

    Raises:
        InputError: The initial sentence cannot be translated. If a later sentence cannot be translated, the widget
            shows the error message.
    """
    same = {"style": {"description_width": "initial"}, "layout": Layout(width="22em")}
    controls = {
        "sentence": Text(sentence, description="Sentence", continuous_update=False, layout=Layout(width="98%")),
        "width": IntSlider(3, 1, WIDEST, description="Width, hypotheses", **same),
        "alpha": FloatSlider(DEFAULT_ALPHA, min=0.0, max=3.0, step=0.1, description="Alpha, exponent", **same),
        "step": IntSlider(1, 0, 1, description="Step, tokens", **same),
    }
    step, translations, shown = controls["step"], HTML(), []

    @functools.lru_cache(maxsize=4)
    def find(sentence: str) -> list[tuple[SearchTree, list[str]]]:
        """Run the search for every beam size, so that the slider can respond immediately."""
        trees = [search(translator, sentence, size) for size in range(1, WIDEST + 1)]
        return [(tree, token_names(translator, tree)) for tree in trees]

    def words(of: SearchTree, place: int) -> str:
        return html.escape(translator.tokenizer.decode([of.nodes[p].token for p in of.path(place)]))

    def draw(sentence: str, width: int, alpha: float, **_: Any) -> Figure:
        translations.value = ""
        readable, remark = first_words(sentence)
        (line, texts), (tree, names) = (find(readable)[size - 1] for size in (1, width))
        if shown != [tree]:  # for a new search, show all steps
            shown[:] = [tree]
            step.max = len(tree.beams) - 1
            step.value = step.max
        best_sentences = words(tree, tree.best(alpha)), words(line, line.beams[-1][0])
        lines = [remark, f"Beam search: {best_sentences[0]}", f"Greedy: {best_sentences[1]}"]
        translations.value = "<br>".join(filter(None, lines))
        return draw_tree(tree, names, alpha, step.value, (line, texts))

    field, *sliders = controls.values()
    return Explorer(controls, draw, [field, HBox(sliders), translations], scrolls=True)
