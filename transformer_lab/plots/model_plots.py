"""Plots of the whole model: the scale of its embeddings and where its parameters are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transformer_lab.model import TransformerConfig, count_parameters
from transformer_lab.plots.figures import DARK, INK, MIDDLE, new_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PART_COLORS = (DARK, MIDDLE, INK, "#d9d9d9")


def draw_embedding_scale(words: Mapping[str, Tensor], positions: Tensor) -> "Figure":
    """Draw a histogram for each way of initializing embeddings, over the histogram of the positional encodings.

    Args:
        words: Maps the name of each initialization to the scaled embeddings `(…, d_model)`.
        positions: Positional encodings `(length, d_model)`.
    """
    deviations = {name: entries.std().item() for name, entries in words.items()}
    listed = ", ".join(f"{deviation:.2f} for {name}" for name, deviation in deviations.items())
    figure = new_picture(
        "Histograms of the entries of scaled word embeddings over those of the positional encodings "
        f"({positions.std():.2f}). The standard deviations of the words are {listed}.",
        9.5,
        2.9,
    )
    panels = figure.subplots(1, len(words), sharey=True)
    edges = torch.linspace(-4, 4, 81)
    for axes, (name, entries) in zip(panels, words.items(), strict=True):
        for values, look in (
            (positions.flatten(), {"color": "0.75", "label": "positions"}),
            (entries.flatten(), {"histtype": "step", "linewidth": 1.6, "color": DARK, "label": "words"}),
        ):
            density = torch.full_like(values, 1 / (values.numel() * (edges[1] - edges[0]).item()))
            axes.hist(values, edges.tolist(), weights=density, **look)
        axes.set(title=f"{name}: {deviations[name]:.2f}", xlabel="entry", ylim=(0, 2.5))
    panels[0].set_ylabel("density")
    panels[0].legend(frameon=False)
    return figure


def parameter_shares(config: TransformerConfig) -> dict[str, int]:
    """Return how many parameters each kind of part has. They add up to `count_parameters(config)`."""
    d_model, d_ff, layers = config.d_model, config.d_ff, config.n_layers
    norms = 5 * layers + 2 * config.norm_first
    shares = {
        "attention": 3 * layers * 4 * (d_model**2 + d_model),
        "feed-forward": 2 * layers * (2 * d_model * d_ff + d_ff + d_model),
        "norms": norms * 2 * d_model,
    }
    return shares | {"embeddings and output": count_parameters(config) - sum(shares.values())}


def draw_parameter_shares(configs: Mapping[str, TransformerConfig]) -> "Figure":
    """Draw one bar per model, split by the kind of part its parameters belong to."""
    shares = {name: parameter_shares(config) for name, config in configs.items()}
    listed = "; ".join(
        f"{name}: " + ", ".join(f"{part} {count / 1e6:.1f}" for part, count in parts.items())
        for name, parts in shares.items()
    )
    figure = new_picture(
        f"Stacked bars of the parameters of each model, in millions. {listed}.", 8, 1.2 + 0.7 * len(configs)
    )
    axes = figure.subplots()
    for row, parts in enumerate(shares.values()):
        left = 0.0
        for (part, count), color in zip(parts.items(), PART_COLORS, strict=True):
            millions = count / 1e6
            label = part if row == 0 else None
            axes.barh(row, millions, left=left, color=color, edgecolor="white", label=label)
            if millions > 3:
                ink = "white" if color == DARK else "black"
                axes.text(left + millions / 2, row, f"{millions:.0f}", ha="center", va="center", color=ink)
            left += millions
    axes.set_yticks(range(len(shares)), list(shares))
    axes.set(xlabel="million parameters")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.3))
    return figure
