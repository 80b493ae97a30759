"""Call the student's object once, and record its result as plain data and its changes to global state.

This module contains no answers, because it may run alongside untrusted code. Scoring happens in a different process.
"""

import dis
import functools
import inspect
import linecache
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_lab.exercises.time_limit import OutOfTime, stoppable


@dataclass(frozen=True)
class NotData:
    """A returned value that is not data, such as a generator, a module, or a tensor without values."""

    description: str


@dataclass(frozen=True)
class Crash:
    """How a call ended if it did not return."""

    kind: str  # "exception", "time", "memory"
    type: str = ""  # the exception's class
    message: str = ""
    line: int | None = None  # the line number in the student's cell or file, if known
    code: str = ""  # the text of that line
    part: str = ""  # the earlier part in which the call stopped, if it isn't the one being checked


@dataclass(frozen=True, eq=False)
class Observation:
    """A call's result and what it modified: `input query`, `seed`, `default dtype`, `grad mode`, `device`."""

    value: Any = None
    crash: Crash | None = None
    changes: tuple[str, ...] = ()


def observe(subject: Any, harness: Callable, inputs: dict[str, Any], seed: int) -> Observation:
    """Let `harness` call `subject` with a copy of `inputs`, in an isolated global state seeded with `seed`."""
    with isolated_global_state(seed) as changed_state:
        copied = copy_data(inputs)  # here, because tensors created in inference mode have no gradients
        try:
            value, crash = stoppable(lambda: as_data(harness(subject, **copied))), None
        except OutOfTime:
            raise
        except BaseException as error:  # including SystemExit, because the student's code must not stop this program
            value, crash = None, _crash(error, subject)
        changes = [f"input {name}" for name, original in inputs.items() if not same_data(original, copied[name])]
        changes += changed_state()
    return Observation(value, crash, tuple(changes))


def timed_out(places: list[tuple[str, int]]) -> Observation:
    """Return the observation for a call that ran out of time at `places` (see `run_limited`)."""
    line, code = _students_line(places)
    return Observation(crash=Crash("time", line=line, code=code))


@contextmanager
def isolated_global_state(seed: int) -> Iterator[Callable[[], list[str]]]:
    """Set the global state that code can depend on, and restore the old state at the end.

    The three global generators are seeded, the default dtype is float64, gradients are on, and the device is the CPU.

    Yields:
        A function that returns the changes made so far.
    """

    def changes() -> list[str]:
        is_changed = {
            "seed": _is_reseeded(seed),
            "default dtype": torch.get_default_dtype() != torch.float64,
            "grad mode": not torch.is_grad_enabled(),
            "device": torch.get_default_device().type != "cpu",
        }
        return [name for name in is_changed if is_changed[name]]

    with preserved_global_state(), torch.inference_mode(False), torch.enable_grad(), np.errstate(all="ignore"):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        torch.set_default_dtype(torch.float64)
        if torch.get_default_device().type != "cpu":
            torch.set_default_device("cpu")
        yield changes


def _is_reseeded(seed: int) -> bool:
    """Return whether a global generator was seeded inside `isolated_global_state`. Sampling from it is allowed.

    torch's generator stores its seed. NumPy's and Python's generators do not. After sampling, however, their state (a
    table of 624 numbers) must be the one that `seed` produces or one of its successors.
    """
    if torch.default_generator.initial_seed() != seed:
        return True
    tables = np.random.get_state()[1].tobytes(), random.getstate()[1][:-1]
    if tables == _first_tables(seed):  # nothing has been sampled
        return False
    numpys, pythons = np.random.RandomState(seed % 2**32), random.Random(seed)
    return not (
        _follows(tables[0], lambda: numpys.get_state()[1].tobytes(), lambda: numpys.bytes(2496))
        and _follows(tables[1], lambda: pythons.getstate()[1][:-1], lambda: pythons.getrandbits(19968))
    )


@functools.lru_cache(maxsize=128)
def _first_tables(seed: int) -> tuple[bytes, tuple]:
    return np.random.RandomState(seed % 2**32).get_state()[1].tobytes(), random.Random(seed).getstate()[1][:-1]


def _follows(table: Any, current: Callable[[], Any], next_table: Callable[[], Any]) -> bool:
    for _ in range(200):  # no check needs more than 200 times 624 random numbers
        if current() == table:
            return True
        next_table()
    return False


@contextmanager
def preserved_global_state() -> Iterator[None]:
    """Restore the random generators, the default dtype and device, and the recursion limit after the `with` block."""
    states = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    dtype, device, depth = torch.get_default_dtype(), torch.get_default_device(), sys.getrecursionlimit()
    try:
        yield
    finally:
        torch.default_generator.set_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(device)
        sys.setrecursionlimit(depth)


def copy_data(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.clone()
    if isinstance(data, np.ndarray):
        return data.copy()
    if isinstance(data, dict):
        return {key: copy_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(copy_data(value) for value in data)
    return data


def same_data(data: Any, other: Any) -> bool:
    """Return whether two pieces of plain data are exactly equal. In tensors and arrays, NaN equals NaN."""
    if isinstance(data, Tensor):
        if not isinstance(other, Tensor):
            return False
        same_form = (data.shape, data.dtype, data.device) == (other.shape, other.dtype, other.device)
        return same_form and (
            torch.equal(data, other) or bool(((data == other) | (data.isnan() & other.isnan())).all())
        )
    if type(data) is not type(other):
        return False
    if isinstance(data, np.ndarray):
        return data.dtype == other.dtype and np.array_equal(data, other, equal_nan=True)
    if isinstance(data, dict):
        return list(data) == list(other) and all(same_data(data[key], other[key]) for key in data)
    if isinstance(data, list | tuple):
        return len(data) == len(other) and all(map(same_data, data, other))
    return data == other


MOST_ITEMS = 10_000
NUMBERS = "?bhilqBHILefdFD"  # NumPy dtypes that torch also has: no strings, dates, or `longdouble`


def as_data(value: Any, depth: int = 0) -> Any:
    """Return a value as plain data: detached tensors, arrays, numbers, strings, None, tuples, lists, dictionaries.

    Anything else becomes a `NotData` with a description.
    """
    if isinstance(value, Tensor):
        if value.device.type != "cpu":
            return NotData(f"a tensor on the device `{value.device.type}`")
        if value.is_nested or value.is_quantized or value.layout != torch.strided:
            return NotData(f"a tensor of another kind ({'nested' if value.is_nested else value.layout})")
        return value.detach().clone().as_subclass(Tensor)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return NotData("an array of Python objects")
        if value.dtype.char not in NUMBERS:
            return NotData(f"an array of `{value.dtype.name}`")
        return np.array(value, value.dtype.newbyteorder("="))
    if isinstance(value, np.generic):
        value = value.item()  # a Python number, if Python has a matching type
    if type(value) is int and abs(value) > sys.float_info.max:
        return NotData("an enormous number")  # it can't be compared with a `float`
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth < 8 and isinstance(value, Mapping):
        return {_key(key): as_data(value[key], depth + 1) for key in list(value)[:MOST_ITEMS]}
    if depth < 8 and isinstance(value, list | tuple):
        items = [as_data(item, depth + 1) for item in value[:MOST_ITEMS]]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, type):
        return NotData(f"the class `{value.__name__}` itself")
    return NotData(with_article(type(value).__name__))


def with_article(name: str) -> str:
    """Return "an `object`" or "a `list`"."""
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} `{name}`"


def _key(key: Any) -> Any:
    return key if isinstance(key, str | int | float | bool | None) else as_data(key)


def _crash(error: BaseException, subject: Any) -> Crash:
    own_module = getattr(unwrapped(subject), "__module__", "")
    places, part = [], ""
    for frame, line_number in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if module.startswith("transformer_lab.mine.") and module != own_module:
            part = module.rpartition(".")[2]
        elif _is_students(frame.f_code.co_filename):
            places, part = [*places, (frame.f_code.co_filename, line_number)], ""
    line, code = _students_line(places)
    name = type(error).__name__
    try:
        message = str(error)
    except Exception:
        message = ""
    message = message.split("\nException raised from")[0].strip()  # a C++ stack trace follows
    message = re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", message)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in message:
        requested = re.search(r"(\d{7,}) bytes", message)
        size = f"{int(requested[1]) / 2**30:.1f} GiB" if requested else (re.search(r"[\d.]+ GiB", message) or [""])[0]
        return Crash("memory", name, size, line, code, part)
    return Crash("exception", name, message if len(message) <= 400 else message[:400] + " …", line, code, part)


_PACKAGE = str(Path(__file__).resolve().parents[1])
_LIBRARY = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def _students_line(places: list[tuple[str, int]]) -> tuple[int | None, str]:
    """Return the number and the text of the innermost line in the student's code."""
    for file, line in reversed(places):
        if _is_students(file):
            return line, linecache.getline(file, line).strip()
    return None, ""


def _is_students(file: str) -> bool:
    """Return whether a file is the student's own, not part of this package or of an installed one."""
    return not (file.startswith((_PACKAGE, *_LIBRARY, "<frozen", "<harness")) or "-packages" in file)


def unwrapped(subject: Any) -> Any:
    """Return the function or class inside decorators and partial applications."""
    while True:
        if isinstance(subject, functools.partial):
            subject = subject.func
        elif hasattr(subject, "__wrapped__"):
            subject = inspect.unwrap(subject)
        elif inspect.ismethod(subject):
            subject = subject.__func__
        else:
            return subject


def codes(subject: Any) -> list[CodeType]:
    """Return the code objects of a function, of the methods of a class, or of a callable object."""
    return [function.__code__ for function in _functions(unwrapped(subject))]


def _functions(subject: Any) -> Iterator[FunctionType]:
    if inspect.isfunction(subject):
        return iter([subject])
    owner = subject if isinstance(subject, type) else type(subject)
    return filter(inspect.isfunction, map(unwrapped, vars(owner).values()))


def namespace(subject: Any) -> dict[str, Any]:
    """Return the global names that the student's code can use."""
    subject = unwrapped(subject)
    if function := next(_functions(subject), None):
        return function.__globals__
    module = sys.modules.get((subject if isinstance(subject, type) else type(subject)).__module__)
    return vars(module) if module else {}


def is_unwritten(subject: Any, blank: tuple[str, ...] = ()) -> bool:
    """Return whether nothing is written yet: every body is empty or raises NotImplementedError right away."""
    subject = unwrapped(subject)
    if isinstance(subject, type):
        methods = [unwrapped(vars(subject).get(name)) for name in blank]
        functions = [method for method in methods if inspect.isfunction(method)]
        return bool(functions) and all(_has_no_body(function.__code__) for function in functions)
    return inspect.isfunction(subject) and _has_no_body(subject.__code__)


def _has_no_body(code: CodeType) -> bool:
    """Return whether the code does nothing before it returns None, or raises NotImplementedError before it branches."""
    idle = True
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "RAISE_VARARGS":
            return "NotImplementedError" in code.co_names
        if name in ("RETURN_CONST", "RETURN_VALUE"):
            return idle and instruction.argval is None
        if name.startswith(("STORE_", "FOR_", "POP_JUMP", "YIELD", "RETURN_GENERATOR")):
            return False
        if name == "LOAD_CONST":
            idle &= instruction.argval is None
        elif name not in ("RESUME", "NOP", "MAKE_CELL", "COPY_FREE_VARS"):
            idle = False
    return False
