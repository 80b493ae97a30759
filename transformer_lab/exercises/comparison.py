"""Find and describe the differences between expected and received data."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.observation import NotData

MOST_IN_A_LINE = 24  # elements of a tensor


@dataclass(frozen=True)
class Difference:
    """A difference between two pieces of data."""

    where: str  # the name of the result: "weights", "gradient[query]"
    kind: str  # "type", "length", "shape", "dtype", "nan" or "value"
    says: str
    expected: Any = None
    received: Any = None


def compare(
    expected: Any, received: Any, names: tuple[str, ...] = ("output",), tolerance: float = 1e-5
) -> tuple[list[Difference], list[str]]:
    """Return all differences, along with remarks on results that are correct but unusual.

    For example, a list may be used in place of a tuple.

    Args:
        expected: The expected data, as returned by `as_data`.
        received: The student's data, in the same form.
        names: A name for the result. If the result is a tuple, one name for each element.
        tolerance: The absolute and relative tolerance.
    """
    results = list(_compared_results(expected, received, names, tolerance))
    remarks = dict.fromkeys(result for result in results if isinstance(result, str))
    return [result for result in results if isinstance(result, Difference)], list(remarks)


def agree(expected: Any, received: Any, names: tuple[str, ...], tolerance: float) -> bool:
    """Return whether the data match. This is faster than `compare`, because it stops at the first difference."""
    results = _compared_results(expected, received, names, tolerance)
    return not any(isinstance(result, Difference) for result in results)


_Results = Iterator[Difference | str]  # a string is a remark


def _compared_results(expected: Any, received: Any, names: tuple[str, ...], tolerance: float) -> _Results:
    """Compare the values that a function returns. Each value has a name."""
    if not isinstance(expected, tuple) or not len(expected) == len(names) > 1:
        yield from _compared(expected, received, names[0] if len(names) == 1 else "result", tolerance)
        return
    returned = ", ".join(names)
    if not isinstance(received, list | tuple) or len(received) != len(names):
        says = f"it returns {described(received)}; expected {len(names)} values: `{returned}`"
        yield Difference("result", "type", says, expected, received)
        return
    if isinstance(received, list):
        yield f"It returns a list; use a tuple: `return {returned}`."
    for name, expected_value, received_value in zip(names, expected, received, strict=True):
        yield from _compared(expected_value, received_value, name, tolerance)


def _compared(expected: Any, received: Any, where: str, tolerance: float) -> _Results:
    if isinstance(expected, Tensor | np.ndarray):
        yield from _compared_arrays(expected, received, where, tolerance)
    elif isinstance(expected, dict) and isinstance(received, dict):
        yield from _compared_dicts(expected, received, where, tolerance)
    elif isinstance(expected, list | tuple) and isinstance(received, list | tuple):
        yield from _compared_sequences(expected, received, where, tolerance)
    elif isinstance(expected, Number):
        yield from _compared_scalars(expected, received, where, tolerance)
    elif type(expected) is not type(received):
        yield _wrong_type(expected, received, where)
    elif expected != received:
        yield Difference(where, "value", f"`{where}` differs", expected, received)


def _wrong_type(expected: Any, received: Any, where: str) -> Difference:
    says = f"`{where}` is {described(received)}; expected {described(expected)}"
    return Difference(where, "type", says, expected, received)


def _remark_on_type(expected: Any, received: Any, where: str) -> str:
    # Leave out the index and the value, so that a whole list gets a single remark.
    anywhere = re.sub(r"\[\d+\]", "[…]", where)
    return f"`{anywhere}` is {described(received)}; use {described(expected).partition(' (')[0]}."


def _compared_dicts(expected: dict, received: dict, where: str, tolerance: float) -> _Results:
    for key, value in expected.items():
        if key in received:
            yield from _compared(value, received[key], str(key), tolerance)
        else:
            yield Difference(where, "length", f"`{where}` has no `{key}`", expected, received)
    for key in received:
        if key not in expected:
            yield Difference(where, "length", f"`{where}` has an unexpected `{key}`", expected, received)


def _compared_sequences(expected: list | tuple, received: list | tuple, where: str, tolerance: float) -> _Results:
    if type(expected) is not type(received):
        yield _remark_on_type(expected, received, where)
    if _is_plain(expected) and _is_plain(received):
        if not _equal_plain(expected, received, tolerance):
            yield Difference(where, "value", f"`{where}` differs", expected, received)
    elif len(expected) != len(received):
        says = f"`{where}` has {len(received)} elements; expected {len(expected)}"
        yield Difference(where, "length", says, expected, received)
    else:
        for index, (expected_item, received_item) in enumerate(zip(expected, received, strict=True)):
            yield from _compared(expected_item, received_item, f"{where}[{index}]", tolerance)


def _compared_scalars(expected: Number, received: Any, where: str, tolerance: float) -> _Results:
    is_array = isinstance(received, Tensor | np.ndarray) and received.ndim == 0
    scalar = received.item() if is_array else received
    if not isinstance(scalar, Number):
        yield _wrong_type(expected, received, where)
    elif not _equal_plain(expected, scalar, tolerance):
        kind = "nan" if scalar != scalar else "value"
        yield Difference(where, kind, f"`{where}` differs", expected, received)
    elif is_array or isinstance(expected, bool) != isinstance(received, bool):
        yield _remark_on_type(expected, received, where)
    elif isinstance(expected, int) and isinstance(received, float):
        yield f"`{where}` is a float; expected an int, which stays exact even if it's large."


def _compared_arrays(expected: Tensor | np.ndarray, received: Any, where: str, tolerance: float) -> _Results:
    if received is None and where.startswith("gradient of "):
        says = f"no gradient reaches `{where.removeprefix('gradient of ')}`"
        yield Difference(where, "type", says, expected, received)
    elif type(expected) is not type(received):
        yield _wrong_type(expected, received, where)
    elif tuple(expected.shape) != tuple(received.shape):
        says = f"`{where}` has shape {tuple(received.shape)}; expected {tuple(expected.shape)}"
        yield Difference(where, "shape", says, expected, received)
    elif _kind_of_dtype(expected) != _kind_of_dtype(received):
        says = f"`{where}` has {_dtype_in_words(received)}; expected {_dtype_in_words(expected)}"
        yield Difference(where, "dtype", says, expected, received)
    else:
        if _dtype_name(expected) != _dtype_name(received):
            yield (
                f"`{where}` is {_dtype_name(received)}; expected {_dtype_name(expected)}. Create tensors with the "
                "dtype of the inputs, or with torch's default."
            )
        kind, says = _wrong_entries(expected, received, tolerance)
        if kind:
            yield Difference(where, kind, f"`{where}` {says}", expected, received)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | Number)


def _equal_plain(expected: Any, received: Any, tolerance: float) -> bool:
    if isinstance(expected, list | tuple):
        return (
            isinstance(received, list | tuple)
            and len(expected) == len(received)
            and all(_equal_plain(*pair, tolerance) for pair in zip(expected, received, strict=True))
        )
    if not isinstance(expected, float) and not isinstance(received, float):
        return expected == received
    if not isinstance(expected, Number) or not isinstance(received, Number):
        return False
    if expected != expected:
        return received != received
    return expected == received or abs(expected - received) <= tolerance * (1 + abs(expected))


def _wrong_entries(expected: Tensor | np.ndarray, received: Tensor | np.ndarray, tolerance: float) -> tuple[str, str]:
    """Return the kind of difference and its description. If there is no difference, return two empty strings."""
    is_exact = _kind_of_dtype(expected) in ("bool", "whole numbers")
    expected, received = to_double(expected), to_double(received)
    if torch.equal(expected, received):
        return "", ""
    if is_exact:
        return "value", f"is wrong in {_entries(expected != received)}"
    nan = received.isnan() & ~expected.isnan()
    if nan.any():
        return "nan", f"is NaN (not a number) in {_entries(nan)}"
    wrong = wrong_positions(expected, received, tolerance)
    if not wrong.any():
        return "", ""
    errors = (expected - received).abs()[wrong]
    if errors.isfinite().all():
        return "value", f"differs by up to {format_number(float(errors.max()))}"
    # Infinities that are missing, unexpected, or of the wrong sign show the effect of a wrong mask.
    entries_by_wording = {
        "is infinite in {} where it should be finite": expected.isfinite() & received.isinf(),
        "is finite in {} where it should be infinite": expected.isinf() & received.isfinite(),
        "has infinities with the wrong sign in {}": expected.isinf() & received.isinf() & (expected != received),
        "is not NaN in {} where it should be": expected.isnan() & ~received.isnan(),
    }
    clauses = [says.format(_entries(wrong)) for says, wrong in entries_by_wording.items() if wrong.any()]
    return "value", " and ".join(clauses)


def _entries(wrong: Tensor) -> str:
    return f"{int(wrong.sum())} of {wrong.numel()} entries"


def wrong_positions(expected: Tensor, received: Tensor, tolerance: float) -> Tensor:
    """Return the positions where two float64 tensors of the same shape differ.

    NaN equals NaN, and infinity equals infinity.
    """
    return ~torch.isclose(received, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def to_double(numbers: Tensor | np.ndarray) -> Tensor:
    if isinstance(numbers, np.ndarray):
        numbers = torch.from_numpy(np.ascontiguousarray(numbers))
    return (numbers.real if numbers.is_complex() else numbers).double()


def _dtype_name(numbers: Tensor | np.ndarray) -> str:
    return str(numbers.dtype).removeprefix("torch.")


def _dtype_in_words(numbers: Tensor | np.ndarray) -> str:
    """Return the dtype in words. float64 is called "a floating-point dtype".

    A check makes float64 the default, but students see float32 in their notebooks.
    """
    name = _dtype_name(numbers)
    return "a floating-point dtype" if name == "float64" else f"dtype {name}"


def _kind_of_dtype(numbers: Tensor | np.ndarray) -> str:
    kinds = {"int": "whole numbers", "uint": "whole numbers", "bool": "bool", "complex": "complex"}
    return kinds.get(_dtype_name(numbers).rstrip("0123456789"), "real numbers")


def described(value: Any) -> str:
    """Describe a value's type in words."""
    if isinstance(value, NotData):
        return value.description
    if value is None:
        return "None (is there a `return`?)"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    if isinstance(value, dict):
        return "a dictionary"
    kind = {bool: "a boolean", int: "a whole number", float: "a number", str: "a string"}.get(type(value))
    return f"{kind or type(value).__name__} ({short(value)})"


def short(value: Any, most: int = 200) -> str:
    """Format a value as one line of at most `most` characters."""
    if isinstance(value, float):
        text = format_number(value)
    elif isinstance(value, list | tuple):
        items = ", ".join(short(item, most) for item in value[:most])
        text = f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{short(k)}: {short(v, most)}' for k, v in list(value.items())[:most])}}}"
    elif isinstance(value, bool | int | str | None):
        text = repr(value)
    elif isinstance(value, Tensor | np.ndarray) and math.prod(value.shape) <= MOST_IN_A_LINE:
        text = short(value.tolist(), most)
    else:
        text = described(value)
    return text if len(text) <= most else text[: most - 2] + " …"


def short_and_apart(expected: Any, received: Any) -> tuple[str, str]:
    """Format each value as one line, with enough digits to tell two different numbers apart."""
    texts = short(expected), short(received)
    if texts[0] == texts[1] and all(isinstance(value, Number) for value in (expected, received)):
        for digits in range(5, 10):  # more digits would differ between machines
            longer = f"{expected:.{digits}g}", f"{received:.{digits}g}"
            if longer[0] != longer[1]:
                return longer
    return texts


def format_number(value: float) -> str:
    """Format a number so that it looks the same on every machine, even if its last bits differ."""
    if not math.isfinite(value):
        return str(float(value))
    value = float(f"{value:.9e}")  # drop the last bits first, so that 0.03125 is rounded the same way everywhere
    size = abs(value)
    if size < 1e-9:
        return "0"
    if size < 1e-3 or size >= 1e5:
        return f"{value:.1e}"
    return f"{value:.4f}".rstrip("0").rstrip(".")
