"""Without these, a control of the explorer could move and leave the picture as it was."""

from types import SimpleNamespace

import pytest

from transformer_lab.errors import InputError
from transformer_lab.plots import explore_attention


@pytest.fixture
def explorer(translator):
    def translate(sentences):
        if not sentences[0].strip():
            raise InputError("sentence 1 is empty: write <something>")
        return [sentence.upper() for sentence in sentences]

    def attention(sentence):
        translate([sentence])
        return type(translator).attention(translator, sentence)

    stand_in = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace(n_layers=2, n_heads=3)),
        tokenizer=translator.tokenizer,
        attention=attention,
        translate=translate,
    )
    sentence, controls, translation, picture = explore_attention(stand_in, "Ein Hund rennt").children
    stack, layer, head = controls.children
    return SimpleNamespace(
        sentence=sentence, stack=stack, layer=layer, head=head, translation=translation, picture=picture
    )


def test_every_control_draws_what_it_says(explorer):
    assert 'alt="Heat map: Cross-attention, layer 1, head 0.' in explorer.picture.value
    explorer.stack.value = "encoder"
    assert 'alt="Heat map: Encoder self-attention, layer 1, head 0.' in explorer.picture.value
    explorer.layer.value = 0
    assert 'alt="Heat map: Encoder self-attention, layer 0, head 0.' in explorer.picture.value
    explorer.head.value = 2
    assert 'alt="Heat map: Encoder self-attention, layer 0, head 2.' in explorer.picture.value
    explorer.head.value = None
    assert 'alt="Heat maps of 3 heads side by side: Encoder self-attention, layer 0.' in explorer.picture.value


def test_a_new_sentence_is_translated_and_a_bad_one_is_answered(explorer):
    explorer.sentence.value = "Ein Ball"
    assert explorer.translation.value == "Translation: EIN BALL"
    explorer.sentence.value = " "
    assert explorer.picture.value == "<p>sentence 1 is empty: write &lt;something&gt;</p>"
    explorer.sentence.value = "Ein Ball"
    assert explorer.picture.value.startswith("<img ")
