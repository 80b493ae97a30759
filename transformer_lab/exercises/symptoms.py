"""What can be said about wrong numbers without naming a cause: which factor, which axis, from which position on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.comparison import Difference, number, to_double, wrong_positions
from transformer_lab.plural import plural


def described(difference: Difference, tolerance: float, axes: Sequence[str] | None) -> str:
    """Return a sentence about one difference, or "" if nothing simple describes it.

    Args:
        difference: Expected and received.
        tolerance: That of the check, absolute and relative.
        axes: Names of the expected axes, if they are known.
    """
    expected, received = difference.expected, difference.received
    if isinstance(expected, list | tuple) and isinstance(received, list | tuple):
        return _sequences(difference.where, expected, received)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (expected, received)):
        return _ratio(difference.where, torch.tensor([float(expected)]), torch.tensor([float(received)]), tolerance)
    if not all(isinstance(value, Tensor | np.ndarray) for value in (expected, received)):
        return ""
    wanted, got = to_double(expected), to_double(received)
    if wanted.shape != got.shape:
        return _shapes(difference.where, wanted, got, tolerance, axes)
    if wanted.numel() < 2 or not wanted.isfinite().any():
        return ""
    if not (wanted.isfinite() == got.isfinite()).all():
        return _where_wrong(difference.where, wrong_positions(wanted, got, tolerance), axes)
    return (
        _moved(difference.where, wanted, got, tolerance)
        or _ratio(difference.where, wanted, got, tolerance)
        or _where_wrong(difference.where, wrong_positions(wanted, got, tolerance), axes)
    )


def _same(one: Tensor, other: Tensor, tolerance: float) -> bool:
    return one.shape == other.shape and not wrong_positions(one, other, tolerance).any()


def _shapes(where: str, wanted: Tensor, got: Tensor, tolerance: float, axes: Sequence[str] | None) -> str:
    if wanted.numel() != got.numel():
        if wanted.ndim == got.ndim:
            off = [axis for axis in range(wanted.ndim) if wanted.shape[axis] != got.shape[axis]]
            if len(off) == 1:
                named = f" (`{axes[off[0]]}`)" if axes else ""
                return f"Only axis {off[0]}{named} of `{where}` has the wrong size."
        return ""
    for one in range(got.ndim):
        for other in range(one + 1, got.ndim):
            if _same(wanted, got.transpose(one, other), tolerance):
                return f"The numbers in `{where}` are right, but its axes {one} and {other} are swapped."
    if _same(wanted.flatten(), got.flatten(), tolerance):
        return f"The numbers in `{where}` are right and in the right order; only the shape is wrong."
    return ""


def _moved(where: str, wanted: Tensor, got: Tensor, tolerance: float) -> str:
    if _same(wanted, -got, tolerance):
        return f"Every number in `{where}` has the wrong sign."
    for axis in range(got.ndim):
        if got.shape[axis] > 1 and _same(wanted, got.flip(axis), tolerance):
            return f"The numbers in `{where}` are right, but their order along axis {axis} is reversed."
        for steps in (1, -1):
            if got.shape[axis] > 2 and _same(wanted, got.roll(-steps, axis), tolerance):
                direction = "late" if steps > 0 else "early"
                return f"The numbers in `{where}` come one position too {direction} along axis {axis}."
    if got.ndim >= 2 and _same(wanted, got.mT if got.shape[-1] == got.shape[-2] else got, tolerance):
        return f"The numbers in `{where}` are right, but its last two axes are swapped."
    if got.numel() > 1 and _same(wanted.flatten().sort()[0], got.flatten().sort()[0], tolerance):
        return f"`{where}` has the right numbers in the wrong positions."
    return ""


def _ratio(where: str, wanted: Tensor, got: Tensor, tolerance: float) -> str:
    usable = wanted.isfinite() & (wanted.abs() > 1e-6)
    if not usable.any() or not (wanted.isfinite() == got.isfinite()).all():
        return ""
    subject = f"`{where}` is" if wanted.numel() == 1 else f"Every number in `{where}` is"
    factors = got[usable] / wanted[usable]
    factor = float(factors.median())
    if abs(factor) > 1e-6 and _same(wanted * factor, got, 10 * tolerance) and wanted.numel() > 1:
        return f"{subject} {number(factor)} times as large as expected."
    finite = wanted.isfinite()
    offset = float((got[finite] - wanted[finite]).median())
    if wanted.numel() > 1 and _same(wanted[finite] + offset, got[finite], 10 * tolerance):
        return f"{subject} {number(abs(offset))} too {'large' if offset > 0 else 'small'}."
    return ""


def _where_wrong(where: str, wrong: Tensor, axes: Sequence[str] | None) -> str:
    """From which position on, or at which single one, along the one axis that says it best."""
    if wrong.all() or wrong.ndim == 0:
        return ""
    for axis in range(wrong.ndim):
        others = [other for other in range(wrong.ndim) if other != axis]
        hit = wrong.any(dim=others) if others else wrong
        size, count = len(hit), int(hit.sum())
        if size < 2 or count == size:
            continue
        name = f"the axis `{axes[axis]}`" if axes else f"axis {axis}"
        first = int(hit.nonzero()[0])
        if count == 1:
            return f"`{where}` is wrong only at position {first} of {name} (counting from 0)."
        if bool(hit[first:].all()):
            return f"Along {name}, `{where}` is right up to position {first - 1} and wrong from {first} on."
        if bool(hit[:count].all()):
            return f"Along {name}, `{where}` is wrong up to position {count - 1} and right after that."
    return ""


def _sequences(where: str, expected: Sequence[Any], received: Sequence[Any]) -> str:
    wrong = [i for i, (one, other) in enumerate(zip(expected, received, strict=False)) if not _alike(one, other)]
    if not wrong and len(received) < len(expected):
        length = plural(len(received), "element")
        return f"`{where}` is right as far as it goes, but ends after {length} of {len(expected)}."
    if not wrong and len(received) > len(expected):
        return f"`{where}` starts with the expected elements but has {len(received) - len(expected)} more at its end."
    if expected and len(received) == len(expected) and _alike(sorted(map(repr, expected)), sorted(map(repr, received))):
        return f"`{where}` has the right elements in the wrong order."
    if wrong and len(expected) > 1 and wrong[0] > 0:
        return f"Element {wrong[0]} of `{where}` (counting from 0) is the first wrong one."
    if len(wrong) == 1 and len(received) == len(expected) > 1:
        return f"Only element {wrong[0]} of `{where}` is wrong (counting from 0)."
    return ""


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor | np.ndarray) or isinstance(other, Tensor | np.ndarray):
        return type(one) is type(other) and one.shape == other.shape and _same(to_double(one), to_double(other), 1e-5)
    return bool(one == other)
