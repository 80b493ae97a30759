"""Text drawn as shapes: choose fonts, measure widths, and write hundreds of labels quickly."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

WIDE_FONTS = (
    "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei", "Arial Unicode MS", "Segoe UI Symbol"
)  # fmt: skip


@functools.cache
def token_fonts() -> list[str]:
    """Return font names: first matplotlib's own font, then installed fonts for characters it lacks, such as Chinese."""
    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in WIDE_FONTS if name in installed)]


@functools.cache
def has_shape(text: str) -> bool:
    """Return whether the first of `token_fonts` has every character in `text`."""
    known = font_manager.get_font(font_manager.findfont(token_fonts()[0])).get_charmap()
    return all(ord(character) in known for character in text)


@functools.cache
def advance(character: str) -> float:
    """Return a character's width relative to the font size. If the first font lacks the character, return 1."""
    if not has_shape(character):
        return 1.0
    font = font_manager.get_font(font_manager.findfont(token_fonts()[0]))
    font.set_size(100, 72)
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 100


def write_shapes(axes: Axes, texts: Sequence[tuple[float, float, str, str]], size: float, **look: Any) -> None:
    """Write short labels, each centered on a point, as a single collection of shapes.

    A beam search tree has hundreds of labels. As ordinary text, they would take up half of the drawing time.
    Characters that the first font lacks cannot be drawn this way: see `has_shape`.

    Args:
        axes: The axes to write on.
        texts: For each label, the x and y of its center in the units of `axes`, the text, and the color.
        size: Font size in points.
        look: Properties that all labels share, such as `zorder`.
    """
    if not texts:
        return
    drawn = PathCollection(
        [_outline(text, size) for _, _, text, _ in texts],
        offsets=[(x, y) for x, y, _, _ in texts],
        offset_transform=axes.transData,
        facecolors=[color for *_, color in texts],
        linewidths=0,
        **look,
    )
    points = Affine2D().scale(1 / 72) + axes.figure.dpi_scale_trans
    drawn.set(transform=points, snap=False, gid="\n".join(text for _, _, text, _ in texts))
    axes.add_collection(drawn, autolim=False)


@functools.lru_cache(maxsize=4096)
def _outline(text: str, size: float) -> Any:
    """Return the outline of `text` as a path in points, centered on the origin."""
    x, parts = -size * sum(map(advance, text)) / 2, []
    for character in text:
        if not character.isspace():
            shape = _outline_of_character(character, size)
            centered = np.add(shape.vertices, (x, -0.36 * size))  # half the height of a digit
            parts.append(Path(centered, shape.codes))
        x += size * advance(character)
    return Path.make_compound_path(*parts)


@functools.cache
def _outline_of_character(character: str, size: float) -> Any:
    return TextPath((0, 0), character, size=size)
