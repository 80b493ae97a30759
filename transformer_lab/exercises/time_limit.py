"""Run code that may never stop, fill up memory, or print endlessly. The process itself must survive this.

The code runs in its own thread. That way, a check works the same in any thread and on every system, and it returns even
if the code blocks forever in a C function. In the new thread, settings that torch keeps per thread (gradient mode,
autocast, default device) have their default values.
"""

import contextvars
import ctypes
import functools
import io
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 5.0  # for each job
GRACE_SECONDS = 1.0  # how long a thread may take to stop after being told to
EXTRA_BYTES = 2**30  # memory for the code; a check needs less than a hundredth of this
PRINTED_CHARACTERS = 1_000

_one_at_a_time = threading.Lock()
_worker: threading.Thread | None = None


class OutOfTime(BaseException):
    """Raised inside a thread that has run out of time, at whatever line it has reached.

    Python can raise an exception in another thread, but only once per call. A student's loop around a `try: … except:`
    would swallow it and go on forever. So the exception raises itself again: Python creates the instance by calling the
    class's `__init__`, which requests the same exception once more in the same thread. Each time the loop swallows one
    exception, the next is already pending, so the loop cannot continue. `Stop.__init__` must be a function written in C
    (a `partial` of a ctypes function). In a Python function, the next exception could be raised before the function has
    requested its successor, and the chain would end.

    `stoppable` ends the chain outside the student's code. It first gives the class a plain `__init__`, and then waits
    for the last exception, which is already pending. The caller of `stoppable` gets exactly one exception.
    """


_raise_in_thread = ctypes.PYFUNCTYPE(None, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def is_checking() -> bool:
    """Return whether the current thread is running a student's code for a check."""
    return threading.current_thread() is _worker


@dataclass(frozen=True)
class Ran:
    """The results of running some jobs."""

    results: list[Any]  # fewer results than jobs if one ran out of time
    printed: str  # truncated to `PRINTED_CHARACTERS`
    stuck_at: list[tuple[str, int]]  # files and lines, innermost last, where a job ran out of time


def stoppable(call: Callable[[], Any]) -> Any:
    """Return the result of `call`, or raise the last `OutOfTime` of its chain."""
    try:
        return call()
    except OutOfTime as stop:
        stop.__class__.__init__ = BaseException.__init__  # first, because the next stop could come at any call or jump
        try:  # noqa: SIM105 (creating a `suppress` would be such a call)
            time.sleep(0)
        except OutOfTime:  # the pending exception
            pass
        raise


def run_limited(jobs: list[Callable[[], Any]]) -> Ran:
    """Run the jobs one after another, each for at most `SECONDS`. If a job runs out of time, skip the remaining jobs.

    If a job raises an exception, the remaining jobs do not run, and the exception is raised here.
    """
    global _worker
    results: list[Any] = []
    stuck_at: list[tuple[str, int]] = []
    finished = threading.Event()  # an interrupted `Thread.join` would mark the thread as ended
    errors: list[BaseException] = []
    started = time.monotonic()

    class Stop(OutOfTime):
        """A new class for each call of `run_limited`, because `stoppable` changes the class."""

    def work() -> None:
        nonlocal started
        Stop.__init__ = staticmethod(functools.partial(_raise_in_thread, threading.get_ident(), Stop))
        try:
            for job in jobs:
                started = time.monotonic()
                results.append(stoppable(job))
        except OutOfTime:
            pass
        except BaseException as error:
            errors.append(error)
        finished.set()

    with _one_at_a_time, _bounded_memory():
        worker = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
        with _captured(worker) as printed:
            try:
                _worker = worker
                worker.start()
                while not finished.wait(max(0.0, started + SECONDS - time.monotonic()) + 0.01):
                    if time.monotonic() > started + SECONDS:
                        stuck_at = _where(worker)
                        _raise_in_thread(worker.ident, Stop)
                        finished.wait(GRACE_SECONDS)
                        break
            except BaseException:  # the user interrupted the check
                if worker.ident is not None and not finished.is_set():
                    _raise_in_thread(worker.ident, Stop)
                    finished.wait(GRACE_SECONDS)
                raise
            finally:
                _worker = None
            if finished.is_set():
                worker.join()
            if errors:
                raise errors[0]
            return Ran(list(results), printed(), stuck_at)  # a copy, because an unstoppable thread could add to it


def _where(thread: threading.Thread) -> list[tuple[str, int]]:
    frame = sys._current_frames().get(thread.ident)
    return [(summary.filename, summary.lineno) for summary in traceback.extract_stack(frame)] if frame else []


class _Redirected(io.TextIOBase):
    """Collects one thread's output, up to a limit, and passes on the output of other threads."""

    def __init__(self, stream: Any, thread: threading.Thread, buffer: io.StringIO) -> None:
        self.stream, self.thread, self.buffer = stream, thread, buffer

    def write(self, text: str) -> int:
        if threading.current_thread() is not self.thread:
            return self.stream.write(text)
        self.buffer.write(str(text)[: max(0, PRINTED_CHARACTERS + 1 - self.buffer.tell())])
        return len(text)

    def flush(self) -> None:
        if threading.current_thread() is not self.thread:
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _captured(thread: threading.Thread) -> Iterator[Callable[[], str]]:
    """Collect the thread's output, excluding warnings, and yield a function that returns it."""
    buffer = io.StringIO()
    stdout, stderr = (_Redirected(stream, thread, buffer) for stream in (sys.stdout, sys.stderr))

    def printed() -> str:
        text = buffer.getvalue()
        return text if len(text) <= PRINTED_CHARACTERS else text[:PRINTED_CHARACTERS] + " …\n"

    with warnings.catch_warnings(), redirect_stdout(stdout), redirect_stderr(stderr):
        warnings.simplefilter("ignore")
        yield printed


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let the process allocate at most `EXTRA_BYTES` more. Systems other than Linux cannot enforce this limit."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError, ValueError):
            import resource

            used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()  # private, used or not
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = used + EXTRA_BYTES if soft == resource.RLIM_INFINITY else min(used + EXTRA_BYTES, soft)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_DATA, (soft, hard))
        yield
