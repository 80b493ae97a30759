"""Measure how much time and memory grading a class takes, and how long nbgrader takes for the same notebook.

    python benchmarks/grading.py [--submissions 100] [--nbgrader 8] [--jobs N]

The goals on two cores: 1.5 s per submission of notebook 01 in a batch of 100, whether its answers are right or wrong;
at most twice the time for twice as many submissions; five times as fast as `nbgrader autograde`. A batch's time covers
everything that `transformer-lab grade` does, from reading the files to writing the last report. nbgrader runs both
before and after the package's grader, so that any other load on the machine affects both. Prints the results and writes
them to `results/grading.json`.
"""

import argparse
import inspect
import os
import sys
import tempfile
import threading
import time
import warnings
from itertools import product
from pathlib import Path

import nbformat
import psutil
from machine import RESULTS, ROOT, run_script, timed, write_result

from transformer_lab.classroom.batch import grade_batch, grader_for
from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.exercises import exercises

NOTEBOOK = "01_attention"
# In addition to correct answers: a missing scale, the wrong axis, an exception, and no attempt.
CHANGES = {
    "softmax": [None, ("axis=-1", "axis=0"), ("exponentials /", "exponentails /"), ("empty", "")],
    "numpy_attention": [None, (" / np.sqrt(d_k)", ""), ("return weights @ value, weights", "return weights, value")],
    "scaled_dot_product_attention": [None, (" / math.sqrt(d_k)", ""), ("(~mask,", "(mask,"), ("empty", "")],
    "SingleHeadAttention": [None, ("self.w_k(key)", "self.w_q(key)"), ("empty", "")],
}


def answers(number: int) -> dict[str, str]:
    """Return one student's cells. Every other student has only correct answers; the rest make one or more mistakes."""
    wrong = list(product(*CHANGES.values()))
    chosen = wrong[number * 7 % len(wrong)] if number % 2 else wrong[0]
    cells = {}
    for (name, _), change in zip(CHANGES.items(), chosen, strict=True):
        if change == ("empty", ""):
            continue
        source = inspect.getsource(exercises()[name].answer)
        if change and change[0] not in source:
            raise ValueError(f"the answer to {name} no longer contains {change[0]!r}: update CHANGES in grading.py")
        cells[name] = (source.replace(*change) if change else source) + f"\n# student {number}"
    return cells


def write_submissions(notebook: nbformat.NotebookNode, folder: Path, count: int, path: str) -> None:
    """Write `count` notebooks with answers."""
    for number in range(count):
        submission = nbformat.from_dict(notebook)
        cells = answers(number)
        for cell in submission.cells:
            if (name := exercise_of(cell)) in cells:
                cell.source = cells[name]
        file = folder / path.format(f"student_{number:03}")
        file.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(submission, file)


class Memory:
    """Measure the peak memory of the grader's processes, in bytes, while the `with` block runs.

    `grader` counts this process, its workers, and the processes from which they fork kernels; `all` also includes the
    kernels. Shared memory is counted once. If the system does not report memory use, both are 0.
    """

    def __enter__(self) -> "Memory":
        self.grader = self.all = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        own = psutil.Process()
        while not self._ended.wait(1.0):
            workers = own.children()
            servers = [child for worker in workers for child in _children(worker)]
            kernels = [child for server in servers for child in _children(server, recursive=True)]
            grader = sum(map(_held, [own, *workers, *servers]))
            self.grader = max(self.grader, grader)
            self.all = max(self.all, grader + sum(map(_held, kernels)))


def _children(process: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
    try:
        return process.children(recursive)
    except psutil.Error:
        return []


def _held(process: psutil.Process) -> int:
    try:
        return getattr(process.memory_full_info(), "pss", 0)
    except psutil.Error:
        return 0


def grade_ours(course: Course, folder: Path, count: int, jobs: int) -> dict[str, float]:
    write_submissions(course.notebook(NOTEBOOK), folder / "handed_in", count, "{}/" + f"{NOTEBOOK}.ipynb")
    first = 0.0

    def advance(done: int, total: int) -> None:
        nonlocal first
        if done == 1:
            first = time.perf_counter() - start

    start = time.perf_counter()
    with Memory() as memory:
        outcome = grade_batch([folder / "handed_in"], folder / "out", grader_for(jobs, False, None), advance=advance)
    seconds = time.perf_counter() - start
    states = [exercise.state for entry in outcome.entries for exercise in entry.result.exercises]
    if len(outcome.entries) != count or "grader error" in states or not {"passed", "failed"} <= set(states):
        raise SystemExit(f"the batch of {count} was not graded as expected: {sorted(set(states))}")
    return {
        "submissions": count,
        "seconds": round(seconds, 2),
        "seconds a submission": round(seconds / count, 3),
        "seconds to the first result": round(first, 2),
        "points": round(sum(entry.result.earned for entry in outcome.entries), 2),
        "memory of the grader, MiB": round(memory.grader / 2**20),
        "memory with its kernels, MiB": round(memory.all / 2**20),
    }


class Nbgrader:
    """`nbgrader autograde` on the same notebook, set up the way an instructor would."""

    def __init__(self, folder: Path, count: int) -> None:
        from nbgrader.apps import NbGraderAPI
        from traitlets.config import Config

        warnings.filterwarnings("ignore", message="Object of type")  # caused by nbgrader's database code
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader runs `alembic`
        os.environ["TRANSFORMER_LAB_MINE"] = "off"
        config = Config()
        config.CourseDirectory.root = str(folder)
        config.CourseDirectory.course_id = "lab"
        for limit in ("timeout", "iopub_timeout", "startup_timeout"):
            setattr(config.Execute, limit, 600)
        source = folder / "source" / "week1"
        source.mkdir(parents=True)
        (source / f"{NOTEBOOK}.ipynb").write_bytes((ROOT / "solutions" / f"{NOTEBOOK}.ipynb").read_bytes())
        self.api = NbGraderAPI(config=config)
        if not self.api.generate_assignment("week1")["success"]:
            raise SystemExit("nbgrader could not create the assignment")
        released = nbformat.read(folder / "release" / "week1" / f"{NOTEBOOK}.ipynb", as_version=4)
        write_submissions(released, folder / "submitted", count, "{}/week1/" + f"{NOTEBOOK}.ipynb")
        self.seconds: list[float] = []
        self.points = 0.0

    def grade(self, numbers: range) -> None:
        for number in numbers:
            student = f"student_{number:03}"
            seconds, outcome = timed(self.api.autograde, "week1", student)
            if not outcome["success"]:
                raise SystemExit(f"nbgrader could not grade {student}")
            self.seconds.append(seconds)
            with self.api.gradebook as gradebook:
                self.points += gradebook.find_submission("week1", student).score


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=100)
    parser.add_argument(
        "--nbgrader", type=int, default=8, metavar="N", help="submissions for nbgrader; 0 skips nbgrader"
    )
    parser.add_argument("--jobs", type=int, default=processors(), help="submissions to grade at the same time")
    arguments = parser.parse_args()
    if why_no_sandbox():
        print(f"no sandbox: {why_no_sandbox()}")

    course = Course.find()
    with tempfile.TemporaryDirectory(prefix="grading-", dir="/tmp") as temporary:
        folder = Path(temporary)
        count = arguments.nbgrader
        nbgrader = Nbgrader(folder / "nbgrader", count) if count else None
        if nbgrader:
            nbgrader.grade(range(count // 2))
        half, whole = (
            grade_ours(course, folder / f"of_{number}", number, arguments.jobs)
            for number in (max(1, arguments.submissions // 2), arguments.submissions)
        )
        if nbgrader:
            nbgrader.grade(range(count // 2, count))
    further = (whole["seconds"] - half["seconds"]) / (whole["submissions"] - half["submissions"])
    result = {
        "what": f"transformer-lab grade on submissions of notebook {NOTEBOOK}, from reading files to the last report",
        "goal": {"seconds a submission": 1.5, "times as fast as nbgrader": 5},
        "jobs": arguments.jobs,
        "sandbox": not why_no_sandbox(),
        "batches": [half, whole],
        "seconds a further submission": round(further, 3),
        "twice the submissions, times the seconds": round(whole["seconds"] / half["seconds"], 2),
    }
    for batch in (half, whole):
        print(", ".join(f"{name} {value}" for name, value in batch.items()))
    print(f"{further:.3f} s for each additional submission")
    if nbgrader:
        each = sum(nbgrader.seconds) / len(nbgrader.seconds)
        ratio = round(each / whole["seconds a submission"], 1)
        seconds = [round(one, 2) for one in nbgrader.seconds]
        result |= {
            "nbgrader autograde": {"all": seconds, "seconds a submission": round(each, 2), "points": nbgrader.points},
            "times as fast as nbgrader": ratio,
        }
        print(f"nbgrader autograde: {each:.2f} s per submission, so transformer-lab grade is {ratio} times as fast")
    write_result(RESULTS / "grading.json", result)


if __name__ == "__main__":
    run_script(main)
