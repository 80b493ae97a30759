"""Without these tests, an instructor could release an answer, lose a file, or be unsure what was released."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from transformer_lab.classroom.course import Course
from transformer_lab.classroom.release import release
from transformer_lab.errors import InputError
from transformer_lab.files import write_file

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_handed_out(course, tmp_path):
    """A release contains an exact copy of the notebook, a page for people, and points and checksums for programs."""
    written = release("01", tmp_path / "new" / "handout", course)
    assert [path.name for path in written] == ["01_attention.ipynb", "README.md", "manifest.json"]
    assert all(path.is_file() for path in written)
    assert written[0].read_bytes() == (ROOT / "notebooks" / "01_attention.ipynb").read_bytes()
    manifest = json.loads(written[2].read_text())
    entry = manifest["notebooks"]["01_attention"]
    assert entry["sha256"] == hashlib.sha256(written[0].read_bytes()).hexdigest()
    assert manifest["README.md"] == hashlib.sha256(written[1].read_bytes()).hexdigest()
    exercises = course.exercises("01_attention")
    assert [one["name"] for one in entry["exercises"]] == [exercise.name for exercise in exercises]
    assert entry["points"] == sum(exercise.points for exercise in exercises)
    assert entry["minutes_of_exercises"] == sum(one["minutes"] for one in entry["exercises"])
    assert "minutes" not in entry  # the notebook itself says how long it takes, including reading time
    cells = {cell.id for cell in course.notebook("01_attention").cells}
    assert {one["cell"] for one in entry["exercises"]} <= cells
    assert "`softmax` (1)" in written[1].read_text()


def test_the_students_page_fits_the_handout(course, tmp_path):
    """A student who has only this page must be able to follow its steps."""
    page = release("03", tmp_path / "masks", course)[1].read_text()
    assert 'hint("padding_mask")' in page
    assert "softmax" not in page
    assert "{" not in page
    for step in ("git clone ADDRESS", "make course", "source .venv/bin/activate", "jupyter lab"):
        assert step in page
    main_page = (ROOT / "README.md").read_text()
    assert all(step in main_page for step in ("make course", "source .venv/bin/activate"))
    assert "Don't use\n  other packages" in page
    assert "hint(" not in release("00", tmp_path / "tour", course)[1].read_text()


def test_the_plan_for_a_term_adds_up(course):
    """Teachers use the semester plan when they set due dates and points."""

    def exercises_points_hours(name: str) -> tuple[int, int, float]:
        cells = course.notebook(name).cells
        head = " ".join(" ".join(cell.source for cell in cells if cell.cell_type == "markdown").split())
        built = course.exercises(name)
        points = sum(exercise.points for exercise in built)
        shortest, longest = re.search(r"\*\*Time\*\* (\d+)(?: to (\d+))? minutes", head).groups()
        if stated := re.search(r"\*\*Exercises\*\* (\d+)", head):
            assert int(stated[1]) == len(built), name
        return len(built), points, (int(shortest) + int(longest or shortest)) / 120

    page = (ROOT / "CLASSROOM.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| (\d\d)(?:, (\d\d))?: .* \| (\d+) \| (\d+) \| ([\d.]+) \|$", page, re.MULTILINE)
    planned, all_hours = [], 0.0
    for first, second, *promised in rows:
        week = [name for name in course.names if name[:2] in (first, second)]
        exercises, points, hours = map(sum, zip(*map(exercises_points_hours, week), strict=True))
        assert (str(exercises), str(points)) == tuple(promised[:2])
        assert hours == pytest.approx(float(promised[2]), abs=0.051)
        planned += week
        all_hours += hours
    electives = [name for name in course.names if name >= "20"]
    assert planned + electives == course.names
    assert round(all_hours) == 20
    main_page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "00 to 14 take about twenty hours, the electives about seven more" in main_page
    columns = list(zip(*map(exercises_points_hours, electives), strict=True))
    assert round(sum(columns[2])) == 7
    ranges = " | ".join(f"{min(column):.2g} to {max(column):.2g}" for column in columns)
    assert f"| one of 20 to 23 | {ranges} |" in page


def test_points_that_changed_since_the_notebook_was_built(course, tmp_path):
    """Otherwise, the page and manifest would show new points, but the notebook and nbgrader would use old points."""
    folder = tmp_path / "course"
    folder.mkdir()
    notebook = course.notebook("03_masks")
    (cell,) = (cell for cell in notebook.cells if cell.id == "check-causal_mask")
    cell.metadata.nbgrader.points = 2.5
    nbformat.write(notebook, folder / "03_masks.ipynb")
    with pytest.raises(InputError) as refused:
        release("03", tmp_path / "handout", Course(folder))
    assert str(refused.value) == (
        f"{folder / '03_masks.ipynb'} gives 2.5 points for `causal_mask`, but the package gives 1: "
        "run `make notebooks ARGS=03_masks` before you release it"
    )
    assert not (tmp_path / "handout").exists()


def test_one_after_the_other_is_the_same_as_all_at_once(course, tmp_path):
    """The folder grows over a semester. Its manifest must list everything, and repeated releases must be identical."""
    names = course.graded
    for name in names:
        release(name, tmp_path / "one", course)
    for name in [*reversed(names), names[0]]:
        release(name, tmp_path / "other", course)
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()} for folder in ("one", "other"))
    assert one == other
    assert set(json.loads(one["manifest.json"])["notebooks"]) == set(names)


def test_no_answer_and_no_output_is_handed_out(course, tmp_path):
    """Instructors also work in the notebooks, which may therefore contain answers and outputs."""
    folder = tmp_path / "course"
    folder.mkdir()
    shutil.copy(ROOT / "solutions" / "01_attention.ipynb", folder)
    with pytest.raises(InputError, match=r"01_attention\.ipynb has an answer to `softmax`: build it again"):
        release("01", tmp_path / "handout", Course(folder))
    assert not (tmp_path / "handout").exists()

    notebook = course.notebook("01_attention")
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="secret")]
    notebook.cells[1].execution_count = 7
    nbformat.write(notebook, folder / "01_attention.ipynb")
    (path, *_) = release("01", tmp_path / "handout", Course(folder))
    assert path.read_bytes() == (ROOT / "notebooks" / "01_attention.ipynb").read_bytes()


def test_work_is_not_overwritten(course, tmp_path):
    """Someone might run `release 01 --out .` in a student's folder, or in a folder where they tried the exercises."""
    (path, *_) = release("01", tmp_path, course)
    release("01", tmp_path, course)  # the notebook has not been edited
    path.write_text("my work")
    with pytest.raises(InputError, match="changed since: move it"):
        release("01", tmp_path, course)
    assert path.read_text() == "my work"
    (tmp_path / "manifest.json").write_text("[1, 2")
    with pytest.raises(InputError, match="not the manifest of a release"):
        release("03", tmp_path, course)
    assert not (tmp_path / "03_masks.ipynb").exists()


def test_a_page_that_was_not_released_is_not_overwritten(course, tmp_path):
    """A teacher might run `release 03 --out .` in a repository, or in a handout folder after adding to its page."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "README.md").write_text("# My class")
    with pytest.raises(InputError, match=r"README\.md was not released there, or has been changed since: move it"):
        release("03", tmp_path / "repository", course)
    assert [path.name for path in (tmp_path / "repository").iterdir()] == ["README.md"]
    page = release("03", tmp_path / "handout", course)[1]
    page.write_text(page.read_text() + "Hand in by Friday.")
    with pytest.raises(InputError, match=r"README\.md was not released there, or has been changed since"):
        release("04", tmp_path / "handout", course)
    assert page.read_text().endswith("Hand in by Friday.")
    assert not (tmp_path / "handout" / "04_embeddings.ipynb").exists()


def test_a_release_that_was_interrupted_can_be_repeated(course, tmp_path, monkeypatch):
    """Regardless of where a release was interrupted, its page is recognized as part of the release."""
    release("03", tmp_path / "handout", course)
    for number, name in enumerate(("04", "05", "06", "07")):  # after this many files
        written = []

        def interrupted(path, content, number=number, written=written):
            if len(written) == number:
                raise KeyboardInterrupt
            written.append(path)
            write_file(path, content)

        with monkeypatch.context() as patched:
            patched.setattr("transformer_lab.classroom.release.write_file", interrupted)
            with pytest.raises(KeyboardInterrupt):
                release(name, tmp_path / "handout", course)
        for again in ("03", name):
            release(again, tmp_path / "handout", course)


def test_the_address_stays_on_the_page(course, tmp_path):
    clone = "git clone https://example.org/lab.git transformer-lab\n"
    assert clone in release("03", tmp_path, course, "https://example.org/lab.git")[1].read_text()
    page = release("04", tmp_path, course)[1].read_text()
    assert clone in page
    assert "ADDRESS" not in page
    assert "https://other.org" in release("04", tmp_path, course, "https://other.org")[1].read_text()


@pytest.mark.parametrize("name", ["99", "masks", "../01_attention", "", "01_attention.ipynb.bak"])
def test_a_notebook_that_is_not_there(course, tmp_path, name):
    with pytest.raises(InputError, match="unknown notebook"):
        release(name, tmp_path, course)


def test_a_folder_without_notebooks(tmp_path):
    with pytest.raises(InputError, match=r"no notebooks like 01_attention\.ipynb"):
        Course(tmp_path)
