"""The registry of exercises, collected from the files `notebook_NN_*.py` in this folder."""

import difflib
import functools
import importlib
import pkgutil
from pathlib import Path

from transformer_lab.errors import InputError
from transformer_lab.exercises.exercise import Exercise

FIRST_ELECTIVE = "20"  # notebooks from this number on can be read in any order


@functools.cache
def exercises() -> dict[str, Exercise]:
    """Return all exercises by name, in the order of the notebooks. The first call loads them."""
    return {exercise.name: exercise for found in notebooks().values() for exercise in found}


@functools.cache
def notebooks() -> dict[str, list[Exercise]]:
    """Return the exercises of each notebook, by its number, such as `"01"`."""
    files = sorted(file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return {
        file.split("_")[1]: importlib.import_module(f"transformer_lab.exercises.{file}").EXERCISES
        for file in files
        if file.startswith("notebook_")
    }


def notebook_of(name: str) -> str:
    """Return the number of the notebook that contains an exercise."""
    return next(number for number, found in notebooks().items() if name in [exercise.name for exercise in found])


def find_exercise(name: str) -> Exercise:
    """Return the exercise with this name.

    Raises:
        InputError: there is none; the nearest names are offered.
    """
    if name in exercises():
        return exercises()[name]
    raise InputError(no_such_exercise(name))


def no_such_exercise(name: str) -> str:
    """Return a sentence that suggests the closest names."""
    lowered = {known.lower(): known for known in exercises()}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)]
    offer = f"did you mean {' or '.join(near)}?" if near else "`progress()` lists them all"
    return f"there is no exercise `{name}`: {offer}"
