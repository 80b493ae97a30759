"""Judge an observation in a check, and compare two observations."""

import functools
import warnings
from dataclasses import dataclass, field
from typing import Any

from transformer_lab.exercises.comparison import Difference, agree, compare
from transformer_lab.exercises.edits import Wrong, iterations
from transformer_lab.exercises.exercise import Check, Exercise, Probe, Property, Remark
from transformer_lab.exercises.explanation import crash_in_words
from transformer_lab.exercises.observation import Crash, Observation, observe, timed_out
from transformer_lab.exercises.time_limit import OutOfTime

TIMED_OUT = "an earlier check ran out of time"
WRONG_KIND = "it returns the wrong kind of value"


@dataclass
class Verdict:
    """One check's verdict on one observation."""

    check: Check
    state: str = "passed"
    says: str = ""
    differences: list[Difference] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    costs_points: bool = False  # a property that fails, or can't be checked even though the checks it needs passed

    def __post_init__(self) -> None:
        self.costs_points = isinstance(self.check, Property) and self.state != "passed"


@functools.lru_cache(maxsize=256)
def inputs_by_check(exercise: Exercise, seed: int) -> dict[str, dict[str, Any]]:
    return {check.name: exercise.inputs(check, seed) for check in exercise.checks}


def observation(exercise: Exercise, subject: Any, check: Check, seed: int) -> Observation:
    """Run one check on `subject`."""
    inputs = inputs_by_check(exercise, seed)[check.name]
    return observe(subject, exercise.harness(check), inputs, exercise.global_seed(check))


class Reference:
    """Observations of the answer and its wrong versions with one seed's inputs. Each is made when it is first needed.

    They run the package's own code, so no limits or threads are needed.
    """

    def __init__(self, exercise: Exercise, seed: int) -> None:
        self.exercise, self.seed = exercise, seed
        self.of_answer = functools.cache(self.of_answer)  # not on the class: the caches are freed with the reference
        self.of = functools.cache(self.of)
        self.is_symptom = functools.cache(self.is_symptom)

    def of_answer(self, check: Check) -> Observation:
        with warnings.catch_warnings(action="ignore"):
            return observation(self.exercise, self.exercise.answer, check, self.seed)

    def of(self, wrong: Wrong, check: Check) -> Observation:
        """Return the observation of a wrong version. An exception in its definition counts as a crash."""
        iterations.start()
        try:
            with warnings.catch_warnings(action="ignore"):
                return observation(self.exercise, wrong.subject, check, self.seed)
        except OutOfTime:
            return timed_out([])
        except Exception as error:
            return Observation(crash=Crash("exception", type(error).__name__, str(error)))

    def is_symptom(self, wrong: Wrong, check: Check) -> bool:
        """Return whether a wrong version behaves differently from the answer in a check."""
        return not same_result(self, check, self.of(wrong, check), self.of_answer(check))


reference_of = functools.lru_cache(maxsize=256)(Reference)


def verdict_on(reference: Reference, check: Check, observed: Observation | None) -> Verdict:
    """Return the verdict of `check` on an observation. If there is no observation, `observed` is None."""
    if observed is None:
        return Verdict(check, "not checked", TIMED_OUT)
    if observed.crash is not None:
        return Verdict(check, "failed", crash_in_words(observed.crash))
    exercise, received = reference.exercise, observed.value
    if isinstance(check, Probe) and check.compare_results is None:
        expected = reference.of_answer(check).value
        differences, remarks = compare(expected, received, exercise.returns, check.tolerance)
        state = "failed" if differences else "passed"
        return Verdict(check, state, "; ".join(each.says for each in differences[:2]), differences, remarks)
    inputs = inputs_by_check(exercise, reference.seed)[check.name]
    try:
        if isinstance(check, Property):
            says = check.rule(inputs, received)
        else:
            says = check.compare_results(inputs, reference.of_answer(check).value, received)
    except Exception:  # a rule doesn't expect such a value; a probe reports it
        return Verdict(check, "not checked" if isinstance(check, Property) else "failed", WRONG_KIND)
    if says is None or isinstance(says, Remark):
        return Verdict(check, remarks=[str(says)] if says else [])
    return Verdict(check, "failed", str(says))


def same_result(reference: Reference, check: Check, observed: Observation, other: Observation) -> bool:
    """Return whether two objects behaved the same way in one check, whether right or wrong."""
    return observed.changes == other.changes and same_value(reference, check, observed, other)


def same_value(reference: Reference, check: Check, observed: Observation, other: Observation) -> bool:
    """Return whether two objects returned the same value or crashed in the same way, ignoring other changes.

    A crash on a different line is the same if the exception and its message are.
    """
    crashes = [one.crash and (one.crash.kind, one.crash.type, one.crash.message) for one in (observed, other)]
    if any(crashes):
        return crashes[0] == crashes[1]
    if isinstance(check, Probe):
        if agree(observed.value, other.value, reference.exercise.returns, check.tolerance):
            return True
        if check.compare_results is None:
            return False
    return _outcome(reference, check, observed) == _outcome(reference, check, other)


@functools.lru_cache(maxsize=2_000)  # a diagnosis compares the same observations many times
def _outcome(reference: Reference, check: Check, observed: Observation) -> tuple[str, str]:
    verdict = verdict_on(reference, check, observed)
    return verdict.state, verdict.says
