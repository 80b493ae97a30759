"""A figure with controls for a notebook. This module imports ipywidgets, so import it only where you need it."""

import asyncio
import gc
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

import matplotlib
from ipywidgets import HTML, VBox, Widget
from matplotlib.text import Text

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DOTS_PER_INCH, as_html

SHARPNESS = 1.5  # pixels per CSS pixel: fewer than in other figures, to draw faster
PAUSE = 0.02  # seconds: changes within this time are drawn once
SMALLEST = 10  # pixels: on a narrow page, a figure scrolls before its text shrinks below this
REST = 0.1  # seconds of quiet before slow work begins


class WithPicture(VBox):
    """Controls and a picture. A page that cannot run widgets (a code host, an export) shows only the picture.

    Args:
        children: The widgets, from top to bottom.
        picture: The child that such a page shows, unless `still` is set to different HTML.
    """

    def __init__(self, children: Sequence[Widget], picture: HTML) -> None:
        self.picture, self.still = picture, ""
        super().__init__(children)

    def _repr_mimebundle_(self, **arguments: Any) -> Any:
        bundle = super()._repr_mimebundle_(**arguments)
        if bundle is not None:
            bundle["text/html"] = self.still or self.picture.value
        return bundle


class Explorer(WithPicture):
    """Controls above a picture. While a slider is dragged, only its latest position is drawn.

    The first picture is drawn at once, and exceptions from `draw` propagate. Later ones are shown in place of the
    picture.

    Args:
        controls: Maps the parameters of `draw` to the widgets whose `value` they receive.
        draw: Takes the values by name and returns a figure. It may move controls without redrawing the figure. It may
            also return a figure and a function for slower work. The function is called after the figure is shown,
            unless a control has moved by then, and the picture is drawn again afterwards.
        rows: The widgets above the picture. The default is the controls, one below another.
        scrolls: Whether a picture that is wider than the page keeps its size and can be scrolled.
    """

    def __init__(
        self,
        controls: Mapping[str, Widget],
        draw: Callable[..., Any],
        rows: Sequence[Widget] | None = None,
        scrolls: bool = False,
    ) -> None:
        self.controls, self._draw, self._scrolls = dict(controls), draw, scrolls
        self._waiting = self._drawing = False
        self._rest: asyncio.TimerHandle | None = None
        picture = HTML()
        super().__init__([*(rows if rows is not None else controls.values()), picture], picture)
        self.show()
        for control in controls.values():
            control.observe(self._changed, "value")

    def show(self) -> None:
        """Draw the picture for the current values, including slower work."""
        while rest := self._show():
            rest()

    def _show(self) -> Callable[[], Any] | None:
        """Draw the picture, and return the work that is left."""
        self._drawing = True
        try:
            with _undisturbed():
                self.picture.value, rest = self._picture()
        finally:
            self._drawing = False
        return rest

    def _picture(self) -> tuple[str, Callable[[], Any] | None]:
        """Return the figure as HTML. Its thousands of objects are no longer used once garbage collection is back on."""
        drawn = self._draw(**{name: control.value for name, control in self.controls.items()})
        figure, rest = drawn if isinstance(drawn, tuple) else (drawn, None)
        return scrolling_image(figure, "none" if self._scrolls else None), rest

    def _changed(self, _: Any) -> None:
        """Draw after a short pause, so that only the latest position of a dragged slider is drawn."""
        if self._drawing or self._waiting:
            return
        if self._rest:
            self._rest.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not in a notebook but in a script or a test
            self._answer(self.show)
            return
        self._waiting = True
        loop.call_later(PAUSE, self._answer, self._show_in_parts)

    def _show_in_parts(self, work: Callable[[], Any] | None = None) -> None:
        """Draw after part of the work, and continue once the reader has had time to move another control."""
        if work:
            work()
        if rest := self._show():
            self._rest = asyncio.get_running_loop().call_later(REST, self._answer, self._show_in_parts, rest)

    def _answer(self, show: Callable[..., None], *arguments: Any) -> None:
        self._waiting = False
        try:
            show(*arguments)
        except InputError as error:
            self.picture.value = f"<p>{html.escape(str(error))}</p>"
        except Exception as error:  # your code may raise anything, and a timer's traceback is not shown
            self.picture.value = f"<p>{html.escape(f'{type(error).__name__}: {error}')}</p>"


def scrolling_image(figure: Any, widest: str | None = None) -> str:
    """Return the figure as HTML that scrolls if the page is too narrow to show the figure with legible text."""
    widest = widest or f"max(100%, {_legible_width(figure)}px)"
    image = as_html(figure, SHARPNESS).replace("max-width: 100%", f"max-width: {widest}")
    return f'<div style="overflow-x: auto">{image}</div>'


def _legible_width(figure: Any) -> int:
    """Return the width in pixels at which the smallest text of a figure is `SMALLEST` pixels high."""
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    height = min(sizes, default=SMALLEST) * DOTS_PER_INCH / 72  # pixels, where the picture isn't shrunk
    return ceil(round(figure.get_figwidth() * DOTS_PER_INCH) * SMALLEST / height)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Switch off three things that take time while a figure is drawn.

    Garbage collection in the middle of drawing treats the half-finished figure as long-lived, so after a few pictures,
    it has to search everything. A title doesn't need to look for ticks above it, because there are none. And text
    doesn't need to be aligned with the pixel grid, because the grid is fine enough here.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with matplotlib.rc_context({"axes.titley": 1.0, "text.hinting": "none"}):
            yield
    finally:
        if collecting:
            gc.enable()
