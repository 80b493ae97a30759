"""Without these tests, notebooks and solutions could differ from their source or from each other, or leak an answer."""

import os
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from transformer_lab.authoring import build_notebooks, outdated_notebooks, read_text
from transformer_lab.authoring.__main__ import main
from transformer_lab.errors import InputError

ROOT = Path(__file__).resolve().parents[2]

TEXT = """# Doubling

What you will build.

```{code-cell} ipython3
from math import prod


def check(answer):
    assert answer(3) == 6
    print("passed")
```

## The exercise

Write it.

```{code-cell} ipython3
:exercise: doubled
```

```{code-cell} ipython3
:check: doubled
```

Some words about it, then a list of one:

```
# this is no heading
```

## What comes next
```{code-cell} ipython3
:tags: [hide-input]

print(doubled(4))
```
"""


def doubled(number: int) -> int:
    """Twice the number."""
    return number + number


EXERCISES = {"doubled": SimpleNamespace(answer=doubled, blank=(), points=3, minutes=1)}


@pytest.fixture
def course(tmp_path) -> Path:
    """Return the root folder of a course with a single source file."""
    (tmp_path / "course").mkdir()
    (tmp_path / "course" / "01_doubling.md").write_text(TEXT, encoding="utf-8")
    return tmp_path


def cells(notebook) -> dict:
    return {cell.id: cell for cell in notebook.cells}


def test_the_two_notebooks_differ_only_in_the_exercise(course):
    notebook, solution = read_text(course / "course" / "01_doubling.md", EXERCISES)
    assert list(cells(notebook)) == [
        "doubling", "doubling-2", "the-exercise", "exercise-doubled", "check-doubled", "the-exercise-2",
        "what-comes-next", "what-comes-next-2",
    ]  # fmt: skip
    different = [mine.id for mine, other in zip(notebook.cells, solution.cells, strict=True) if mine != other]
    assert different == ["exercise-doubled"]
    assert cells(notebook)["exercise-doubled"].source == (
        'def doubled(number: int) -> int:\n    """Twice the number."""\n'
        "    # YOUR CODE HERE\n    raise NotImplementedError()"
    )
    assert "return number + number" in cells(solution)["exercise-doubled"].source
    assert cells(notebook)["check-doubled"].source == "check(doubled)"
    assert cells(notebook)["check-doubled"].metadata.tags == ["nbval-check-output"]
    assert cells(notebook)["what-comes-next-2"].metadata.tags == ["hide-input"]
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)


def test_the_text_before_an_exercise_is_in_its_box(course):
    path = course / "course" / "01_doubling.md"
    notebook, _ = read_text(path, EXERCISES)
    heading, opening, title, task, _, closing = cells(notebook)["the-exercise"].source.split("\n\n")
    assert heading == "## The exercise"
    assert (opening, closing) == ('<div class="alert alert-block alert-info">', "</div>")
    assert title == "**Exercise: `doubled`** · about 1 minute · 3 points"
    assert task == "Write it."

    for without, cell_id in (("## The exercise\n", "the-exercise"), ("", "task-doubled")):  # without a task or a cell
        path.write_text(TEXT.replace("## The exercise\n\nWrite it.\n", without))
        box = cells(read_text(path, EXERCISES)[0])[cell_id].source
        assert title in box
        assert "\n\n\n" not in box


def test_the_student_notebook_contains_no_part_of_the_answer(course):
    notebook, _ = read_text(course / "course" / "01_doubling.md", EXERCISES)
    assert "number + number" not in nbformat.writes(notebook)
    assert "SOLUTION" not in nbformat.writes(notebook)


def test_changing_a_section_keeps_the_ids_of_other_sections(course):
    path = course / "course" / "01_doubling.md"
    before = list(cells(read_text(path, EXERCISES)[0]))
    path.write_text(TEXT.replace("Write it.", "Write it.\n\n```{code-cell}\nprod([1])\n```\n\n### A hint\n\nAdd."))
    after = list(cells(read_text(path, EXERCISES)[0]))
    assert [cell_id for cell_id in after if cell_id not in before] == ["the-exercise_a-hint", "the-exercise_a-hint-2"]
    assert set(before) <= set(after)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("exercise: doubled", "exercise: dubled"), "there is no exercise `dubled`; there are doubled"),
        (("check: doubled\n", "check: doubled\ncheck(doubled)\n"), "the check cell of `doubled` must be empty"),
        (("exercise: doubled\n", "exercise: doubled\n\nx = 1\n"), "the exercise cell of `doubled` must be empty"),
        ((":exercise: doubled", ""), "add a cell `:exercise: doubled` before"),
        ((":check: doubled", ""), "add a cell `:check: doubled` after"),
        (("## What comes next", "## The exercise"), "two cells would have the ID `the-exercise`"),
    ],
)
def test_a_text_that_cannot_be_built_says_why(course, change, says):
    path = course / "course" / "01_doubling.md"
    assert change[0] in TEXT
    path.write_text(TEXT.replace(*change))
    with pytest.raises(InputError, match=says) as caught:
        read_text(path, EXERCISES)
    assert str(caught.value).startswith("01_doubling.md: ")
    assert "\n" not in str(caught.value)


def test_build_executes_once_and_the_check_detects_every_drift(course):
    notebook_path, solution_path = (course / folder / "01_doubling.ipynb" for folder in ("notebooks", "solutions"))
    assert len(outdated_notebooks(course, EXERCISES)) == 2
    assert build_notebooks(course, EXERCISES) == [solution_path, notebook_path]
    solution = nbformat.read(solution_path, as_version=4)
    nbformat.validate(solution)
    assert cells(solution)["check-doubled"].outputs[0].text == "passed\n"
    assert cells(solution)["what-comes-next-2"].outputs[0].text == "8\n"
    assert not any(cell.get("outputs") for cell in nbformat.read(notebook_path, as_version=4).cells)
    assert outdated_notebooks(course, EXERCISES) == []
    assert build_notebooks(course, EXERCISES) == []  # without changes, nothing is executed or written

    # a student's notebook edited by hand
    notebook_path.write_text(notebook_path.read_text().replace("Write it.", "Write this."))
    assert outdated_notebooks(course, EXERCISES) == ["notebooks/01_doubling.ipynb does not match course/01_doubling.md"]
    assert build_notebooks(course, EXERCISES) == [notebook_path]

    # a solution saved without its outputs
    executed = solution_path.read_text()
    for cell in solution.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(solution, solution_path)
    assert outdated_notebooks(course, EXERCISES)[0].startswith("solutions/01_doubling.ipynb does not match")
    solution_path.write_text(executed)

    # a changed answer in the package: the source file is the same, but the solution differs
    def doubled(number: int) -> int:
        """Twice the number."""
        return 2 * number

    changed = {"doubled": SimpleNamespace(answer=doubled, blank=(), points=3, minutes=1)}
    assert outdated_notebooks(course, changed)[0].startswith("solutions/01_doubling.ipynb does not match")

    # a notebook whose source file was deleted
    (course / "notebooks" / "02_gone.ipynb").write_text("{}")
    assert outdated_notebooks(course, EXERCISES) == ["notebooks/02_gone.ipynb has no text in course/"]


def test_a_text_without_exercises_keeps_its_outputs(course):
    """Visitors read the tour before they run anything, so it must show its outputs."""
    (course / "course" / "01_doubling.md").write_text("# Tour\n\n```{code-cell}\nprint(2 * 4)\n```\n")
    solution_path, notebook_path = build_notebooks(course, EXERCISES)
    assert notebook_path.read_text() == solution_path.read_text()
    assert nbformat.read(notebook_path, as_version=4).cells[1].outputs[0].text == "8\n"
    assert outdated_notebooks(course, EXERCISES) == []
    notebook_path.write_text(notebook_path.read_text().replace("8\\n", "9\\n"))
    assert outdated_notebooks(course, EXERCISES) == ["notebooks/01_doubling.ipynb does not match course/01_doubling.md"]


def test_slow_printing_becomes_a_single_output(course):
    """On a busy machine, output arrives in several messages. Unless they are merged, each build changes the file."""
    slowly = """import sys
from time import sleep
from IPython.display import HTML, display
for _ in range(3):
    print("printed", flush=True)
    sleep(0.4)  # longer than a kernel collects
print("aside", file=sys.stderr)
display(HTML("a picture"))
print("below it")
"""
    path = course / "course" / "01_doubling.md"
    path.write_text(TEXT.replace("print(doubled(4))", slowly.strip()), encoding="utf-8")
    solution_path, _ = build_notebooks(course, EXERCISES)
    outputs = cells(nbformat.read(solution_path, as_version=4))["what-comes-next-2"].outputs
    assert [output.get("text") for output in outputs if output.get("name") != "stderr"] == [
        "printed\n" * 3,
        None,
        "below it\n",
    ]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == ["aside\n"]


def test_a_solution_that_fails_is_not_written(course):
    """A broken source file must not replace the last good solution with one that contains a traceback."""
    path = course / "course" / "01_doubling.md"
    path.write_text(TEXT.replace("print(doubled(4))", "print(doubled(4) / 0)"))
    with pytest.raises(InputError, match=r"solutions/01_doubling\.ipynb stopped: ZeroDivisionError: division by zero"):
        build_notebooks(course, EXERCISES)
    assert not (course / "solutions" / "01_doubling.ipynb").exists()


def test_the_command_fails_on_drift_and_on_a_folder_without_texts(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    monkeypatch.setattr("transformer_lab.authoring.__main__.exercises", lambda: EXERCISES)
    assert main(["check"]) == 1
    assert "notebooks/01_doubling.ipynb does not match course/01_doubling.md: run" in capsys.readouterr().err
    assert main(["build", "03_missing"]) == 1
    assert "there is no text `03_missing`; there are 01_doubling" in capsys.readouterr().err
    monkeypatch.chdir(course / "course")
    assert main(["check"]) == 1
    assert "no text like 01_name.md" in capsys.readouterr().err


ASSIGNMENT = """# Softmax

```{code-cell} ipython3
import numpy as np

from transformer_lab import check
```

## Write it

```{code-cell} ipython3
:exercise: softmax
```

```{code-cell} ipython3
:check: softmax
```
"""


@pytest.mark.filterwarnings("ignore:Object of type")  # an SQLAlchemy warning caused by nbgrader
def test_nbgrader_releases_the_same_exercise_and_grades_submissions(tmp_path, monkeypatch):
    """nbgrader must create the student's notebook from the solutions and score correct, wrong, and empty answers."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    from transformer_lab.exercises import exercises

    # nbgrader calls `alembic`, which is installed next to this Python
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("TRANSFORMER_LAB_STRICT", raising=False)  # instructors don't have to configure anything
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "off")
    (tmp_path / "course").mkdir()
    (tmp_path / "course" / "01_softmax.md").write_text(ASSIGNMENT, encoding="utf-8")
    build_notebooks(tmp_path, exercises())
    config = Config()
    config.CourseDirectory.root = str(tmp_path / "graded")
    config.CourseDirectory.course_id = "lab"
    for limit in ("timeout", "iopub_timeout", "startup_timeout"):  # the defaults are too short on a busy machine
        setattr(config.Execute, limit, 600)
    source = tmp_path / "graded" / "source" / "week1"
    source.mkdir(parents=True)
    (source / "01_softmax.ipynb").write_text((tmp_path / "solutions" / "01_softmax.ipynb").read_text())
    api = NbGraderAPI(config=config)
    assert api.generate_assignment("week1")["success"]

    released = nbformat.read(tmp_path / "graded" / "release" / "week1" / "01_softmax.ipynb", as_version=4)
    student = nbformat.read(tmp_path / "notebooks" / "01_softmax.ipynb", as_version=4)
    assert [cell.source for cell in released.cells] == [cell.source for cell in student.cells]
    assert not any(cell.get("outputs") for cell in released.cells)

    bodies = {
        "right": "e = np.exp(scores - scores.max(-1, keepdims=True)); return e / e.sum(-1, keepdims=True)",
        "wrong": "e = np.exp(scores - scores.max(0)); return e / e.sum(0)",
        "empty": "raise NotImplementedError()",
    }
    scores = {}
    for student_id, body in bodies.items():
        submission = deepcopy(released)
        for cell in submission.cells:
            cell.source = cell.source.replace("raise NotImplementedError()", body)
        folder = tmp_path / "graded" / "submitted" / student_id / "week1"
        folder.mkdir(parents=True)
        nbformat.write(submission, folder / "01_softmax.ipynb")
        assert api.autograde("week1", student_id)["success"]
        with api.gradebook as gradebook:
            scores[student_id] = gradebook.find_submission("week1", student_id).score
    assert scores == {"right": exercises()["softmax"].points, "wrong": 0, "empty": 0}
