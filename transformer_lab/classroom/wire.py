"""Plain data as JSON in ASCII, between a kernel and the grader. A number keeps its bits.

The grader decodes what a student's code may have written, so `decode` accepts nothing that `encode` would not write.
Without it the submissions "replies that are no data" and "a reply of numbers without end" would stop the grader.
"""

import base64
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.observation import NUMBERS, Crash, NotData, Observation

MOST_BYTES = 2**20  # of one result, and of a text in it
MOST_DEPTH = 12
MOST_VALUES = 200_000  # in one reply
KINDS_OF_CRASH = ("exception", "time", "memory")
DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    )
}


class WireError(Exception):
    """The other side would not have written this."""



def encode(data: Any, depth: int = 0) -> list:
    """Plain data as JSON. What is none, or too large, becomes a `NotData`."""
    if data is None:
        return ["none"]
    if isinstance(data, bool):
        return ["bool", int(data)]
    if isinstance(data, int):
        return ["int", hex(data)] if abs(data) <= sys.float_info.max else ["foreign", "an enormous number"]
    if isinstance(data, float):
        return ["float", data.hex() if math.isfinite(data) else str(data)]
    if isinstance(data, str):
        return ["str", data] if len(data) <= MOST_BYTES else ["foreign", "an enormous text"]
    if isinstance(data, Tensor):
        return _encode_tensor(data)
    if isinstance(data, np.ndarray):
        return _encode_array(data)
    if isinstance(data, NotData):
        return ["foreign", data.description[:200]]
    if depth > MOST_DEPTH:
        return ["foreign", "something nested too deeply"]
    if isinstance(data, dict):
        return ["dict", [[encode(key, depth + 1), encode(value, depth + 1)] for key, value in data.items()]]
    if isinstance(data, list | tuple):
        return ["list" if isinstance(data, list) else "tuple", [encode(item, depth + 1) for item in data]]
    return ["foreign", f"a `{type(data).__name__[:100]}`"]


def _encode_tensor(tensor: Tensor) -> list:
    name = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu" or name not in DTYPES:
        return ["foreign", f"a tensor of another kind ({name}, {tensor.layout})"]
    if tensor.numel() * tensor.element_size() > MOST_BYTES:
        return ["foreign", f"a tensor of shape {shape}"[:200]]
    plain = tensor.detach().resolve_conj().resolve_neg()
    # `contiguous` leaves a single number as it is, with whatever stride it has, and that cannot be viewed as bytes
    plain = plain.clone(memory_format=torch.contiguous_format).reshape(-1)
    return ["tensor", name, list(shape), _text(plain.view(torch.uint8).numpy().tobytes())]


def _encode_array(array: np.ndarray) -> list:
    if array.dtype.char not in NUMBERS or not array.dtype.isnative:
        return ["foreign", f"an array of `{array.dtype}`"[:200]]
    if array.nbytes > MOST_BYTES:
        return ["foreign", f"an array of shape {array.shape}"[:200]]
    return ["array", array.dtype.str, list(array.shape), _text(np.ascontiguousarray(array).tobytes())]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def decode(wire: Any) -> Any:
    """The data again.

    Raises:
        WireError: it was not `encode` that wrote this, or it is too much.
    """
    try:
        return _Decoder().decode(wire, 0)
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:  # torch and NumPy on what nobody foresaw
        raise WireError(f"nothing that can be made ({type(error).__name__})") from None


class _Decoder:
    def __init__(self) -> None:
        self.values = MOST_VALUES
        self.bytes = 8 * MOST_BYTES

    def decode(self, wire: Any, depth: int) -> Any:
        self.values -= 1
        if self.values < 0 or depth > MOST_DEPTH + 1:
            raise WireError("too much, or nested too deeply")
        match wire:
            case ["none"]:
                return None
            case ["bool", 0 | 1 as value]:
                return bool(value)
            case ["int", str(text)] if len(text) < 300:
                return self._number(int, text, 16)
            case ["float", str(text)] if len(text) < 100:
                return self._number(float.fromhex, text)
            case ["str", str(text)]:
                self._take(len(text))
                return text
            case ["foreign", str(text)] if len(text) <= 200:
                return NotData(text)
            case ["tensor", str(name), list(shape), str(text)] if name in DTYPES:
                dtype = DTYPES[name]
                data = self._raw(shape, dtype.itemsize, text)
                if dtype is torch.bool:
                    data = bytearray(map(bool, data))  # other bytes than 0 and 1 would be no truth values
                if not data:
                    return torch.empty(shape, dtype=dtype)
                return torch.frombuffer(data, dtype=dtype).reshape(shape)
            case ["array", str(name), list(shape), str(text)] if len(name) < 10:
                return self._array(name, shape, text)
            case ["list", list(items)]:
                return [self.decode(item, depth + 1) for item in items]
            case ["tuple", list(items)]:
                return tuple(self.decode(item, depth + 1) for item in items)
            case ["dict", list(items)]:
                return dict(self._pair(item, depth + 1) for item in items)
        raise WireError("no data of ours")

    def _pair(self, wire: Any, depth: int) -> tuple[Any, Any]:
        match wire:
            case [key, value]:
                key, value = self.decode(key, depth), self.decode(value, depth)
                if not _can_be_key(key):
                    raise WireError("no key of ours")
                return key, value
        raise WireError("no pair")

    def _number(self, make: Callable[..., Any], *arguments: Any) -> Any:
        try:
            number = make(*arguments)
        except (ValueError, OverflowError):
            raise WireError("no number") from None
        if isinstance(number, int) and abs(number) > sys.float_info.max:
            raise WireError("a number that nothing can be compared with")
        return number

    def _take(self, count: int) -> None:
        self.bytes -= count
        if self.bytes < 0:
            raise WireError("too many bytes")

    def _raw(self, shape: list, size: int, text: str) -> bytearray:
        if len(shape) > 32 or not all(type(length) is int and 0 <= length < 1 << 40 for length in shape):
            raise WireError("no shape")
        expected = math.prod(shape) * size
        if expected > MOST_BYTES or len(text) > 4 * (expected // 3 + 1):
            raise WireError("too many numbers")
        self._take(expected)
        try:
            data = bytearray(base64.b64decode(text, validate=True))
        except ValueError:
            raise WireError("no base64") from None
        if len(data) != expected:
            raise WireError("more or fewer bytes than the shape says")
        return data

    def _array(self, name: str, shape: list, text: str) -> np.ndarray:
        try:
            dtype = np.dtype(name)
        except (TypeError, ValueError):
            raise WireError("no type of an array") from None
        if dtype.char not in NUMBERS or not dtype.isnative or dtype.str != name:
            raise WireError("no type of an array")
        data = self._raw(shape, dtype.itemsize, text)
        if dtype.kind == "b":
            data = bytearray(map(bool, data))
        if math.prod(shape) == 0:
            return np.empty(shape, dtype)
        return np.frombuffer(data, dtype).reshape(shape)


def _can_be_key(key: Any) -> bool:
    if isinstance(key, tuple):
        return all(map(_can_be_key, key))
    return key is None or isinstance(key, str | int | float | bool | NotData)


def encode_observation(observation: Observation) -> list:
    crash = observation.crash
    ended = (
        None if crash is None else [crash.kind, crash.type[:200], crash.message[:1000], crash.line, crash.code[:500]]
    )
    return [encode(observation.value), ended, list(observation.changes)]


def decode_observation(wire: Any, changes: tuple[str, ...]) -> Observation:
    """An observation again. Of what was changed, only what is among `changes` counts.

    Raises:
        WireError: as in `decode`.
    """
    match wire:
        case [value, ended, list(changed)]:
            value = decode(value)
        case _:
            raise WireError("no observation")
    match ended:
        case None:
            crash = None
        case [str(kind), str(name), str(message), (int() | None) as line, str(code)] if kind in KINDS_OF_CRASH:
            if isinstance(line, bool) or (line is not None and not 0 < line < 1_000_000):
                line = None
            crash = Crash(kind, name[:200], message[:1000], line, code[:500])
        case _:
            raise WireError("no crash")
    return Observation(value, crash, tuple(change for change in changes if change in changed))
