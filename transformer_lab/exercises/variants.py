"""Generic mistakes: small changes made to any answer's syntax tree by a few operators.

These variants recognize slips that are not in the catalog. They also test the probes: if no check notices a change,
either the function still does the same thing or the checks have a gap (mutation testing; DeMillo, Lipton, and Sayward,
1978).
"""

import ast
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from transformer_lab.exercises.edits import Edit, Wrong, bare_source
from transformer_lab.exercises.exercise import Exercise

_AXES = (-1, -2, 0, 1, 2)
_ALONG_AN_AXIS = {
    "softmax", "log_softmax", "logsumexp", "sum", "mean", "var", "std", "max", "min", "amax", "amin", "argmax",
    "argmin", "cumsum", "cumprod", "prod", "norm", "median", "sort", "argsort", "topk", "kthvalue", "all", "any",
    "flatten", "unflatten", "unsqueeze", "squeeze", "expand_dims", "transpose", "swapaxes", "flip", "size", "shape",
    "cat", "concatenate", "stack", "chunk", "split", "unbind", "narrow", "gather", "scatter", "index_select",
}  # fmt: skip
_SYMMETRIC = {"min", "max", "transpose", "swapaxes", "swapdims", "gcd", "hypot", "maximum", "minimum"}
_CONVERSIONS = {"tolist", "item", "list", "tuple", "cpu", "double", "float", "contiguous", "bool", "int"}  # types only
_FORMALITIES = ("strict", "device", "persistent", "inplace")  # arguments that don't change any result
_MODULES = {"torch", "nn", "F", "np", "math", "functional", "random", "linalg"}
_OTHER_COMPARISONS = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"), ast.Eq: ("!=",),
    ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
_OTHER_OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
_NOT_COMMUTATIVE = {ast.Sub: "-", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}

_CHANGES = {  # by slug, in the order in which they are tried
    "another_axis": "one operation runs along a different axis{where}. Check each `dim` or `axis` against the shapes "
    "in the docstring.",
    "another_constant": "one number in it is different. Compare your constants with the formula and with the defaults "
    "in the docstring.",
    "another_default": "one argument has a different default{where}. Compare your defaults with those in the notebook.",
    "another_comparison": "one condition is different: `<` instead of `<=`, for example, or the opposite case. Try the "
    "boundary case by hand.",
    "another_operator": "one arithmetic or logical operator is different. Compare each operation with the formula.",
    "inverted": "one mask or condition is inverted. In this course, masks are boolean, and True means “may attend”.",
    "missing_term": "one term or factor of the formula is missing.",
    "missing_call": "one operation is left out{where}.",
    "missing_step": "one step is left out. Go through the docstring and check off each thing it says to do.",
    "missing_argument": "an argument of one call is left out{where}, so that its default applies.",
    "swapped": "two operands or arguments are swapped{where}.",
    "another_variable": "one variable is used in place of another.",
    "off_by_one": "one range or slice is off by one. Check its first and its last element by hand.",
}
SAYS = {slug: f"Your results are exactly what `{{name}}` returns when {change}" for slug, change in _CHANGES.items()}


@dataclass(frozen=True, eq=False)
class Variant:
    """An answer with one small change."""

    slug: str  # the operator, which is a key of SAYS
    says: str  # the text for the student, which names the kind of change but not the line
    wrong: Wrong


@functools.cache
def variants_of(exercise: Exercise) -> list[Variant]:
    """Return all generic variants of an exercise's answer, without duplicates, in the order of SAYS."""
    source = _Source(bare_source(exercise.answer))
    variants: dict[str, Variant] = {}
    for slug, edit, where in _changes(exercise, source):
        wrong = Wrong(exercise, [edit], label=f"{slug} {edit.start}")
        if wrong.source != source.text and wrong.source not in variants and _is_valid(wrong.source):
            says = SAYS[slug].format(name=exercise.name, where=f" (look at `{where}`)" if where else "")
            variants[wrong.source] = Variant(slug, says, wrong)
    order = list(SAYS)
    return sorted(variants.values(), key=lambda variant: order.index(variant.slug))


def _is_valid(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


_Change = tuple[str, Edit, str]  # slug, edit, and the name to mention in the sentence, if any


class _Source:
    """An answer's source, with the positions of its syntax nodes and the names that can be mixed up."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0, *itertools.accumulate(map(len, self.lines))]
        self.variables: list[list[str]] = []  # of the current function, grouped by kind
        self.layers: list[list[str]] = []  # attributes of `self`, grouped by kind

    def start(self, node: ast.AST) -> int:
        return self._position(node.lineno, node.col_offset)

    def end(self, node: ast.AST) -> int:
        return self._position(node.end_lineno, node.end_col_offset)

    def _position(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def of(self, node: ast.AST) -> str:
        return self.text[self.start(node) : self.end(node)]

    def replaced(self, slug: str, node: ast.AST, new: str, where: str = "") -> _Change:
        return slug, Edit(self.start(node), self.end(node), new), where

    def swapped(self, first: ast.AST, second: ast.AST, where: str = "") -> _Change:
        between = self.text[self.end(first) : self.start(second)]
        return "swapped", Edit(self.start(first), self.end(second), self.of(second) + between + self.of(first)), where


def _changes(exercise: Exercise, source: _Source) -> Iterator[_Change]:
    (definition,) = (node for node in ast.parse(source.text).body if getattr(node, "name", "") == exercise.name)
    functions = [node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef)]
    source.layers = _attributes_by_kind(definition, source)
    for function in functions:
        if function.name in ("__init__", exercise.name):
            yield from _of_defaults(function.args, source)
    for function in functions:
        if exercise.blank and function.name not in exercise.blank:
            continue
        source.variables = _names_by_kind(function, source)
        for statement in function.body:
            for node in _without_validation(statement):
                if of_node := _OF_NODE.get(type(node)):
                    yield from of_node(node, source)


def _of_defaults(arguments: ast.arguments, source: _Source) -> Iterator[_Change]:
    positional = zip(arguments.args[-len(arguments.defaults) :], arguments.defaults, strict=False)
    for argument, node in [*positional, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]:
        value = getattr(node, "value", None)
        if isinstance(value, bool):
            yield source.replaced("another_default", node, str(not value), argument.arg)
        elif isinstance(value, int | float):
            yield source.replaced("another_default", node, repr(value + 1), argument.arg)


def _without_validation(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through a syntax tree, skipping annotations and code that only raises exceptions."""
    if (isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)) or isinstance(node, ast.Raise | ast.Assert):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _without_validation(child)


def _names_by_kind(function: ast.FunctionDef, source: _Source) -> list[list[str]]:
    """Return the groups of variables that can be mixed up: the parameters, and local variables created the same way."""
    arguments = [argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]]
    groups = [[name for name in arguments if name != "self"]]
    made_by: dict[str, list[str]] = {}
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.For) else []
        for target in targets:
            stored = [name.id for name in ast.walk(target) if isinstance(name, ast.Name) and name.id != "_"]
            if len(stored) > 1:
                groups.append(stored)
            elif stored and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made_by.setdefault(source.of(node.value.func), []).extend(stored)
    return [*groups, *made_by.values()]


def _attributes_by_kind(definition: ast.AST, source: _Source) -> list[list[str]]:
    """Return the groups of layers that can be mixed up: attributes of `self` created by the same constructor."""
    kinds: dict[str, list[str]] = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = [target.attr for target in node.targets if _is_attribute_of_self(target)]
            kinds.setdefault(source.of(node.value.func), []).extend(names)
    return list(kinds.values())


def _is_attribute_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _whole_number(node: ast.AST) -> int | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if type(value) is int else None


def _of_comparison(node: ast.Compare, source: _Source) -> Iterator[_Change]:
    if len(node.ops) == 1:
        left, right = source.of(node.left), source.of(node.comparators[0])
        for operator in _OTHER_COMPARISONS[type(node.ops[0])]:
            yield source.replaced("another_comparison", node, f"{left} {operator} {right}")


def _of_and_or(node: ast.BoolOp, source: _Source) -> Iterator[_Change]:
    if len(node.values) == 2:
        left, right = map(source.of, node.values)
        operator = "or" if isinstance(node.op, ast.And) else "and"
        yield source.replaced("another_operator", node, f"({left} {operator} {right})")
        yield source.replaced("missing_term", node, left)
        yield source.replaced("missing_term", node, right)


def _of_operation(node: ast.BinOp, source: _Source) -> Iterator[_Change]:
    left, right = source.of(node.left), source.of(node.right)
    yield source.replaced("missing_term", node, f"({left})")
    yield source.replaced("missing_term", node, f"({right})")
    if other := _OTHER_OPERATORS.get(type(node.op)):
        yield source.replaced("another_operator", node, f"(({left}) {other} ({right}))")
    operator = _NOT_COMMUTATIVE.get(type(node.op))
    if operator and left != right:
        yield source.replaced("swapped", node, f"(({right}) {operator} ({left}))")


def _of_negation(node: ast.UnaryOp, source: _Source) -> Iterator[_Change]:
    if not isinstance(node.operand, ast.Constant):
        slug = "missing_term" if isinstance(node.op, ast.USub) else "inverted"
        yield source.replaced(slug, node, f"({source.of(node.operand)})")


def _of_subscript(node: ast.Subscript, source: _Source) -> Iterator[_Change]:
    if not isinstance(node.ctx, ast.Load):
        return
    slices = [part for part in ast.walk(node.slice) if isinstance(part, ast.Slice)]
    for bound in (bound for part in slices for bound in (part.lower, part.upper) if bound is not None):
        yield source.replaced("off_by_one", bound, "")
        if _whole_number(bound) is None:
            yield source.replaced("off_by_one", bound, f"({source.of(bound)}) + 1")
            yield source.replaced("off_by_one", bound, f"({source.of(bound)}) - 1")
    if not isinstance(node.value, ast.Attribute):
        yield source.replaced("missing_step", node, source.of(node.value))


def _of_name(node: ast.Name, source: _Source) -> Iterator[_Change]:
    if not isinstance(node.ctx, ast.Load):
        return
    if any(word in node.id for word in ("mask", "allowed", "hidden", "finished")):
        yield source.replaced("inverted", node, f"(~{node.id})")
    for name in (name for group in source.variables if node.id in group for name in group):
        yield source.replaced("another_variable", node, name)


def _of_attribute(node: ast.Attribute, source: _Source) -> Iterator[_Change]:
    if isinstance(node.ctx, ast.Load) and _is_attribute_of_self(node):
        for name in (name for group in source.layers if node.attr in group for name in group):
            yield source.replaced("another_variable", node, f"self.{name}")


def _of_pair(node: ast.Tuple, source: _Source) -> Iterator[_Change]:
    if isinstance(node.ctx, ast.Load) and len(node.elts) == 2:
        yield source.swapped(*node.elts)


def _of_constant(node: ast.Constant, source: _Source) -> Iterator[_Change]:
    if source.text[: source.start(node)].rstrip("= ").endswith(_FORMALITIES):
        return
    value, others = node.value, ()
    if type(value) is bool:
        others = (not value,)
    elif type(value) is int:
        others = (value + 1, value - 1)
    elif type(value) is float and value:
        others = (10 * value, value / 10, 1 - value if 0 < value < 1 else -value)
    for other in others:
        yield source.replaced("another_constant", node, str(other) if other >= 0 else f"({other})")


def _of_call(node: ast.Call, source: _Source) -> Iterator[_Change]:
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    called = node.func.attr if owner else getattr(node.func, "id", "")
    named_axes = [keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis")]
    for argument in [*(node.args if called in _ALONG_AN_AXIS else []), *named_axes]:
        if _whole_number(argument) is not None:
            for axis in _AXES:
                yield source.replaced("another_axis", argument, str(axis), called)
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in _FORMALITIES:
            before = source.text[: source.start(keyword)].rstrip()
            start = len(before) - 1 if before.endswith(",") else source.start(keyword)
            yield "missing_argument", Edit(start, source.end(keyword), ""), called
    for first, second in itertools.pairwise(node.args if called not in _SYMMETRIC else []):
        if not any(isinstance(argument, ast.Starred) for argument in (first, second)):
            yield source.swapped(first, second, called)
    if called == "range":
        for argument in node.args:
            for shift in ("+ 1", "- 1"):
                yield source.replaced("off_by_one", argument, f"{source.of(argument)} {shift}")
        if len(node.args) == 1:
            yield source.replaced("off_by_one", node.args[0], f"1, {source.of(node.args[0])}")
    if called in _CONVERSIONS:
        return
    is_method = owner and getattr(owner, "id", getattr(owner, "attr", "")) not in {*_MODULES, "self"}
    if is_method and source.of(owner) != "super()":
        yield source.replaced("missing_call", node, source.of(owner), called)
    elif node.args and not called[:1].isupper() and not isinstance(node.args[0], ast.Starred):
        yield source.replaced("missing_call", node, f"({source.of(node.args[0])})", called)


def _of_step(node: ast.stmt, source: _Source) -> Iterator[_Change]:
    if not (isinstance(node, ast.Expr) and "super()" in source.of(node)):
        yield source.replaced("missing_step", node, "pass")


def _of_condition(node: ast.If | ast.While | ast.IfExp, source: _Source) -> Iterator[_Change]:
    if not isinstance(node, ast.While):
        yield source.replaced("another_comparison", node.test, "True")
        yield source.replaced("another_comparison", node.test, "False")
    if not isinstance(node.test, ast.UnaryOp | ast.Compare):
        yield source.replaced("another_comparison", node.test, f"not ({source.of(node.test)})")


def _of_assignment(node: ast.Assign, source: _Source) -> Iterator[_Change]:
    """Remove an assignment whose right-hand side also reads the variable being assigned."""
    used = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
    if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id in used:
        yield source.replaced("missing_step", node, "pass")


_OF_NODE: dict[type[ast.AST], Callable[[Any, _Source], Iterator[_Change]]] = {
    ast.Assign: _of_assignment,
    ast.Attribute: _of_attribute,
    ast.BinOp: _of_operation,
    ast.BoolOp: _of_and_or,
    ast.Call: _of_call,
    ast.Compare: _of_comparison,
    ast.Constant: _of_constant,
    ast.Name: _of_name,
    ast.Subscript: _of_subscript,
    ast.Tuple: _of_pair,
    ast.UnaryOp: _of_negation,
    **dict.fromkeys((ast.If, ast.While, ast.IfExp), _of_condition),
    **dict.fromkeys((ast.Expr, ast.AugAssign, ast.Break, ast.Continue), _of_step),
}
