"""Assembles a submission: the notebook of the course with the student's sources in their places.

Only the text of cells is taken from what was submitted. It is read and never run.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from nbformat import NotebookNode, from_dict

from transformer_lab.authoring.notebooks import COMPARE_OUTPUT, METADATA
from transformer_lab.classroom.cells import is_unwritten, names_of, providers_of
from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.classroom.integrity import MOST_FLAGS, interference, review
from transformer_lab.classroom.submissions import NotGradable, Submission, cells_of, read_notebook
from transformer_lab.exercises import exercises
from transformer_lab.exercises.registry import notebook_of
from transformer_lab.plural import plural

MOST_CELLS = 2_000
MOST_CHARACTERS = 400_000  # of all code cells together: reading so many takes seconds
MARKS_OF_A_NOTEBOOK = 8  # IDs or texts of its cells; some are in several notebooks, such as "What comes next"
SKIP = "nbval-skip"

# Comments that nbval obeys, as it looks for them.
_NBVAL_MARKER = re.compile(
    r"(?:NBVAL_(?:IGNORE_OUTPUT|CHECK_OUTPUT|RAISES_EXCEPTION|SKIP)|PYTEST_VALIDATE_IGNORE_OUTPUT)"
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can hold one, as an escape; a file in UTF-8 cannot


@dataclass(frozen=True)
class Assembled:
    """What is run and scored."""

    student: str
    name: str  # of the notebook: "01_attention"
    notebook: NotebookNode  # the one of the course, with the student's sources in place
    sources: dict[str, str]  # exercise to the text of the student's cell; no item if the cell is missing
    flags: dict[str, tuple[str, ...]]  # exercise to what the instructor should look at
    remarks: tuple[str, ...]  # for the student: what was unusual about the file


@dataclass
class _Cell:
    """A cell as it was submitted."""

    source: str
    is_code: bool
    id: str
    grade_id: str  # nbgrader's
    exercise: str | None  # that its ID or metadata names, of any notebook
    place: int | None = None  # index of the course's cell that it is, or was
    is_edited: bool = False  # it is a cell of the course with another text
    defines: frozenset[str] = frozenset()  # exercises of the notebook


@dataclass
class _Plan:
    """Where the cells go."""

    homes: dict[str, _Cell] = field(default_factory=dict)  # exercise to the cell that is put in its place
    counts: dict[str, _Cell] = field(default_factory=dict)  # exercise to the cell that counts
    before: dict[int, list[_Cell]] = field(default_factory=dict)  # index of a course's cell to those put before it
    remarks: list[str] = field(default_factory=list)


class _Canonical:
    """A notebook of the course, with what is asked about its cells again and again."""

    def __init__(self, course: Course, name: str) -> None:
        self.name = name
        self.cells = course.notebook(name).cells
        self.exercises = {exercise.name: exercise for exercise in course.exercises(name)}
        self.place_of_id = {cell.id: place for place, cell in enumerate(self.cells)}
        self.place_of_text = {_plain(cell.source): place for place, cell in enumerate(self.cells)}
        self.place = {exercise_of(cell): place for place, cell in enumerate(self.cells) if exercise_of(cell)}

    def is_written(self, cell: _Cell, name: str) -> bool:
        return not is_unwritten(cell.source, name, self.exercises[name].blank)


@cache
def _canonical(course: Course) -> dict[str, _Canonical]:
    return {name: _Canonical(course, name) for name in course.graded}


def assemble(submission: Submission, course: Course) -> Assembled:
    """Return the notebook to run for a submission.

    Raises:
        NotGradable: It cannot be read, or is not a notebook of the course.
    """
    if submission.problem:
        raise NotGradable(submission.problem)
    plan = _Plan()
    cells = _cells(read_notebook(submission.content), course, plan.remarks)
    canonical = _best_match(cells, submission.path.rpartition("/")[2], course)
    _remark_on_other_notebooks(cells, canonical, plan)
    for cell in cells:
        _locate(cell, canonical)
    _choose_answers(cells, canonical, plan)
    _choose_homes(cells, canonical, plan)
    _place_added_cells(cells, canonical, plan)
    _remark_on_order(cells, canonical, plan)
    notebook = _built(plan, canonical)
    sources = {name: plan.counts[name].source for name in canonical.exercises if name in plan.counts}
    flags = _flags(sources, notebook, canonical)
    return Assembled(submission.student, canonical.name, notebook, sources, flags, tuple(plan.remarks))


def _flags(sources: dict[str, str], notebook: NotebookNode, canonical: _Canonical) -> dict[str, tuple[str, ...]]:
    run = [cell for cell in notebook.cells if cell.cell_type == "code" and SKIP not in cell.metadata.get("tags", ())]
    helpers = [cell.source for cell in run if list(_about(cell)) == ["student"]]
    course_cells = [cell.source for cell in run if not _about(cell)]
    flags = {
        name: review(canonical.exercises[name], source, helpers, course_cells, sources)
        for name, source in sources.items()
    }
    attempts = [f"a cell of their own {what}" for helper in helpers for what in interference(helper, course_cells)]
    if attempts and flags:  # the first exercise says it for all
        first = next(iter(flags))
        flags[first] = (*list(dict.fromkeys(attempts))[:MOST_FLAGS], *flags[first])
    return flags


# --- reading ---------------------------------------------------------------------------------------------------------


def _cells(notebook: dict[str, Any], course: Course, remarks: list[str]) -> list[_Cell]:
    """Return the cells whose text can be read, whatever the version of the format."""
    raw_cells = cells_of(notebook)
    if raw_cells is not notebook.get("cells"):
        remarks.append("The notebook has an old format (before version 4); its cells were read all the same.")
    cells = [cell for raw in raw_cells if (cell := _cell(raw)) is not None]
    if damaged := len(raw_cells) - len(cells):
        remarks.append(f"{plural(damaged, 'cell')} could not be read and {_were(damaged)} left out.")
    if len(cells) > MOST_CELLS:
        remarks.append(
            f"The notebook has {len(raw_cells):,} cells; only {MOST_CELLS:,} were read, the course's own first."
        )
        cells = _most_important(cells, course)
    if not any(cell.source.strip() for cell in cells):
        raise NotGradable("the notebook is empty: there is no text in its cells")
    if sum(len(cell.source) for cell in cells if cell.is_code) > MOST_CHARACTERS:
        raise NotGradable(
            f"its code has more than {MOST_CHARACTERS:,} characters: no notebook of the course has a tenth of that"
        )
    repaired = 0
    for cell in cells:
        cell.source, surrogates = _LONE_SURROGATE.subn("\ufffd", cell.source)
        repaired += bool(surrogates)
    if repaired:
        remarks.append(
            f"{plural(repaired, 'cell')} contained characters that aren't text (lone surrogates): they show as �."
        )
    return cells


def _cell(raw: Any) -> _Cell | None:
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
    """Return a text deep in a cell, or "" if it is not there or not a text."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _most_important(cells: list[_Cell], course: Course) -> list[_Cell]:
    """Return as many cells as are read, in their order: the course's own and answers, then others from the front."""
    notebooks = _canonical(course).values()
    marks = {mark for known in notebooks for mark in (*known.place_of_id, *known.place_of_text)}

    def rank(cell: _Cell) -> int:
        defined = re.findall(r"^(?:def|class)[ \t]+(\w+)", cell.source, re.MULTILINE)
        if cell.exercise or {cell.id, _plain(cell.source)} & marks or not exercises().keys().isdisjoint(defined):
            return 0
        return 1 if cell.source.strip() else 2

    chosen = sorted(range(len(cells)), key=[rank(cell) for cell in cells].__getitem__)[:MOST_CELLS]
    return [cells[index] for index in sorted(chosen)]


def _best_match(cells: list[_Cell], file_name: str, course: Course) -> _Canonical:
    """Return the course notebook that the cells match best."""
    answered = {cell.exercise for cell in cells}
    bound = set().union(*(names_of(cell.source).binds for cell in cells if cell.is_code))
    ids = {cell.id for cell in cells}
    texts = {_plain(cell.source) for cell in cells}
    number = re.search(r"(?<!\d)(\d\d)[ _-]", file_name)

    def evidence(canonical: _Canonical) -> tuple[int, bool]:
        # Answers of earlier notebooks may have been pasted, with their metadata: the other cells count too.
        answers = len(answered & set(canonical.exercises)) + len(bound & set(canonical.exercises))
        others = len(ids & set(canonical.place_of_id)) + len(texts & set(canonical.place_of_text))
        enough = answers or others >= MARKS_OF_A_NOTEBOOK
        return (3 * answers + others) * bool(enough), bool(number) and canonical.name.startswith(number[1])

    best = max(_canonical(course).values(), key=evidence, default=None)
    if best is None or not evidence(best)[0]:
        raise NotGradable("it is a notebook, but none of this course with exercises: nothing in it was recognized")
    return best


def _remark_on_other_notebooks(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    others = {
        notebook_of(cell.exercise)
        for cell in cells
        if cell.exercise and cell.exercise not in canonical.exercises
        if not is_unwritten(cell.source, cell.exercise, exercises()[cell.exercise].blank)
    }
    if others:
        named = ", ".join(sorted(others))
        plan.remarks.append(f"There are answers of notebook {named} in it too; those of {canonical.name} were graded.")


def _locate(cell: _Cell, canonical: _Canonical) -> None:
    """Find out which cell of the course this is, or was, and which exercises it defines."""
    if cell.exercise in canonical.exercises:
        cell.place = canonical.place[cell.exercise]
    else:
        cell.exercise = None
        text = _plain(cell.source)
        cell.place = canonical.place_of_id.get(cell.id, canonical.place_of_id.get(cell.grade_id))
        if cell.place is None and text:
            cell.place = canonical.place_of_text.get(text)
        if cell.place is not None:
            cell.is_edited = text != _plain(canonical.cells[cell.place].source)
            cell.exercise = exercise_of(canonical.cells[cell.place])  # found by its text: an untouched stub
    if cell.exercise and not cell.is_code:
        cell.source = _without_fence(cell.source)
    if cell.is_code or cell.exercise:
        cell.defines = names_of(cell.source).binds & set(canonical.exercises)


def _plain(source: str) -> str:
    """Return the text without what editors change by themselves."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def _without_fence(source: str) -> str:
    fenced = re.fullmatch(r"\s*```[^\n]*\n(.*?)\n?```\s*", source, re.DOTALL)
    return fenced[1] if fenced else source


# --- deciding --------------------------------------------------------------------------------------------------------


def _choose_answers(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    """Choose the cell that counts for each exercise: the last that defines it and is written, else its own cell."""
    for name in canonical.exercises:
        if answers := _answers(name, cells, canonical):
            plan.counts[name] = answers[-1]
            if len(answers) > 1:
                plan.remarks.append(f"`{name}` is defined in {len(answers)} cells: the last one counts.")
    taken = {id(cell) for cell in plan.counts.values()}
    for name in [name for name in canonical.exercises if name not in plan.counts]:
        own = [cell for cell in cells if cell.exercise == name]
        unanswered = [cell for cell in own if id(cell) not in taken] or _turned_to_text(name, cells)
        if len(own) > 1:
            plan.remarks.append(f"The cell of `{name}` is in the notebook {len(own)} times: the last one counts.")
        if not unanswered:
            plan.remarks.append(f"The cell of `{name}` is missing.")
            continue
        plan.counts[name] = unanswered[-1]
        if name not in unanswered[-1].defines:
            plan.remarks.append(f"The cell of `{name}` does not define `{name}`.")
    for name, cell in plan.counts.items():
        if not cell.is_code:
            plan.remarks.append(f"The cell of `{name}` had been turned into text: it was run as code.")


def _answers(name: str, cells: list[_Cell], canonical: _Canonical) -> list[_Cell]:
    """Return the cells that define an exercise, leaving out text if there is code, and stubs.

    An import or an assignment elsewhere (`from torch import softmax`) takes nothing away from a function or a class.
    """
    written = [cell for cell in cells if name in cell.defines and canonical.is_written(cell, name)]
    written = [cell for cell in written if cell.is_code] or written
    return [
        cell for cell in written if cell.exercise == name or name in names_of(cell.source).definitions
    ] or written


def _turned_to_text(name: str, cells: list[_Cell]) -> list[_Cell]:
    """Return the last text cell that is Python and defines the exercise, where nothing else says which cell it is."""
    for cell in reversed(cells):
        if not cell.is_code and cell.place is None:
            names = names_of(_without_fence(cell.source))
            if names.is_python and name in names.binds:
                return [replace(cell, source=_without_fence(cell.source), defines=frozenset({name}))]
    return []


def _choose_homes(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    """Choose the cell for each exercise's place: a cell with several answers has one, older attempts keep their own."""
    taken = {id(cell) for cell in plan.counts.values()}
    for name, cell in plan.counts.items():
        in_the_same_cell = [exercise for exercise, counted in plan.counts.items() if counted is cell]
        home = cell.exercise if cell.exercise in in_the_same_cell else in_the_same_cell[0]
        plan.homes[home] = cell
        if name != home and name not in plan.homes:
            own = [own for own in cells if own.exercise == name and id(own) not in taken and own.is_code]
            if attempts := [attempt for attempt in own if canonical.is_written(attempt, name)]:
                plan.homes[name] = attempts[-1]


def _place_added_cells(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    """Put what the student added before the exercise that follows it, and after the course's cell that it follows.

    What stands before an exercise comes along in any case; the rest, and changed cells of the course, if it is needed.
    """
    placed = {id(cell): canonical.place[home] for home, cell in plan.homes.items()}
    added: list[tuple[_Cell, int, bool]] = []  # the cell, its place, and whether it comes along in any case
    preceding = -1
    for cell, following in zip(cells, _places_of_next_exercise(cells, placed, canonical), strict=True):
        if id(cell) in placed:
            preceding = placed[id(cell)]
        elif _may_come_along(cell, canonical):
            in_any_case = following is not None and not cell.is_edited
            preceding = cell.place if cell.is_edited else preceding
            places = [preceding + 1, *([following] if in_any_case else [])]
            places += [placed[id(plan.counts[name])] for name in cell.defines if name in plan.counts]
            added.append((cell, min(places), in_any_case))
        elif cell.place is not None:
            preceding = cell.place
    wanted = _read_by([*plan.counts.values(), *(cell for cell, _, in_any_case in added if in_any_case)])
    provides = [_newly_bound(cell, canonical) for cell, _, _ in added]
    needed = providers_of(wanted, provides, [names_of(cell.source).reads for cell, _, _ in added])
    along = [(cell, place) for i, (cell, place, in_any_case) in enumerate(added) if in_any_case or i in needed]
    for cell, place in along:
        plan.before.setdefault(place, []).append(cell)
    edited = sum(cell.is_edited for cell, _ in along)
    if len(along) > edited:
        plan.remarks.append(f"{plural(len(along) - edited, 'added cell')} came along.")
    if edited:
        plan.remarks.append(
            f"You changed {plural(edited, 'cell')} of the course that your code needs: your version was run as well."
        )


def _places_of_next_exercise(cells: list[_Cell], placed: dict[int, int], canonical: _Canonical) -> list[int | None]:
    """Return, for each cell, the place of the next exercise after it."""
    places: list[int | None] = []
    following = None
    for cell in reversed(cells):
        places.append(following)
        following = placed.get(id(cell), canonical.place.get(cell.exercise, following))
    return places[::-1]


def _may_come_along(cell: _Cell, canonical: _Canonical) -> bool:
    """Return whether it is a cell of their own, another version of an exercise, or a changed cell of the course."""
    if not (cell.is_code and cell.source.strip()):
        return False
    if cell.exercise:
        return canonical.is_written(cell, cell.exercise)
    return cell.place is None or (cell.is_edited and canonical.cells[cell.place].cell_type == "code")


def _newly_bound(cell: _Cell, canonical: _Canonical) -> frozenset[str]:
    """Return the names that a cell binds; for a changed cell of the course, those that it did not bind before."""
    names = names_of(cell.source).binds
    return names - names_of(canonical.cells[cell.place].source).binds if cell.is_edited else names


def _read_by(cells: Iterable[_Cell]) -> set[str]:
    return set().union(*(names_of(cell.source).reads for cell in cells))


def _remark_on_order(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    places = [cell.place for cell in cells if cell.place is not None]
    distinct = list(dict.fromkeys(places))
    if distinct != sorted(distinct):
        plan.remarks.append("Cells had been moved: they were run in the order of the course.")
    code = {place for place, cell in enumerate(canonical.cells) if cell.cell_type == "code"}
    missing = len(code - set(places) - set(canonical.place.values()))
    if missing:
        put_back = "it was" if missing == 1 else "they were"
        plan.remarks.append(f"{plural(missing, 'cell')} of the course had been taken out: {put_back} put back.")
    of_exercises = [cell.exercise for cell in cells if cell.exercise]
    repeated = len(places) - len(distinct) - (len(of_exercises) - len(set(of_exercises)))
    if repeated > 0:
        plan.remarks.append(f"{plural(repeated, 'cell')} of the course {_were(repeated)} there twice.")


# --- building --------------------------------------------------------------------------------------------------------


def _built(plan: _Plan, canonical: _Canonical) -> NotebookNode:
    cells: list[NotebookNode] = []
    added = 0
    for place, cell in enumerate([*canonical.cells, None]):
        for own in plan.before.get(place, []):
            added += 1
            cells.append(_code(_without_markers(own.source), f"student-{added}", {"student": True}))
        if cell is not None:
            cells.append(_of_course(cell, plan))
    _skip_what_only_illustrates(cells)
    return from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": cells})


def _of_course(cell: NotebookNode, plan: _Plan) -> NotebookNode:
    """Return a cell of the course, with the student's source in place of an exercise's."""
    if cell.cell_type != "code":
        return from_dict({"cell_type": "markdown", "id": cell.id, "metadata": {}, "source": cell.source})
    if exercise := check_of(cell):
        check = _code(f"check({exercise})", cell.id, {"check": exercise})
        check.metadata["tags"] = [COMPARE_OUTPUT]
        check.execution_count = 1
        output = {"output_type": "stream", "name": "stdout", "text": f"{handed_in(exercise)}\n"}
        check.outputs = [from_dict(output)]
        return check
    exercise = exercise_of(cell)
    if exercise in plan.homes:
        about = {"exercise": exercise, "student": True}
        return _code(_without_markers(plan.homes[exercise].source), cell.id, about)
    if exercise in plan.counts:
        home = next(name for name, own in plan.homes.items() if own is plan.counts[exercise])
        return _code(f"# `{exercise}` is in the cell of `{home}`.", cell.id, {"exercise": exercise})
    return _code(cell.source, cell.id, {"exercise": exercise} if exercise else {})


def _code(source: str, cell_id: str, about: dict[str, Any]) -> NotebookNode:
    """Return a cell that has not been run. nbformat's own functions would validate it, which takes much longer."""
    metadata = {"transformer_lab": about} if about else {}
    cell = {"cell_type": "code", "id": cell_id, "metadata": metadata, "source": source}
    return from_dict({**cell, "outputs": [], "execution_count": None})


def handed_in(exercise: str) -> str:
    """Return what a check prints in the package that submissions run with."""
    return f"handed in: {exercise}"


def _without_markers(source: str) -> str:
    """Return the text without comments that nbval would obey; it looks at lines as `splitlines` makes them."""
    lines = source.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.strip().startswith("#"):
            lines[index] = _NBVAL_MARKER.sub(lambda marker: marker[0].replace("_", "-"), line)
    return "".join(lines)


def _skip_what_only_illustrates(cells: list[NotebookNode]) -> None:
    """Tag the course's cells that no answer depends on: pictures, training runs, common mistakes.

    What the student only tried out does not bring them back: printing a trained model would cost a training run.
    """
    code = [cell for cell in cells if cell.cell_type == "code"]
    names = [names_of(cell.source) for cell in code]
    graded = {index for index, cell in enumerate(code) if {"exercise", "check"} & set(_about(cell))}
    wanted = set().union(*(names[index].reads for index in graded))
    provides, reads = [cell.binds | cell.changes for cell in names], [cell.reads for cell in names]
    needed = graded | providers_of(wanted, provides, reads)
    for index, cell in enumerate(code):
        if index not in needed and not _about(cell):
            cell.metadata["tags"] = [SKIP]


def _about(cell: NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("transformer_lab", {})


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
