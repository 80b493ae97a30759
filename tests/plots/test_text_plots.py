"""Plots of text and batches must show the data they are given."""

import pytest

from transformer_lab.plots import draw_batch, draw_padding, draw_padding_shares, draw_word_frequencies


def test_a_padded_batch_shows_each_token_with_its_id():
    figure = draw_batch([["a", "dog", "<eos>"], ["hi", "<eos>"]], [[4, 5, 2], [6, 2, 0]], "two sentences")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["a\n4", "dog\n5", "<eos>\n2", "hi\n6", "<eos>\n2", "<pad>\n0"]
    colors = [patch.get_facecolor() for patch in axes.patches]
    assert colors[:5] == [colors[0]] * 5
    assert colors[5] != colors[0]


def test_the_share_of_padding_is_that_of_the_cells():
    figure = draw_padding({"mixed": [2, 9], "sorted": [3, 3]})
    assert [axes.get_title() for axes in figure.axes] == ["mixed: 2 × 9, 39% padding", "sorted: 2 × 3, 0% padding"]


@pytest.mark.parametrize("draw", [
    lambda lines: draw_word_frequencies(lines),
    lambda lines: draw_padding_shares([1, 2, 4], lines),
])  # fmt: skip
def test_one_line_for_each_name(draw):
    figure = draw({"German": [0.4, 0.3, 0.2], "English": [0.3, 0.2, 0.1]})
    (axes,) = figure.axes
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 3]
    assert len(axes.get_legend().get_texts()) == 2


def test_shares_of_padding_are_percentages():
    (axes,) = draw_padding_shares([1, 2, 4], {"German": [0.4, 0.3, 0.2]}).axes
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([40, 30, 20])
