"""Runs code that may never end, fill the memory or print without end, in the process that must survive it.

The code runs in a thread of its own, so that a check works the same in the main thread of a notebook and in any other,
on every system, and comes back even from code that waits for ever inside a C function. Whatever torch keeps per thread
(gradient mode, autocast, default device) starts fresh there.
"""

import contextvars
import ctypes
import functools
import io
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SECONDS = 5.0  # for each job
GRACE_SECONDS = 1.0  # for a thread that has been told to stop
EXTRA_BYTES = 2**30  # a check needs less than a hundredth of it
PRINTED_CHARACTERS = 1_000

_one_at_a_time = threading.Lock()
_worker: threading.Thread | None = None


class _Stop(BaseException):
    """Raised inside the thread that has run out of time."""


_raise_in_thread = ctypes.PYFUNCTYPE(None, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def is_checking() -> bool:
    """Whether the current thread runs a student's code for a check."""
    return threading.current_thread() is _worker


def run_limited(jobs: list[Callable[[], Any]], seconds: float = SECONDS) -> tuple[list[Any], str]:
    """Run the jobs one after the other, each for at most `seconds`.

    Returns:
        The results, and what was printed, cut off after `PRINTED_CHARACTERS`. There are fewer results than jobs if one
        did not end in time; the later ones are not started then. An exception in a job ends the others as well, and is
        raised here.
    """
    global _worker
    results: list[Any] = []
    errors: list[BaseException] = []
    started = time.monotonic()

    # An exception that code can swallow does not stop a loop around a `try`. This one comes again the moment it has
    # been made: its constructor, in C so that nothing can come between, raises the next one in the same thread.
    class Stop(_Stop):
        pass

    def work() -> None:
        nonlocal started
        try:
            for job in jobs:
                started = time.monotonic()
                results.append(job())
        except _Stop:
            del Stop.__init__  # the last: no call, loop or jump before this, where the next one could strike
            with suppress(_Stop):  # takes the one that may be pending
                time.sleep(0)
        except BaseException as error:
            errors.append(error)

    with _one_at_a_time, _bounded_memory():
        worker = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
        with _captured(worker) as printed:
            _worker = worker
            worker.start()
            Stop.__init__ = staticmethod(functools.partial(_raise_in_thread, worker.ident, Stop))
            try:
                while worker.is_alive():
                    left = started + seconds - time.monotonic()
                    if left < 0:
                        _raise_in_thread(worker.ident, Stop)
                        worker.join(GRACE_SECONDS)
                        break
                    worker.join(left + 0.01)
            except BaseException:  # the reader interrupts the check
                _raise_in_thread(worker.ident, Stop)
                worker.join(GRACE_SECONDS)
                raise
            finally:
                _worker = None
            results = list(results)  # a thread that cannot be stopped adds nothing more
            if errors:
                raise errors[0]
            return results, printed()


class _Muffled(io.TextIOBase):
    """Keeps what one thread writes, up to a limit, and hands on what others write."""

    def __init__(self, stream: Any, thread: threading.Thread, kept: io.StringIO) -> None:
        self.stream, self.thread, self.kept = stream, thread, kept

    def write(self, text: str) -> int:
        if threading.current_thread() is not self.thread:
            return self.stream.write(text)
        self.kept.write(str(text)[: max(0, PRINTED_CHARACTERS + 1 - self.kept.tell())])
        return len(text)

    def flush(self) -> None:
        if threading.current_thread() is not self.thread:
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _captured(thread: threading.Thread) -> Iterator[Callable[[], str]]:
    """Keep what the thread prints, and no warnings."""
    kept = io.StringIO()
    streams = sys.stdout, sys.stderr

    def printed() -> str:
        text = kept.getvalue()
        return text if len(text) <= PRINTED_CHARACTERS else text[:PRINTED_CHARACTERS] + " …\n"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.stdout, sys.stderr = (_Muffled(stream, thread, kept) for stream in streams)
        try:
            yield printed
        finally:
            sys.stdout, sys.stderr = streams


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let the process allocate at most `EXTRA_BYTES` more, where the system can hold it to that (Linux)."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[5]) * resource.getpagesize()  # private memory, touched or not
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = used + EXTRA_BYTES
        if soft != resource.RLIM_INFINITY:
            limit = min(limit, soft)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
