"""Building blocks for schematics: centered text, table cells, rounded boxes, and arrows."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle


def write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Write text centered on `(x, y)`. Text properties in `look` override the defaults, including the alignment."""
    axes.text(x, y, text, **{"ha": "center", "va": "center"} | look)


def add_cell(
    axes: Axes,
    x: float,
    y: float,
    label: str,
    fill: Any,
    *,
    width: float = 1,
    height: float = 1,
    edge: str = "white",
    linewidth: float = 1,
    **look: Any,
) -> None:
    """Draw a rectangle with one corner at `(x, y)` and text at its center. `look` contains text properties."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor=fill, edgecolor=edge, linewidth=linewidth))
    write(axes, x + width / 2, y + height / 2, label, **look)


def add_box(
    axes: Axes, x: float, y: float, width: float, height: float, fill: str, rounding: float = 0.1, **look: Any
) -> FancyBboxPatch:
    """Draw a box with rounded corners, centered on `(x, y)`. `look` contains other properties of the box."""
    look = {"edgecolor": "0.4", "facecolor": fill, "boxstyle": f"round,pad=0,rounding_size={rounding}"} | look
    return axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, **look))


def draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], **look: Any) -> None:
    """Draw an arrow from `start` to `end`, without gaps at the ends. `look` contains properties of the arrow."""
    look = {"color": "0.25", "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 10} | look
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>"} | look)
