"""Implementation of `check`, which compares a student's object with the answer."""

import inspect
import os
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from transformer_lab.errors import InputError
from transformer_lab.exercises import saved_parts
from transformer_lab.exercises.examination import run_check
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.library_answers import USUAL_NAMES, library_answers
from transformer_lab.exercises.observation import codes, namespace, unwrapped
from transformer_lab.exercises.progress import progress
from transformer_lab.exercises.registry import exercises, no_such_exercise, notebook_of
from transformer_lab.exercises.report import Report
from transformer_lab.exercises.time_limit import is_checking


class CheckFailed(Exception):  # noqa: N818 (the name is fixed: notebooks and graders know it)
    """Raised after the report of a failed check if TRANSFORMER_LAB_STRICT=1 is set."""

    def _render_traceback_(self) -> list[str]:  # what IPython shows: the report says the rest
        return [f"CheckFailed: {self}"]


class CheckUsageError(InputError):
    """`check` was given something that it cannot check."""

    def _render_traceback_(self) -> list[str]:
        return [f"check: {self}"]


def check(*arguments: Any, as_: str | None = None) -> Report:
    """Check what you wrote: `check(softmax)`, or `check(f, as_="softmax")` if your object has another name.

    With `as_` nothing is saved for later notebooks, and TRANSFORMER_LAB_STRICT is ignored, so that a notebook can show
    what the check says about a wrong version. `check("softmax", f)` saves a version that passes.

    Returns:
        A report, which a notebook shows. A part that passes is saved for the later notebooks (`transformer_lab.mine`).

    Raises:
        InputError: this cannot be checked; the message says what to give.
        CheckFailed: it does not pass, and the environment variable TRANSFORMER_LAB_STRICT is 1, or nbgrader runs it.
    """
    if is_checking():
        raise CheckUsageError("the code that is being checked calls `check` itself: move that call out of it")
    if as_ is not None:
        exercise, subject, remarks = _resolve_arguments((as_, *arguments))
        report = run_check(exercise, subject)
        return replace(report, remarks=(*remarks, *report.remarks))
    exercise, subject, remarks = _resolve_arguments(arguments)
    report = run_check(exercise, subject)
    if report.passed:
        saved, problems = saved_parts.save(exercise, subject)
        remarks += _library_remarks(exercise, subject) + problems
        report = replace(report, next_step=_next_step(exercise, saved))
    report = replace(report, remarks=(*remarks, *report.remarks))
    # nbgrader, which sets the second one, gives the points of a cell unless it raises
    asked = os.environ.get("TRANSFORMER_LAB_STRICT", "").strip().lower()
    strict = asked not in ("", "0", "false", "no", "off") or "NBGRADER_EXECUTION" in os.environ
    if strict and not report.passed:
        _show(report)
        raise CheckFailed(report.title)
    return report


def _next_step(exercise: Exercise, saved: Path | None) -> str:
    """Return where a part was saved and what to do next, or nothing if it was not saved."""
    if saved is None:
        return ""
    following = replace(progress(), current=notebook_of(exercise.name)).following
    return f"Saved in {saved.as_posix()}" + (f". Next: {following}" if following else "")


def _library_remarks(exercise: Exercise, subject: Any) -> list[str]:
    """Return a remark if the object is right because it is, or calls, another person's answer."""
    if unwrapped(subject) is exercise.answer:
        return ["This is the package's own answer, not yours."]
    sources = []
    for code in codes(subject):
        with suppress(OSError):
            sources.append(textwrap.dedent(inspect.getsource(code)))
    modules = {name: value.__name__ for name, value in namespace(subject).items() if isinstance(value, ModuleType)}
    calls = [call for source in sources for call in library_answers(source, exercise.banned, USUAL_NAMES | modules)]
    names = list(dict.fromkeys(name for _, name in calls))
    return [f"It calls `{name}`: right, but that is a library's answer and not yours." for name in names]


def _show(report: Report) -> None:
    if saved_parts.shell() is not None:
        from IPython.display import display

        display(report)
    else:
        print(report)


def _resolve_arguments(arguments: tuple[Any, ...]) -> tuple[Exercise, Any, list[str]]:
    """Return the requested exercise, the object to check, and remarks on how `check` was called."""
    if not arguments or len(arguments) > 2:
        raise CheckUsageError("it takes the function or class you wrote, `check(softmax)`, or a name and an object")
    exercise, subject, remarks = (_resolve_object if len(arguments) == 1 else _resolve_name_and_object)(*arguments)
    _refuse_values(subject, exercise)
    if isinstance(exercise.answer, type):
        if not isinstance(subject, type) and isinstance(subject, torch.nn.Module):
            remarks.append(_class_meant(exercise.name))
            subject = type(subject)
        elif not callable(subject) or inspect.isfunction(subject):
            raise CheckUsageError(f"`{exercise.name}` is a class, this is {_a_kind_of(subject)}: give the class")
    elif isinstance(subject, type):
        raise CheckUsageError(
            f"`{exercise.name}` is a function, this is the class `{subject.__name__}`: give a function"
        )
    return exercise, subject, remarks


def _resolve_name_and_object(first: Any, second: Any) -> tuple[Exercise, Any, list[str]]:
    """`check("softmax", f)`."""
    remarks = []
    if isinstance(second, str) and not isinstance(first, str):
        first, second = second, first
        remarks.append(f'The name comes first: `check("{first}", …)`.')
    if not isinstance(first, str):
        raise CheckUsageError('of two arguments the first is the exercise\'s name, a string: `check("softmax", f)`')
    exercise = _exercise(first)
    own_name = getattr(second, "__name__", None)
    if own_name != first and own_name in exercises():
        raise CheckUsageError(
            f"this is `{own_name}`, but `{first}` is to be checked: give `check({first})` or `check({own_name})`"
        )
    return exercise, second, remarks


def _resolve_object(subject: Any) -> tuple[Exercise, Any, list[str]]:
    """`check(softmax)`: the object's own name says which exercise it is."""
    _refuse_values(subject, None)
    remarks = []
    if not hasattr(subject, "__name__") and type(subject).__name__ in exercises():
        subject, remarks = type(subject), [_class_meant(type(subject).__name__)]
    name = getattr(subject, "__name__", None)
    owner = getattr(subject, "__qualname__", "").split(".")[0]
    if owner != name and owner in exercises():
        raise CheckUsageError(f"this is a method of `{owner}`: give the class, `check({owner})`")
    if name is None or not (name.isidentifier() and callable(subject)):
        raise CheckUsageError(
            f"{_a_kind_of(subject)} has no name that says which exercise it is: give the name first, "
            '`check("softmax", f)`'
        )
    return _exercise(name), subject, remarks


def _exercise(name: str) -> Exercise:
    if name not in exercises():
        raise CheckUsageError(no_such_exercise(name))
    return exercises()[name]


def _class_meant(name: str) -> str:
    return f"This was an object of the class; its class has been checked: `check({name})`, without the arguments."


def _a_kind_of(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    return "a function" if inspect.isroutine(value) else f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} `{name}`"


def _refuse_values(subject: Any, exercise: Exercise | None) -> None:
    """Reject a value that is neither a function nor a class, and say what to give instead."""
    name = exercise.name if exercise else "softmax"
    if subject is None:
        raise CheckUsageError(
            f"it was given None: has the cell that defines `{name}` been run? A function is given by name"
        )
    if isinstance(subject, str):
        known = subject in exercises()
        text = f"it takes what you wrote, not its name: `check({subject})`, without quotation marks"
        raise CheckUsageError(text if known else no_such_exercise(subject))
    if isinstance(subject, ModuleType):
        raise CheckUsageError(f"this is the module `{subject.__name__}`: give the function or class itself")
    if isinstance(subject, torch.Tensor | np.ndarray | int | float | list | tuple | dict):
        raise CheckUsageError(
            f"this is {_a_kind_of(subject)}, the result of a call perhaps: give the function itself, `check({name})`, "
            "without calling it"
        )
    if not callable(subject):
        raise CheckUsageError(f"this is {_a_kind_of(subject)}: give a function or a class, `check({name})`")
