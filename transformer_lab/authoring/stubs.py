"""Generate stubs for students to fill in, and answers with nbgrader's markers, from the package's source."""

import ast
import inspect
import io
import textwrap
from collections.abc import Callable, Sequence
from itertools import accumulate

# nbgrader's lines for an empty body, and its markers around a solution.
EMPTY_BODY = ("# YOUR CODE HERE", "raise NotImplementedError()")
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def stub(answer: Callable, blank: Sequence[str] = ()) -> str:
    """Return the student's version of `answer`, with its decorators, signature, and docstring but an empty body.

    Args:
        answer: A function or a class of the package.
        blank: For a class, the methods whose bodies the student writes. Other methods are kept.

    Raises:
        ValueError: `answer` is a class, and `blank` is empty or names a missing method. Also raised if `answer` is a
            function and `blank` is not empty.
    """
    return stub_source(_source(answer), answer.__name__, blank)


def stub_source(source: str, name: str, blank: Sequence[str] = ()) -> str:
    """Empty the body (or bodies) of `name`, as `stub` does. `source` is a module or part of one."""
    for start, end, indent in reversed(_bodies(source, name, blank)):
        source = source[:start] + "\n".join(indent + line for line in EMPTY_BODY) + source[end:]
    return source


def marked_answer(answer: Callable, blank: Sequence[str] = ()) -> str:
    """Return the source of `answer`, with nbgrader's markers around each body that `stub` would empty."""
    source = _source(answer)
    for start, end, indent in reversed(_bodies(source, answer.__name__, blank)):
        source = f"{source[:start]}{indent}{BEGIN}\n{source[start:end]}\n{indent}{END}{source[end:]}"
    return source


def _source(answer: Callable) -> str:
    return textwrap.dedent(inspect.getsource(answer)).strip("\n")


def _bodies(source: str, name: str, blank: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return `(start, end, indent)` of each body, from the line after the docstring to the end of the last line."""
    definitions = [node for node in ast.parse(source).body if getattr(node, "name", None) == name]
    if not definitions:
        raise ValueError(f"the source has no function or class `{name}`")
    answer = definitions[-1]
    if isinstance(answer, ast.ClassDef):
        methods = {node.name: node for node in answer.body if isinstance(node, ast.FunctionDef)}
        missing = [method for method in blank if method not in methods]
        if missing or not blank:
            asked = f"no method `{missing[0]}`" if missing else "no method to leave blank"
            raise ValueError(f"class `{name}`: {asked}; it has {', '.join(methods) or 'none'}")
        functions = [methods[method] for method in methods if method in blank]
    elif blank:
        raise ValueError(f"`{name}` is a function: its whole body is blank, it has no methods {', '.join(blank)}")
    else:
        functions = [answer]

    lines = list(io.StringIO(source))
    offsets = list(accumulate(map(len, lines), initial=0))
    return [_body(function, lines, offsets) for function in functions]


def _body(function: ast.FunctionDef, lines: list[str], offsets: list[int]) -> tuple[int, int, str]:
    start = function.body[0]
    if ast.get_docstring(function) is not None:
        head_end = start.end_lineno
    else:
        head_end = min(node.lineno for node in (start, *getattr(start, "decorator_list", ()))) - 1
        while lines[head_end - 1].strip()[:1] in ("", "#"):  # a leading comment is part of the answer
            head_end -= 1
    if function.body[-1].end_lineno <= head_end or lines[start.lineno - 1][: start.col_offset].strip():
        raise ValueError(f"`{function.name}` has nothing to write: its body must start on a line of its own")
    indent = " " * start.col_offset
    first, last = head_end, function.body[-1].end_lineno  # lines [first, last), counted from 0
    while not lines[first].strip():
        first += 1
    while last < len(lines) and lines[last].startswith(indent + "#"):  # a trailing comment is part of the answer
        last += 1
    return offsets[first], offsets[last] - lines[last - 1].endswith("\n"), indent
