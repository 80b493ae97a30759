"""Fixtures: submissions made from the course notebooks, and a grader that reads marks instead of running code."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.gradebook import Entry
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.exercises import exercises


class MarkReader:
    """A fake `grader.Grader` that takes each result from a comment in the student's cell, such as `# passed`.

    `# failed SLUG` is a failure with that misconception; `# timed out` and the like are states; a stub counts as not
    attempted.
    """

    def __init__(self, sandboxed=True, dies_after=None, signal=None, forgets=(), twice=False, overrides=None):
        self.sandboxed, self.dies_after, self.signal = sandboxed, dies_after, signal
        self.forgets, self.twice, self.overrides = set(forgets), twice, overrides or {}
        self.graded: list[tuple[str, str]] = []
        self.seeds: list[int] = []

    def __call__(self, seed: int, course: Course) -> "MarkReader":
        self.seeds.append(seed)
        self.course = course
        return self

    def __enter__(self) -> "MarkReader":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def grade(self, assembled: Iterable[Assembled], only: str | None = None) -> Iterator[SubmissionResult]:
        for submission in assembled:
            if len(self.graded) == self.dies_after:
                if self.signal:
                    os.kill(os.getpid(), self.signal)
                raise KeyboardInterrupt
            self.graded.append((submission.student, submission.name))
            if submission.student not in self.forgets:
                yield from [self.result(submission, only)] * (2 if self.twice else 1)

    def result(self, submission: Assembled, only: str | None) -> SubmissionResult:
        results = tuple(
            self.read(exercise.name, submission.sources.get(exercise.name, ""))
            for exercise in self.course.exercises(submission.name)
            if only in (None, exercise.name)
        )
        return SubmissionResult(
            submission.student, submission.name, submission.digest, results, submission.remarks, junit=JUNIT
        )

    def read(self, name: str, source: str) -> ExerciseResult:
        marked = source.rpartition("# ")[2].strip() if "return 1" in source else "not attempted"
        mark = self.overrides.get(name, marked)
        state, slug = ("failed", mark.removeprefix("failed").strip()) if mark.startswith("failed") else (mark, "")
        points = exercises()[name].points
        earned, slugs = points if state == "passed" else 0.0, (slug,) if slug else ()
        return ExerciseResult(name, state, earned, points, slugs, source=source, cell_id=f"exercise-{name}")


JUNIT = (
    '<?xml version="1.0"?><testsuites><testsuite name="pytest"><testcase classname="nb" name="Cell 0" time="0.1"/>'
    '<testcase classname="nb" name="padding_mask"><properties><property name="points" value="9"/></properties>'
    "</testcase>"
    "</testsuite></testsuites>"
)


@pytest.fixture(scope="session")
def course() -> Course:
    return Course.find()


@pytest.fixture
def mark_reader() -> type[MarkReader]:
    return MarkReader


@pytest.fixture(scope="session")
def notebook_with(course):
    """Return a function that fills in answers in a notebook: `notebook_with("03_masks", causal_mask="# passed")`."""

    def write(name: str, **sources: str) -> str:
        notebook = course.notebook(name)
        for cell in notebook.cells:
            exercise = exercise_of(cell)
            if exercise in sources:
                cell.source = f"def {exercise}(*anything):\n    return 1  {sources[exercise]}"
        return json.dumps(notebook)

    return write


@pytest.fixture
def hand_in(tmp_path, notebook_with):
    """Return a function that writes `handed_in/STUDENT/NAME.ipynb` with answers and returns the `handed_in` folder."""

    def write(student: str, name: str = "03_masks", **sources: str) -> Path:
        path = tmp_path / "handed_in" / student / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(notebook_with(name, **sources), encoding="utf-8")
        return tmp_path / "handed_in"

    return write


@pytest.fixture
def entry():
    """Return a function that creates an entry: `entry("Ada", padding_mask="passed", causal_mask="failed")`."""

    def make(student, notebook="03_masks", path="ada.ipynb", sandboxed=True, remarks=(), problem="", **states) -> Entry:
        results = []
        for name, given in states.items():
            fields = given if isinstance(given, dict) else {"state": given}
            points = exercises()[name].points
            earned = points if fields["state"] == "passed" else 0.0
            results.append(ExerciseResult(**{"exercise": name, "earned": earned, "possible": points, **fields}))
        result = SubmissionResult(student, notebook, "digest", tuple(results), tuple(remarks), problem, 1.5, JUNIT)
        return Entry(result, path, sandboxed, "sources")

    return make


@pytest.fixture
def without_charts(monkeypatch):
    """Leave the charts out of the summary, because drawing them takes longer than everything else."""
    monkeypatch.setattr("transformer_lab.classroom.summary.chart", lambda draw, height: {"light": "", "dark": ""})
