"""A picture that follows its controls, in a notebook. Imports ipywidgets: import this module where it is used."""

import asyncio
import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipywidgets import HTML, VBox, Widget

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import as_html

SHARPNESS = 1.5  # half the dots of other pictures: drawing them is what a reader waits for
PAUSE = 0.03  # seconds: what a slider sends in that time is drawn once


class WithPicture(VBox):
    """Controls and a picture. A page that cannot run them (a code host, an export) shows the picture alone.

    Args:
        children: What is shown, from top to bottom.
        picture: The one of them that stands for all.
    """

    def __init__(self, children: Sequence[Widget], picture: HTML) -> None:
        self.picture = picture
        super().__init__(children)

    def _repr_mimebundle_(self, **arguments: Any) -> Any:
        bundle = super()._repr_mimebundle_(**arguments)
        if bundle is not None:
            bundle["text/html"] = self.picture.value
        return bundle


class Explorer(WithPicture):
    """Controls above a picture.

    Args:
        controls: Widgets with a `value`, by the name under which `draw` gets it.
        draw: Takes the values by name and returns a figure. An InputError's message is shown in the picture's place.
        rows: What stands above the picture, if it is not just the controls one below the other.
    """

    def __init__(
        self, controls: Mapping[str, Widget], draw: Callable[..., Any], rows: Sequence[Widget] | None = None
    ) -> None:
        self.controls, self._draw = dict(controls), draw
        self._waiting = False
        picture = HTML()
        super().__init__([*(rows if rows is not None else controls.values()), picture], picture)
        for control in controls.values():
            control.observe(self._changed, "value")
        self.show()

    def show(self) -> None:
        """Draw what the controls say now."""
        self._waiting = False
        try:
            figure = self._draw(**{name: control.value for name, control in self.controls.items()})
        except InputError as error:
            self.picture.value = f"<p>{html.escape(str(error))}</p>"
        else:
            self.picture.value = as_html(figure, SHARPNESS)

    def _changed(self, _: Any) -> None:
        """Wait a moment, so that of a slider that is dragged fast only the last position is drawn."""
        if self._waiting:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no notebook: a script or a test
            self.show()
            return
        self._waiting = True
        loop.call_later(PAUSE, self.show)
