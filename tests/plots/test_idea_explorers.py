"""Without these tests, a figure could show wrong numbers."""

import re

import numpy as np
import pytest
import torch

from transformer_lab.errors import InputError
from transformer_lab.model import scaled_dot_product_attention, sinusoidal_encoding
from transformer_lab.plots.mask_explorer import draw_masks
from transformer_lab.plots.position_explorer import draw_positions
from transformer_lab.plots.scores_explorer import draw_scores


def test_scores_weights_and_output_are_those_of_the_attention_that_is_given():
    calls = []

    def attention(*arguments):
        calls.append(scaled_dot_product_attention(*arguments))
        return calls[-1]

    figure = draw_scores(
        query=(0.0, 2.0), keys=[(0.0, 1.0), (90.0, 1.0), (180.0, 1.0)], factor=2.0, attention=attention
    )
    plane, scores, weights = figure.axes
    assert [bar.get_height() for bar in scores.patches] == pytest.approx([8**0.5, 0, -(8**0.5)], abs=1e-6)
    expected = torch.tensor([8**0.5, 0, -(8**0.5)]).softmax(0).tolist()
    assert [bar.get_height() for bar in weights.patches] == pytest.approx(expected, abs=1e-6)
    (output,) = [line for line in plane.lines if line.get_label() == "output"]
    assert [float(*output.get_xdata()), float(*output.get_ydata())] == pytest.approx(calls[0][0][0, 0].tolist())
    assert re.search(r"key 1 has weight 0\.9\d", figure.get_label())


def test_a_dot_marks_each_visible_position():
    figure = draw_masks(("a b c", "d"))
    centres = [zip(*axes.lines[0].get_data(), strict=True) for axes in figure.axes]
    dots = [sorted((float(key) - 0.5, float(query) - 0.5) for key, query in some) for some in centres]
    assert dots == [[(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)], [(0, 0), (0, 1), (0, 2)]]
    assert figure.get_suptitle() == "padding (2, 1, 1, 3) and future (1, 1, 3, 3) give (2, 1, 3, 3)"
    assert draw_masks(padding=False, causal=False).get_suptitle() == "no mask: every word sees every word"


@pytest.mark.parametrize(("text", "says"), [(" ", "is empty"), ("word " * 15, "has 15 words")])
def test_sentences_that_cannot_be_drawn_are_answered(text, says):
    with pytest.raises(InputError, match=f"sentence 2 {says}"):
        draw_masks(("a", text))


def test_the_table_of_positions_is_the_papers():
    table = draw_positions(d_model=8, length=30).axes[0].images[0].get_array()
    assert np.allclose(table, sinusoidal_encoding(30, 8).double().numpy(), atol=1e-5)
    assert draw_positions(d_model=2, length=2, position=50).axes[2].get_title() == "similarity to position 1"
