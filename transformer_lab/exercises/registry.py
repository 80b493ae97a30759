"""The registry of exercises, collected from the files `notebook_NN_*.py` in this folder."""

import difflib
import functools
import importlib
from pathlib import Path

from transformer_lab.errors import InputError
from transformer_lab.exercises.exercise import Exercise

FIRST_ELECTIVE = "20"  # notebooks from this number on can be done in any order


@functools.cache
def exercises() -> dict[str, Exercise]:
    """Return all exercises by name, in notebook order. The first call loads them."""
    return {exercise.name: exercise for listed in notebooks().values() for exercise in listed}


@functools.cache
def notebooks() -> dict[str, list[Exercise]]:
    """Return each notebook's exercises, keyed by notebook number, such as `"01"`."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("notebook_*.py"))
    return {
        module.split("_")[1]: importlib.import_module(f"transformer_lab.exercises.{module}").EXERCISES
        for module in modules
    }


def notebook_of(name: str) -> str:
    return next(number for number, listed in notebooks().items() if exercises()[name] in listed)


def find_exercise(name: str) -> Exercise:
    """Return the exercise with this name.

    Raises:
        InputError: There is no such exercise. The message suggests the closest names.
    """
    if name in exercises():
        return exercises()[name]
    raise InputError(no_such_exercise(name))


def no_such_exercise(name: str) -> str:
    """Return the error message for an unknown exercise name."""
    lowered = {known.lower(): known for known in exercises()}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
    offer = f"did you mean {' or '.join(near)}?" if near else "`progress()` lists them all"
    return f"there is no exercise `{name}`: {offer}"
