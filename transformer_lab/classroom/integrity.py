"""Flag answers that an instructor should look at: library answers, the package's own parts, and similar answers.

All flags are based on syntax trees, and none of them costs any points.
"""

import ast
import inspect
import re
import textwrap
import types
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from transformer_lab.authoring.stubs import BEGIN, END, marked_answer
from transformer_lab.classroom.submissions import printable
from transformer_lab.exercises import Exercise
from transformer_lab.exercises.cells import UNREADABLE, cannot_be_analyzed, names_of, providers_of, syntax_tree
from transformer_lab.exercises.library_answers import USUAL_NAMES, is_library_answer

MAX_FLAGS = 8  # per exercise
MIN_NODES = 80  # in the syntax tree; smaller answers can be alike by chance
MIN_NODES_FOR_DIFFERENCE = 100  # in smaller answers, no statement may differ
MAX_STATEMENTS = 300
MAX_STATEMENTS_BY_CHANCE = 3  # how many may match the solution exactly, by chance or because of the hints

PACKAGE = "transformer_lab."
NEVER_NEEDED = ("transformer_lab.solution", "transformer_lab.exercises.")

# The modules of the checks. Students may redefine names from other modules.
CHECK_MODULES = ("transformer_lab", "transformer_lab.exercises")

# These run code that can't be analyzed, or inspect things that an answer has no reason to inspect. `getattr(x, "name")`
# is read as `x.name`, so only other calls of `getattr` are reported.
UNUSUAL_BUILTINS = (
    *("__builtins__", "__import__", "compile", "eval", "exec", "get_ipython", "getattr", "globals", "locals", "open"),
    "vars",
)
MAY_BIND_ANYTHING = ("exec", "globals", "locals", "vars", "%run")
UNUSUAL_MODULES = {
    *("_operator", "_pickle", "builtins", "ctypes", "gc", "importlib", "inspect", "marshal", "os", "pickle", "pkgutil"),
    *("runpy", "shelve", "signal", "socket", "subprocess", "sys"),
}
UNUSUAL_FUNCTIONS = {
    *("numpy.load", "operator.*", "operator.attrgetter", "operator.methodcaller", "pandas.eval", "pandas.read_pickle"),
    "torch.load",
}

# Libraries contain other modules, as in `torch.serialization.pickle`, and all of their own names: `torch.__dict__`.
# However, `torch.signal` and `scipy.signal` are parts of those libraries.
UNUSUAL_IN_LIBRARIES = UNUSUAL_MODULES - {"signal"} | {"__builtins__", "__dict__"}

# Torch has internal versions of its functions: `torch.ops.aten.softmax`, `torch._C._nn`, `torch._softmax`.
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
    """Return the flags for one answer, such as "line 4 uses `torch.nn.functional.softmax`".

    Args:
        exercise: The exercise. It lists the library answers and the parts of the package that it builds on.
        source: The student's cell.
        own_cells: Cells that the student added. They may contain helpers.
        course_cells: The course's own cells that are run. Their imports are needed.
        answers: The cells of all exercises, by name. They may also contain helpers.
    """
    theirs = _imports(course_cells)
    known = _known_names(source, [*own_cells, *answers.values()], theirs)
    allowed = {f"transformer_lab.mine.{name}" for name in exercise.builds_on} | set(theirs.values())
    flags = _solution_flags(exercise, source)
    for cell in [source, *_needed(source, own_cells, answers, known)]:
        where, subject = ("", "it") if cell == source else (" of another cell", "another cell")
        if cannot_be_analyzed(cell):
            flags.append(f"{subject} cannot be read as Python")
        for line, alias, full in names_of(cell).imported:
            if alias == exercise.name and theirs.get(alias) != full:
                flags.append(f"line {line}{where} imports the answer: `{printable(full)}`")
        flags += [f"line {line}{where} {what}" for line, what in _suspicious_lines(cell, exercise, known, allowed)]
    flags += [f"it {action}" for action in interference(source, course_cells)]
    flags = list(dict.fromkeys(flags))
    more = [f"and {len(flags) - MAX_FLAGS} more"] if len(flags) > MAX_FLAGS else []
    return (*flags[:MAX_FLAGS], *more)


def _suspicious_lines(
    cell: str, exercise: Exercise, known: Mapping[str, str], allowed: set[str]
) -> Iterator[tuple[int, str]]:
    """Yield the lines that run or use something suspicious: `4, "uses `torch.nn.functional.softmax`"`."""
    for line, command in names_of(cell).commands:
        yield line, f"runs `{command}`"
    lines_with_use = set()
    for line, name in _uses(cell, known):
        if is_library_answer(name, exercise.banned) or _is_unusual(name):
            reason = ""
        elif name.startswith(PACKAGE) and not _is_allowed(name, allowed, exercise):
            reason = ", which the exercise does not build on"
        else:
            continue
        lines_with_use.add(line)
        yield line, f"uses `{printable(name)}`{reason}"
    for line, name in _banned_strings(cell, exercise.banned):
        if line not in lines_with_use:
            yield line, f"contains the text `{name}`"


def _imports(cells: Iterable[str]) -> dict[str, str]:
    """Return the full name of each alias in any of the cells."""
    return {alias: full for cell in cells for alias, full in names_of(cell).imports.items()}


def _known_names(source: str, own_cells: Sequence[str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the full name of each alias in the student's cells, given the course's imports."""
    known = {**USUAL_NAMES, **{name: name for name in UNUSUAL_BUILTINS}, **theirs}
    for cell in [*own_cells, source]:
        for name in names_of(cell).definitions:
            known.pop(name, None)  # the student's own function of that name
        known |= names_of(cell).imports
    for cell in [*own_cells, source]:
        for alias, (base, attributes) in names_of(cell).aliases.items():
            if base in known and alias != base:
                known[alias] = ".".join([known[base], *attributes])
    return known


def _needed(source: str, own_cells: Sequence[str], answers: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Return the cells that define names the answer uses (even indirectly) and the cells that could define any name.

    Another exercise's cell is included only for its helpers, not for its answer or its imports.
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
    """Return whether a cell can affect any answer.

    It can do so by binding names that its text does not contain or by changing a library. Examples are
    `from module import *`, `exec(...)`, and `torch.Tensor.normal = torch.Tensor.softmax`.
    """
    names = names_of(source)
    ways = {name for _, name, _ in names.uses} | {command for _, command in names.commands}
    return "*" in names.imports or not ways.isdisjoint(MAY_BIND_ANYTHING) or not names.changes.isdisjoint(known)


def _uses(source: str, known: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return what a cell uses from libraries and the package, as pairs of line number and full name.

    For other objects, only the attribute is known: `.softmax` for `scores.softmax`.
    """
    names = names_of(source)
    used = [(line, ".".join([known.get(name, ""), *attributes])) for line, name, attributes in names.uses]
    return sorted([*used, *((line, full) for line, alias, full in names.imported if alias == "*")])


def _banned_strings(source: str, banned: Iterable[str]) -> list[tuple[int, str]]:
    """Return string constants that equal a banned name, each with its line, as in `methodcaller("softmax")`."""
    tree = syntax_tree(source)
    answers = {answer.rpartition(".")[2] for answer in banned} - {""}
    nodes = list(ast.walk(tree)) if tree else []
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, node.value) for node in texts if node.value in answers and id(node) not in docstrings]


def _is_unusual(name: str) -> bool:
    root, *attributes = name.split(".")
    harmless = root in ("os", "sys") and (not attributes or attributes[0] in ("path", "float_info", "maxsize"))
    unusual = root in UNUSUAL_BUILTINS or (root in UNUSUAL_MODULES and not harmless)
    inside = "__getattribute__" in attributes or (root and not UNUSUAL_IN_LIBRARIES.isdisjoint(attributes))
    return unusual or inside or name in UNUSUAL_FUNCTIONS or _INSIDE_TORCH.fullmatch(name) is not None


def _is_allowed(name: str, allowed: set[str], exercise: Exercise) -> bool:
    """Return whether the exercise builds on `name`, or whether the course imports `name` and it is not the answer."""
    last = name.rpartition(".")[2]
    if name.startswith(NEVER_NEEDED) or last == exercise.name:
        return False
    return last in exercise.builds_on or any(name == known or name.startswith(f"{known}.") for known in allowed)


def interference(source: str, course_cells: Sequence[str]) -> list[str]:
    """Return attempts to change the checks or the package, such as "replaces `check`". They cost no points."""
    names, theirs = names_of(source), _imports(course_cells)
    known = _known_names(source, [], theirs)
    replaced = [
        name
        for name in sorted(names.binds & set(theirs))
        if theirs[name].rpartition(".")[0] in CHECK_MODULES and names.imports.get(name) != theirs[name]
    ]
    changed = [known[name] for name in sorted(names.changes & names.reads & set(known))]
    opens = any(name.rpartition(".")[2] in _OPENS for _, name in _uses(source, known))
    return [
        *(f"replaces `{name}`" for name in replaced),
        *(f"writes into `{printable(full)}`" for full in changed if f"{full}.".startswith(PACKAGE)),
        *(["opens a file of the package"] if opens and _has_path_of_package(source) else []),
    ]


def _has_path_of_package(source: str) -> bool:
    """Return whether a string contains a path into the package, or the code asks for a module's path."""
    texts = (text for line in source.split("\n") for text in re.split("[\"']", line)[1:-1])  # the parts between quotes
    return any("transformer_lab" in text for text in texts) or _PATH_OF_PACKAGE.search(source) is not None


# --- the course's own solution ---------------------------------------------------------------------------------------


def _solution_flags(exercise: Exercise, source: str) -> list[str]:
    """Return a flag if the answer is the course's own, or contains a marker from its solutions."""
    markers = [marker for marker in (BEGIN, END) if marker in source]
    ours = _students_part(exercise)
    comments = _comments(ours)
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(ours)))
    exceeds_chance = markers or statements > MAX_STATEMENTS_BY_CHANCE or (comments and comments <= _comments(source))
    if exceeds_chance and _is_solution_text(exercise, source):
        return ["it is identical to the course's own solution"]
    if markers:
        return [f"it contains `{markers[0]}`, a marker from the course's own solution"]
    form = _form(source)
    is_like_ours = form is not None and form.nodes >= MIN_NODES and form == _form(_answer_text(exercise))
    return ["except for names and comments, it is the course's own answer"] if is_like_ours else []


@lru_cache
def _answer_text(exercise: Exercise) -> str:
    return textwrap.dedent(inspect.getsource(exercise.answer))


@lru_cache
def _students_part(exercise: Exercise) -> str:
    """Return the code that students write. The notebook provides the rest."""
    marked = marked_answer(exercise.answer, exercise.blank)
    return "\n".join(map(textwrap.dedent, re.findall(rf"{BEGIN}\n(.*?)\n *{END}", marked, re.DOTALL)))


def _comments(text: str) -> set[str]:
    """Return the text after the last `#` in each line, which is a comment or, sometimes, the end of a string."""
    return {line.rpartition("#")[2].strip() for line in text.split("\n") if "#" in line}


def _is_solution_text(exercise: Exercise, source: str) -> bool:
    """Return whether the body of a definition equals the package's, ignoring comments, docstrings, and annotations."""
    tree = syntax_tree(source)
    kind = ast.ClassDef if exercise.blank else ast.FunctionDef
    try:
        defined = [node for node in ast.walk(tree) if isinstance(node, kind)] if tree else []
        return any(_body(node) == _solution_body(exercise) for node in defined)
    except UNREADABLE:
        return False


@lru_cache
def _solution_body(exercise: Exercise) -> tuple[str, ...]:
    return _body(ast.parse(_answer_text(exercise)).body[0])


def _body(definition: ast.FunctionDef | ast.ClassDef) -> tuple[str, ...]:
    return tuple(_StatementWriter(anonymous=()).statements(definition.body))


# --- similar answers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """An answer stripped of names, comments, docstrings, annotations, and imports."""

    statements: tuple[str, ...]
    nodes: int

    def partial_hashes(self) -> Iterator[int]:
        """Yield hashes. Two answers share a hash if removing at most one statement from each makes them equal."""
        yield hash(self.statements)
        if self.nodes >= MIN_NODES_FOR_DIFFERENCE and len(self.statements) <= MAX_STATEMENTS:
            for index in range(len(self.statements)):
                yield hash(self.statements[:index] + self.statements[index + 1 :])


def similar(answers: Iterable[tuple[str, str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return groups of students whose answers to an exercise are nearly the same, as `(exercise, students)`.

    Variable names, comments, docstrings, annotations, and imports may differ. In larger answers, one statement may
    differ, too. Small answers are ignored.

    Args:
        answers: Tuples `(student, exercise, source)`.
    """
    students: dict[str, dict[_Form, set[str]]] = defaultdict(lambda: defaultdict(set))
    for student, exercise, source in answers:
        form = _form(source)
        if form is not None and form.nodes >= MIN_NODES:
            students[exercise][form].add(student)
    groups = []
    for exercise, of_form in students.items():
        for forms in _connected(of_form):
            together = set().union(*(of_form[form] for form in forms))
            if len(together) > 1:
                groups.append((exercise, tuple(sorted(together))))
    return groups


def _connected(forms: Iterable[_Form]) -> list[set[_Form]]:
    """Return groups of forms that share hashes, directly or through other forms."""
    with_hash: dict[int, list[_Form]] = defaultdict(list)
    for form in forms:
        for each in form.partial_hashes():
            with_hash[each].append(form)
    group_of = {form: {form} for form in forms}
    for sharing in with_hash.values():
        if len(sharing) > 1:
            group = set().union(*(group_of[form] for form in sharing))
            group_of |= dict.fromkeys(group, group)
    return list({id(group): group for group in group_of.values()}.values())


def _form(source: str) -> _Form | None:
    tree = syntax_tree(source)
    if tree is None:
        return None
    try:
        writer = _StatementWriter(_own_names(tree))
        return _Form(tuple(writer.statements(tree.body)), writer.nodes)
    except UNREADABLE:
        return None


def _own_names(tree: ast.Module) -> set[str]:
    """Return the names of variables and arguments. Functions and classes keep their names."""
    return {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }


class _StatementWriter:
    """Writes statements without docstrings, comments, annotations, imports, and some names, and counts their nodes."""

    IGNORED = ("annotation", "returns", "type_comment", "ctx", "kind", "decorator_list", "type_params")
    BLOCKS = ("body", "handlers", "orelse", "finalbody")

    def __init__(self, anonymous: Collection[str]) -> None:
        self.anonymous, self.nodes = anonymous, 0

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
        """Write a statement or expression, numbering the anonymous names in order of appearance."""
        self.nodes += 1
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            return str(numbers.setdefault(name, len(numbers))) if name in self.anonymous else name
        parts = [type(node).__name__]
        for field, value in ast.iter_fields(node):
            if field not in self.IGNORED and field not in skip:
                for part in value if isinstance(value, list) else [value]:
                    parts.append(self.text(part, numbers) if isinstance(part, ast.AST) else repr(part))
        return f"({' '.join(parts)})"
