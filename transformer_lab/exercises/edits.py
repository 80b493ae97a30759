"""Create wrong versions of an answer by editing its source.

An edit replaces a piece of the answer's *bare source*, which is the whole definition without docstrings and comments.
Edits that do not overlap can be applied together, so a combination of two mistakes does not need its own code.
"""

import ast
import functools
import inspect
import io
import itertools
import linecache
import math
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.time_limit import OutOfTime

MOST_ITERATIONS = 2_000  # limit for all loops in one call; the answers need at most about 300
NOT_FOUND = "this fragment does not occur"
_file_numbers = itertools.count(1)


class EditError(ValueError):
    """Raised if an edit does not fit the source. The message says why."""


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters from `start` to `end` (exclusive) with `new`."""

    start: int
    end: int
    new: str

    def overlaps(self, other: "Edit") -> bool:
        """Return whether the two edits change the same characters or insert text at the same position."""
        return (self.start < other.end and other.start < self.end) or (
            self.start == other.start and self.end in (self.start, other.end)
        )


@functools.cache
def bare_source(answer: Callable) -> str:
    """Return the source of a function or class without docstrings, comments, and blank lines."""
    return without_comments(textwrap.dedent(inspect.getsource(answer)))


def without_comments(source: str) -> str:
    """Return Python source without docstrings, comments, and blank lines.

    Raises:
        SyntaxError: `source` is not valid Python.
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        can_have_docstring = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module)
        if can_have_docstring and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)
            if len(node.body) == 1:
                lines[first.lineno - 1] = " " * first.col_offset + "..."
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def bare_or_none(source: str) -> str | None:
    """Return a student's source without comments. If it is empty or cannot be parsed, return None."""
    try:
        return without_comments(textwrap.dedent(source)) if source.strip() else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None


def find(source: str, fragment: str, times: int = 1) -> list[tuple[int, int]]:
    """Return the `(start, end)` of each occurrence of `fragment`, regardless of the whitespace between its tokens.

    Raises:
        EditError: The fragment does not occur exactly `times` times.
    """
    lexemes = re.findall(r"(\w+)|([^\w\s])", fragment)
    if not lexemes:
        raise EditError("the fragment is empty")
    pattern = r"\s*".join(rf"\b{word}\b" if word else re.escape(sign) for word, sign in lexemes)
    spans = [match.span() for match in re.finditer(pattern, source)]
    if len(spans) != times:
        occurs, expected = ("once" if count == 1 else f"{count} times" for count in (len(spans), times))
        raise EditError(f"this fragment occurs {occurs}, but the entry says {expected}" if spans else NOT_FOUND)
    return spans


def replacements(source: str, fragment: str, new: str, times: int = 1) -> list[Edit]:
    """Return the edits that replace `fragment` with `new`.

    All lines of `new` except the first are indented to match.
    """
    edits = []
    for start, end in find(source, fragment, times):
        line = source[source.rfind("\n", 0, start) + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        edits.append(Edit(start, end, textwrap.indent(new, indent, lambda _: True)[len(indent) :] if new else ""))
    return edits


def edited(source: str, edits: Iterable[Edit]) -> str:
    """Return `source` with all `edits` applied and blank lines removed."""
    for edit in sorted(edits, reverse=True):
        source = source[: edit.start] + edit.new + source[edit.end :]
    return "\n".join(line for line in source.split("\n") if line.strip()) + "\n"


class Wrong:
    """A wrong version of an exercise's answer, given as edits to its source or as a complete source."""

    def __init__(self, exercise: Exercise, edits: Iterable[Edit] = (), source: str = "", label: str = "") -> None:
        self.exercise = exercise
        self.edits = tuple(sorted(edits))
        self.source = source or edited(bare_source(exercise.answer), self.edits)
        self.label = label

    @functools.cached_property
    def subject(self) -> Any:
        """The function or class that the source defines.

        Raises:
            SyntaxError: The edited source is not valid Python.
            Exception: The definition fails when it is run.
        """
        file = f"<{self.exercise.name} {self.label} {next(_file_numbers)}>"
        tree = ast.parse(self.source)
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
        own = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == self.exercise.name]
        for name, nodes in (("_iteration", loops), ("_first_iteration", own)):
            for node in nodes:
                call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
                node.body.insert(0, ast.copy_location(call, node))
        linecache.cache[file] = len(self.source), None, self.source.splitlines(keepends=True), file
        names = {
            **_names(self.exercise.answer),
            "__name__": f"mistakes.{self.exercise.name}",
            "_iteration": iterations.count,
            "_first_iteration": iterations.start,
        }
        exec(compile(ast.fix_missing_locations(tree), file, "exec"), names)
        return names[self.exercise.name]


@functools.cache  # cached, because the same versions recur: students make the same mistakes
def joined(first: Wrong, second: Wrong) -> Wrong | None:
    """Return a version with the edits of both. If they cannot be applied together, return None.

    Overlapping edits can still be applied one after the other if the second one fits the text inserted by the first.
    """
    label = f"{first.label} and {second.label}"
    if not first.edits or not second.edits:
        return None
    if not any(edit.overlaps(other) for edit in first.edits for other in second.edits):
        return Wrong(first.exercise, {*first.edits, *second.edits}, label=label)
    for one, other in ((first, second), (second, first)):
        if source := _followed_by(one, other):
            return Wrong(first.exercise, first.edits, source, label)
    return None


def _followed_by(first: Wrong, second: Wrong) -> str:
    """Return the source after applying the edits of `first` and then those of `second`.

    If a fragment is gone, return "".

    A fragment that occurs twice in the answer counts as gone, because the wrong occurrence could be replaced.
    """
    answer, source = bare_source(first.exercise.answer), first.source
    for edit in second.edits:
        fragment = answer[edit.start : edit.end]
        try:
            find(answer, fragment)
            ((start, end),) = find(source, fragment)
        except EditError:
            return ""
        source = edited(source, [Edit(start, end, edit.new)])
    return source


@functools.cache
def _names(answer: Callable) -> dict[str, Any]:
    """Return a wrong version's global names: those in the answer's module, the other answers, and `answer`."""
    from transformer_lab.exercises.registry import exercises

    common = {"torch": torch, "nn": nn, "F": nn.functional, "np": np, "math": math}
    answers = {name: exercise.answer for name, exercise in exercises().items()}
    return {**answers, **common, **vars(sys.modules[answer.__module__]), "answer": answer}


class _Iterations:
    """Counts loop iterations, so that an endless loop stops after the same number of iterations on every machine."""

    counted = 0

    def start(self) -> None:
        """Reset the count before a call, because a harness may call a function many times."""
        self.counted = 0

    def count(self) -> None:
        self.counted += 1
        if self.counted > MOST_ITERATIONS:
            raise OutOfTime


iterations = _Iterations()
