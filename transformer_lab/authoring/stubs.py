"""An answer without its bodies is what the student starts from. Both are made from the source of the package."""

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Sequence

# nbgrader puts the same lines there, so that its assignments and the notebooks of this course are alike.
EMPTY_BODY = ("# YOUR CODE HERE", "raise NotImplementedError()")
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def stub(answer: Callable, blank: Sequence[str] = ()) -> str:
    """The student's version of `answer`: decorators, signature and docstring stay, the body is to be written.

    Args:
        answer: A function or a class of the package.
        blank: For a class, the methods whose bodies the student writes. The others stay as they are.

    Raises:
        ValueError: `blank` does not fit: a class without it, a function with it, a method that is not there.
    """
    return stub_source(_source(answer), answer.__name__, blank)


def stub_source(source: str, name: str, blank: Sequence[str] = ()) -> str:
    """`source`, a module or a part of one, with the bodies of `name` taken out as in `stub`. All else stays."""
    for start, end, indent in reversed(_bodies(source, name, blank)):
        source = source[:start] + "\n".join(indent + line for line in EMPTY_BODY) + source[end:]
    return source


def marked_answer(answer: Callable, blank: Sequence[str] = ()) -> str:
    """The source of `answer`, each body that `stub` would take out between the two marks that nbgrader looks for."""
    source = _source(answer)
    for start, end, indent in reversed(_bodies(source, answer.__name__, blank)):
        source = f"{source[:start]}{indent}{BEGIN}\n{source[start:end]}\n{indent}{END}{source[end:]}"
    return source


def _source(answer: Callable) -> str:
    return textwrap.dedent(inspect.getsource(answer)).strip("\n")


def _bodies(source: str, name: str, blank: Sequence[str]) -> list[tuple[int, int, str]]:
    """Where the bodies stand: `(start, end, indent)`, from the line after the docstring to the end of the last line."""
    definitions = [node for node in ast.parse(source).body if getattr(node, "name", None) == name]
    if not definitions:
        raise ValueError(f"the source holds no function or class `{name}`")
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
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    return [_body(function, lines, offsets) for function in functions]


def _body(function: ast.FunctionDef, lines: list[str], offsets: list[int]) -> tuple[int, int, str]:
    documented = ast.get_docstring(function) is not None
    head_end = function.body[0].end_lineno if documented else _signature_end(function, lines)
    if function.body[-1].end_lineno <= head_end:
        raise ValueError(f"`{function.name}` has nothing to write: its body must start on a line of its own")
    indent = " " * function.body[0].col_offset
    first, last = head_end, function.body[-1].end_lineno  # lines [first, last), counted from 0
    while not lines[first].strip():
        first += 1
    while last < len(lines) and lines[last].startswith(indent + "#"):  # a closing comment belongs to the answer
        last += 1
    return offsets[first], offsets[last] - lines[last - 1].endswith("\n"), indent


def _signature_end(function: ast.FunctionDef, lines: list[str]) -> int:
    """The line on which the colon of the signature stands, counted from 1."""
    depth = 0
    text = "".join(lines[function.lineno - 1 :])
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        if token.type == tokenize.OP and token.string == ":" and depth == 0:
            return function.lineno - 1 + token.start[0]
    raise AssertionError("a function that was parsed has a colon")
