"""Without these tests, a slider could have no effect, or a marker could be in the wrong position."""

import math

import pytest
import torch

from transformer_lab.errors import InputError
from transformer_lab.plots.training_explorers import (
    draw_label_smoothing,
    draw_warmup,
    explore_label_smoothing,
    explore_warmup,
)


def marked(axes):
    """Return the position of the orange dot."""
    (dot,) = [line for line in axes.lines if line.get_marker() == "o"]
    return dot.get_xdata()[0], dot.get_ydata()[0]


@pytest.mark.parametrize(("d_model", "warmup_steps", "factor"), [(512, 4000, 1), (64, 100, 0.5), (2048, 16000, 3)])
def test_the_peak_is_where_the_formula_has_it(d_model, warmup_steps, factor, cut_off):
    figure = draw_warmup(d_model, warmup_steps, factor)
    step, rate = marked(figure.axes[0])
    assert step == warmup_steps
    assert math.isclose(rate, factor / math.sqrt(d_model * warmup_steps))
    assert cut_off(figure) == []


def test_the_schedule_that_is_drawn_is_the_readers():
    """If your schedule confuses min and max, the figure shows the mistake."""
    figure = draw_warmup(rate=lambda step, d_model, warmup_steps: 1 / step)
    assert marked(figure.axes[0]) == (1, 1.0)


@pytest.mark.parametrize("vocab", [2, 10, 1000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_labels_add_up_and_the_mark_is_the_lowest_loss(smoothing, vocab, cut_off):
    figure = draw_label_smoothing(smoothing, vocab)
    bars, loss, gradient = figure.axes
    heights = sorted(bar.get_height() for bar in bars.patches)
    assert math.isclose(heights[-1] + (vocab - 1) * heights[0], 1)
    if smoothing:
        lead, lowest = marked(loss)
        best = math.log(heights[-1] / heights[0])  # where the model's probabilities equal the labels
        assert abs(lead - best) <= 0.11, "the curve has a point every 0.2"
        entropy = -heights[-1] * math.log(heights[-1]) - (vocab - 1) * heights[0] * math.log(heights[0])
        assert math.isclose(lowest, entropy, abs_tol=1e-2)
        assert abs(marked(gradient)[1]) < 0.03
    assert cut_off(figure) == []


def test_the_loss_that_is_drawn_is_the_readers():
    figure = draw_label_smoothing(loss=lambda logits, labels, smoothing, pad_id: 0 * logits.sum() + 7)
    assert set(figure.axes[1].lines[0].get_ydata()) == {7.0}


def test_drawing_does_not_need_gradients_to_be_on():
    """Readers can draw inside `torch.no_grad`, for example after an evaluation."""
    with torch.no_grad():
        assert draw_label_smoothing().axes


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_warmup(warmup_steps=0),
        lambda: draw_warmup(factor=-1),
        lambda: draw_label_smoothing(1.0),
        lambda: draw_label_smoothing(vocab=1),
    ],
)
def test_numbers_out_of_range_are_refused(draw):
    with pytest.raises(InputError, match=r"is (0|-1|1\.0|1), but must be"):
        draw()


def test_the_sliders_say_what_is_drawn():
    controls, picture = explore_warmup().children
    for control, value in zip(controls.children, (64, 400, 0.5), strict=True):
        control.value = value
    assert "for a width of 64, 400 steps of warm-up, and a factor of 0.5" in picture.value
    controls, picture = explore_label_smoothing().children
    for control, value in zip(controls.children, (0.3, 100), strict=True):
        control.value = value
    assert "Labels smoothed by 0.3 over 100 tokens" in picture.value
