"""Parts that passed their check: saved in `mine/NAME.py` next to the notebook, and loaded by later notebooks."""

import ast
import builtins
import hashlib
import inspect
import linecache
import os
import sys
import types
from pathlib import Path
from typing import Any

import torch

from transformer_lab.errors import InputError
from transformer_lab.exercises.examination import examine
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.observation import codes, namespace, unwrapped
from transformer_lab.exercises.registry import exercises, find_exercise, notebook_of
from transformer_lab.exercises.scopes import global_symbols

_in_memory: dict[str, str] = {}  # what could not be written: name to text
_loaded: dict[str, tuple[str, Any]] = {}  # name to (text, object)
_loading: list[str] = []


def shell() -> Any:
    """IPython's shell, where code runs in a notebook (or in IPython's terminal); else None."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def folder() -> Path | None:
    """Where parts are kept: `mine` beside the notebook, or what TRANSFORMER_LAB_MINE names. None: nowhere."""
    named = os.environ.get("TRANSFORMER_LAB_MINE", "")
    return None if named.lower() == "off" else Path(named or "mine")


# --- keeping ---------------------------------------------------------------------------------------------------------


class SaveError(Exception):
    """A part uses something that cannot be written down. The message says what."""


def save(exercise: Exercise, subject: Any) -> tuple[Path | None, list[str]]:
    """Save a part that passed, if it was written in this notebook.

    Returns:
        The file (None if there is none), and remarks on what went wrong.
    """
    target = folder()
    if target is None or shell() is None or namespace(subject) is not shell().user_ns:
        return None, []
    try:
        text = part_source(exercise.name, subject)
        _verify(exercise, text)
    except SaveError as reason:
        return None, [f"It's right, but it can't be saved for later notebooks: {reason}."]
    text = _stamp(exercise, text) + text
    _in_memory.pop(exercise.name, None)
    try:
        target.mkdir(parents=True, exist_ok=True)
        scratch = target / f".{exercise.name}.{os.getpid()}"
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(target / f"{exercise.name}.py")
    except OSError as error:
        _in_memory[exercise.name] = text
        why = error.strerror or type(error).__name__
        return None, [f"It's available until this kernel stops, but not on disk: can't write to `{target}` ({why})."]
    return target / f"{exercise.name}.py", []


def _verify(exercise: Exercise, text: str) -> None:
    """Check the part as it will be found: alone, without the notebook around it."""
    _loading.append(exercise.name)  # the parts that it brings say nothing
    try:
        report, _ = examine(exercise, _defined(exercise.name, text, "<part>"))
    except Exception as error:
        raise SaveError(f"outside this notebook it stops with `{type(error).__name__}: {error}`") from None
    finally:
        _loading.pop()
    if not report.passed:
        raise SaveError("outside this notebook it gives other results; does it use a value that another cell changes?")


def part_source(name: str, subject: Any) -> str:
    """A text that defines `subject` under `name` without its notebook: imports, what it uses, and itself.

    Raises:
        SaveError: It uses something whose definition cannot be found or written down.
    """
    names = namespace(subject)
    text = _Text(name, names)
    own = getattr(unwrapped(subject), "__name__", None)
    bound = next((n for n in (name, own) if n and names.get(n) is subject), None)
    if bound is None:
        bound = next((n for n, value in names.items() if value is subject and not n.startswith("_")), None)
    if bound is None:
        raise SaveError("no name in this notebook holds it")
    text.add(bound)
    if bound != name:
        text.definitions.append(f"{name} = {bound}")
    future = "from __future__ import annotations\n\n" if text.postponed_annotations else ""
    imports = "".join(f"{line}\n" for line in sorted(text.imports))
    return future + imports + ("\n\n" if imports else "") + "\n\n\n".join(text.definitions) + "\n"


class _Text:
    """Collects, for one part, the imports and the definitions it needs, each after what it uses."""

    def __init__(self, part: str, names: dict[str, Any]) -> None:
        self.part, self.names = part, names
        self.imports: set[str] = set()
        self.definitions: list[str] = []
        self.postponed_annotations = False
        self._done: set[str] = set()

    def add(self, name: str) -> None:
        if name in self._done:
            return
        self._done.add(name)
        if name not in self.names:
            return  # a builtin, or a name that does not exist and was never reached
        value = self.names[name]
        if name != self.part and self._is_part(name, value):
            self.imports.add(f"from transformer_lab.mine import {name}")
        elif self._is_defined_here(value):
            self._add_statement(name, [*_cells_of_notebook(), *_cells_of(value)])
        elif line := _import_line(name, value):
            self.imports.add(line)
        elif (literal := _literal(value)) is not None:
            self.definitions.append(f"{name} = {literal}")
        else:
            self._add_statement(name, _cells_of_notebook())

    def _is_part(self, name: str, value: Any) -> bool:
        """Whether it is an exercise: written here, brought from `mine`, or the package's; not a library's namesake."""
        module = str(getattr(value, "__module__", ""))
        known = name in exercises() and getattr(value, "__name__", None) == name
        return known and (module == self.names.get("__name__") or module.startswith("transformer_lab."))

    def _is_defined_here(self, value: Any) -> bool:
        value = unwrapped(value)
        return (
            (inspect.isfunction(value) or isinstance(value, type))
            and value.__module__ == self.names.get("__name__")
            and bool(codes(value))
        )

    def _add_statement(self, name: str, cells: list[str]) -> None:
        """Add the last statement of these cells that binds `name`, after what it uses."""
        for cell in reversed(cells):
            try:
                statements = [statement for statement in ast.parse(cell).body if name in _bound_by(statement)]
            except SyntaxError:
                continue
            if statements:
                source = _with_comments(cell, statements[-1])
                self.postponed_annotations |= "from __future__ import annotations" in cell
                for used in sorted(_globals_of(source)):
                    self.add(used)
                (
                    self._add_import
                    if isinstance(statements[-1], ast.Import | ast.ImportFrom)
                    else self.definitions.append
                )(source)
                return
        raise SaveError(f"it uses `{name}`, whose definition was not found")

    def _add_import(self, source: str) -> None:
        self.imports.add(" ".join(source.split()))


def _cells_of(value: Any) -> list[str]:
    """The text of the cell (or file) in which a function or class was defined."""
    return ["".join(linecache.getlines(codes(value)[0].co_filename))]


def _cells_of_notebook() -> list[str]:
    """The cells that have been run, oldest first."""
    return [cell for cell in getattr(shell(), "user_ns", {}).get("In", []) if cell]


def _bound_by(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return {statement.name}
        case ast.Assign():
            return {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        case ast.AnnAssign(target=ast.Name()):
            return {statement.target.id}
        case ast.Import() | ast.ImportFrom():
            return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return set()


def _with_comments(cell: str, statement: ast.stmt) -> str:
    """The text of a statement, with its decorators and the comments directly above."""
    lines = cell.splitlines()
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]) - 1
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : statement.end_lineno])


def _globals_of(source: str) -> set[str]:
    """The global names that a text reads."""
    return {symbol.get_name() for symbol in global_symbols(source) if symbol.is_referenced()} - set(dir(builtins))


def _import_line(name: str, value: Any) -> str | None:
    """The import that gives `value` the name it has here, if there is one."""
    if isinstance(value, types.ModuleType):
        package, _, last = value.__name__.rpartition(".")
        if last == name:
            return f"from {package} import {last}" if package else f"import {last}"
        return f"import {value.__name__} as {name}"
    module = getattr(value, "__module__", None)
    for known in (getattr(value, "__name__", None), getattr(value, "_name", None), name):
        importable = isinstance(module, str) and isinstance(known, str) and module != "__main__"
        if importable and getattr(sys.modules.get(module), known, None) is value:
            return f"from {module} import {known}" + ("" if known == name else f" as {name}")
    return None


def _literal(value: Any) -> str | None:
    """The text of a plain constant."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, torch.dtype):
        return None
    try:
        return repr(value) if ast.literal_eval(repr(value)) == value and len(repr(value)) < 1_000 else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


# --- bringing back ---------------------------------------------------------------------------------------------------


def part(name: str) -> tuple[Any, str]:
    """The student's verified version of an exercise, or the package's, and a sentence that says which it is.

    The package's own part is given with the student's parts in it, where there are any.

    Raises:
        InputError: there is no such exercise.
    """
    exercise = find_exercise(name)
    if folder() is None:
        return exercise.answer, "the package's (TRANSFORMER_LAB_MINE is off)"
    text, where = _kept_text(name)
    if text is None:
        return _packages(exercise, f" (yours is kept as soon as its check in notebook {notebook_of(name)} passes)")
    if name in _loading:
        return exercise.answer, f"the package's, because your {' and '.join(_loading)} use each other"
    if name in _loaded and _loaded[name][0] == text:
        return _loaded[name][1], f"yours ({where})"
    _loading.append(name)
    try:
        subject = _defined(name, text, where)
        if not text.startswith(_stamp(exercise, _without_stamp(text))):  # edited since, or the check is a newer one
            report, _ = examine(exercise, subject)
            if not report.passed:
                return _packages(exercise, f", because yours no longer passes its check ({where}): {_why(report)}")
    except InputError:
        raise
    except Exception as error:
        return _packages(exercise, f", because yours cannot be loaded ({where}): {type(error).__name__}: {error}")
    finally:
        _loading.pop()
    _loaded[name] = text, subject
    return subject, f"yours ({where})"


def _packages(exercise: Exercise, reason: str) -> tuple[Any, str]:
    """The package's part, and the sentence that says so. Whatever earlier parts it uses are the student's, if kept."""
    source = inspect.getsource(exercise.answer)
    yours = {}
    for name in sorted((_globals_of(source) & exercises().keys()) - {exercise.name}):
        used, _ = part(name)
        if used is not exercises()[name].answer:
            yours[name] = used
    if not yours:
        return exercise.answer, f"the package's{reason}"
    names = vars(sys.modules[exercise.answer.__module__]) | yours
    file = str(inspect.getsourcefile(exercise.answer))
    exec(compile(source, file, "exec", dont_inherit=True), names)
    return names[exercise.name], f"the package's{reason}, with your {' and your '.join(yours)}"


def is_outermost() -> bool:
    """Whether no kept part is being loaded at the moment."""
    return not _loading


def state(name: str) -> str:
    """`yours`, `edited` (since its check), or `package`, without running anything."""
    text, _ = _kept_text(name)
    if folder() is None or text is None:
        return "package"
    return "yours" if text.startswith(_stamp(exercises()[name], _without_stamp(text))) else "edited"


def _kept_text(name: str) -> tuple[str | None, str]:
    if name in _in_memory:
        return _in_memory[name], "kept in memory"
    file = (folder() or Path()) / f"{name}.py"
    try:
        return file.read_text(encoding="utf-8"), str(file)
    except (OSError, UnicodeDecodeError):
        return None, str(file)


def _why(report: Any) -> str:
    failed = next((check for check in report.checks if check.state == "failed"), None)
    return f"{failed.name}: {failed.says}" if failed else report.state


def _defined(name: str, text: str, where: str) -> Any:
    """The object that a kept text defines, in a module of its own."""
    module = types.ModuleType(f"transformer_lab.mine.{name}")
    module.__file__ = where
    lines = [f"{line}\n" for line in text.splitlines()]
    linecache.cache[where] = len(text), None, lines, where
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text, where, "exec", dont_inherit=True), vars(module))
    return vars(module)[name]


def _without_stamp(text: str) -> str:
    return text.split("\n", 1)[-1]


def _stamp(exercise: Exercise, text: str) -> str:
    """The first line of a kept file: as long as it fits, the text and its check are those that passed."""
    import transformer_lab.exercises

    here = Path(transformer_lab.exercises.__file__).parent
    checks = next(here.glob(f"notebook_{notebook_of(exercise.name)}_*.py")).read_bytes()
    digest = hashlib.sha256(checks + text.encode()).hexdigest()[:16]
    return f"# {exercise.name}: kept by Transformer Lab when its check passed ({digest}).\n"
