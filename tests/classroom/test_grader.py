"""In a batch, each submission runs in its own process, within limits that it cannot escape."""

import inspect
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nbformat
import pytest

from transformer_lab.classroom import grader as grading
from transformer_lab.classroom.grader import Grader, Limits
from transformer_lab.errors import InputError
from transformer_lab.exercises import exercises

ANSWERS = {name: inspect.getsource(exercises()[name].answer) for name in ("padding_mask", "causal_mask", "target_mask")}
FULL = dict.fromkeys(ANSWERS, ("passed", 1.0))
LIMITS = Limits(cell_seconds=5.0, submission_seconds=90.0)

pytestmark = pytest.mark.costly_setup


@pytest.fixture(scope="module")
def grader(course):
    with Grader(LIMITS, jobs=2, require_sandbox=False, course=course) as grader:
        yield grader


@pytest.fixture(scope="module")
def assembled(notebook_of, assemble_notebook):
    """Return a function that assembles notebook 03 with correct answers, some of which the caller can replace."""

    def make(student, **sources):
        return assemble_notebook(notebook_of("03_masks", **ANSWERS | sources), student)

    return make


def marks(result):
    assert result.problem == ""
    return {one.exercise: (one.state, one.earned) for one in result.exercises}


def test_each_submission_gets_its_own_marks(grader, assembled):
    """No submission affects another, whether they run one after the other or two at a time."""
    right = ANSWERS["causal_mask"]
    before = _answers()
    forge = "print('submitted: causal_mask')\ncheck = lambda f: print('passed')\ncausal_mask = 1"
    swallow = "import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass"
    handed_in = {
        "right": ({}, "passed"),
        "empty": ({name: f"def {name}(*a):\n    raise NotImplementedError()" for name in ANSWERS}, "not attempted"),
        "raises below": ({"causal_mask": f"{right}\nraise RuntimeError('further down')"}, "passed"),
        "loops below": ({"causal_mask": f"{right}\nwhile True: pass"}, "passed"),
        "swallows interrupts": ({"padding_mask": swallow}, "timed out"),
        "dies": ({"causal_mask": f"import os; os._exit(0)\n{right}"}, "killed"),
        "dies when called": ({"causal_mask": "def causal_mask(*a, **k):\n    import os; os._exit(0)"}, "killed"),
        "syntax": ({"causal_mask": "def causal_mask(:"}, "failed"),
        "hides": ({"causal_mask": f"{right}\ncheck = get_ipython = print = report = None"}, "passed"),
        "forges": ({"causal_mask": forge}, "failed"),
    }
    submissions = (assembled(name, **cells) for name, (cells, _) in handed_in.items())
    results = {one.student: one for one in grader.grade(submissions)}
    assert {name: marks(result) for name, result in results.items()} == {
        name: FULL | dict.fromkeys(cells, (state, float(state == "passed")))
        for name, (cells, state) in handed_in.items()
    }
    reports = {one.exercise: one.report for one in results["syntax"].exercises}
    assert "SyntaxError" in reports["causal_mask"]
    assert _answers() == before


def test_a_worker_that_never_gets_ready_is_replaced(assembled, course, monkeypatch):
    """If its first message arrived late, it used to be taken for a result, which ended the run with a traceback."""
    submission = assembled("Ada")
    with Grader(LIMITS, jobs=1, require_sandbox=False, course=course) as grader:
        with monkeypatch.context() as patch:
            patch.setattr(grading, "START_SECONDS", 0.0)
            (result,) = grader.grade([submission])
        assert {one.state for one in result.exercises} == {"grader error"}
        (again,) = grader.grade([submission])
    assert marks(again) == FULL


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("scaled_dot_product_attention", "from torch.nn.functional import softmax\n"),
        ("scaled_dot_product_attention", "from torch.nn.functional import *\n"),
        ("own", "import torch\nsoftmax = torch.nn.Softmax(dim=-1)\n"),
    ],
)
def test_a_later_import_takes_nothing_away(grader, course, notebook_of, assemble_notebook, cell, text):
    """Importing another `softmax` later used to cost all points for `softmax` and its caller `numpy_attention`."""
    answers = {one.name: inspect.getsource(one.answer) for one in course.exercises("01_attention")}
    notebook = notebook_of("01_attention", **answers | {cell: text + answers.get(cell, "")})
    if cell == "own":
        notebook.cells.append(nbformat.v4.new_code_cell(text))
    (result,) = grader.grade([assemble_notebook(notebook)])
    assert {one.exercise: one.state for one in result.exercises} == dict.fromkeys(answers, "passed")
    remarks = {one.exercise: one.remarks for one in result.exercises}
    assert remarks["SingleHeadAttention"] == ()
    if cell != "own":  # the student's own cell is placed before the exercise
        assert any("redefines `softmax`" in remark for remark in remarks["softmax"])


def test_what_a_later_cell_gets_wrong_is_wrong_where_the_check_saw_it_too(grader, assembled):
    """The second check is not a second chance: an answer that was wrong when its own check ran stays wrong."""
    wrong = "def padding_mask(tokens, pad_id):\n    return tokens == pad_id\n"
    (result,) = grader.grade(
        [assembled("late", padding_mask=wrong, causal_mask=f"{ANSWERS['causal_mask']}\n\npadding_mask = 3\n")]
    )
    assert marks(result)["padding_mask"][1] < 1
    assert marks(result)["causal_mask"] == FULL["causal_mask"]


def test_what_is_wrong_outside_the_exercises_cell_is_said(grader, notebook_of, assemble_notebook):
    """Failed cells used to appear only in the JUnit file, and imports from the package counted as "not attempted"."""
    sources = {
        "padding_mask": "def padding_mask(tokens, pad_id):\n    return compare(tokens, pad_id)",
        "causal_mask": "from transformer_lab.model import causal_mask",
        "target_mask": "def targetmask(tokens, pad_id):\n    return None",
    }
    notebook = notebook_of("03_masks", **sources)
    notebook.cells.insert(1, nbformat.v4.new_code_cell("\nfrom no_such_library import compare\n"))
    (result,) = grader.grade([assemble_notebook(notebook)])
    (remark,) = (remark for remark in result.remarks if "did not run" in remark)
    assert remark == (
        "The added cell `from no_such_library import compare` did not run to the end: "
        "`ModuleNotFoundError: No module named 'no_such_library'`."
    )
    reports = {one.exercise: (one.state, one.report) for one in result.exercises}
    assert reports["causal_mask"][0] == "failed"
    says = reports["causal_mask"][1]
    assert "`causal_mask` is imported from the package, which has no answers while you are graded" in says
    assert reports["target_mask"] == (
        "failed", "After the notebook was run, there was no `target_mask`. Its cell defines `targetmask`."
    )  # fmt: skip


def _answers():
    """Return the points of each answer, and when its file was changed."""
    return {
        name: (exercises()[name].points, os.path.getmtime(inspect.getsourcefile(exercises()[name].answer)))
        for name in ANSWERS
    }


def test_the_limit_of_a_submission_holds_over_many_cells(course, assembled):
    """Each cell stays within its own time limit, but the result says that the whole notebook timed out."""
    slow = {name: f"{ANSWERS[name]}\nimport time; time.sleep(1.5)" for name in ANSWERS}
    limits = Limits(cell_seconds=60.0, submission_seconds=3.0)
    with Grader(limits, jobs=1, require_sandbox=False, course=course) as grader:
        (result,) = grader.grade([assembled("slow", **slow)])
    assert marks(result) == dict.fromkeys(ANSWERS, ("timed out", 0.0))


def test_a_worker_that_is_late_is_killed_and_has_used_time(grader, assembled, monkeypatch):
    """Time spent in a killed worker counts against the student. The next submission gets a new worker."""
    with monkeypatch.context() as patch:
        patch.setattr(grading, "EXTRA_SECONDS", -LIMITS.submission_seconds)
        (late,) = grader.grade([assembled("late")])
    (on_time,) = grader.grade([assembled("on time")])
    assert marks(late) == dict.fromkeys(ANSWERS, ("timed out", 0.0))
    assert late.seconds > 0
    assert marks(on_time) == FULL


def test_a_grader_calls_back_while_it_waits(grader, assembled, monkeypatch):
    """Without the call, reports on the other submissions are written only after a slow one has ended."""
    monkeypatch.setattr(grading, "QUIET_SECONDS", 0.01)
    events = []
    for result in grader.grade([assembled("Ada")], while_waiting=lambda: events.append("waiting")):
        events.append(result.student)
    assert events.pop() == "Ada"
    assert set(events) == {"waiting"}


def test_the_junit_of_a_run_parses_and_has_every_exercise(grader, assembled):
    (result,) = grader.grade([assembled("\x1b[31m", causal_mask="raise ValueError('\\x1b[31m \\ud800 ]]>')")])
    root = ElementTree.fromstring(result.junit)
    assert {case.get("name") for case in root.iter("testcase")} >= set(ANSWERS)
    assert root.find("testsuite").get("failures") != "0"
    assert root.find("testsuite").get("hostname") is None


def test_a_compiled_answer_earns_its_points(grader, assembled):
    """The answer runs uncompiled, because compiling for each input would take too long and a sandbox has no cache."""
    (result,) = grader.grade([assembled("Ada", causal_mask=f"@torch.compile\n{ANSWERS['causal_mask']}")])
    assert marks(result) == FULL


def test_one_exercise_alone(grader, assembled):
    """This exercise uses two others: one is wrong, and the other is missing."""
    wrong = {"padding_mask": "def padding_mask(tokens, pad_id):\n    return tokens", "causal_mask": "def causal_mask(:"}
    (result,) = grader.grade([assembled("one", **wrong)], only="target_mask")
    assert marks(result) == {"target_mask": ("passed", 1.0)}


def test_who_stops_to_listen_leaves_nothing_for_the_next(grader, assembled):
    first = grader.grade(assembled(f"first {number}") for number in range(4))
    next(first)
    first.close()
    (result,) = grader.grade([assembled("second")])
    assert result.student == "second"


def test_a_worker_that_dies_costs_one_submission_and_nothing_is_left(course, assembled, tmp_path, monkeypatch):
    """When memory runs low, the system kills processes. No process or file from the submission remains, and the home
    folder is unchanged."""
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "pytest.ini").write_text("of the instructor")
    monkeypatch.setenv("HOME", str(tmp_path))
    before = _contents(tmp_path)
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(999)"
    cells = {"causal_mask": f"{ANSWERS['causal_mask']}\n{daemon}"}

    def submissions(grader):
        yield assembled("first", **cells)
        yield assembled("second", **cells)  # requested while the first one is being graded
        os.kill(grader._workers[0]._process.pid, 9)  # this runs while the second one is being graded
        yield assembled("third", **cells)

    with Grader(jobs=1, require_sandbox=False, course=course) as grader:
        folder = grader.folder
        first, second, third = grader.grade(submissions(grader))
    assert marks(first) == marks(third) == FULL
    assert {state for state, _ in marks(second).values()} == {"grader error"}
    assert not folder.exists()
    assert _contents(tmp_path) == before
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(folder) not in listed


def test_if_a_worker_cannot_be_started_the_others_end(course, monkeypatch):
    """If the system is out of processes, for example, the workers that did start must not outlive the error."""
    start, started = subprocess.Popen, []

    def only_once(*arguments, **options):
        if started:
            raise BlockingIOError("Resource temporarily unavailable")
        started.append(start(*arguments, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", only_once)
    grader = Grader(LIMITS, jobs=2, require_sandbox=False, course=course)
    with pytest.raises(BlockingIOError), grader:
        pass
    assert started[0].returncode is not None
    assert not grader.folder.exists()


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def test_where_there_is_no_sandbox_it_refuses_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr("transformer_lab.classroom.grader.why_no_sandbox", lambda: "bubblewrap is not installed")
    with pytest.raises(InputError, match="bubblewrap is not installed; --without-sandbox"):
        Grader()
    assert not Grader(require_sandbox=False).sandboxed
