"""Grades submissions in worker processes, so that one that ends or hangs costs a single submission."""

import contextlib
import multiprocessing
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Self

from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from transformer_lab.classroom.assemble import Assembled
    from transformer_lab.classroom.course import Course

__all__ = ["Grader", "Limits"]

EXTRA_SECONDS = 30.0  # beyond its limit, before a worker that does not come back is killed
START_SECONDS = 300.0
END_SECONDS = 10.0


@dataclass(frozen=True)
class Setup:
    """What every worker of a grader is told when it starts."""

    limits: Limits
    sandboxed: bool
    seed: int
    course: str | None  # folder of the course's notebooks; the checkout of the package, if None


class Grader:
    """Grades submissions, several at once. Use it in a `with` statement: it starts processes and ends them.

    Args:
        limits: Of one submission.
        jobs: How many submissions at once; as many as there are processors, if None.
        require_sandbox: Refuse to run where kernels cannot be put into a sandbox. If False, they have our rights there.
        seed: Secret seed of the inputs that earn points; a random one, if None.
        course: Where the notebooks of the course lie; the checkout of the package, if None.

    Raises:
        InputError: There can be no sandbox, and one is required.
    """

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008 (it cannot be changed)
        jobs: int | None = None,
        require_sandbox: bool = True,
        seed: int | None = None,
        course: "Course | None" = None,
    ) -> None:
        why = why_no_sandbox()
        if require_sandbox and why:
            raise InputError(
                f"nothing was run, because there is no sandbox: {why}; "
                "--without-sandbox runs students' code with your rights"
            )
        self.sandboxed = not why
        self.jobs = jobs or _processors()
        folder = str(course.folder) if course else None
        self._setup = Setup(limits, self.sandboxed, secrets.randbits(31) + 1 if seed is None else seed, folder)
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        self._temporary = temporary_folder()
        self.folder = self._temporary.__enter__()
        (self.folder / "matplotlib").mkdir()
        for fonts in _font_lists():
            shutil.copy(fonts, self.folder / "matplotlib")
        self._workers = [_Worker(self._setup, self.folder, number) for number in range(self.jobs)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._temporary.__exit__(None, None, None)

    def grade(self, assembled: "Iterable[Assembled]", only: str | None = None) -> Iterator[SubmissionResult]:
        """Yield the results as they come. Submissions are taken from the iterable as workers become free.

        Args:
            assembled: Submissions.
            only: Score this exercise alone.
        """
        if not self._workers:
            raise RuntimeError("use the grader in a `with` statement")
        waiting = iter(assembled)
        upcoming = next(waiting, None)
        busy: list[_Worker] = []
        try:
            while upcoming is not None or busy:
                if upcoming is not None and len(busy) < self.jobs:
                    worker = next(worker for worker in self._workers if worker not in busy)
                    worker.begin(upcoming, only)
                    busy.append(worker)
                    upcoming = next(waiting, None)  # made while the workers are busy
                    continue
                seconds = min(worker.deadline for worker in busy) - time.monotonic()
                ready = wait([worker.connection for worker in busy], max(0.0, seconds))
                for worker in list(busy):
                    if worker.connection in ready or time.monotonic() > worker.deadline:
                        busy.remove(worker)
                        yield worker.result()
        finally:
            for worker in busy:  # whoever asked has stopped listening
                worker.close()


class _Worker:
    """A process that grades one submission after another; it is started anew if it ended or had to be killed."""

    def __init__(self, setup: Setup, folder: Path, number: int) -> None:
        self._setup, self._folder, self._number = setup, folder, number
        self._process: subprocess.Popen | None = None
        self._start()

    def _start(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        folder = self._folder / f"w{self._number}"
        folder.mkdir(exist_ok=True)
        environment = {
            "HOME": str(folder),
            "TMPDIR": str(folder),  # `multiprocessing` has a socket there
            "MPLCONFIGDIR": str(self._folder / "matplotlib"),
            "TRANSFORMER_LAB_MINE": "off",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        }
        command = "import sys; from transformer_lab.classroom import worker; worker.main(int(sys.argv[1]), sys.argv[2])"
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", command, str(theirs.fileno()), str(folder)],
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
        """Let it grade a submission."""
        self._assembled, self._only = assembled, only
        if self._process is None:
            self._start()
        with contextlib.suppress(OSError, EOFError):  # it has ended: `result` says so
            if not self._is_ready and self.connection.poll(START_SECONDS):
                self._is_ready = self.connection.recv()
            self.connection.send((assembled, only))
        self.began = time.monotonic()
        self.deadline = self.began + self._setup.limits.submission_seconds + EXTRA_SECONDS

    def result(self) -> SubmissionResult:
        """Return the result, which is there, or one that says why there is none."""
        try:
            if self.connection.poll():
                return self.connection.recv()
            state, report = "timed out", "The time for the whole notebook was up."
        except (OSError, EOFError):
            state, report = "grader error", f"The grader failed: {self._last_words()}"
        self.close()
        return _unscored(self._assembled, self._only, self._setup, state, report, time.monotonic() - self.began)

    def _last_words(self) -> str:
        lines = (self._folder / f"w{self._number}" / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "its process was ended."

    def close(self) -> None:
        """End it: at once if it is grading, and otherwise when it sees that nothing more will come."""
        if self._process is None:
            return
        self.connection.close()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)  # sandboxes end with their worker
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._process = None
        shutil.rmtree(self._folder / f"w{self._number}", ignore_errors=True)


def _unscored(
    assembled: "Assembled", only: str | None, setup: Setup, state: str, report: str, seconds: float
) -> SubmissionResult:
    from transformer_lab.classroom.course import Course

    course = Course(Path(setup.course)) if setup.course else Course.find()
    exercises = tuple(
        ExerciseResult(
            exercise.name, state, 0.0, exercise.points, report=report, source=assembled.sources.get(exercise.name, "")
        )
        for exercise in course.exercises(assembled.name)
        if only in (None, exercise.name)
    )
    return SubmissionResult(assembled.student, assembled.name, "", exercises, assembled.remarks, seconds=seconds)


def _processors() -> int:
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _font_lists() -> list[Path]:
    """Return matplotlib's lists of fonts, where it has made them before: making them takes seconds."""
    given = os.environ.get("MPLCONFIGDIR")
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    return sorted(folder.glob("fontlist-*.json")) if folder.is_dir() else []
