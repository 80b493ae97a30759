"""What grading shows in a terminal. Names of students and of files are data: nothing in them is obeyed."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transformer_lab.classroom.batch import BatchResult, Change, Grading, OpenGrader
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.gradebook import by_student, number
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.files import on_screen
from transformer_lab.plural import plural

MOST_LINES = 20  # of one kind: the rest is in the reports


class Bar:
    """A bar of progress on stderr with the time that is left; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        period = {"speed_estimate_period": 300.0}  # seconds: single submissions differ much
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True, **period)
        self.task = self.progress.add_task("grading", total=None)

    def advance_to(self, done: int, total: int) -> None:
        """Show that so many are done."""
        if not self.progress.live.is_started and total:
            self.progress.start()
        self.progress.update(self.task, completed=done, total=total)

    def stop(self) -> None:
        """Take the bar away."""
        self.progress.stop()


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar that is taken away in the end, however it ends."""
    bar = Bar()
    try:
        yield bar
    finally:
        bar.stop()


def warn_without_sandbox(open_grader: OpenGrader) -> OpenGrader:
    """Print a warning if a grader has no sandbox, before it runs any student's code."""

    @contextmanager
    def open_and_warn(seed: int, course: Course) -> Iterator[Grading]:
        with open_grader(seed, course) as grader:
            if not grader.sandboxed:
                print("warning: there is no sandbox: students' code runs with your rights", file=sys.stderr)
            yield grader

    return open_and_warn


def as_lines(outcome: BatchResult) -> list[str]:
    """What a run came to, in words."""
    students = by_student(outcome.entries)
    problems = [entry for entry in outcome.entries if entry.result.problem]
    lines = [f"{_counted(outcome)}; {plural(len(students), 'student')} in the gradebook"]
    lines += _first([f"not graded: {on_screen(entry.path)}: {on_screen(entry.result.problem)}" for entry in problems])
    return [*lines, *(f"  {on_screen(str(path))}" for path in outcome.written)]


def _counted(outcome: BatchResult) -> str:
    refused = f", {outcome.refused} could not be graded" if outcome.refused else ""
    kept = f", {outcome.kept} kept" if outcome.kept else ""
    return f"{plural(outcome.graded - outcome.refused, 'submission')} graded{refused}{kept}"


def ask_about(changes: Sequence[Change], yes: bool) -> bool:
    """Show what grading an exercise anew has changed, and ask whether to keep it."""
    differing = [change for change in changes if change.differs]
    exercise = changes[0].before.exercise
    print(f"{exercise}: {plural(len(changes), 'answer')} graded anew, {len(differing)} with another result")
    for line in _first([f"  {on_screen(c.student)}: {_mark(c.before)} -> {_mark(c.after)}" for c in differing], 200):
        print(line)
    if not differing:
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        print("nothing was written: with --yes these results are kept")
        return False
    kept = input("Keep these results? [y/N] ").strip().lower() in ("y", "yes")
    if not kept:
        print("nothing was written")
    return kept


def _mark(result: ExerciseResult) -> str:
    slugs = f" ({', '.join(result.misconceptions)})" if result.misconceptions else ""
    return on_screen(f"{result.state}, {number(result.earned)} of {number(result.possible)}{slugs}")


def _first(lines: Sequence[str], most: int = MOST_LINES) -> list[str]:
    more = [f"  and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]
