"""Generic mistakes: small changes that a few operators make to the syntax tree of any answer.

They recognize slips that nobody wrote down, and they test the probes: a change that no check notices is either the same
function or a hole in the checks (mutation testing; DeMillo, Lipton, and Sayward, 1978).
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
    "softmax",
    "log_softmax",
    "sum",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "sort",
    "argsort",
    "topk",
    "flatten",
    "unflatten",
    "unsqueeze",
    "squeeze",
    "transpose",
    "swapaxes",
    "size",
    "cat",
    "stack",
    "gather",
    "scatter",
    "index_select",
    "flip",
    "all",
    "any",
    "concatenate",
    "expand_dims",
    "logsumexp",
    "chunk",
    "split",
    "unbind",
    "narrow",
    "prod",
    "norm",
    "median",
    "kthvalue",
    "shape",
}
_SYMMETRIC = {"min", "max", "transpose", "swapaxes", "swapdims", "gcd", "hypot", "maximum", "minimum"}
_CONVERSIONS = {"tolist", "item", "list", "tuple", "cpu", "double", "float", "contiguous", "bool", "int"}  # types only
_FORMALITIES = {"strict", "device", "persistent", "inplace"}  # arguments that no result shows
_MODULES = {"torch", "nn", "F", "np", "math", "functional", "random", "linalg"}
_BORDERS = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"), ast.Eq: ("!=",),
    ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",), ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
_OTHER_OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip

_SEEN = "Your results are exactly what `{name}` gives when "
SAYS = {
    "another_axis": _SEEN + "one operation runs along a different axis{where}. Check each `dim` or `axis` against the "
    "shapes in the docstring.",
    "another_constant": _SEEN + "one number in it is different. Compare your constants with the formula and with the "
    "defaults in the docstring.",
    "another_default": _SEEN + "one argument has another default{where}. Compare your defaults with those in the "
    "notebook.",
    "another_comparison": _SEEN + "one condition is different: `<` where `<=` belongs, for example, or the opposite "
    "case. Try the boundary case by hand.",
    "another_operator": _SEEN
    + "one arithmetic or logical operator is a different one. Compare each operation with the "
    "formula.",
    "inverted": _SEEN + "one mask or condition is inverted. Masks are boolean here, and True means “may attend”.",
    "missing_term": _SEEN + "one term or factor of the formula is missing.",
    "missing_call": _SEEN + "one operation is left out{where}.",
    "missing_step": _SEEN + "one of its steps is left out. Walk through the docstring and tick off each thing it asks "
    "for.",
    "missing_argument": _SEEN + "an argument of one call is left out{where}, so that its default applies.",
    "swapped": _SEEN + "two operands or arguments are swapped{where}.",
    "another_variable": _SEEN + "one variable is used where another one belongs.",
    "off_by_one": _SEEN + "one range or slice is off by one. Check its first and its last element by hand.",
}


@dataclass(frozen=True, eq=False)
class Variant:
    """An answer with one small change."""

    operator: str  # a key of SAYS
    says: str  # the sentence for the student: what was seen, but not which line it is
    wrong: Wrong


@functools.cache
def variants_of(exercise: Exercise) -> list[Variant]:
    """Return all generic variants of an exercise's answer, each different text once, those that occur most first."""
    source = bare_source(exercise.answer)
    positions = _Positions(source)
    seen = {source}
    variants = []
    for operator, start, end, new, where in _changes(exercise, source, positions):
        wrong = Wrong(exercise, [Edit(start, end, new)], label=f"{operator} {start}")
        if wrong.source in seen or not _is_valid(wrong.source):
            continue
        seen.add(wrong.source)
        says = SAYS[operator].format(name=exercise.name, where=f" (look at `{where}`)" if where else "")
        variants.append(Variant(operator, says, wrong))
    order = list(SAYS)
    return sorted(variants, key=lambda variant: order.index(variant.operator))


def _is_valid(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


class _Positions:
    """Character positions of syntax nodes in a source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0, *itertools.accumulate(map(len, self.lines))]

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())


_Change = tuple[str, int, int, str, str]  # operator, start, end, new text, what to name


@dataclass(frozen=True)
class _Groups:
    """Names that can be mixed up with the others of their group."""

    variables: list[list[str]]
    layers: list[list[str]]  # attributes of `self`


def _changes(exercise: Exercise, source: str, at: _Positions) -> Iterator[_Change]:
    tree = ast.parse(source)
    (definition,) = (node for node in tree.body if getattr(node, "name", "") == exercise.name)
    functions = [node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef)]
    if exercise.blank:
        functions = [function for function in functions if function.name in exercise.blank]
    layers = _attributes_by_kind(definition, at)
    yield from _of_defaults(definition, at)
    for function in functions:
        groups = _Groups(_names_by_kind(function, at), layers)
        for statement in function.body:
            for node in _without_validation(statement):
                if of_expression := _OF_EXPRESSION.get(type(node)):
                    yield from of_expression(node, at, groups)
                yield from _of_statement(node, at)


def _of_defaults(definition: ast.FunctionDef | ast.ClassDef, at: _Positions) -> Iterator[_Change]:
    """Change the defaults of a function, or of a class's constructor."""
    if isinstance(definition, ast.ClassDef):
        constructors = [node for node in definition.body if getattr(node, "name", "") == "__init__"]
        arguments = [one.args for one in constructors]
    else:
        arguments = [definition.args]
    pairs = []
    for one in arguments:
        pairs += zip(one.args[len(one.args) - len(one.defaults) :], one.defaults, strict=True)
        pairs += zip(one.kwonlyargs, one.kw_defaults, strict=True)
    for name, node in pairs:
        value = getattr(node, "value", None)
        if isinstance(value, bool):
            yield "another_default", *at.span(node), str(not value), name.arg
        elif isinstance(value, int | float):
            yield "another_default", *at.span(node), repr(value + type(value)(1)), name.arg


def _without_validation(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through a syntax tree, past annotations and whatever only leads to an exception."""
    if (isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)) or isinstance(node, ast.Raise | ast.Assert):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _without_validation(child)


def _names_by_kind(function: ast.FunctionDef, at: _Positions) -> list[list[str]]:
    """Return the groups of variables that can be mixed up: the parameters, and local variables made the same way."""
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
                made_by.setdefault(at.text(node.value.func), []).extend(stored)
    return [list(dict.fromkeys(group)) for group in [*groups, *made_by.values()] if len(set(group)) > 1]


def _attributes_by_kind(definition: ast.AST, at: _Positions) -> list[list[str]]:
    """Return the attributes of `self` that are made by the same constructor: the layers that can be mixed up."""
    kinds: dict[str, list[str]] = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    kinds.setdefault(at.text(node.value.func), []).append(target.attr)
    return [names for names in kinds.values() if len(names) > 1]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _whole_number(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if type(value) is int else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _of_comparison(node: ast.Compare, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    if len(node.ops) == 1:
        left, right = at.text(node.left), at.text(node.comparators[0])
        for operator in _BORDERS[type(node.ops[0])]:
            yield "another_comparison", *at.span(node), f"{left} {operator} {right}", ""


def _of_and_or(node: ast.BoolOp, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    if len(node.values) == 2:
        left, right = map(at.text, node.values)
        operator = "or" if isinstance(node.op, ast.And) else "and"
        yield "another_operator", *at.span(node), f"({left} {operator} {right})", ""
        yield "missing_term", *at.span(node), left, ""
        yield "missing_term", *at.span(node), right, ""


def _of_operation(node: ast.BinOp, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    left, right = at.text(node.left), at.text(node.right)
    yield "missing_term", *at.span(node), f"({left})", ""
    yield "missing_term", *at.span(node), f"({right})", ""
    if type(node.op) in _OTHER_OPERATORS:
        yield "another_operator", *at.span(node), f"(({left}) {_OTHER_OPERATORS[type(node.op)]} ({right}))", ""
    sign = {ast.Sub: "-", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}.get(type(node.op))
    if sign and left != right:
        yield "swapped", *at.span(node), f"(({right}) {sign} ({left}))", ""


def _of_negation(node: ast.UnaryOp, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    operator = "missing_term" if isinstance(node.op, ast.USub) else "inverted"
    if not isinstance(node.operand, ast.Constant):
        yield operator, *at.span(node), f"({at.text(node.operand)})", ""


def _of_subscript(node: ast.Subscript, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    if not isinstance(node.ctx, ast.Load):
        return
    slices = [part for part in ast.walk(node.slice) if isinstance(part, ast.Slice)]
    for bound in (bound for part in slices for bound in (part.lower, part.upper) if bound is not None):
        yield "off_by_one", *at.span(bound), "", ""
        if _whole_number(bound) is None:
            yield "off_by_one", *at.span(bound), f"({at.text(bound)}) + 1", ""
            yield "off_by_one", *at.span(bound), f"({at.text(bound)}) - 1", ""
    if not isinstance(node.value, ast.Attribute):
        yield "missing_step", *at.span(node), at.text(node.value), ""


def _of_name(node: ast.Name, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    if not isinstance(node.ctx, ast.Load):
        return
    if any(word in node.id for word in ("mask", "allowed", "hidden", "finished")):
        yield "inverted", *at.span(node), f"(~{node.id})", ""
    for group in groups.variables:
        for name in group if node.id in group else []:
            yield "another_variable", *at.span(node), name, ""


def _of_attribute(node: ast.Attribute, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
    if isinstance(node.ctx, ast.Load) and is_own:
        for group in groups.layers:
            for name in group if node.attr in group else []:
                if name != node.attr:
                    yield "another_variable", *at.span(node), f"self.{name}", ""


def _of_pair(node: ast.Tuple, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    if isinstance(node.ctx, ast.Load) and len(node.elts) == 2:
        first, second = node.elts
        swapped = f"{at.text(second)}, {at.text(first)}"
        yield "swapped", at.span(first)[0], at.span(second)[1], swapped, ""


def _of_constant(node: ast.Constant, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    argument = at.source[: at.span(node)[0]].rstrip("= ")
    if argument.endswith(tuple(_FORMALITIES)):
        return
    if type(node.value) is bool:
        yield "another_constant", *at.span(node), str(not node.value), ""
    elif type(node.value) is int:
        for other in dict.fromkeys((node.value + 1, node.value - 1)):
            yield "another_constant", *at.span(node), str(other) if other >= 0 else f"({other})", ""
    elif type(node.value) is float:
        others = (10 * node.value, node.value / 10, 1 - node.value if 0 < node.value < 1 else -node.value)
        for other in others if node.value else ():
            yield "another_constant", *at.span(node), str(other) if other >= 0 else f"({other})", ""


def _of_call(node: ast.Call, at: _Positions, groups: _Groups) -> Iterator[_Change]:
    called = _called(node)
    values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis"))]
    for value in values:
        number = _whole_number(value)
        named = value not in node.args
        if number is not None and (named or called in _ALONG_AN_AXIS):
            for axis in _AXES:
                if axis != number:
                    yield "another_axis", *at.span(value), str(axis), called
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in _FORMALITIES:
            start, end = at.span(keyword)
            before = at.source[:start].rstrip()
            start, end = (len(before) - 1, end) if before.endswith(",") else (start, end)
            yield "missing_argument", start, end, "", called
    for first, second in itertools.pairwise(node.args if called not in _SYMMETRIC else []):
        if not any(isinstance(argument, ast.Starred) for argument in (first, second)):
            gap = at.source[at.span(first)[1] : at.span(second)[0]]
            yield "swapped", at.span(first)[0], at.span(second)[1], at.text(second) + gap + at.text(first), called
    if called == "range":
        for argument in node.args:
            for more in ("+ 1", "- 1"):
                yield "off_by_one", *at.span(argument), f"{at.text(argument)} {more}", ""
        if len(node.args) == 1:
            yield "off_by_one", *at.span(node.args[0]), f"1, {at.text(node.args[0])}", ""
    if called in _CONVERSIONS:
        return
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    is_method = owner is not None and not (isinstance(owner, ast.Name) and owner.id in {*_MODULES, "self"})
    is_method = is_method and not (isinstance(owner, ast.Attribute) and owner.attr in _MODULES)
    if is_method and at.text(owner) != "super()":
        yield "missing_call", *at.span(node), at.text(owner), called
    elif node.args and not called[:1].isupper() and not isinstance(node.args[0], ast.Starred):
        yield "missing_call", *at.span(node), f"({at.text(node.args[0])})", called


_OF_EXPRESSION: dict[type[ast.AST], Callable[[Any, _Positions, _Groups], Iterator[_Change]]] = {
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
}


def _of_statement(node: ast.AST, at: _Positions) -> Iterator[_Change]:
    is_constructor = isinstance(node, ast.Expr) and "super()" in at.text(node)
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Break | ast.Continue) and not is_constructor:
        yield "missing_step", *at.span(node), "pass", ""
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        for value in ("True", "False"):
            if not isinstance(node, ast.While):
                yield "another_comparison", *at.span(node.test), value, ""
        if not isinstance(node.test, ast.UnaryOp | ast.Compare):
            yield "another_comparison", *at.span(node.test), f"not ({at.text(node.test)})", ""
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node.value)):
            yield "missing_step", *at.span(node), "pass", ""
