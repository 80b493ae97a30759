"""The course as it was handed out: its notebooks, and which cells of them are exercises."""

import copy
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from transformer_lab.errors import InputError
from transformer_lab.exercises import Exercise, exercises


class Course:
    """The notebooks of one folder. They are read once; whoever asks for one gets a copy.

    Args:
        folder: A checkout of the project, or the folder with the notebooks themselves.

    Raises:
        InputError: There are no notebooks in it.
    """

    def __init__(self, folder: Path) -> None:
        inner = folder / "notebooks"
        self.folder = inner if inner.is_dir() else folder
        self.paths = {path.stem: path for path in sorted(self.folder.glob("[0-9][0-9]_*.ipynb"))}
        if not self.paths:
            raise InputError(f"no notebooks like 01_attention.ipynb in {folder}: give the folder of the course")
        self._read = cache(self._read_whole)

    @classmethod
    def find(cls) -> "Course":
        """The checkout that this package lies in, or else the current folder.

        Raises:
            InputError: Neither holds the notebooks.
        """
        checkout = Path(__file__).resolve().parents[2]
        for folder in (checkout, Path.cwd()):
            if (folder / "notebooks").is_dir():
                return cls(folder)
        raise InputError(f"the notebooks of the course are not in {checkout}: do this in the folder of the project")

    @cached_property
    def names(self) -> list[str]:
        """`["00_tour", "01_attention", ...]`"""
        return list(self.paths)

    @cached_property
    def graded(self) -> list[str]:
        """The notebooks that have exercises."""
        return [name for name in self.names if self.exercises(name)]

    def full_name(self, name: str) -> str:
        """`01_attention` for `01`, `1`, `01_attention` or `01_attention.ipynb`.

        Raises:
            InputError: There is no such notebook.
        """
        asked = name.removesuffix(".ipynb")
        for known in self.names:
            if asked in (known, known[:2], known[:2].lstrip("0")) and asked:
                return known
        raise InputError(f"there is no notebook `{name}`; there are {', '.join(self.names)}")

    def chosen(self, names: Sequence[str], everything: bool = False) -> list[str]:
        """The full names of the notebooks that were asked for, in the order of the course; each once.

        Args:
            names: As in `full_name`.
            everything: All that have exercises, and those that were named.

        Raises:
            InputError: None was named, or one does not exist.
        """
        if not names and not everything:
            raise InputError(f"name a notebook, such as {self.graded[0]}, or ask for all of them with --all")
        wanted = {self.full_name(name) for name in names} | set(self.graded if everything else ())
        return [name for name in self.names if name in wanted]

    def notebook(self, name: str) -> NotebookNode:
        """A notebook as the students got it: cells of exercises have the id `exercise-NAME`, checks `check-NAME`."""
        return copy.deepcopy(self._read(name))

    def exercises(self, name: str) -> list[Exercise]:
        """The exercises of a notebook, in the order of its cells.

        Raises:
            InputError: The notebook has an exercise that this version of the package does not know.
        """
        found = []
        for cell in self._read(name).cells:
            exercise = exercise_of(cell)
            if exercise is None:
                continue
            if exercise not in exercises():
                raise InputError(
                    f"{self.paths[name]} has the exercise `{exercise}`, which this version of the package does not know"
                )
            found.append(exercises()[exercise])
        return found

    def _read_whole(self, name: str) -> NotebookNode:
        return nbformat.read(self.paths[name], as_version=4)


def exercise_of(cell: NotebookNode) -> str | None:
    """The exercise whose cell this is, in a notebook of the course."""
    return _named(cell, "exercise-", "solution")


def check_of(cell: NotebookNode) -> str | None:
    """The exercise whose check this is, in a notebook of the course."""
    return _named(cell, "check-", "grade")


def _named(cell: NotebookNode, prefix: str, role: str) -> str | None:
    """What follows `prefix` in the cell's id; nbgrader's metadata tell such cells from those below a like heading."""
    return cell.id.removeprefix(prefix) if cell.metadata.get("nbgrader", {}).get(role) else None
