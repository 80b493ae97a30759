"""`check`: compare a student's code with the answer."""

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
from transformer_lab.exercises.observation import codes, namespace, unwrapped, with_article
from transformer_lab.exercises.progress import progress
from transformer_lab.exercises.registry import exercises, no_such_exercise, notebook_of
from transformer_lab.exercises.report import Report
from transformer_lab.exercises.time_limit import is_checking


class CheckFailed(Exception):  # noqa: N818 (notebooks and graders use this name)
    """Raised if a check fails and TRANSFORMER_LAB_STRICT=1 is set. The report is shown first."""

    def _render_traceback_(self) -> list[str]:  # IPython shows only this, because the report explains the rest
        return [f"CheckFailed: {self}"]


class CheckUsageError(InputError):
    """Raised if `check` cannot check what it was given."""

    def _render_traceback_(self) -> list[str]:
        return [f"check: {self}"]


def check(*arguments: Any, as_: str | None = None) -> Report:
    """Check what you wrote: `check(softmax)`, or `check(f, as_="softmax")` if your object has a different name.

    With `as_`, nothing is saved for later notebooks, and TRANSFORMER_LAB_STRICT is ignored. This lets a notebook show
    the report on a wrong version. `check("softmax", f)` saves `f` if it passes.

    Returns:
        The report, which a notebook displays. A part that passes is saved for later notebooks (`transformer_lab.mine`).

    Raises:
        InputError: The arguments cannot be checked. The message says what to pass instead.
        CheckFailed: The check fails, and TRANSFORMER_LAB_STRICT is 1 or nbgrader runs the notebook.
    """
    if is_checking():
        raise CheckUsageError("the code being checked calls `check` itself: move that call out of it")
    exercise, subject, remarks = _resolve_arguments(arguments if as_ is None else (as_, *arguments))
    report = run_check(exercise, subject)
    if as_ is None and report.passed:
        saved, problems = saved_parts.save(exercise, subject)
        remarks += _library_remarks(exercise, subject) + problems
        report = replace(report, next_step=_next_step(exercise, saved))
    report = replace(report, remarks=(*remarks, *report.remarks))
    if as_ is None and not report.passed and _is_strict():
        from IPython.display import display  # here, because importing it takes half a second

        display(report)  # outside a notebook, this prints it
        raise CheckFailed(report.title)
    return report


def _is_strict() -> bool:
    setting = os.environ.get("TRANSFORMER_LAB_STRICT", "").strip().lower()
    # nbgrader sets the second variable. It awards the points for a cell if the cell doesn't raise an exception.
    return setting not in ("", "0", "false", "no", "off") or "NBGRADER_EXECUTION" in os.environ


def _next_step(exercise: Exercise, saved: Path | None) -> str:
    """Say where a part was saved and what to do next. If it was not saved, return ""."""
    if saved is None:
        return ""
    following = replace(progress(), current=notebook_of(exercise.name)).following
    return f"Saved in {saved.as_posix()}" + (f". Next: {following}" if following else "")


def _library_remarks(exercise: Exercise, subject: Any) -> list[str]:
    """Return remarks if the object is the package's own answer or calls a library function that solves the exercise."""
    if unwrapped(subject) is exercise.answer:
        return ["This is the package's own answer, not yours."]
    modules = {name: value.__name__ for name, value in namespace(subject).items() if isinstance(value, ModuleType)}
    names: dict[str, None] = {}
    for code in codes(subject):
        with suppress(OSError):
            source = textwrap.dedent(inspect.getsource(code))
            names |= dict.fromkeys(library_answers(source, exercise.banned, USUAL_NAMES | modules))
    return [f"It calls `{name}`: correct, but that's a library's answer, not yours." for name in names]


def _resolve_arguments(arguments: tuple[Any, ...]) -> tuple[Exercise, Any, list[str]]:
    """Return the exercise, the object to check, and remarks on how `check` was called."""
    if not arguments or len(arguments) > 2:
        raise CheckUsageError("expected the function or class you wrote, `check(softmax)`, or a name and an object")
    name, subject, remarks = (_resolve_object if len(arguments) == 1 else _resolve_name_and_object)(*arguments)
    if name not in exercises():
        raise CheckUsageError(no_such_exercise(name))
    exercise = exercises()[name]
    _refuse_values(subject, name)
    if isinstance(exercise.answer, type):
        if not isinstance(subject, type) and isinstance(subject, torch.nn.Module):
            remarks.append(_class_was_checked(name))
            subject = type(subject)
        elif inspect.isfunction(subject):
            raise CheckUsageError(f"`{name}` is a class, but this is a function: pass the class")
    elif isinstance(subject, type):
        raise CheckUsageError(f"`{name}` is a function, but this is the class `{subject.__name__}`: pass the function")
    return exercise, subject, remarks


def _resolve_name_and_object(name: Any, subject: Any) -> tuple[str, Any, list[str]]:
    """Resolve the arguments of `check("softmax", f)`."""
    remarks = []
    if isinstance(subject, str) and not isinstance(name, str):
        name, subject = subject, name
        remarks.append(f'The name comes first: `check("{name}", …)`.')
    if not isinstance(name, str):
        raise CheckUsageError('expected the exercise\'s name as the first of two arguments: `check("softmax", f)`')
    own_name = getattr(subject, "__name__", None)
    if name in exercises() and own_name != name and own_name in exercises():
        raise CheckUsageError(f"expected `{name}`, got `{own_name}`: use `check({name})` or `check({own_name})`")
    return name, subject, remarks


def _resolve_object(subject: Any) -> tuple[str, Any, list[str]]:
    """Resolve the argument of `check(softmax)`, taking the exercise's name from the object."""
    _refuse_values(subject)
    if not hasattr(subject, "__name__") and type(subject).__name__ in exercises():
        name = type(subject).__name__
        return name, type(subject), [_class_was_checked(name)]
    name = getattr(subject, "__name__", None)
    owner = getattr(subject, "__qualname__", "").split(".")[0]
    if owner != name and owner in exercises():
        raise CheckUsageError(f"this is a method of `{owner}`: pass the class, `check({owner})`")
    if name is None or not name.isidentifier():
        raise CheckUsageError(
            f'{_kind(subject)} has no name that says which exercise it is: pass the name first, `check("softmax", f)`'
        )
    return name, subject, []


def _class_was_checked(name: str) -> str:
    return f"This is an instance of the class. The class was checked instead: `check({name})`, without arguments."


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    return "a function" if inspect.isroutine(value) else with_article(type(value).__name__)


def _refuse_values(subject: Any, name: str = "softmax") -> None:
    """Reject a value that is neither a function nor a class, and say what to pass instead."""
    if subject is None:
        raise CheckUsageError(f"it got None: did you run the cell that defines `{name}`?")
    if isinstance(subject, str):
        if subject not in exercises():
            raise CheckUsageError(no_such_exercise(subject))
        raise CheckUsageError(f"expected what you wrote, not its name: `check({subject})`, without quotation marks")
    if isinstance(subject, ModuleType):
        raise CheckUsageError(f"this is the module `{subject.__name__}`: pass the function or class itself")
    if isinstance(subject, torch.Tensor | np.ndarray | int | float | list | tuple | dict):
        raise CheckUsageError(
            f"this is {_kind(subject)}, perhaps the result of a call: pass the function itself, `check({name})`"
        )
    if not callable(subject):
        raise CheckUsageError(f"this is {_kind(subject)}: pass a function or a class, `check({name})`")
