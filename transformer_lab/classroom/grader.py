"""Grade submissions in worker processes, so that a crash or an endless loop affects only one submission."""

import contextlib
import multiprocessing
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Self

from transformer_lab.classroom.course import Course
from transformer_lab.classroom.resource_limits import ONE_THREAD, Limits
from transformer_lab.classroom.results import SubmissionResult, without_points
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from transformer_lab.classroom.assemble import Assembled

__all__ = ["Grader", "Limits"]

EXTRA_SECONDS = 30.0  # how long after a submission's time limit its worker is killed
START_SECONDS = 300.0
END_SECONDS = 10.0
QUIET_SECONDS = 10.0  # without a result, after which the caller is told that the grader is waiting


@dataclass(frozen=True)
class Setup:
    """The settings that each worker of a grader receives when it starts."""

    limits: Limits
    sandboxed: bool
    seed: int
    course: Path  # folder of the course's notebooks


class Grader:
    """A pool of workers that grade submissions. Use it in a `with` statement, because it starts and stops processes.

    Args:
        limits: Limits for each submission.
        jobs: How many submissions to grade at once. If None, one for each processor.
        require_sandbox: Whether to run students' code only in a sandbox. If False, it may run with your permissions.
        seed: Secret seed of the graded inputs. If None, it is random.
        course: The course with its notebooks. If None, the one in the package's own checkout.

    Raises:
        InputError: A sandbox is required but cannot be created.
    """

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008 (it is immutable)
        jobs: int | None = None,
        require_sandbox: bool = True,
        seed: int | None = None,
        course: Course | None = None,
    ) -> None:
        why = why_no_sandbox()
        if require_sandbox and why:
            raise InputError(
                f"nothing was run, because there is no sandbox: {why}; "
                "--without-sandbox runs students' code with your permissions"
            )
        self.sandboxed = not why
        self.jobs = jobs or _processors()
        seed = secrets.randbits(62) + 1 if seed is None else seed
        self._setup = Setup(limits, self.sandboxed, seed, (course or Course.find()).folder)
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self.folder = opened.enter_context(temporary_folder())
            (self.folder / "matplotlib").mkdir()
            for fonts in _font_lists():
                shutil.copy(fonts, self.folder / "matplotlib")
            for number in range(self.jobs):
                worker = _Worker(self._setup, self.folder, number)
                opened.callback(worker.close)
                self._workers.append(worker)
            self._opened = opened.pop_all()  # everything has started: close it later, in `__exit__`
        return self

    def __exit__(self, *_: object) -> None:
        self._workers = []
        self._opened.close()

    def grade(
        self,
        assembled: "Iterable[Assembled]",
        only: str | None = None,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[SubmissionResult]:
        """Yield results as they arrive. The next submission is taken from the iterable when a worker becomes free.

        Args:
            assembled: The submissions to grade.
            only: Score only this exercise.
            while_waiting: Called each time that no result has arrived for `QUIET_SECONDS`.
        """
        if not self._workers:
            raise RuntimeError("use the grader in a `with` statement")
        remaining = iter(assembled)
        upcoming = next(remaining, None)
        busy: list[_Worker] = []
        try:
            while upcoming is not None or busy:
                if upcoming is not None and len(busy) < self.jobs:
                    worker = next(worker for worker in self._workers if worker not in busy)
                    worker.begin(upcoming, only)
                    busy.append(worker)
                    upcoming = next(remaining, None)  # assembled while the workers are busy
                    continue
                seconds = min(worker.deadline for worker in busy) - time.monotonic()
                ready = wait([worker.connection for worker in busy], max(0.0, min(seconds, QUIET_SECONDS)))
                if not ready:
                    while_waiting()
                for worker in list(busy):
                    if worker.connection in ready or time.monotonic() > worker.deadline:
                        busy.remove(worker)
                        yield worker.result()
        finally:
            for worker in busy:  # the caller doesn't want any more results
                worker.close()


class _Worker:
    """A process that grades submissions one by one. It is restarted if it has ended or had to be killed.

    Without the restart, `test_a_worker_that_dies_costs_one_submission_and_nothing_is_left` fails, and without the
    deadline, `test_a_worker_that_is_late_is_killed_and_has_used_time` fails.
    """

    def __init__(self, setup: Setup, folder: Path, number: int) -> None:
        self._setup, self._shared_folder, self._folder = setup, folder, folder / f"w{number}"
        self._process: subprocess.Popen | None = None
        self._start()

    def _start(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._folder.mkdir(exist_ok=True)
        environment = ONE_THREAD | {
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),  # `multiprocessing` creates a socket there
            "MPLCONFIGDIR": str(self._shared_folder / "matplotlib"),
            "TRANSFORMER_LAB_MINE": "off",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        command = "import sys; from transformer_lab.classroom import worker; worker.main(int(sys.argv[1]), sys.argv[2])"
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", command, str(theirs.fileno()), str(self._folder)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | environment,
                start_new_session=True,
            )
        theirs.close()
        self._is_ready = False
        with contextlib.suppress(OSError):
            self.connection.send(self._setup)

    def begin(self, assembled: "Assembled", only: str | None) -> None:
        self._assembled, self._only = assembled, only
        if self._process is None:
            self._start()
        with contextlib.suppress(OSError, EOFError):  # the process has ended, which `result` reports
            if not self._is_ready:
                if not self.connection.poll(START_SECONDS):
                    self._process.kill()
                self._is_ready = self.connection.recv()
            self.connection.send((assembled, only))
        self.began = time.monotonic()
        self.deadline = self.began + self._setup.limits.submission_seconds + EXTRA_SECONDS

    def result(self) -> SubmissionResult:
        """Return the result. If the worker failed or ran out of time, return a result that says so."""
        try:
            if self.connection.poll():
                return self.connection.recv()
            state, report = "timed out", "The notebook reached its time limit."
        except (OSError, EOFError):
            lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
            reason = lines[-1][:300] if lines else "its process was ended."
            state, report = "grader error", f"The grader failed: {reason}"
        self.close()
        exercises = Course(self._setup.course).exercises(self._assembled.name, self._only)
        return without_points(self._assembled, exercises, state, report, time.monotonic() - self.began)

    def close(self) -> None:
        """Kill the process. Its sandboxes end with it."""
        if self._process is None:
            return
        self.connection.close()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _font_lists() -> list[Path]:
    """Return matplotlib's cached lists of fonts. Creating one takes seconds."""
    configured = os.environ.get("MPLCONFIGDIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return sorted(Path(configured or cache / "matplotlib").glob("fontlist-*.json"))
