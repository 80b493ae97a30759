"""A submission, assembled anew: the notebook of the course with the student's sources in their places.

Only the text of cells is taken from what was handed in. It is read and never run.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from nbformat import NotebookNode, from_dict

from transformer_lab.authoring.notebooks import COMPARE_OUTPUT, METADATA
from transformer_lab.classroom.cells import is_unwritten, names_of, that_give
from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.classroom.review import MOST_FLAGS, interference, review
from transformer_lab.classroom.submissions import Submission, cells_of, read_notebook
from transformer_lab.exercises import exercises
from transformer_lab.exercises.registry import notebook_of

MOST_CELLS = 2_000
MOST_CHARACTERS = 400_000  # of all code cells together: to read so many takes seconds
MARKS_OF_A_NOTEBOOK = 8  # ids or texts of its cells: some stand in several notebooks, such as "What comes next"
SKIP = "nbval-skip"

# Comments that nbval obeys, as it looks for them.
_NBVAL_MARKER = re.compile(
    r"(?:NBVAL_(?:IGNORE_OUTPUT|CHECK_OUTPUT|RAISES_EXCEPTION|SKIP)|PYTEST_VALIDATE_IGNORE_OUTPUT)"
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # in JSON as an escape; no file can be written with it


class NotGradable(Exception):  # noqa: N818 (it is a finding about the submission, not an error of ours)
    """The file is no notebook of the course; the message says why, in one line."""


@dataclass(frozen=True)
class Assembled:
    """What is run and scored."""

    student: str
    name: str  # of the notebook: "01_attention"
    notebook: NotebookNode  # the one of the course, with the student's sources in place
    sources: dict[str, str]  # exercise to the text of the student's cell; none where the cell is missing
    flags: dict[str, tuple[str, ...]]  # exercise to what the instructor should look at
    remarks: tuple[str, ...]  # for the student: what was unusual about the file


@dataclass
class _Cell:
    """A cell as it was handed in."""

    source: str
    is_code: bool
    claims: str | None = None  # the exercise that its id or metadata names
    canonical: int | None = None  # the cell of the course that it is, or was
    edited: bool = False  # it is a cell of the course with another text
    defines: frozenset[str] = frozenset()  # exercises


@dataclass
class _Plan:
    """Where the cells go: by index of the course's cell that they stand before."""

    homes: dict[str, _Cell] = field(default_factory=dict)  # exercise to the cell that stands in its place
    counts: dict[str, _Cell] = field(default_factory=dict)  # exercise to the cell that counts
    before: dict[int, list[_Cell]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


class _Canonical:
    """A notebook of the course, with what is asked about its cells again and again."""

    def __init__(self, course: Course, name: str) -> None:
        self.name = name
        self.cells = course.notebook(name).cells
        self.exercises = {exercise.name: exercise for exercise in course.exercises(name)}
        self.index = {cell.id: index for index, cell in enumerate(self.cells)}
        self.of_source = {_plain(cell.source): index for index, cell in enumerate(self.cells)}
        self.place = {exercise_of(cell): index for index, cell in enumerate(self.cells) if exercise_of(cell)}


@cache
def _canonical(course: Course) -> dict[str, _Canonical]:
    return {name: _Canonical(course, name) for name in course.graded}


def assemble(submission: Submission, course: Course) -> Assembled:
    """The notebook to run for a submission.

    Raises:
        NotGradable: It cannot be read, or is no notebook of the course.
    """
    if submission.problem:
        raise NotGradable(submission.problem)
    notebook, problem = read_notebook(submission.content)
    if problem:
        raise NotGradable(problem)
    remarks: list[str] = []
    raw_cells = _raw_cells(notebook, course, remarks)
    canonical = _which(raw_cells, submission, course)
    remarks += _of_other_notebooks(raw_cells, canonical)
    cells = [_cell(raw, canonical) for raw in raw_cells]
    plan = _plan(cells, canonical)
    assembled = _built(plan, canonical)
    sources = {name: plan.counts[name].source for name in canonical.exercises if name in plan.counts}
    return Assembled(
        submission.student,
        canonical.name,
        assembled,
        sources,
        _flags(sources, assembled, canonical),
        (*remarks, *plan.remarks),
    )


def _flags(sources: dict[str, str], notebook: NotebookNode, canonical: _Canonical) -> dict[str, tuple[str, ...]]:
    run = [cell for cell in notebook.cells if cell.cell_type == "code" and SKIP not in cell.metadata.get("tags", ())]
    helpers = [cell.source for cell in run if list(_about(cell)) == ["student"]]
    courses = [cell.source for cell in run if not _about(cell)]
    flags = {
        name: review(canonical.exercises[name], source, helpers, courses, sources) for name, source in sources.items()
    }
    found = [f"a cell of their own {what}" for helper in helpers for what in interference(helper, courses)]
    if found and flags:  # it is said once, with the first exercise
        first = next(iter(flags))
        flags[first] = (*list(dict.fromkeys(found))[:MOST_FLAGS], *flags[first])
    return flags


# --- reading ---------------------------------------------------------------------------------------------------------


def _raw_cells(notebook: dict[str, Any], course: Course, remarks: list[str]) -> list[dict[str, Any]]:
    """The cells, whatever the format's version: dictionaries whose `source` is a text."""
    found = cells_of(notebook)
    if found is not notebook.get("cells"):
        remarks.append("The notebook is of an old format (before version 4); its cells were read all the same.")
    cells = []
    damaged = 0
    for cell in found:
        source = cell.get("source", cell.get("input", "")) if isinstance(cell, dict) else None
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            damaged += 1
            continue
        cells.append({**cell, "source": source.replace("\r\n", "\n").replace("\r", "\n")})
    if len(cells) > MOST_CELLS:
        remarks.append(f"The notebook has {len(found):,} cells; only {MOST_CELLS:,} were read, the course's own first.")
        cells = _most_important(cells, course)
    if damaged:
        remarks.append(f"{_count(damaged, 'cell')} could not be read and {_were(damaged)} left out.")
    if not any(cell["source"].strip() for cell in cells):
        raise NotGradable("the notebook is empty: there is no text in its cells")
    if sum(len(cell["source"]) for cell in cells if _is_code(cell)) > MOST_CHARACTERS:
        raise NotGradable(
            f"its code has more than {MOST_CHARACTERS:,} characters: no notebook of the course has a tenth"
        )
    repaired = 0
    for cell in cells:
        cell["source"], count = _LONE_SURROGATE.subn("\ufffd", cell["source"])
        repaired += bool(count)
    if repaired:
        remarks.append(
            f"{_count(repaired, 'cell')} held characters that are no text (lone surrogates): they show as �."
        )
    return cells


def _most_important(cells: list[dict[str, Any]], course: Course) -> list[dict[str, Any]]:
    """As many as are read, in their order: those of the course and with answers, then others from the front."""
    known = {mark for one in _canonical(course).values() for mark in (*one.index, *one.of_source)}

    def rank(cell: dict[str, Any]) -> int:
        defined = re.findall(r"^(?:def|class)[ \t]+(\w+)", cell["source"], re.MULTILINE)
        of_course = {_cell_id(cell), _plain(cell["source"])} & known or not exercises().keys().isdisjoint(defined)
        return 0 if of_course or _claimed(cell) else 1 if cell["source"].strip() else 2

    chosen = sorted(range(len(cells)), key=[rank(cell) for cell in cells].__getitem__)[:MOST_CELLS]
    return [cells[place] for place in sorted(chosen)]


def _cell_id(raw: dict[str, Any]) -> str:
    return raw["id"] if isinstance(raw.get("id"), str) else ""


def _metadata(raw: dict[str, Any], *keys: str) -> str:
    """A text deep in a cell's metadata, "" if it is not there or no text."""
    value: Any = raw.get("metadata")
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _claimed(raw: dict[str, Any]) -> str:
    """The exercise that a cell's id or metadata names, if it is one."""
    names = (
        _cell_id(raw).removeprefix("exercise-") if _cell_id(raw).startswith("exercise-") else "",
        _metadata(raw, "transformer_lab", "exercise"),
        _metadata(raw, "nbgrader", "grade_id").removeprefix("exercise-"),
    )
    return next((name for name in names if name in exercises()), "")


def _is_code(raw: dict[str, Any]) -> bool:
    return raw.get("cell_type", "code") == "code"


def _which(raw_cells: list[dict[str, Any]], submission: Submission, course: Course) -> _Canonical:
    """The notebook of the course of which most is in this one."""
    claimed = {_claimed(raw) for raw in raw_cells}
    bound = set().union(*(names_of(raw["source"]).binds for raw in raw_cells if _is_code(raw)))
    ids = {_cell_id(raw) for raw in raw_cells}
    texts = {_plain(raw["source"]) for raw in raw_cells}
    named = re.search(r"(?<!\d)(\d\d)[ _-]", submission.path.rpartition("/")[2])

    def evidence(canonical: _Canonical) -> tuple[int, bool]:
        # answers of earlier notebooks may have been pasted, with their metadata: the whole counts
        answers = len(claimed & set(canonical.exercises)) + len(bound & set(canonical.exercises))
        others = len(ids & set(canonical.index)) + len(texts & set(canonical.of_source))
        enough = answers or others >= MARKS_OF_A_NOTEBOOK
        return (3 * answers + others) * bool(enough), bool(named) and canonical.name.startswith(named[1])

    found = max(_canonical(course).values(), key=evidence, default=None)
    if found is None or not evidence(found)[0]:
        raise NotGradable("it is a notebook, but none of this course with exercises: nothing of it was recognised")
    return found


def _of_other_notebooks(raw_cells: list[dict[str, Any]], canonical: _Canonical) -> list[str]:
    """A remark, or none: somebody may have answered two notebooks in one file."""
    others = {
        notebook_of(name)
        for raw in raw_cells
        if (name := _claimed(raw)) and name not in canonical.exercises
        if not is_unwritten(raw["source"], name, exercises()[name].blank)
    }
    if not others:
        return []
    named = ", ".join(sorted(others))
    return [f"There are answers of notebook {named} in it too; those of {canonical.name} were graded."]


def _cell(raw: dict[str, Any], canonical: _Canonical) -> _Cell:
    source = raw["source"]
    cell = _Cell(source, _is_code(raw))
    claims = _claimed(raw)
    if claims in canonical.exercises:
        cell.claims = claims
        cell.canonical = canonical.place[claims]
    else:
        ids = (_cell_id(raw), _metadata(raw, "nbgrader", "grade_id"))
        cell.canonical = next((canonical.index[i] for i in ids if i in canonical.index), None)
        if cell.canonical is None and _plain(source):
            cell.canonical = canonical.of_source.get(_plain(source))
        if cell.canonical is not None:
            cell.edited = _plain(source) != _plain(canonical.cells[cell.canonical].source)
            if exercise := exercise_of(canonical.cells[cell.canonical]):  # found by its text: an untouched stub
                cell.claims = exercise
    if cell.claims and not cell.is_code:
        cell.source = _unfenced(source)
    if cell.is_code or cell.claims:
        cell.defines = names_of(cell.source).binds & set(canonical.exercises)
    return cell


def _plain(source: str) -> str:
    """Without what editors change by themselves."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def _unfenced(source: str) -> str:
    fenced = re.fullmatch(r"\s*```[^\n]*\n(.*?)\n?```\s*", source, re.DOTALL)
    return fenced[1] if fenced else source


# --- deciding --------------------------------------------------------------------------------------------------------


def _plan(cells: list[_Cell], canonical: _Canonical) -> _Plan:
    plan = _Plan()
    _choose(cells, canonical, plan)
    _place_the_others(cells, canonical, plan)
    _remark_on_order(cells, canonical, plan)
    return plan


def _choose(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    """For each exercise the cell that counts: the last that defines its name and is written, else its own cell.

    An import or an assignment elsewhere (`from torch import softmax`) takes nothing away from a function or a class.
    """
    for name, exercise in canonical.exercises.items():
        own = [cell for cell in cells if cell.claims == name]
        written = [
            cell for cell in cells if name in cell.defines and not is_unwritten(cell.source, name, exercise.blank)
        ]
        written = [cell for cell in written if cell.is_code] or written
        defined = [cell for cell in written if cell.claims == name or name in names_of(cell.source).definitions]
        written = defined or written
        if written:
            plan.counts[name] = written[-1]
            if len(written) > 1:
                plan.remarks.append(f"`{name}` is defined in {len(written)} cells: the last one counts.")
            if not written[-1].is_code:
                plan.remarks.append(f"The cell of `{name}` had been turned to text: it was run as code.")
        elif len(own) > 1:
            plan.remarks.append(f"The cell of `{name}` stands in the notebook {len(own)} times: the last one counts.")
    taken = {id(cell) for cell in plan.counts.values()}
    for name in canonical.exercises:
        own = [cell for cell in cells if cell.claims == name and id(cell) not in taken]
        if name not in plan.counts and not own:
            own = _turned_to_text(name, cells)
        if name not in plan.counts and own:
            plan.counts[name] = own[-1]
            if not own[-1].is_code:
                plan.remarks.append(f"The cell of `{name}` had been turned to text: it was run as code.")
            if name not in own[-1].defines:
                plan.remarks.append(f"The cell of `{name}` does not define `{name}`.")
        elif name not in plan.counts:
            plan.remarks.append(f"The cell of `{name}` is missing.")
    for name, cell in plan.counts.items():
        homes = [other for other, counted in plan.counts.items() if counted is cell]
        home = cell.claims if cell.claims in homes else homes[0]
        plan.homes[home] = cell
        if name != home and name not in plan.homes:
            own = [other for other in cells if other.claims == name and id(other) not in taken and other.is_code]
            own = [other for other in own if not is_unwritten(other.source, name, canonical.exercises[name].blank)]
            if own:
                plan.homes[name] = own[-1]


def _turned_to_text(name: str, cells: list[_Cell]) -> list[_Cell]:
    """The last text cell that is Python and defines the exercise, where nothing else says which cell it is."""
    for cell in reversed(cells):
        if not cell.is_code and cell.canonical is None:
            names = names_of(_unfenced(cell.source))
            if names.is_python and name in names.binds:
                return [replace(cell, source=_unfenced(cell.source), defines=frozenset({name}))]
    return []


def _place_the_others(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    """What the student added, before the exercise that follows it, and after the course's cell that it follows."""
    placed = {id(cell): canonical.place[home] for home, cell in plan.homes.items()}
    following: list[int | None] = []  # for each cell, the place of the next exercise
    following_place = None
    for cell in reversed(cells):
        following.append(following_place)
        if id(cell) in placed:
            following_place = placed[id(cell)]
        elif cell.claims:
            following_place = canonical.place[cell.claims]
    following.reverse()

    own: list[tuple[_Cell, int, bool]] = []  # the cell, its place, and whether it comes along in any case
    preceding = -1
    for cell, next_place in zip(cells, following, strict=True):
        if id(cell) in placed:
            preceding = placed[id(cell)]
        elif cell.is_code and cell.source.strip() and _is_the_students(cell, canonical):
            if cell.edited:
                preceding = cell.canonical
            place = preceding + 1
            if next_place is not None and not cell.edited:
                place = min(place, next_place)
            latest = [placed[id(plan.counts[name])] for name in cell.defines if name in plan.counts]
            own.append((cell, min([place, *latest]), next_place is not None and not cell.edited))
        elif cell.canonical is not None:
            preceding = cell.canonical
    needed = _read_by([*plan.counts.values(), *(cell for cell, _, comes_along in own if comes_along)])
    gives, reads = ([_adds(cell, canonical) for cell, _, _ in own], [names_of(cell.source).reads for cell, _, _ in own])
    brought = {id(own[number][0]) for number in that_give(needed, gives, reads)}
    brought |= {id(cell) for cell, _, comes_along in own if comes_along}
    for cell, place, _ in own:
        if id(cell) in brought:
            plan.before.setdefault(place, []).append(cell)
    edited = sum(cell.edited for cell, _, _ in own if id(cell) in brought)
    if len(brought) > edited:
        plan.remarks.append(f"{_count(len(brought) - edited, 'added cell')} came along.")
    if edited:
        plan.remarks.append(
            f"You changed {_count(edited, 'cell')} of the course that your code needs: your version was run as well."
        )


def _adds(cell: _Cell, canonical: _Canonical) -> frozenset[str]:
    """The names that a cell binds; of a changed cell of the course, those that it did not bind before."""
    names = names_of(cell.source).binds
    return names - names_of(canonical.cells[cell.canonical].source).binds if cell.edited else names


def _is_the_students(cell: _Cell, canonical: _Canonical) -> bool:
    """Whether it may come along: a cell of its own, another version of an exercise, or a changed cell of the course."""
    if cell.claims:
        return not is_unwritten(cell.source, cell.claims, canonical.exercises[cell.claims].blank)
    return cell.canonical is None or (cell.edited and canonical.cells[cell.canonical].cell_type == "code")


def _read_by(cells: Iterable[_Cell]) -> set[str]:
    return set().union(*(names_of(cell.source).reads for cell in cells))


def _remark_on_order(cells: list[_Cell], canonical: _Canonical, plan: _Plan) -> None:
    places = [cell.canonical for cell in cells if cell.canonical is not None]
    distinct = list(dict.fromkeys(places))
    if distinct != sorted(distinct):
        plan.remarks.append("Cells had been moved: they were run in the order of the course.")
    exercises_missing = {canonical.place[name] for name in canonical.exercises if name not in plan.counts}
    code = {index for index, cell in enumerate(canonical.cells) if cell.cell_type == "code"}
    missing = code - set(places) - exercises_missing - {canonical.place[name] for name in plan.counts}
    if missing:
        put_back = "it was" if len(missing) == 1 else "they were"
        plan.remarks.append(f"{_count(len(missing), 'cell')} of the course had been taken out: {put_back} put back.")
    repeated = len(places) - len(distinct)
    of_exercises = [cell.claims for cell in cells if cell.claims]
    repeated -= len(of_exercises) - len(set(of_exercises))
    if repeated > 0:
        plan.remarks.append(f"{_count(repeated, 'cell')} of the course stood there twice.")


# --- building --------------------------------------------------------------------------------------------------------


def _built(plan: _Plan, canonical: _Canonical) -> NotebookNode:
    cells: list[NotebookNode] = []
    number = 0

    def add_students(own: list[_Cell]) -> None:
        nonlocal number
        for cell in own:
            number += 1
            cells.append(_code(_without_markers(cell.source), f"student-{number}", {"student": True}))

    for index, cell in enumerate(canonical.cells):
        add_students(plan.before.get(index, []))
        if cell.cell_type != "code":
            cells.append(from_dict({"cell_type": "markdown", "id": cell.id, "metadata": {}, "source": cell.source}))
        elif exercise := exercise_of(cell):
            about: dict[str, Any] = {"exercise": exercise}
            source = cell.source
            if exercise in plan.homes:
                source = _without_markers(plan.homes[exercise].source)
                about["student"] = True
            elif exercise in plan.counts:
                home = next(name for name, cell in plan.homes.items() if cell is plan.counts[exercise])
                source = f"# `{exercise}` stands in the cell of `{home}`."
            cells.append(_code(source, cell.id, about))
        elif exercise := check_of(cell):
            new = _code(f"check({exercise})", cell.id, {"check": exercise})
            new.metadata["tags"] = [COMPARE_OUTPUT]
            new.execution_count = 1
            said = {"output_type": "stream", "name": "stdout", "text": f"{handed_in(exercise)}\n"}
            new.outputs = [from_dict(said)]
            cells.append(new)
        else:
            cells.append(_code(cell.source, cell.id))
    add_students(
        [cell for index in sorted(plan.before) if index >= len(canonical.cells) for cell in plan.before[index]]
    )
    _skip_what_only_illustrates(cells)
    return from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": cells})


def _code(source: str, cell_id: str, about: dict[str, Any] | None = None) -> NotebookNode:
    """A cell that has not been run; nbformat's own functions validate each, which takes longer than all the rest."""
    metadata = {"transformer_lab": about} if about else {}
    cell = {"cell_type": "code", "id": cell_id, "metadata": metadata, "source": source}
    return from_dict({**cell, "outputs": [], "execution_count": None})


def handed_in(exercise: str) -> str:
    """What a check says in the package that submissions run with."""
    return f"handed in: {exercise}"


def _without_markers(source: str) -> str:
    """The text without comments that nbval would obey; it looks at lines as `splitlines` makes them."""
    lines = source.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip().startswith("#"):
            lines[number] = _NBVAL_MARKER.sub(lambda marker: marker[0].replace("_", "-"), line)
    return "".join(lines)


def _skip_what_only_illustrates(cells: list[NotebookNode]) -> None:
    """Tags the course's cells on which no answer depends: pictures, trainings, common mistakes.

    What the student only tried out does not bring them back: a line that prints a trained model would cost a training.
    """
    code = [cell for cell in cells if cell.cell_type == "code"]
    kept = {cell.id for cell in code if {"exercise", "check"} & set(_about(cell))}
    reads = [names_of(cell.source).reads for cell in code]
    needed = set().union(*(names for cell, names in zip(code, reads, strict=True) if cell.id in kept))
    kept |= {code[number].id for number in that_give(needed, [_gives(cell.source) for cell in code], reads)}
    for cell in code:
        if cell.id not in kept and not _about(cell):
            cell.metadata["tags"] = [SKIP]


def _gives(source: str) -> frozenset[str]:
    return names_of(source).binds | names_of(source).changes


def _about(cell: NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("transformer_lab", {})


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
