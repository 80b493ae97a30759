"""Run an exercise's checks on an object."""

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
    """Return the report on an object, and print the output of its code. The output may be truncated.

    Nothing is saved or raised.
    """
    report, printed = examine(exercise, subject, seed)
    if printed:
        print(f"While it was being checked, your code printed:\n{printed}", end="" if printed.endswith("\n") else "\n")
    return report


def examine(exercise: Exercise, subject: Any, seed: int = 0) -> tuple[Report, str]:
    """Return the report on an object and the output of its code."""
    if is_unwritten(subject, exercise.blank):
        says = "Write the body and remove the line `raise NotImplementedError()`. "
        says += f'`hint("{exercise.name}")` gives a hint.'
        return Report(exercise.name, "not attempted", 0.0, exercise.points, blocks=(says,)), ""
    with _earlier_parts_of_the_package(exercise, subject):
        observations, printed = observe_all(exercise, subject, seed)
    return judge(exercise, observations, seed, source_of(subject)), printed


def source_of(subject: Any) -> str | None:
    """Return the source of a function or class without comments. If the source is not known, return None."""
    with suppress(OSError, TypeError):
        return bare_or_none(inspect.getsource(unwrapped(subject)))
    pieces = []
    for code in codes(subject):  # a class that isn't in a module: find the source of each method
        with suppress(OSError):
            pieces.append(bare_or_none(inspect.getsource(code)) or "")
    return "".join(pieces) or None


@contextmanager
def _earlier_parts_of_the_package(exercise: Exercise, subject: Any) -> Iterator[None]:
    """During a check, replace the student's earlier parts with the package's, so that a mistake costs points only once.

    Only parts defined in the same module as the student's object are replaced. Imported names stay unchanged.
    """
    names = namespace(subject)
    own = {name: names[name] for name in exercise.builds_on if getattr(names.get(name), "__name__", None) == name}
    module = names.get("__name__", "")
    own = {name: part for name, part in own.items() if getattr(unwrapped(part), "__module__", None) == module}
    names.update({name: exercises()[name].answer for name in own})
    try:
        yield
    finally:
        names.update(own)
