"""Data types: `Exercise`, `Probe`, `Property`, and `Remark`."""

import hashlib
import inspect
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformer_lab.exercises.harnesses import call_function, call_module, defaults_of
from transformer_lab.exercises.observation import isolated_global_state
from transformer_lab.exercises.sampling import InputSampler

PUBLIC_SEED = 0  # for the inputs of checks in a notebook


class Remark(str):
    """A comment on a correct result, returned by a rule or comparison."""

    __slots__ = ()


@dataclass(frozen=True)
class Probe:
    """Inputs for which the student's object must produce the same results as the answer. Only probes earn points.

    Each probe covers one thing. The correct results must depend on the inputs, so that no constant function passes.
    """

    name: str  # what it covers, as shown in the report: "a causal mask hides the future"
    inputs: Callable[[InputSampler], dict[str, Any]]  # tensors, arrays, numbers, strings, lists, dictionaries
    call: Callable[..., Any] | None = None  # a harness (see harnesses.py); None means the exercise's own harness
    weight: float = 1
    needs: tuple[str, ...] = ()  # names of earlier checks; if one of them fails, this one is "not checked"
    tolerance: float = 1e-5  # absolute and relative; rounding to float32 inside float64 code stays within it
    # (inputs, expected, received) -> what is wrong, or None, or a Remark; for checks with more than one right result
    compare_results: Callable[[dict, Any, Any], str | None] | None = None
    is_example: bool = True  # False if nobody can work it out by hand, so that a report prefers to show another probe


@dataclass(frozen=True)
class Property:
    """A requirement on any solution, no matter how it is written. Violating it costs points; meeting it earns none."""

    name: str  # the requirement, as a sentence: "every row of weights sums to 1"
    inputs: Callable[[InputSampler], dict[str, Any]]
    rule: Callable[[dict, Any], str | None]  # (inputs, received) -> what is wrong, or None, or a Remark
    call: Callable[..., Any] | None = None
    penalty: float = 1  # on the same scale as the weights of probes
    needs: tuple[str, ...] = ()


Check = Probe | Property


def same_defaults(inputs: dict, received: dict) -> str | None:
    """Return a message if a default differs from the one in the notebook's signature."""
    for name, default in received.items():
        expected = inputs["expected"][name]
        if default != expected:
            return f"expected the default `{name}={expected!r}`, as in the notebook's signature"
    return None


@dataclass(frozen=True, eq=False)  # each exercise exists only once, so its identity can be its hash
class Exercise:
    """A function or class in the package, used as an exercise. See README.md."""

    answer: Callable  # the package's own object; its name is the exercise's name
    points: float
    minutes: int
    probes: list[Probe]
    properties: list[Property]
    blank: tuple[str, ...] = ()  # for a class: the methods that the student writes
    returns: tuple[str, ...] = ("output",)  # names of the results, for the report
    axes: dict[str, str] = field(default_factory=dict)  # axis names, by input or result: {"query": "batch query d_k"}
    builds_on: tuple[str, ...] = ()  # earlier exercises that the code may use; checks use the package's versions
    banned: tuple[str, ...] = ()  # full names of library answers; ".softmax" is a method of any object
    call: Callable[..., Any] | None = None  # the harness for checks that don't have their own

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.answer).parameters.values()
        defaults = {each.name: each.default for each in parameters if isinstance(each.default, bool | int | float)}
        if defaults:
            name = "the defaults are those in the signature"
            own = Property(name, lambda sampler: {"expected": defaults}, same_defaults, defaults_of, penalty=0.5)
            self.properties.append(own)

    @property
    def name(self) -> str:
        return self.answer.__name__

    @property
    def checks(self) -> list[Check]:
        return [*self.probes, *self.properties]

    def harness(self, check: Check) -> Callable:
        """Return the function that calls the student's object for `check`."""
        return check.call or self.call or (call_module if isinstance(self.answer, type) else call_function)

    def input_seed(self, check: Check, seed: int) -> int:
        """Return the seed for the inputs of one check. This seed does not change when other checks are added.

        A grader's seed is secret and is used as a hash key, so neither one check's inputs nor the number returned here
        reveals another check's inputs. In a notebook, the inputs are public.
        """
        check_name = f"{seed}/{self.name}/{check.name}".encode()
        if seed == PUBLIC_SEED:
            return zlib.crc32(check_name)
        key = seed.to_bytes(16, "big", signed=True)
        return int.from_bytes(hashlib.blake2b(check_name, digest_size=8, key=key).digest(), "big")

    def global_seed(self, check: Check) -> int:
        """Return the seed for the global generators during a check. The code being checked can read it."""
        return self.input_seed(check, PUBLIC_SEED)

    def inputs(self, check: Check, seed: int = PUBLIC_SEED) -> dict[str, Any]:
        """Return new inputs for `check`. A notebook uses `PUBLIC_SEED`, and a grader uses its own seed."""
        with isolated_global_state(seed):
            return check.inputs(InputSampler(self.input_seed(check, seed)))
