"""Explore the scores, weights, and output of attention with two-dimensional vectors that you can change."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from ipywidgets import FloatSlider, HBox, Layout
from matplotlib.figure import Figure

from transformer_lab.model import scaled_dot_product_attention
from transformer_lab.plots.figures import DARK, ORANGE, new_picture, tidy
from transformer_lab.plots.interactive_figure import Explorer
from transformer_lab.plots.shapes import draw_arrow, write

KEYS = ((20.0, 1.6), (110.0, 1.4), (250.0, 1.8))  # angle in degrees, length
COLORS = (DARK, ORANGE, "#1b9e77")  # not red and green, which look alike to some readers; arrows are numbered, too
REACH = 3.2


def draw_scores(
    query: tuple[float, float] = (45.0, 2.0),
    keys: Sequence[tuple[float, float]] = KEYS,
    factor: float = 1.0,
    attention: Any = scaled_dot_product_attention,
) -> Figure:
    """Draw a query and three keys as arrows, with their scores and weights and the output (section 3.2.1).

    The values are equal to the keys.

    Args:
        query: The angle (in degrees) and length of the query.
        keys: The angle (in degrees) and length of each of the three keys.
        factor: The scores are multiplied by this number.
        attention: `scaled_dot_product_attention` or your own version of it.
    """
    query_vector = _vector(*query)[None, None]  # (batch 1, query 1, d_k 2)
    vectors = torch.stack([_vector(*key) for key in keys])[None]  # (batch 1, key, d_k 2)
    output, weights = attention(factor * query_vector, vectors, vectors)
    output, weights = output[0, 0].tolist(), weights[0, 0].tolist()
    scores = (factor / math.sqrt(2) * (query_vector @ vectors.transpose(-2, -1)))[0, 0].tolist()

    gist = ", ".join(f"key {number} has weight {weight:.2f}" for number, weight in enumerate(weights, 1))
    text = f"A query, its keys, and the output as arrows; scores and weights as bars: {gist}."
    figure = new_picture(text, 9.6, 3.9, layout="none")
    margins = {"left": 0.04, "right": 0.985, "bottom": 0.1, "top": 0.9, "wspace": 0.18}
    plane, score_axes, weight_axes = figure.subplots(1, 3, width_ratios=(1.35, 1, 1), gridspec_kw=margins)
    _arrow(plane, query_vector[0, 0].tolist(), "black", "query", width=2.4)
    names = [f"key {number}" for number in range(1, len(scores) + 1)]
    for name, vector, color in zip(names, vectors[0].tolist(), COLORS, strict=True):
        _arrow(plane, vector, color, name)
    plane.plot(*output, "D", color="black", markersize=8, markerfacecolor="white", label="output")
    plane.legend(frameon=False, loc="lower right")
    plane.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), xticks=(-2, 0, 2), yticks=(-2, 0, 2))
    plane.set(aspect="equal", title="the plane")
    plane.grid(color="0.92")
    for axes, numbers, title in ((score_axes, scores, "scores"), (weight_axes, weights, "weights")):
        bars = axes.bar(names, numbers, color=COLORS)
        axes.bar_label(bars, [f"{number:.2f}" for number in numbers], padding=2, fontsize=9)
        axes.set_title(title)
        axes.axhline(0, color="0.4", linewidth=0.8)
    score_axes.set_ylim(min(-1.0, 1.2 * min(scores)), max(1.0, 1.2 * max(scores)))
    score_axes.locator_params(axis="y", nbins=6)
    weight_axes.set(ylim=(0, 1.1), yticks=(0, 0.5, 1))
    tidy(*figure.axes)
    return figure


def explore_scores(attention: Any = scaled_dot_product_attention) -> Any:
    """Return a widget that shows `draw_scores` with sliders for the query, the keys, and the factor.

    Args:
        attention: `scaled_dot_product_attention` or your own version of it.
    """

    def slider(value: float, highest: float, step: float, description: str, unit: str) -> FloatSlider:
        return FloatSlider(
            value=value,
            min=0,
            max=highest,
            step=step,
            description=description,
            readout_format=f".{1 if step < 1 else 0}f",
            style={"description_width": "9em"},
            layout=Layout(width="23em"),
            tooltip=f"{description}, in {unit}",
        )

    controls = {}
    for name, (angle, length) in {"query": (45.0, 2.0), **{f"key {n}": key for n, key in enumerate(KEYS, 1)}}.items():
        controls[f"{name} angle"] = slider(angle, 360, 5, f"{name}, degrees", "degrees")
        controls[f"{name} length"] = slider(length, 3, 0.1, f"{name}, length", "units of the plane")
    controls["factor"] = slider(1.0, 8, 0.1, "scores times", "times")

    def draw(factor: float, **values: float) -> Figure:
        query, *keys = [
            (values[f"{name} angle"], values[f"{name} length"]) for name in ("query", "key 1", "key 2", "key 3")
        ]
        return draw_scores(query, keys, factor, attention)

    sliders = list(controls.values())
    rows = [HBox(sliders[start : start + 2]) for start in range(0, len(sliders), 2)]
    return Explorer(controls, draw, rows)


def _vector(degrees: float, length: float) -> torch.Tensor:
    return length * torch.tensor([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])


def _arrow(axes: Any, vector: Sequence[float], color: str, name: str, width: float = 1.6) -> None:
    draw_arrow(axes, (0, 0), vector, color=color, linewidth=width)
    write(axes, *(1.14 * coordinate for coordinate in vector), name, color=color, fontsize=9)
