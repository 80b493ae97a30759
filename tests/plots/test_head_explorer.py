"""Without these tests, a switch could turn off the wrong head, or none at all."""

import pytest

from transformer_lab.decoding import Translator
from transformer_lab.errors import InputError
from transformer_lab.evaluation import score_translations, without_heads
from transformer_lab.plots import draw_without_heads, explore_heads

PAIRS = [("Ein Hund rennt.", "A dog runs."), ("Zwei Frauen sitzen draußen.", "Two women sit outside.")]
SENTENCE = "Zwei Frauen sitzen draußen."
NAMES = {"encoder": "encoder.layers.{}.self_attention", "decoder": "decoder.layers.{}.self_attention"}


@pytest.fixture(scope="module")
def translator(untrained_translator) -> Translator:
    return untrained_translator(d_model=24, n_heads=3, n_layers=2, d_ff=32, max_length=24)


def expected(translator, off):
    """Return the translation and BLEU with some heads removed, computed without the explorer."""
    names = [(NAMES.get(stack, "decoder.layers.{}.cross_attention").format(layer), head) for stack, layer, head in off]
    with without_heads(translator.model, names):
        translations = translator.translate([source for source, _ in PAIRS], beam_size=1)
        (translation,) = translator.translate([SENTENCE], beam_size=1)
    return translation, score_translations(translations, [reference for _, reference in PAIRS]).bleu


def crossed_out(figure):
    """Return the stack, layer (row), and head (column) of each crossed-out cell, based on the positions of texts."""
    (axes,) = figure.axes
    assert axes.yaxis_inverted()
    found, stacks = [], [drawn for drawn in axes.collections if drawn.get_gid()]
    for stack, signs in zip(("encoder", "decoder", "cross"), stacks, strict=True):
        placed = list(zip(signs.get_offsets(), signs.get_gid().split("\n"), strict=True))
        rows = {round(y, 3): layer for layer, y in enumerate(sorted(y for (_, y), sign in placed if "layer" in sign))}
        columns = sorted({round(x, 3) for (x, _), sign in placed if "layer" not in sign})
        for (_, y), sign in placed:
            if "layer" in sign:
                assert sign == f"layer {rows[round(y, 3)]}"
        cells = [
            (rows[round(y, 3)], columns.index(round(x, 3)), sign) for (x, y), sign in placed if "layer" not in sign
        ]
        assert len(cells) == 6
        assert all(sign in ("×", str(head)) for _, head, sign in cells)
        found += [(stack, layer, head) for layer, head, sign in cells if sign == "×"]
    return found


@pytest.mark.parametrize(
    "off",
    [[], [("cross", 1, 2)], [("encoder", 0, 1), ("decoder", 1, 0)], [("cross", 0, h) for h in range(3)]],
    ids=["none", "one", "two stacks", "a layer"],
)
def test_the_picture_shows_what_is_off_and_what_comes_of_it(translator, off):
    figure = draw_without_heads(translator, SENTENCE, PAIRS, off)
    assert crossed_out(figure) == off
    (before, score_before), (after, score_after) = expected(translator, []), expected(translator, off)
    label = figure.get_label()
    assert f"All heads on: {before!r}, BLEU {score_before:.1f}." in label
    assert f"{after!r}, BLEU {score_after:.1f}." in label
    whole, _, *drawn = [bar.get_width() for bar in figure.axes[0].patches]
    assert drawn == pytest.approx([whole * score_before / 100, whole * score_after / 100])
    assert expected(translator, []) == (before, score_before)  # the model is unchanged


def test_no_text_is_cut_off(translator, cut_off):
    long = "Zwei Frauen sitzen draußen. Ein Hund rennt $5 $5."
    assert cut_off(draw_without_heads(translator, long, PAIRS, [("cross", 1, 2)])) == []


def test_each_switch_switches_its_own_head_and_all_come_back_at_once(translator):
    explorer = explore_heads(translator, SENTENCE, PAIRS)
    first = explorer.picture.value
    switches = {switch.tooltip: switch for name, switch in explorer.controls.items() if name != "sentence"}
    assert len(switches) == 3 * 2 * 3
    switches["Encoder self-attention, layer 1, head 0"].value = False
    assert 'alt="Heads that are off: encoder layer 1 head 0. All heads on' in explorer.picture.value
    switches["Cross-attention, layer 0, head 2"].value = False
    assert 'alt="Heads that are off: cross layer 0 head 2, encoder layer 1 head 0. All' in explorer.picture.value
    _, all_on = explorer.children[2].children[-1].children
    all_on.click()
    assert all(switch.value for switch in switches.values())
    assert explorer.picture.value == first


@pytest.mark.parametrize(
    ("off", "says"),
    [
        (("cross", 2, 0), "no layer 2"),
        (("cross", 0, 3), "no head 3"),
        (("cross", 0, -1), "no head"),
        (("x", 0, 0), "x"),
    ],
)
def test_a_head_that_is_not_there_is_named(translator, off, says):
    with pytest.raises(InputError, match=says):
        draw_without_heads(translator, SENTENCE, PAIRS, [off])


def test_an_empty_test_set_is_refused(translator):
    with pytest.raises(InputError, match="empty"):
        explore_heads(translator, SENTENCE, [])
