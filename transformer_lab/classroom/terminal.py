"""Terminal output of the grader. Names of students and files are printed without terminal control characters."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tqdm import tqdm

from transformer_lab.classroom.batch import BatchResult, Change, Grading, OpenGrader
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.gradebook import by_student, format_points
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.files import on_screen
from transformer_lab.plural import plural

MOST_LINES = 20  # of each kind; the reports have the rest


def warn_without_sandbox(open_grader: OpenGrader) -> OpenGrader:
    """Print a warning if a grader has no sandbox, before it runs any student's code."""

    @contextmanager
    def open_and_warn(seed: int, course: Course) -> Iterator[Grading]:
        with open_grader(seed, course) as grader:
            if not grader.sandboxed:
                tqdm.write("warning: there is no sandbox: students' code runs with your permissions", file=sys.stderr)
            yield grader

    return open_and_warn


def as_lines(outcome: BatchResult) -> list[str]:
    students = by_student(outcome.entries)
    problems = [entry for entry in outcome.entries if entry.result.problem]
    refused = f", {outcome.refused} could not be graded" if outcome.refused else ""
    kept = f", {outcome.kept} kept" if outcome.kept else ""
    graded = f"{plural(outcome.graded - outcome.refused, 'submission')} graded{refused}{kept}"
    return [
        f"{graded}; {plural(len(students), 'student')} in the gradebook",
        *_first([f"not graded: {on_screen(entry.path)}: {on_screen(entry.result.problem)}" for entry in problems]),
        *(f"  {on_screen(str(path))}" for path in outcome.written),
    ]


def ask_about(changes: Sequence[Change], yes: bool) -> bool:
    """Show how regrading an exercise changed the results, and ask whether to keep the changes."""
    differing = [change for change in changes if change.differs]
    exercise = changes[0].before.exercise
    print(f"{exercise}: {plural(len(changes), 'answer')} graded again, {len(differing)} with a different result")
    for line in _first([f"  {on_screen(c.student)}: {_mark(c.before)} -> {_mark(c.after)}" for c in differing], 200):
        print(line)
    if not differing:
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        print("nothing was written; use --yes to keep these results")
        return False
    if input("Keep these results? [y/N] ").strip().lower() in ("y", "yes"):
        return True
    print("nothing was written")
    return False


def _mark(result: ExerciseResult) -> str:
    slugs = f" ({', '.join(result.misconceptions)})" if result.misconceptions else ""
    return on_screen(f"{result.state}, {format_points(result.earned)} of {format_points(result.possible)}{slugs}")


def _first(lines: Sequence[str], most: int = MOST_LINES) -> list[str]:
    more = [f"  and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]
