"""Figures with controls for a notebook. Import this module only where you need it, because it imports ipywidgets."""

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

SHARPNESS = 1.5  # image pixels per CSS pixel: fewer than in other figures, to draw faster
PAUSE = 0.02  # seconds to wait for more changes before drawing
SMALLEST = 10  # CSS pixels: on a narrow page, a figure scrolls instead of shrinking its text below this size
REST = 0.1  # seconds without a change before slow work begins


class WithPicture(VBox):
    """Controls and a picture. Pages that cannot run widgets, such as an exported notebook, show only the picture.

    Args:
        children: The widgets, from top to bottom.
        picture: The child that these pages show. If the attribute `still` is set to other HTML, these pages show that
            HTML.
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
    """Controls above a picture that is redrawn when a control changes.

    While a slider is dragged, only its latest position is drawn. The first picture is drawn immediately, and any
    exception that `draw` raises is passed on to the caller. If drawing a later picture fails, the error message is
    shown in place of the picture.

    Args:
        controls: Maps each parameter of `draw` to the widget whose `value` it receives.
        draw: A function that takes the values by name and returns a figure. It may move controls without causing a
            redraw. It may also return a tuple of a figure and a function that does slow work. If no control changes
            after the figure is shown, that function is called, and then the picture is drawn again.
        rows: The widgets above the picture. By default, these are the controls, stacked vertically.
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
        """Draw the picture for the current values, and finish all slow work."""
        while rest := self._show():
            rest()

    def _show(self) -> Callable[[], Any] | None:
        """Draw the picture, and return a function that does the remaining slow work. If there is none, return None."""
        self._drawing = True
        try:
            with _undisturbed():
                self.picture.value, rest = self._picture()
        finally:
            self._drawing = False
        return rest

    def _picture(self) -> tuple[str, Callable[[], Any] | None]:
        """Return the figure as HTML, along with a function for any slow work that remains to be done.

        The figure goes out of scope before garbage collection resumes.
        """
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
        except RuntimeError:  # in a script or a test rather than a notebook
            self._answer(self.show)
            return
        self._waiting = True
        loop.call_later(PAUSE, self._answer, self._show_in_parts)

    def _show_in_parts(self, work: Callable[[], Any] | None = None) -> None:
        """Do part of the slow work, redraw, and schedule the next part.

        The pause in between leaves time for the user to move a control.
        """
        if work:
            work()
        if rest := self._show():
            self._rest = asyncio.get_running_loop().call_later(REST, self._answer, self._show_in_parts, rest)

    def _answer(self, show: Callable[..., None], *arguments: Any) -> None:
        self._waiting = False
        try:
            show(*arguments)
        except Exception as error:  # `draw` may raise anything, and a timer's traceback is not shown
            self.picture.value = f"<p>{html.escape(message_of(error))}</p>"


def message_of(error: BaseException) -> str:
    """Return the message of an exception, with the name of its type unless it is an InputError."""
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def scrolling_image(figure: Any, widest: str | None = None) -> str:
    """Return the figure as HTML that scrolls if the page is too narrow for legible text.

    Args:
        figure: A figure from `new_picture`.
        widest: The maximum width, as in CSS. By default, the image shrinks with the page until its smallest text is
            `SMALLEST` pixels high.
    """
    widest = widest or f"max(100%, {_legible_width(figure)}px)"
    image = as_html(figure, SHARPNESS).replace("max-width: 100%", f"max-width: {widest}")
    return f'<div style="overflow-x: auto">{image}</div>'


def _legible_width(figure: Any) -> int:
    """Return the width, in CSS pixels, at which the smallest text of a figure is `SMALLEST` pixels high."""
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    height = min(sizes, default=SMALLEST) * DOTS_PER_INCH / 72  # CSS pixels, at the full size of the picture
    return ceil(round(figure.get_figwidth() * DOTS_PER_INCH) * SMALLEST / height)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable three things that would slow down the drawing of a figure.

    - Garbage collection: during drawing, it would count the unfinished figure as long-lived. After a few pictures, it
      would have to search all objects in memory.
    - Placing titles above any ticks at the top of the axes: there are no such ticks.
    - Aligning text with the pixel grid: the pixels are small enough without it.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with matplotlib.rc_context({"axes.titley": 1.0, "text.hinting": "none"}):
            yield
    finally:
        if collecting:
            gc.enable()
