"""Write the package that submissions use: a copy that omits the answers to one notebook and to all later ones.

If an answer stayed in the copy, `test_no_answer_is_left_in_the_package` would fail.
"""

import ast
import functools
import inspect
import shutil
from collections.abc import Iterable
from pathlib import Path

import transformer_lab
from transformer_lab.authoring.stubs import stub_source
from transformer_lab.classroom import inert_exercises
from transformer_lab.errors import InputError
from transformer_lab.exercises import Exercise, exercises, notebooks

Place = tuple[str, str, tuple[str, ...]]  # file, name of a function or class, methods to empty

PACKAGE = Path(transformer_lab.__file__).resolve().parent

# Files that submissions don't need, by folder. The page in `decoding` contains the model in JavaScript.
LEFT_OUT = {
    ".": ("__main__.py", "authoring", "cli.py", "doctor.py", "jupyter", "mine.py", "my_course.py", "notebooks",
         "results", "tour.py"),
    "decoding": ("page", "page_export.py"),
    "plots": ("page.html", "page.py"),
}  # fmt: skip

# The only files copied from these folders: the kernel's half of scoring, and the modules that observe a student's
# object in the sandbox. Others contain answers, or mistakes, which are almost answers.
COPIED = {
    "classroom": ("__init__.py", "kernel_side.py", "wire.py"),
    "exercises": ("exercise.py", "harnesses.py", "observation.py", "sampling.py", "time_limit.py"),
}

MINE = '''"""The package's parts in place of the student's, so that each exercise is graded by itself."""

import importlib
from typing import Any

from transformer_lab.exercises import ANSWERS


def __getattr__(name: str) -> Any:
    if name not in ANSWERS:
        raise AttributeError(name)
    return getattr(importlib.import_module(ANSWERS[name]), name)


def __dir__() -> list[str]:
    return list(ANSWERS)
'''


def write_stubbed_package(folder: Path, names: Iterable[str]) -> Path:
    """Write `folder/transformer_lab`, readable by every user, for submissions of the given notebooks.

    Args:
        folder: Created if it does not exist. Must not contain a `transformer_lab` yet.
        names: The notebooks whose answers are removed: `["01_attention"]`. Answers to later notebooks are removed, too,
            because they repeat parts of earlier ones: a decoder layer is almost an encoder layer. Answers to earlier
            notebooks are kept.

    Returns:
        The package's folder. To use the package, put `folder` on Python's path.

    Raises:
        InputError: A notebook has no exercises.
    """
    names = sorted(names)
    for name in names:
        if name[:2] not in notebooks():
            raise InputError(f"the notebook `{name}` has no exercises; those that do are {', '.join(notebooks())}")
    first = names[0][:2]
    package = folder / "transformer_lab"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(PACKAGE, package, ignore=_ignored, copy_function=shutil.copyfile)
    removed = [exercise for number, group in notebooks().items() if number >= first for exercise in group]
    for file, name, blank in dict.fromkeys(place for exercise in removed for place in places_of(exercise)):
        path = package / file
        path.write_text(stub_source(path.read_text(encoding="utf-8"), name, blank), encoding="utf-8")
    (package / "exercises" / "__init__.py").write_text(_inert_exercises(), encoding="utf-8")
    (package / "mine.py").write_text(MINE, encoding="utf-8")
    for path in [package, *package.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return package


def places_of(exercise: Exercise) -> list[Place]:
    """Return the places where the package answers an exercise: the answer itself, followed by its reimplementations."""
    file = Path(inspect.getsourcefile(exercise.answer)).resolve().relative_to(PACKAGE).as_posix()
    return [(file, exercise.name, exercise.blank), *reimplementations().get(exercise.name, ())]


@functools.cache
def reimplementations() -> dict[str, list[Place]]:
    """Return the places in the package's source marked with `@reimplements`, keyed by the answer's name."""
    places: dict[str, list[Place]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "@reimplements(" not in source:
            continue
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.parse(source).body:
            for part in (node, *node.body) if isinstance(node, ast.ClassDef) else (node,):
                for name in _marks(part):
                    places.setdefault(name, []).append((file, node.name, () if part is node else (part.name,)))
    return places


def _marks(node: ast.stmt) -> list[str]:
    """Return the answers that the `@reimplements` decorator of a function, class, or method lists."""
    calls = [call for call in getattr(node, "decorator_list", ()) if isinstance(call, ast.Call)]
    return [ast.literal_eval(name) for call in calls if ast.unparse(call.func) == "reimplements" for name in call.args]


def _ignored(folder: str, names: list[str]) -> set[str]:
    inner = Path(folder).resolve().relative_to(PACKAGE).as_posix()
    if inner in COPIED:
        return set(names).difference(COPIED[inner])
    ignored = {name for name in names if name == "__pycache__" or name.endswith((".pyc", ".pyo")) or name[0] == "."}
    return ignored.union(LEFT_OUT.get(inner, ()))


def _inert_exercises() -> str:
    declaration = "ANSWERS: dict[str, str] = {}"
    text = inspect.getsource(inert_exercises)
    if declaration not in text:
        raise AssertionError(f"inert_exercises.py must contain the line `{declaration}`, which is filled in")
    answers = {name: exercise.answer.__module__ for name, exercise in exercises().items()}
    return text.replace(declaration, f"ANSWERS: dict[str, str] = {answers!r}")
