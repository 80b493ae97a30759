"""Flags what an instructor should look at: library answers, the package's own parts, and answers that are nearly alike.

All of it is read from syntax trees. It costs nobody a point.
"""

import ast
import inspect
import re
import textwrap
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from transformer_lab.authoring.stubs import BEGIN, END, marked_answer
from transformer_lab.classroom.cells import UNREADABLE, cannot_be_analyzed, names_of, providers_of, syntax_tree
from transformer_lab.classroom.submissions import printable
from transformer_lab.exercises import Exercise
from transformer_lab.exercises.library_answers import USUAL_NAMES

MOST_FLAGS = 8  # of one exercise
LEAST_NODES = 80  # of a syntax tree: smaller answers are alike by chance
LEAST_NODES_NEARLY = 100  # where one statement may differ
MOST_STATEMENTS = 300
CHANCE = 3  # statements of an answer that are the same, word for word, by chance or from the hints

PACKAGE = "transformer_lab."
NEVER_AN_ANSWER = ("transformer_lab.solution", "transformer_lab.exercises.")  # nobody needs them for an answer

# The modules whose names check, show, and count. Students may redefine what is in others.
OF_THE_GRADER = ("transformer_lab", "transformer_lab.exercises")

# They run code that cannot be read, or look at what is none of an answer's business.
# `getattr(thing, "name")` is read like `thing.name`, so it is not unusual.
UNUSUAL_BUILTINS = ("__import__", "compile", "eval", "exec", "get_ipython", "getattr", "globals", "open", "vars")
BINDS_ANYTHING = ("exec", "globals", "vars", "%run")
UNUSUAL_MODULES = (
    *("builtins", "ctypes", "gc", "importlib", "inspect", "os", "pickle", "pkgutil", "signal", "socket", "subprocess"),
    "sys",
)
UNUSUAL_FUNCTIONS = ("operator.attrgetter", "operator.methodcaller")

# The inside of torch has each function again: `torch.ops.aten.softmax`, `torch._C._nn`, `torch._softmax`.
_INSIDE_TORCH = re.compile(r"torch\.(ops|_(?!_)\w+)(\..*)?")

_PATH_OF_PACKAGE = re.compile(r"\b__(?:file|path)__\b")
_OPENS = ("open", "write_text", "write_bytes")


# --- what an answer uses ---------------------------------------------------------------------------------------------


def review(
    exercise: Exercise,
    source: str,
    own_cells: Sequence[str],
    course_cells: Sequence[str],
    answers: Mapping[str, str] = types.MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the flags of one answer: "line 4 uses `torch.nn.functional.softmax`".

    Args:
        exercise: Says which names are answers, and on which of the package's parts it builds.
        source: The student's cell.
        own_cells: The student's other cells, except for those of other exercises: one may hold a helper.
        course_cells: The course's own cells that are run, for what they import.
        answers: The cells of all exercises, by name: one of these may hold a helper as well.
    """
    known, of_course = _known_names(source, [*own_cells, *answers.values()], course_cells)
    allowed = {f"transformer_lab.mine.{name}" for name in exercise.builds_on} | of_course
    flags = _solution_flags(exercise, source) + _flags_of_cell(source, "", exercise, known, allowed, course_cells)
    for cell in _needed(source, own_cells, answers, known):
        flags += _flags_of_cell(cell, " of a cell of their own", exercise, known, allowed, course_cells)
    flags += [f"it {what}" for what in interference(source, course_cells)]
    flags = list(dict.fromkeys(flags))
    more = [f"and {len(flags) - MOST_FLAGS} more"] if len(flags) > MOST_FLAGS else []
    return (*flags[:MOST_FLAGS], *more)


def _flags_of_cell(
    cell: str, where: str, exercise: Exercise, known: Mapping[str, str], allowed: set[str], course_cells: Sequence[str]
) -> list[str]:
    names = names_of(cell)
    flags = [f"line {line}{where} runs `{command}`" for line, command in names.commands]
    if cannot_be_analyzed(cell):
        flags.append(f"{'a cell of their own' if where else 'it'} cannot be read as Python")
    for line, alias, full in names.imported:
        if alias == exercise.name and not any(names_of(other).imports.get(alias) == full for other in course_cells):
            flags.append(f"line {line}{where} imports the answer: `{printable(full)}`")
    lines_with_use = set()
    for line, name in _uses(cell, known):
        use = f"line {line}{where} uses `{printable(name)}`"
        if _is_library_answer(name, exercise.banned) or _is_unusual(name):
            flags.append(use)
            lines_with_use.add(line)
        elif name.startswith(PACKAGE) and not _is_allowed(name, allowed, exercise):
            flags.append(f"{use}, which the exercise does not build on")
            lines_with_use.add(line)
    for line, name in _spelled(cell, exercise.banned):
        if line not in lines_with_use:
            flags.append(f"line {line}{where} has `{name}` as a text")
    return flags


def _known_names(source: str, own_cells: Sequence[str], course_cells: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Return alias to full name for all cells together, and the full names that the course imports itself."""
    known = dict(USUAL_NAMES) | {name: name for name in UNUSUAL_BUILTINS}
    of_course: set[str] = set()
    for cell in course_cells:
        known |= names_of(cell).imports
        of_course |= set(names_of(cell).imports.values())
    for cell in [*own_cells, source]:
        for name in names_of(cell).definitions:
            known.pop(name, None)  # a function of their own that is called like one of ours
        known |= names_of(cell).imports
    for cell in [*own_cells, source]:
        for alias, (base, attributes) in names_of(cell).aliases.items():
            if base in known and alias != base:
                known[alias] = ".".join([known[base], *attributes])
    return known, of_course


def _needed(source: str, own_cells: Sequence[str], answers: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Return the cells that define what the answer uses, directly or through another, or that may define anything.

    For the cell of another exercise, neither its answer nor what it imports makes it one of them.
    """
    binds = {cell: names_of(cell).binds for cell in own_cells if cell != source}
    for cell in answers.values():
        if cell != source and cell not in binds:
            binds[cell] = names_of(cell).binds - answers.keys() - set(names_of(cell).imports)
    cells, reads = list(binds), [names_of(cell).reads for cell in binds]
    own = set(own_cells)
    anything = [index for index, cell in enumerate(cells) if cell in own and _may_define_anything(cell, known)]
    wanted = names_of(source).reads.union(*(reads[index] for index in anything))
    needed = providers_of(wanted, list(binds.values()), reads).union(anything)
    return [cells[index] for index in sorted(needed)]


def _may_define_anything(source: str, known: Mapping[str, str]) -> bool:
    """Return whether a cell binds names that cannot be read, or changes a library, which every answer uses.

    `from module import *`, `exec(...)`, `globals()[...] = ...`; `torch.Tensor.normal = torch.Tensor.softmax`.
    """
    names = names_of(source)
    ways = {name for _, name, _ in names.uses} | {command for _, command in names.commands}
    return bool(names.stars) or not ways.isdisjoint(BINDS_ANYTHING) or not names.changes.isdisjoint(known)


def _uses(source: str, known: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the full names of what a cell uses from libraries and from the package, each with its line.

    For anything else, these are its attributes: `.softmax` for `scores.softmax`.
    """
    names = names_of(source)
    used = [(line, ".".join([known.get(name, ""), *attributes])) for line, name, attributes in names.uses]
    return sorted([*used, *((line, f"{module}.*") for line, module in names.stars)])


def _is_library_answer(name: str, banned: Iterable[str]) -> bool:
    """Return whether it is a banned name, or the same thing in another place: `torch._C._nn.softmax`."""
    library, last = name.partition(".")[0], name.rpartition(".")[2]
    for answer in banned:
        if answer.startswith("."):
            if answer[1:] in name.split(".")[1:]:
                return True
            continue
        if name == answer or name.startswith(f"{answer.rstrip('.')}."):
            return True
        if library == answer.partition(".")[0] and last in (answer.rpartition(".")[2], "*"):
            return last != "*" or answer.startswith(name[:-1])
    return False


def _spelled(source: str, banned: Iterable[str]) -> list[tuple[int, str]]:
    """Return texts that are a banned name and nothing else, with their lines: `methodcaller("softmax")` calls it."""
    tree = syntax_tree(source)
    answers = {answer.rpartition(".")[2] for answer in banned} - {""}
    nodes = list(ast.walk(tree)) if tree else []
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, node.value) for node in texts if node.value in answers and id(node) not in docstrings]


def _is_unusual(name: str) -> bool:
    root, _, rest = name.partition(".")
    harmless = root in ("os", "sys") and rest.partition(".")[0] in ("", "path", "float_info", "maxsize")
    unusual = root in UNUSUAL_BUILTINS or (root in UNUSUAL_MODULES and not harmless)
    return unusual or name in UNUSUAL_FUNCTIONS or _INSIDE_TORCH.fullmatch(name) is not None


def _is_allowed(name: str, allowed: set[str], exercise: Exercise) -> bool:
    """Return whether the exercise builds on it, or the course's own cells import it and it is not an answer."""
    last = name.rpartition(".")[2]
    if name.startswith(NEVER_AN_ANSWER) or last == exercise.name:
        return False
    return last in exercise.builds_on or any(name == known or name.startswith(f"{known}.") for known in allowed)


def interference(source: str, course_cells: Sequence[str]) -> list[str]:
    """Return what a cell does to the checks or to the package: "replaces `check`". It earns nothing, but was tried."""
    names, known = names_of(source), _known_names(source, [], course_cells)[0]
    theirs = {alias: full for cell in course_cells for alias, full in names_of(cell).imports.items()}
    replaced = [
        name
        for name in sorted(names.binds & set(theirs))
        if theirs[name].rpartition(".")[0] in OF_THE_GRADER and names.imports.get(name) != theirs[name]
    ]
    changed = [known[name] for name in sorted(names.changes & names.reads & set(known))]
    opens = any(name.rpartition(".")[2] in _OPENS for _, name in _uses(source, known))
    return [
        *(f"replaces `{name}`" for name in replaced),
        *(f"writes into `{printable(full)}`" for full in changed if f"{full}.".startswith(PACKAGE)),
        *(["opens a file of the package"] if opens and _has_path_of_package(source) else []),
    ]


def _has_path_of_package(source: str) -> bool:
    """Return whether there is a text with a path into the package, or the path of the package itself."""
    texts = (text for line in source.split("\n") for text in re.split("[\"']", line)[1:-1])  # between two quotes
    return any("transformer_lab" in text for text in texts) or _PATH_OF_PACKAGE.search(source) is not None


# --- the course's own solution ---------------------------------------------------------------------------------------


def _solution_flags(exercise: Exercise, source: str) -> list[str]:
    """Return a flag for an answer that is the course's own or has the marks of its solutions, if it is one."""
    marks = [mark for mark in (BEGIN, END) if mark in source]
    bodies = _solution_bodies(exercise)
    comments = _comments("\n".join(bodies))
    more_than_chance = marks or sum(map(_statements, bodies)) > CHANCE or (comments and comments <= _comments(source))
    if more_than_chance and _is_solution_text(exercise, source):
        return ["it is the text of the course's own solution"]
    if marks:
        return [f"it has the mark `{marks[0]}` of the course's own solution"]
    form = _form(source)
    is_like_ours = form is not None and form.nodes >= LEAST_NODES and form == _form(_answer_text(exercise))
    return ["but for names and comments it is the course's own answer"] if is_like_ours else []


@lru_cache
def _answer_text(exercise: Exercise) -> str:
    return textwrap.dedent(inspect.getsource(exercise.answer))


@lru_cache
def _solution_bodies(exercise: Exercise) -> tuple[str, ...]:
    """Return what a student writes; the rest is in the notebook."""
    marked = marked_answer(exercise.answer, exercise.blank)
    return tuple(re.findall(rf"{BEGIN}\n(.*?)\n *{END}", marked, re.DOTALL))


def _statements(body: str) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(textwrap.dedent(body))))


def _comments(text: str) -> set[str]:
    """Return what follows the last `#` of each line: all comments, and now and then the end of a text."""
    return {line.rpartition("#")[2].strip() for line in text.split("\n") if "#" in line}


def _is_solution_text(exercise: Exercise, source: str) -> bool:
    """Return whether a definition anywhere in it is the package's, but for its name, docstrings, and comments."""
    tree = syntax_tree(source)
    kind = ast.ClassDef if exercise.blank else ast.FunctionDef
    try:
        defined = [node for node in ast.walk(tree) if isinstance(node, kind)] if tree else []
        return any(_text_of_code(node, exercise.name) == _solution_text(exercise) for node in defined)
    except UNREADABLE:
        return False


@lru_cache
def _solution_text(exercise: Exercise) -> str:
    return _text_of_code(ast.parse(_answer_text(exercise)).body[0], exercise.name)


def _text_of_code(definition: ast.stmt, name: str) -> str:
    """Return the code of a function or class under another name, without docstrings, in one layout."""
    copy = ast.parse(ast.unparse(definition))
    copy.body[0].name = name
    for node in ast.walk(copy):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.unparse(copy)


# --- which answers are alike -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Similar:
    """Answers of different students that are the same but for names, comments, and perhaps a statement."""

    exercise: str
    students: tuple[str, ...]


@dataclass(frozen=True)
class _Form:
    """An answer without names, comments, docstrings, annotations, and imports."""

    statements: tuple[str, ...]
    nodes: int

    def partial_hashes(self) -> Iterator[int]:
        """Yield what two answers have in common if they are equal once a statement is left out of one or of both."""
        yield hash(self.statements)
        if self.nodes >= LEAST_NODES_NEARLY and len(self.statements) <= MOST_STATEMENTS:
            for index in range(len(self.statements)):
                yield hash(self.statements[:index] + self.statements[index + 1 :])


def similar(answers: Iterable[tuple[str, str, str]]) -> list[Similar]:
    """Return groups of students whose answers to an exercise are nearly the same.

    Answers are the same if they differ in nothing but the names of variables, comments, docstrings, annotations, and
    imports. In larger ones, a statement may differ, or be added. Small ones are left out. The work grows with the
    number of answers, not with its square.

    Args:
        answers: `(student, exercise, source)`.
    """
    students: dict[str, dict[_Form, set[str]]] = defaultdict(lambda: defaultdict(set))
    for student, exercise, source in answers:
        form = _form(source)
        if form is not None and form.nodes >= LEAST_NODES:
            students[exercise][form].add(student)
    groups = []
    for exercise, of_form in students.items():
        for forms in _connected(of_form):
            together = set().union(*(of_form[form] for form in forms))
            if len(together) > 1:
                groups.append(Similar(exercise, tuple(sorted(together))))
    return groups


def _connected(forms: Iterable[_Form]) -> Iterator[list[_Form]]:
    """Yield groups of forms that have hashes in common, directly or through others."""
    with_hash: dict[int, list[_Form]] = defaultdict(list)
    for form in forms:
        for each in form.partial_hashes():
            with_hash[each].append(form)
    ungrouped = dict.fromkeys(forms)
    while ungrouped:
        group = [next(iter(ungrouped))]
        del ungrouped[group[0]]
        for form in group:  # which grows meanwhile
            for each in form.partial_hashes():
                for neighbor in with_hash.pop(each, ()):
                    if neighbor in ungrouped:
                        group.append(neighbor)
                        del ungrouped[neighbor]
        yield group


def _form(source: str) -> _Form | None:
    tree = syntax_tree(source)
    if tree is None:
        return None
    try:
        writer = _AnonymousWriter(tree)
        return _Form(tuple(writer.statements(tree.body)), writer.nodes)
    except UNREADABLE:
        return None


class _AnonymousWriter:
    """Writes statements without the answer's own names, and counts the nodes of what a student writes: the bodies."""

    IGNORED = ("annotation", "returns", "type_comment", "ctx", "kind", "decorator_list", "type_params")
    BLOCKS = ("body", "handlers", "orelse", "finalbody")

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = 0
        self.own_names = set()  # of variables and arguments; functions and classes keep theirs
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                self.own_names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.own_names.add(node.id)

    def statements(self, body: Sequence[ast.stmt | ast.ExceptHandler]) -> Iterator[str]:
        for statement in body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if is_text or isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass):
                continue
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{type(statement).__name__} {statement.name}"
                yield from self.statements(statement.body)
                continue
            blocks = [getattr(statement, block, None) or [] for block in self.BLOCKS]
            if not isinstance(statement, ast.ExceptHandler):
                yield self.text(statement, {}, skip=self.BLOCKS if any(blocks) else ())
            for block in blocks:
                yield from self.statements(block)

    def text(self, node: ast.AST, numbers: dict[str, int], skip: Sequence[str] = ()) -> str:
        """Write a statement or expression; its own names are numbers in the order in which they appear in it."""
        self.nodes += 1
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            return str(numbers.setdefault(name, len(numbers))) if name in self.own_names else name
        parts = [type(node).__name__]
        for field, value in ast.iter_fields(node):
            if field not in self.IGNORED and field not in skip:
                for part in value if isinstance(value, list) else [value]:
                    parts.append(self.text(part, numbers) if isinstance(part, ast.AST) else repr(part))
        return f"({' '.join(parts)})"
