"""Encode plain data for JSON to send it between a kernel and the grader. Numbers keep their exact bits.

None, numbers, and strings are already JSON. Everything else becomes a list that begins with its kind.

A student's code may have written what the grader decodes, so `decode` accepts only what `encode` would write.
Otherwise, the attacks called "replies that are not data" and "an endless reply of numbers" would stop the grader.
"""

import base64
import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from transformer_lab.exercises.observation import NUMBERS, Crash, NotData, Observation

MOST_BYTES = 2**20  # in each result, and in each string in it
MOST_DEPTH = 12
MOST_VALUES = 200_000  # in each reply
DTYPES: dict[str, dict[str, Any]] = {
    "tensor": {
        name: getattr(torch, name)
        for name in (
            *("bool", "uint8", "int8", "int16", "int32", "int64"),
            *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        )
    },
    "array": {np.dtype(char).str: np.dtype(char) for char in NUMBERS},
}


class WireError(Exception):
    """Raised for something that `encode` would not have written."""


def encode(data: Any, depth: int = 0) -> Any:
    """Return plain data in a form that JSON can hold. Anything else, or anything too large, becomes a `NotData`."""
    match data:
        case None | bool() | float():
            return data
        case int():
            return data if abs(data) <= sys.float_info.max else ["foreign", "an enormous number"]
        case str():
            return data if len(data) <= MOST_BYTES else ["foreign", "an enormous string"]
        case torch.Tensor():
            return _encode_tensor(data)
        case np.ndarray():
            return _encode_array(data)
        case NotData():
            return ["foreign", data.description[:200]]
        case dict() | list() | tuple() if depth > MOST_DEPTH:
            return ["foreign", "something nested too deeply"]
        case dict():
            return ["dict", [[encode(key, depth + 1), encode(value, depth + 1)] for key, value in data.items()]]
        case list() | tuple():
            return ["list" if isinstance(data, list) else "tuple", [encode(item, depth + 1) for item in data]]
    return ["foreign", f"a `{type(data).__name__[:100]}`"]


def _encode_tensor(tensor: torch.Tensor) -> list:
    name = str(tensor.dtype).removeprefix("torch.")
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not is_plain or name not in DTYPES["tensor"]:
        return ["foreign", f"a tensor of another kind ({name}, {tensor.layout})"]
    if tensor.numel() * tensor.element_size() > MOST_BYTES:
        return ["foreign", f"a tensor of shape {tuple(tensor.shape)}"[:200]]
    resolved = tensor.detach().resolve_conj().resolve_neg()
    # `contiguous` would keep the stride of a tensor with a single number, and then `view` could fail.
    flat = resolved.clone(memory_format=torch.contiguous_format).reshape(-1)
    return ["tensor", name, list(tensor.shape), _base64(flat.view(torch.uint8).numpy())]


def _encode_array(array: np.ndarray) -> list:
    if array.dtype.str not in DTYPES["array"]:
        return ["foreign", f"an array of `{array.dtype}`"[:200]]
    if array.nbytes > MOST_BYTES:
        return ["foreign", f"an array of shape {array.shape}"[:200]]
    return ["array", array.dtype.str, list(array.shape), _base64(array)]


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def decode(wire: Any) -> Any:
    """Return the data that was passed to `encode`. Its size is bounded by the maximum size of a message.

    Raises:
        WireError: The input was not written by `encode`, or it is too large.
    """
    try:
        return _decode(wire, 0, itertools.count())
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:  # raised by Python, torch, or NumPy
        raise WireError(f"not the data of any value ({type(error).__name__})") from None


def _decode(wire: Any, depth: int, values: Iterator[int]) -> Any:
    if next(values) >= MOST_VALUES or depth > MOST_DEPTH + 1:
        raise WireError("too many values, or nested too deeply")
    match wire:
        case None | bool() | float() | str():
            return wire
        case int() if abs(wire) <= sys.float_info.max:
            return wire
        case ["foreign", str(text)] if len(text) <= 200:
            return NotData(text)
        case ["tensor" | "array" as kind, str(name), list(shape), str(text)] if name in DTYPES[kind]:
            return _decode_numbers(kind, DTYPES[kind][name], shape, text)
        case ["list" | "tuple" as kind, list(items)]:
            decoded = [_decode(item, depth + 1, values) for item in items]
            return decoded if kind == "list" else tuple(decoded)
        case ["dict", list(items)]:
            pairs = [(_decode(key, depth + 1, values), _decode(value, depth + 1, values)) for key, value in items]
            if all(_can_be_key(key) for key, _ in pairs):
                return dict(pairs)
    raise WireError("not data that `encode` writes")


def _decode_numbers(kind: str, dtype: Any, shape: list, text: str) -> torch.Tensor | np.ndarray:
    if len(shape) > 32 or not all(type(length) is int and 0 <= length < 1 << 40 for length in shape):
        raise WireError("not a shape")
    data = bytearray(base64.b64decode(text, validate=True))
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise WireError("more or fewer bytes than the shape says")
    if dtype in (torch.bool, np.bool_):
        data = bytearray(map(bool, data))  # torch allows only the bytes 0 and 1
    if kind == "array":
        return np.frombuffer(data, dtype).reshape(shape)
    return torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def _can_be_key(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(map(_can_be_key, key))
    return key is None or isinstance(key, str | int | float | bool | NotData)


def encode_observation(observation: Observation) -> list:
    crash = observation.crash and [
        observation.crash.kind,
        observation.crash.type[:200],
        observation.crash.message[:1000],
        observation.crash.line,
        observation.crash.code[:500],
    ]
    return [encode(observation.value), crash, list(observation.changes)]


def decode_observation(wire: Any, changes: tuple[str, ...]) -> Observation:
    """Return the observation passed to `encode_observation`, keeping only the changes listed in `changes`.

    Raises:
        WireError: The input was not written by `encode_observation`, or it is too large.
    """
    match wire:
        case [value, None, list(changed)]:
            crash = None
        case [
            value,
            ["exception" | "time" | "memory" as kind, str(name), str(text), (int() | None) as line, str(code)],
            list(changed),
        ]:
            is_line = type(line) is int and 0 < line < 1_000_000
            crash = Crash(kind, name[:200], text[:1000], line if is_line else None, code[:500])
        case _:
            raise WireError("not an observation")
    return Observation(decode(value), crash, tuple(change for change in changes if change in changed))
