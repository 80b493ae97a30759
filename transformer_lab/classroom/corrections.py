"""Apply the instructor's corrections: points in `corrections.csv` that replace those from the grader."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_lab.classroom.gradebook import Entry, by_student, format_points
from transformer_lab.errors import InputError

CORRECTIONS = "corrections.csv"
HEADING = ("student", "exercise", "points", "reason")
TOTAL = "total"


@dataclass(frozen=True)
class Correction:
    """A line of `corrections.csv`."""

    student: str  # as in gradebook.csv
    exercise: str  # or `TOTAL`
    points: float
    reason: str

    def remark(self, before: float) -> str:
        """Return the remark that the student and the instructor see."""
        points = f"from {format_points(before)} to {format_points(self.points)} points"
        return f"`{self.exercise}` was corrected by hand {points}{': ' * bool(self.reason)}{self.reason}"


def read_corrections(folder: Path) -> list[Correction]:
    """Return the lines of `corrections.csv` in the folder for the grades. If there is no such file, return [].

    Raises:
        InputError: The file cannot be read, or a line is not a correction.
    """
    path = folder / CORRECTIONS
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): save it as CSV (UTF-8)") from None
    delimiter = max("\t;,", key=text.partition("\n")[0].count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restval="", skipinitialspace=True)
    if not set(HEADING) <= set(rows.fieldnames or ()):
        raise InputError(f"{path} needs the headings {','.join(HEADING)} in its first line")
    return list(_corrections(rows, path))


def _corrections(rows: csv.DictReader, path: Path) -> Iterator[Correction]:
    for row in rows:
        if None in row:  # more cells than headings
            raise InputError(f"{path}, line {rows.line_num} has too many cells: put text with commas in quotes")
        student, exercise, points, reason = (row[name].strip() for name in HEADING)
        if not re.fullmatch(r"-?\d+([.,]\d+)?", points) and any(row.values()):
            raise InputError(f"{path}, line {rows.line_num} has {points!r} for points: give a number")
        if points:
            yield Correction(student, exercise, float(points.replace(",", ".")), reason)


def with_corrections(entries: Sequence[Entry], corrections: Sequence[Correction]) -> list[Entry]:
    """Return the entries with corrected points, and a remark about each correction.

    A correction of an exercise replaces its points. A correction of the total is applied last, and is kept as the
    `adjustment` of the student's first entry.
    """
    students = by_student(entries)
    for correction in sorted(corrections, key=lambda one: one.exercise == TOTAL):
        submitted = students.get(correction.student, [])
        if correction.exercise == TOTAL and submitted:
            total = sum(entry.earned for entry in submitted)
            first = replace(submitted[0], adjustment=submitted[0].adjustment + correction.points - total)
            submitted[0] = _with_remark(first, correction.remark(total))
        for index, entry in enumerate(submitted):
            for result in entry.result.exercises:
                if result.exercise == correction.exercise:
                    corrected = replace(result, earned=correction.points)
                    exercises = tuple(corrected if one is result else one for one in entry.result.exercises)
                    changed = replace(entry, result=replace(entry.result, exercises=exercises))
                    submitted[index] = _with_remark(changed, correction.remark(result.earned))
    return [entry for submitted in students.values() for entry in submitted]


def _with_remark(entry: Entry, remark: str) -> Entry:
    return replace(entry, result=replace(entry.result, remarks=(*entry.result.remarks, remark)))


def without_effect(corrections: Sequence[Correction], entries: Sequence[Entry]) -> list[str]:
    """Return the corrections of results that are not in the gradebook: `Ada Lovelace (causal_mask)`."""
    results = {(entry.student, result.exercise) for entry in entries for result in entry.result.exercises}
    known = results | {(entry.student, TOTAL) for entry in entries}
    return [f"{one.student} ({one.exercise})" for one in corrections if (one.student, one.exercise) not in known]
