"""Turn observations into a report. No student code runs here, so a grader can do its scoring in its own process."""

import functools
from typing import Any

from transformer_lab.exercises.diagnosis import Diagnosis, diagnose
from transformer_lab.exercises.exercise import PUBLIC_SEED, Exercise, Probe, Property
from transformer_lab.exercises.explanation import (
    axis_names,
    change_in_words,
    crash_blocks,
    crash_in_words,
    difference_blocks,
    input_blocks,
)
from transformer_lab.exercises.observation import (
    Crash,
    Observation,
    isolated_global_state,
    preserved_global_state,
    timed_out,
)
from transformer_lab.exercises.report import Block, CheckResult, Heading, Report
from transformer_lab.exercises.symptoms import described
from transformer_lab.exercises.time_limit import run_limited
from transformer_lab.exercises.verdicts import (
    WRONG_KIND,
    Reference,
    Verdict,
    inputs_by_check,
    observation,
    reference_of,
    verdict_on,
)

LEAVES_THE_REST_ALONE = "it leaves its inputs and torch's settings alone"


def observe_all(exercise: Exercise, subject: Any, seed: int) -> tuple[dict[str, Observation], str]:
    """Run all of the exercise's checks on `subject`, with limits on time, memory, and output.

    Returns:
        The observations, keyed by check name, and what the code printed. If a check ran out of time, its observation is
        the last one.
    """
    reference = reference_of(exercise, seed)
    # Run the answer first, to trigger torch's lazy imports. If the student's thread were stopped during an import, the
    # next import of that module would wait forever.
    for check in exercise.checks:
        reference.of_answer(check)
    with preserved_global_state():  # also needed here, because a stopped thread may not be able to restore the state
        ran = run_limited([functools.partial(observation, exercise, subject, check, seed) for check in exercise.checks])
    results = ran.results + [timed_out(ran.stuck_at)] * (len(ran.results) < len(exercise.checks))
    return {check.name: result for check, result in zip(exercise.checks, results, strict=False)}, ran.printed


@isolated_global_state(PUBLIC_SEED)  # rules and comparisons also create tensors
def judge(
    exercise: Exercise,
    observations: dict[str, Observation],
    seed: int = 0,
    source: str | None = None,
    explained: bool = True,
) -> Report:
    """Return the report on a student's object.

    Args:
        exercise: The exercise, with its checks and answer.
        observations: The observations, keyed by check name. They were made with the inputs that `exercise.inputs(check,
            seed)` returns. A check without an observation is "not checked".
        seed: The seed used for the observations.
        source: The student's code without comments, which can rule out a mistake. Pass None if the code is not known.
        explained: Whether to look for the mistake, which can take a few seconds. The score does not depend on this.
    """
    reference = reference_of(exercise, seed)
    verdicts = [verdict_on(reference, check, observations.get(check.name)) for check in exercise.checks]
    _mark_followers(verdicts, observations)
    results = [CheckResult(verdict.check.name, verdict.state, verdict.says) for verdict in verdicts]
    changes = list(dict.fromkeys(change for observed in observations.values() for change in observed.changes))
    state = "failed" if changes else "not checked" if len(observations) < len(exercise.checks) else "passed"
    results.append(CheckResult(LEAVES_THE_REST_ALONE, state, "; ".join(map(change_in_words, changes))))
    remarks = tuple(dict.fromkeys(remark for verdict in verdicts for remark in verdict.remarks))
    if all(result.state == "passed" for result in results):
        return Report(exercise.name, "passed", 1.0, exercise.points, tuple(results), remarks=remarks)

    passed = [verdict.check for verdict in verdicts if verdict.state == "passed"]
    earned = sum(check.weight for check in passed if isinstance(check, Probe))
    lost = sum(verdict.check.penalty for verdict in verdicts if verdict.costs_points) + bool(changes)
    score = max(0.0, earned - lost) / sum(probe.weight for probe in exercise.probes)
    diagnosis = diagnose(reference, observations, source) if explained else Diagnosis()
    blocks = _explanation(reference, verdicts, observations, diagnosis)
    if changes and not diagnosis.says:
        is_all_right = all(verdict.state == "passed" for verdict in verdicts)
        start = "All results are right, but" if is_all_right else "The other failures may follow from this:"
        blocks = [Heading("What happened"), f"{start} {results[-1].says}.", *blocks]
    blocks.append(f'`hint("{exercise.name}")` gives a hint.')
    slugs = diagnosis.slugs
    return Report(exercise.name, "failed", score, exercise.points, tuple(results), slugs, tuple(blocks), remarks)


def _mark_followers(verdicts: list[Verdict], observations: dict[str, Observation]) -> None:
    """Mark checks as "not checked" if they depend on a failed check or crashed at the same line as an earlier check."""
    failed: set[str] = set()
    crashes: set[tuple] = set()
    for verdict in verdicts:
        if verdict.state == "passed":
            continue
        observed = observations.get(verdict.check.name)
        place = _place(observed.crash) if observed and observed.crash else None
        needed = next((name for name in verdict.check.needs if name in failed), None)
        if verdict.says == WRONG_KIND and not failed:
            verdict.state = "failed"
        failed.add(verdict.check.name)
        if needed is not None:
            verdict.state, verdict.says = "not checked", f"it can be checked once “{needed}” passes"
            verdict.costs_points = False
        elif place in crashes:
            verdict.state, verdict.says = "not checked", "the same error as above"
        elif place:
            crashes.add(place)


def _place(crash: Crash) -> tuple:
    """Return a key that is the same for crashes with the same cause."""
    if crash.type == "ParameterError":  # these count as one cause, even if the sizes differ
        return (crash.type,)
    return crash.kind, crash.type, crash.line, crash.code or crash.message


def _explanation(
    reference: Reference, verdicts: list[Verdict], observations: dict[str, Observation], diagnosis: Diagnosis
) -> list[Block]:
    blocks: list[Block] = []
    if diagnosis.says:
        blocks.append(Heading("What happened"))
        if diagnosis.kind == "two":
            blocks.append("Together, these two mistakes explain your results.")
        elif diagnosis.kind == "either":
            blocks.append("Either of these mistakes explains your results.")
        blocks += diagnosis.says
    exercise, inputs = reference.exercise, inputs_by_check(reference.exercise, reference.seed)
    failed = [verdict for verdict in verdicts if verdict.state == "failed"]
    smallest = min(failed, key=lambda v: (_plainness(v), _size(inputs[v.check.name])), default=None)
    if smallest is None:
        return blocks
    check = smallest.check
    blocks.append(Heading(f"The smallest input that fails: {check.name}"))
    blocks += input_blocks(exercise, inputs[check.name])
    crash = observations[check.name].crash
    if crash is not None:
        blocks += [crash_in_words(crash), *crash_blocks(exercise, crash)]
    elif smallest.differences:
        difference = smallest.differences[0]
        blocks += difference_blocks(exercise, difference, check.tolerance) or [smallest.says]
        symptom = described(difference, check.tolerance, axis_names(exercise, difference.where, difference.expected))
        blocks += [symptom] if symptom and not diagnosis.says else []
    else:
        blocks.append(smallest.says)
    return [*blocks, *_right_parts(exercise, verdicts)]


def _right_parts(exercise: Exercise, verdicts: list[Verdict]) -> list[Block]:
    """Say which of the function's results are correct in every probe that compares them."""
    wrong: set[str] = set()
    for verdict in verdicts:
        if isinstance(verdict.check, Probe) and verdict.state == "failed":
            if not verdict.differences:
                return []
            wrong |= {difference.where.split("[")[0] for difference in verdict.differences}
    right = [name for name in exercise.returns if name not in wrong]
    if not wrong or not right or not wrong <= set(exercise.returns):
        return []
    names = " and ".join(f"`{name}`" for name in right)
    others = " and ".join(f"`{name}`" for name in exercise.returns if name in wrong)
    return [f"{names} {'is' if len(right) == 1 else 'are'} right; only {others} differ{'s' * (len(wrong) == 1)}."]


def _plainness(verdict: Verdict) -> int:
    """Sort key: probes that compare results directly come first.

    Probes with their own comparison, and those that make no example, come next, and properties come last.
    """
    check = verdict.check
    return 2 if isinstance(check, Property) else int(check.compare_results is not None or not check.is_example)


def _size(data: Any) -> int:
    """Count the numbers in a check's inputs, excluding a model's weights."""
    if isinstance(data, dict):
        counted = (value for name, value in data.items() if name != "weights" or not isinstance(value, dict))
        return sum(map(_size, counted))
    if isinstance(data, list | tuple):
        return sum(map(_size, data))
    return data.numel() if hasattr(data, "numel") else getattr(data, "size", 1)
