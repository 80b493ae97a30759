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
    """Return all differences, and remarks on what is odd but right (a list for a tuple, float32 for float64).

    Args:
        expected: Data as `as_data` gives it.
        received: The same, of the student.
        names: What the results are called: one name, or one for each element of a tuple.
        tolerance: absolute and relative.
    """
    comparison = _Comparison(tolerance)
    if isinstance(expected, tuple) and len(expected) == len(names) > 1:
        comparison.compare_results(expected, received, names)
    else:
        comparison.compare(expected, received, names[0] if len(names) == 1 else "result")
    return comparison.differences, list(dict.fromkeys(comparison.remarks))


class _Comparison:
    """Collects the differences and remarks while expected and received data are compared part by part."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.differences: list[Difference] = []
        self.remarks: list[str] = []

    def compare(self, expected: Any, received: Any, where: str) -> None:
        if isinstance(expected, Tensor | np.ndarray):
            self.compare_arrays(expected, received, where)
        elif isinstance(expected, dict):
            self.compare_dicts(expected, received, where)
        elif isinstance(expected, list | tuple):
            self.compare_sequences(expected, received, where)
        elif isinstance(expected, Number):
            self.compare_scalars(expected, received, where)
        elif type(expected) is not type(received):
            self.wrong_type(expected, received, where)
        elif expected != received:
            self.differ(expected, received, where, "value", f"`{where}` differs")

    def differ(self, expected: Any, received: Any, where: str, kind: str, says: str) -> None:
        self.differences.append(Difference(where, kind, says, expected, received))

    def wrong_type(self, expected: Any, received: Any, where: str) -> None:
        says = f"`{where}` is {described(received)}; expected {described(expected)}"
        self.differ(expected, received, where, "type", says)

    def remark_on_type(self, expected: Any, received: Any, where: str) -> None:
        self.remarks.append(f"`{where}` is {described(received)}; use {described(expected)}.")

    def compare_results(self, expected: tuple, received: Any, names: tuple[str, ...]) -> None:
        """Compare the values that a function returns, each of which has a name."""
        returned = ", ".join(names)
        if not isinstance(received, list | tuple) or len(received) != len(names):
            says = f"it returns {described(received)}; expected {len(names)} values: `{returned}`"
            self.differ(expected, received, "result", "type", says)
            return
        if isinstance(received, list):
            self.remarks.append(f"It returns a list; use a tuple: `return {returned}`.")
        for name, expected_value, received_value in zip(names, expected, received, strict=True):
            self.compare(expected_value, received_value, name)

    def compare_dicts(self, expected: dict, received: Any, where: str) -> None:
        if not isinstance(received, dict):
            self.wrong_type(expected, received, where)
            return
        for key, value in expected.items():
            if key in received:
                self.compare(value, received[key], str(key))
            else:
                self.differ(expected, received, where, "length", f"`{where}` has no `{key}`")
        for key in received:
            if key not in expected:
                says = f"`{where}` has an unexpected `{key}`"
                self.differ(expected, received, where, "length", says)

    def compare_sequences(self, expected: list | tuple, received: Any, where: str) -> None:
        if not isinstance(received, list | tuple):
            self.wrong_type(expected, received, where)
            return
        if type(expected) is not type(received):
            self.remark_on_type(expected, received, where)
        if _is_plain(expected) and _is_plain(received):
            if not _equal_plain(expected, received, self.tolerance):
                self.differ(expected, received, where, "value", f"`{where}` differs")
        elif len(expected) != len(received):
            says = f"`{where}` has {len(received)} elements; expected {len(expected)}"
            self.differ(expected, received, where, "length", says)
        else:
            for index, (expected_item, received_item) in enumerate(zip(expected, received, strict=True)):
                self.compare(expected_item, received_item, f"{where}[{index}]")

    def compare_scalars(self, expected: Number, received: Any, where: str) -> None:
        is_array = isinstance(received, Tensor | np.ndarray) and received.ndim == 0
        scalar = received.item() if is_array else received
        if not isinstance(scalar, Number):
            self.wrong_type(expected, received, where)
        elif not _equal_plain(expected, scalar, self.tolerance):
            kind = "nan" if scalar != scalar else "value"
            self.differ(expected, received, where, kind, f"`{where}` differs")
        elif is_array or isinstance(expected, bool) != isinstance(received, bool):
            self.remark_on_type(expected, received, where)

    def compare_arrays(self, expected: Any, received: Any, where: str) -> None:
        if received is None and where.startswith("gradient of "):
            says = f"no gradient reaches `{where.removeprefix('gradient of ')}`"
            self.differ(expected, received, where, "type", says)
        elif type(expected) is not type(received):
            self.wrong_type(expected, received, where)
        elif tuple(expected.shape) != tuple(received.shape):
            says = f"`{where}` has shape {tuple(received.shape)}; expected {tuple(expected.shape)}"
            self.differ(expected, received, where, "shape", says)
        elif kind_of_dtype(dtype_name(expected)) != kind_of_dtype(dtype_name(received)):
            says = f"`{where}` has dtype {dtype_name(received)}; expected {dtype_name(expected)}"
            self.differ(expected, received, where, "dtype", says)
        else:
            if dtype_name(expected) != dtype_name(received):
                self.remarks.append(
                    f"`{where}` is {dtype_name(received)}; expected {dtype_name(expected)}. Create tensors with the "
                    "dtype of the inputs, or with torch's default."
                )
            kind, says = _wrong_entries(to_double(expected), to_double(received), expected.dtype, self.tolerance)
            if kind:
                self.differ(expected, received, where, kind, f"`{where}` {says}")


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


def _wrong_entries(expected: Tensor, received: Tensor, dtype: Any, tolerance: float) -> tuple[str, str]:
    """Return the kind of the difference and how to say it; two empty texts if there is none."""
    if kind_of_dtype(str(dtype).removeprefix("torch.")) in ("bool", "whole numbers"):
        wrong = expected != received
        return ("value", f"is wrong in {int(wrong.sum())} of {wrong.numel()} entries") if wrong.any() else ("", "")
    nan = received.isnan() & ~expected.isnan()
    if nan.any():
        return "nan", f"is NaN (not a number) in {int(nan.sum())} of {nan.numel()} entries"
    wrong = wrong_positions(expected, received, tolerance)
    if not wrong.any():
        return "", ""
    off = (expected - received).abs()[wrong]
    if off.isfinite().all():
        return "value", f"differs by up to {number(float(off.max()))}"
    return "value", _infinities_in_words(expected, received)


def _infinities_in_words(expected: Tensor, received: Tensor) -> str:
    """Count the entries with an infinity too many, too few, or of the wrong sign: what a wrong mask does."""
    entries_by_wording = {
        "is infinite in {} where it should be finite": expected.isfinite() & received.isinf(),
        "is finite in {} where it should be infinite": expected.isinf() & received.isfinite(),
        "has infinity of the wrong sign in {}": expected.isinf() & received.isinf() & (expected != received),
        "is not NaN in {} where it should be": expected.isnan() & ~received.isnan(),
    }
    clauses = [
        wording.format(f"{int(wrong.sum())} of {wrong.numel()} entries")
        for wording, wrong in entries_by_wording.items()
        if wrong.any()
    ]
    return " and ".join(clauses)


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
