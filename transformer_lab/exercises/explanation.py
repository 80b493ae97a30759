"""Words and pictures for what went wrong in one check."""

import inspect
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.comparison import Difference, number, short, short_and_apart, to_double, wrong_positions
from transformer_lab.exercises.exercise import Exercise
from transformer_lab.exercises.observation import Crash, same_data
from transformer_lab.exercises.report import Block, Code, Grid, Shapes, SideBySide
from transformer_lab.exercises.time_limit import SECONDS

ROWS, COLUMNS = 4, 8  # no table is larger

# What the commonest exceptions mean here: a pattern for "Type: message", and a sentence.
_MEANINGS = [
    (r"missing \d+ required|takes .* positional arguments? but|unexpected keyword", "{signature}"),
    (r"before Module\.__init__\(\) call", "The first line of `__init__` has to be `super().__init__()`."),
    (r'missing the required "forward"', "The class has no method `forward`: look at its spelling and its indentation."),
    (r"call numpy\(\) on Tensor that requires grad", "Gradients end where NumPy begins: compute with torch."),
    (r"leaf Variable that requires grad", "The input was to be changed in place: compute a new tensor instead."),
    (
        r"view size is not compatible",
        "`view` needs the numbers to lie in memory in the order of the axes, and `transpose` has changed that: "
        "`reshape` copies where it must.",
    ),
    (
        r"to have the same dtype|expected scalar type",
        "The inputs are float64 here, and something else is not: take the inputs' dtype for what you create.",
    ),
    (
        r"cannot be multiplied|for batch1 to be|size mismatch",
        "In a matrix product the last axis of the first factor is as long as the last but one of the second.",
    ),
    (
        r"must match the size of tensor b|could not be broadcast",
        "Axes are lined up from the right: each pair has to be of one size, or one of the two is 1.",
    ),
    (r"operator, with a bool tensor is not supported", "`~mask` turns a boolean mask round."),
    (r"only implemented on integer and Boolean|not implemented for '(?:Float|Double)'", "Masks are boolean here."),
    (r"^RecursionError", "It calls itself without end."),
    (r"^NameError: name '(\w+)' is not defined", "Has the cell that defines or imports `{0}` been run?"),
    (r"^SystemExit|^KeyboardInterrupt", "It tried to end the program."),
    (r"^NotImplementedError: ?$", "Part of it is not written yet: the line that raises it still stands there."),
]

_CHANGES = {
    "seed": "it set a global random seed: whoever calls it then draws the same numbers every time",
    "default dtype": "it changed torch's default dtype for everyone",
    "grad mode": "it switched gradients off for everyone: use `with torch.no_grad():`, which switches them back",
    "device": "it changed torch's default device for everyone",
}


def change_in_words(change: str) -> str:
    """What it means that a call changed something: see `Observation.changes`."""
    if change.startswith("input "):
        name = change.removeprefix("input ")
        return f"it changed its input `{name}`, which belongs to the caller: compute a new one"
    return _CHANGES[change]


def signature(exercise: Exercise) -> str:
    """How the exercise's object is called: `softmax(scores)`."""
    parameters = [*inspect.signature(exercise.answer).parameters.values()]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{exercise.name}{inspect.Signature(plain)}"


def crash_in_words(exercise: Exercise, crash: Crash) -> str:
    """One line: how the call ended."""
    if crash.kind == "time":
        return f"it did not come back within {SECONDS:g} seconds: is there a loop that never ends, or too much to try?"
    if crash.kind == "memory":
        size = f"{crash.message} of memory" if crash.message else "more memory than it may have"
        return f"it asked for {size}, far more than these inputs need: is a shape wrong, or too much kept at once?"
    if crash.type == "ParameterError":
        return crash.message
    where = f" in line {crash.line}" if crash.line is not None else ""
    if crash.part:
        where = f" inside your `{crash.part}` from an earlier notebook" + (f", called{where}" if where else "")
    return f"it stops with {'an' if crash.type[:1] in 'AEIOU' else 'a'} `{crash.type}`{where}"


def crash_blocks(exercise: Exercise, crash: Crash) -> list[Block]:
    """Where it happened, and what such an exception means."""
    blocks: list[Block] = [Code(f"line {crash.line}:  {crash.code}")] if crash.code else []
    if crash.kind == "exception":
        if crash.type != "ParameterError":
            blocks.append(Code(f"{crash.type}: {crash.message}" if crash.message else crash.type))
        text = f"{crash.type}: {crash.message}"
        for pattern, meaning in _MEANINGS:
            match = re.search(pattern, text)
            own_call = crash.line is None or f"{exercise.name}." in text or f"{exercise.name}(" in text
            if match and (own_call or meaning != "{signature}"):  # another function was called wrongly, and is named
                call = f"It is called as `{signature(exercise)}`."
                blocks.append(meaning.format(*match.groups(), signature=call))
                break
        if crash.type == "ParameterError" and "there is no" in crash.message:
            blocks.append("The names of the parameters are fixed, so that weights can be loaded by name.")
    return blocks


def input_blocks(exercise: Exercise, inputs: dict[str, Any]) -> list[Block]:
    """The inputs of one check, small ones in full, and the call as far as it can be told from their names."""
    is_class = isinstance(exercise.answer, type)
    arguments = inputs.get("arguments") if is_class else None
    # a model's weights are a dictionary, and too many to read; an argument that is called so is a tensor
    shown = {name: value for name, value in inputs.items() if name != "weights" or not isinstance(value, dict)}
    if isinstance(arguments, dict):
        del shown["arguments"]
    called = getattr(exercise.answer, "forward", None) if is_class else exercise.answer
    known = inspect.signature(called).parameters if called else {}
    call = ""
    if isinstance(arguments, dict):
        call = f"{exercise.name}({', '.join(f'{name}={short(value)}' for name, value in arguments.items())})"
        if shown and all(name in known for name in shown):
            call += f"({', '.join(shown)})"
    elif not is_class and all(name in known for name in shown):  # a harness may make the arguments from other inputs
        call = f"{exercise.name}({', '.join(shown)})"
    blocks: list[Block] = [Code(call)] if call else []
    plain = []
    for name, value in shown.items():
        twin = next((other for other in shown if same_data(shown[other], value)), name)
        if twin != name and isinstance(value, Tensor | np.ndarray):
            blocks.append(f"{name} = {twin}")
            continue
        if isinstance(value, Tensor | np.ndarray):
            rows = _rows(value)
            title = f"{name} {_named_shape(exercise, name, value)}"
            more = len(rows) - ROWS
            blocks.append(Grid(title + (f", its first {ROWS} rows" if more > 0 else ""), rows[:ROWS]))
        elif isinstance(value, dict) and any(isinstance(part, dict) for part in value.values()):
            settings = {key: part for key, part in value.items() if not isinstance(part, dict)}
            listed = ", ".join(f"{key} = {short(part)}" for key, part in settings.items())
            blocks += [f"{name}: {listed}"] if listed else []
            blocks += [f"{name}, {key}: {short(part)}" for key, part in value.items() if key not in settings]
        elif isinstance(value, str | int | float | bool):
            plain.append(f"{name} = {short(value)}")
        elif value is not None:
            blocks.append(f"{name} = {short(value)}")
    return [*blocks, ", ".join(plain)] if plain else blocks


def difference_blocks(exercise: Exercise, difference: Difference, tolerance: float) -> list[Block]:
    """One difference: shapes as boxes, numbers as at most four rows."""
    expected, received = difference.expected, difference.received
    tensors = isinstance(expected, Tensor | np.ndarray) and isinstance(received, Tensor | np.ndarray)
    if difference.kind == "shape":
        names = axis_names(exercise, difference.where, expected) or [""] * expected.ndim
        wanted = [(name, str(size)) for name, size in zip(names, expected.shape, strict=True)]
        got = _recognised(tuple(received.shape), list(zip(names, expected.shape, strict=True)))
        return [Shapes(f"The shape of `{difference.where}`:", wanted, got)]
    if tensors and difference.kind in ("value", "nan"):
        wrong = wrong_positions(to_double(expected), to_double(received), tolerance)
        rows = wrong.reshape(-1, wrong.shape[-1]).any(-1) if wrong.ndim else wrong.reshape(1)
        chosen = rows.nonzero().flatten().tolist()
        pages = [_rows(expected), _rows(received)]
        sides = [
            Grid(title, [page[i] for i in chosen[:ROWS]])
            for title, page in zip(("expected", "got"), pages, strict=True)
        ]
        which = "all of them" if len(chosen) <= ROWS else f"the first {ROWS}"
        title = f"{difference.where} {_named_shape(exercise, difference.where, expected)}"
        if len(pages[0]) > 1:
            title += f", rows that differ ({len(chosen)} of {len(pages[0])}, {which})"
        return [SideBySide(title, *sides)]
    if difference.kind in ("value", "nan"):
        wanted, got = short_and_apart(expected, received)
        return [f"`{difference.where}`: expected {wanted}; got {got}"]
    return []


def axis_names(exercise: Exercise, name: str, value: Any) -> list[str] | None:
    """Return the names of the axes of an input or a result, if the exercise gives them and they fit."""
    if not isinstance(value, Tensor | np.ndarray):
        return None
    names = exercise.axes.get(name.removeprefix("gradient of "), "").split()
    return names if len(names) == len(value.shape) else None


def _named_shape(exercise: Exercise, name: str, value: Any) -> str:
    names = axis_names(exercise, name, value)
    if not value.shape:
        return ""
    return (
        f"({', '.join(f'{axis} {size}' for axis, size in zip(names, value.shape, strict=True))})"
        if names
        else str(tuple(value.shape))
    )


def _recognised(shape: tuple[int, ...], axes: list[tuple[str, int]]) -> list[tuple[str, str]]:
    """Names for the axes of a wrong shape: those of the expected axes with the same size, or a product of two."""
    left = list(axes)
    names: list[str] = []
    for position, size in enumerate(shape):
        same = [axis for axis in left if axis[1] == size]
        if len(shape) == len(axes) and axes[position] in same:
            same = [axes[position]]
        if same:
            left.remove(same[0])
        names.append(same[0][0] if same else "?")
    for position, size in enumerate(shape):
        if names[position] == "?":
            pairs = [
                (a, b)
                for i, a in enumerate(left)
                for b in left[i + 1 :]
                if a[1] * b[1] == size and 1 not in (a[1], b[1])
            ]
            if pairs:
                names[position] = f"{pairs[0][0][0]} × {pairs[0][1][0]}"
    return [(name, str(size)) for name, size in zip(names, shape, strict=True)]


def _rows(value: Tensor | np.ndarray) -> list[tuple[str, list[str]]]:
    """A tensor as lines of a table: the last axis runs across, the others are the labels."""
    numbers = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.ascontiguousarray(value))
    if numbers.ndim == 0:
        return [("", [_cell(numbers)])]
    flat = numbers.reshape(-1, numbers.shape[-1]) if numbers.numel() else numbers.reshape(0, 0)
    rows = []
    for index, row in enumerate(flat):
        label = "" if numbers.ndim == 1 else str([int(i) for i in np.unravel_index(index, tuple(numbers.shape[:-1]))])
        cells = [_cell(cell) for cell in row[:COLUMNS]]
        rows.append((label, [*cells, "…"] if len(row) > COLUMNS else cells))
    return rows


def _cell(cell: Tensor) -> str:
    if cell.dtype == torch.bool:
        return str(bool(cell))
    return number(float(cell)) if cell.is_floating_point() else str(cell.item())
