"""Plots of the effect of the ReLU in a feed-forward network, and of the norm's position on training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from transformer_lab.plots.figures import DARK, RUST, new_picture, tidy
from transformer_lab.plots.lines import name_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POST, PRE = RUST, DARK


def draw_bends(x: Tensor, bent: Tensor, straight: Tensor, bends: Sequence[float]) -> "Figure":
    """Draw a feed-forward network with a single input, with and without its ReLU; all tensors are `(length,)`.

    Args:
        x: The inputs, in order.
        bent: The outputs of the network.
        straight: Its outputs without the ReLU.
        bends: Where a hidden unit switches on or off.
    """
    figure = new_picture(
        "A feed-forward network as a function of one number: straight pieces, with a bend wherever a hidden unit "
        "switches on or off. Without the ReLU it's a straight line.",
        8,
        3,
    )
    axes = figure.subplots()
    for bend in bends:
        axes.axvline(bend, color="0.85", linewidth=1, zorder=0)
    axes.plot(x, bent, color=PRE, linewidth=2)
    axes.plot(x, straight, "--", color="0.35")
    name_line(axes, x[-1].item(), bent[-1].item(), "with ReLU", PRE)
    name_line(axes, x[-1].item(), straight[-1].item(), "without ReLU", "0.35")
    axes.set(xlabel="x (gray lines: a hidden unit switches on or off)", ylabel="FFN(x)")
    axes.margins(x=0)
    axes.set_title("The ReLU makes the bends", fontsize=11)
    tidy(axes)
    return figure


def draw_norm_runs(
    runs: Mapping[tuple[str, str], tuple[Sequence[float], Sequence[float]]], guessing: float
) -> "Figure":
    """Draw the losses of four training runs, and the gradients of their sublayers in the last step.

    Args:
        runs: Maps `("post-norm" or "pre-norm", "no warm-up" or another name)` to the loss at each step and the
            gradient norm of each sublayer.
        guessing: The loss of a model that guesses.
    """
    figure = new_picture(
        "Left and middle, the loss: post-norm without warm-up gets stuck not far below the loss you'd get by "
        "guessing, while the other three runs fall to nearly 0. Right, gradient norms by depth in the last step: for "
        "post-norm without warm-up they shrink by orders of magnitude from top to bottom; for the others they're "
        "similar everywhere.",
        11,
        3.5,
    )
    post, pre, gradients = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    for (order, warmup), (losses, norms) in runs.items():
        axes, color = (post, POST) if order == "post-norm" else (pre, PRE)
        style = "-" if warmup == "no warm-up" else "--"
        axes.plot(range(1, len(losses) + 1), losses, style, color=color)
        if order == "post-norm":
            beside = {"va": "top", "xytext": (0, -6)} if style == "-" else {"va": "bottom", "xytext": (0, 8)}
            name_line(post, len(losses), min(losses[-20:]), warmup, color, ha="right", **beside)
        gradients.plot(range(1, len(norms) + 1), norms, style, color=color, marker="o", markersize=3)
        if order == "post-norm":
            name_line(gradients, len(norms), norms[-1], f"{order},\n{warmup}", color, fontsize=9)
    name_line(gradients, len(norms), norms[-1], "pre-norm, both", PRE, fontsize=9)
    names = [f"{look}: {warmup}" for look, (_, warmup) in zip(("solid", "dashed"), runs, strict=False)]
    pre.text(0.97, 0.55, "\n".join(names), transform=pre.transAxes, ha="right", va="center", color=PRE, fontsize=9.5)
    for axes, title in ((post, "Loss, post-norm"), (pre, "Loss, pre-norm")):
        axes.axhline(guessing, color="0.6", linewidth=1, linestyle=":")
        name_line(axes, len(losses), guessing, "guessing", "0.35", ha="right", va="bottom", xytext=(0, 3), fontsize=9)
        axes.set(xlabel="step", ylabel="loss (nats)", ylim=(0, 4.2))
        axes.set_title(title, fontsize=11)
    gradients.set(xlabel="sublayer, from bottom to top", ylabel="gradient norm", yscale="log", xticks=(1, 6, 12, 18))
    gradients.set_title("Gradient of w_2, last step", fontsize=11)
    tidy(post, pre, gradients)
    return figure


def draw_growth(post: Sequence[float], pre: Sequence[float], after_last_norm: float) -> "Figure":
    """Draw the root mean square of the features by depth: before the first layer, and after each.

    Args:
        post: The values for post-norm.
        pre: The values for pre-norm.
        after_last_norm: The value for pre-norm after the last norm.
    """
    figure = new_picture(
        f"Root mean square of the features by depth in {len(pre) - 1} layers. Post-norm stays at 1. Pre-norm grows "
        "with every layer, close to the square root of 1 + n, and the last norm brings it back to 1.",
        7.6,
        3.2,
    )
    axes = figure.subplots()
    n = len(pre) - 1
    axes.plot([(1 + layer) ** 0.5 for layer in range(n + 1)], ":", color="0.35")
    middle = 0.55 * n
    look = {"ha": "right", "va": "bottom", "xytext": (-2, 5)}
    name_line(axes, middle, (1 + middle) ** 0.5, "$\\sqrt{1 + n}$", "0.35", **look)
    for values, marker, color in ((post, "o-", POST), (pre, "s-", PRE)):
        axes.plot(values, marker, color=color, markersize=5)
    name_line(axes, n, pre[-1], "pre-norm", PRE)
    name_line(axes, middle, post[-1], "post-norm", POST, va="top", xytext=(0, -8))
    axes.plot([n, n + 0.5], [pre[-1], after_last_norm], "--", color=PRE, linewidth=1)
    axes.plot(n + 0.5, after_last_norm, "D", color=PRE)
    name_line(axes, n + 0.5, after_last_norm, "pre-norm, after the last norm", PRE, xytext=(7, -6))
    axes.set(xlabel="layers passed, n", ylabel="root mean square", ylim=(0, None))
    tidy(axes)
    return figure
