"""A grader's worker process: for each submission it runs pytest, whose items run cells and score exercises.

No code of a student runs here. Kernels run in processes of their own, and only checked messages come back.
"""

import compileall
import functools
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.grader import Setup
from transformer_lab.classroom.kernel_client import preload
from transformer_lab.classroom.pytest_items import KernelSource, SubmissionRun, write_assembled
from transformer_lab.classroom.results import SubmissionResult
from transformer_lab.classroom.scoring import Score
from transformer_lab.classroom.stubbed_package import write_stubbed_package

# Some of pytest's own; the two about exceptions collect the garbage of all that torch has, several times.
UNUSED_PLUGINS = ("cacheprovider", "doctest", "faulthandler", "logging", "threadexception", "unraisableexception")
PYTEST = [
    *("--nbval-lax", "-p", "nbval.plugin", "--noconftest", "-q", "--no-summary"),
    *("--color=no", "--capture=no", "--assert=plain"),
    *(word for name in UNUSED_PLUGINS for word in ("-p", f"no:{name}")),
]


class Worker:
    """What the submissions of one worker share: the course, and the stubbed packages."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup, self.folder = setup, folder
        self.course = Course(Path(setup.course)) if setup.course else Course.find()
        self._submissions = itertools.count()
        self.package = functools.cache(self._package)

    def _package(self, name: str) -> Path:
        """Write the stubbed package of a notebook; returns the folder that kernels put on their path."""
        folder = self.folder / f"p{name}"
        compileall.compile_dir(write_stubbed_package(folder, [name]), quiet=2)  # every kernel imports it
        return folder

    def grade(self, assembled: Assembled, only: str | None) -> SubmissionResult:
        """Grade a submission. One for which no kernel could be started is tried once more."""
        package = self.package(assembled.name)
        exercises = [each for each in self.course.exercises(assembled.name) if only in (None, each.name)]
        began = time.monotonic()
        for _ in range(2):
            folder = self.folder / f"s{next(self._submissions)}"
            folder.mkdir()
            source = KernelSource(package, folder, self.setup.sandboxed, self.setup.limits, self.setup.seed)
            run = SubmissionRun(assembled, exercises, source)
            junit = run_pytest(run)
            os.chdir(self.folder)
            shutil.rmtree(folder, ignore_errors=True)
            if run.kernels_started:
                break
        scored = {result.exercise for result in run.results}
        for exercise in exercises:
            if exercise.name not in scored:
                run.add(exercise, Score("grader error", report="The grader failed: no kernel could be started."))
        by_name = {result.exercise: result for result in run.results}
        return SubmissionResult(
            student=assembled.student,
            notebook=assembled.name,
            digest="",
            exercises=tuple(by_name[exercise.name] for exercise in exercises),
            remarks=(*assembled.remarks, *run.remarks()),
            seconds=time.monotonic() - began,
            junit=junit,
        )


def run_pytest(run: SubmissionRun) -> str:
    """Run the submission's cells and score its exercises; returns the JUnit XML."""
    folder = run.source.folder
    os.chdir(folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    junit = folder / "junit.xml"
    here = ["-c", str(folder / "pytest.ini"), "--rootdir", str(folder), f"--junitxml={junit}"]
    pytest.main([*PYTEST, *here, str(write_assembled(run))], plugins=[run])
    text = junit.read_text(encoding="utf-8") if junit.exists() else ""
    return re.sub(r'(<testsuite [^>]*?) hostname="[^"]*"', r"\1", text)


def main(file: int, folder: str) -> None:
    """Grade what comes, until nothing more will come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is for the grader, which ends us
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed grader leaves nothing running
    connection = Connection(file)
    torch.set_num_threads(1)
    os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        worker = Worker(connection.recv(), Path(folder))
        preload()
        gc.freeze()  # what has been imported stays: no collection has to look at it
        connection.send(True)
        while True:
            connection.send(worker.grade(*connection.recv()))
    except (EOFError, OSError):
        return
