"""Runs an exercise's checks on an object."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from transformer_lab.exercises.edits import bare_or_none
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.judgment import judge, observe_all
from transformer_lab.exercises.observation import codes, is_unwritten, namespace, unwrapped
from transformer_lab.exercises.registry import exercises
from transformer_lab.exercises.report import Report


def run_check(exercise: Exercise, subject: Any, seed: int = 0) -> Report:
    """The report on one object: nothing is kept and nothing raised. What its code prints is printed, shortened."""
    report, printed = examine(exercise, subject, seed)
    if printed:
        print(f"Your code printed, while it was checked:\n{printed}", end="" if printed.endswith("\n") else "\n")
    return report


def examine(exercise: Exercise, subject: Any, seed: int = 0) -> tuple[Report, str]:
    """The report on one object, and what its code printed."""
    if is_unwritten(subject, exercise.blank):
        says = "Write the body and take out the line `raise NotImplementedError()`."
        hint = f'`hint("{exercise.name}")` gives a hint.'
        return Report(exercise.name, "not attempted", 0.0, exercise.points, blocks=(f"{says} {hint}",)), ""
    with _earlier_parts_of_the_package(exercise, subject):
        observations, printed = observe_all(exercise, subject, seed)
    return judge(exercise, observations, seed, source_of(subject)), printed


def source_of(subject: Any) -> str | None:
    """Return the code of a function or class, without comments; None where it isn't known."""
    subject = unwrapped(subject)
    with suppress(OSError, TypeError):
        return bare_or_none(inspect.getsource(subject))
    pieces = []
    for code in codes(subject):  # a class that isn't in any module
        with suppress(OSError):
            pieces.append(bare_or_none(inspect.getsource(code)) or "")
    return "".join(pieces) or None


@contextmanager
def _earlier_parts_of_the_package(exercise: Exercise, subject: Any) -> Iterator[None]:
    """Let the student's code see the package's earlier parts under their names, so that one mistake costs once.

    Only what was defined beside the student's object is replaced: a name that was imported is meant as it is.
    """
    names = namespace(subject)
    replaced = {}
    for name in exercise.builds_on:
        own = names.get(name)
        defined_here = getattr(unwrapped(own), "__module__", None) == names.get("__name__", "")
        if defined_here and getattr(own, "__name__", None) == name:
            replaced[name] = own
    try:
        for name in replaced:
            names[name] = exercises()[name].answer
        yield
    finally:
        names.update(replaced)
