"""Line plots with a label next to each line, so that readers do not have to match dash patterns to a legend."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lab.plots.figures import DARK, INK, RUST, new_picture, tidy

COLORS = (DARK, RUST, INK, "#6a51a3")
STYLES = ("-", "--", "-.", ":")


def name_line(axes: Axes, x: float, y: float, name: str, color: str, **look: Any) -> None:
    """Write a line's name to the right of its point `(x, y)`. Annotation properties in `look` override the defaults."""
    look = {"ha": "left", "va": "center", "xytext": (6, 0), "fontsize": 9.5} | look
    axes.annotate(name, (x, y), textcoords="offset points", color=color, annotation_clip=False, **look)


def draw_lines(lines: Mapping[str, Sequence[float]], alternative_text: str, **labels: Any) -> Figure:
    """Draw up to four lines through values at positions 0, 1, 2, …, and write each line's name at its end.

    Args:
        lines: Maps the name of each line to its values.
        alternative_text: The same as in `new_picture`.
        labels: Arguments for `Axes.set`, such as `title`, `xlabel`, `ylabel`, and `ylim`.
    """
    figure = new_picture(alternative_text, 8, 3)
    axes = figure.subplots()
    for (name, values), style, color in zip(lines.items(), STYLES, COLORS, strict=False):
        axes.plot(values, style, color=color, linewidth=1.4)
        name_line(axes, len(values) - 1, values[-1], name, color)
    axes.set(**labels)
    tidy(axes)
    return figure
