"""A decorator for code that repeats the answer to an exercise."""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable)


def reimplements(*answers: str) -> Callable[[F], F]:
    """Mark a function or method that does the work of these answers.

    `classroom/stubbed_package.py` finds the marks in the source and empties the marked code whenever it empties one of
    the answers. In a class, mark each method that should be emptied. An answer that contains an earlier one, as
    `CachedAttention` does, needs no mark, because it is emptied along with the earlier one.
    """

    def mark(function: F) -> F:
        function.reimplements = answers
        return function

    return mark
