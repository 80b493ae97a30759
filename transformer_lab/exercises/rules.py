"""Rules shared by several properties, each of which supplies its own message."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from transformer_lab.exercises.exercise import Property, Remark

Rule = Callable[[dict, Any], str | None]

REFUSED = ("ValueError", "InputError")


def same_results(says: str, allclose: Callable[..., bool] = torch.allclose, atol: float = 1e-8) -> Rule:
    """Return a rule that requires the harness's two results to agree up to rounding. Otherwise, it reports `says`."""

    return unless(lambda inputs, received: allclose(*received.values(), atol=atol), says)


def equal_results(says: str) -> Rule:
    """Return a rule that requires the harness's two results to be equal. Otherwise, it reports `says`."""

    return unless(lambda inputs, received: operator.eq(*received.values()), says)


def unless(condition: Callable[[dict, Any], bool], says: str) -> Rule:
    """Return a rule that requires `condition(inputs, received)` to be true. Otherwise, it reports `says`."""

    def rule(inputs, received):
        return None if condition(inputs, received) else says

    return rule


def raises(error: str, verb: str = "raises") -> str:
    """Return a clause such as "raises `ValueError`", or "raises nothing" if `error` is "nothing"."""
    return f"{verb} nothing" if error == "nothing" else f"{verb} `{error}`"


def refusal(received: str, attempt: str) -> Remark | None:
    """Return a remark if incompatible sizes do not raise a `ValueError`.

    `received` names the exception that was raised, if any.
    """
    if received in REFUSED:
        return None
    advice = "A `ValueError` that names both numbers tells the caller right away what's wrong."
    if received == "AssertionError":
        advice += " An `assert` is for things that can't happen, and `python -O` skips it."
    return Remark(f"{attempt} {raises(received)}. {advice}")


def remark_unless_refused(says: str) -> Rule:
    """Return a rule that gives the remark `says` if some calls do not raise a `ValueError`.

    The `{}` in `says` lists those calls.

    The harness names the exception that each call raises: `{"k = 0": "ValueError"}`.
    """

    def rule(inputs, received):
        accepted = [given for given, error in received.items() if error not in REFUSED]
        return Remark(says.format(" and ".join(accepted))) if accepted else None

    return rule


def mode_is_restored(inputs: dict, received: dict[str, bool]) -> str | None:
    """Return a message if a call changes a model's mode, given the result of `modes_afterwards` in `harnesses.py`."""
    if received["training"] is not True:
        return "a model in training mode is left in evaluation mode, so the rest of a training run has no dropout"
    return "a model in evaluation mode is left in training mode" if received["evaluation"] else None


def requirement(
    name: str, inputs: Callable, condition: Callable[..., bool], says: str, call: Callable | None = None, **others: Any
) -> Property:
    """Return a property that requires `condition(inputs, received)` to be true. Otherwise, it reports `says`."""
    return Property(name, inputs, unless(condition, says), call, **others)
