"""Figures with alternative text. You can save them as PNG or SVG, and you do not have to close them."""

import base64
import html
import io
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageFilter

from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing

DOTS_PER_INCH = 96  # CSS pixels per inch; by default, images have twice as many pixels
# These colors can be told apart in a grayscale printout and by color-blind readers.
DARK, MIDDLE, LIGHT, PALE, ORANGE = "#2171b5", "#6baed6", "#9ecae1", "#deebf7", "#d95f02"
RUST = "#b84300"  # an orange dark enough for text
INK = "#757575"  # replaces black on a transparent background: see `ink_for_light_and_dark`
INK_LIGHTNESS = 0x75 / 255


def new_picture(alternative_text: str, width: float, height: float, layout: str = "constrained") -> Figure:
    """Return an empty figure with alternative text for readers who cannot see it.

    The figure is not registered with pyplot, so you do not have to close it. A cell that ends with the figure shows it
    only once.

    Args:
        alternative_text: A sentence or two describing what the figure shows.
        width: Width in inches.
        height: Height in inches.
        layout: The layout engine. With "none", you have to place everything yourself, but drawing takes half the time.
    """
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout=layout)
    figure.set_label(alternative_text)
    figure._repr_html_ = lambda: as_html(figure)
    return figure


def page_axes(figure: Figure) -> Axes:
    """Return axes that fill the figure, without ticks or a frame. One unit is one inch, and y points down.

    Drawing takes half the time because there are no margins or ticks to lay out.
    """
    width, height = figure.get_size_inches()
    return blank_axes(figure, (0, width), (height, 0))


def blank_axes(
    figure: Figure,
    xlim: tuple[float, float],
    ylim: tuple[float, float],
    place: tuple[float, float, float, float] = (0, 0, 1, 1),
) -> Axes:
    """Return axes without ticks or a frame, and disable the figure's layout engine.

    `place` contains the left and bottom edges, the width, and the height, as fractions of the figure.
    """
    figure.set_layout_engine("none")
    axes = figure.add_axes(place)
    axes.set(xlim=xlim, ylim=ylim)
    axes.set_axis_off()
    return axes


def axes_in_inches(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a position and size in inches, measured from the figure's lower left corner, and return them."""
    whole_width, whole_height = figure.get_size_inches()
    return figure.add_axes((left / whole_width, bottom / whole_height, width / whole_width, height / whole_height))


def tidy(*many_axes: Axes, grid: str | None = None) -> None:
    """Remove the top and right edges of the frame. If `grid` is "x" or "y", draw grid lines behind the data.

    This is used in place of `seaborn.despine` because importing seaborn takes too long for an explorer.
    """
    for axes in many_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        if grid:
            axes.grid(axis=grid, color="0.92")


def as_html(figure: Figure, sharpness: float = 2) -> str:
    """Return the figure as an HTML image with its alternative text and `sharpness` image pixels per CSS pixel."""
    data = as_png(figure, round(sharpness * DOTS_PER_INCH))
    text = html.escape(figure.get_label(), quote=True)
    width = round(figure.get_figwidth() * DOTS_PER_INCH)
    return f'<img alt="{text}" width="{width}" style="max-width: 100%" src="data:image/png;base64,{data}">'


def as_png(figure: Figure, dots_per_inch: int = DOTS_PER_INCH) -> str:
    """Return the figure as a Base64-encoded PNG. A character that no font has is drawn as a box, without a warning.

    Explorers need this to be fast. `savefig` would draw the figure twice and then take just as long to compress the
    image.
    """
    own_dpi = figure.dpi
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        if patch.get_facecolor() == (1, 1, 1, 1):
            patch.set_facecolor("none")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        try:
            figure.dpi = dots_per_inch
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            drawn = np.array(canvas.buffer_rgba())
        finally:
            figure.dpi = own_dpi
    ink_for_light_and_dark(drawn, dots_per_inch)
    return encode_png(drawn, compress_level=2)


def encode_png(pixels: np.ndarray, **options: int) -> str:
    """Return `(rows, columns, channels)`, from 0 to 255, as a Base64-encoded PNG. `options` are Pillow's."""
    image = io.BytesIO()
    Image.fromarray(pixels).save(image, "PNG", **options)
    return base64.b64encode(image.getvalue()).decode("ascii")


def ink_for_light_and_dark(drawn: np.ndarray, dots_per_inch: int) -> None:
    """Make lines and text on a transparent background legible on both white and black pages.

    Black becomes #757575, which has the highest possible contrast with both white and black (4.6, as defined by WCAG).
    Lighter grays become transparent, so they look the same on a white page and do not glare on a black page. Filled
    areas and the text on them keep their colors.

    Args:
        drawn: `(rows, columns, 4)`: red, green, blue, and alpha, from 0 to 255. Modified in place.
        dots_per_inch: Resolution of the image. Opaque regions that measure more than a sixteenth of an inch in both
            directions count as areas; everything else counts as lines and text.
    """
    around = ImageFilter.BoxBlur(dots_per_inch // 32)  # makes erosion and dilation fast
    opaque = Image.fromarray(np.where(drawn[..., 3] == 255, np.uint8(255), np.uint8(0)))
    inside = opaque.filter(around).point([0] * 255 + [255])
    areas = inside.filter(around).point([0] + [255] * 255)
    ink = np.nonzero((drawn[..., 3] > 0) & (np.asarray(areas) == 0))
    color, alpha = drawn[ink][:, :3] / 255, drawn[ink][:, 3]
    is_gray = np.ptp(color, axis=1) < 0.1
    light = color @ (0.2126, 0.7152, 0.0722)
    fading = np.where(is_gray, np.clip((1 - light) / (1 - INK_LIGHTNESS), 0, 1), 1)
    raised = np.where(light < INK_LIGHTNESS, (INK_LIGHTNESS - light) / (1 - light).clip(1e-9), 0)[:, None]
    color = np.where(is_gray[:, None], INK_LIGHTNESS, color + raised * (1 - color))
    drawn[ink] = np.concatenate([color * 255, (alpha * fading)[:, None]], axis=1).round()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Save a figure as PNG (192 dots per inch) or SVG (with text as text), creating its folder if necessary.

    Args:
        figure: A figure from `new_picture`.
        path: A file name that ends in `.png` or `.svg`, which determines the format.

    Raises:
        InputError: The suffix is neither `.png` nor `.svg`, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"cannot save a picture as {path.name}: end its name in .png or .svg")
    metadata = {"Description": figure.get_label()}
    of_svg = {"svg.fonttype": "none", "svg.hashsalt": "transformer-lab"}
    if path.suffix.lower() == ".svg":
        metadata["Date"] = None  # so that the same figure always yields the same file
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, matplotlib.rc_context(of_svg):
        figure.savefig(unfinished, format=path.suffix[1:].lower(), dpi=2 * DOTS_PER_INCH, metadata=metadata,
                       facecolor="white")  # fmt: skip
