"""Fixtures: submissions made from the course notebooks, and a grader that reads marks instead of running code."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from transformer_lab.classroom.assemble import Assembled, assemble
from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.gradebook import Entry
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.classroom.submissions import Submission
from transformer_lab.exercises import exercises


class MarkReader:
    """A fake `grader.Grader` that takes each result from a comment in the student's cell, such as `# passed`.

    `# failed SLUG` means a failure with that misconception. Other comments, such as `# timed out`, name other states.
    A stub counts as not attempted.
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

    def grade(
        self, assembled: Iterable[Assembled], only: str | None = None, while_waiting: Callable[[], None] = lambda: None
    ) -> Iterator[SubmissionResult]:
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
            for exercise in self.course.exercises(submission.name, only)
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
def notebook_of(course):
    """Return a function that replaces exercise cells in a notebook: `notebook_of("03_masks", causal_mask="x = 1")`."""

    def write(name: str, **sources: str) -> Any:
        notebook = course.notebook(name)
        for cell in notebook.cells:
            cell.source = sources.get(exercise_of(cell), cell.source)
        return notebook

    return write


@pytest.fixture(scope="session")
def notebook_with(notebook_of):
    """Return a function that writes a notebook with marks: `notebook_with("03_masks", causal_mask="# passed")`."""

    def write(name: str, **marks: str) -> str:
        sources = {name: f"def {name}(*anything):\n    return 1  {mark}" for name, mark in marks.items()}
        return json.dumps(notebook_of(name, **sources))

    return write


@pytest.fixture(scope="session")
def assemble_notebook(course):
    """Return a function that assembles a notebook as if a student had submitted it."""

    def run(notebook: Any, student: str = "Ada") -> Assembled:
        return assemble(Submission(student, f"{student}.ipynb", json.dumps(notebook).encode()), course)

    return run


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


class PageReader(HTMLParser):
    """A parser that reads a page as a browser does and collects everything that could run code or load a resource."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.dangers: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("script", "iframe", "object", "embed", "link", "base", "form", "svg", "math", "template"):
            self.dangers.append(tag)
        for name, value in attributes:
            if name.startswith("on") or name in ("srcdoc", "formaction", "style"):
                self.dangers.append(f"{tag} {name}")
            if name in ("href", "src", "srcset") and not (value or "").startswith(("data:image/", "feedback/", "#")):
                self.dangers.append(f"{tag} {name}={value}")
            if name == "http-equiv" and value != "Content-Security-Policy":
                self.dangers.append(f"{tag} {value}")
        if tag not in ("meta", "img", "source", "br", "hr", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.dangers.append(f"</{tag}> closes another")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def read_page():
    """Return a function that reads a page and asserts that it is well-formed and contains nothing dangerous."""

    def read(text: str) -> PageReader:
        reader = PageReader(text)
        assert (reader.dangers, reader.open) == ([], []), reader.text[:200]
        return reader

    return read
