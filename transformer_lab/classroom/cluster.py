"""The same work spread over the machines of a Dask cluster.

Only text travels: an assembled notebook out, its result back. Each thread of a Dask worker has a `Grader` of its own,
with its sandboxes, until the run is over. The cluster and whoever can reach it are trusted, as with Dask in general.
"""

import atexit
import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

import nbformat

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.gradebook import source_digest
from transformer_lab.classroom.results import SubmissionResult, as_json, from_json
from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from transformer_lab.classroom.running import Grader

AT_ONCE = 3  # submissions a thread of the cluster that are under way or wait there
CONNECT_SECONDS = 20
LOST_SECONDS = 60  # without any worker, before the run is given up
LOOK_SECONDS = 2

_idle: list[
    tuple[tuple[int, bool], "Grader"]
] = []  # on a worker: the graders that nobody uses now, with their settings
_lock = threading.Lock()


class ClusterGrader:
    """Grades like `running.Grader`, on a cluster.

    Args:
        address: Of the scheduler, such as `tcp://host:8786`.
        require_sandbox: Refuse workers that cannot put kernels into a sandbox.
        seed: Secret, of the inputs that earn points.

    Raises:
        InputError: The extra `cluster` is not installed, nobody answers at the address, there is no worker, a worker
            has another version of the package, or it has no sandbox where one is required.
    """

    def __init__(self, address: str, require_sandbox: bool, seed: int) -> None:
        self.address, self.require_sandbox, self.seed = address, require_sandbox, seed
        self.sandboxed = True
        self._running: dict[Any, Assembled] = {}
        try:
            from distributed import Client
        except ImportError:
            raise InputError(
                "--cluster needs Dask: pip install 'transformer-lab[cluster]', here and on the workers"
            ) from None
        try:
            self.client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"no Dask scheduler answers at {address}: {reason[:200]}") from None

    def __enter__(self) -> Self:
        try:
            self._examine()
        except BaseException:
            self.client.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # of a scheduler that is gone
            if self._running:
                self.client.cancel(list(self._running), force=True)
            self.client.run(end_idle_graders, on_error="ignore")
        self.client.close(timeout=CONNECT_SECONDS)

    def _examine(self) -> None:
        """Ask each worker what it is."""
        if not self._threads():
            raise InputError(f"the cluster at {self.address} has no workers: start `dask worker {self.address}`")
        for worker, facts in self.client.run(worker_facts, on_error="return").items():
            if isinstance(facts, BaseException):
                raise InputError(f"the worker {worker} cannot grade: install transformer-lab there ({facts})")
            if facts["version"] != version("transformer-lab"):
                raise InputError(
                    f"the worker {worker} has transformer-lab {facts['version']}, and this is "
                    f"{version('transformer-lab')}: install the same version there"
                )
            if facts["sources"] != source_digest():
                raise InputError(
                    f"the worker {worker} has another text of transformer-lab {facts['version']}: "
                    "install there what is installed here"
                )
            if facts["why_no_sandbox"]:
                self.sandboxed = False
                if self.require_sandbox:
                    raise InputError(
                        f"the worker {worker} has no sandbox: {facts['why_no_sandbox']}; "
                        "--without-sandbox runs students' code with its rights"
                    )

    def _threads(self) -> int:
        """How many submissions the cluster can grade at once now."""
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except Exception:  # the scheduler is gone, or does not answer in time
            return 0
        return sum(worker["nthreads"] for worker in workers.values())

    def grade(self, assembled: Iterable[Assembled], only: str | None = None) -> Iterator[SubmissionResult]:
        """The results, as they come, each once. What a worker has not given back when it dies is graded by another.

        Raises:
            InputError: The scheduler, or all workers, are gone for good.
        """
        from distributed import wait

        waiting = iter(assembled)
        more = True
        running = self._running = {}
        seen_alive = time.monotonic()
        while more or running:
            threads = self._threads()
            if threads:
                seen_alive = time.monotonic()
            elif time.monotonic() > seen_alive + LOST_SECONDS:
                raise InputError(f"the cluster at {self.address} has no workers any more: --resume goes on from here")
            while more and len(running) < AT_ONCE * threads:
                one = next(waiting, None)
                if one is None:
                    more = False
                else:
                    given = assembled_as_json(one), only, self.seed, self.require_sandbox
                    running[self.client.submit(grade_remotely, *given, pure=False)] = one
            if not running:
                time.sleep(LOOK_SECONDS if more else 0)  # for a worker to come back
                continue
            try:
                wait(list(running), timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED")
            except TimeoutError:
                pass
            except Exception:  # one of them was cancelled: what it comes to is found out below
                time.sleep(LOOK_SECONDS)
            for future in [future for future in running if future.done()]:
                yield self._result(future, running[future])
                del running[future]

    def _result(self, future: Any, one: Assembled) -> SubmissionResult:
        try:
            answer = json.loads(future.result(timeout=CONNECT_SECONDS))
        except Exception as error:  # its workers died one after the other, or what it needs is not there
            problem = f"the grader failed on the cluster ({type(error).__name__}: {' '.join(str(error).split())[:300]})"
            return SubmissionResult(one.student, one.name, "", (), problem=problem)
        self.sandboxed &= answer["sandboxed"]
        return replace(from_json(answer["result"]), student=one.student, notebook=one.name)


def worker_facts() -> dict[str, str]:
    """What a worker is: the version and the text of its package, and why it has no sandbox, if so."""
    from transformer_lab.classroom.sandbox import why_no_sandbox

    return {"version": version("transformer-lab"), "sources": source_digest(), "why_no_sandbox": why_no_sandbox()}


def grade_remotely(assembled: str, only: str | None, seed: int, require_sandbox: bool) -> str:
    """Runs on a worker: the result of one submission, as JSON."""
    settings = seed, require_sandbox
    grader = _borrowed(settings)
    try:
        (result,) = grader.grade([assembled_from_json(assembled)], only)
    finally:
        with _lock:
            _idle.append((settings, grader))
    return json.dumps({"sandboxed": grader.sandboxed, "result": as_json(result)})


def _borrowed(settings: tuple[int, bool]) -> "Grader":
    from transformer_lab.classroom.running import Grader

    with _lock:
        for place, (made_with, grader) in enumerate(_idle):
            if made_with == settings:
                del _idle[place]
                return grader
    seed, require_sandbox = settings
    grader = Grader(jobs=1, require_sandbox=require_sandbox, seed=seed)
    grader.__enter__()
    atexit.register(grader.__exit__, None, None, None)
    return grader


def end_idle_graders() -> None:
    """Runs on a worker: end what a run has started there."""
    with _lock:
        ended, _idle[:] = list(_idle), []
    for _, grader in ended:
        grader.__exit__(None, None, None)
        atexit.unregister(grader.__exit__)


def assembled_as_json(assembled: Assembled) -> str:
    """An assembled submission as one line of ASCII."""
    fields = {name: value for name, value in vars(assembled).items() if name != "notebook"}
    return json.dumps({**fields, "notebook": assembled.notebook})


def assembled_from_json(text: str) -> Assembled:
    """What `assembled_as_json` wrote."""
    fields = json.loads(text)
    return Assembled(
        **fields
        | {
            "notebook": nbformat.from_dict(fields["notebook"]),
            "flags": {name: tuple(flags) for name, flags in fields["flags"].items()},
            "remarks": tuple(fields["remarks"]),
        }
    )
