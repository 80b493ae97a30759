"""Assemble a submission: insert the student's cells into the course notebook.

Only the source of the cells is taken from a submission. It is parsed but never run.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

from nbformat import NotebookNode, from_dict

from transformer_lab.authoring.notebooks import COMPARE_OUTPUT, METADATA
from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.classroom.integrity import MAX_FLAGS, interference, review
from transformer_lab.classroom.submissions import NotGradable, Submission, cells_of, read_notebook
from transformer_lab.exercises import Exercise, exercises
from transformer_lab.exercises.cells import Names, is_unwritten, names_of, providers_of
from transformer_lab.exercises.registry import notebook_of
from transformer_lab.plural import plural

MAX_CELLS = 2_000
MAX_CHARACTERS = 400_000  # in all code cells together; parsing this much takes seconds
# Without an answer, this many IDs and cells must match. A few prove nothing, because notebooks share some headings.
MIN_MATCHES = 8
SKIP = "nbval-skip"

_NBVAL_MARKER = re.compile("NBVAL_|PYTEST_VALIDATE_")  # comments that control nbval start like this
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # valid in JSON as an escape sequence, but not in UTF-8


@dataclass(frozen=True)
class Assembled:
    """A submission that is ready to be run and scored."""

    student: str
    name: str  # the notebook's name: "01_attention"
    notebook: NotebookNode  # the course notebook with the student's cells
    sources: dict[str, str]  # maps each exercise that has a cell to the source of the student's cell
    flags: dict[str, tuple[str, ...]]  # maps each exercise to its flags for the instructor
    remarks: tuple[str, ...]  # for the student, about anything unusual in the file
    digest: str = ""  # the submission's digest, as in its result


@dataclass(eq=False)
class _Cell:
    source: str
    is_code: bool
    id: str
    grade_id: str  # the ID in nbgrader's metadata
    exercise: str | None  # from its ID or metadata; may belong to a different notebook until `_locate` runs
    position: int | None = None  # its position in the course notebook if it is a course cell, even an edited one
    is_edited: bool = False  # whether it is a course cell whose source has changed
    defines: frozenset[str] = frozenset()  # the notebook's exercises that this cell defines

    @property
    def names(self) -> Names:
        return names_of(self.source)

    def is_written(self, exercise: Exercise) -> bool:
        return not is_unwritten(self.source, exercise.name, exercise.blank)


class _CourseNotebook:
    """A course notebook, with an index of its cells."""

    def __init__(self, course: Course, name: str) -> None:
        self.name = name
        self.cells = course.notebook(name).cells
        self.exercises = {exercise.name: exercise for exercise in course.exercises(name)}
        self.by_id = {cell.id: position for position, cell in enumerate(self.cells)}
        self.by_text = {_normalized(cell.source): position for position, cell in enumerate(self.cells)}
        self.by_exercise = {exercise_of(cell): n for n, cell in enumerate(self.cells) if exercise_of(cell)}


@cache
def _course_notebooks(course: Course) -> list[_CourseNotebook]:
    return [_CourseNotebook(course, name) for name in course.graded]


def assemble(submission: Submission, course: Course) -> Assembled:
    """Return the notebook to run for a submission.

    Raises:
        NotGradable: The submission cannot be read, or is not one of the course's notebooks.
    """
    if submission.problem:
        raise NotGradable(submission.problem)
    remarks: list[str] = []
    cells = _read_cells(read_notebook(submission.content), course, remarks)
    original = _best_match(cells, submission.path.rpartition("/")[2], course)
    plan = _Plan(cells, original, remarks)
    notebook = plan.notebook()
    sources = {name: plan.answers[name].source for name in original.exercises if name in plan.answers}
    flags = _flags(sources, notebook, original)
    return Assembled(submission.student, original.name, notebook, sources, flags, tuple(remarks))


def _flags(sources: dict[str, str], notebook: NotebookNode, original: _CourseNotebook) -> dict[str, tuple[str, ...]]:
    run = [cell for cell in notebook.cells if cell.cell_type == "code" and not is_skipped(cell)]
    own_cells = [cell.source for cell in run if list(role_of(cell)) == ["student"]]
    course_cells = [cell.source for cell in run if not role_of(cell)]
    flags = {
        name: review(original.exercises[name], source, own_cells, course_cells, sources)
        for name, source in sources.items()
    }
    attempts = [f"another cell {action}" for own in own_cells for action in interference(own, course_cells)]
    if attempts and flags:  # reported once, with the first exercise
        first = next(iter(flags))
        flags[first] = (*list(dict.fromkeys(attempts))[:MAX_FLAGS], *flags[first])
    return flags


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_cells(notebook: dict[str, Any], course: Course, remarks: list[str]) -> list[_Cell]:
    """Return the cells that contain source text. The notebook can be in any version of the notebook format."""
    raw_cells = cells_of(notebook)
    if raw_cells is not notebook.get("cells"):
        remarks.append("The notebook is in an old format (before version 4), but its cells could be read.")
    cells = [cell for raw in raw_cells if (cell := _read_cell(raw)) is not None]
    if damaged := len(raw_cells) - len(cells):
        remarks.append(f"{plural(damaged, 'cell')} could not be read and {_were(damaged)} left out.")
    if len(cells) > MAX_CELLS:
        remarks.append(
            f"The notebook has {len(raw_cells):,} cells; only {MAX_CELLS:,} were read, starting with the course's own."
        )
        cells = _most_important(cells, course)
    if not any(cell.source.strip() for cell in cells):
        raise NotGradable("the notebook is empty: there is no text in its cells")
    if sum(len(cell.source) for cell in cells if cell.is_code) > MAX_CHARACTERS:
        raise NotGradable(f"its code has more than {MAX_CHARACTERS:,} characters: remove what you pasted into it")
    repaired = 0
    for cell in cells:
        cell.source, surrogates = _LONE_SURROGATE.subn("\ufffd", cell.source)
        repaired += bool(surrogates)
    if repaired:
        remarks.append(
            f"{plural(repaired, 'cell')} contained characters that aren't text (lone surrogates): they are shown as �."
        )
    return cells


def _read_cell(raw: Any) -> _Cell | None:
    source = raw.get("source", raw.get("input", "")) if isinstance(raw, dict) else None
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    cell_id, grade_id = _text_in(raw, "id"), _text_in(raw, "metadata", "nbgrader", "grade_id")
    names = (
        cell_id.removeprefix("exercise-") if cell_id.startswith("exercise-") else "",
        _text_in(raw, "metadata", "transformer_lab", "exercise"),
        grade_id.removeprefix("exercise-"),
    )
    exercise = next((name for name in names if name in exercises()), None)
    return _Cell(source, raw.get("cell_type", "code") == "code", cell_id, grade_id, exercise)


def _text_in(value: Any, *keys: str) -> str:
    """Return a nested string, or "" if it is missing or not a string."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _most_important(cells: list[_Cell], course: Course) -> list[_Cell]:
    """Return at most `MAX_CELLS` cells in order. Course cells and answers take priority, followed by nonempty cells."""
    known = {mark for notebook in _course_notebooks(course) for mark in (*notebook.by_id, *notebook.by_text)}

    def rank(cell: _Cell) -> int:
        defined = re.findall(r"^(?:def|class)[ \t]+(\w+)", cell.source, re.MULTILINE)
        if cell.exercise or {cell.id, _normalized(cell.source)} & known or not exercises().keys().isdisjoint(defined):
            return 0
        return 1 if cell.source.strip() else 2

    chosen = set(sorted(cells, key=rank)[:MAX_CELLS])
    return [cell for cell in cells if cell in chosen]


def _best_match(cells: list[_Cell], file_name: str, course: Course) -> _CourseNotebook:
    """Return the course notebook that this submission matches best."""
    answered = {cell.exercise for cell in cells}
    bound = set().union(*(cell.names.binds for cell in cells if cell.is_code))
    ids = {cell.id for cell in cells}
    texts = {_normalized(cell.source) for cell in cells}
    notebook_number = re.search(r"(?<!\d)(\d\d)[ _-]", file_name)

    def evidence(original: _CourseNotebook) -> tuple[int, bool]:
        # The other cells count, too, because answers to earlier notebooks may have been pasted with their metadata.
        names = original.exercises.keys()
        answers = len(answered & names) + len(bound & names)
        others = len(ids & original.by_id.keys()) + len(texts & original.by_text.keys())
        is_enough = answers or others >= MIN_MATCHES
        is_named = bool(notebook_number) and original.name.startswith(notebook_number[1])
        return (3 * answers + others) * bool(is_enough), is_named

    best = max(_course_notebooks(course), key=evidence, default=None)
    if best is None or not evidence(best)[0]:
        raise NotGradable("it is a notebook, but not one of this course's with exercises: no cell was recognized")
    return best


def _normalized(source: str) -> str:
    """Return the text without whitespace that editors may change automatically."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def _without_fence(source: str) -> str:
    fenced = re.fullmatch(r"\s*```[^\n]*\n(.*?)\n?```\s*", source, re.DOTALL)
    return fenced[1] if fenced else source


# --- deciding --------------------------------------------------------------------------------------------------------


class _Plan:
    """The positions of a submission's cells in the original notebook."""

    def __init__(self, cells: list[_Cell], original: _CourseNotebook, remarks: list[str]) -> None:
        self.cells, self.original, self.remarks = cells, original, remarks
        self.answers: dict[str, _Cell] = {}  # maps each exercise to the cell that counts
        self.homes: dict[_Cell, str] = {}  # maps each answer to the exercise at whose position it is inserted
        # Maps the position of a course cell to the student's cells that are inserted before it.
        self.added: defaultdict[int, list[_Cell]] = defaultdict(list)
        self._remark_on_other_notebooks()
        for cell in cells:
            self._locate(cell)
        self._choose_answers()
        self._place_added_cells()
        self._remark_on_order()

    def _remark_on_other_notebooks(self) -> None:
        others = {
            notebook_of(cell.exercise)
            for cell in self.cells
            if cell.exercise and cell.exercise not in self.original.exercises
            if cell.is_written(exercises()[cell.exercise])
        }
        if others:
            names = ", ".join(sorted(others))
            self.remarks.append(
                f"It also contains answers to notebook {names}, but only those to {self.original.name} were graded."
            )

    def _locate(self, cell: _Cell) -> None:
        """Find out which course cell this is (even if it was edited) and which exercises it defines."""
        original = self.original
        if cell.exercise in original.exercises:
            cell.position = original.by_exercise[cell.exercise]
        else:
            cell.exercise = None
            text = _normalized(cell.source)
            by_id, by_text = original.by_id, original.by_text
            cell.position = by_id.get(cell.id, by_id.get(cell.grade_id, by_text.get(text)))
            if cell.position is not None:
                cell.is_edited = text != _normalized(original.cells[cell.position].source)
                cell.exercise = exercise_of(original.cells[cell.position])  # a stub that has lost its ID
        if cell.exercise and not cell.is_code:
            cell.source = _without_fence(cell.source)
        if cell.is_code or cell.exercise:
            cell.defines = cell.names.binds & original.exercises.keys()

    def _choose_answers(self) -> None:
        """Choose the cell that counts for each exercise.

        It is the last cell that defines the exercise. If there is none, it is the exercise's own cell.
        """
        for name, exercise in self.original.exercises.items():
            if definitions := self._definitions(exercise):
                self.answers[name] = definitions[-1]
                if len(definitions) > 1:
                    self.remarks.append(f"`{name}` is defined in {len(definitions)} cells: the last one counts.")
        answering = set(self.answers.values())
        for name in [name for name in self.original.exercises if name not in self.answers]:
            own = [cell for cell in self.cells if cell.exercise == name]
            unanswered = [cell for cell in own if cell not in answering] or self._turned_to_text(name)
            if len(own) > 1:
                self.remarks.append(f"The notebook has {len(own)} cells for `{name}`: the last one counts.")
            if not unanswered:
                self.remarks.append(f"The cell for `{name}` is missing.")
                continue
            self.answers[name] = unanswered[-1]
            if name not in unanswered[-1].defines:
                self.remarks.append(f"The cell for `{name}` does not define `{name}`.")
        for name, cell in self.answers.items():
            if cell not in self.homes or cell.exercise == name:
                self.homes[cell] = name
            if not cell.is_code:
                self.remarks.append(f"The cell for `{name}` had been changed to a text cell; it was run as code.")

    def _definitions(self, exercise: Exercise) -> list[_Cell]:
        """Return the cells that define an exercise, excluding stubs. Text cells count only if no code cell defines it.

        An import or an assignment elsewhere (`from torch import softmax`) does not replace a function or a class.
        """
        name = exercise.name
        written = [cell for cell in self.cells if name in cell.defines and cell.is_written(exercise)]
        written = [cell for cell in written if cell.is_code] or written
        return [cell for cell in written if cell.exercise == name or name in cell.names.definitions] or written

    def _turned_to_text(self, name: str) -> list[_Cell]:
        """Return the last unrecognized text cell that contains Python code defining the exercise."""
        for cell in reversed(self.cells):
            if not cell.is_code and cell.position is None:
                code = replace(cell, source=_without_fence(cell.source), defines=frozenset({name}))
                if code.names.is_python and name in code.names.binds:
                    return [code]
        return []

    def _place_added_cells(self) -> None:
        """Insert each of the student's own cells after the cell it follows, but before the next exercise.

        The student's own cells are always included if they precede an exercise. All other cells, including edited
        course cells, are included only if an answer needs them.
        """
        positions = {cell: self.original.by_exercise[home] for cell, home in self.homes.items()}
        candidates: list[tuple[_Cell, int, bool]] = []  # the cell, its position, and whether it is always included
        preceding = -1
        for cell, following in zip(self.cells, self._positions_of_next_exercise(positions), strict=True):
            if cell in positions:
                preceding = positions[cell]
            elif self._may_come_along(cell):
                always = following is not None and not cell.is_edited
                preceding = cell.position if cell.is_edited else preceding
                bounds = [preceding + 1, *([following] if always else [])]
                bounds += [positions[self.answers[name]] for name in cell.defines if name in self.answers]
                candidates.append((cell, min(bounds), always))
            elif cell.position is not None:
                preceding = cell.position
        cells = [cell for cell, _, _ in candidates]
        readers = [*self.answers.values(), *(cell for cell, _, always in candidates if always)]
        wanted = set().union(*(cell.names.reads for cell in readers))
        needed = providers_of(wanted, list(map(self._newly_bound, cells)), [cell.names.reads for cell in cells])
        edited = added = 0
        for index, (cell, position, always) in enumerate(candidates):
            if always or index in needed:
                self.added[position].append(cell)
                edited += cell.is_edited
                added += not cell.is_edited
        if added:
            self.remarks.append(f"{plural(added, 'cell')} that you added {_were(added)} run as well.")
        if edited:
            self.remarks.append(
                f"You changed {plural(edited, 'course cell')} that your code needs: your version was run as well."
            )

    def _positions_of_next_exercise(self, positions: dict[_Cell, int]) -> list[int | None]:
        next_positions: list[int | None] = []
        following = None
        for cell in reversed(self.cells):
            next_positions.append(following)
            following = positions.get(cell, self.original.by_exercise.get(cell.exercise, following))
        return next_positions[::-1]

    def _may_come_along(self, cell: _Cell) -> bool:
        """Return whether a cell is the student's own, another attempt at an exercise, or an edited course cell."""
        if not (cell.is_code and cell.source.strip()):
            return False
        if cell.exercise:
            return cell.is_written(self.original.exercises[cell.exercise])
        return cell.position is None or (cell.is_edited and self.original.cells[cell.position].cell_type == "code")

    def _newly_bound(self, cell: _Cell) -> frozenset[str]:
        """Return the names that a cell binds, excluding those that the course's version of the cell also binds."""
        if cell.is_edited:
            return cell.names.binds - names_of(self.original.cells[cell.position].source).binds
        return cell.names.binds

    def _remark_on_order(self) -> None:
        positions = [cell.position for cell in self.cells if cell.position is not None]
        distinct = list(dict.fromkeys(positions))
        if distinct != sorted(distinct):
            self.remarks.append("Some cells had been moved; they were run in their original order.")
        at_exercises = set(self.original.by_exercise.values())
        others = [position for position in positions if position not in at_exercises]
        code = {position for position, cell in enumerate(self.original.cells) if cell.cell_type == "code"}
        if missing := len(code - at_exercises - set(others)):
            self.remarks.append(f"{plural(missing, 'course cell')} had been deleted and {_were(missing)} put back.")
        if repeated := len(others) - len(set(others)):
            self.remarks.append(f"{plural(repeated, 'course cell')} {_were(repeated)} in the notebook twice.")

    # --- building ---

    def notebook(self) -> NotebookNode:
        cells: list[NotebookNode] = []
        numbers = count(1)
        for position, cell in enumerate([*self.original.cells, None]):
            for own in self.added[position]:
                cells.append(_code(_without_markers(own.source), f"student-{next(numbers)}", {"student": True}))
            if cell is not None:
                cells.append(self._course_cell(cell))
        _skip_demonstrations(cells)
        return from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": cells})

    def _course_cell(self, cell: NotebookNode) -> NotebookNode:
        """Return a course cell. If it is an exercise cell, insert the student's source."""
        if cell.cell_type != "code":
            return from_dict({"cell_type": "markdown", "id": cell.id, "metadata": {}, "source": cell.source})
        if exercise := check_of(cell):
            check = _code(f"check({exercise})", cell.id, {"check": exercise})
            check.metadata["tags"] = [COMPARE_OUTPUT]
            check.execution_count = 1
            printed = f"submitted: {exercise}\n"  # by `check` in the stubbed package
            check.outputs = [from_dict({"output_type": "stream", "name": "stdout", "text": printed})]
            return check
        exercise = exercise_of(cell)
        answer = self.answers.get(exercise)
        if answer is None:
            return _code(cell.source, cell.id, {"exercise": exercise} if exercise else {})
        if self.homes[answer] == exercise:
            return _code(_without_markers(answer.source), cell.id, {"exercise": exercise, "student": True})
        return _code(f"# `{exercise}` is in the cell for `{self.homes[answer]}`.", cell.id, {"exercise": exercise})


def _code(source: str, cell_id: str, role: dict[str, Any]) -> NotebookNode:
    """Return a cell that has not been run.

    nbformat's own functions take much longer, because they also validate the cell.
    """
    metadata = {"transformer_lab": role} if role else {}
    cell = {"cell_type": "code", "id": cell_id, "metadata": metadata, "source": source}
    return from_dict({**cell, "outputs": [], "execution_count": None})


def _without_markers(source: str) -> str:
    """Disable the comments that control nbval. Like nbval, this uses `splitlines` to split lines."""
    return "".join(
        _NBVAL_MARKER.sub(lambda marker: marker[0].replace("_", "-"), line) if line.strip().startswith("#") else line
        for line in source.splitlines(keepends=True)
    )


def _skip_demonstrations(cells: list[NotebookNode]) -> None:
    """Tag the course cells that no answer depends on (such as pictures and training runs), so that nbval skips them.

    They are skipped even if a student's experiment needs them. For example, printing a trained model would require
    training it.
    """
    code = [cell for cell in cells if cell.cell_type == "code"]
    names = [names_of(cell.source) for cell in code]
    graded = {index for index, cell in enumerate(code) if {"exercise", "check"} & set(role_of(cell))}
    wanted = set().union(*(names[index].reads for index in graded))
    provides, reads = [cell.binds | cell.changes for cell in names], [cell.reads for cell in names]
    needed = graded | providers_of(wanted, provides, reads)
    for index, cell in enumerate(code):
        if index not in needed and not role_of(cell):
            cell.metadata["tags"] = [SKIP]


def role_of(cell: NotebookNode) -> dict[str, Any]:
    """Return a cell's role in an assembled notebook: its `exercise` or `check`, and whether a `student` wrote it."""
    return dict(cell.metadata.get("transformer_lab", {}))


def is_skipped(cell: NotebookNode) -> bool:
    return SKIP in cell.metadata.get("tags", ())


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
