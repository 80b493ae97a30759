"""Where received data differ from expected data, and how to say so."""

import math
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.observation import NotData

SMALL = 24  # numbers of a tensor that are shown in one line


@dataclass(frozen=True)
class Difference:
    """One place where two pieces of data differ."""

    where: str  # the name of the result: "weights", "gradient[query]"
    kind: str  # "type", "length", "shape", "dtype", "nan" or "value"
    says: str
    expected: Any = None
    received: Any = None


def compare(
    expected: Any, received: Any, names: tuple[str, ...] = ("output",), tolerance: float = 1e-5
) -> tuple[list[Difference], list[str]]:
    """All differences, and remarks on what is odd but right (a list for a tuple, float32 for float64).

    Args:
        expected: Data as `as_data` gives it.
        received: The same, of the student.
        names: What the results are called: one name, or one for each element of a tuple.
        tolerance: absolute and relative.
    """
    differences: list[Difference] = []
    remarks: list[str] = []
    _compare(expected, received, names[0] if len(names) == 1 else "result", names, tolerance, differences, remarks)
    return differences, list(dict.fromkeys(remarks))


def _compare(
    expected: Any,
    received: Any,
    where: str,
    names: tuple[str, ...],
    tolerance: float,
    differences: list[Difference],
    remarks: list[str],
) -> None:
    def differ(kind: str, says: str) -> None:
        differences.append(Difference(where, kind, says, expected, received))

    def wrong_type() -> None:
        differ("type", f"`{where}` is {described(received)}, expected is {described(expected)}")

    def go_on(one: Any, other: Any, name: str) -> None:
        _compare(one, other, name, names, tolerance, differences, remarks)

    if isinstance(expected, tuple) and len(expected) == len(names) > 1:
        returned = ", ".join(names)
        if not isinstance(received, list | tuple) or len(received) != len(names):
            differ("type", f"it returns {described(received)}, expected are {len(names)} values: `{returned}`")
            return
        if isinstance(received, list):
            remarks.append(f"It returns a list; a tuple is meant: `return {returned}`.")
        for name, one, other in zip(names, expected, received, strict=True):
            go_on(one, other, name)
    elif isinstance(expected, Tensor | np.ndarray):
        if received is None and where.startswith("gradient of "):
            differ("type", f"no gradient reaches `{where.removeprefix('gradient of ')}`")
        elif type(expected) is not type(received):
            wrong_type()
        else:
            _compare_numbers(expected, received, where, tolerance, differ, remarks)
    elif isinstance(expected, dict):
        if not isinstance(received, dict):
            wrong_type()
            return
        for key in expected:
            if key in received:
                go_on(expected[key], received[key], str(key))
            else:
                differ("length", f"`{where}` has no `{key}`")
        for key in received:
            if key not in expected:
                differ("length", f"`{where}` has `{key}`, which is not expected")
    elif isinstance(expected, list | tuple):
        if not isinstance(received, list | tuple):
            wrong_type()
            return
        if type(expected) is not type(received):
            remarks.append(f"`{where}` is {described(received)}; {described(expected)} is meant.")
        if _is_plain(expected) and _is_plain(received):
            if not _equal_plain(expected, received, tolerance):
                differ("value", f"`{where}` differs")
        elif len(expected) != len(received):
            differ("length", f"`{where}` has {len(received)} elements, expected are {len(expected)}")
        else:
            for index, (one, other) in enumerate(zip(expected, received, strict=True)):
                go_on(one, other, f"{where}[{index}]")
    elif isinstance(expected, Number):
        number_received = received
        if isinstance(received, Tensor | np.ndarray) and received.ndim == 0:
            number_received = received.item()
        if not isinstance(number_received, Number):
            wrong_type()
        elif not _equal_plain(expected, number_received, tolerance):
            differ("nan" if number_received != number_received else "value", f"`{where}` differs")
        elif number_received is not received or isinstance(expected, bool) != isinstance(received, bool):
            remarks.append(f"`{where}` is {described(received)}; {described(expected)} is meant.")
    elif type(expected) is not type(received):
        wrong_type()
    elif expected != received:
        differ("value", f"`{where}` differs")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | Number)


def _equal_plain(expected: Any, received: Any, tolerance: float) -> bool:
    if isinstance(expected, list | tuple):
        return (
            isinstance(received, list | tuple)
            and len(expected) == len(received)
            and all(_equal_plain(one, other, tolerance) for one, other in zip(expected, received, strict=True))
        )
    if isinstance(expected, float) or isinstance(received, float):
        if not isinstance(expected, Number) or not isinstance(received, Number):
            return False
        if expected != expected:
            return received != received
        return expected == received or abs(expected - received) <= tolerance * (1 + abs(expected))
    return expected == received


def _compare_numbers(
    expected: Any, received: Any, where: str, tolerance: float, differ: Any, remarks: list[str]
) -> None:
    if tuple(expected.shape) != tuple(received.shape):
        differ("shape", f"`{where}` has shape {tuple(received.shape)}, expected is {tuple(expected.shape)}")
        return
    wanted, got = dtype_name(expected), dtype_name(received)
    if wanted != got:
        if kind_of_dtype(wanted) != kind_of_dtype(got):
            differ("dtype", f"`{where}` holds {got}, expected is {wanted}")
            return
        remarks.append(
            f"`{where}` is {got}, expected is {wanted}: what you create has the inputs' dtype, or torch's default."
        )
    one, other = to_double(expected), to_double(received)
    if wanted == "bool" or kind_of_dtype(wanted) == "whole numbers":
        wrong = one != other
        if wrong.any():
            differ("value", f"`{where}` is wrong in {int(wrong.sum())} of {wrong.numel()} places")
        return
    nan = other.isnan() & ~one.isnan()
    if nan.any():
        differ("nan", f"`{where}` is NaN (not a number) in {int(nan.sum())} of {nan.numel()} places")
        return
    wrong = wrong_positions(one, other, tolerance)
    if wrong.any():
        off = (one - other).abs()[wrong]
        if off.isfinite().all():
            differ("value", f"`{where}` differs by up to {number(float(off.max()))}")
        else:
            differ("value", f"`{where}` {_infinities_in_words(one, other)}")


def _infinities_in_words(expected: Tensor, received: Tensor) -> str:
    """In how many places there is an infinity too many, too few, or of the other sign: what a mask has done wrong."""
    found = {
        "is infinite in {} where it should be finite": expected.isfinite() & received.isinf(),
        "is finite in {} where it should be infinite": expected.isinf() & received.isfinite(),
        "has infinity of the wrong sign in {}": expected.isinf() & received.isinf() & (expected != received),
        "is not NaN in {} where it should be": expected.isnan() & ~received.isnan(),
    }
    said = [
        what.format(f"{int(places.sum())} of {places.numel()} places") for what, places in found.items() if places.any()
    ]
    return " and ".join(said)


def wrong_positions(expected: Tensor, received: Tensor, tolerance: float) -> Tensor:
    """Where two float64 tensors of one shape differ. NaN equals NaN, and infinity itself."""
    close = expected.isfinite() & ((expected - received).abs() <= tolerance * (1 + expected.abs()))
    return ~(close | (expected == received) | (expected.isnan() & received.isnan()))


def to_double(numbers: Tensor | np.ndarray) -> Tensor:
    """The same numbers as a float64 tensor."""
    if isinstance(numbers, np.ndarray):
        numbers = torch.from_numpy(np.ascontiguousarray(numbers))
    return (numbers.real if numbers.is_complex() else numbers).double()


def dtype_name(numbers: Tensor | np.ndarray) -> str:
    return str(numbers.dtype).removeprefix("torch.")


def kind_of_dtype(name: str) -> str:
    for kind, starts in {"whole numbers": ("int", "uint"), "bool": ("bool",), "complex": ("complex",)}.items():
        if name.startswith(starts):
            return kind
    return "real numbers"


def described(value: Any) -> str:
    """What kind of thing it is, in words."""
    if isinstance(value, NotData):
        return value.description
    if value is None:
        return "None (is there a `return`?)"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return "a dictionary"
    kind = {bool: "a truth value", int: "a whole number", float: "a number", str: "a string"}.get(type(value))
    return f"{kind or type(value).__name__} ({short(value)})"


def short(value: Any, most: int = 200) -> str:
    """A value in one line."""
    if isinstance(value, bool | None):
        text = str(value)
    elif isinstance(value, float):
        text = number(value)
    elif isinstance(value, list):
        text = f"[{', '.join(short(item, most) for item in value[:most])}]"
    elif isinstance(value, tuple):
        text = f"({', '.join(short(item, most) for item in value[:most])}{',' if len(value) == 1 else ''})"
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{short(k)}: {short(v, most)}' for k, v in list(value.items())[:most])}}}"
    elif isinstance(value, int | str):
        text = repr(value)
    elif isinstance(value, Tensor | np.ndarray) and math.prod(value.shape) <= SMALL:
        text = short(value.tolist(), most)
    else:
        text = described(value)
    return text if len(text) <= most else text[: most - 2] + " …"


def short_and_apart(expected: Any, received: Any) -> tuple[str, str]:
    """Both in one line; two numbers that would look alike with as many more digits as tell them apart."""
    one, other = short(expected), short(received)
    if one == other and all(isinstance(value, Number) for value in (expected, received)):
        for digits in range(5, 10):  # further ones are not the same on every machine
            more = f"{expected:.{digits}g}", f"{received:.{digits}g}"
            if more[0] != more[1]:
                return more
    return one, other


def number(value: float) -> str:
    """A number for the report: the same text on every machine, although the last bits differ."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    value = float(f"{value:.9e}")  # first away with the last bits: a number that ends in 5 is rounded alike everywhere
    size = abs(value)
    if size < 1e-9:
        return "0"
    if size < 1e-3 or size >= 1e5:
        return f"{value:.1e}"
    return f"{value:.4f}".rstrip("0").rstrip(".")
