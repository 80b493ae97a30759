"""Without these tests, the explorer could differ from `apply_bpe`, or a control could have no effect."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest

from transformer_lab.data import apply_bpe, learn_bpe
from transformer_lab.errors import InputError
from transformer_lab.plots.byte_pair_explorer import (
    SHOWN_END,
    cut_into_words,
    draw_byte_pairs,
    explore_byte_pairs,
    stages,
    symbols_per_word,
)

COUNTS = {"German": {"Hund": 6, "rund": 2, "und": 5, "ein": 4}, "English": {"round": 3, "hound": 2, "and": 9}}
MERGES = learn_bpe(COUNTS["German"] | COUNTS["English"], 12)
SENTENCES = {"German": "ein Hund", "English": "round and round"}


def symbols_in(figure) -> list[str]:
    """Return the texts in the boxes, from left to right and from top to bottom."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_family() == ["monospace"]]


def as_shown(words: list[str], n_merges: int) -> list[str]:
    return [s.replace("</w>", SHOWN_END) for word in words for s in apply_bpe(word, MERGES[:n_merges])]


@pytest.mark.parametrize("seed", range(50))
def test_each_stage_equals_apply_bpe_with_as_many_merges(seed):
    """Some merges are in an order that training would not produce, so a pair may appear after its merge was applied."""
    generator = random.Random(seed)
    counts = {"".join(generator.choices("ab", k=generator.randint(1, 6))): 1 for _ in range(6)}
    merges = learn_bpe(counts, 12)
    generator.shuffle(merges)
    word = "".join(generator.choices("ab", k=8))
    found = dict(stages(word, merges))
    for step in range(len(merges) + 1):
        at = max(known for known in found if known <= step)
        assert found[at] == apply_bpe(word, merges[:step])


def test_symbols_per_word_are_weighted_by_how_often_a_word_occurs():
    means = symbols_per_word(COUNTS["English"], MERGES)
    for step in (0, 1, 7, 12):
        sizes = {word: len(apply_bpe(word, MERGES[:step])) for word in COUNTS["English"]}
        assert means[step] == pytest.approx((3 * sizes["round"] + 2 * sizes["hound"] + 9 * sizes["and"]) / 14)


def test_the_picture_shows_the_symbols_of_each_step_and_frames_the_newest(cut_off):
    figure = draw_byte_pairs(MERGES, SENTENCES, COUNTS, [0, 2, len(MERGES)])
    words = ["ein", "Hund", "round", "and", "round"]
    assert symbols_in(figure) == as_shown(words, 0) + as_shown(words, 2) + as_shown(words, len(MERGES))
    framed = [box for box in figure.axes[0].patches if box.get_linewidth() == 2]
    newest = ["".join(MERGES[step - 1]).replace("</w>", SHOWN_END) for step in (2, len(MERGES))]
    assert len(framed) == as_shown(words, 2).count(newest[0]) + as_shown(words, len(MERGES)).count(newest[1]) > 0
    curve = figure.axes[1].lines[0]
    assert list(curve.get_ydata()) == symbols_per_word(COUNTS["German"], MERGES)
    assert cut_off(figure) == []


def test_a_long_text_is_wrapped_and_dollar_signs_are_text(cut_off):
    text = "Donaudampfschifffahrtsgesellschaftskapitänsmützenfabrikbesitzervereinigungsvorstandssitzungen $5 $ 6"
    figure = draw_byte_pairs(MERGES, {"German": f"{text} {text}"}, COUNTS, [0])
    assert "".join(symbols_in(figure)).replace(SHOWN_END, "") == 2 * text.replace(" ", "")
    assert cut_off(figure) == []
    boxes = [(box.get_x(), box.get_x() + box.get_width(), box.get_y()) for box in figure.axes[0].patches]
    assert len({y for *_, y in boxes}) > 2
    for (_, end, y), (start, _, next_y) in pairwise(boxes):
        assert next_y > y or start > end, "two boxes overlap"


def test_punctuation_marks_are_words_of_their_own():
    assert cut_into_words("Ein Hund, 3 Bälle.") == ["Ein", "Hund", ",", "3", "Bälle", "."]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": [13]}, "there is no step 13: give a number from 0 to 12"),
        ({"sentences": {"German": "  "}}, "the German text is blank"),
        ({"sentences": {"German": "a" * 301}}, "has 301 characters: give at most 300"),
        ({"sentences": {"French": "un chien"}}, "word_counts has no French"),
        ({"word_counts": {"German": {}, "English": {"a": 1}}}, "word_counts is empty"),
    ],
)
def test_input_that_cannot_be_drawn_is_refused(change, says):
    given = {"merges": MERGES, "sentences": SENTENCES, "word_counts": COUNTS, "steps": [0]} | change
    with pytest.raises(InputError, match=says):
        draw_byte_pairs(**given)


@pytest.fixture
def explorer():
    german, english, controls, picture = explore_byte_pairs(MERGES, SENTENCES, COUNTS).children
    slider, back, on, to_change = controls.children
    return SimpleNamespace(
        german=german, english=english, slider=slider, back=back, on=on, to_change=to_change, picture=picture
    )


def test_every_control_draws_what_it_says(explorer):
    assert "after 0 merges, the German text has 9 symbols for 2 words" in explorer.picture.value
    explorer.on.click()
    assert explorer.slider.value == 1
    assert "after 1 merge, the" in explorer.picture.value
    explorer.back.click()
    explorer.back.click()
    assert explorer.slider.value == 0
    explorer.slider.value = len(MERGES)
    symbols = len(as_shown(["ein", "Hund"], len(MERGES)))
    assert f"after {len(MERGES)} merges, the German text has {symbols} symbols for 2 words" in explorer.picture.value
    explorer.on.click()
    assert explorer.slider.value == len(MERGES)
    explorer.german.value = "Hund"
    assert "for 1 word;" in explorer.picture.value


def test_next_change_skips_the_merges_that_leave_the_texts_alone(explorer):
    explorer.german.value = explorer.english.value = "ein"
    steps = [step for step, _ in stages("ein", MERGES)[1:]]
    for step in [*steps, len(MERGES)]:
        explorer.to_change.click()
        assert explorer.slider.value == step
