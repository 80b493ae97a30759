"""Explorers for section 5 of the paper: the learning rate and label smoothing."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from ipywidgets import FloatSlider, HBox, Layout, SelectionSlider
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DARK, LIGHT, ORANGE, new_picture, tidy
from transformer_lab.plots.interactive_figure import Explorer
from transformer_lab.plots.lines import name_line
from transformer_lab.training import label_smoothing_loss, warmup_rate

Loss = Callable[[Tensor, Tensor, float, int], Tensor]
Curves = Callable[[float, int], tuple[list[float], list[float]]]

LEADS = torch.linspace(0, 16, 81)  # the correct token's logit minus each other token's logit
PAPER = {"d_model": 512, "warmup_steps": 4000}  # the base model of section 5.3


def draw_warmup(
    d_model: int = 512,
    warmup_steps: int = 4000,
    factor: float = 1.0,
    rate: Callable[[int, int, int], float] = warmup_rate,
) -> Figure:
    """Draw the learning-rate schedule of section 5.3 with its peak, and the schedule of the paper's base model.

    Args:
        d_model: Width of the model.
        warmup_steps: The step at which the learning rate peaks.
        factor: All learning rates are multiplied by this number.
        rate: A function that returns the learning rate for `(step, d_model, warmup_steps)`. To try out your own
            function, pass it here.

    Raises:
        InputError: `d_model`, `warmup_steps`, or `factor` is not positive.
    """
    for name, value in (("d_model", d_model), ("warmup_steps", warmup_steps), ("factor", factor)):
        if not value > 0:
            raise InputError(f"{name} is {value}, but must be greater than 0")
    last = 4 * max(warmup_steps, PAPER["warmup_steps"])
    steps = sorted({1 + (last - 1) * index // 400 for index in range(401)} | {warmup_steps})
    rates = [factor * rate(step, d_model, warmup_steps) for step in steps]
    peak = max(range(len(steps)), key=rates.__getitem__)
    figure = new_picture(
        f"The learning rate for a width of {d_model}, {warmup_steps} steps of warm-up, and a factor of {factor:g}, up "
        f"to step {last}. Its peak is {rates[peak]:.2g} at step {steps[peak]}. The dashed line is the schedule of "
        "the paper's base model.",
        8,
        3.4,
        layout="none",
    )
    axes = figure.add_axes((0.085, 0.145, 0.885, 0.755))
    papers = [warmup_rate(step, **PAPER) for step in steps]
    axes.plot(steps, papers, color="0.65", linestyle="--", label="the paper's base model: 512, 4000, 1")
    label = f"d_model {d_model}, warm-up {warmup_steps}, factor {factor:g}"
    axes.plot(steps, rates, color=DARK, linewidth=2, label=label)
    axes.plot(steps[peak], rates[peak], "o", color=ORANGE, markersize=8, zorder=3)
    name = f"peak {rates[peak]:.2g} at step {steps[peak]}"
    name_line(axes, steps[peak], rates[peak], name, "black", va="bottom", xytext=(0, 8), fontsize=10)
    axes.set(xlabel="step", ylabel="learning rate", title="The learning rate of section 5.3", xlim=(0, last))
    axes.set_ylim(0, 1.25 * max(*rates, *papers))
    axes.ticklabel_format(axis="y", scilimits=(-2, 4))
    axes.legend(frameon=False)
    tidy(axes)
    return figure


def explore_warmup(rate: Callable[[int, int, int], float] = warmup_rate) -> Any:
    """Return a widget that shows `draw_warmup` with sliders for the width, warm-up, and factor.

    Args:
        rate: The same as in `draw_warmup`.
    """
    same = {"style": {"description_width": "initial"}, "layout": Layout(width="24em")}
    return _explorer(
        lambda **chosen: draw_warmup(**chosen, rate=rate),
        d_model=SelectionSlider(options=[32, 64, 128, 256, 512, 1024, 2048], value=512, description="d_model", **same),
        warmup_steps=SelectionSlider(
            options=[100, 200, 400, 1000, 2000, 4000, 8000, 16000], value=4000, description="Warm-up, steps", **same
        ),
        factor=FloatSlider(1.0, min=0.25, max=3, step=0.25, description="Factor, times", **same),
    )


def draw_label_smoothing(
    smoothing: float = 0.1,
    vocab: int = 10,
    loss: Loss = label_smoothing_loss,
) -> Figure:
    """Draw smoothed labels (section 5.4), and the loss and its gradient as a model becomes more and more certain.

    The correct token's logit rises from 0 to 16 above the logits of the other tokens, which are all equal. Losses are
    in nats.

    Args:
        smoothing: Amount of smoothing, at least 0 (plain cross-entropy) and less than 1.
        vocab: Number of tokens, at least 2.
        loss: `label_smoothing_loss` or your own version of it.

    Raises:
        InputError: `smoothing` is out of range, or `vocab` is below 2.
    """
    return _draw_label_smoothing(smoothing, vocab, functools.partial(_losses_and_gradients, loss))


def _draw_label_smoothing(smoothing: float, vocab: int, curves: Curves) -> Figure:
    if not 0 <= smoothing < 1:
        raise InputError(f"smoothing is {smoothing}, but must be at least 0 and below 1")
    if vocab < 2:
        raise InputError(f"vocab is {vocab}, but must be at least 2: with one token there is nothing to choose")
    each = smoothing / vocab
    right = 1 - smoothing + each
    leads = LEADS.tolist()
    (losses, gradients), (plain_losses, plain_gradients) = curves(smoothing, vocab), curves(0.0, vocab)
    best = min(range(len(losses)), key=losses.__getitem__)
    at_best = f"falls to {losses[best]:.2f}, where that logit is about {leads[best]:.1f} ahead, and then rises again"
    figure = new_picture(
        f"Labels smoothed by {smoothing:g} over {vocab} tokens: the correct token gets {right:.3g}, and each of "
        f"the others gets {each:.2g}. As the logit of the correct token moves ahead, the loss "
        + (at_best if smoothing else "falls toward 0")
        + "; the gradient of that logit "
        + ("crosses 0 there." if smoothing else "approaches 0 without crossing it."),
        10.5,
        3.2,
        layout="none",
    )
    margins = {"left": 0.06, "right": 0.99, "bottom": 0.2, "top": 0.9, "wspace": 0.24}
    bars, curve, slope = figure.subplots(1, 3, gridspec_kw=margins)
    shown = min(vocab, 12)
    answer = shown // 2
    heights = [right if token == answer else each for token in range(shown)]
    bars.bar(range(shown), heights, color=[DARK if token == answer else LIGHT for token in range(shown)])
    bars.set(ylim=(0, 1.2), xticks=[answer], xticklabels=["correct token"], ylabel="probability")
    bars.set_title("Labels" + (f": {shown} of {vocab} tokens" if shown < vocab else ""))
    bars.text(answer, right + 0.03, f"{right:.4g}", ha="center")
    # There is room to the left of the correct token's bar. With two tokens, this is the center of the other bar.
    bars.text((answer - 1) / 2, each + 0.03, f"each {each:.2g}", ha="center")

    name = f"smoothed by {smoothing:g}"
    for axes, smoothed, plain in ((curve, losses, plain_losses), (slope, gradients, plain_gradients)):
        axes.plot(leads, plain, "--", color="0.45", label="not smoothed")
        axes.plot(leads, smoothed, color=DARK, linewidth=2, label=name)
        if smoothing:
            axes.plot(leads[best], smoothed[best], "o", color=ORANGE, markersize=7, zorder=3)
        axes.set_xlabel("logit of the correct token,\nahead of the others by")
    curve.set(title="Loss (nats)", ylim=(0, 1.1 * max(losses + plain_losses)))
    curve.legend(frameon=False)
    slope.axhline(0, color="0.8", linewidth=1, zorder=0)
    slope.set(title="Gradient of that logit")
    slope.set_ylim(min(gradients + plain_gradients) - 0.05, max(0.1, *gradients) + 0.05)
    tidy(bars, curve, slope)
    return figure


def explore_label_smoothing(loss: Loss = label_smoothing_loss) -> Any:
    """Return a widget that shows `draw_label_smoothing` with sliders for smoothing and vocabulary size.

    Args:
        loss: The same as in `draw_label_smoothing`.
    """
    same = {"style": {"description_width": "initial"}, "layout": Layout(width="28em")}
    curves = functools.cache(functools.partial(_losses_and_gradients, loss))  # smoothing 0 is always drawn
    return _explorer(
        functools.partial(_draw_label_smoothing, curves=curves),
        smoothing=FloatSlider(0.1, min=0, max=0.9, step=0.05, description="Smoothing, share", **same),
        vocab=SelectionSlider(options=[2, 5, 10, 100, 1000, 10000], value=10, description="Vocabulary, tokens", **same),
    )


def _losses_and_gradients(loss: Loss, smoothing: float, vocab: int) -> tuple[list[float], list[float]]:
    """Return the loss and its derivative with respect to the correct (last) token's logit, for each of `LEADS`."""
    labels = torch.tensor([[vocab - 1]])
    with torch.enable_grad():
        logits = [torch.zeros(1, 1, vocab) for _ in LEADS]
        for some, lead in zip(logits, LEADS, strict=True):
            some[..., -1] = lead
            some.requires_grad_()
        values = [loss(some, labels, smoothing, -1) for some in logits]  # no token is padding
        gradients = torch.autograd.grad(sum(values), logits)  # each loss depends only on its own logits
    return [value.item() for value in values], [gradient[0, 0, -1].item() for gradient in gradients]


def _explorer(draw: Callable[..., Figure], **controls: Any) -> Explorer:
    """Return a widget with a row of sliders and, below them, the figure that `draw` returns for the sliders' values."""
    return Explorer(controls, draw, [HBox(list(controls.values()))])
