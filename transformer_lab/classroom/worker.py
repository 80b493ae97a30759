"""A worker process of the grader. For each submission it runs pytest, whose items run cells and score exercises.

It never runs a student's code. Each kernel runs in its own process, and every message from a kernel is validated.
"""

import compileall
import ctypes
import functools
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.grader import Setup
from transformer_lab.classroom.kernel_client import preload
from transformer_lab.classroom.kernel_process import PR_SET_PDEATHSIG
from transformer_lab.classroom.pytest_items import SubmissionRun
from transformer_lab.classroom.results import SubmissionResult, without_points
from transformer_lab.classroom.stubbed_package import write_stubbed_package

# The last two run garbage collection several times, which is slow with so many torch objects.
UNUSED_PLUGINS = ("cacheprovider", "doctest", "faulthandler", "logging", "threadexception", "unraisableexception")
PYTEST = [
    *("--nbval-lax", "-p", "nbval.plugin", "--noconftest", "-q", "--no-summary"),
    *("--color=no", "--capture=no", "--assert=plain"),
    *(argument for name in UNUSED_PLUGINS for argument in ("-p", f"no:{name}")),
]


class Worker:
    """The state shared by all of a worker's submissions: the course and the stubbed packages."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup, self.folder = setup, folder
        self.course = Course(setup.course)
        self._submissions = itertools.count()
        self.package = functools.cache(self._package)

    def _package(self, name: str) -> Path:
        """Write the stubbed package for a notebook, and return the folder that kernels put on Python's path."""
        folder = self.folder / f"p{name}"
        compileall.compile_dir(write_stubbed_package(folder, [name]), quiet=2)  # because every kernel imports it
        return folder

    def grade(self, assembled: Assembled, only: str | None) -> SubmissionResult:
        """Grade a submission. If no kernel starts, try once more."""
        package = self.package(assembled.name)
        exercises = self.course.exercises(assembled.name, only)
        began = time.monotonic()
        for _ in range(2):
            folder = self.folder / f"s{next(self._submissions)}"
            folder.mkdir()
            setup = self.setup
            run = SubmissionRun(assembled, exercises, package, folder, setup.sandboxed, setup.limits, setup.seed)
            junit = run_pytest(run)
            os.chdir(self.folder)
            shutil.rmtree(folder, ignore_errors=True)
            if run.results:
                break
        result = without_points(assembled, exercises, "grader error", "The grader failed: no kernel could be started.")
        scored = {each.exercise: each for each in run.results}
        return replace(
            result,
            exercises=tuple(scored.get(each.exercise, each) for each in result.exercises),
            remarks=(*assembled.remarks, *run.remarks()),
            seconds=time.monotonic() - began,
            junit=junit,
        )


def run_pytest(run: SubmissionRun) -> str:
    """Run the submission's cells, score its exercises, and return the JUnit XML."""
    os.chdir(run.folder)
    settings, junit = run.folder / "pytest.ini", run.folder / "junit.xml"
    settings.write_text("[pytest]\n")  # so that pytest doesn't search for settings elsewhere
    files = ["-c", str(settings), "--rootdir", str(run.folder), f"--junitxml={junit}", str(run.written_notebook())]
    pytest.main([*PYTEST, *files], plugins=[run])
    text = junit.read_text(encoding="utf-8") if junit.exists() else ""
    return re.sub(r'(<testsuite [^>]*?) hostname="[^"]*"', r"\1", text)


def main(file: int, folder: str) -> None:
    """Grade the submissions that arrive, until the grader closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the grader, which ends this process
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # leave nothing running if the grader is killed
    connection = Connection(file)
    torch.set_num_threads(1)
    os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        worker = Worker(connection.recv(), Path(folder))
        preload()
        gc.freeze()  # imported modules stay in memory, so garbage collection can skip them
        connection.send(True)
        while True:
            connection.send(worker.grade(*connection.recv()))
    except (EOFError, OSError):
        return
