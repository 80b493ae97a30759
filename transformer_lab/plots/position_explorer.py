"""Positional encodings (section 3.5) as a heat map, as waves, and as similarities between positions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ipywidgets import FloatLogSlider, HBox, IntSlider, Layout
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lab.plots.figures import DARK, new_picture, tidy
from transformer_lab.plots.interactive_figure import Explorer


def draw_positions(d_model: int = 32, length: int = 60, base: float = 10_000.0, position: int = 20) -> Figure:
    """Draw positional encodings (section 3.5) as a heat map, as waves, and as similarities to one position.

    The similarity is the dot product of two encodings divided by `d_model / 2`, so it is 1 for equal positions.

    Args:
        d_model: Number of features, an even number.
        length: Number of positions.
        base: The base in the formula for the angles (10,000 in the paper). With a large `d_model`, the longest
            wavelength is close to 2π times this number.
        position: The position to compare with, from 0. If it is too large, the last position is used.
    """
    position = min(position, length - 1)
    frequencies = base ** (-np.arange(0, d_model, 2) / d_model)  # (d_model / 2,)
    angles = np.arange(length)[:, None] * frequencies  # (length, d_model / 2)
    sines, cosines = np.sin(angles), np.cos(angles)
    # The dot product of two encodings is a sum of cosines: sin a sin b + cos a cos b = cos(a - b).
    similarity = np.cos((np.arange(length) - position)[:, None] * frequencies).mean(axis=1)

    figure = new_picture(
        f"The positional encoding of {length} positions with d_model {d_model} and base {base:g}: a heat map, its "
        f"waves, and the similarity of every position to position {position}, which falls off on both sides.",
        10.2,
        3.6,
        layout="none",
    )
    margins = {"left": 0.06, "right": 0.985, "bottom": 0.15, "top": 0.9, "wspace": 0.36}
    table, waves, alike = figure.subplots(1, 3, width_ratios=(1.2, 1, 1), gridspec_kw=margins)
    image = np.empty((length, d_model))
    image[:, 0::2], image[:, 1::2] = sines, cosines
    drawn = table.imshow(image, aspect="auto", cmap="PuOr", vmin=-1, vmax=1, interpolation="nearest")
    table.set(xlabel="feature", ylabel="position", title="the table")
    figure.colorbar(drawn, ax=table, shrink=0.8, ticks=(-1, 0, 1))
    chosen = np.unique(np.linspace(0, d_model // 2 - 1, 4).astype(int))
    draw_waves(waves, {f"feature {2 * pair}": sines[:, pair] for pair in chosen})
    waves.set_title("four of its waves" if len(chosen) == 4 else "its waves")
    alike.plot(similarity, color=DARK)
    alike.axvline(position, color="0.6", linestyle=":", linewidth=1)
    alike.set(xlabel="position", ylim=(-0.6, 1.1), yticks=(-0.5, 0, 0.5, 1), title=f"similarity to position {position}")
    for axes in (table, waves, alike):
        axes.locator_params(axis="x", nbins=5)
    tidy(alike)
    return figure


def draw_waves(axes: Axes, waves: Mapping[str, Sequence[float]]) -> None:
    """Draw vertically stacked waves with values from -1 to 1, each with its name on the left."""
    heights = [-2.6 * row for row in range(len(waves))]
    for height, wave in zip(heights, waves.values(), strict=True):
        axes.axhline(height, color="0.85", linewidth=0.8)
        axes.plot(np.asarray(wave) + height, color=DARK, linewidth=1.4)
    axes.set_yticks(heights, list(waves))
    axes.set(xlabel="position", ylim=(heights[-1] - 1.3, 1.3))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def explore_positions() -> Any:
    """Return a widget that shows `draw_positions` with a slider for each argument."""
    same = {"style": {"description_width": "9em"}, "layout": Layout(width="27em")}
    controls = {
        "d_model": IntSlider(32, 2, 128, step=2, description="d_model", **same),
        "length": IntSlider(60, 2, 200, description="length, positions", **same),
        "base": FloatLogSlider(
            10_000.0, base=10, min=0.5, max=5, step=0.1, readout_format=",.0f", description="base", **same
        ),
        "position": IntSlider(20, 0, 199, description="position, from 0", **same),
    }
    sliders = list(controls.values())
    return Explorer(controls, draw_positions, [HBox(sliders[:2]), HBox(sliders[2:])])
