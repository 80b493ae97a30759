"""Grade honest submissions in one batch with others that try to cheat, break the grader, or disrupt the batch.

No submission gets points that it did not earn or delays the batch beyond its limits. The honest submissions get the
same results as if they had been graded alone. All submissions are in `hostile/`.
"""

import csv
import hashlib
import inspect
import io
import json
import os
import re
import runpy
import shutil
import sqlite3
import subprocess
import tempfile
import textwrap
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch

from transformer_lab.classroom.batch import BatchResult, grade_batch
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.grader import Grader, Limits
from transformer_lab.classroom.results import SubmissionResult
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.classroom.terminal import as_lines
from transformer_lab.exercises import exercises

pytestmark = [
    pytest.mark.costly_setup,
    pytest.mark.skipif(bool(why_no_sandbox()), reason=f"no sandbox: {why_no_sandbox()}"),
]

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = Path(__file__).with_name("hostile")
HONEST = runpy.run_path(str(HOSTILE / "honest.py"))["SUBMISSIONS"]
FILES = runpy.run_path(str(HOSTILE / "files.py"))
CUDA_BYTES = 300 * 2**20 if torch.version.cuda else 0  # extra memory that a CUDA build takes before anything runs
MASKS, ATTENTION = "03_masks", "01_attention"
LIMITS = Limits(
    cell_seconds=3.0,
    exercise_seconds=8.0,
    submission_seconds=60.0,
    cpu_seconds=60,
    memory=2**30 + CUDA_BYTES,
    processes=48,
    file_bytes=32 * 2**20,
)
WRONG = "def causal_mask(length, device=None):\n    return torch.ones(1, 1, length, length, dtype=torch.bool)\n"
# Prefixes for folder names, to test how tables, pages, files, and the screen handle them.
NAMES = [
    "",
    "=HYPERLINK(1)",
    "@SUM(A1)",
    "-rf ",
    "+cmd|x!A0",
    "<script>document.title=8",
    '"><img src=x onerror=document.title=9>',
    "a::b[c]",
    "line\nbreak",
    "\x1b[31m\x1b]0;title\x07",
    "\u202eright to left",
    "'; DROP TABLE results; --",
    "${HOME} $(id) `id`",
    "%2e%2e%2f..",
    "ü\u0308\udcff",
]


Marks = dict[str, set[tuple[str, float]]]  # the states and points that each exercise may get


def _tricks(theme: str) -> Iterator[tuple[str, tuple[dict[str, str], Marks | None]]]:
    """Yield the name, cells, and marks of each submission in `hostile/THEME.md`. `lies.md` describes the format."""
    text = (HOSTILE / f"{theme}.md").read_text(encoding="utf-8")
    intro, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    block = re.compile(r"```python (\S+)\n(.*?)\n```", re.DOTALL)
    shared = dict(block.findall(intro))
    for section in sections:
        cells = dict(block.findall(section))
        for mark, code in shared.items():
            cells = {name: source.replace(mark, code) for name, source in cells.items()}
        expected = re.search(r"^Expected: (.*)", section, re.MULTILINE)[1]
        marks = {
            name: {(state, exercises()[name].points if state == "passed" else 0.0) for state in states.split(" or ")}
            for name, states in re.findall(r"`(\w+)` ([^,]+)", expected)
        }
        yield section.partition("\n")[0], (cells, None if "whatever the others earn" in expected else marks)


TRICKS = {name: given for theme in ("lies", "reading", "ends", "floods") for name, given in _tricks(theme)}


def _answer(name: str) -> str:
    return textwrap.dedent(inspect.getsource(exercises()[name].answer))


def _by_heart() -> str:
    """Return an answer that knows the correct results only for the inputs in the notebook's check."""
    exercise = exercises()["padding_mask"]
    known = []
    for check in exercise.checks:
        inputs = exercise.inputs(check, 0)
        if set(inputs) == {"tokens", "pad_id"}:
            known.append((inputs["tokens"].tolist(), inputs["pad_id"], exercise.answer(**inputs).tolist()))
    return textwrap.dedent(f"""
        KNOWN = {known!r}

        def padding_mask(tokens, pad_id):
            for given, pad, mask in KNOWN:
                if tokens.tolist() == given and pad_id == pad:
                    return torch.tensor(mask)
            return torch.ones(tokens.size(0), 1, 1, tokens.size(1), dtype=torch.bool)
        """)


def _filled_in(cells: dict[str, str]) -> dict[str, str]:
    """Return the cells with code in place of `#RIGHT`, `#WRONG`, and `#BY_HEART`."""
    return {
        name: source.replace("#RIGHT", _answer(name)).replace("#WRONG", WRONG).replace("#BY_HEART", _by_heart())
        for name, source in cells.items()
    }


@dataclass
class Batch:
    """A grading run."""

    out: Path
    outcome: BatchResult
    expected: dict[str, Marks | str | None]  # by name; a string is the expected problem
    changed: set[str]  # files and folders
    left: list[str]  # files, processes and sockets

    def result(self, name: str) -> SubmissionResult:
        """Return the result of the submission with this name."""
        place = list(self.expected).index(name)
        found = [entry.result for entry in self.outcome.entries if entry.student.endswith(f" n{place:03}")]
        assert len(found) == 1, f"{name}: {len(found)} results"
        return found[0]


def _graded(course: Course, folder: Path, submissions: dict[str, tuple[bytes, object]], seed: int) -> Batch:
    """Submit these files and grade them, writing only to `folder`."""
    handed_in, home, place = folder / "handed_in", folder / "home", tempfile.mkdtemp(prefix="tlh-", dir="/tmp")
    (home / ".config").mkdir(parents=True)
    (home / ".bashrc").write_text("# the instructor's")
    outside = folder / "outside.ipynb"
    outside.write_bytes(submissions["right"][0])
    for number, (name, (content, _)) in enumerate(submissions.items()):
        who = handed_in / f"{NAMES[number % len(NAMES)] if name in TRICKS else ''}{name} n{number:03}"
        who.mkdir(parents=True)
        if content is None:
            (who / "03_masks.ipynb").symlink_to(outside)
            continue
        (who / "answers.ipynb").write_bytes(content)
        if name in TRICKS:  # other files next to a notebook must have no effect
            for shadow in ("conftest.py", "sitecustomize.py", "torch.py", "json.py", "nbval.py", "pytest.py"):
                (who / shadow).write_text(f"open({str(folder / 'taken')!r}, 'w'); raise SystemExit")
            (who / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\npython_files = *")
    watched = [handed_in, home, outside, *(ROOT / name for name in ("transformer_lab", "notebooks", "solutions"))]
    before = _digests(watched)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("TMPDIR", place)
        patch.setenv("MPLCONFIGDIR", str(folder / "matplotlib"))  # for the charts of the summary page
        patch.setattr(tempfile, "tempdir", None)
        outcome = grade_batch(
            [handed_in], folder / "out", lambda _, course: Grader(LIMITS, 2, True, seed, course), course
        )
    changed = {path for path, _ in before.items() ^ _digests(watched).items()}
    left = [str(path) for path in Path(place).rglob("*")] + _left_running(place)
    left += ["taken"] if (folder / "taken").exists() else []
    expected = {name: wanted for name, (_, wanted) in submissions.items()}
    shutil.rmtree(place)
    return Batch(folder / "out", outcome, expected, changed, left)


def _digests(watched: list[Path]) -> dict[str, str]:
    found = {}
    for top in watched:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_symlink():
                found[str(path)] = os.readlink(path)
            elif path.is_file() and "__pycache__" not in path.parts:
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            elif path.is_dir() and path.name != "__pycache__":
                found[str(path)] = ""
    return found


def _left_running(place: str) -> list[str]:
    """Return the processes and sockets that mention this folder, and the processes of the grader's temporary users."""
    for _ in range(100):  # the system needs a moment to remove them
        processes = [process.info for process in psutil.process_iter(["cmdline", "uids"], ad_value=())]
        found = [
            f"process {one['cmdline']}"
            for one in processes
            if place in " ".join(one["cmdline"]) or max(one["uids"], default=0) >= 1_000_000_000
        ]
        sockets = Path("/proc/net/unix").read_text(errors="replace").splitlines()
        found += [f"socket {line}" for line in sockets if place in line]
        if not found:
            break
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def honest_ones(notebook_of: Callable) -> dict[str, tuple[bytes, object]]:
    return {
        name: (json.dumps(notebook_of(notebook, **_filled_in(cells))).encode(), marks)
        for name, (notebook, cells, marks) in HONEST.items()
    }


@pytest.fixture(scope="module")
def alone(course: Course, tmp_path_factory: pytest.TempPathFactory, honest_ones: dict) -> Batch:
    return _graded(course, tmp_path_factory.mktemp("alone"), honest_ones, seed=1)


@pytest.fixture(scope="module")
def batch(course: Course, tmp_path_factory: pytest.TempPathFactory, notebook_of: Callable, honest_ones: dict) -> Batch:
    """The honest submissions, the hostile ones, and damaged files, all graded together."""
    full: dict[str, Marks] = {
        name: {one.name: {("passed", one.points)} for one in course.exercises(name)} for name in (MASKS, ATTENTION)
    }
    submissions = dict(honest_ones)
    for name, (cells, marks) in TRICKS.items():
        notebook = MASKS if cells.keys() <= full[MASKS].keys() else ATTENTION
        answers = dict.fromkeys(full[notebook], "#RIGHT") | cells
        wanted = None if marks is None else full[notebook] | marks
        submissions[name] = json.dumps(notebook_of(notebook, **_filled_in(answers))).encode(), wanted
    right = json.dumps(notebook_of(MASKS, **{name: _answer(name) for name in full[MASKS]}))
    for name, (make, marks) in FILES["GRADED"].items():
        submissions[name] = make(json.loads(right)), full[MASKS] | marks
    for name, (make, problem) in FILES["NOT_GRADABLE"].items():
        submissions[name] = make(json.loads(right)), problem
    submissions["a link"] = None, "it is a link"
    return _graded(course, tmp_path_factory.mktemp("together"), submissions, seed=2)


@pytest.mark.parametrize("name", [*HONEST, *TRICKS, *FILES["GRADED"]])
def test_it_gets_what_it_has_earned(batch, name):
    result = batch.result(name)
    assert result.problem == ""
    found = {one.exercise: (one.state, one.earned) for one in result.exercises}
    if batch.expected[name] is None:
        assert found["causal_mask"][1] == 0.0
    else:
        may_be = batch.expected[name]
        assert found.keys() == may_be.keys()
        assert {exercise: mark for exercise, mark in found.items() if mark not in may_be[exercise]} == {}


@pytest.mark.parametrize("name", [*FILES["NOT_GRADABLE"], "a link"])
def test_what_cannot_be_graded_is_reported_with_the_reason(batch, name):
    result = batch.result(name)
    assert result.exercises == ()
    assert batch.expected[name] in result.problem
    assert "\n" not in result.problem


def test_there_are_many():
    assert len(TRICKS) + len(FILES["GRADED"]) + len(FILES["NOT_GRADABLE"]) >= 40


def test_the_honest_ones_are_as_they_are_without_the_others(alone, batch):
    """Grade honest submissions with another secret seed, alongside some that use up CPU time, memory, and processes."""

    def rows(one: Batch) -> dict[str, dict[str, str]]:
        text = (one.out / "gradebook.csv").read_text(encoding="utf-8-sig")
        return {row["student"]: row for row in csv.DictReader(io.StringIO(text))}

    assert rows(alone).keys() == {f"{name} n{place:03}" for place, name in enumerate(HONEST)}
    for student, row in rows(alone).items():
        assert rows(batch)[student] == row
        page = f"feedback/{student}.html"
        assert (batch.out / page).read_text() == (alone.out / page).read_text()
    for name in HONEST:
        assert alone.result(name).exercises == batch.result(name).exercises


def test_nothing_is_changed_and_nothing_is_left(alone, batch):
    """The checkout, the home folder, and the submissions are unchanged. No files, processes, or sockets are left."""
    for one in (alone, batch):
        assert one.changed == set()
        assert one.left == []


# Files that the instructor opens --------------------------------------------------------------------------------------


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def pages(batch):
    paths = [*(batch.out / "feedback").iterdir(), batch.out / "summary.html"]
    assert len(paths) == len(batch.expected) + 1
    return [path.read_text(encoding="utf-8") for path in paths]


def test_no_page_runs_what_a_submission_holds(pages, read_page):
    for page in pages:
        read_page(page)
        assert "Content-Security-Policy" in page
        assert not CONTROLS.search(page.replace("\r", "")), page[:200]


def test_a_browser_runs_nothing_of_a_page(pages, tmp_path):
    """A browser might run text as a script even if a parser considers it plain text."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    whole = tmp_path / "all.html"  # without its policy and title, so that only escaping protects the page
    bodies = [re.sub(r"<title>.*?</title>|<meta http-equiv=[^>]*>", "", page) for page in pages]
    ending = '<script>document.body.append(document.title === "untouched" ? "all" + " quiet" : "taken")</script>'
    whole.write_text(f"<title>untouched</title>{''.join(bodies)}{ending}", encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="tlh-") as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={profile}"]
        ran = subprocess.run([*command, whole.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    assert "all quiet" in ran.stdout, ran.stderr[-2000:]


def test_a_page_shows_what_it_does_not_run(pages):
    """The page shows the code as text. Without this test, the test above could pass on an empty page."""
    assert any("&lt;img src=x onerror=document.title=6&gt;" in page for page in pages)


def test_every_table_and_export_can_be_read(batch):
    rows = list(csv.reader(io.StringIO((batch.out / "gradebook.csv").read_text(encoding="utf-8-sig"))))
    assert len(rows) == len(batch.expected) + 1
    assert {len(row) for row in rows} == {len(rows[0])}
    for cell in (cell for row in rows for cell in row):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert not CONTROLS.search(cell)
        assert "\n" not in cell
    reports = list((batch.out / "junit").iterdir())
    assert len(reports) == len(batch.expected)
    for report in reports:
        suite = ElementTree.parse(report).find("testsuite")
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        assert not CONTROLS.search("".join(suite.itertext()))
    results = list((batch.out / "gradescope").rglob("results.json"))
    assert len(results) == len(batch.expected)
    for path in results:
        said = json.loads(path.read_text(encoding="utf-8"))
        assert said["score"] <= sum(test["max_score"] for test in said["tests"])
        assert not CONTROLS.search(json.dumps(said, ensure_ascii=False))
    assert all(path.resolve().is_relative_to(batch.out.resolve()) for path in batch.out.rglob("*"))
    with sqlite3.connect(batch.out / "gradebook.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*) FROM results").fetchone() == (len(batch.expected),)


def test_no_terminal_is_told_what_to_do(batch):
    for line in as_lines(batch.outcome):
        assert line.isprintable()
