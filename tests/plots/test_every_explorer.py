"""Requirements for every explorer, such as keeping up with a slider and handling any input."""

import asyncio
import gc
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from transformer_lab import plots
from transformer_lab.data import learn_bpe
from transformer_lab.decoding import Translator
from transformer_lab.electives.language_model import LanguageModel
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.errors import InputError
from transformer_lab.model import fused_attention, set_attention
from transformer_lab.plots import (
    draw_attention,
    explore,
    explore_attention,
    explore_beam,
    explore_byte_pairs,
    explore_heads,
    explore_label_smoothing,
    explore_masks,
    explore_next_token,
    explore_positions,
    explore_scores,
    explore_warmup,
    new_picture,
)
from transformer_lab.plots.attention_explorer import draw_heads
from transformer_lab.plots.heatmaps import attention_of

PAIRS = [("Ein Hund rennt.", "A dog runs."), ("Zwei Frauen sitzen draußen.", "Two women sit outside.")]
COUNTS = {"German": {"Hund": 6, "und": 5}, "English": {"hound": 2, "and": 9}}
MERGES = learn_bpe(COUNTS["German"] | COUNTS["English"], 8)
LETTERS = TextTokenizer.train("und Hund\n" * 10)


@pytest.fixture(scope="module")
def translator(untrained_translator) -> Translator:
    translator = untrained_translator(d_model=16, n_heads=2, n_layers=1, d_ff=16, max_length=200)
    with torch.no_grad():
        translator.model.output.bias[translator.model.config.eos_id] += 1.0  # so that translations end before the limit
    return translator


READ_SENTENCES = {  # explorers with a text field, and the name of its control
    "explore_attention": (lambda translator: explore_attention(translator, PAIRS[0][0]), "sentence"),
    "explore_beam": (lambda translator: explore_beam(translator, PAIRS[0][0]), "sentence"),
    "explore_byte_pairs": (
        lambda _: explore_byte_pairs(MERGES, {"German": "ein Hund", "English": "and"}, COUNTS),
        "text in German",
    ),
    "explore_heads": (lambda translator: explore_heads(translator, PAIRS[0][0], PAIRS[:1]), "sentence"),
    "explore_masks": (lambda _: explore_masks(), "first"),
}
MAKE = {name: make for name, (make, _) in READ_SENTENCES.items()} | {
    "explore_label_smoothing": lambda _: explore_label_smoothing(),
    "explore_next_token": lambda _: explore_next_token(
        LanguageModel(len(LETTERS), d_model=8, n_heads=2, n_layers=1, d_ff=8), LETTERS, "Hu"
    ),
    "explore_positions": lambda _: explore_positions(),
    "explore_scores": lambda _: explore_scores(),
    "explore_warmup": lambda _: explore_warmup(),
}


def test_no_explorer_is_left_out():
    """`explore_training` has no control that redraws a figure, so its tests are elsewhere."""
    assert set(MAKE) | {"explore_training"} == {name for name in plots.__all__ if name.startswith("explore_")}


def other_values(control) -> list:
    """Return values other than the current one. The last value differs from the first."""
    if isinstance(control.value, bool):
        return [not control.value, control.value, not control.value]
    if hasattr(control, "options"):
        return [value for value in control._options_values if value != control.value] * 2
    if isinstance(control.value, str):
        return ["und", "Hund und", "und und"]
    step = control.step if control.value + 3 * control.step <= control.max else -control.step
    return [control.value + number * step for number in (1, 2, 3)]


@pytest.fixture(params=MAKE)
def explorer(request, translator):
    return MAKE[request.param](translator)


def test_every_control_changes_the_picture_and_only_its_last_position_is_drawn(explorer):
    drawn = []

    async def drag():
        for key, control in list(explorer.controls.items())[:9]:
            if getattr(control, "max", 2) < 2:
                continue
            draw, before = explorer._draw, explorer.picture.value
            explorer._draw = lambda draw=draw, **values: drawn.append(values) or draw(**values)
            for value in (values := other_values(control)):
                control.value = value
            while explorer._waiting:
                await asyncio.sleep(0.005)
            explorer._draw = draw
            assert [some[key] for some in drawn] == values[-1:], key
            assert "<img " in explorer.picture.value
            assert explorer.picture.value != before, key
            drawn.clear()

    asyncio.run(drag())


def test_every_control_has_a_label_and_the_picture_replaces_the_widget_on_a_page_without_widgets(explorer):
    assert all(control.description for control in explorer.controls.values())
    assert all(control.tabbable is not False for control in explorer.controls.values())  # the keyboard can reach it
    bundle = explorer._repr_mimebundle_()
    assert "<img alt=" in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_no_label_is_smaller_than_10_pixels_on_a_narrow_page(explorer):
    """On a page that is too narrow, the figure scrolls instead of shrinking."""
    from matplotlib.text import Text

    drawn = explorer._draw(**{key: control.value for key, control in explorer.controls.items()})
    figure = drawn[0] if isinstance(drawn, tuple) else drawn
    smallest = min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text() and text.get_visible())
    (width,) = re.findall(r'<img alt="[^"]*" width="(\d+)"', explorer.picture.value)
    least = re.findall(r"max-width: max\(100%, (\d+)px\)", explorer.picture.value) or [width]
    assert smallest * 96 / 72 * min(int(width), int(least[0])) / int(width) >= 10
    assert explorer.picture.value.startswith('<div style="overflow-x: auto">')


TEXTS = {
    "a word": "Hund",
    "words never seen": "Xylophon Ğüş qqq",
    "emoji": "Ein 🐕 rennt 👩‍👩‍👧.",
    "from right to left": "שלום עולם",
    "Chinese": "一只狗在跑",
    "signs of formulas and of HTML": "$5 <b>&amp;</b> \\frac",
}


@pytest.mark.filterwarnings("error:.*missing from font")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("name", READ_SENTENCES)
def test_whatever_a_reader_types_is_drawn(name, text, translator):
    make, field = READ_SENTENCES[name]
    explorer = make(translator)
    before = explorer.picture.value
    explorer.controls[field].value = text
    assert "<img alt=" in explorer.picture.value
    assert explorer.picture.value != before
    assert "<b>" not in explorer.picture.value.split("src=")[0]


@pytest.mark.parametrize("name", READ_SENTENCES)
def test_an_empty_or_endless_text_is_answered_and_the_next_one_drawn(name, translator):
    make, field = READ_SENTENCES[name]
    explorer = make(translator)
    for text in ("", "   "):
        explorer.controls[field].value = text
        assert re.fullmatch(r"<p>.*(empty|blank).*</p>", explorer.picture.value)
    explorer.controls[field].value = "Hund " * 200
    if name in ("explore_byte_pairs", "explore_masks"):
        assert re.fullmatch(r"<p>.* has (999|1000|200) (characters|words).*</p>", explorer.picture.value)
    else:
        said = [str(getattr(child, "value", "")) for child in explorer.children]
        assert any("Only the first 30 of 200 words are used." in text for text in said)
        assert "<img alt=" in explorer.picture.value
    explorer.controls[field].value = "Hund"
    assert "<img alt=" in explorer.picture.value


def test_a_model_without_the_hook_is_named(translator):
    class Bare(nn.Module):
        config = translator.model.config

    def refuse(sentence):
        from transformer_lab.model import record_attention

        with record_attention(Bare()):
            raise AssertionError

    bare = SimpleNamespace(model=Bare(), tokenizer=translator.tokenizer, attention=refuse, translate=None)
    for call in (
        lambda: explore_attention(bare, "Ein Hund"),
        lambda: draw_attention(bare, "Ein Hund"),
        lambda: explore_heads(bare, "Ein Hund", PAIRS),
    ):
        with pytest.raises(
            InputError, match="no module of this Bare has an `attend`: build it from MultiHeadAttention"
        ):
            call()


def test_a_model_with_another_kernel_is_drawn_as_well(translator):
    """torch's kernel returns no weights, so the explorer replaces it and puts it back afterward."""
    layer = translator.model.encoder.layers[0].self_attention
    expected = explore_attention(translator, "Ein Hund").picture.value
    before = layer.attend
    set_attention(translator.model, fused_attention)
    try:
        assert explore_attention(translator, "Ein Hund").picture.value == expected
        assert layer.attend is fused_attention
    finally:
        set_attention(translator.model, before)


def test_a_head_that_is_not_there_is_named(translator):
    with pytest.raises(InputError, match="there is no head 2"):
        draw_heads(attention_of(translator, "Ein Hund"), "cross", 0, [2])


def test_two_explorers_of_one_model_do_not_move_each_other(translator):
    one, other = explore_attention(translator, "Ein Hund"), explore_attention(translator, "Ein Hund")
    switched, before = explore_heads(translator, "Ein Hund", PAIRS[:1]), other.picture.value
    list(switched.controls.values())[1].value = False
    one.controls["stack"].value = "encoder"
    one.controls["sentence"].value = "Zwei Frauen"
    assert other.picture.value == before
    other.show()  # the model is back in its original state
    assert other.picture.value == before


def test_an_exception_raised_later_is_shown_in_place_of_the_picture_and_garbage_is_collected_again():
    """Notebooks show no traceback if a timer's redraw fails, so the old figure could be mistaken for a new one."""

    def draw(width=3):
        assert not gc.isenabled()
        if width > 3:
            raise RuntimeError("mat1 and mat2 <differ>")
        return new_picture("a", 1, 1)

    explorer = explore(draw, width=(1, 9))
    explorer.controls["width"].value = 5
    assert explorer.picture.value == "<p>RuntimeError: mat1 and mat2 &lt;differ&gt;</p>"
    assert gc.isenabled()
    explorer.controls["width"].value = 2
    assert "<img " in explorer.picture.value
    assert gc.isenabled()


def test_a_closed_kernel_leaves_the_picture():
    """The page keeps the HTML that the widget has sent, even after the widget is closed."""
    explorer = explore_masks()
    shown = explorer._repr_mimebundle_()["text/html"]
    for widget in (*explorer.controls.values(), explorer):
        widget.close()
    assert explorer.picture.value == shown.strip()
