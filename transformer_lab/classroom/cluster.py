"""Grades on the machines of a Dask cluster.

Only text travels: an assembled notebook to a worker, and its result back. Each thread of a worker has its own `Grader`,
which keeps its sandboxes until the run ends. The cluster and everyone who can reach it are trusted, as always in Dask.
"""

import atexit
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from nbformat import from_dict

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.gradebook import source_digest
from transformer_lab.classroom.results import SubmissionResult, as_json, from_json
from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from transformer_lab.classroom.grader import Grader

AT_ONCE = 3  # submissions per thread that are running or queued
CONNECT_SECONDS = 20
LOST_SECONDS = 60  # without any worker before the run gives up
LOOK_SECONDS = 2  # between two looks at the workers

_idle: defaultdict[tuple[int, bool], list["Grader"]] = defaultdict(list)  # on a worker, by seed and require_sandbox


class ClusterGrader:
    """Grades like `grader.Grader`, but on a cluster.

    Args:
        address: Address of the scheduler, such as `tcp://host:8786`.
        require_sandbox: Refuse workers that cannot put kernels into a sandbox.
        seed: Secret seed of the inputs that earn points.

    Raises:
        InputError: Dask is not installed, no scheduler answers at the address, or a worker cannot grade.
    """

    def __init__(self, address: str, require_sandbox: bool, seed: int) -> None:
        self.address, self.require_sandbox, self.seed = address, require_sandbox, seed
        self.sandboxed = True
        self._running: dict[Any, Assembled] = {}  # by the future of its result

    def __enter__(self) -> Self:
        try:
            from distributed import Client
        except ImportError:
            reason = "--cluster needs Dask: python -m pip install -r requirements/teacher.txt, here and on the workers"
            raise InputError(reason) from None
        try:
            self.client = Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"no Dask scheduler answers at {self.address}: {_on_one_line(error)}") from None
        try:
            self._check_workers()
        except BaseException:
            self.client.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # the scheduler may be gone
            self.client.cancel(list(self._running), force=True)
            self.client.run(end_idle_graders, on_error="ignore")
        self.client.close(timeout=CONNECT_SECONDS)

    def _check_workers(self) -> None:
        workers = self.client.run(worker_facts, on_error="return")
        if not workers:
            raise InputError(f"the cluster at {self.address} has no workers: start `dask worker {self.address}`")
        for worker, facts in workers.items():
            if problem := _why_it_cannot_grade(facts, self.require_sandbox):
                raise InputError(f"the worker {worker} {problem}")
            self.sandboxed &= not facts["why_no_sandbox"]

    def grade(self, assembled: Iterable[Assembled], only: str | None = None) -> Iterator[SubmissionResult]:
        """Yield each result once, as it arrives. If a worker dies, Dask sends its submissions to another one.

        Raises:
            InputError: The scheduler or all workers have been gone for too long.
        """
        from distributed import wait

        waiting, running = iter(assembled), self._running
        while True:
            try:
                self.client.wait_for_workers(1, timeout=LOST_SECONDS)
                room = max(AT_ONCE * sum(self.client.nthreads().values()), 1) - len(running)
            except Exception:  # no worker came back in time, or the scheduler is gone
                reason = f"the cluster at {self.address} has no workers any more: --resume goes on from here"
                raise InputError(reason) from None
            for submission in islice(waiting, max(room, 0)):
                task = json.dumps(vars(submission)), only, self.seed, self.require_sandbox
                running[self.client.submit(grade_remotely, *task, pure=False)] = submission
            if not running:
                return
            with suppress(Exception):  # a timeout, or a task was canceled: `_result` reports it
                wait(list(running), timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED")
            for future in [future for future in running if future.done()]:
                yield self._result(future, running.pop(future))

    def _result(self, future: Any, submission: Assembled) -> SubmissionResult:
        try:
            answer = json.loads(future.result(timeout=CONNECT_SECONDS))
        except Exception as error:  # several workers died over it, or something is missing there
            problem = f"the grader failed on the cluster ({type(error).__name__}: {_on_one_line(error)})"
            return SubmissionResult(submission.student, submission.name, "", (), problem=problem)
        self.sandboxed &= answer["sandboxed"]
        return replace(from_json(answer["result"]), student=submission.student, notebook=submission.name)


def _why_it_cannot_grade(facts: dict[str, str] | BaseException, require_sandbox: bool) -> str:
    here = version("transformer-lab")
    if isinstance(facts, BaseException):
        return f"cannot grade: install transformer-lab there ({facts})"
    if facts["version"] != here:
        return f"has transformer-lab {facts['version']}, and this is {here}: install the same version there"
    if facts["sources"] != source_digest():
        return f"has another text of transformer-lab {here}: install there what is installed here"
    if facts["why_no_sandbox"] and require_sandbox:
        return f"has no sandbox: {facts['why_no_sandbox']}; --without-sandbox runs students' code with its rights"
    return ""


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# --- on a worker -----------------------------------------------------------------------------------------------------


def worker_facts() -> dict[str, str]:
    """Return a worker's version and text of the package, and why it has no sandbox (empty if it has one)."""
    from transformer_lab.classroom.sandbox import why_no_sandbox

    return {"version": version("transformer-lab"), "sources": source_digest(), "why_no_sandbox": why_no_sandbox()}


def grade_remotely(assembled: str, only: str | None, seed: int, require_sandbox: bool) -> str:
    """Grade one submission on a worker, and return the result as JSON."""
    from transformer_lab.classroom.grader import Grader

    idle = _idle[seed, require_sandbox]
    try:
        grader = idle.pop()
    except IndexError:
        grader = Grader(jobs=1, require_sandbox=require_sandbox, seed=seed).__enter__()
        atexit.register(grader.__exit__, None, None, None)
    try:
        (result,) = grader.grade([assembled_from_json(assembled)], only)
    finally:
        idle.append(grader)
    return json.dumps({"sandboxed": grader.sandboxed, "result": as_json(result)})


def end_idle_graders() -> None:
    """End the graders that runs have left on a worker."""
    for idle in list(_idle.values()):
        with suppress(IndexError):
            while True:
                grader = idle.pop()
                grader.__exit__(None, None, None)
                atexit.unregister(grader.__exit__)


def assembled_from_json(text: str) -> Assembled:
    """Return the submission that traveled as JSON."""
    fields = json.loads(text)
    flags = {name: tuple(flags) for name, flags in fields["flags"].items()}
    notebook, remarks = from_dict(fields["notebook"]), tuple(fields["remarks"])
    return Assembled(**fields | {"notebook": notebook, "flags": flags, "remarks": remarks})
