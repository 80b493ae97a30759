"""`check`, `hint`, `solution`, and `progress` in a package without answers.

In the package that submissions use, this file is `transformer_lab/exercises/__init__.py`. It checks nothing, because
the grader checks the answers from outside, after the notebook has run. If it raised an error for a student's object,
`test_check_never_raises` would fail.
"""

import sys
from typing import Any

ANSWERS: dict[str, str] = {}  # maps each exercise to the module of its answer or stub

__all__ = [
    "CheckFailed",
    "check",
    "exercises",
    "find_exercise",
    "hint",
    "notebooks",
    "progress",
    "run_check",
    "solution",
]


class CheckFailed(Exception):  # noqa: N818 (the package's name for it)
    """The exception that a failed check raises in the full package. It is never raised here."""


def check(*arguments: Any, as_: Any = None) -> None:
    """Print which exercise is being submitted: `check(softmax)` or `check("softmax", f)`."""
    if as_ is not None:  # this cell demonstrates a common mistake
        return
    name = _name_of(arguments, vars(sys.modules.get("__main__", sys)))
    print(f"submitted: {name}" if name else "check: expected an exercise, for example `check(softmax)`")


def _name_of(arguments: tuple[Any, ...], names: dict[str, Any]) -> str:
    try:
        if len(arguments) == 2:
            return next((name for name in arguments if isinstance(name, str)), "")
        (subject,) = arguments
        own_name = getattr(subject, "__name__", None)
        if own_name in ANSWERS:
            return own_name
        # A lambda, a partial, or a callable object is identified by the name of its variable.
        return next((name for name in ANSWERS if names.get(name) is subject), "")
    except Exception:  # inspecting the student's object can run any code
        return ""


def find_exercise(name: Any) -> str:
    """Return the name unchanged."""
    return str(name)


def exercises() -> dict[str, str]:
    return {name: name for name in ANSWERS}


def notebooks() -> dict[str, list[str]]:
    return {}


def hint(*arguments: Any, **keywords: Any) -> None:
    """Do nothing."""


solution = progress = run_check = hint
