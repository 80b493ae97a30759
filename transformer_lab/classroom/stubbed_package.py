"""The package that submissions run with: a copy in which the answers of a notebook, and of later ones, do not exist."""

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

Place = tuple[str, str, tuple[str, ...]]  # (file, name of a function or class, methods to empty)

PACKAGE = Path(transformer_lab.__file__).resolve().parent

# What no submission needs. `exercises/` holds the answers' wrong brothers, which are nearly right.
LEFT_OUT = {  # what no submission needs, by folder; the page has the answers of the model in JavaScript
    "": ("__main__.py", "authoring", "classroom", "cli.py", "doctor.py", "exercises", "jupyter", "mine.py",
         "my_course.py", "notebooks", "results", "tour.py"),
    "decoding": ("page", "page_export.py"),
}  # fmt: skip

# What observes a student's object inside the sandbox; it knows no answer.
ENGINE = ("exercise.py", "harnesses.py", "observation.py", "sampling.py", "time_limit.py")

KERNEL_SIDE = ("__init__.py", "kernel_side.py", "wire.py")

MINE = '''"""The package's parts, not your own: each exercise is looked at by itself."""

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
    """Writes `folder/transformer_lab`, readable by everybody, for submissions of some notebooks.

    Args:
        folder: Is made if it is not there; must not hold a `transformer_lab` yet.
        names: The notebooks whose answers are taken out: `["01_attention"]`. Those of later notebooks go as well,
            since they say many things again: a decoder layer is nearly an encoder layer. All that comes before works.

    Returns:
        The package's folder. Whoever runs with it puts `folder` on the path.

    Raises:
        InputError: There are no exercises of such a notebook.
    """
    package = folder / "transformer_lab"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(PACKAGE, package, ignore=_ignored, copy_function=shutil.copyfile)
    first = min(map(_number_of, names))
    taken_out = [exercise for number, found in notebooks().items() if number >= first for exercise in found]
    for file, name, blank in dict.fromkeys(place for exercise in taken_out for place in places_of(exercise)):
        path = package / file
        path.write_text(stub_source(path.read_text(encoding="utf-8"), name, blank), encoding="utf-8")
    _write_inert_exercises(package)
    _write_kernel_side(package)
    for path in [package, *package.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return package


def places_of(exercise: Exercise) -> list[Place]:
    """Return where the package has the answer of an exercise: the answer itself first, then what reimplements it."""
    file = Path(inspect.getsourcefile(exercise.answer)).resolve().relative_to(PACKAGE).as_posix()
    return [(file, exercise.name, exercise.blank), *reimplementations().get(exercise.name, ())]


@functools.cache
def reimplementations() -> dict[str, list[Place]]:
    """Return what is marked with `@reimplements` in the source of the package, by the name of the answer."""
    found: dict[str, list[Place]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "@reimplements(" not in source:
            continue
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.parse(source).body:
            for part in (node, *node.body) if isinstance(node, ast.ClassDef) else (node,):
                for name in _marks(part):
                    found.setdefault(name, []).append((file, node.name, () if part is node else (part.name,)))
    return found


def _marks(node: ast.stmt) -> list[str]:
    """Return the answers that the decorators of a function, class, or method name."""
    calls = [call for call in getattr(node, "decorator_list", ()) if isinstance(call, ast.Call)]
    return [ast.literal_eval(name) for call in calls if ast.unparse(call.func) == "reimplements" for name in call.args]


def _number_of(name: str) -> str:
    if name[:2] not in notebooks():
        raise InputError(f"the notebook `{name}` has no exercises; those that have are {', '.join(notebooks())}")
    return name[:2]


def _ignored(folder: str, names: list[str]) -> set[str]:
    ignored = {name for name in names if name == "__pycache__" or name.endswith((".pyc", ".pyo")) or name[0] == "."}
    for place, left_out in LEFT_OUT.items():
        if Path(folder).resolve() == PACKAGE / place:
            ignored |= set(left_out)
    return ignored


def _write_kernel_side(package: Path) -> None:
    """Copy the half of scoring that runs in the kernel."""
    target = package / "classroom"
    target.mkdir()
    for file in KERNEL_SIDE:
        shutil.copyfile(PACKAGE / "classroom" / file, target / file)


def _write_inert_exercises(package: Path) -> None:
    target = package / "exercises"
    target.mkdir()
    for file in ENGINE:
        shutil.copyfile(PACKAGE / "exercises" / file, target / file)
    declaration = "ANSWERS: dict[str, str] = {}"
    text = inspect.getsource(inert_exercises)
    if declaration not in text:
        raise AssertionError(f"inert_exercises.py no longer holds the line `{declaration}`, which is filled in")
    answers = {name: exercise.answer.__module__ for name, exercise in exercises().items()}
    text = text.replace(declaration, f"ANSWERS: dict[str, str] = {answers!r}")
    (target / "__init__.py").write_text(text, encoding="utf-8")
    (package / "mine.py").write_text(MINE, encoding="utf-8")
