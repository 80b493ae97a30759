"""`hint` and `solution`."""

import inspect
from dataclasses import dataclass
from typing import Any

from transformer_lab.exercises.catalogue import hints_of
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.registry import find_exercise

_given: dict[str, int] = {}  # how many hints have been given for each exercise since the kernel started


@dataclass(frozen=True, repr=False)
class Hint:
    """A hint that a notebook can display."""

    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.title}\n{self.text}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from transformer_lab.exercises.report import prose

        frame = "max-width:60em;border-left:4px solid #0a6ebd;padding:4px 12px"
        return f'<div style="{frame}"><p><b>{prose(self.title)}</b></p><p>{prose(self.text)}</p></div>'


@dataclass(frozen=True, repr=False)
class Solution:
    """The package's own answer, which a notebook can display."""

    name: str
    source: str

    def __str__(self) -> str:
        return self.source

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer

        return highlight(self.source, PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True, style="tango"))


def hint(exercise: Any) -> Hint:
    """Return the next hint for an exercise. Each call gives away a little more.

    The exercise can be passed by name or as the object.

    Raises:
        InputError: There is no such exercise.
    """
    exercise = _exercise(exercise)
    hints = hints_of(exercise)
    given = _given.get(exercise.name, 0)
    index = min(given, len(hints) - 1)
    _given[exercise.name] = given + 1
    title = f"{exercise.name}, hint {index + 1} of {len(hints)}"
    if index + 1 == len(hints):
        title += f' (the last one; `solution("{exercise.name}")` shows an answer)'
    return Hint(title, hints[index])


def solution(exercise: Any) -> Solution:
    """Return the package's own answer to an exercise, which can be passed by name or as the object.

    Raises:
        InputError: There is no such exercise.
    """
    exercise = _exercise(exercise)
    return Solution(exercise.name, inspect.getsource(exercise.answer).rstrip())


def _exercise(exercise: Any) -> Exercise:
    return find_exercise(exercise if isinstance(exercise, str) else getattr(exercise, "__name__", repr(exercise)))
