"""Without these tests, an unmarked second implementation in the package could give students the answer.

The search for unmarked ones tries functions and classes of modules whose signature fits the answer's. It cannot find
methods, or functions that take other arguments than the answer does.
"""

import importlib
import inspect
import itertools
import pkgutil
import re
import types
import typing
from pathlib import Path
from typing import Any

from transformer_lab.classroom.stubbed_package import COPIED, LEFT_OUT, PACKAGE, reimplementations
from transformer_lab.decoding import cached_beam_search
from transformer_lab.exercises import exercises
from transformer_lab.exercises.judgment import judge, observe_all
from transformer_lab.reimplementations import reimplements

NOTHING = inspect.Parameter.empty


def test_every_mark_names_an_answer_and_is_found():
    """A mark with a misspelled name, or inside another function, would leave a second implementation in the package."""
    found = reimplementations()
    assert set(found) <= set(exercises())
    everything = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    written = re.findall(r"^ *@reimplements\(", everything, flags=re.MULTILINE)
    assert len(written) == len(set().union(*found.values())) > 0


def second_softmax(scores):
    return exercises()["softmax"].answer(scores)


def test_an_unmarked_second_implementation_is_noticed():
    assert unmarked([second_softmax]) == ["second_softmax passes checks of softmax"]
    reimplements("causal_mask")(second_softmax)
    assert unmarked([second_softmax]) == ["second_softmax passes checks of softmax"]
    reimplements("softmax")(second_softmax)
    assert unmarked([second_softmax]) == []


def test_every_second_implementation_is_marked(tmp_path, monkeypatch):
    """One probe is enough: constant functions do not pass, so a function that passes contains part of the answer."""
    monkeypatch.chdir(tmp_path)  # some functions write files
    answers = [exercise.answer for exercise in exercises().values()]
    left_out = {*COPIED, *(Path(name).stem for names in LEFT_OUT.values() for name in names)}
    modules = [module.name for module in pkgutil.walk_packages([str(PACKAGE)], "transformer_lab.")]
    subjects = [
        subject
        for name in modules
        if name.split(".")[1] not in left_out
        for subject in vars(importlib.import_module(name)).values()
        if inspect.isfunction(subject) or inspect.isclass(subject)
        if subject.__module__ == name and subject not in answers
    ]
    assert cached_beam_search in subjects
    assert unmarked(subjects) == []


def unmarked(subjects: list) -> list[str]:
    """Return the subjects that pass a probe of an exercise but are not marked for that exercise."""
    found = []
    for exercise, subject in itertools.product(exercises().values(), subjects):
        parts = vars(subject).values() if isinstance(subject, type) else [subject]
        marks = {name for part in parts for name in getattr(part, "reimplements", ())}
        if exercise.name in marks or not fits(subject, exercise.answer):
            continue
        report = judge(exercise, observe_all(exercise, subject, seed=0)[0], explained=False)
        probes = {probe.name for probe in exercise.probes}
        if any(check.name in probes and check.state == "passed" for check in report.checks):
            found.append(f"{subject.__qualname__} passes checks of {exercise.name}")
    return found


def fits(subject: Any, answer: Any) -> bool:
    """Return whether `subject` accepts the answer's arguments and might return the same type."""
    if isinstance(subject, type) != isinstance(answer, type):
        return False
    try:
        asked, taken = inspect.signature(answer), inspect.signature(subject)
    except ValueError:  # an exception has no signature
        return False
    arguments = list(asked.parameters.values())
    required = [argument for argument in arguments if argument.default is NOTHING]
    results_agree = agree(asked.return_annotation, taken.return_annotation)
    return results_agree and (takes(taken, arguments) or takes(taken, required))


def takes(signature: inspect.Signature, arguments: list[inspect.Parameter]) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    pairs = zip(arguments, signature.parameters.values(), strict=False)
    return all(agree(argument.annotation, parameter.annotation) for argument, parameter in pairs)


def agree(one: Any, other: Any) -> bool:
    """Return whether a value may match both annotations. Quoted annotations name classes that no answer uses."""
    return any(
        Any in pair
        or NOTHING in pair
        or (all(isinstance(kind, type) for kind in pair) and (issubclass(*pair) or issubclass(*pair[::-1])))
        for pair in itertools.product(kinds(one), kinds(other))
    )


def kinds(annotation: Any) -> list:
    """Return an annotation's classes without their type arguments: `[list, tuple]` for `list[str] | tuple[str]`."""
    members = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else [annotation]
    return [float if member is int else typing.get_origin(member) or member for member in members]
