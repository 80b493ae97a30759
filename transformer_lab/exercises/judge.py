"""From what was observed to a report. No code of a student runs here: a grader calls `judge` in its own process."""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from transformer_lab.exercises.compare import Difference, compare
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.explain import (
    change_in_words,
    crash_blocks,
    crash_in_words,
    difference_blocks,
    input_blocks,
)
from transformer_lab.exercises.limits import run_limited
from transformer_lab.exercises.observe import Crash, Observation, kept_world, observe, stuck
from transformer_lab.exercises.report import Block, CheckResult, Heading, Report

LEAVES_THE_REST_ALONE = "it leaves its inputs and torch's settings alone"
SMALLEST = 4  # failed checks in which a second mistake is looked for: all of them would take too long
TIMED_OUT = "an earlier check did not end"
WRONG_KIND = "what it returns is of the wrong kind"


@dataclass
class _Verdict:
    """What one check says about one observation."""

    check: Probe | Property
    state: str = "passed"
    says: str = ""
    differences: list[Difference] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@functools.lru_cache(maxsize=256)
def drawn(exercise: Exercise, seed: int) -> dict[str, dict[str, Any]]:
    """The inputs of every check, by its name."""
    return {check.name: exercise.inputs(check, seed) for check in exercise.checks}


def observe_all(exercise: Exercise, subject: Any, seed: int) -> tuple[dict[str, Observation], str]:
    """Run every check of the exercise on `subject`, within the limits of a check.

    Returns:
        Observations by name of check (none for the checks after one that ran out of time), and what was printed.
    """
    with kept_world():  # again, because a thread that is stopped may not come to put it back
        ran = run_limited(_jobs(exercise, subject, seed))
    results = ran.results + [stuck(ran.stuck_at)] * (len(ran.results) < len(exercise.checks))
    return {check.name: result for check, result in zip(exercise.checks, results, strict=False)}, ran.printed


def _jobs(exercise: Exercise, subject: Any, seed: int) -> list[Callable[[], Observation]]:
    return [functools.partial(_observation, exercise, subject, check, seed) for check in exercise.checks]


def _observation(exercise: Exercise, subject: Any, check: Probe | Property, seed: int) -> Observation:
    inputs = drawn(exercise, seed)[check.name]
    return observe(subject, exercise.recipe(check), inputs, exercise.check_seed(check, seed))


class Reference:
    """What an exercise's own parts give with the inputs of one seed, each found out when it is first needed.

    This is code of the package: it needs no limits, so it needs no thread.
    """

    def __init__(self, exercise: Exercise, seed: int) -> None:
        self.exercise, self.seed = exercise, seed
        self._observations: dict[tuple[Any, str], Observation] = {}
        self._symptoms: dict[tuple[Misconception, str], bool] = {}

    def of(self, subject: Any, check: Probe | Property) -> Observation:
        """What the answer or a wrong implementation gives."""
        key = subject, check.name
        if key not in self._observations:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._observations[key] = _observation(self.exercise, subject, check, self.seed)
        return self._observations[key]

    def is_symptom(self, misconception: Misconception, check: Probe | Property) -> bool:
        """Whether this misconception gives something else than the answer there."""
        key = misconception, check.name
        if key not in self._symptoms:
            wrong, right = self.of(misconception.wrong, check), self.of(self.exercise.answer, check)
            self._symptoms[key] = not _same_result(self, check, wrong, right)
        return self._symptoms[key]


reference_of = functools.lru_cache(maxsize=256)(Reference)


@contextmanager
def _known_settings() -> Iterator[None]:
    """Let references and the rules of properties make float64 tensors, with gradients, whatever the caller has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


@_known_settings()
def judge(exercise: Exercise, observations: dict[str, Observation], seed: int = 0) -> Report:
    """The report on a student's object from what was observed of it.

    Args:
        exercise: Probes, properties and misconceptions.
        observations: By name of check, made with the inputs that `exercise.inputs(check, seed)` gives. A check that is
            missing is "not checked".
        seed: As it was when the observations were made.
    """
    reference = reference_of(exercise, seed)
    verdicts = [_verdict(reference, check, observations.get(check.name)) for check in exercise.checks]
    _mark_followers(verdicts, observations)
    results = [CheckResult(verdict.check.name, verdict.state, verdict.says) for verdict in verdicts]
    changes = list(dict.fromkeys(change for made in observations.values() for change in made.changes))
    if changes:
        results.append(CheckResult(LEAVES_THE_REST_ALONE, "failed", "; ".join(map(change_in_words, changes))))
    else:
        timed_out = len(observations) < len(exercise.checks)
        results.append(CheckResult(LEAVES_THE_REST_ALONE, "not checked" if timed_out else "passed"))
    remarks = tuple(dict.fromkeys(remark for verdict in verdicts for remark in verdict.remarks))

    passed = all(result.state == "passed" for result in results)
    earned = sum(verdict.check.weight for verdict in verdicts if _is_probe(verdict, "passed"))
    lost = sum(verdict.check.costs for verdict in verdicts if _is_property(verdict, "failed")) + bool(changes)
    score = 1.0 if passed else max(0.0, earned - lost) / sum(probe.weight for probe in exercise.probes)
    if passed:
        return Report(exercise.name, "passed", score, exercise.points, tuple(results), remarks=remarks)
    named, whole = _misconceptions(reference, verdicts, observations)
    blocks = _explanation(reference, verdicts, observations, named, whole)
    blocks.append(f'`hint("{exercise.name}")` gives a hint.')
    slugs = tuple(misconception.slug for misconception in named)
    return Report(exercise.name, "failed", score, exercise.points, tuple(results), slugs, tuple(blocks), remarks)


def _is_probe(verdict: _Verdict, state: str) -> bool:
    return isinstance(verdict.check, Probe) and verdict.state == state


def _is_property(verdict: _Verdict, state: str) -> bool:
    return isinstance(verdict.check, Property) and verdict.state == state


def _verdict(reference: Reference, check: Probe | Property, observed: Observation | None) -> _Verdict:
    exercise = reference.exercise
    if observed is None:
        return _Verdict(check, "not checked", TIMED_OUT)
    if observed.crash is not None:
        return _Verdict(check, "failed", crash_in_words(exercise, observed.crash))
    inputs = drawn(exercise, reference.seed)[check.name]
    expected = reference.of(exercise.answer, check).value
    if isinstance(check, Property):
        try:
            wrong = check.holds(inputs, observed.value)
        except Exception:  # a value of another kind than the property speaks of, and a probe says so
            return _Verdict(check, "not checked", WRONG_KIND)
    elif check.agrees is not None:
        try:
            wrong = check.agrees(inputs, expected, observed.value)
        except Exception:
            wrong = WRONG_KIND
    else:
        differences, remarks = compare(expected, observed.value, exercise.returns, check.tolerance)
        state = "failed" if differences else "passed"
        return _Verdict(check, state, "; ".join(d.says for d in differences[:2]), differences, remarks)
    if wrong is None or isinstance(wrong, Remark):
        return _Verdict(check, remarks=[str(wrong)] if wrong else [])
    return _Verdict(check, "failed", str(wrong))


def _mark_followers(verdicts: list[_Verdict], observations: dict[str, Observation]) -> None:
    """Say "not checked" where a check repeats an earlier failure: what it needs failed, or the same line crashed."""
    failed: set[str] = set()
    crashes: dict[Any, str] = {}
    for verdict in verdicts:
        name = verdict.check.name
        missing = [needed for needed in verdict.check.needs if needed in failed]
        observed = observations.get(name)
        place = _place(observed.crash) if observed and observed.crash else None
        if verdict.state == "passed":
            continue
        if verdict.says == WRONG_KIND and not failed:
            verdict.state = "failed"
        failed.add(name)
        if missing:
            verdict.state, verdict.says = "not checked", f"it needs “{missing[0]}”"
        elif place in crashes:
            verdict.state, verdict.says = "not checked", f"it ends like “{crashes[place]}”"
        elif place:
            crashes[place] = name


def _place(crash: Crash) -> tuple:
    """What two crashes have in common that have one cause."""
    if crash.type == "ParameterError":  # whatever its sizes, the first one says it
        return (crash.type,)
    return crash.kind, crash.type, crash.line, crash.code or crash.message


def _same_result(reference: Reference, check: Probe | Property, one: Observation, other: Observation) -> bool:
    """Whether two objects did the same in one check, right or wrong."""
    if one.changes != other.changes or (one.crash is None) != (other.crash is None):
        return False
    if one.crash is not None:
        return replace(one.crash, line=None, code="") == replace(other.crash, line=None, code="")
    if isinstance(check, Probe):
        differences, _ = compare(one.value, other.value, reference.exercise.returns, check.tolerance)
        if not differences:
            return True
        if check.agrees is None:
            return False
    verdicts = [_verdict(reference, check, observed) for observed in (one, other)]
    return (verdicts[0].state, verdicts[0].says) == (verdicts[1].state, verdicts[1].says)


def _misconceptions(
    reference: Reference, verdicts: list[_Verdict], observations: dict[str, Observation]
) -> tuple[list[Misconception], bool]:
    """The misconceptions that give what the student's object gave, best first, and whether they do so in every check.

    One that is the same in every check is what the student did. If none is, there may be a second mistake beside it:
    then one is named of whose symptoms the student's object shows at least half, and a second one if it explains
    what the first does not.
    """
    exercise = reference.exercise
    seen = [check for check in exercise.checks if check.name in observations]

    def same(misconception: Misconception, check: Probe | Property) -> bool:
        wrong = reference.of(misconception.wrong, check)
        return _same_result(reference, check, wrong, observations[check.name])

    whole = [
        misconception
        for misconception in exercise.misconceptions
        if all(same(misconception, check) for check in seen)  # most differ in the first
        and any(reference.is_symptom(misconception, check) for check in seen)
    ]
    if whole:
        return whole, True
    failed = [verdict.check for verdict in verdicts if verdict.state == "failed" and verdict.check in seen]
    looked_at = sorted(failed, key=lambda check: _size(drawn(exercise, reference.seed)[check.name]))[:SMALLEST]
    partly: list[tuple[float, set[str], Misconception]] = []
    for misconception in exercise.misconceptions:
        if not any(same(misconception, check) for check in looked_at):
            continue
        symptoms = [check for check in seen if reference.is_symptom(misconception, check)]
        shown = [check for check in symptoms if same(misconception, check)]
        if shown and 2 * len(shown) >= len(symptoms):
            partly.append((len(shown) / len(symptoms), {check.name for check in shown}, misconception))
    if not partly:
        return [], False
    partly.sort(key=lambda entry: -entry[0])
    _, explained, best = partly[0]
    beside = [misconception for _, shown, misconception in partly[1:] if not shown <= explained]
    return [best, *beside[:1]], False


def _explanation(
    reference: Reference,
    verdicts: list[_Verdict],
    observations: dict[str, Observation],
    named: list[Misconception],
    whole: bool,
) -> list[Block]:
    blocks: list[Block] = []
    if named:
        blocks.append(Heading("What happened"))
        if not whole:
            blocks.append("Some of the results are those of this mistake; there may be a second one beside it:")
        blocks += dict.fromkeys(misconception.says for misconception in named)  # two may share a sentence
    exercise, inputs = reference.exercise, drawn(reference.exercise, reference.seed)
    failed = [verdict for verdict in verdicts if verdict.state == "failed"]
    smallest = min(failed, key=lambda v: (isinstance(v.check, Property), _size(inputs[v.check.name])), default=None)
    if smallest is None:
        return blocks
    check = smallest.check
    blocks.append(Heading(f"The smallest input that fails: {check.name}"))
    blocks += input_blocks(exercise, inputs[check.name])
    crash = observations[check.name].crash
    if crash is not None:
        blocks += [crash_in_words(exercise, crash), *crash_blocks(exercise, crash)]
    elif smallest.differences:
        for difference in smallest.differences[:1]:
            blocks += difference_blocks(exercise, difference, check.tolerance) or [smallest.says]
    else:
        blocks.append(smallest.says)
    return blocks


def _size(data: Any) -> int:
    """How many numbers some inputs hold, a model's weights aside."""
    if isinstance(data, dict):
        counted = (value for name, value in data.items() if name != "weights" or not isinstance(value, dict))
        return sum(map(_size, counted))
    if isinstance(data, list | tuple):
        return sum(map(_size, data))
    return data.numel() if hasattr(data, "numel") else getattr(data, "size", 1)
