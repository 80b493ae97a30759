"""Figures that leave nothing open, carry an alternative text, and are saved as PNG or SVG."""

import base64
import html
import io
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 96  # one inch of a figure is as wide on the page; the image itself has twice the dots


def new_picture(alternative_text: str, width: float, height: float) -> "Figure":
    """An empty figure that a notebook shows with `alternative_text`, for those who do not see it.

    pyplot does not know the figure: there is nothing to close, and a cell that ends in it shows it once.

    Args:
        alternative_text: What the picture shows, in a sentence.
        width: In inches, as `height`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    figure.set_label(alternative_text)
    figure._repr_html_ = lambda: as_html(figure)
    return figure


def as_html(figure: "Figure") -> str:
    """The figure as an HTML image that holds its own data and its alternative text."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=2 * DOTS_PER_INCH)
    data = base64.b64encode(image.getvalue()).decode("ascii")
    text = html.escape(figure.get_label(), quote=True)
    width = round(figure.get_figwidth() * DOTS_PER_INCH)
    return f'<img alt="{text}" width="{width}" style="max-width: 100%" src="data:image/png;base64,{data}">'


def save_figure(figure: "Figure", path: str | Path) -> None:
    """Save a figure as what the suffix of `path` says, `.png` or `.svg`. The text of an SVG stays text.

    Raises:
        InputError: Another suffix, or a file that cannot be written.
    """
    import matplotlib

    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"cannot save a picture as {path.name}: end its name in .png or .svg")
    metadata = {"Description": figure.get_label()}
    if path.suffix.lower() == ".svg":
        metadata["Date"] = None  # the same picture gives the same file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "transformer-lab"}):
            figure.savefig(path, dpi=2 * DOTS_PER_INCH, metadata=metadata)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
