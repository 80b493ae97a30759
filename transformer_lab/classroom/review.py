"""What an instructor should look at: library answers, the package's own parts, and answers that are nearly the same.

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
from transformer_lab.classroom.cells import UNREADABLE, is_out_of_sight, names_of, syntax_tree, that_give
from transformer_lab.classroom.submissions import printable
from transformer_lab.exercises import Exercise
from transformer_lab.exercises.library_answers import USUAL_NAMES

MOST_FLAGS = 8  # of one exercise
LEAST_NODES = 80  # of a syntax tree: what is smaller comes out alike by itself
LEAST_NODES_NEARLY = 100  # where one statement may differ
MOST_STATEMENTS = 300
CHANCE = 3  # statements of an answer that come out the same, word for word, by themselves or from the hints

PACKAGE = "transformer_lab."
NEVER_AN_ANSWER = (  # what a notebook imports of the package, and what nobody needs for an answer
    "transformer_lab.solution",
    "transformer_lab.exercises.",
)

# The modules whose names check, show and count; what a student may well define anew is in none of them.
OF_THE_GRADER = ("transformer_lab", "transformer_lab.exercises")

# What runs code that cannot be read, or looks at what is none of an answer's business.
# Of `getattr`, what is in the text as `getattr(thing, "name")` is read like `thing.name`, and is not unusual.
UNUSUAL_BUILTINS = ("__import__", "compile", "eval", "exec", "get_ipython", "getattr", "globals", "open", "vars")
BINDS_ANYTHING = ("exec", "globals", "vars", "%run")
UNUSUAL_MODULES = (
    *("builtins", "ctypes", "gc", "importlib", "inspect", "os", "pickle", "pkgutil", "signal", "socket", "subprocess"),
    "sys",
)
UNUSUAL_FUNCTIONS = ("operator.attrgetter", "operator.methodcaller")

# The inside of torch has each function once more: `torch.ops.aten.softmax`, `torch._C._nn`, `torch._softmax`.
_INSIDE_TORCH = re.compile(r"torch\.(ops|_(?!_)\w+)(\..*)?")

_PATH_OF_PACKAGE = re.compile(r"\b__(?:file|path)__\b")
_OPENS = ("open", "write_text", "write_bytes")


@dataclass(frozen=True)
class Similar:
    """Answers of different students that are the same but for names, comments and perhaps a statement."""

    exercise: str
    students: tuple[str, ...]


# --- what an answer uses ---------------------------------------------------------------------------------------------


def review(
    exercise: Exercise,
    source: str,
    own_cells: Sequence[str],
    course_cells: Sequence[str],
    answers: Mapping[str, str] = types.MappingProxyType({}),
) -> tuple[str, ...]:
    """Flags for one answer: "line 4 uses `torch.nn.functional.softmax`".

    Args:
        exercise: Says which names are answers, and on which of the package's parts it builds.
        source: The student's cell.
        own_cells: The student's other cells, those of other exercises left out: a helper may stand in one of them.
        course_cells: The course's own cells that are run, for what they import.
        answers: The cells of all exercises, by name: a helper may stand in one of those as well.
    """
    known, of_course = _known_names(source, [*own_cells, *answers.values()], course_cells)
    allowed = {f"transformer_lab.mine.{name}" for name in exercise.builds_on} | of_course
    flags = _of_the_solution(exercise, source)
    needed = _needed(source, own_cells, answers, known)
    for where, cell in [("", source), *((" of a cell of their own", cell) for cell in needed)]:
        if is_out_of_sight(cell):
            flags.append("a cell of their own cannot be read as Python" if where else "it cannot be read as Python")
        flags += [f"line {line}{where} runs `{name}`" for line, name in names_of(cell).commands]
        flags += [
            f"line {line}{where} imports the answer: `{printable(full)}`"
            for line, alias, full in names_of(cell).imported
            if alias == exercise.name and not any(names_of(one).imports.get(alias) == full for one in course_cells)
        ]
        for line, name in _uses(cell, known):
            if _is_library_answer(name, exercise.banned) or _is_unusual(name):
                flags.append(f"line {line}{where} uses `{printable(name)}`")
            elif name.startswith(PACKAGE) and not _is_allowed(name, allowed, exercise):
                flags.append(f"line {line}{where} uses `{printable(name)}`, which the exercise does not build on")
        for line, name in _spelled(cell, exercise.banned):
            if not any(flag.startswith(f"line {line}{where} uses") for flag in flags):
                flags.append(f"line {line}{where} has `{name}` as a text")
    flags += [f"it {what}" for what in interference(source, course_cells)]
    flags = list(dict.fromkeys(flags))
    more = [f"and {len(flags) - MOST_FLAGS} more"] if len(flags) > MOST_FLAGS else []
    return (*flags[:MOST_FLAGS], *more)


def _known_names(source: str, own_cells: Sequence[str], course_cells: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Alias to full name for all cells together, and the full names that the course imports itself."""
    known = dict(USUAL_NAMES) | {name: name for name in UNUSUAL_BUILTINS}
    of_course: set[str] = set()
    for cell in course_cells:
        known |= names_of(cell).imports
        of_course |= set(names_of(cell).imports.values())
    for cell in [*own_cells, source]:
        names = names_of(cell)
        for name in names.definitions:
            known.pop(name, None)  # a function of their own that is called like one of ours
        known |= names.imports
    for cell in [*own_cells, source]:
        for alias, (base, attributes) in names_of(cell).aliases.items():
            if base in known and alias != base:
                known[alias] = ".".join([known[base], *attributes])
    return known, of_course


def _needed(source: str, own_cells: Sequence[str], answers: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """The cells that define what the answer uses, directly or through another, and those that may define anything.

    Of the cell of another exercise, neither its answer nor what it imports makes it one of them.
    """
    own = {cell: names_of(cell).binds for cell in own_cells if cell != source}
    for cell in answers.values():
        if cell != source and cell not in own:
            own[cell] = names_of(cell).binds - answers.keys() - set(names_of(cell).imports)
    cells, reads = list(own), [names_of(cell).reads for cell in own]
    added = set(own_cells)
    anything = [number for number, cell in enumerate(cells) if cell in added and _may_define_anything(cell, known)]
    wanted = names_of(source).reads.union(*(reads[number] for number in anything))
    found = that_give(wanted, list(own.values()), reads)
    return [cells[number] for number in sorted(found.union(anything))]


def _may_define_anything(source: str, known: Mapping[str, str]) -> bool:
    """Whether it binds names that cannot be read, or changes a library, which every answer uses.

    `from module import *`, `exec(...)`, `globals()[...] = ...`; `torch.Tensor.normal = torch.Tensor.softmax`.
    """
    names = names_of(source)
    ways = {name for _, name, _ in names.uses} | {name for _, name in names.commands}
    return bool(names.stars) or not ways.isdisjoint(BINDS_ANYTHING) or not names.changes.isdisjoint(known)


def _uses(source: str, known: Mapping[str, str]) -> list[tuple[int, str]]:
    """The full names of what a cell uses of libraries and of the package, each with its line.

    Of other things their attributes: `.softmax` of `scores.softmax`.
    """
    names = names_of(source)
    used = [(line, ".".join([known.get(name, ""), *attributes])) for line, name, attributes in names.uses]
    return sorted([*used, *((line, f"{module}.*") for line, module in names.stars)])


def _is_library_answer(name: str, banned: Iterable[str]) -> bool:
    """Whether it is a banned name, or the same thing by another way: `torch._C._nn.scaled_dot_product_attention`."""
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
    """Texts that are a banned name and nothing else, each with its line: `methodcaller("softmax")` calls it."""
    tree = syntax_tree(source)
    answers = {answer.rpartition(".")[2] for answer in banned} - {""}
    nodes = list(ast.walk(tree)) if tree else []
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # a docstring
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, node.value) for node in texts if node.value in answers and id(node) not in alone]


def _is_unusual(name: str) -> bool:
    root, _, rest = name.partition(".")
    harmless = root in ("os", "sys") and rest.partition(".")[0] in ("", "path", "float_info", "maxsize")
    unusual = root in UNUSUAL_BUILTINS or (root in UNUSUAL_MODULES and not harmless)
    return unusual or name in UNUSUAL_FUNCTIONS or _INSIDE_TORCH.fullmatch(name) is not None


def _is_allowed(name: str, allowed: set[str], exercise: Exercise) -> bool:
    """Whether the exercise builds on it, or the course's own cells import it and it is no answer."""
    if name.startswith(NEVER_AN_ANSWER) or name.rpartition(".")[2] == exercise.name:
        return False
    if name.rpartition(".")[2] in exercise.builds_on:
        return True
    return any(name == known or name.startswith(f"{known}.") for known in allowed)


def interference(source: str, course_cells: Sequence[str]) -> list[str]:
    """What a cell does to the checks or to the package: "replaces `check`". It earns nothing, but somebody tried."""
    names, known = names_of(source), _known_names(source, [], course_cells)[0]
    theirs = {alias: full for cell in course_cells for alias, full in names_of(cell).imports.items()}
    replaced = [
        name
        for name in sorted(names.binds & set(theirs))
        if theirs[name].rpartition(".")[0] in OF_THE_GRADER and names.imports.get(name) != theirs[name]
    ]
    changed = [known[name] for name in sorted(names.changes & names.reads & set(known))]
    changed = [full for full in changed if f"{full}.".startswith(PACKAGE)]
    opened = [name for _, name in _uses(source, known) if name.rpartition(".")[2] in _OPENS]
    return [
        *(f"replaces `{name}`" for name in replaced),
        *(f"writes into `{printable(full)}`" for full in changed),
        *(["opens a file of the package"] if opened and _has_path_of_package(source) else []),
    ]


def _has_path_of_package(source: str) -> bool:
    """Whether there is a text with a path into the package, or the path of the package itself."""
    texts = (text for line in source.split("\n") for text in re.split("[\"']", line)[1:-1])  # between two quotes
    return any("transformer_lab" in text for text in texts) or _PATH_OF_PACKAGE.search(source) is not None


# --- the course's own solution ---------------------------------------------------------------------------------------


def _of_the_solution(exercise: Exercise, source: str) -> list[str]:
    """A flag, or none, for an answer that is the course's own, or has the marks of its solutions."""
    marks = [mark for mark in (BEGIN, END) if mark in source]
    bodies = _solutions_bodies(exercise)
    comments = _comments("\n".join(bodies))
    more_than_chance = marks or sum(map(_statements, bodies)) > CHANCE or (comments and comments <= _comments(source))
    if more_than_chance and _is_the_solutions_text(exercise, source):
        return ["it is the text of the course's own solution"]
    if marks:
        return [f"it has the mark `{marks[0]}` of the course's own solution"]
    return ["but for names and comments it is the course's own answer"] if _is_the_packages(exercise, source) else []


@lru_cache
def _solutions_bodies(exercise: Exercise) -> tuple[str, ...]:
    """What a student writes: the rest stands in the notebook."""
    marked = marked_answer(exercise.answer, exercise.blank)
    return tuple(re.findall(rf"{BEGIN}\n(.*?)\n *{END}", marked, re.DOTALL))


def _statements(body: str) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(textwrap.dedent(body))))


def _comments(text: str) -> set[str]:
    """What stands after the last `#` of a line: all comments, and now and then the end of a text."""
    return {line.rpartition("#")[2].strip() for line in text.split("\n") if "#" in line}


def _is_the_solutions_text(exercise: Exercise, source: str) -> bool:
    """Whether a definition, wherever it stands, is the package's, but for its name, docstrings and comments."""
    tree = syntax_tree(source)
    kind = ast.ClassDef if exercise.blank else ast.FunctionDef
    try:
        defined = [node for node in ast.walk(tree) if isinstance(node, kind)] if tree else []
        return any(_text_of_code(node, exercise.name) == _solutions_text(exercise) for node in defined)
    except UNREADABLE:
        return False


@lru_cache
def _solutions_text(exercise: Exercise) -> str:
    return _text_of_code(ast.parse(textwrap.dedent(inspect.getsource(exercise.answer))).body[0], exercise.name)


def _text_of_code(definition: ast.stmt, name: str) -> str:
    """The code of a function or class under another name, without docstrings: quotes and brackets are no difference."""
    copy = ast.parse(ast.unparse(definition))
    copy.body[0].name = name
    for node in ast.walk(copy):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.unparse(copy)


# --- which answers are alike -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """An answer without names, comments, docstrings, annotations and imports."""

    statements: tuple[str, ...]
    nodes: int


def _is_the_packages(exercise: Exercise, source: str) -> bool:
    form = _form(source)
    return form is not None and form.nodes >= LEAST_NODES and form == _packages_form(exercise)


@lru_cache
def _packages_form(exercise: Exercise) -> _Form | None:
    return _form(textwrap.dedent(inspect.getsource(exercise.answer)))


def similar(answers: Iterable[tuple[str, str, str]]) -> list[Similar]:
    """Groups of students whose answers to an exercise are nearly the same.

    Those are the same that differ in nothing but the names of variables, comments, docstrings, annotations and
    imports. In larger ones, one statement may be different, or more. Small ones are left out. The work grows with the
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
        for forms in _connected(list(of_form)):
            together = set().union(*(of_form[form] for form in forms))
            if len(together) > 1:
                groups.append(Similar(exercise, tuple(sorted(together))))
    return groups


def _connected(forms: list[_Form]) -> list[list[_Form]]:
    """Forms that are equal once a statement is left out of one or of both."""
    group = list(range(len(forms)))

    def leader(number: int) -> int:
        while group[number] != number:
            group[number] = group[group[number]]
            number = group[number]
        return number

    first: dict[tuple[str, ...] | int, int] = {}
    for number, form in enumerate(forms):
        keys = [hash(form.statements)]
        if form.nodes >= LEAST_NODES_NEARLY and len(form.statements) <= MOST_STATEMENTS:
            keys += [
                hash(form.statements[:left_out] + form.statements[left_out + 1 :])
                for left_out in range(len(form.statements))
            ]
        for key in keys:
            group[leader(number)] = leader(first.setdefault(key, number))
    connected: dict[int, list[_Form]] = defaultdict(list)
    for number, form in enumerate(forms):
        connected[leader(number)].append(form)
    return list(connected.values())


def _form(source: str) -> _Form | None:
    tree = syntax_tree(source)
    if tree is None:
        return None
    try:
        counter = _Counter(_own_names(tree))
        statements = tuple(counter.statements(tree.body))
    except UNREADABLE:
        return None
    return _Form(statements, counter.nodes)


def _own_names(tree: ast.Module) -> frozenset[str]:
    """Names that the answer gives to its variables and arguments; functions and classes keep theirs."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)})


class _Counter:
    """Writes statements down without names, and counts the nodes of what a student writes: the bodies."""

    IGNORED = ("annotation", "returns", "type_comment", "ctx", "kind", "decorator_list", "type_params")

    def __init__(self, own_names: frozenset[str]) -> None:
        self.own_names = own_names
        self.nodes = 0

    def statements(self, body: Sequence[ast.stmt]) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass) or (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ):
                continue
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{type(statement).__name__} {statement.name}"
                yield from self.statements(statement.body)
                continue
            inner = [getattr(statement, field, None) or [] for field in ("body", "handlers", "orelse", "finalbody")]
            yield self.text(statement, {}, skip=("body", "handlers", "orelse", "finalbody") if any(inner) else ())
            for part in inner:
                for handler in [one for one in part if isinstance(one, ast.ExceptHandler)]:
                    yield from self.statements(handler.body)
                yield from self.statements([one for one in part if isinstance(one, ast.stmt)])

    def text(self, node: ast.AST, numbers: dict[str, int], skip: Sequence[str] = ()) -> str:
        """A statement or expression; its own names are numbers in the order in which they appear in it."""
        self.nodes += 1
        if isinstance(node, ast.Name):
            return self.name(node.id, numbers)
        if isinstance(node, ast.arg):
            return self.name(node.arg, numbers)
        parts = [type(node).__name__]
        for field, value in ast.iter_fields(node):
            if field in self.IGNORED or field in skip:
                continue
            for one in value if isinstance(value, list) else [value]:
                parts.append(self.text(one, numbers) if isinstance(one, ast.AST) else repr(one))
        return f"({' '.join(parts)})"

    def name(self, name: str, numbers: dict[str, int]) -> str:
        return str(numbers.setdefault(name, len(numbers))) if name in self.own_names else name
