"""The released course: its notebooks and their exercises."""

import copy
from functools import cache, cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from transformer_lab.errors import InputError
from transformer_lab.exercises import Exercise, exercises
from transformer_lab.shipped import shipped


class Course:
    """The notebooks in a folder. Each notebook is read once, and every caller gets a copy.

    Args:
        folder: A checkout of the project, or the folder with the notebooks themselves.

    Raises:
        InputError: The folder contains no notebooks.
    """

    def __init__(self, folder: Path) -> None:
        inner = folder / "notebooks"
        self.folder = inner if inner.is_dir() else folder
        self.paths = {path.stem: path for path in sorted(self.folder.glob("[0-9][0-9]_*.ipynb"))}
        if not self.paths:
            raise InputError(f"no notebooks like 01_attention.ipynb in {folder}: give the course folder")
        self.names = list(self.paths)  # ["00_tour", "01_attention", ...]
        self._read = cache(lambda name: nbformat.read(self.paths[name], as_version=4))

    @classmethod
    def find(cls) -> "Course":
        """Return the course that comes with this package. If there is none, return the course in the current folder.

        Raises:
            InputError: Neither the package nor the current folder has a `notebooks` folder.
        """
        own = shipped("notebooks")
        for folder in (own, Path.cwd() / "notebooks"):
            if folder.is_dir():
                return cls(folder)
        raise InputError(f"the course notebooks are not in {own.parent}: run this in the project's folder")

    @cached_property
    def graded(self) -> list[str]:
        """The notebooks that have exercises."""
        return [name for name in self.names if self.exercises(name)]

    def full_name(self, name: str) -> str:
        """Return `01_attention` for `01`, `1`, `01_attention`, or `01_attention.ipynb`.

        Raises:
            InputError: The notebook does not exist.
        """
        stem = name.removesuffix(".ipynb")
        for known in self.names:
            if stem and stem in (known, known[:2], known[:2].lstrip("0")):
                return known
        raise InputError(f"unknown notebook `{name}`; the notebooks are {', '.join(self.names)}")

    def notebook(self, name: str) -> NotebookNode:
        """Return a notebook as students receive it. Its cells have IDs like `exercise-NAME` and `check-NAME`."""
        return copy.deepcopy(self._read(name))

    def exercises(self, name: str, only: str | None = None) -> list[Exercise]:
        """Return a notebook's exercises in the order of its cells. If `only` is given, return just that exercise.

        Raises:
            InputError: The notebook has an exercise that is not in this version of the package.
        """
        names = list(filter(None, map(exercise_of, self._read(name).cells)))
        if unknown := [exercise for exercise in names if exercise not in exercises()]:
            raise InputError(
                f"{self.paths[name]} has the exercise `{unknown[0]}`, which this version of the package does not know"
            )
        return [exercises()[exercise] for exercise in names if only in (None, exercise)]


def exercise_of(cell: NotebookNode) -> str | None:
    """Return the exercise that belongs in this course cell. If it is not an exercise cell, return None."""
    return _name_in_id(cell, "exercise-", "solution")


def check_of(cell: NotebookNode) -> str | None:
    """Return the exercise that this course cell checks. If it is not a check cell, return None."""
    return _name_in_id(cell, "check-", "grade")


def _name_in_id(cell: NotebookNode, prefix: str, role: str) -> str | None:
    """Return the part of a cell's ID after the prefix. If the cell has no such nbgrader `role`, return None.

    A heading can have an ID with the same prefix, but it has no nbgrader metadata.
    """
    return cell.id.removeprefix(prefix) if cell.metadata.get("nbgrader", {}).get(role) else None
