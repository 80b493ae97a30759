"""What each check says about one observation, and whether two observations are the same."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from transformer_lab.exercises.comparison import Difference, compare
from transformer_lab.exercises.edits import Wrong, iterations
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.explanation import crash_in_words
from transformer_lab.exercises.observation import Crash, Observation, observe, timed_out
from transformer_lab.exercises.time_limit import OutOfTime

TIMED_OUT = "an earlier check did not end"
WRONG_KIND = "what it returns is of the wrong kind"


@dataclass
class Verdict:
    """What one check says about one observation."""

    check: Probe | Property
    state: str = "passed"
    says: str = ""
    differences: list[Difference] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    penalty: bool = False  # points: a property that's broken, or that couldn't be looked at although it needed nothing

    def __post_init__(self) -> None:
        self.penalty = isinstance(self.check, Property) and self.state != "passed"

    def is_probe(self, state: str) -> bool:
        return isinstance(self.check, Probe) and self.state == state


@functools.lru_cache(maxsize=256)
def inputs_by_check(exercise: Exercise, seed: int) -> dict[str, dict[str, Any]]:
    """The inputs of every check, by its name."""
    return {check.name: exercise.inputs(check, seed) for check in exercise.checks}


def observation(exercise: Exercise, subject: Any, check: Probe | Property, seed: int) -> Observation:
    """What `subject` does in one check."""
    inputs = inputs_by_check(exercise, seed)[check.name]
    return observe(subject, exercise.harness(check), inputs, exercise.global_seed(check))


class Reference:
    """What the answer and its wrong versions give with the inputs of one seed, each found out when it is first needed.

    This is code of the package: it needs no limits, so it needs no thread.
    """

    def __init__(self, exercise: Exercise, seed: int) -> None:
        self.exercise, self.seed = exercise, seed
        self.ran = 0  # wrong versions run so far
        self._answers: dict[str, Observation] = {}
        self._wrongs: dict[tuple[Wrong, str], Observation] = {}
        self._symptoms: dict[tuple[Wrong, str], bool] = {}

    def of_answer(self, check: Probe | Property) -> Observation:
        """What the answer gives."""
        if check.name not in self._answers:
            self._answers[check.name] = self._run(self.exercise.answer, check)
        return self._answers[check.name]

    def of(self, wrong: Wrong, check: Probe | Property) -> Observation:
        """What a wrong version gives: where its definition raises, that exception."""
        key = wrong, check.name
        if key not in self._wrongs:
            self.ran += 1
            iterations.counted = 0
            try:
                self._wrongs[key] = self._run(wrong.subject, check)
            except OutOfTime:
                self._wrongs[key] = timed_out([])
            except Exception as error:
                self._wrongs[key] = Observation(crash=Crash("exception", type(error).__name__, str(error)))
        return self._wrongs[key]

    def _run(self, subject: Any, check: Probe | Property) -> Observation:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return observation(self.exercise, subject, check, self.seed)

    def is_symptom(self, wrong: Wrong, check: Probe | Property) -> bool:
        """Whether this wrong version gives something else than the answer there."""
        key = wrong, check.name
        if key not in self._symptoms:
            self._symptoms[key] = not same_result(self, check, self.of(wrong, check), self.of_answer(check))
        return self._symptoms[key]


reference_of = functools.lru_cache(maxsize=256)(Reference)


@contextmanager
def known_settings() -> Iterator[None]:
    """Let references and the rules of properties make float64 tensors, with gradients, whatever the caller has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        # a device that is set makes every call of torch slower
        on_cpu = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
        with torch.inference_mode(False), torch.enable_grad(), on_cpu:
            yield
    finally:
        torch.set_default_dtype(dtype)


def verdict_on(reference: Reference, check: Probe | Property, observed: Observation | None) -> Verdict:
    """What `check` says about an observation; None is one that was never made."""
    exercise = reference.exercise
    if observed is None:
        return Verdict(check, "not checked", TIMED_OUT)
    if observed.crash is not None:
        return Verdict(check, "failed", crash_in_words(exercise, observed.crash))
    inputs = inputs_by_check(exercise, reference.seed)[check.name]
    if isinstance(check, Property):
        try:
            wrong = check.rule(inputs, observed.value)
        except Exception:  # a value of another kind than the property speaks of, and a probe says so
            return Verdict(check, "not checked", WRONG_KIND)
    elif check.compare_results is not None:
        try:
            wrong = check.compare_results(inputs, reference.of_answer(check).value, observed.value)
        except Exception:
            wrong = WRONG_KIND
    else:
        expected = reference.of_answer(check).value
        differences, remarks = compare(expected, observed.value, exercise.returns, check.tolerance)
        state = "failed" if differences else "passed"
        return Verdict(check, state, "; ".join(d.says for d in differences[:2]), differences, remarks)
    if wrong is None or isinstance(wrong, Remark):
        return Verdict(check, remarks=[str(wrong)] if wrong else [])
    return Verdict(check, "failed", str(wrong))


def same_crash(one: Crash, other: Crash) -> bool:
    """Whether two calls ended with the same exception and the same message, wherever that was."""
    bare = [replace(crash, line=None, code="", part="") for crash in (one, other)]
    return bare[0] == bare[1]


def same_result(reference: Reference, check: Probe | Property, one: Observation, other: Observation) -> bool:
    """Whether two objects did the same in one check, right or wrong."""
    return one.changes == other.changes and same_value(reference, check, one, other)


def same_value(reference: Reference, check: Probe | Property, one: Observation, other: Observation) -> bool:
    """The same, whatever else the two have altered."""
    if one.crash is not None or other.crash is not None:
        return one.crash is not None and other.crash is not None and same_crash(one.crash, other.crash)
    if isinstance(check, Probe):
        differences, _ = compare(one.value, other.value, reference.exercise.returns, check.tolerance)
        if not differences:
            return True
        if check.compare_results is None:
            return False
    verdicts = [verdict_on(reference, check, observed) for observed in (one, other)]
    return (verdicts[0].state, verdicts[0].says) == (verdicts[1].state, verdicts[1].says)
