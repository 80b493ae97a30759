"""Without these tests, a machine that goes down could lose a class's grades, or submissions could be graded twice."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest

from transformer_lab.classroom import batch, grader
from transformer_lab.classroom import cluster as cluster_module
from transformer_lab.classroom.assemble import assemble
from transformer_lab.classroom.batch import grade_batch, grader_for
from transformer_lab.classroom.submissions import Submission
from transformer_lab.errors import InputError

pytest.importorskip("distributed", reason="Dask is not installed: requirements/teacher.txt has it")

pytestmark = pytest.mark.usefixtures("without_charts")
ALL = {"padding_mask": "# passed", "causal_mask": "# failed", "target_mask": "# timed out"}
STAND_IN = """
import importlib.util, os, pathlib, time
from transformer_lab.classroom import grader, sandbox
from transformer_lab.classroom.course import Course

spec = importlib.util.spec_from_file_location("conftest", {conftest!r})
conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conftest)
log = pathlib.Path({log!r})
sandbox.why_no_sandbox = lambda: {why!r}

class Grader(conftest.MarkReader):
    def __init__(self, jobs, require_sandbox, seed):
        super().__init__(sandboxed=not {why!r})
        self(seed, Course.find())

    def grade(self, assembled, only=None):
        for one in assembled:
            (log / f"{{one.student}} begun {{os.getpid()}} {{time.monotonic_ns()}}").touch()
            stuck = log / "stuck"
            while one.student == "Ada" and not stuck.exists() and {sticky!r}:
                time.sleep(0.05)
            result = self.result(one, only)
            (log / f"{{one.student}} done {{os.getpid()}} {{time.monotonic_ns()}}").touch()
            yield result

grader.Grader = Grader
"""


class Cluster:
    """A scheduler and its workers, each in its own process, on the loopback device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.mkdir()
        self.processes: dict[str, subprocess.Popen] = {}
        where = folder / "scheduler.json"
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter", "--scheduler-file", where]
        self._start("scheduler", *options)
        self.wait_for(where.exists)
        self.address = json.loads(where.read_text())["address"]

    def _start(self, name: str, *options) -> None:
        command = [sys.executable, "-m", "distributed.cli.dask_" + name.partition(" ")[0], *map(str, options)]
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def add_worker(self, name: str, why_no_sandbox: str = "", sticky: bool = False) -> None:
        """Start a worker that reads marks instead of grading. A `sticky` worker never finishes grading `Ada`."""
        preload = self.folder / f"{name}.py"
        conftest = str(Path(__file__).with_name("conftest.py"))
        preload.write_text(STAND_IN.format(conftest=conftest, log=str(self.log), why=why_no_sandbox, sticky=sticky))
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--preload", preload]
        self._start(f"worker {name}", self.address, *options, "--name", name)

    def wait_for(self, condition) -> None:
        limit = time.monotonic() + 90
        while not condition():
            logs = "".join(path.read_text(errors="replace")[-1000:] for path in self.folder.glob("*.log"))
            assert time.monotonic() < limit, logs
            assert all(one.poll() in (None, -signal.SIGKILL) for one in self.processes.values()), logs
            time.sleep(0.05)

    def wait_for_workers(self, number: int) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(number, timeout=120)

    def times(self, student: str, what: str) -> list[int]:
        """Return the IDs of the processes in which the event `what` occurred for this student."""
        return [int(path.name.split()[-2]) for path in self.log.glob(f"{student} {what} *")]

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.add_worker("first", sticky=True)
        started.add_worker("second", sticky=True, why_no_sandbox="bubblewrap is not installed")
        started.wait_for_workers(2)
        yield started
    finally:
        started.end()


@pytest.fixture
def open_grader(cluster):
    return grader_for(None, False, cluster.address)


def test_a_worker_keeps_its_graders_until_the_run_ends(course, notebook_with, mark_reader, monkeypatch):
    """Starting a grader for each submission would take seconds. A leftover grader would keep processes alive."""
    started, ended = [], []

    class CountedGrader(mark_reader):
        def __init__(self, jobs, require_sandbox, seed):
            super().__init__()
            self(seed, course)
            started.append(seed)

        def __exit__(self, *_):
            ended.append(*self.seeds)

    monkeypatch.setattr(grader, "Grader", CountedGrader)
    given = assemble(Submission("Ada", "p", notebook_with("03_masks", **ALL).encode()), course)
    for seed in (1, 2, 1, 2):
        sandboxed, result = cluster_module.grade_on_worker(given, None, seed, True)
        assert (sandboxed, result.student) == (True, "Ada")
    assert (started, ended) == ([1, 2], [])  # a grader has a single seed
    cluster_module.end_graders(1)
    assert ended == [1]  # another run may still use the same worker
    cluster_module.end_graders(2)
    assert ended == [1, 2]


def test_a_cluster_calls_back_while_it_waits():
    """Without the call, reports on the other submissions are written only after a slow one has ended."""
    future = Mock(done=Mock(side_effect=[False, True]), result=Mock(return_value=(True, "result")))
    client = Mock(nthreads=lambda: {"worker": 1}, submit=Mock(return_value=future))
    events = []
    grader = cluster_module.ClusterGrader(client, require_sandbox=False, seed=1)
    for result in grader.grade(["submission"], while_waiting=lambda: events.append("waiting")):
        events.append(result)
    assert events == ["waiting", "result"]


def test_workers_of_another_version_are_refused(cluster, course, hand_in, open_grader, tmp_path, monkeypatch):
    """A gradebook must not mix the results of two package versions."""
    here = version("transformer-lab")
    monkeypatch.setattr(cluster_module, "version", lambda name: "9.9")
    with pytest.raises(InputError, match=rf"has transformer-lab {here} .*, but this is transformer-lab 9.9 "):
        grade_batch([hand_in("Ada", **ALL)], tmp_path / "grades", open_grader, course)
    monkeypatch.undo()
    monkeypatch.setattr(cluster_module, "source_digest", lambda: "not updated")
    with pytest.raises(InputError, match=r"but this is .* \(code not updated\)"):
        grade_batch([hand_in("Ada", **ALL)], tmp_path / "grades", open_grader, course)


def test_a_sandbox_is_asked_of_every_worker(cluster, course, hand_in, open_grader, tmp_path):
    folder = hand_in("Bob", **ALL)
    with pytest.raises(InputError, match="has no sandbox: bubblewrap is not installed"):
        grade_batch([folder], tmp_path / "strict", grader_for(None, True, cluster.address), course)
    outcome = grade_batch([folder], tmp_path / "grades", open_grader, course)
    assert "without a sandbox" in outcome.warnings[0]


def test_a_worker_dies_in_the_middle(cluster, course, hand_in, open_grader, tmp_path):
    """When a worker dies, no submission is lost. A submission is not graded again after its result has arrived."""
    for number in range(11):
        hand_in(f"s{number}", **ALL)
    folder = hand_in("Ada", **ALL)
    workers = {cluster.processes[f"worker {name}"].pid: name for name in ("first", "second")}
    killed = []

    def kill_its_worker(done, total):
        """Once five submissions are done, kill the worker that is busy with `Ada`."""
        if done >= 5 and not killed:
            cluster.wait_for(lambda: cluster.times("Ada", "begun"))
            (number,) = cluster.times("Ada", "begun")
            killed.append(number)
            cluster.processes[f"worker {workers[number]}"].kill()
            (cluster.log / "stuck").touch()

    outcome = grade_batch([folder], tmp_path / "grades", open_grader, course, advance=kill_its_worker)
    students = ["Ada", *sorted(f"s{number}" for number in range(11))]
    assert [entry.student for entry in outcome.entries] == students
    assert {result.state for entry in outcome.entries for result in entry.result.exercises} == {
        "passed", "failed", "timed out"
    }  # fmt: skip
    assert killed
    (survivor,) = set(workers) - set(killed)
    assert sorted(cluster.times("Ada", "begun")) == sorted([*killed, survivor])
    for student in students:
        assert cluster.times(student, "done").count(survivor) <= 1
    with sqlite3.connect(tmp_path / "grades" / "gradebook.sqlite") as database:
        saved = Counter(student for (student,) in database.execute("SELECT student FROM results"))
    assert saved == Counter(students)
    again = grade_batch([folder], tmp_path / "grades", open_grader, course)
    assert (again.graded, again.kept) == (0, 12)


def test_a_cluster_that_is_gone_ends_the_run(cluster, course, hand_in, open_grader, tmp_path, monkeypatch):
    """If a run waited forever for a cluster that was shut down, the output folder would stay locked. This test shuts
    down the shared cluster, so no test after it can use the cluster."""
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 3)
    monkeypatch.setattr(cluster_module, "LOST_SECONDS", 2)
    (cluster.log / "stuck").unlink(missing_ok=True)
    hand_in("Abe", **ALL)  # graded before Ada's, which the worker never finishes
    folder = hand_in("Ada", **ALL)

    def switch_off(done, total):
        if done:
            for name in going:
                cluster.processes[name].kill()

    for going in ([name for name in cluster.processes if name != "scheduler"], ["scheduler"]):
        with pytest.raises(InputError, match="has lost all its workers: continue with --resume"):
            grade_batch([folder], tmp_path / going[0], open_grader, course, advance=switch_off)
        if going != ["scheduler"]:
            with pytest.raises(InputError, match="has no workers: start `dask worker"):
                grade_batch([folder], tmp_path / "grades", open_grader, course)
            cluster.add_worker("third", sticky=True)
            cluster.wait_for_workers(1)


def test_no_scheduler_at_the_address(course, hand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.3)
    for address in ("tcp://127.0.0.1:9", "nonsense", "tcp://nowhere.invalid:8786"):
        with pytest.raises(InputError, match="no Dask scheduler answers at") as raised:
            grade_batch([hand_in("Ada", **ALL)], tmp_path / "grades", grader_for(None, False, address), course)
        assert "\n" not in str(raised.value)


def test_without_dask_it_says_what_to_install(course, hand_in, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"requirements/teacher.txt"):
        grade_batch([hand_in("Ada", **ALL)], tmp_path / "grades", batch.grader_for(None, False, "tcp://x:1"), course)
