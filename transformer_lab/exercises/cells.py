"""Analyze what a cell defines and uses, without running it. Any text is accepted, even if it is invalid or huge."""

import ast
import re
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from transformer_lab.exercises.scopes import global_symbols

MAX_CHARACTERS = 50_000  # longer cells aren't parsed: a syntax tree takes a hundred times as much memory
SHORT_CHARACTERS = 4_000  # ordinary cells are shorter, and the names in hundreds of them are cached
MAX_MAGICS = 20  # per cell, because IPython's transformer rereads the whole cell for each of them
LONGEST_MAGIC = 2_000  # characters; some of the transformer's patterns take quadratic time

# Hostile text can raise these errors when parsed. It may contain null bytes, lone surrogates, or thousands of brackets.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError, IndexError)

PYTHON_MAGICS = ("time", "timeit", "prun", "capture")  # these run Python in the notebook's own namespace
# These don't run the student's code. A request for help, such as `torch.exp?`, becomes `%pinfo torch.exp`.
HARMLESS_MAGICS = {
    *("autoreload", "config", "load_ext", "matplotlib", "pinfo", "pinfo2", "precision", "pwd", "who", "whos"),
}

Attributes = tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """The names in a cell. They are global names unless a comment says otherwise."""

    is_python: bool = False
    binds: frozenset[str] = frozenset()  # assigned, defined, or imported
    changes: frozenset[str] = frozenset()  # an attribute or item is assigned: `config.size = 3`, `table[0] = 1`
    reads: frozenset[str] = frozenset()
    # Line, alias, and full name of every import, in any scope: `(1, "*", "torch.*")` for `from torch import *`.
    imported: tuple[tuple[int, str, str], ...] = ()
    aliases: dict[str, tuple[str, Attributes]] = field(default_factory=dict)  # `f = nn.functional`, in any scope
    # Line, name, and attributes: `(3, "F", ("softmax",))`. The name is "" if the object has none: `f(x).T`.
    uses: tuple[tuple[int, str, Attributes], ...] = ()
    commands: tuple[tuple[int, str], ...] = ()  # line and name of IPython commands that can't be analyzed: `%run`, `!`
    # Whether the body of each method is unwritten. A function has a single entry, "". Only the last definition of a
    # function or class counts, and only if its name is not bound in any other way.
    definitions: dict[str, dict[str, bool]] = field(default_factory=dict)

    @property
    def imports(self) -> dict[str, str]:
        """The full name of each imported alias."""
        return {alias: full for _, alias, full in self.imported}


def names_of(source: str) -> Names:
    """Return the names in a cell. If the cell is not Python, only `binds` is filled in, with a guess."""
    return _names_of_short(source) if len(source) <= SHORT_CHARACTERS else _names_of_long(source)


def providers_of(wanted: Iterable[str], provides: Sequence[Iterable[str]], reads: Sequence[Iterable[str]]) -> set[int]:
    """Return the indices of the cells that provide the wanted names, directly or indirectly. Takes linear time.

    Args:
        wanted: The names to look for.
        provides: The names that each cell provides.
        reads: The names that each cell reads and that other cells may provide.
    """
    cells_with = defaultdict(list)
    for index, names in enumerate(provides):
        for name in names:
            cells_with[name].append(index)
    providers: set[int] = set()
    waiting = list(wanted)
    while waiting:
        for index in cells_with.pop(waiting.pop(), ()):
            if index not in providers:
                providers.add(index)
                waiting += reads[index]
    return providers


def cannot_be_analyzed(source: str) -> bool:
    """Return whether a kernel might run the cell even though it is too long, too deeply nested, or not Python."""
    if names_of(source).is_python:
        return False
    if len(source) > MAX_CHARACTERS or re.search(r"^[^\S\n]*[%!?,;/]", source, re.MULTILINE):
        return True
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):  # a kernel can't run this either
        return False
    except UNREADABLE:
        pass
    return True


def is_unwritten(source: str, name: str, blank: tuple[str, ...] = ()) -> bool:
    """Return whether the cell's last definition of `name` has no body yet.

    Args:
        source: The cell.
        name: A function or a class.
        blank: If `name` is a class, the methods that the student writes.
    """
    methods = names_of(source).definitions.get(name, {})
    exercises = [is_empty for method, is_empty in methods.items() if method in (blank or ("",))]
    return bool(exercises) and all(exercises)


# --- from text to syntax tree ----------------------------------------------------------------------------------------


def syntax_tree(source: str) -> ast.Module | None:
    """Return the syntax tree of a cell without IPython's own syntax. If the cell is not Python, return None."""
    text, _ = _as_python(source)
    return None if text is None else _tree(text)


def _as_python(source: str) -> tuple[str | None, tuple[tuple[int, str], ...]]:
    """Return the cell as Python with the same line numbers, and the line and name of each command that was removed.

    The text is None if the cell is too long or is not Python.
    """
    if len(source) > MAX_CHARACTERS:
        return None, ()
    for text in (source, textwrap.dedent(source)):  # IPython also runs a cell in which every line is indented
        if _tree(text) is not None:
            return text, ()
    lines = _without_magics(source)
    text = "\n".join(line for line, _ in lines)
    commands = tuple((number, command) for number, (_, command) in enumerate(lines, start=1) if command)
    return (text, commands) if lines and _tree(text) is not None else (None, ())


def _without_magics(source: str) -> list[tuple[str, str]]:
    """Return the lines of an IPython cell as Python, each with the command that was removed from it: `("pass", "!")`.

    The list is empty if the cell is in another language.
    """
    from IPython.core.inputtransformer2 import TransformerManager  # this takes half a second, and few cells need it

    special = [line for line in source.split("\n") if re.search(r"^\s*[%!?,;/]|=\s*[%!]|\?\s*$", line)]
    if not 0 < len(special) <= MAX_MAGICS or max(map(len, special)) > LONGEST_MAGIC:
        return []
    blank_lines = re.match(r"(?:[ \t]*\n)*", source)[0].count("\n")  # dropped by the transformer
    try:
        with warnings.catch_warnings(action="ignore"):
            transformed = TransformerManager().transform_cell(source)
    except (*UNREADABLE, RuntimeError):
        return []
    lines = [("", "")] * blank_lines
    for line in transformed.removesuffix("\n").split("\n"):
        before, call, after = line.partition("get_ipython().")
        function, arguments = _call(after) if call else ("", ())
        if function == "run_cell_magic" and len(arguments) == 3:
            return lines + _lines_of_cell_magic(*arguments)
        if function == "run_line_magic" and len(arguments) == 2:
            lines.append(_line_of_magic(before, f"%{arguments[0]}", arguments[1]))
        else:
            lines.append(_line_of_magic(before, "!", "") if function in ("system", "getoutput") else (line, ""))
    return lines


def _call(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `run_line_magic('time', 'x = 1')` into function and arguments. For any other text, the function is ""."""
    function, _, arguments = text.partition("(")
    try:
        arguments = ast.literal_eval(f"({arguments.removesuffix(')')},)")
    except UNREADABLE:
        return "", ()
    return (function, arguments) if all(isinstance(argument, str) for argument in arguments) else ("", ())


def _lines_of_cell_magic(magic: str, options: str, body: str) -> list[tuple[str, str]]:
    if magic not in PYTHON_MAGICS:
        return []
    first = ("", "") if magic == "capture" else _line_of_magic("", f"%%{magic}", options)
    inner = _without_magics(body) if _tree(body) is None else [(line, "") for line in body.split("\n")]
    return [first, *inner] if inner else []


def _line_of_magic(before: str, command: str, code: str) -> tuple[str, str]:
    """Return a line like `x = %time f()` as Python, and the command if it cannot be analyzed: `("x = f()", "")`."""
    nothing = before + ("None" if before.strip() else "pass")
    magic = command.strip("%")
    if magic in PYTHON_MAGICS:
        code = re.sub(r"^(?:\s*-\w+(?:\s+\d+)?(?=\s|$))*\s*", "", code)
        if _tree(code) is not None:
            return (before + code if code else nothing), ""
    return nothing, "" if magic in HARMLESS_MAGICS else command


@lru_cache(maxsize=2)  # only the last two, because trees are large and each is needed twice in a row
def _tree(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # such as the warning about `"\d"` in the student's text
            return ast.parse(text)
    except UNREADABLE:
        return None


# --- from syntax tree to names ---------------------------------------------------------------------------------------


_DEFINITION = re.compile(
    r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE
)


def _names(source: str) -> Names:
    text, commands = _as_python(source)
    try:
        symbols = list(global_symbols(text)) if text is not None else []
    except UNREADABLE:  # such as `nonlocal` at the top level
        text = None
    if text is None:
        guesses = [] if re.match(r"\s*%%", source) else _DEFINITION.finditer(source)
        return Names(binds=frozenset(match[1] or match[2] for match in guesses))
    tree = _tree(text)
    nodes = _NodeReader(tree)
    return Names(
        is_python=True,
        binds=frozenset(symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()),
        changes=frozenset(nodes.changes),
        reads=frozenset(symbol.get_name() for symbol in symbols if symbol.is_referenced()),
        imported=tuple(nodes.imported),
        aliases=nodes.aliases,
        uses=tuple(sorted(nodes.uses)),
        commands=commands,
        definitions=_definitions(tree),
    )


_names_of_short = lru_cache(maxsize=4096)(_names)  # larger than the number of cells in a notebook
_names_of_long = lru_cache(maxsize=16)(_names)


class _NodeReader:
    """Collects names from a syntax tree's nodes without recursion, which would fail on a deep tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.changes: set[str] = set()
        self.aliases: dict[str, tuple[str, Attributes]] = {}
        self.imported: list[tuple[int, str, str]] = []
        self.uses: set[tuple[int, str, Attributes]] = set()
        inner: set[int] = set()  # nodes inside a longer dotted name, which is visited first
        for node in ast.walk(tree):
            match node:
                case ast.Import():
                    for alias in node.names:
                        full = alias.name if alias.asname else alias.name.split(".")[0]
                        self.imported.append((node.lineno, alias.asname or full, full))
                case ast.ImportFrom(module=str(module), level=0):
                    for alias in node.names:
                        self.imported.append((node.lineno, alias.asname or alias.name, f"{module}.{alias.name}"))
                case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                    self._add_change(node)
                case ast.Call(func=ast.Name("setattr" | "delattr"), args=[changed, *_]):
                    self._add_change(changed)
                case ast.Assign(targets, ast.expr() as value):
                    self._add_aliases(targets, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target, value):
                    self._add_aliases([target], value)
                case ast.Call() if _is_getattr_of_self(node):
                    inner.add(id(node.func))
            if isinstance(node, ast.Name | ast.Attribute | ast.Call) and id(node) not in inner:
                self._add_use(node, inner)

    def _add_change(self, base: ast.expr) -> None:
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name):
            self.changes.add(base.id)

    def _add_aliases(self, targets: list[ast.expr], value: ast.expr) -> None:
        base, attributes = _dotted(value, set())
        if isinstance(base, ast.Name):
            self.aliases |= {target.id: (base.id, attributes) for target in targets if isinstance(target, ast.Name)}

    def _add_use(self, node: ast.expr, inner: set[int]) -> None:
        base, attributes = _dotted(node, inner)
        if isinstance(base, ast.Name) and isinstance(base.ctx, ast.Load):
            self.uses.add((node.lineno, base.id, attributes))
        elif attributes and not isinstance(base, ast.Name):
            self.uses.add((node.lineno, "", attributes))


def _dotted(node: ast.expr, inner: set[int]) -> tuple[ast.expr, Attributes]:
    """Split a dotted name into its base and its attributes, adding the nodes in between to `inner`.

    `getattr(F, "softmax")` is read as `F.softmax`.
    """
    attributes: list[str] = []
    while True:
        match node:
            case ast.Attribute(value, name):
                pass
            case ast.Call(ast.Name("getattr") as function, [value, ast.Constant(str(name)), *_]):
                inner.add(id(function))
            case _:
                return node, tuple(reversed(attributes))
        attributes.append(name)
        node = value
        inner.add(id(node))


def _is_getattr_of_self(node: ast.Call) -> bool:
    """Return whether a node is a call like `getattr(self.attention, name)`, as in a loop over layers."""
    match node:
        case ast.Call(ast.Name("getattr"), [owner, *_, ast.Name() | ast.Attribute() | ast.Subscript()]):
            base, _ = _dotted(owner, set())
            return isinstance(base, ast.Name) and base.id == "self"
    return False


def _definitions(tree: ast.Module) -> dict[str, dict[str, bool]]:
    definitions: dict[str, dict[str, bool]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            definitions[statement.name] = {"": _has_no_body(statement)}
        elif isinstance(statement, ast.ClassDef):
            methods = [method for method in statement.body if isinstance(method, ast.FunctionDef)]
            definitions[statement.name] = {method.name: _has_no_body(method) for method in methods}
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                definitions.pop((alias.asname or alias.name).split(".")[0], None)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for node in ast.walk(target):
                    definitions.pop(getattr(node, "id", None), None)
    return definitions


def _has_no_body(function: ast.FunctionDef) -> bool:
    """Return whether a function does nothing except return None or raise NotImplementedError."""
    for statement in function.body:
        match statement:
            case ast.Pass() | ast.Expr(ast.Constant()):
                continue
            case ast.Return(None | ast.Constant(None)):
                return True
            case ast.Raise(ast.Name("NotImplementedError") | ast.Call(ast.Name("NotImplementedError"))):
                return True
        return False
    return True
