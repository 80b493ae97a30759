"""Score an object in a kernel. The kernel receives inputs and returns plain data, which is scored here."""

import contextlib
import functools
import inspect
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from transformer_lab.classroom.kernel_client import Kernel, KernelEnded
from transformer_lab.classroom.messages import clean_text
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.classroom.wire import WireError, decode_observation, encode
from transformer_lab.exercises.cells import names_of
from transformer_lab.exercises.diagnosis import sentences
from transformer_lab.exercises.edits import bare_or_none
from transformer_lab.exercises.exercise import PUBLIC_SEED, Exercise
from transformer_lab.exercises.harnesses import harness_source
from transformer_lab.exercises.judgment import judge
from transformer_lab.exercises.observation import Observation
from transformer_lab.exercises.registry import exercises, notebook_of
from transformer_lab.exercises.report import Report
from transformer_lab.exercises.verdicts import inputs_by_check

REPORT_CHARACTERS = 20_000
GLOBAL_STATE = ("seed", "default dtype", "grad mode", "device")
STATES_OF_ENDS = {"time": "timed out", "cpu": "timed out", "memory": "out of memory"}  # anything else: killed
ONLY_FOR_THESE = (
    "It gives correct results for the inputs in the notebook's own check, but not for others. "
    "Does it depend on particular sizes or numbers?"
)
CLASS_SCORED = "This was an instance of the class; the class itself has been scored."

_source = functools.cache(inspect.getsource)  # cached before the file can change


class CellFailure(NamedTuple):
    """The reason why a cell did not run to completion."""

    state: str  # one of `results.STATES`
    reason: str


class _NotObserved(Exception):  # noqa: N818 (it carries a state and a report)
    """Raised if the kernel returned no observations. It carries the resulting state and report.

    The state is "missing" if the kernel has no object with this name (see `_why_missing`).
    """


def score(
    kernel: Kernel,
    exercise: Exercise,
    seed: int,
    revealed: set[str],
    seconds: float,
    source: str = "",
    failure: CellFailure | None = None,
) -> ExerciseResult:
    """Score the object that has the exercise's name in the kernel.

    Args:
        kernel: A kernel in which all cells have run.
        exercise: The exercise, with its checks and its answer.
        seed: Secret seed of the graded inputs. The report mentions only inputs from the notebook's own check.
        revealed: Exercises whose answers the kernel may see, because they have been scored or will not be scored.
        seconds: Time limit for each of the two or three runs, after which the kernel is killed.
        source: The student's code, which can rule out a misconception.
        failure: The reason why the student's cell did not run to completion. None if it did.
    """
    observe = functools.partial(_observe, kernel, exercise, revealed, seconds)
    try:
        observations, remarks = observe(seed)
        if "time" in _crash_kinds(observations.values()):  # try once more, in case the machine was only busy
            observations, remarks = observe(seed)
        bare = bare_or_none(source)
        secret = public = judge(exercise, observations, seed, explained=False)
        if not secret.passed:
            try:
                public = judge(exercise, observe(PUBLIC_SEED)[0], PUBLIC_SEED, bare)
            except _NotObserved:
                public = None
            if public is None or public.passed:
                secret = judge(exercise, observations, seed, bare)
        return _scored(exercise, secret, public, _crash_kinds(observations.values()), remarks)
    except _NotObserved as settled:
        state, report = settled.args
        if state == "missing":
            state, report = _why_missing(exercise.name, source, failure)
        imported = names_of(source).imports.get(exercise.name, "")
        if state == "not attempted" and imported.startswith("transformer_lab."):
            reason = "which has no answers while you are graded: write it yourself"
            state, report = "failed", f"`{exercise.name}` is imported from the package, {reason}."
    except KernelEnded as ended:
        state = STATES_OF_ENDS.get(ended.reason, "killed")
        report = f"While `{exercise.name}` was being scored: {ended}."
    return ExerciseResult.without_points(exercise, state, report)


def _why_missing(name: str, source: str, failure: CellFailure | None) -> tuple[str, str]:
    """Return the state and the report for an exercise whose object is missing from the kernel."""
    report = f"After the notebook was run, there was no `{name}`."
    if failure is not None:
        return failure.state, f"{report} Its cell did not run to the end: {failure.reason}."
    if not source.strip():
        return "not attempted", f"`{name}` has not been written yet."
    if definitions := names_of(source).definitions:
        report += f" Its cell defines {', '.join(f'`{definition}`' for definition in definitions)}."
    return "failed", report


def _observe(
    kernel: Kernel, exercise: Exercise, revealed: set[str], seconds: float, seed: int
) -> tuple[dict[str, Observation], tuple[str, ...]]:
    """Return the kernel's observation for each check, and remarks.

    Raises:
        _NotObserved: There is nothing to observe, or `kernel_side.py` cannot have written the reply.
        KernelEnded: The kernel is gone.
    """
    name = exercise.name
    reply = kernel.ask("observe_request", {"data": json.dumps(request(exercise, seed, revealed))}, seconds)
    if reply is None:
        kernel.kill("time")
        raise _NotObserved("timed out", f"`{name}` took too long and did not stop when it was interrupted.")
    match answer := _json(reply.get("data")):
        case {"missing": True}:
            raise _NotObserved("missing", "")
        case {"unwritten": True}:
            raise _NotObserved("not attempted", f"`{name}` has not been written yet.")
        case {"kind": str(kind)}:
            kind = clean_text(kind, 100)
            raise _NotObserved("failed", f"`{name}` is of type `{kind}`. Expected a function or a class.")
        case {"broken": str(error)}:
            raise _NotObserved("failed", f"This code keeps the checks from running: {clean_text(error, 300)}")
        case {"observations": list(wire)} if len(wire) <= len(exercise.checks):
            with contextlib.suppress(WireError):
                return _observations(exercise, wire), (CLASS_SCORED,) if answer.get("remark") else ()
    raise _NotObserved("failed", f"The results of `{name}` could not be read as data.")


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def request(exercise: Exercise, seed: int, revealed: set[str]) -> dict[str, Any]:
    """Return the request for observing an object of this exercise, as JSON."""
    inputs = inputs_by_check(exercise, seed)
    return {
        "name": exercise.name,
        "blank": list(exercise.blank),
        "checks": [
            {
                "harness": harness_source(exercise.harness(check)),
                "inputs": encode(inputs[check.name]),
                "seed": exercise.global_seed(check),
            }
            for check in exercise.checks
        ],
        "earlier": _earlier_parts(exercise, revealed),
    }


def _earlier_parts(exercise: Exercise, revealed: set[str]) -> list[dict[str, str]]:
    """Return the parts that the exercise builds on.

    Parts from the same notebook are sent as source code if they may be revealed. Parts from earlier notebooks are in
    the stubbed package.
    """
    parts = []
    for name in exercise.builds_on:
        answer, is_here = exercises()[name].answer, notebook_of(name) == notebook_of(exercise.name)
        if name in revealed or not is_here:
            source = _source(answer) if is_here else ""
            parts.append({"name": name, "module": answer.__module__, "source": source})
    return parts


def _observations(exercise: Exercise, wire: list) -> dict[str, Observation]:
    inputs = inputs_by_check(exercise, PUBLIC_SEED)
    observations = {}
    for check, encoded in zip(exercise.checks, wire, strict=False):
        changes = (*(f"input {name}" for name in inputs[check.name]), *GLOBAL_STATE)
        observation = decode_observation(encoded, changes)
        if (crash := observation.crash) is not None:
            texts = {"type": clean_text(crash.type, 100), "message": clean_text(crash.message, 400)}
            observation = replace(observation, crash=replace(crash, **texts, code=clean_text(crash.code, 300)))
        observations[check.name] = observation
    return observations


def _crash_kinds(observations: Iterable[Observation]) -> set[str]:
    return {observation.crash.kind for observation in observations if observation.crash is not None}


def _scored(
    exercise: Exercise, secret: Report, public: Report | None, crash_kinds: set[str], remarks: tuple[str, ...]
) -> ExerciseResult:
    """Return the result for the secret inputs, with a report that mentions only the public inputs."""
    state = secret.state
    if state == "failed":
        state = next((STATES_OF_ENDS[kind] for kind in ("time", "memory") if kind in crash_kinds), state)
    slugs = secret.misconceptions
    if secret.passed:
        text, slugs = str(secret), ()
    elif public is None or public.passed:
        reason = "Its results are not correct." if public is None else ONLY_FOR_THESE
        known = sentences(exercise)
        text = "\n".join([f"✗ {secret.title}", "", reason, *(known[slug] for slug in slugs)])
    else:
        text, slugs = str(replace(public, score=secret.score)), public.misconceptions
        if public.score > secret.score:
            first, rest = text.split("\n", 1)
            text = f"{first}\n\n{ONLY_FOR_THESE}\n{rest}"
    report = clean_text(text, REPORT_CHARACTERS)
    return ExerciseResult(
        exercise.name,
        state,
        secret.points,
        exercise.points,
        tuple(slugs),
        report,
        remarks=(*remarks, *secret.remarks),
    )
