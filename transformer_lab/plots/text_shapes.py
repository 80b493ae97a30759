"""Letters in pictures: which fonts they come from, how wide they are, and how to write hundreds of them in no time."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE_FONTS = (
    "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei", "Arial Unicode MS", "Segoe UI Symbol"
)  # fmt: skip


@functools.cache
def token_fonts() -> list[str]:
    """matplotlib's own font, then those of this machine that have Chinese characters or signs that it lacks."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in WIDE_FONTS if name in installed)]


@functools.cache
def has_shape(text: str) -> bool:
    """Whether the first font has all characters of a text."""
    from matplotlib import font_manager

    known = font_manager.get_font(font_manager.findfont(token_fonts()[0])).get_charmap()
    return all(ord(character) in known for character in text)


@functools.cache
def advance(character: str) -> float:
    """The width of a character, as a part of the font's size; 1 for what stands in another font, a Chinese one."""
    from matplotlib import font_manager

    if not has_shape(character):
        return 1.0
    font = font_manager.get_font(font_manager.findfont(token_fonts()[0]))
    font.set_size(100, 72)
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 100


def write_shapes(axes: "Axes", texts: Sequence[tuple[float, float, str, str]], size: float, **look: Any) -> None:
    """Write short texts, each centred on a point, as shapes that are drawn as one thing.

    A tree of a beam search has hundreds, and as texts they would be half of what a reader waits for. Characters that
    need another font than the first have no shape here: see `has_shape`.

    Args:
        axes: Where to write.
        texts: For each the point, in the units of `axes`; what to write; and its colour.
        size: In points.
        look: For all of them, as `zorder`.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import Affine2D

    if not texts:
        return
    drawn = PathCollection(
        [_outline(text, size) for _, _, text, _ in texts],
        offsets=[(x, y) for x, y, _, _ in texts],
        offset_transform=axes.transData,
        facecolors=[colour for *_, colour in texts],
        linewidths=0,
        **look,
    )
    points = Affine2D().scale(1 / 72) + axes.figure.dpi_scale_trans
    drawn.set(transform=points, snap=False, gid="\n".join(text for _, _, text, _ in texts))
    axes.add_collection(drawn, autolim=False)


@functools.lru_cache(maxsize=4096)
def _outline(text: str, size: float) -> Any:
    """The shape of a text around its middle, in points."""
    from matplotlib.path import Path

    x, parts = -size * sum(map(advance, text)) / 2, []
    for character in text:
        if not character.isspace():
            shape = _outline_of_character(character, size)
            centred = np.add(shape.vertices, (x, -0.36 * size))  # half of a digit's height
            parts.append(Path(centred, shape.codes))
        x += size * advance(character)
    return Path.make_compound_path(*parts)


@functools.cache
def _outline_of_character(character: str, size: float) -> Any:
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), character, size=size)
