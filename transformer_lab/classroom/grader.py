"""Grades submissions: one process each, forked from one that has imported everything, with a kernel in a sandbox."""

import contextlib
import gc
import importlib
import itertools
import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transformer_lab.classroom.kernel_client import Zygotes
from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from transformer_lab.classroom.assemble import Assembled
    from transformer_lab.classroom.course import Course

__all__ = ["Grader", "Limits"]

# Some of pytest's own; the two about exceptions collect the garbage of all that torch has, several times.
UNUSED_PLUGINS = ("cacheprovider", "doctest", "faulthandler", "logging", "threadexception", "unraisableexception")
EXTRA_SECONDS = 30.0  # beyond its limit, before a worker that does not come back is killed
START_SECONDS = 300.0
END_SECONDS = 20.0


class Grader:
    """Grades submissions, several at once. Use it in a `with` statement: it starts processes and ends them.

    Args:
        limits: Of one submission.
        jobs: How many submissions at once; as many as there are processors, if None.
        require_sandbox: Refuse to run where kernels cannot be put into a sandbox; there they have our rights, if False.
        seed: Secret, of the inputs that earn points: a new one a run, if None.
        course: Where the notebooks of the course lie; the checkout of the package, if None.

    Raises:
        InputError: there can be no sandbox, and one is required.
    """

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008 (it cannot be changed)
        jobs: int | None = None,
        require_sandbox: bool = True,
        seed: int | None = None,
        course: "Course | None" = None,
    ) -> None:
        self.why_not_sandboxed = why_no_sandbox()
        if require_sandbox and self.why_not_sandboxed:
            raise InputError(
                f"nothing was run, because there is no sandbox: {self.why_not_sandboxed}; "
                "--without-sandbox runs students' code with your rights"
            )
        self.sandboxed = not self.why_not_sandboxed
        self.limits = limits
        self.jobs = jobs or _processors()
        self.seed = secrets.randbits(31) + 1 if seed is None else seed
        self.course = course
        self._process: subprocess.Popen | None = None
        self._number = 0

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._temporary = temporary_folder()
        self._folder = self._temporary.__enter__()
        begin = {
            "folder": str(self._folder),
            "limits": asdict(self.limits),
            "jobs": self.jobs,
            "sandboxed": self.sandboxed,
            "seed": self.seed,
            "course": str(self.course.folder) if self.course else None,
        }
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with open(self._folder / "grader.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "transformer_lab.classroom.grader", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | one_thread | {"TRANSFORMER_LAB_MINE": "off", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                start_new_session=True,
            )
        theirs.close()
        self._lines = _Lines(ours)
        self._lines.send(begin)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._lines.close()  # it ends its workers and itself then
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None
        self._temporary.__exit__(None, None, None)

    def grade(self, assembled: "Iterable[Assembled]", only: str | None = None) -> "Iterator[SubmissionResult]":
        """The results, as they come, `jobs` at once. Submissions are taken from the iterable as there is room.

        Args:
            assembled: Submissions.
            only: Score this exercise alone.
        """
        if self._process is None:
            raise RuntimeError("use the grader in a `with` statement")
        waiting = iter(assembled)
        running: dict[int, Assembled] = {}
        more = True
        while more or running:
            while more and len(running) < self.jobs + 1:  # one in reserve, so that no processor waits for us
                one = next(waiting, None)
                if one is None:
                    more = False
                    break
                self._number += 1  # never used again: an answer to somebody who has stopped to listen finds nobody
                running[self._number] = one
                try:
                    self._lines.send({"number": self._number, "only": only, "assembled": _as_json(one)})
                except OSError:
                    break
            if not running:
                break
            answer = self._lines.receive(None)
            if answer is None:  # the process that forks the workers is gone: nothing of ours may stop a batch
                for left in running.values():
                    yield _not_graded(left, f"the grader stopped: {self._last_words()}")
                running.clear()
                self._stop()
                self._start()
            elif answer["number"] in running:
                graded = running.pop(answer["number"])
                yield _as_result(graded, answer)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self._folder / "grader.log").read_text(errors="replace").strip().splitlines()
            return lines[-1][:300] if lines else "it says no more"
        return "it says no more"


def _processors() -> int:
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def readable_package(folder: Path, name: str) -> Path:
    """Write the stubbed package of a notebook; returns the folder to put on the path."""
    from transformer_lab.classroom.stubbed_package import write_stubbed_package

    write_stubbed_package(folder, [name])
    return folder


def assembled_file(run: Any) -> Path:
    """Write the assembled notebook for pytest, under a name that is never the student's."""
    path = run.setting.folder / f"{run.assembled.name}.ipynb"
    path.write_text(json.dumps(run.assembled.notebook), encoding="ascii")
    return path


def _as_json(assembled: "Assembled") -> dict[str, Any]:
    return {
        "student": assembled.student,
        "name": assembled.name,
        "notebook": assembled.notebook,
        "sources": assembled.sources,
        "flags": {name: list(flags) for name, flags in assembled.flags.items()},
        "remarks": list(assembled.remarks),
    }


def _as_result(assembled: "Assembled", answer: dict[str, Any]) -> SubmissionResult:
    fields = ("misconceptions", "flags", "remarks")
    exercises = tuple(
        ExerciseResult(**{key: tuple(value) if key in fields else value for key, value in one.items()})
        for one in answer["exercises"]
    )
    return SubmissionResult(
        student=assembled.student,
        notebook=assembled.name,
        digest="",
        exercises=exercises,
        remarks=(*assembled.remarks, *answer.get("remarks", ())),
        problem=answer["problem"],
        seconds=answer["seconds"],
        junit=answer["junit"],
    )


def _not_graded(assembled: "Assembled", problem: str) -> SubmissionResult:
    return _as_result(assembled, {"exercises": [], "problem": problem, "seconds": 0.0, "junit": ""})


class _Lines:
    """JSON, a line each, over a socket. Who sends reads meanwhile, so that two who send do not wait for each other."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.setblocking(False)
        self.waiting: deque[bytes] = deque()  # lines that have come
        self._parts: list[bytes] = []  # of the next one
        self._is_closed = False

    def send(self, message: dict[str, Any]) -> None:
        """Raises:
        OSError: the other side is gone.
        """
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            ready = self._poll(select.POLLIN | select.POLLOUT, None)
            if ready & ~select.POLLOUT:
                self._read()
            if self._is_closed:
                raise BrokenPipeError("the other side is gone")
            if ready & select.POLLOUT:
                left = left[self.connection.send(left[: 1 << 20]) :]

    def receive(self, seconds: float | None) -> dict[str, Any] | None:
        """The next message; None when the other side has closed, or none came within so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self.waiting:
            left = None if end is None else end - time.monotonic()
            if self._is_closed or (left is not None and left <= 0):
                return None
            if self._poll(select.POLLIN, left):
                self._read()
        return json.loads(self.waiting.popleft())

    def _poll(self, events: int, seconds: float | None) -> int:
        poll = select.poll()
        poll.register(self.connection, events)
        ready = poll.poll(None if seconds is None else seconds * 1000)
        return ready[0][1] if ready else 0

    def _read(self) -> None:
        try:
            data = self.connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._is_closed = True
        *whole, rest = data.split(b"\n")
        for line in whole:
            self.waiting.append(b"".join([*self._parts, line]))
            self._parts.clear()
        self._parts.append(rest)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


# The process that forks the workers -----------------------------------------------------------------------------------


@dataclass
class _Worker:
    number: int
    message: dict[str, Any]
    folder: Path
    pipe: int
    began: float = field(default_factory=time.monotonic)
    data: bytearray = field(default_factory=bytearray)


class _Server:
    """Holds what all submissions share: the package, the references, the zygotes. It has one thread."""

    def __init__(self, lines: _Lines) -> None:
        begin = lines.receive(START_SECONDS)
        self.lines = lines
        self.folder = Path(begin["folder"])
        self.limits = Limits(**begin["limits"])
        self.jobs, self.sandboxed, self.seed = begin["jobs"], begin["sandboxed"], begin["seed"]
        self.zygotes = Zygotes(self.folder)  # it imports while we do
        import torch

        torch.set_num_threads(1)
        import _pytest.config
        import nbval.plugin  # noqa: F401
        import zmq  # noqa: F401

        from transformer_lab.classroom import graded  # noqa: F401
        from transformer_lab.classroom.course import Course

        for name in _pytest.config.default_plugins:
            if name not in UNUSED_PLUGINS:
                importlib.import_module(f"_pytest.{name}")
        self.course = Course(Path(begin["course"])) if begin["course"] else Course.find()
        self.sources: dict[str, tuple[Path, Path]] = {}  # notebook to the socket of its zygote and its package
        self.made = 0
        self.waiting: deque[dict[str, Any]] = deque()
        self.workers: dict[int, _Worker] = {}  # by process

    def serve(self) -> None:
        """Until the other side closes."""
        while True:
            while self.waiting and len(self.workers) < self.jobs:
                self._begin(self.waiting.popleft())
            poll = select.poll()
            poll.register(self.lines.connection, select.POLLIN)
            for worker in self.workers.values():
                poll.register(worker.pipe, select.POLLIN)
            ready = {number for number, _ in poll.poll(0 if self.lines.waiting else 1000)}
            if self.lines.waiting or self.lines.connection.fileno() in ready:
                message = self.lines.receive(START_SECONDS)
                if message is None:
                    return
                self.waiting.append(message)
            for process, worker in list(self.workers.items()):
                if worker.pipe in ready:
                    data = os.read(worker.pipe, 1 << 20)
                    worker.data += data
                    if not data:
                        self._finish(process, worker)
                elif time.monotonic() > worker.began + self.limits.submission_seconds + EXTRA_SECONDS:
                    with contextlib.suppress(OSError):
                        os.kill(process, signal.SIGKILL)

    def _begin(self, message: dict[str, Any]) -> None:
        name = message["assembled"]["name"]
        try:
            source, package = self._source(name)
        except Exception as error:
            self._answer(message, problem=f"the grader failed: {error}")
            return
        folder = self.folder / f"w{message['number']}"
        folder.mkdir()
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.close(reading)
                self._be_a_worker(message, folder, writing, source, package)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        self.workers[process] = _Worker(message["number"], message, folder, reading)

    def _source(self, name: str) -> tuple[Path, Path]:
        if self.zygotes.process.poll() is not None:
            self.zygotes = Zygotes(self.folder)
            self.sources.clear()
        if name not in self.sources:
            self.made += 1
            package = readable_package(self.folder / f"p{self.made}", name)
            source = self.zygotes.notebook(f"z{self.made}", package)
            self._warm_up(name)
            gc.collect()
            gc.freeze()  # what is here stays, and workers share it
            self.sources[name] = source, package
        return self.sources[name]

    def _warm_up(self, name: str) -> None:
        """Find out what the answers give, and read the recipes, so that no worker has to."""
        from transformer_lab.classroom.scoring import request
        from transformer_lab.exercises.catalogue import mistakes_of
        from transformer_lab.exercises.exercise import PUBLIC_SEED
        from transformer_lab.exercises.verdicts import known_settings, reference_of

        of_notebook = self.course.exercises(name)
        for exercise in of_notebook:
            request(exercise, self.seed, {other.name for other in of_notebook})  # it reads the recipes' texts
            for seed in (self.seed, PUBLIC_SEED):
                reference = reference_of(exercise, seed)
                with known_settings():
                    for check, mistake in itertools.product(exercise.checks, mistakes_of(exercise)):
                        for way in mistake.ways:
                            reference.is_symptom(way, check)

    def _be_a_worker(self, message: dict[str, Any], folder: Path, writing: int, source: Path, package: Path) -> None:
        for worker in self.workers.values():
            os.close(worker.pipe)
        self.lines.connection.close()
        _die_with_parent()
        answer = _graded(message, folder, source, package, self)
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writing, data) :]

    def _finish(self, process: int, worker: _Worker) -> None:
        del self.workers[process]
        os.close(worker.pipe)
        os.waitpid(process, 0)  # it has closed its pipe: it is ending, or killed
        shutil.rmtree(worker.folder, ignore_errors=True)
        try:
            answer = json.loads(worker.data)
        except ValueError:
            answer = None
        if answer is not None and answer["kernels"] == 0 and not worker.message.get("again"):
            # Something has ended a zygote, the system for want of memory perhaps: make new ones, and try once more.
            self.sources.pop(worker.message["assembled"]["name"], None)
            self.waiting.appendleft(worker.message | {"again": True})
            return
        if answer is not None:
            self.lines.send(answer)
            return
        late = time.monotonic() > worker.began + self.limits.submission_seconds + EXTRA_SECONDS
        state, says = (
            ("timed out", "The time for the whole notebook was up.") if late else ("grader error", "The grader failed.")
        )
        self._answer(worker.message, state=state, says=says, seconds=time.monotonic() - worker.began)

    def _answer(
        self,
        message: dict[str, Any],
        problem: str = "",
        state: str = "grader error",
        says: str = "",
        seconds: float = 0.0,
    ) -> None:
        """The result where a worker could give none."""
        assembled = message["assembled"]
        exercises = [
            asdict(
                ExerciseResult(
                    exercise=exercise.name,
                    state=state,
                    earned=0.0,
                    possible=exercise.points,
                    report=says or problem,
                    source=assembled["sources"].get(exercise.name, ""),
                )
            )
            for exercise in self.course.exercises(assembled["name"])
            if message["only"] in (None, exercise.name)
        ]
        self.lines.send(
            {"number": message["number"], "exercises": exercises, "problem": problem, "seconds": seconds, "junit": ""}
        )

    def close(self) -> None:
        for process, worker in self.workers.items():
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
            os.close(worker.pipe)
        for process in self.workers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
        self.zygotes.close()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _graded(message: dict[str, Any], folder: Path, source: Path, package: Path, server: _Server) -> dict[str, Any]:
    """Run pytest on one submission, in a process of its own."""
    import nbformat

    from transformer_lab.classroom.assemble import Assembled
    from transformer_lab.classroom.pytest_items import Run, Setting
    from transformer_lab.classroom.scoring import Score

    began = time.monotonic()
    given = message["assembled"]
    assembled = Assembled(
        student=given["student"],
        name=given["name"],
        notebook=nbformat.from_dict(given["notebook"]),
        sources=given["sources"],
        flags={name: tuple(flags) for name, flags in given["flags"].items()},
        remarks=tuple(given["remarks"]),
    )
    exercises = [one for one in server.course.exercises(assembled.name) if message["only"] in (None, one.name)]
    setting = Setting(source, package, folder, server.sandboxed, server.limits, server.seed)
    run = Run(assembled, exercises, setting)
    junit = run_pytest(run)
    answer = {"number": message["number"], "problem": "", "seconds": time.monotonic() - began, "junit": junit}
    answer["kernels"] = run.kernels_started
    scored = {result.exercise for result in run.results}
    for exercise in exercises:
        if exercise.name not in scored:
            run.add(exercise, Score("grader error", report="The grader failed: no kernel could be started."))
    by_name = {result.exercise: asdict(result) for result in run.results}
    return answer | {"exercises": [by_name[one.name] for one in exercises], "remarks": run.remarks()}


def run_pytest(run: Any) -> str:
    """Run the submission's cells and score its exercises, with pytest and nbval; returns the JUnit XML."""
    import pytest

    folder = run.setting.folder
    home = folder / "home"
    home.mkdir()
    os.environ.update(HOME=str(home), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    os.environ.pop("PYTEST_ADDOPTS", None)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.chdir(folder)
    path = assembled_file(run)
    (folder / "pytest.ini").write_text("[pytest]\n")
    junit = folder / "junit.xml"
    pytest.main(
        [
            "--nbval-lax",
            "--noconftest",
            *(word for name in UNUSED_PLUGINS for word in ("-p", f"no:{name}")),
            *("-p", "nbval.plugin"),
            *("-c", str(folder / "pytest.ini"), "--rootdir", str(folder)),
            *("--color=no", "--capture=no", "-q", "--no-summary", "--assert=plain"),
            f"--junitxml={junit}",
            str(path),
        ],
        plugins=[run],
    )
    text = junit.read_text(encoding="utf-8") if junit.exists() else ""
    return re.sub(r'(<testsuite [^>]*?) hostname="[^"]*"', r"\1", text)


def main(file: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    _die_with_parent()
    server = _Server(_Lines(socket.socket(fileno=file)))
    try:
        server.serve()
    finally:
        server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
