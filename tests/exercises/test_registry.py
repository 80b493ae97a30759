"""Test every registered exercise. The tests are derived from its parts, so no test mentions an exercise by name."""

import importlib
import inspect
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from transformer_lab.classroom.integrity import review
from transformer_lab.exercises import exercises, notebooks, run_check
from transformer_lab.exercises.catalogue import hints_of
from transformer_lab.exercises.comparison import compare
from transformer_lab.exercises.exercise import PUBLIC_SEED
from transformer_lab.exercises.harnesses import harness_from_source, harness_source
from transformer_lab.exercises.judgment import judge, observe_all
from transformer_lab.exercises.observation import observe, same_data

# A notebook uses seed 0; a grader samples a seed, so every seed has to work. TRANSFORMER_LAB_SEEDS=20 tries more.
SEEDS = range(int(os.environ.get("TRANSFORMER_LAB_SEEDS", "2")))
EXERCISES = list(exercises().values())
CHECKS = [(exercise, check) for exercise in EXERCISES for check in exercise.checks]
PROBES = [(exercise, probe) for exercise in EXERCISES for probe in exercise.probes]


def variants() -> list:
    """Return correct answers in different styles from `variants/variants_NN.py`: `VARIANTS = {name: [object, ...]}`."""
    found = []
    for file in sorted((Path(__file__).parent / "variants").glob("variants_*.py")):
        specification = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(specification)
        sys.modules[file.stem] = module
        specification.loader.exec_module(module)
        found += [(exercises()[name], variant) for name, some in module.VARIANTS.items() for variant in some]
    return found


VARIANTS = variants()


def name_of(value) -> str:
    return getattr(value, "__name__", None) or getattr(value, "slug", None) or getattr(value, "name", "")


def each(pairs):
    """Create one test per pair, named after the exercise and its part."""
    return pytest.mark.parametrize(("exercise", "part"), pairs, ids=[f"{a.name}-{name_of(b)}" for a, b in pairs])


every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=name_of)


@every_exercise
def test_exercise_is_complete(exercise):
    """An exercise without enough probes, properties, or hints teaches too little. No text may look like a draft."""
    names = [check.name for check in exercise.checks]
    assert len(exercise.probes) >= 3
    assert len(exercise.properties) >= 2
    assert len(hints_of(exercise)) == 3
    assert all("  " not in hint for hint in hints_of(exercise))
    assert len(names) == len(set(names)), "two checks have the same name"
    for name in names:
        assert name[0].islower() or not name[0].isalpha(), "names of checks appear in the middle of sentences"
        assert not name.endswith(".")
    assert sum(one is exercise for one, _ in VARIANTS) >= 3, "tests/exercises/variants/ needs three right answers"
    assert bool(exercise.blank) == isinstance(exercise.answer, type), "`blank` names the methods of a class"
    for index, one in enumerate(exercise.checks):
        assert set(one.needs) <= set(names[:index]), "`needs` may name only earlier checks"
    order = [known.name for known in EXERCISES]
    assert all(order.index(part) < order.index(exercise.name) for part in exercise.builds_on)


@every_exercise
@pytest.mark.parametrize("seed", SEEDS)
def test_answer_gets_everything(exercise, seed):
    """If the package's own answer fails a check, the check is wrong."""
    report = run_check(exercise, exercise.answer, seed)
    assert report.passed, str(report)
    assert report.score == 1
    assert report.misconceptions == ()
    assert report.remarks == ()


@each(PROBES)
def test_expected_value_depends_on_the_seed(exercise, part):
    """A grader uses its own inputs. If a result never changed or depended only on sizes, a fixed table could pass."""
    expected = []
    for seed in range(5):
        inputs = exercise.inputs(part, seed)
        expected.append(observe(exercise.answer, exercise.harness(part), inputs, exercise.global_seed(part)).value)
    different = [one for i, one in enumerate(expected) if not any(same_data(one, other) for other in expected[:i])]
    assert len(different) >= 3, "small numbers may match by chance, but not that often"


@each(VARIANTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_variant_passes(exercise, part, seed):
    """A correct answer in a different style gets full credit, because the checks look at results, not code."""
    report = run_check(exercise, part, seed)
    assert report.passed, str(report)
    assert report.score == 1


@each(VARIANTS)
def test_variant_is_flagged_for_nothing_but_ready_parts(exercise, part):
    """Honest work is not flagged for the instructor as a copy, for calling methods, or for using torch internals."""
    names = [*exercise.banned, "transformer_lab."]
    for flag in review(exercise, textwrap.dedent(inspect.getsource(part)), [], []):
        assert any(f"uses `{name}" in flag for name in names if not name.startswith(".")), flag


@every_exercise
def test_empty_answer_is_not_attempted(exercise):
    """An unwritten answer counts as not attempted, not as a mistake."""
    from transformer_lab.authoring import stub

    names = dict(vars(sys.modules[exercise.answer.__module__]))
    exec(compile(stub(exercise.answer, exercise.blank), "<stub>", "exec"), names)
    report = run_check(exercise, names[exercise.name])
    assert report.state == "not attempted", str(report)
    assert report.score == 0


@each(PROBES)
def test_no_constant_passes_a_probe(exercise, part):
    """Only correct values earn points. A result that ignores the inputs, or repeats one of them, earns nothing."""
    for seed in SEEDS:
        inputs = exercise.inputs(part, seed)
        expected = observe(exercise.answer, exercise.harness(part), inputs, 0).value
        others = [constant(expected, number) for number in (0, 1, -1, math.nan)]
        others += [repeated(expected, value) for value in inputs.values()]
        for other in others:
            if part.compare_results is not None:
                assert refused(part.compare_results, inputs, expected, other), f"passes with {other}"
            else:
                assert compare(expected, other, exercise.returns, part.tolerance)[0], f"passes with {other}"


def refused(compare_results, inputs, expected, received) -> bool:
    try:
        return compare_results(inputs, expected, received) is not None
    except Exception:
        return True


def constant(data, number):
    """Return data with the same structure, in which all numbers are equal and all strings in a list are equal."""
    if isinstance(data, torch.Tensor):
        whole = not data.is_floating_point()
        return torch.full_like(data, 0 if whole and number != number else number)
    if isinstance(data, np.ndarray):
        return np.full_like(data, number)
    if isinstance(data, dict):
        return {key: constant(value, number) for key, value in data.items()}
    if isinstance(data, list | tuple):
        if all(isinstance(value, str) for value in data):
            return type(data)(data[:1] * len(data))
        return type(data)(constant(value, number) for value in data)
    if isinstance(data, bool | int | float):
        return type(data)(0 if number != number else number)
    return data


def repeated(expected, value):
    """Return an input in place of each result."""
    if isinstance(expected, dict):
        return dict.fromkeys(expected, value)
    if isinstance(expected, tuple):
        return (value,) * len(expected)
    return value


@every_exercise
def test_plainly_wrong_answers_get_nothing(exercise):
    """Zeros, the first input, or an exception earn no points, regardless of the properties they satisfy."""

    def raising(*arguments, **named):
        raise ValueError("always")

    plainly_wrong = {
        "nothing": lambda *arguments, **named: None,
        "the first input": lambda *arguments, **named: arguments[0] if arguments else None,
        "the first input as each result": lambda *arguments, **named: arguments[:1] * len(exercise.returns) or None,
        "zeros": lambda *arguments, **named: arguments[0] * 0 if arguments else None,
        "an exception": raising,
    }
    for label, wrong in plainly_wrong.items():
        subject = wrong
        if isinstance(exercise.answer, type):
            own = exercise.blank if exercise.blank == ("__init__",) else set(exercise.blank) - {"__init__"}
            methods = {name: (lambda self, *a, wrong=wrong, **n: wrong(*a, **n)) for name in own}
            subject = type(exercise.name, (exercise.answer,), methods)
        observations, _ = observe_all(exercise, subject, 0)
        report = judge(exercise, observations, explained=False)
        assert report.score == 0, f"{label}: {report}"
        assert not report.passed


@each(CHECKS)
def test_harness_is_self_contained(exercise, part):
    """A grader sends a harness as source code to a process that lacks both the harness's file and the answers."""
    inputs = exercise.inputs(part)
    harness = harness_from_source(harness_source(exercise.harness(part)))
    seed = exercise.global_seed(part)
    there = observe(exercise.answer, harness, inputs, seed)
    here = observe(exercise.answer, exercise.harness(part), inputs, seed)
    assert there.crash is None, there.crash
    assert not compare(here.value, there.value, exercise.returns)[0]
    assert_is_data(inputs)
    assert_is_data(there.value)


def assert_is_data(value) -> None:
    if isinstance(value, dict):
        assert all(isinstance(key, str | int | float | bool | tuple | None) for key in value)
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            assert_is_data(item)
    else:
        assert value is None or isinstance(value, torch.Tensor | np.ndarray | bool | int | float | str), value


@every_exercise
def test_inputs_are_small_and_repeatable(exercise):
    """Reports print the inputs and must be the same on every machine."""
    for part in exercise.checks:
        one, other = exercise.inputs(part), exercise.inputs(part)
        assert not compare(one, other, ("inputs",), 0)[0]
        for name, value in one.items():
            if name != "weights" and isinstance(value, torch.Tensor | np.ndarray):
                assert math.prod(value.shape) <= 2000, f"{part.name}: {name} holds {math.prod(value.shape)} numbers"


def test_reports_are_the_same_in_another_process():
    """A report must not depend on hash values, memory addresses, or the order of earlier checks.

    Each exercise reports on the first mistake in its catalog. Only the first exercise of each notebook
    searches for the explanation, because the search takes most of the time and uses the same code for all.
    """
    program = """
import sys, json
from transformer_lab.exercises import exercises, notebooks
from transformer_lab.exercises.catalogue import mistakes_of
from transformer_lab.exercises.judgment import judge, observe_all

reports = {}
for exercise in (reversed if __name__ == "__main__" else list)(exercises().values()):
    observations, _ = observe_all(exercise, mistakes_of(exercise)[0].ways[0].subject, 0)
    is_first = any(exercise is listed[0] for listed in notebooks().values())
    report = judge(exercise, observations, explained=is_first)
    reports[exercise.name] = [*str(report).splitlines(), report._repr_html_()]
"""
    here = {"__name__": "here"}
    exec(program, here)
    there = subprocess.run(
        [sys.executable, "-c", program + "json.dump(reports, sys.stdout)"], capture_output=True, text=True, check=True
    )
    assert here["reports"] == json.loads(there.stdout)


def test_every_notebook_has_its_exercises():
    """Each exercise's name belongs to exactly one notebook, so that `progress` counts it once."""
    names = [exercise.name for found in notebooks().values() for exercise in found]
    assert len(names) == len(set(names)) == len(EXERCISES)


def test_a_kernel_learns_nothing_about_the_secret_inputs():
    """The student's code can read torch's seed, so that seed must not depend on the grader's seed."""
    (exercise, *_) = exercises().values()
    one, other = exercise.checks[:2]
    assert exercise.global_seed(one) == exercise.input_seed(one, PUBLIC_SEED)
    secret = {exercise.input_seed(check, seed) for check in (one, other) for seed in (5, 6, 2**62)}
    assert len(secret) == 6
    assert max(secret) >= 2**32, "there are few enough 32-bit numbers to try them all"
    assert secret.isdisjoint(exercise.global_seed(check) for check in (one, other))


def test_every_bit_of_the_secret_seed_matters():
    """If part of the seed were ignored, a student could try all values of the rest and find the inputs."""
    (exercise, *_) = exercises().values()
    check, seed = exercise.checks[0], 2**62 - 1
    neighbors = [seed ^ 1 << bit for bit in range(62)]
    assert len({exercise.input_seed(check, one) for one in (seed, *neighbors)}) == 63
    assert not same_data(exercise.inputs(check, seed), exercise.inputs(check, seed ^ 1 << 61))


def test_a_secret_number_is_a_keyed_hash(monkeypatch):
    """A checksum can be inverted, so one check's number would be enough to compute another check's inputs."""
    hashed = []

    class RecordedHash:
        def __init__(self, message, *, key, digest_size):
            hashed.append((message, key))

        def digest(self):
            return len(hashed).to_bytes(8, "big")

    monkeypatch.setattr("hashlib.blake2b", RecordedHash)
    (exercise, *_) = exercises().values()
    one, other = exercise.checks[:2]
    numbers = [exercise.input_seed(check, seed) for check in (one, other) for seed in (2**61, 2**61 + 1)]
    assert numbers == [1, 2, 3, 4], "the number depends on something other than the hash"
    assert len(set(hashed)) == 4
    assert len({key for _, key in hashed}) == 2, "the key is not the whole seed"
