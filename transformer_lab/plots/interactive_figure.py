"""A picture that follows its controls, in a notebook. Imports ipywidgets: import this module where it is used."""

import asyncio
import gc
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

from ipywidgets import HTML, VBox, Widget

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import DOTS_PER_INCH, as_html

SHARPNESS = 1.5  # fewer dots than other pictures have: drawing them is what a reader waits for
PAUSE = 0.02  # seconds: what a slider sends in that time is drawn once
SMALLEST = 10  # pixels: a narrow page scrolls a picture rather than shrink its text below that
REST = 0.1  # seconds of quiet before slow work begins


class WithPicture(VBox):
    """Controls and a picture. A page that cannot run them (a code host, an export) shows the picture alone.

    Args:
        children: What is shown, from top to bottom.
        picture: The one of them that stands for all, unless `still` is set to other HTML.
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
    """Controls above a picture. However fast a slider is dragged, only where it has come to is drawn.

    The first picture is drawn at once, and what `draw` raises is raised. What it raises later is written in the
    picture's place.

    Args:
        controls: Widgets with a `value`, by the name under which `draw` gets it.
        draw: Takes the values by name and returns a figure. It may move controls: that draws no other picture. It may
            also return a figure and a function: what takes longer than a reader waits. That is called when the figure
            has been shown, unless a control has moved by then, and afterwards the picture is drawn once more.
        rows: What stands above the picture, if it is not just the controls one below the other.
        scrolls: A picture wider than the page keeps its size, and can be scrolled.
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
        """Draw what the controls say now, to the end."""
        while rest := self._show():
            rest()

    def _show(self) -> Callable[[], Any] | None:
        """Draw, and return what is left to do."""
        self._drawing = True
        try:
            with _undisturbed():
                self.picture.value, rest = self._picture()
        finally:
            self._drawing = False
        return rest

    def _picture(self) -> tuple[str, Callable[[], Any] | None]:
        """The figure leaves this function as text: its thousands of parts are garbage when collecting is on again."""
        drawn = self._draw(**{name: control.value for name, control in self.controls.items()})
        figure, rest = drawn if isinstance(drawn, tuple) else (drawn, None)
        return scrolling_image(figure, "none" if self._scrolls else None), rest

    def _changed(self, _: Any) -> None:
        """Wait a moment, so that of a slider that is dragged fast only the last position is drawn."""
        if self._drawing or self._waiting:
            return
        if self._rest:
            self._rest.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no notebook: a script or a test
            self._answer(self.show)
            return
        self._waiting = True
        loop.call_later(PAUSE, self._answer, self._show_in_parts)

    def _show_in_parts(self, work: Callable[[], Any] | None = None) -> None:
        """Draw after some work, and come back for the rest when the reader has had time to move something else."""
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
        except Exception as error:  # the reader's own part may raise anything, and nobody sees what ends a timer
            self.picture.value = f"<p>{html.escape(f'{type(error).__name__}: {error}')}</p>"


def scrolling_image(figure: Any, widest: str | None = None) -> str:
    """Return the figure as HTML that a narrow page scrolls where shrinking it would make its text illegible."""
    widest = widest or f"max(100%, {_legible_width(figure)}px)"
    image = as_html(figure, SHARPNESS).replace("max-width: 100%", f"max-width: {widest}")
    return f'<div style="overflow-x: auto">{image}</div>'


def _legible_width(figure: Any) -> int:
    """Return the width in pixels at which the smallest text of a figure is `SMALLEST` pixels high."""
    from matplotlib.text import Text

    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    height = min(sizes, default=SMALLEST) * DOTS_PER_INCH / 72  # pixels, where the picture isn't shrunk
    return ceil(round(figure.get_figwidth() * DOTS_PER_INCH) * SMALLEST / height)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Draw without three things that a reader would wait for.

    Collecting garbage in the middle of a picture keeps the half-finished figure, as if it were to last; after some
    pictures everything there is would be searched for it. And a title need not look for the ticks that it might meet:
    here no ticks are above. And letters need not be fitted to the grid of dots, which is fine enough here.
    """
    import matplotlib

    collecting = gc.isenabled()
    gc.disable()
    try:
        with matplotlib.rc_context({"axes.titley": 1.0, "text.hinting": "none"}):
            yield
    finally:
        if collecting:
            gc.enable()
