"""Without these tests, a heat map could have swapped axes, the wrong language, or the title of a different head."""

import numpy as np
import pytest
import torch
from matplotlib import colormaps

from transformer_lab.errors import InputError
from transformer_lab.plots import attention_heatmap, draw_attention
from transformer_lab.plots.heatmaps import COLORS

SOURCE = ["▁Ein", "▁Hund", "▁rennt", "<eos>"]
TARGET = ["<bos>", "▁A", "▁dog", "▁runs", "."]


def rows_and_columns(axes) -> tuple[list[str], list[str]]:
    return tuple([text.get_text() for text in axes.texts if text.get_gid() == side] for side in ("query", "key"))


def places(axes, side) -> list[tuple[float, float]]:
    return [text.get_position() for text in axes.texts if text.get_gid() == side]


def drawn(axes) -> np.ndarray:
    return np.asarray(axes.collections[0].get_array())


def test_rows_are_queries_from_the_top_and_columns_are_keys():
    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    axes = attention_heatmap(weights, ["q0", "q1"], ["k0", "k1", "k2"], "Cross-attention, layer 0, head 0")
    assert rows_and_columns(axes) == (["q0", "q1"], ["k0", "k1", "k2"])
    np.testing.assert_array_equal(drawn(axes), weights)
    bottom, top = axes.get_ylim()
    assert bottom > top  # the first row is the upper one
    assert [y for _, y in places(axes, "query")] == [0.5, 1.5]  # each label is at the middle of its row
    assert [x for x, _ in places(axes, "key")] == [0.5, 1.5, 2.5]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query", "key")
    assert axes.get_title() == "Cross-attention, layer 0, head 0"


def test_the_scale_is_from_0_to_1_whatever_the_weights_are():
    """Two maps can be compared only if each color means the same weight in both."""
    axes = attention_heatmap(torch.full((2, 2), 0.5), ["a", "b"], ["c", "d"], "t")
    assert axes.collections[0].get_clim() == (0.0, 1.0)


def test_the_colors_only_get_darker():
    """Differences in lightness remain visible in grayscale printing and with every kind of color blindness."""
    red, green, blue, _ = colormaps[COLORS](np.linspace(0, 1, 64)).T
    lightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert (np.diff(lightness) < 0).all()


@pytest.mark.parametrize("size", [1, 4, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_token_has_its_label_within_the_picture(size, dtype, cut_off):
    tokens = [f"▁Zusammenhang{number}" for number in range(size)]
    axes = attention_heatmap(torch.eye(size, dtype=dtype), tokens, tokens, "Encoder self-attention, layer 0, head 0")
    assert rows_and_columns(axes) == (tokens, tokens)
    assert cut_off(axes.figure) == []


def test_dollar_signs_and_backslashes_are_text():
    """By default, matplotlib would read `$5$` as a formula and fail at `$\\frac$`."""
    tokens = ["$5$", "$\\frac$", "a_b^c"]
    axes = attention_heatmap(np.eye(3), tokens, tokens, "price $")
    axes.figure.draw_without_rendering()
    assert rows_and_columns(axes) == (tokens, tokens)


def test_tokens_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"\(2, 3\) do not fit 3 query tokens \(rows\) and 2 key tokens \(columns\)"):
        attention_heatmap(np.zeros((2, 3)), ["a", "b", "c"], ["d", "e"], "t")


@pytest.mark.parametrize(
    ("stack", "title", "query_language", "key_language", "module"),
    [
        ("encoder", "Encoder self-attention", "German", "German", "encoder.layers.1.self_attention"),
        ("decoder", "Decoder self-attention", "English", "English", "decoder.layers.1.self_attention"),
        ("cross", "Cross-attention", "English", "German", "decoder.layers.1.cross_attention"),
    ],
)
def test_each_stack_shows_its_weights_with_the_tokens_of_its_sides(
    untrained_translator, cut_off, stack, title, query_language, key_language, module
):
    """The other tests use a fake translator. This one checks that the heat maps work with a real one."""
    sentence = "Zwei Frauen sitzen draußen."
    real_translator = untrained_translator(d_model=24, n_heads=3, n_layers=2, d_ff=32, max_length=24)
    weights, source_tokens, target_tokens = real_translator.attention(sentence)
    tokens = {"German": source_tokens, "English": target_tokens}
    assert len(source_tokens) != len(target_tokens)  # so that swapped axes would fail
    assert "".join(source_tokens).replace("▁", " ").strip() == f"{sentence}<eos>"
    assert target_tokens[0] == "<bos>"

    figure = draw_attention(real_translator, sentence, stack, layer=1, head=2)
    axes = figure.axes[0]
    assert axes.get_title() == f"{title}, layer 1, head 2"
    assert rows_and_columns(axes) == (tokens[query_language], tokens[key_language])
    assert (axes.get_ylabel(), axes.get_xlabel()) == (f"query ({query_language})", f"key ({key_language})")
    np.testing.assert_array_equal(drawn(axes), weights[module][0, 2])
    np.testing.assert_allclose(drawn(axes).sum(axis=1), 1.0, atol=1e-5)  # rows sum to 1, up to float32 rounding
    if stack == "decoder":
        assert (np.triu(drawn(axes), k=1) == 0).all()  # no token sees later ones
    assert cut_off(figure) == []


def test_the_right_edge_names_the_token_that_each_row_predicts(translator):
    """A decoder reads one token and writes the next. Without its second label, a row would be misleading."""
    figure = draw_attention(translator, "Ein Hund rennt", "cross", head=0)
    after = [(text.get_position()[1], text.get_text()) for text in figure.axes[0].texts if text.get_gid() == "next"]
    assert after == [(0.5, "▁A"), (1.5, "▁dog"), (2.5, "▁runs"), (3.5, "."), (4.5, "<eos>")]
    assert places(draw_attention(translator, "Ein Hund rennt", "encoder", head=0).axes[0], "next") == []


def test_negative_numbers_count_from_the_last(translator):
    figure = draw_attention(translator, "Ein Hund rennt", layer=-1, head=-3)
    assert figure.axes[0].get_title() == "Cross-attention, layer 1, head 0"


def test_all_heads_are_side_by_side_on_one_scale(translator, cut_off):
    figure = draw_attention(translator, "Ein Hund rennt", "cross", layer=0)
    *panels, color_bar = figure.axes
    assert [axes.get_title() for axes in panels if axes.axison] == ["head 0", "head 1", "head 2"]
    assert figure.get_suptitle() == "Cross-attention, layer 0"
    weights = translator.attention("")[0]["decoder.layers.0.cross_attention"][0]
    for head, axes in enumerate(panels[:3]):
        np.testing.assert_array_equal(drawn(axes), weights[head])
        assert axes.collections[0].get_clim() == (0.0, 1.0)
    assert color_bar.get_ylabel() == "attention weight"
    assert cut_off(figure) == []


@pytest.mark.parametrize("heads", [1, 2, 5, 8])
def test_each_column_and_row_of_heads_has_its_tokens_once(translator, heads):
    """With five heads, the last row is short, but the columns above the gap still need their tokens."""
    translator.heads = heads
    *panels, _ = draw_attention(translator, "Ein Hund rennt", "cross", layer=0).axes
    panels = [axes for axes in panels if axes.axison]
    assert len(panels) == heads
    columns = len({round(axes.get_position().x0, 6) for axes in panels})
    for head, axes in enumerate(panels):
        assert rows_and_columns(axes) == (
            TARGET if head % columns == 0 else [],
            SOURCE if head + columns >= heads else [],
        )


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"stack": "crosss"}, "there is no stack 'crosss': choose one of encoder, decoder, cross"),
        ({"layer": 2}, r"there is no layer 2: this model has layers 0 to 1 \(or -2 to -1\)"),
        ({"layer": -3}, "there is no layer -3: this model has layers 0 to 1"),
        ({"head": 3}, r"there is no head 3: this model has heads 0 to 2 \(or -3 to -1\)"),
    ],
)
def test_an_index_out_of_range_is_answered_with_the_range(translator, chosen, says):
    with pytest.raises(InputError, match=says):
        draw_attention(translator, "Ein Hund rennt", **chosen)


def test_the_alternative_text_names_the_strongest_links():
    weights = np.array([[0.1, 0.9], [0.75, 0.25]])
    axes = attention_heatmap(weights, ["A", "dog"], ["Hund", "Ein"], "Cross-attention, head 0")
    assert axes.figure.get_label() == (
        "Heat map: Cross-attention, head 0. "
        "The strongest weights go from A to Ein (0.90), dog to Hund (0.75), dog to Ein (0.25)."
    )
