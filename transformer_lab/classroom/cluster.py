"""Grade on the machines of a Dask cluster. Like Dask itself, this trusts everyone who can reach the cluster."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from typing import Any

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.gradebook import source_digest
from transformer_lab.classroom.results import SubmissionResult
from transformer_lab.errors import InputError
from transformer_lab.files import on_screen

QUEUED = 3  # submissions per thread, running or waiting
CONNECT_SECONDS = 20
LOST_SECONDS = 60  # how long a run that has lost all workers waits before it gives up
POLL_SECONDS = 2

_graders: dict[tuple[int, int], Any] = {}  # on a worker, keyed by the run's seed and the thread


@dataclass
class ClusterGrader:
    """A grader like `grader.Grader` that runs on a cluster."""

    client: Any
    require_sandbox: bool
    seed: int
    sandboxed: bool = True
    running: dict[Any, Assembled] = field(default_factory=dict)  # keyed by the result's future

    def grade(
        self,
        assembled: Iterable[Assembled],
        only: str | None = None,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[SubmissionResult]:
        """Yield each result once, as it arrives. If a worker dies, Dask sends its submissions to another worker.

        `while_waiting` is called each time that no result has arrived for `POLL_SECONDS`.

        Raises:
            InputError: The scheduler or all workers have been unreachable for too long.
        """
        from distributed import wait

        waiting = iter(assembled)
        while True:
            try:
                self.client.wait_for_workers(1, timeout=LOST_SECONDS)
                room = max(QUEUED * sum(self.client.nthreads().values()), 1) - len(self.running)
            except Exception:  # no worker came back in time, or the scheduler is gone
                raise InputError("the cluster has lost all its workers: continue with --resume") from None
            for submission in islice(waiting, max(room, 0)):
                task = submission, only, self.seed, self.require_sandbox
                self.running[self.client.submit(grade_on_worker, *task, pure=False)] = submission
            if not self.running:
                return
            with suppress(Exception):  # a timeout, or a canceled task, which `_result` reports
                wait(list(self.running), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
            done = [future for future in self.running if future.done()]
            for future in done:
                yield self._result(future, self.running.pop(future))
            if not done:
                while_waiting()

    def _result(self, future: Any, submission: Assembled) -> SubmissionResult:
        try:
            sandboxed, result = future.result(timeout=CONNECT_SECONDS)
        except Exception as error:  # several workers died while running it or lack something it needs
            problem = f"the grader failed on the cluster ({type(error).__name__}: {_on_one_line(error)})"
            return SubmissionResult(submission.student, submission.name, submission.digest, (), problem=problem)
        self.sandboxed &= sandboxed
        return result


@contextmanager
def cluster_grader(address: str, require_sandbox: bool, seed: int) -> Iterator[ClusterGrader]:
    """Connect to the scheduler at an address like `tcp://host:8786`, and shut down the run's graders there afterward.

    Raises:
        InputError: The `cluster` extra is not installed, no scheduler answers, or a worker cannot grade.
    """
    try:
        from distributed import Client

        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except ImportError:
        reason = "--cluster needs Dask: python -m pip install -r requirements/teacher.txt, here and on the workers"
        raise InputError(reason) from None
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"no Dask scheduler answers at {address}: {_on_one_line(error)}") from None
    grader = ClusterGrader(client, require_sandbox, seed)
    try:
        workers = client.run(code_and_sandbox, on_error="return")
        if not workers:
            raise InputError(f"the cluster at {address} has no workers: start `dask worker {address}`")
        for worker, answer in workers.items():
            if isinstance(answer, BaseException):
                reason = _on_one_line(answer)
                raise InputError(f"the worker {worker} cannot grade: install transformer-lab there ({reason})")
            code, why_no_sandbox = answer
            if code != _code():
                raise InputError(f"the worker {worker} has {code}, but this is {_code()}: install the same code there")
            if why_no_sandbox and require_sandbox:
                advice = "--without-sandbox runs students' code with its permissions"
                raise InputError(f"the worker {worker} has no sandbox: {why_no_sandbox}; {advice}")
            grader.sandboxed &= not why_no_sandbox
        yield grader
    finally:
        with suppress(Exception):  # the scheduler may be gone
            client.cancel(list(grader.running), force=True)
            client.run(end_graders, seed, on_error="ignore")
        client.close(timeout=CONNECT_SECONDS)


def _on_one_line(error: BaseException) -> str:
    return on_screen(" ".join(str(error).split()))[:300] or type(error).__name__


def _code() -> str:
    return f"transformer-lab {version('transformer-lab')} (code {source_digest()[:12]})"


# --- on a worker -----------------------------------------------------------------------------------------------------


def code_and_sandbox() -> tuple[str, str]:
    """Return the version of a worker's code, and the reason why the worker has no sandbox ("" if it has one)."""
    from transformer_lab.classroom.sandbox import why_no_sandbox

    return _code(), why_no_sandbox()


def grade_on_worker(
    assembled: Assembled, only: str | None, seed: int, require_sandbox: bool
) -> tuple[bool, SubmissionResult]:
    """Return whether the worker has a sandbox, and the result. Each thread reuses its grader until the run ends."""
    from transformer_lab.classroom.grader import Grader

    key = seed, threading.get_ident()
    if key not in _graders:
        _graders[key] = Grader(jobs=1, require_sandbox=require_sandbox, seed=seed).__enter__()
    (result,) = _graders[key].grade([assembled], only)
    return _graders[key].sandboxed, result


def end_graders(seed: int) -> None:
    """Shut down this worker's graders for the run with this seed."""
    for key in [key for key in _graders if key[0] == seed]:
        _graders.pop(key).__exit__(None, None, None)
