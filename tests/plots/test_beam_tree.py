"""Without these tests, the tree could differ from the actual beam search, or a slider could have no effect."""

from types import SimpleNamespace

import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex as color
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from transformer_lab.decoding import DEFAULT_ALPHA, load_pretrained
from transformer_lab.decoding.search_tree import search_tree
from transformer_lab.decoding.table_model import TableModel
from transformer_lab.errors import InputError
from transformer_lab.plots import draw_beam, draw_tree, explore_beam
from transformer_lab.plots.beam_tree import ALIVE, ANSWER, GREEDY, LEFT_BEHIND, NEVER_KEPT

NAMES = ["<pad>", "<bos>", "<eos>", "a", "two", "dog", "men", "sleeps"]
ROWS = {
    "": {3: 0.6, 4: 0.4},
    "3": {5: 0.4, 6: 0.35, 7: 0.25},
    "4": {6: 0.9, 5: 0.1},
    "4 6": {7: 0.6, 2: 0.4},
    "3 5": {7: 0.6, 2: 0.4},
}  # two men sleeps end: .216; two men end: .144


class Speaker:
    """A fake translator whose model looks up the next token in a table."""

    def __init__(self):
        self.model = TableModel({9: ROWS})
        self.model.parameters = lambda: iter([torch.zeros(1)])
        self.tokenizer = SimpleNamespace(
            target_tokens=lambda ids: [NAMES[token] for token in ids],
            decode=lambda ids: " ".join(NAMES[token] for token in ids if token > 2),
        )

    def encode(self, sentences):
        return [[9, 2]]


@pytest.fixture
def speaker():
    return Speaker()


def boxes(figure) -> dict[str, list]:
    """Return the boxes by color."""
    found: dict[str, list] = {}
    for patch in figure.findobj(FancyBboxPatch):
        found.setdefault(color(patch.get_facecolor()), []).append(patch)
    return found


def shapes(figure) -> list[list[str]]:
    """Return the scores and the tokens (both are drawn as shapes), ordered by row and then from left to right."""
    found = []
    for drawn in figure.findobj(PathCollection):
        if drawn.get_gid():
            placed = zip(drawn.get_offsets(), drawn.get_gid().split("\n"), strict=True)
            found.append([text for _, _, text in sorted((round(y, 3), x, text) for (x, y), text in placed)])
    return found


def texts(figure) -> list[str]:
    written = [text.get_text() for text in figure.findobj(Text) if text.get_text()]
    return written + [text for some in shapes(figure) for text in some]


def scores(figure) -> list[str]:
    """Return the numbers in the boxes."""
    return shapes(figure)[0]


def test_the_tree_shows_what_was_kept_and_marks_the_answer(speaker, cut_off):
    figure = draw_beam(speaker, "Zwei Männer schlafen.", beam_size=2, alpha=0.0)
    found = boxes(figure)
    assert len(found[color(ANSWER)]) == 5  # bos, two, men, sleeps, eos
    assert color(NEVER_KEPT) not in found
    assert len(found[color(GREEDY)]) == 4  # a, dog, sleeps, eos
    assert cut_off(figure) == []
    assert "-1.53 / 1.00 = -1.53" in texts(figure)  # ln .216
    assert scores(figure)[:4] == ["-0.51", "-1.43", "-1.94", "-1.94"]  # greedy: ln .6, .6 * .4, .6 * .4 * .6; then eos
    assert len(scores(figure)) == 4 + sum(len(some) for face, some in found.items() if face != color(GREEDY)) - 1
    assert "final hypotheses is two men sleeps <eos> with log-probability -1.53" in figure.get_label()
    assert "Greedy decoding gives a dog" in figure.get_label()


def test_boxes_do_not_overlap(speaker):
    figure = draw_beam(speaker, "Zwei Männer schlafen.", beam_size=4)
    figure.draw_without_rendering()
    frames = [patch.get_window_extent() for some in boxes(figure).values() for patch in some]
    for index, one in enumerate(frames):
        for other in frames[index + 1 :]:
            assert one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 or other.y1 <= one.y0


def test_texts_fit_into_their_boxes(speaker):
    figure = draw_beam(speaker, "Zwei Männer schlafen.", beam_size=3)
    edges = [box.get_bbox().extents for some in boxes(figure).values() for box in some]
    for drawn in figure.findobj(PathCollection):
        for outline, (x, y) in zip(drawn.get_paths(), drawn.get_offsets(), strict=True):
            ((left, _, right, _),) = [edge for edge in edges if edge[0] < x < edge[2] and edge[1] < y < edge[3]]
            half = outline.get_extents().width / 72 / 2  # inches, like the axes
            assert left <= x - half
            assert x + half <= right


def test_a_step_shows_what_was_tried_and_not_kept(speaker, cut_off):
    tree = search_tree(speaker.model, torch.tensor([[9, 2]]), 2, 6)
    names = [NAMES[node.token] for node in tree.nodes]
    figure = draw_tree(tree, names, 0.0, step=2)
    found = boxes(figure)
    assert len(found[color(NEVER_KEPT)]) == 2  # two of the four candidates are in the beam
    assert color(ANSWER) not in found
    assert len(found[color(ALIVE)]) == 5
    assert "beam of 2, alpha 0, step 2 of 4" in texts(figure)
    assert "two men (-1.02); a dog (-1.43)" in figure.get_label()
    assert cut_off(figure) == []
    assert "sleeps" not in texts(figure)


def test_alpha_decides_only_at_the_end(speaker):
    """The length penalty only chooses from the last beam. It changes neither the boxes nor the scores."""
    one, other = (draw_beam(speaker, "x", beam_size=3, alpha=alpha) for alpha in (0.0, 2.0))
    assert scores(one) == scores(other) != []
    assert texts(one) != texts(other)


def test_dropped_hypotheses_are_paler(speaker):
    assert color(LEFT_BEHIND) in boxes(draw_beam(speaker, "x", beam_size=3, alpha=0.0))


def test_an_empty_beam_is_refused(speaker):
    with pytest.raises(InputError, match="beam_size is 0"):
        draw_beam(speaker, "x", beam_size=0)


@pytest.fixture
def explorer(speaker):
    sentence, controls, translations, picture = explore_beam(speaker, "Zwei Männer schlafen.").children
    width, alpha, step = controls.children
    return SimpleNamespace(
        sentence=sentence, width=width, alpha=alpha, step=step, translations=translations, picture=picture
    )


def test_every_control_draws_what_it_says(explorer):
    assert explorer.step.value == explorer.step.max == 4
    assert "Beam search: two men sleeps<br>Greedy: a dog sleeps" in explorer.translations.value
    whole = explorer.picture.value
    explorer.step.value = 1
    assert "after step 1. In the beam, with log-probabilities: a (-0.51); two (-0.92)" in explorer.picture.value
    explorer.alpha.value = 3.0
    explorer.step.value = 4
    assert explorer.picture.value != whole
    explorer.width.value = 1
    assert "Beam search: a dog" in explorer.translations.value
    assert "The best of 1 final hypotheses" in explorer.picture.value


def test_the_example_sentence_of_notebook_11_is_still_right():
    """Notebook 11 says that beam search finds a better translation of its example than greedy decoding finds."""
    from transformer_lab.plots.beam_tree import search

    translator, sentence = load_pretrained(), "Eine Frau sieht einem Boot auf dem See zu."
    tree, line = (search(translator, sentence, beam_size) for beam_size in (3, 1))
    best, greedy = tree.nodes[tree.best(DEFAULT_ALPHA)], line.nodes[line.beams[-1][0]]
    assert best.score > greedy.score + 1
    assert ["watching" in translator.translate([sentence], beam_size)[0] for beam_size in (3, 1)] == [True, False]
    assert tree.best(0.0) != tree.best(DEFAULT_ALPHA)  # the length penalty makes a difference, too
