"""Without these tests, a drawing in the course could disagree with the model."""

import pytest
import torch

from transformer_lab.model import DecoderLayer, EncoderLayer, causal_mask, sinusoidal_encoding, target_mask
from transformer_lab.plots import (
    compare_masks,
    draw_cache,
    draw_layer,
    draw_lines,
    draw_masking,
    draw_ngrams,
    draw_similarities,
    draw_token_path,
    influence,
    set_weights,
)
from transformer_lab.plots.schematics import DARK


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_masking_ends_in_weights_that_ignore_what_is_hidden():
    scores = torch.tensor([[0.693, 0.0, 1.609], [0.0, 0.693, 1.609]])
    mask = torch.tensor([[True, True, False]] * 2)
    drawn = texts(draw_masking(scores, mask, ["dogs", "run", "<pad>"]))
    assert [drawn.count(text) for text in ("0.67", "0.33", "0.00", "−∞", "False")] == [2, 2, 2, 2, 2]


def test_the_token_path_adds_up():
    vectors, encoding = torch.tensor([[0.8, -0.4]]), torch.tensor([[0.84, 0.4]])
    numbers = [text for text in texts(draw_token_path(["dog"], vectors, encoding)) if "." in text]
    assert numbers == ["0.80", "-0.40", "0.84", "0.40", "1.64", "0.00"]


def test_masks_side_by_side_have_a_dot_for_each_true():
    mask = target_mask(torch.tensor([[1, 2, 3], [4, 0, 0]]), 0)
    panels = compare_masks(mask, [["a", "b", "c"], ["d", "<pad>", "<pad>"]], ["full", "padded"]).axes
    assert [len(axes.lines[0].get_xdata()) for axes in panels] == [6, 3]
    assert [axes.get_title() for axes in panels] == ["full", "padded"]


@pytest.mark.parametrize(("memory", "lines"), [((), 4 * 3), (("x", "y", "z"), 3 + 2 + 1 + 4 * 3)])
def test_a_layer_has_a_line_for_each_pair_of_words_that_may_attend(memory, lines):
    """A word needs no line to itself, because its column already is one."""
    axes = draw_layer(["a", "b", "c", "d"], memory).axes[0]
    assert len([line for line in axes.lines if line.get_color() == DARK]) == lines


def test_every_line_carries_its_name_at_its_end():
    axes = draw_lines({"one": [1, 2, 3], "two": [3, 2]}, "Two lines.").axes[0]
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("one", (2, 3)), ("two", (1, 2))]


def test_similarities_peak_at_their_own_position():
    axes = draw_similarities(sinusoidal_encoding(100, 64), (20, 50)).axes[0]
    peaks = [line.get_ydata() for line in axes.lines]
    assert [int(torch.as_tensor(values).argmax()) for values in peaks] == [20, 50]
    assert all(abs(values.max() - 32) < 1e-3 for values in peaks)


def test_weights_do_not_depend_on_the_order_of_attributes():
    class Reversed(EncoderLayer):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            attention = self.self_attention
            del self.self_attention
            self.self_attention = attention

    layers = EncoderLayer(8, 2, 16), Reversed(8, 2, 16)
    orders = [[name for name, _ in layer.named_parameters()] for layer in layers]
    assert orders[0] != orders[1]
    for layer in layers:
        set_weights(layer, seed=3)
    x = torch.randn(1, 4, 8)
    assert torch.equal(layers[0](x), layers[1](x))


def test_influence_is_zero_exactly_where_a_mask_hides():
    layer = DecoderLayer(8, 2, 16)
    set_weights(layer)
    x, memory = torch.randn(1, 3, 8), torch.randn(1, 4, 8)
    source_mask = torch.tensor([True, True, False, True])[None, None, None]
    on_target = influence(lambda x: layer(x, memory, source_mask, causal_mask(3)), x)
    on_source = influence(lambda memory: layer(x, memory, source_mask, causal_mask(3)), memory)
    assert torch.equal(on_target > 0, causal_mask(3)[0, 0])
    assert torch.equal(on_source > 0, source_mask[0, 0].expand(3, 4))
    torch.testing.assert_close(on_source.sum(dim=1), torch.ones(3))


def test_a_cache_leaves_one_new_square_in_each_step():
    figure = draw_cache(["<bos>", "a", "dog", "runs"])
    drawn = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert [(texts.count("new"), texts.count("kept")) for texts in drawn] == [(10, 0), (4, 6)]
    diagonal = {text.get_position() for text in figure.axes[1].texts if text.get_text() == "new"}
    assert diagonal == {(step + 0.5, step + 0.5) for step in range(4)}
    assert [axes.get_title() for axes in figure.axes] == ["without a cache: 10 computed", "with a cache: 4 computed"]


def test_each_n_gram_has_a_box_that_shows_whether_it_matches():
    figure = draw_ngrams(["a", "dog", "runs"], [[True, True, False], [True, False], [False]])
    boxes = figure.axes[0].patches
    assert [box.get_linestyle() == "-" for box in boxes] == [True, True, False, True, False, False]
    drawn = texts(figure)
    assert [text for text in drawn if " of " in text] == ["2 of 3", "1 of 2", "0 of 1"]
    assert {"a", "dog", "runs", "a dog", "dog runs", "a dog\nruns"} <= set(drawn)
