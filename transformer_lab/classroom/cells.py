"""What a cell defines and uses, read from its text. Nothing of it runs, and no text is too strange or too large."""

import ast
import re
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from transformer_lab.exercises.scopes import global_symbols

MOST_CHARACTERS = 50_000  # of a cell whose syntax tree is read: one takes some hundred times its text in memory
FEW_CHARACTERS = 4_000  # of a cell as people write them: what was read of hundreds is kept

# What reading a hostile text can raise: null bytes, lone surrogates, thousands of brackets.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError, IndexError)

# Magics that run Python in the notebook's own namespace: that of a whole cell, and that of their line.
PYTHON_MAGICS = ("time", "timeit", "capture", "prun")
_OF_A_LINE = re.compile(r"%%?(?:time|timeit|prun)\b((?:[ \t]+-\w+(?:[ \t]+\d+)?)*)[ \t]*(.*)")

# Magics that show or set something, and run nothing.
HARMLESS_MAGICS = ("%autoreload", "%config", "%load_ext", "%matplotlib", "%precision", "%pwd", "%who", "%whos")


@dataclass(frozen=True)
class Names:
    """The names in a cell: global ones, where it does not say otherwise."""

    is_python: bool = False
    binds: frozenset[str] = frozenset()  # assigned, defined or imported
    changes: frozenset[str] = frozenset()  # things in them are assigned: `config.size = 3`, `table[0] = 1`
    reads: frozenset[str] = frozenset()
    imports: dict[str, str] = field(default_factory=dict)  # alias to full name, wherever in the cell
    aliases: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # `f = nn.functional`, likewise
    # Line, name, attributes: `(3, "F", ("softmax",))`. The name is "" for what is no name: `f(x).softmax`.
    uses: tuple[tuple[int, str, tuple[str, ...]], ...] = ()
    stars: tuple[tuple[int, str], ...] = ()  # line and module of `from module import *`
    commands: tuple[tuple[int, str], ...] = ()  # line and name of what IPython runs, and nobody can read: `%run`, `!`
    # The last definition of each function and class, where nothing else binds the name: methods (functions: "") to
    # whether their body is still to be written.
    definitions: dict[str, dict[str, bool]] = field(default_factory=dict)
    imported: tuple[tuple[int, str, str], ...] = ()  # line, alias and full name of every import


def names_of(source: str) -> Names:
    """The names in a cell; of one that is no Python, those that it seems to define."""
    return _read_short(source) if len(source) <= FEW_CHARACTERS else _read_long(source)


def that_give(wanted: Iterable[str], gives: Sequence[Iterable[str]], reads: Sequence[Iterable[str]]) -> set[int]:
    """Which cells give a wanted name, or one that such a cell reads itself. Each is looked at once.

    Args:
        wanted: Names.
        gives: Of each cell, the names that it gives.
        reads: Of each cell, the names that it reads.
    """
    of_name = defaultdict(list)
    for number, names in enumerate(gives):
        for name in names:
            of_name[name].append(number)
    found: set[int] = set()
    waiting = list(wanted)
    while waiting:
        for number in of_name.pop(waiting.pop(), ()):
            if number not in found:
                found.add(number)
                waiting += reads[number]
    return found


def is_out_of_sight(source: str) -> bool:
    """Whether a kernel may run what cannot be read here: a text too long or too deep, or one in IPython's language."""
    if names_of(source).is_python:
        return False
    if len(source) > MOST_CHARACTERS or re.search(r"^[^\S\n]*[%!?,;/]", source, re.MULTILINE):
        return True
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):  # what no kernel runs either
        return False
    except UNREADABLE:
        pass
    return True


def is_unwritten(source: str, name: str, blank: tuple[str, ...] = ()) -> bool:
    """Whether the cell's last definition of `name` is one whose body is still to be written.

    Args:
        source: The cell.
        name: A function or a class.
        blank: For a class, the methods whose bodies the student writes.
    """
    bodies = names_of(source).definitions.get(name, {})
    asked = [empty for method, empty in bodies.items() if method in (blank or ("",))]
    return bool(asked) and all(asked)


def syntax_tree(source: str) -> ast.Module | None:
    """The syntax tree of a cell; lines that are IPython's and not Python's count as `pass`. None if it has none."""
    text = python_text(source)
    return None if text is None else _tree(text)


def python_text(source: str) -> str | None:
    """The cell as Python, line for line; None where it is no Python at all."""
    if len(source) > MOST_CHARACTERS:
        return None
    if _tree(source) is not None:
        return source
    if (magic := re.match(r"\s*%%(\w*)", source)) and magic[1] not in PYTHON_MAGICS:
        return None
    lines = textwrap.dedent(source).split("\n")
    for number, line in enumerate(lines):
        if (read := _line_of_ipython(line)) is not None:
            lines[number] = read[0]
    text = "\n".join(lines)
    return text if _tree(text) is not None else None


def _commands(source: str) -> Iterator[tuple[int, str]]:
    """Lines that IPython runs and that are not read here, each with what it begins with: `%run`, `!`."""
    if _tree(source) is None:
        for number, line in enumerate(source.split("\n"), start=1):
            if (read := _line_of_ipython(line)) is not None and read[1]:
                yield number, read[1]


def _line_of_ipython(line: str) -> tuple[str, str] | None:
    """A line of IPython's as Python, and the name of what runs there unread, if anything: `("pass", "!")`."""
    before, command = _taken_apart(line)
    if not command:
        return None
    timed = _OF_A_LINE.fullmatch(command)
    python = timed[2].strip() if timed and _tree(timed[2].strip()) is not None else None
    name = re.match(r"%%?\w*|!", command)
    is_read = (
        python is not None or not name or name[0] in HARMLESS_MAGICS or name[0].removeprefix("%%") in PYTHON_MAGICS
    )
    return before + (python or ("None" if "=" in before else "pass")), "" if is_read else name[0]


def _taken_apart(line: str) -> tuple[str, str]:
    """A line of IPython's, a magic, a command of the shell or a question, after its target: `("x = ", "%pwd")`.

    Of a line of Python the second is empty. No regular expression: one that does this takes minutes for many blanks.
    """
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    target, equals, value = text.partition("=")
    if text.startswith(("%", "!", "?")):
        return indent, text
    if equals and value.lstrip().startswith(("%", "!")) and _TARGET.fullmatch(target):
        command = value.lstrip()
        return line[: len(line) - len(command)], command
    return (indent, text) if text.rstrip().endswith("?") else (line, "")


_TARGET = re.compile(r"[\w.,\[\] \t]*")


@lru_cache(maxsize=2)  # a tree is large, and asked for twice in a row
def _tree(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():  # a `"\d"` in the student's text is none of our warnings
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except UNREADABLE:
        return None


def _read(source: str) -> Names:
    text = python_text(source)
    if text is None:
        is_other_language = re.match(r"\s*%%(\w*)", source)
        return Names() if is_other_language else Names(binds=frozenset(_seem_defined(source)))
    try:
        binds, reads = set(), set()
        for symbol in global_symbols(text):
            if symbol.is_referenced():
                reads.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported():
                binds.add(symbol.get_name())
    except UNREADABLE:  # `nonlocal` at the top, for instance
        return Names(binds=frozenset(_seem_defined(source)))
    commands = tuple(_commands(source))
    nodes = _Nodes(_tree(text))
    return Names(
        True,
        frozenset(binds),
        frozenset(nodes.changes),
        frozenset(reads),
        nodes.imports,
        nodes.aliases,
        tuple(sorted(nodes.uses)),
        tuple(nodes.stars),
        commands,
        _definitions(_tree(text)),
        tuple(nodes.imported),
    )


_read_short = lru_cache(maxsize=4096)(_read)  # more than a notebook may have cells: they are asked about in turn
_read_long = lru_cache(maxsize=16)(_read)


class _Nodes:
    """What the nodes of a syntax tree say, one by one: no recursion, which a deep tree would exhaust."""

    def __init__(self, tree: ast.Module) -> None:
        self.changes: set[str] = set()
        self.imports: dict[str, str] = {}
        self.aliases: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.imported: list[tuple[int, str, str]] = []
        self.stars: list[tuple[int, str]] = []
        self.uses: set[tuple[int, str, tuple[str, ...]]] = set()
        self._inner: set[int] = set()  # nodes within a longer name
        for node in ast.walk(tree):  # a longer name comes before its parts
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._add_import(node)
            elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                self._add_change(node)
            elif _is_setattr(node):
                self._add_change(node.args[0])
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                self._add_alias(node)
            if _is_getattr_of_self(node):
                self._inner.add(id(node.func))
            if isinstance(node, ast.Name | ast.Attribute | ast.Call) and id(node) not in self._inner:
                self._add_use(node)

    def _add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                root = alias.name.split(".")[0]
                bound, full = alias.asname or root, alias.name if alias.asname else root
            elif not node.module or node.level:
                continue
            elif alias.name == "*":
                self.stars.append((node.lineno, node.module))
                continue
            else:
                bound, full = alias.asname or alias.name, f"{node.module}.{alias.name}"
            self.imports[bound] = full
            self.imported.append((node.lineno, bound, full))

    def _add_change(self, base: ast.expr) -> None:
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name):
            self.changes.add(base.id)

    def _add_alias(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> None:
        base, attributes = _dotted(node.value, set())
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(base, ast.Name) and isinstance(target, ast.Name):
                self.aliases[target.id] = base.id, attributes

    def _add_use(self, node: ast.expr) -> None:
        base, attributes = _dotted(node, self._inner)
        if isinstance(base, ast.Name) and isinstance(base.ctx, ast.Load):
            self.uses.add((node.lineno, base.id, attributes))
        elif attributes and not isinstance(base, ast.Name):
            self.uses.add((node.lineno, "", attributes))


def _dotted(node: ast.expr, inner: set[int]) -> tuple[ast.expr, tuple[str, ...]]:
    """What a longer name begins with, and its attributes; what is passed on the way is put into `inner`."""
    attributes: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        elif (constant := _getattr_of_constant(node)) is not None:
            attributes.append(constant)
            inner.add(id(node.func))
            node = node.args[0]
        else:
            return node, tuple(reversed(attributes))
        inner.add(id(node))


def _getattr_of_constant(node: ast.AST) -> str | None:
    """`"softmax"` of `getattr(F, "softmax")`."""
    name = node.args[1] if _is_getattr(node) else None
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


def _is_getattr(node: ast.AST) -> bool:
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
    return named and len(node.args) > 1


def _is_getattr_of_self(node: ast.AST) -> bool:
    """`getattr(self, name)` and `getattr(self.attention, name)`, as in a loop over the names of layers."""
    if not (_is_getattr(node) and isinstance(node.args[1], ast.Name | ast.Attribute | ast.Subscript)):
        return False
    base = _dotted(node.args[0], set())[0]
    return isinstance(base, ast.Name) and base.id == "self"


def _is_setattr(node: ast.AST) -> bool:
    """Whether it is `setattr(thing, …)` or `delattr(thing, …)`."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr")
    return named and bool(node.args)


_DEFINED = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE)


def _seem_defined(source: str) -> Iterator[str]:
    for match in _DEFINED.finditer(source):
        yield match[1] or match[2]


def _definitions(tree: ast.Module) -> dict[str, dict[str, bool]]:
    definitions: dict[str, dict[str, bool]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            definitions[statement.name] = {"": _has_no_body(statement)}
        elif isinstance(statement, ast.ClassDef):
            methods = [method for method in statement.body if isinstance(method, ast.FunctionDef)]
            definitions[statement.name] = {method.name: _has_no_body(method) for method in methods}
        else:
            for name in _bound_by(statement):
                definitions.pop(name, None)
    return definitions


def _bound_by(statement: ast.stmt) -> set[str]:
    """The names that an assignment or an import at the top of a cell binds."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return set()


def _has_no_body(function: ast.FunctionDef) -> bool:
    """Whether it returns None or raises NotImplementedError before it does anything."""
    statements = [
        statement
        for statement in function.body
        if not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    if not statements:
        return True
    first = statements[0]
    if isinstance(first, ast.Return):
        return first.value is None or (isinstance(first.value, ast.Constant) and first.value.value is None)
    if isinstance(first, ast.Raise) and first.exc is not None:
        raised = first.exc.func if isinstance(first.exc, ast.Call) else first.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return False
