"""A widget for a training run in the background: its curves, a sample per epoch, and buttons to pause and stop it."""

import html
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ipywidgets import HTML, Button, HBox

from transformer_lab.plots.curves import draw_curves
from transformer_lab.plots.interactive_figure import WithPicture, message_of, scrolling_image

Record = Mapping[str, Any]


class TrainingWatch(WithPicture):
    """Start a training run in the background and show its progress, with buttons to pause and stop it.

    To show the widget, make it the last expression of a cell. You can run more cells while the model trains. Stopping
    raises KeyboardInterrupt in `run`, as Ctrl-C does.

    Args:
        run: A function that trains the model. Its argument is a function to call with every record, like the `on_log`
            argument of `train`: `explore_training(lambda on_log: train("tour", "runs/tour", on_log=on_log))`.
        sample: A function that is called after each epoch. The string that it returns, such as a translation, is shown.
        seconds: Minimum time between updates of the curves, in seconds.

    Attributes:
        result: The return value of `run`, once `state` is "finished".
        state: "running", "paused", "stopped", "finished", or "failed".
    """

    def __init__(
        self,
        run: Callable[[Callable[[Record], None]], Any],
        sample: Callable[[], str] | None = None,
        seconds: float = 2.0,
    ) -> None:
        self.records: list[Record] = []
        self.result: Any = None
        self.state = "running"
        self._error: BaseException | None = None
        self._run, self._sample, self._seconds = run, sample, seconds
        self._drawn = -float("inf")
        self._may_go_on, self._must_stop = threading.Event(), threading.Event()
        self._may_go_on.set()
        self.pause = Button(description="Pause", icon="pause")
        self.stop = Button(description="Stop", icon="stop")
        self.says, self.samples, picture = HTML(), HTML(), HTML("<p>The curves appear after the first steps.</p>")
        self.pause.on_click(self._pause_or_go_on)
        self.stop.on_click(self._stop)
        super().__init__([HBox([self.pause, self.stop, self.says]), picture, self.samples], picture)
        self._say("running", "starting …")
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def wait(self) -> "TrainingWatch":
        """Wait until the run ends or is paused, and return this widget.

        Raises:
            Exception: The run failed with this exception.
        """
        while self.thread.is_alive() and self._may_go_on.is_set():
            self.thread.join(0.05)
        if self._error is not None:
            raise self._error
        return self

    def figure(self) -> Any:
        """Return a figure of the curves so far, for example to keep it as a cell's output."""
        return draw_curves(self.records)

    def _work(self) -> None:
        try:
            self.result = self._run(self._take)
        except KeyboardInterrupt:  # raised by `_take` to end the run as Ctrl-C would
            self._say("stopped", "stopped: everything up to here is kept")
        except BaseException as error:  # an exception would end the thread silently
            self._error = error
            self._say("failed", message_of(error))
        else:
            self._say("finished", "finished")
        self._draw()
        self.pause.disabled = self.stop.disabled = True

    def _take(self, record: Record) -> None:
        """Handle one record. The training run calls this from its own thread."""
        self.records.append(record)
        if record["kind"] == "epoch" and self._sample is not None:
            line = f"epoch {record['epoch']}: {self._sample()}"
            self.samples.value += f"<div>{html.escape(line)}</div>"
        if record["kind"] != "step" or time.monotonic() - self._drawn >= self._seconds:
            self._draw()
            where = self._where()
            if self.state == "running":  # a click may change the state at any time, so change only the text
                self._write(where)
        self._may_go_on.wait()
        if self._must_stop.is_set():
            raise KeyboardInterrupt

    def _where(self) -> str:
        last = next(record for record in reversed(self.records) if "step" in record)  # the final record has no step
        numbers = [f"step {last['step']}"]
        for name, field in (("loss", "loss"), ("rate", "rate"), ("gradient norm", "gradient_norm")):
            if field in last:
                numbers.append(f"{name} {last[field]:.3g}")
        return ", ".join(numbers)

    def _draw(self) -> None:
        if self.records:
            self.picture.value = scrolling_image(draw_curves(self.records))
        self._drawn = time.monotonic()

    def _say(self, state: str, text: str) -> None:
        self.state = state
        self._write(text)

    def _write(self, text: str) -> None:
        self.says.value = f"<span role='status'>{html.escape(text)}</span>"

    def _pause_or_go_on(self, _: Any) -> None:
        if self._may_go_on.is_set():
            self._may_go_on.clear()
            self.pause.description, self.pause.icon = "Continue", "play"
            self._say("paused", "paused after the current step")
        else:
            self.pause.description, self.pause.icon = "Pause", "pause"
            self._say("running", "running")
            self._may_go_on.set()

    def _stop(self, _: Any) -> None:
        self._must_stop.set()
        self._may_go_on.set()
        self._say(self.state, "stopping after the current step …")


explore_training = TrainingWatch
