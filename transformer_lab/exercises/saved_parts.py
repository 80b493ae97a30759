"""Save parts that passed their check as `mine/NAME.py` next to the notebook, and load them in later notebooks."""

import ast
import builtins
import hashlib
import inspect
import linecache
import math
import os
import sys
import types
from pathlib import Path
from typing import Any

from transformer_lab.errors import InputError
from transformer_lab.exercises.examination import examine
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.observation import codes, namespace, unwrapped
from transformer_lab.exercises.registry import exercises, find_exercise, notebook_of
from transformer_lab.exercises.scopes import global_symbols

_in_memory: dict[str, str] = {}  # source of parts that could not be written to disk, by name
_loaded: dict[str, tuple[str, Any]] = {}  # each part's source and object, by name
_loading: list[str] = []  # names of the parts being loaded, outermost first


def shell() -> Any:
    """Return the IPython shell if running in a notebook or the IPython terminal. Otherwise, return None."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def folder() -> Path | None:
    """Return the folder for parts: TRANSFORMER_LAB_MINE if it is set, or else `mine` next to the notebook.

    If TRANSFORMER_LAB_MINE is `off`, return None.
    """
    setting = os.environ.get("TRANSFORMER_LAB_MINE", "")
    return None if setting.lower() == "off" else Path(setting or "mine")


# --- saving ----------------------------------------------------------------------------------------------------------


class SaveError(Exception):
    """Raised if a part cannot be saved. The message says why."""


def save(exercise: Exercise, subject: Any) -> tuple[Path | None, list[str]]:
    """Save a part that passed its check, if it was written in this notebook.

    Returns:
        The file and remarks on what went wrong. If the part was not saved, the file is None.
    """
    target = folder()
    if target is None or shell() is None or namespace(subject) is not shell().user_ns:
        return None, []
    path = target / f"{exercise.name}.py"
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
        scratch.replace(path)
    except OSError as error:
        _in_memory[exercise.name] = text
        why = error.strerror or type(error).__name__
        return None, [f"It's available until this kernel stops, but not on disk: can't write to `{target}` ({why})."]
    return path, []


def _verify(exercise: Exercise, text: str) -> None:
    """Check the part as it will be loaded: on its own, without the rest of the notebook.

    Raises:
        SaveError: The part does not pass.
    """
    try:
        _, problem = _loaded_and_checked(exercise, text, "<part>")
    except Exception as error:
        raise SaveError(f"outside this notebook, it stops with `{type(error).__name__}: {error}`") from None
    if problem:
        raise SaveError("outside this notebook, it fails its check; does it use a value that another cell changes?")


def part_source(name: str, subject: Any) -> str:
    """Return self-contained source that defines `subject` as `name`, including the imports and definitions it uses.

    Raises:
        SaveError: The part uses something whose definition cannot be found or written as source.
    """
    names = namespace(subject)
    source = _PartSource(name, names)
    candidates = [name, getattr(unwrapped(subject), "__name__", None), *(key for key in names if key[:1] != "_")]
    own_name = next((candidate for candidate in candidates if candidate and names.get(candidate) is subject), None)
    if own_name is None:
        raise SaveError("no variable in this notebook refers to it")
    source.add(own_name)
    if own_name != name:
        source.definitions.append(f"{name} = {own_name}")
    future = "from __future__ import annotations\n\n" if source.postponed_annotations else ""
    imports = "".join(f"{line}\n" for line in sorted(source.imports))
    return future + imports + ("\n\n" if imports else "") + "\n\n\n".join(source.definitions) + "\n"


class _PartSource:
    """Collects the imports and definitions that a part needs. Each definition comes after those it uses."""

    def __init__(self, part: str, names: dict[str, Any]) -> None:
        self.part, self.names = part, names
        self.imports: set[str] = set()
        self.definitions: list[str] = []
        self.postponed_annotations = False
        self._added: set[str] = set()

    def add(self, name: str) -> None:
        if name in self._added or name not in self.names:  # a built-in, or a name that the check never used
            return
        self._added.add(name)
        value = self.names[name]
        if name != self.part and self._is_part(name, value):
            self.imports.add(f"from transformer_lab.mine import {name}")
        elif self._is_defined_here(value):
            own_cell = "".join(linecache.getlines(codes(value)[0].co_filename))
            self._add_statement(name, [*_executed_cells(), own_cell])
        elif line := _import_line(name, value):
            self.imports.add(line)
        elif (literal := _literal(value)) is not None:
            self.definitions.append(f"{name} = {literal}")
        else:
            self._add_statement(name, _executed_cells())

    def _is_part(self, name: str, value: Any) -> bool:
        """Return whether a value is an exercise from this notebook or package.

        A library object with the same name as an exercise does not count.
        """
        if name not in exercises() or getattr(value, "__name__", None) != name:
            return False
        module = str(getattr(value, "__module__", ""))
        return module == self.names.get("__name__") or module.startswith("transformer_lab.")

    def _is_defined_here(self, value: Any) -> bool:
        value = unwrapped(value)
        can_be = inspect.isfunction(value) or isinstance(value, type)
        return can_be and value.__module__ == self.names.get("__name__") and bool(codes(value))

    def _add_statement(self, name: str, cells: list[str]) -> None:
        """Add the last statement in these cells that binds `name`, after the definitions it uses."""
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
                if isinstance(statements[-1], ast.Import | ast.ImportFrom):
                    self.imports.add(" ".join(source.split()))
                else:
                    self.definitions.append(source)
                return
        raise SaveError(f"it uses `{name}`, whose definition wasn't found")


def _executed_cells() -> list[str]:
    """Return the cells that have been run, oldest first."""
    return [cell for cell in getattr(shell(), "user_ns", {}).get("In", []) if cell]


def _bound_by(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return {statement.name}
        case ast.Assign():
            targets = [node for target in statement.targets for node in ast.walk(target)]
            return {node.id for node in targets if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        case ast.AnnAssign(target=ast.Name()):
            return {statement.target.id}
        case ast.Import() | ast.ImportFrom():
            return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return set()


def _with_comments(cell: str, statement: ast.stmt) -> str:
    """Return a statement's source, with its decorators and the comments right above it."""
    lines = cell.splitlines()
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]) - 1
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : statement.end_lineno])


def _globals_of(source: str) -> set[str]:
    """Return the global names that the code reads."""
    return {symbol.get_name() for symbol in global_symbols(source) if symbol.is_referenced()} - set(dir(builtins))


def _import_line(name: str, value: Any) -> str | None:
    """Return the import that binds `value` to `name`. If there is none, return None."""
    if isinstance(value, types.ModuleType):
        package, _, last = value.__name__.rpartition(".")
        if last == name:
            return f"from {package} import {last}" if package else f"import {last}"
        return f"import {value.__name__} as {name}"
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or module == "__main__":
        return None
    for known in (getattr(value, "__name__", None), getattr(value, "_name", None), name):
        if isinstance(known, str) and getattr(sys.modules.get(module), known, None) is value:
            return f"from {module} import {known}" + ("" if known == name else f" as {name}")
    return None


def _literal(value: Any) -> str | None:
    """Return the source of a plain constant. For any other value, return None."""
    if isinstance(value, float) and math.isinf(value):
        return f'float("{value}")'
    try:
        return repr(value) if ast.literal_eval(repr(value)) == value and len(repr(value)) < 1_000 else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


# --- loading ---------------------------------------------------------------------------------------------------------


def part(name: str) -> tuple[Any, str]:
    """Return a version of an exercise and a phrase that says whether it is the student's or the package's.

    The student's version is returned if it is verified. Otherwise, the package's version is returned, and it uses the
    student's saved parts if there are any.

    Raises:
        InputError: There is no such exercise.
    """
    exercise = find_exercise(name)
    if folder() is None:
        return exercise.answer, "the package's (TRANSFORMER_LAB_MINE is off)"
    text, where = _saved_text(name)
    if text is None:
        return _packages(exercise, f" (yours is saved once its check in notebook {notebook_of(name)} passes)")
    if name in _loading:
        return exercise.answer, f"the package's, because your {' and '.join(_loading)} use each other"
    if name in _loaded and _loaded[name][0] == text:
        return _loaded[name][1], f"yours ({where})"
    try:
        subject, problem = _loaded_and_checked(exercise, text, where)
    except InputError:
        raise
    except Exception as error:
        return _packages(exercise, f", because yours can't be loaded ({where}): {type(error).__name__}: {error}")
    if problem:
        return _packages(exercise, f", because yours no longer passes its check ({where}): {problem}")
    _loaded[name] = text, subject
    return subject, f"yours ({where})"


def _packages(exercise: Exercise, reason: str) -> tuple[Any, str]:
    """Return the package's version, which uses the student's saved parts, and a phrase that says so."""
    source = inspect.getsource(exercise.answer)
    used = {name: part(name)[0] for name in sorted((_globals_of(source) & exercises().keys()) - {exercise.name})}
    yours = {name: subject for name, subject in used.items() if subject is not exercises()[name].answer}
    if not yours:
        return exercise.answer, f"the package's{reason}"
    names = vars(sys.modules[exercise.answer.__module__]) | yours
    file = str(inspect.getsourcefile(exercise.answer))
    exec(compile(source, file, "exec", dont_inherit=True), names)
    return names[exercise.name], f"the package's{reason}, with your {' and your '.join(yours)}"


def is_outermost() -> bool:
    """Return whether no saved part is being loaded at the moment."""
    return not _loading


def state(name: str) -> str:
    """Return the state of a part without running it: `yours`, `edited` (changed since its check), or `package`."""
    text, _ = _saved_text(name)
    if folder() is None or text is None:
        return "package"
    return "yours" if _is_verified(exercises()[name], text) else "edited"


def _saved_text(name: str) -> tuple[str | None, str]:
    """Return a saved part's source and location. If there is no saved part, the source is None."""
    if name in _in_memory:
        return _in_memory[name], "in memory"
    file = (folder() or Path()) / f"{name}.py"
    try:
        return file.read_text(encoding="utf-8"), str(file)
    except (OSError, UnicodeDecodeError):
        return None, str(file)


def _loaded_and_checked(exercise: Exercise, text: str, where: str) -> tuple[Any, str]:
    """Run a part's source in its own module, and check the part unless it is verified.

    Returns:
        The object that the source defines, and its first failed check. If the part is right, the latter is "".
    """
    module = types.ModuleType(f"transformer_lab.mine.{exercise.name}")
    module.__file__ = where
    linecache.cache[where] = len(text), None, text.splitlines(keepends=True), where
    sys.modules[module.__name__] = module  # dataclasses look up their module
    _loading.append(exercise.name)  # so that the parts it imports don't print anything and don't import it
    try:
        exec(compile(text, where, "exec", dont_inherit=True), vars(module))
        subject = vars(module)[exercise.name]
        if _is_verified(exercise, text) or (report := examine(exercise, subject)[0]).passed:
            return subject, ""
    finally:
        _loading.pop()
    failed = (f"{check.name}: {check.says}" for check in report.checks if check.state == "failed")
    return subject, next(failed, report.state)


def _is_verified(exercise: Exercise, text: str) -> bool:
    """Return whether both the part and its check are unchanged since the part passed."""
    return text.startswith(_stamp(exercise, text.split("\n", 1)[-1]))


def _stamp(exercise: Exercise, text: str) -> str:
    """Return the first line of a saved file, with a digest of the part and the checks that it passed."""
    (checks,) = Path(__file__).parent.glob(f"notebook_{notebook_of(exercise.name)}_*.py")
    digest = hashlib.sha256(checks.read_bytes() + text.encode()).hexdigest()[:16]
    return f"# {exercise.name}: saved by Transformer Lab when its check passed ({digest}).\n"
