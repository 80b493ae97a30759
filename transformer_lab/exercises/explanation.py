"""Explain what went wrong in one check, in words, tables, and boxes."""

import inspect
import re
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.comparison import (
    Difference,
    format_number,
    short,
    short_and_apart,
    to_double,
    wrong_positions,
)
from transformer_lab.exercises.exception_meanings import meaning
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.observation import Crash, same_data, with_article
from transformer_lab.exercises.report import Block, Code, Rows, Shapes, SideBySide, Table
from transformer_lab.exercises.time_limit import SECONDS

MOST_ROWS, MOST_COLUMNS = 4, 8  # limits for a table

_CHANGES = {
    "seed": "it set a global random seed, so every caller gets the same random numbers each time",
    "default dtype": "it changed torch's default dtype for everyone",
    "grad mode": "it switched gradients off for everyone: use `with torch.no_grad():`, which switches them back on",
    "device": "it changed torch's default device for everyone",
}


def change_in_words(change: str) -> str:
    """Explain one of the changes in `Observation.changes`."""
    if change.startswith("input "):
        return f"it changed its input `{change.removeprefix('input ')}`, which belongs to the caller: compute a new one"
    return _CHANGES[change]


def signature(exercise: Exercise, method: str = "") -> str:
    """Return the name and parameters of an exercise or its method: `softmax(scores)`, `Encoder.forward(x, mask)`."""
    called = inspect.unwrap(getattr(exercise.answer, method)) if method else exercise.answer
    own = [parameter for name, parameter in inspect.signature(called).parameters.items() if name != "self"]
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in own]
    return f"{exercise.name}{'.' * bool(method)}{method}{inspect.Signature(plain)}"


def crash_in_words(crash: Crash) -> str:
    """Describe how the call ended, in one line."""
    if crash.kind == "time":
        return f"it did not finish within {SECONDS:g} seconds: is there an endless loop, or too much computation?"
    if crash.kind == "memory":
        size = f"{crash.message} of memory" if crash.message else "more memory than the check allows"
        return f"it asked for {size}, far more than these inputs need: is a shape wrong, or does it store too much?"
    if crash.type == "ParameterError":
        return crash.message
    where = f" on line {crash.line}" if crash.line is not None else ""
    if crash.part:
        where = f" inside your `{crash.part}` from an earlier notebook" + (f", called{where}" if where else "")
    return f"it stops with {with_article(crash.type)}{where}"


def crash_blocks(exercise: Exercise, crash: Crash) -> list[Block]:
    """Return the line where the call ended, the exception, and its usual meaning."""
    blocks: list[Block] = [Code(f"line {crash.line}:  {crash.code}")] if crash.code else []
    if crash.kind != "exception":
        return blocks
    if crash.type == "ParameterError":
        if "there is no" in crash.message:
            blocks.append("The parameters need exactly these names, because the check loads weights by name.")
        return blocks
    text = f"{crash.type}: {crash.message}"
    blocks.append(Code(text if crash.message else crash.type))
    is_own_call = crash.line is None or f"{exercise.name}." in text or f"{exercise.name}(" in text
    method = re.search(rf"\b{exercise.name}\.(\w+)\(", text)
    is_method = method and method[1] != "__init__" and hasattr(exercise.answer, method[1])
    says = meaning(text, signature(exercise, method[1] if is_method else ""), is_own_call)
    return [*blocks, says] if says else blocks


def input_blocks(exercise: Exercise, inputs: dict[str, Any]) -> list[Block]:
    """Return a check's inputs.

    If their names show how the object was called, also return the call. Small inputs are shown in full.
    """
    # Leave out a dictionary of weights, which is too long to read. If `weights` is a tensor, it is an argument.
    shown = {name: value for name, value in inputs.items() if name != "weights" or not isinstance(value, dict)}
    is_class = isinstance(exercise.answer, type)
    arguments = shown.pop("arguments") if is_class and isinstance(shown.get("arguments"), dict) else None
    called = getattr(exercise.answer, "forward", None) if is_class else exercise.answer
    parameters = inspect.signature(called).parameters if called else {}
    fits = all(name in parameters for name in shown)  # otherwise, a harness builds the arguments from the inputs
    call = f"{exercise.name}({', '.join(shown)})" if fits and not is_class else ""
    if arguments is not None:
        call = f"{exercise.name}({', '.join(f'{name}={short(value)}' for name, value in arguments.items())})"
        call += f"({', '.join(shown)})" if shown and fits else ""
    blocks: list[Block] = [Code(call)] if call else []
    plain = []
    for name, value in shown.items():
        if isinstance(value, Tensor | np.ndarray):
            twin = next(other for other in shown if same_data(shown[other], value))
            blocks.append(f"{name} = {twin}" if twin != name else _table_of_input(exercise, name, value))
        elif isinstance(value, dict) and any(isinstance(part, dict) for part in value.values()):
            settings = [f"{key} = {short(part)}" for key, part in value.items() if not isinstance(part, dict)]
            blocks += [f"{name}: {', '.join(settings)}"] if settings else []
            blocks += [f"{name}, {key}: {short(part)}" for key, part in value.items() if isinstance(part, dict)]
        elif isinstance(value, str | int | float | bool):
            plain.append(f"{name} = {short(value)}")
        elif value is not None:
            blocks.append(f"{name} = {short(value)}")
    return [*blocks, ", ".join(plain)] if plain else blocks


def _table_of_input(exercise: Exercise, name: str, value: Tensor | np.ndarray) -> Table:
    rows = _rows(value)
    more = f", first {MOST_ROWS} rows" if len(rows) > MOST_ROWS else ""
    return Table(f"{name} {_named_shape(exercise, name, value)}{more}", rows[:MOST_ROWS])


def difference_blocks(exercise: Exercise, difference: Difference, tolerance: float) -> list[Block]:
    """Return one difference. Shapes are shown as boxes, and numbers as at most four rows from each side."""
    expected, received = difference.expected, difference.received
    if difference.kind == "shape":
        names = axis_names(exercise, difference.where, expected) or [""] * expected.ndim
        axes = list(zip(names, expected.shape, strict=True))
        wanted = [(name, str(size)) for name, size in axes]
        return [Shapes(f"The shape of `{difference.where}`:", wanted, _recognized(tuple(received.shape), axes))]
    if difference.kind not in ("value", "nan"):
        return []
    if not all(isinstance(value, Tensor | np.ndarray) for value in (expected, received)):
        wanted, got = short_and_apart(expected, received)
        return [f"`{difference.where}`: expected {wanted}; got {got}"]
    wrong = wrong_positions(to_double(expected), to_double(received), tolerance)
    wrong_rows = (wrong.reshape(-1, wrong.shape[-1]).any(-1) if wrong.ndim else wrong.reshape(1)).nonzero().flatten()
    rows, received_rows = _rows(expected), _rows(received)
    title = f"{difference.where} {_named_shape(exercise, difference.where, expected)}"
    if len(rows) > 1:
        which = "" if len(wrong_rows) <= MOST_ROWS else f"; here are the first {MOST_ROWS}"
        title += f", rows that differ ({len(wrong_rows)} of {len(rows)}{which})"
    shown = wrong_rows[:MOST_ROWS].tolist()
    return [SideBySide(title, [rows[index] for index in shown], [received_rows[index] for index in shown])]


def axis_names(exercise: Exercise, name: str, value: Any) -> list[str] | None:
    """Return the axis names of an input or a result. If none of the exercise's axis names fit, return None."""
    if not isinstance(value, Tensor | np.ndarray):
        return None
    names = exercise.axes.get(name.removeprefix("gradient of "), "").split()
    return names if len(names) == len(value.shape) else None


def _named_shape(exercise: Exercise, name: str, value: Tensor | np.ndarray) -> str:
    if not value.shape:
        return ""
    names = axis_names(exercise, name, value)
    if names is None:
        return str(tuple(value.shape))
    return f"({', '.join(f'{axis} {size}' for axis, size in zip(names, value.shape, strict=True))})"


def _recognized(shape: tuple[int, ...], axes: list[tuple[str, int]]) -> list[tuple[str, str]]:
    """Name the axes of a wrong shape by their sizes.

    Each is recognized as an expected axis or a product of two expected axes, or is unknown.
    """
    left = list(axes)
    names: list[str] = []
    for position, size in enumerate(shape):
        candidates = [axis for axis in left if axis[1] == size]
        if len(shape) == len(axes) and axes[position] in candidates:
            candidates = [axes[position]]
        if candidates:
            left.remove(candidates[0])
        names.append(candidates[0][0] if candidates else "?")
    for position, size in enumerate(shape):
        if names[position] == "?":
            products = (f"{a} × {b}" for (a, m), (b, n) in combinations(left, 2) if m * n == size and 1 not in (m, n))
            names[position] = next(products, "?")
    return [(name, str(size)) for name, size in zip(names, shape, strict=True)]


def _rows(value: Tensor | np.ndarray) -> Rows:
    """Return a tensor as table rows. The last axis runs across, and the labels show the other indices."""
    numbers = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.ascontiguousarray(value))
    if numbers.ndim == 0:
        return [("", [_cell(numbers)])]
    rows = []
    for index, row in enumerate(numbers.reshape(-1, numbers.shape[-1]) if numbers.numel() else ()):
        label = "" if numbers.ndim == 1 else str([int(i) for i in np.unravel_index(index, tuple(numbers.shape[:-1]))])
        more = ["…"] if len(row) > MOST_COLUMNS else []
        rows.append((label, [*map(_cell, row[:MOST_COLUMNS]), *more]))
    return rows


def _cell(value: Tensor) -> str:
    if value.dtype == torch.bool:
        return str(bool(value))
    return format_number(float(value)) if value.is_floating_point() else str(value.item())
