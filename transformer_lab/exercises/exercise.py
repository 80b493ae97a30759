"""What an exercise is."""

import hashlib
import inspect
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformer_lab.exercises.harnesses import call_function, call_module, defaults_of
from transformer_lab.exercises.observation import isolated_global_state
from transformer_lab.exercises.sampling import InputSampler

PUBLIC_SEED = 0  # of the inputs that a notebook's own check uses


class Remark(str):
    """What a judgement returns when a result is right, but something should be said about it."""

    __slots__ = ()


@dataclass(frozen=True)
class Probe:
    """Inputs for which the student's object must give the same as the answer. Only probes earn points.

    Each covers one thing. No constant function may pass it, so the right result must depend on the inputs.
    """

    name: str  # what it covers, as the report says it: "a causal mask hides the future"
    inputs: Callable[
        [InputSampler], dict[str, Any]
    ]  # plain data: tensors, arrays, numbers, strings, lists, dictionaries
    call: Callable[..., Any] | None = (
        None  # a harness (see harnesses.py); None: call the function, or build and call the module
    )
    weight: float = 1
    needs: tuple[str, ...] = ()  # names of checks without which this one says nothing: then it is "not checked"
    tolerance: float = 1e-5  # absolute and relative; float32 rounding inside float64 code stays below it
    compare_results: Callable[[dict, Any, Any], str | None] | None = (
        None  # (inputs, expected, received) -> what is wrong, or None
    )


@dataclass(frozen=True)
class Property:
    """What must hold whatever the code looks like. It costs points when broken and never earns any."""

    name: str  # the thing that holds, as a sentence: "every row of weights sums to 1"
    inputs: Callable[[InputSampler], dict[str, Any]]
    rule: Callable[[dict, Any], str | None]  # (inputs, received) -> what is wrong, or None, or a Remark
    call: Callable[..., Any] | None = None
    penalty: float = 1  # in weights of probes
    needs: tuple[str, ...] = ()


def same_defaults(inputs: dict, received: dict) -> str | None:
    """Say which default is another one than in the notebook's signature."""
    for name, default in received.items():
        expected = inputs["expected"][name]
        if default != expected:
            return f"`{name}` has another default than the signature in the notebook, `{name}={expected!r}`"
    return None


@dataclass(frozen=True, eq=False)  # one object each: its identity is its hash
class Exercise:
    """One function or class of the package as something to write. The guide is in `exercises/__init__.py`."""

    answer: Callable  # the package's own object; its name is the exercise's name
    points: float
    minutes: int
    probes: list[Probe]
    properties: list[Property]
    hints: list[str]  # from a nudge to nearly the line
    blank: tuple[str, ...] = ()  # for a class: the methods whose bodies the student writes
    returns: tuple[str, ...] = ("output",)  # names of what it returns, for the report
    axes: dict[str, str] = field(
        default_factory=dict
    )  # names of axes of inputs and results: {"query": "batch query d_k"}
    builds_on: tuple[
        str, ...
    ] = ()  # earlier exercises that the student's code may use: the check puts the package's there
    banned: tuple[
        str, ...
    ] = ()  # full names of library answers; ".softmax" is a method of any object: flagged when graded

    call: Callable[..., Any] | None = None  # the harness of checks that have none of their own

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.answer).parameters.values()
        defaults = {one.name: one.default for one in parameters if isinstance(one.default, bool | int | float)}
        if defaults:
            one = Property("the defaults are those in the signature", lambda sampler: {"expected": defaults},
                           same_defaults, defaults_of, penalty=0.5)  # fmt: skip
            self.properties.append(one)

    @property
    def name(self) -> str:
        return self.answer.__name__

    @property
    def checks(self) -> list[Probe | Property]:
        return [*self.probes, *self.properties]

    def harness(self, check: Probe | Property) -> Callable:
        """How `check` uses the student's object."""
        return check.call or self.call or (call_module if isinstance(self.answer, type) else call_function)

    def input_seed(self, check: Probe | Property, seed: int) -> int:
        """Return the seed of the inputs of one check, which doesn't change when other checks are added.

        A grader's seed is secret, so it's the key of a hash: nobody who knows the inputs of one check, or has found out
        this number, can compute those of another. The notebook's own inputs are public.
        """
        check_name = f"{seed}/{self.name}/{check.name}".encode()
        if seed == PUBLIC_SEED:
            return zlib.crc32(check_name)
        key = seed.to_bytes(16, "big", signed=True)
        return int.from_bytes(hashlib.blake2b(check_name, digest_size=8, key=key).digest(), "big")

    def global_seed(self, check: Probe | Property) -> int:
        """Return what torch's generators are seeded with while a check runs. The code that is checked can read it."""
        return self.input_seed(check, PUBLIC_SEED)

    def inputs(self, check: Probe | Property, seed: int = PUBLIC_SEED) -> dict[str, Any]:
        """Return fresh inputs of `check`. A notebook uses `PUBLIC_SEED`, a grader a seed of its own."""
        with isolated_global_state(seed):
            return check.inputs(InputSampler(self.input_seed(check, seed)))
