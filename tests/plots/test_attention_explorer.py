"""Without these tests, a control of the explorer could have no effect."""

from types import SimpleNamespace

import pytest

from transformer_lab.plots import explore, explore_attention, new_picture
from transformer_lab.plots.attention_explorer import draw_heads
from transformer_lab.plots.heatmaps import RecordedAttention


@pytest.fixture
def explorer(translator):
    stand_in = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace(n_layers=2, n_heads=3)),
        tokenizer=translator.tokenizer,
        attention=translator.attention,
        translate=lambda sentences: [sentence.upper() for sentence in sentences],
    )
    return explore_attention(stand_in, "Ein Hund rennt")


def test_every_control_draws_what_it_says(explorer):
    controls, picture = explorer.controls, explorer.picture
    assert 'alt="Heat map: Cross-attention, layer 1, head 0. Rows are English tokens.' in picture.value
    controls["stack"].value = "encoder"
    assert 'alt="Heat map: Encoder self-attention, layer 1, head 0. Rows are German tokens.' in picture.value
    controls["layer"].value = 0
    assert 'alt="Heat map: Encoder self-attention, layer 0, head 0.' in picture.value
    controls["head"].value = 2
    assert 'alt="Heat map: Encoder self-attention, layer 0, head 2.' in picture.value
    controls["beside"].value = "mean"
    assert "layer 0, head 2 next to the mean of all heads." in picture.value
    controls["word"].value = 1
    assert "Below, the weights of ▁Hund." in picture.value
    controls["head"].value = "all"
    assert 'alt="Heat maps of 3 heads side by side: Encoder self-attention, layer 0.' in picture.value


def test_words_are_offered_in_the_language_of_the_query(explorer):
    words = explorer.controls["word"]
    assert [name for name, _ in words.options] == ["no word", "<bos>", "▁A", "▁dog", "▁runs", "."]
    explorer.controls["stack"].value = "encoder"
    assert [name for name, _ in words.options] == ["no word", "▁Ein", "▁Hund", "▁rennt", "<eos>"]


def test_the_translation_grows_token_by_token(explorer):
    written = explorer.controls["written"]
    assert (written.max, written.value) == (5, 5)
    whole = explorer.picture.value
    written.value = 2
    assert explorer.picture.value != whole


def test_the_drawn_numbers_are_those_of_the_head(translator, cut_off):
    recorded, source, target = translator.attention("")
    weights = recorded["decoder.layers.1.cross_attention"][0]
    languages = {"source": "German", "target": "English"}
    attention = RecordedAttention(recorded, source, target, languages)
    figure = draw_heads(attention, "cross", 1, [2, "mean"], word=3, written=4)
    maps, bars = figure.axes[::2], figure.axes[1::2]
    for axes, expected in zip(maps, (weights[2], weights.mean(dim=0)), strict=True):
        drawn = axes.collections[0].get_array().reshape(4, 4)
        assert drawn.tolist() == [pytest.approx(row) for row in expected[:4].tolist()]
        assert [text.get_text() for text in axes.texts if text.get_gid() == "key"] == source
    assert [text.get_text() for text in maps[0].texts if text.get_gid() == "query"] == target[:4]
    assert [bar.get_height() for bar in bars[0].patches] == pytest.approx(weights[2, 3].tolist())
    assert cut_off(figure) == []


def test_any_picture_can_have_controls():
    drawn = []

    def draw(width=3, wide=False, name="a"):
        drawn.append((width, wide, name))
        return new_picture(f"{width} {wide} {name}", 1, 1)

    explorer = explore(draw, width=(1, 9), wide=False, name=["a", "b"])
    explorer.controls["width"].value = 5
    explorer.controls["wide"].value = True
    explorer.controls["name"].value = "b"
    assert drawn == [(3, False, "a"), (5, False, "a"), (5, True, "a"), (5, True, "b")]
    assert [control.description for control in explorer.controls.values()] == ["width", "wide", "name"]
    assert 'alt="5 True b"' in explorer.picture.value


def test_an_unwritten_part_stops_the_cell():
    def draw(width=3):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        explore(draw, width=(1, 9))


def test_a_text_of_200_words_is_truncated_with_a_note(explorer):
    (translation,) = [child for child in explorer.children if type(child).__name__ == "Label"]
    explorer.controls["sentence"].value = "Ball " * 200
    assert translation.value == f"Only the first 30 of 200 words are used. Translation: {' '.join(['BALL'] * 30)}"
    explorer.controls["sentence"].value = "Ball"
    assert translation.value == "Translation: BALL"
