"""Scores an object that lives in a kernel: inputs are sent there, data comes back, and all judging happens here."""

import functools
import inspect
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from transformer_lab.classroom.kernel_client import Kernel, KernelEnded
from transformer_lab.classroom.messages import clean_text
from transformer_lab.classroom.wire import WireError, decode_observation, encode
from transformer_lab.exercises.diagnosis import sentences
from transformer_lab.exercises.edits import bare_or_none
from transformer_lab.exercises.exercise import PUBLIC_SEED, Exercise
from transformer_lab.exercises.harnesses import harness_source
from transformer_lab.exercises.judgment import judge
from transformer_lab.exercises.observation import Crash, Observation
from transformer_lab.exercises.registry import exercises, notebook_of
from transformer_lab.exercises.report import Report
from transformer_lab.exercises.verdicts import inputs_by_check

REPORT_CHARACTERS = 20_000
_source = functools.cache(inspect.getsource)  # the file may be another one by the time its text is needed again
GLOBAL_STATE = ("seed", "default dtype", "grad mode", "device")
STATES_OF_ENDS = {"time": "timed out", "cpu": "timed out", "memory": "out of memory"}  # all others: killed

ONLY_FOR_THESE = (
    "It gives right results for inputs of the notebook's own check, but not for others. "
    "Does it depend on particular sizes or numbers?"
)


@dataclass(frozen=True)
class Score:
    """What one exercise has earned."""

    state: str
    earned: float = 0.0
    misconceptions: tuple[str, ...] = ()
    report: str = ""
    remarks: tuple[str, ...] = ()
    is_missing: bool = False  # nothing has its name


def score(kernel: Kernel, exercise: Exercise, seed: int, revealed: set[str], seconds: float, source: str = "") -> Score:
    """Score the object that has the exercise's name in the kernel.

    Args:
        kernel: All cells have run in it.
        exercise: Its checks say what to do, and its answer what is right.
        seed: Secret: of the inputs that earn points. The report is about those of the notebook's own check.
        revealed: Exercises whose answers the kernel may see, because they have been scored, or will not be.
        seconds: For each of the two or three runs; then the kernel is killed.
        source: The student's code, which can rule a mistake out.
    """
    bare = bare_or_none(source)
    try:
        observed = _ask(kernel, exercise, seed, revealed, time.monotonic() + seconds)
        if not isinstance(observed, Score) and "time" in _crashes(observed[1].values()):
            # The machine may have been busy with something else for so long: what counts is the second time.
            observed = _ask(kernel, exercise, seed, revealed, time.monotonic() + seconds)
        if isinstance(observed, Score):
            return observed
        secret, observations, remark = observed
        remarks = (remark,) * bool(remark)
        if secret.passed:
            return _scored(exercise, secret, secret, (), remarks)
        observed = _ask(kernel, exercise, PUBLIC_SEED, revealed, time.monotonic() + seconds)
        public = None if isinstance(observed, Score) else judge(exercise, observed[1], PUBLIC_SEED, bare)
        if public is None or public.passed:
            secret = judge(exercise, observations, seed, bare)
        return _scored(exercise, secret, public, tuple(observations.values()), remarks)
    except KernelEnded as ended:
        state = STATES_OF_ENDS.get(ended.reason, "killed")
        return Score(state, report=f"While `{exercise.name}` was being scored: {ended}.")


def _ask(
    kernel: Kernel, exercise: Exercise, seed: int, revealed: set[str], end: float
) -> Score | tuple[Report, dict[str, Observation], str]:
    content = {"data": json.dumps(request(exercise, seed, revealed))}
    reply = kernel.ask("observe_request", content, max(0.1, end - time.monotonic()))
    if reply is None:
        kernel.kill("time")
        return Score("timed out", report=f"`{exercise.name}` took too long and did not stop when told to.")
    match answer := _json(reply.get("data")):
        case {"missing": True}:
            return Score(
                "failed", report=f"After the notebook has run, there is no `{exercise.name}`.", is_missing=True
            )
        case {"unwritten": True}:
            return Score("not attempted", report=f"`{exercise.name}` has not been written yet.")
        case {"kind": str(kind)}:
            return Score(
                "failed",
                report=f"`{exercise.name}` is a `{clean_text(kind, 100)}`: a function or a class was to be written.",
            )
        case {"broken": str(what)}:
            return Score("failed", report=f"Beside this code no check can be run: {clean_text(what, 300)}")
        case {"observations": list(wire)} if len(wire) <= len(exercise.checks):
            try:
                observations = _observations(exercise, wire)
            except WireError:
                return _nonsense(exercise)
            remark = "This was an object of the class; its class has been scored." if answer.get("remark") else ""
            return judge(exercise, observations, seed, explained=False), observations, remark
    return _nonsense(exercise)


def _nonsense(exercise: Exercise) -> Score:
    return Score("failed", report=f"What came back when `{exercise.name}` was used is no data.")


def _json(text: Any) -> Any:
    if not isinstance(text, str):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def request(exercise: Exercise, seed: int, revealed: set[str]) -> dict[str, Any]:
    """What the kernel needs to observe an object of this exercise, as JSON."""
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
    """Return the parts the exercise builds on: those of this notebook as text, if they may be revealed.

    Those of earlier notebooks are in the stubbed package.
    """
    parts = []
    for name in exercise.builds_on:
        answer, is_here = exercises()[name].answer, notebook_of(name) == notebook_of(exercise.name)
        if is_here and name not in revealed:
            continue
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
            cleaned = Crash(
                crash.kind,
                clean_text(crash.type, 100),
                clean_text(crash.message, 400),
                crash.line,
                clean_text(crash.code, 300),
            )
            observation = replace(observation, crash=cleaned)
        observations[check.name] = observation
    return observations


def _crashes(observations: Iterable[Observation]) -> set[str]:
    return {observation.crash.kind for observation in observations if observation.crash is not None}


def _scored(
    exercise: Exercise,
    secret: Report,
    public: Report | None,
    observations: tuple[Observation, ...],
    remarks: tuple[str, ...],
) -> Score:
    """Return what the secret inputs have earned, with a report that only speaks of the public ones."""
    crashes = _crashes(observations)
    state = secret.state
    if state == "failed" and "time" in crashes:
        state = "timed out"
    elif state == "failed" and "memory" in crashes:
        state = "out of memory"
    if secret.passed:
        text, slugs = str(secret), ()
    elif public is None or public.passed:
        reason = ONLY_FOR_THESE if public is not None else "Its results are not right."
        known = sentences(exercise)
        text = "\n".join([f"✗ {secret.title}", "", reason, *(known[slug] for slug in secret.misconceptions)])
        slugs = secret.misconceptions
    else:
        text, slugs = str(replace(public, score=secret.score)), public.misconceptions
        if public.score > secret.score:
            first, rest = text.split("\n", 1)
            text = f"{first}\n\n{ONLY_FOR_THESE}\n{rest}"
    report = clean_text(text, REPORT_CHARACTERS)
    return Score(state, secret.points, tuple(slugs), report, (*remarks, *secret.remarks))
