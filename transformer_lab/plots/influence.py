"""How much each output position of a module depends on each input position."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from transformer_lab.plots.figures import new_picture
from transformer_lab.plots.shapes import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def set_weights(module: nn.Module, seed: int = 0, gain: float = 1.0) -> None:
    """Initialize matrices with Xavier, and the biases of linear layers with small numbers.

    The parameters are initialized in the order of their names, so the order in which attributes are created doesn't
    matter.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(module.named_parameters()):
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter, gain, generator)
        elif name.endswith("bias") and "norm" not in name:
            nn.init.uniform_(parameter, -0.15, 0.15, generator)


def influence(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return how much each position of `function(x)` depends on each position of `x`.

    Args:
        function: Maps `(1, input, d_model)` to `(1, result, d_model)`.
        x: `(1, input, d_model)`.

    Returns:
        `(result, input)`: the size of the derivatives (the square root of the sum of their squares), with each row
        scaled to sum to 1.
    """
    derivatives = torch.autograd.functional.jacobian(lambda x: function(x)[0], x)[:, :, 0]  # (result, d, input, d)
    sizes = derivatives.square().sum(dim=(1, 3)).sqrt()  # (result, input)
    return sizes / sizes.sum(dim=1, keepdim=True)


def draw_influence(
    panels: Sequence[tuple[str, Tensor, Sequence[str], Sequence[str]]], alternative_text: str
) -> "Figure":
    """Draw tables of `influence` side by side.

    Args:
        panels: For each table, its title, its values `(result, input)`, and the names of its rows and columns.
        alternative_text: As in `new_picture`.
    """
    figure = new_picture(alternative_text, 4.4 * len(panels), 3.7)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, values, rows, columns) in zip(grid, panels, strict=True):
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1)
        for row in range(len(rows)):
            for column in range(len(columns)):
                share = values[row, column].item()
                color = "white" if share > 0.5 else "black"
                write(axes, column, row, f"{share:.2f}" if share else "0", fontsize=8, color=color)
        axes.set_xticks(range(len(columns)), columns, rotation=90)
        axes.set_yticks(range(len(rows)), rows)
        axes.set(xlabel="depends on", ylabel="result")
        axes.set_title(title, fontsize=11)
    return figure
