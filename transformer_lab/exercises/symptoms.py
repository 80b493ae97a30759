"""Describe how numbers are wrong (by a factor, along an axis, from some position on) without naming a cause."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from torch import Tensor

from transformer_lab.exercises.comparison import Difference, format_number, to_double, wrong_positions
from transformer_lab.plural import plural


def described(difference: Difference, tolerance: float, axes: Sequence[str] | None) -> str:
    """Return a sentence about one difference. If the difference has no simple description, return "".

    Args:
        difference: The expected and received values.
        tolerance: The check's absolute and relative tolerance.
        axes: Names of the expected axes, if known.
    """
    where, expected, received = difference.where, difference.expected, difference.received
    if isinstance(expected, list | tuple) and isinstance(received, list | tuple):
        return _sequences(where, expected, received)
    if not all(isinstance(value, Tensor | np.ndarray) for value in (expected, received)):
        return ""
    expected, received = to_double(expected), to_double(received)
    if expected.shape != received.shape:
        return _shapes(where, expected, received, tolerance, axes)
    if expected.numel() < 2 or not expected.isfinite().any():
        return ""
    if (expected.isfinite() == received.isfinite()).all() and (
        says := _moved(where, expected, received, tolerance) or _ratio(where, expected, received, tolerance)
    ):
        return says
    return _where_wrong(where, wrong_positions(expected, received, tolerance), axes)


def _same(expected: Tensor, received: Tensor, tolerance: float) -> bool:
    return expected.shape == received.shape and not wrong_positions(expected, received, tolerance).any()


def _shapes(where: str, expected: Tensor, received: Tensor, tolerance: float, axes: Sequence[str] | None) -> str:
    if expected.numel() != received.numel():
        sizes = enumerate(zip(expected.shape, received.shape, strict=False))
        wrong = [axis for axis, (wanted, size) in sizes if wanted != size]
        if expected.ndim == received.ndim and len(wrong) == 1:
            name = f" (`{axes[wrong[0]]}`)" if axes else ""
            return f"Only axis {wrong[0]}{name} of `{where}` has the wrong size."
        return ""
    for axis, other in combinations(range(received.ndim), 2):
        if _same(expected, received.transpose(axis, other), tolerance):
            return f"The numbers in `{where}` are right, but its axes {axis} and {other} are swapped."
    if _same(expected.flatten(), received.flatten(), tolerance):
        return f"The numbers in `{where}` are right and in the right order; only the shape is wrong."
    return ""


def _moved(where: str, expected: Tensor, received: Tensor, tolerance: float) -> str:
    if _same(expected, -received, tolerance):
        return f"Every number in `{where}` has the wrong sign."
    for axis, size in enumerate(received.shape):
        if size > 1 and _same(expected, received.flip(axis), tolerance):
            return f"The numbers in `{where}` are right, but their order along axis {axis} is reversed."
        for steps, direction in ((1, "late"), (-1, "early")):
            if size > 2 and _same(expected, received.roll(-steps, axis), tolerance):
                return f"The numbers in `{where}` are one position too {direction} along axis {axis}."
    if received.ndim >= 2 and _same(expected, received.mT, tolerance):
        return f"The numbers in `{where}` are right, but its last two axes are swapped."
    if _same(expected.flatten().sort()[0], received.flatten().sort()[0], tolerance):
        return f"`{where}` has the right numbers in the wrong positions."
    return ""


def _ratio(where: str, expected: Tensor, received: Tensor, tolerance: float) -> str:
    finite = expected.isfinite()
    nonzero = finite & (expected.abs() > 1e-6)
    if not nonzero.any():
        return ""
    factor = float((received[nonzero] / expected[nonzero]).median())
    if abs(factor) > 1e-6 and _same(expected * factor, received, 10 * tolerance):
        return f"Every number in `{where}` is {format_number(factor)} times as large as expected."
    offset = float((received[finite] - expected[finite]).median())
    if _same(expected[finite] + offset, received[finite], 10 * tolerance):
        return f"Every number in `{where}` is {format_number(abs(offset))} too {'large' if offset > 0 else 'small'}."
    return ""


def _where_wrong(where: str, wrong: Tensor, axes: Sequence[str] | None) -> str:
    """Say where the numbers are wrong along the first axis that shows a pattern: at, from, or up to a position."""
    for axis, size in enumerate(wrong.shape):
        others = [other for other in range(wrong.ndim) if other != axis]
        positions = wrong.any(dim=others) if others else wrong
        count = int(positions.sum())
        if count == size:
            continue
        name = f"the axis `{axes[axis]}`" if axes else f"axis {axis}"
        first = int(positions.nonzero()[0])
        if count == 1:
            return f"`{where}` is wrong only at position {first} of {name} (counting from 0)."
        if positions[first:].all():
            return f"Along {name}, `{where}` is right up to position {first - 1} and wrong from {first} on."
        if positions[:count].all():
            return f"Along {name}, `{where}` is wrong up to position {count - 1} and right after that."
    return ""


def _sequences(where: str, expected: Sequence[Any], received: Sequence[Any]) -> str:
    pairs = enumerate(zip(expected, received, strict=False))
    wrong = [index for index, (wanted, element) in pairs if not _alike(wanted, element)]
    if not wrong and len(received) < len(expected):
        length = plural(len(expected), "element")
        return f"`{where}` is right as far as it goes, but ends after {len(received)} of {length}."
    if not wrong and len(received) > len(expected):
        return f"`{where}` starts with the expected elements but has {len(received) - len(expected)} more at the end."
    if expected and sorted(map(repr, expected)) == sorted(map(repr, received)):
        return f"`{where}` has the right elements in the wrong order."
    if wrong and wrong[0] > 0:
        return f"The first wrong element of `{where}` is element {wrong[0]} (counting from 0)."
    if len(wrong) == 1 and len(received) == len(expected) > 1:
        return f"Only element {wrong[0]} of `{where}` is wrong (counting from 0)."
    return ""


def _alike(expected: Any, received: Any) -> bool:
    if isinstance(expected, Tensor | np.ndarray) or isinstance(received, Tensor | np.ndarray):
        return type(expected) is type(received) and _same(to_double(expected), to_double(received), 1e-5)
    return bool(expected == received)
