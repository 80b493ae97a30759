"""Without these tests, a notebook could be graded with the wrong exercises, or a changed copy could affect others."""

import shutil
from pathlib import Path

import pytest

from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.errors import InputError
from transformer_lab.exercises import notebooks

ROOT = Path(__file__).resolve().parents[2]


def test_each_notebook_has_the_exercises_that_the_registry_lists_for_it(course):
    """The notebooks' cells and the files in `exercises/` must agree."""
    for name in course.graded:
        listed = {exercise.name for exercise in notebooks()[name[:2]]}
        assert {exercise.name for exercise in course.exercises(name)} == listed
        cells = course.notebook(name).cells
        assert sorted(filter(None, map(exercise_of, cells))) == sorted(filter(None, map(check_of, cells)))
    assert "00_tour" in course.names
    assert "00_tour" not in course.graded


def test_a_heading_that_sounds_like_an_exercise_is_none(course):
    """A cell without an exercise gets the ID `exercise-your-softmax` from the heading `## Exercise: your softmax`."""
    cells = [cell for cell in course.notebook("01_attention").cells if cell.id.startswith("exercise-")]
    assert len(cells) > len(course.exercises("01_attention"))


def test_a_copy_is_a_copy(course):
    course.notebook("01_attention").cells.clear()
    assert course.notebook("01_attention").cells


@pytest.mark.parametrize("asked", ["03", "3", "03_masks", "03_masks.ipynb"])
def test_short_names(course, asked):
    assert course.full_name(asked) == "03_masks"


def test_a_notebook_of_another_version(tmp_path):
    """This package lacks one of the notebook's exercises, so grading would give everyone too few points."""
    text = (ROOT / "notebooks" / "03_masks.ipynb").read_text(encoding="utf-8").replace("causal_mask", "no_future")
    (tmp_path / "03_masks.ipynb").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="has the exercise `no_future`, which this version"):
        Course(tmp_path).exercises("03_masks")


def test_a_package_that_was_copied_without_the_notebooks(tmp_path, monkeypatch):
    """If the package was copied without its notebooks, the notebooks are looked up in the current folder."""
    monkeypatch.setattr("transformer_lab.classroom.course.shipped", lambda name: tmp_path / "site-packages" / name)
    monkeypatch.chdir(ROOT)
    assert Course.find().folder == ROOT / "notebooks"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="run this in the project"):
        Course.find()


def test_a_folder_of_ones_own(tmp_path):
    shutil.copy(ROOT / "notebooks" / "03_masks.ipynb", tmp_path)
    assert Course(tmp_path).graded == ["03_masks"]
