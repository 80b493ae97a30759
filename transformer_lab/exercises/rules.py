"""Rules that several properties share. Each property has its own words for what is wrong."""

from collections.abc import Callable
from typing import Any

import torch

from transformer_lab.exercises.exercise import Remark

Rule = Callable[[dict, Any], str | None]

REFUSED = ("ValueError", "InputError")


def same_results(says: str, allclose: Callable[..., bool] = torch.allclose, atol: float = 1e-8) -> Rule:
    """Return a rule that says `says` unless the harness's two results are the same numbers."""

    def rule(inputs, received):
        return None if allclose(*received.values(), atol=atol) else says

    return rule


def equal_results(says: str) -> Rule:
    """Return a rule that says `says` unless the harness's two results are equal."""

    def rule(inputs, received):
        first, second = received.values()
        return None if first == second else says

    return rule


def unless(holds: Callable[[dict, Any], bool], says: str) -> Rule:
    """Return a rule that says `says` unless `holds(inputs, received)`."""

    def rule(inputs, received):
        return None if holds(inputs, received) else says

    return rule


def raises(error: str, verb: str = "raises") -> str:
    """Return a clause about an exception, named by the harness, or about "nothing"."""
    return f"{verb} nothing" if error == "nothing" else f"{verb} `{error}`"


def refusal(received: str, attempt: str) -> Remark | None:
    """Return a remark on sizes that don't fit, unless they raise a `ValueError`; `received` names what they raise."""
    if received in REFUSED:
        return None
    advice = "A `ValueError` that names both numbers tells the caller right away what's wrong."
    if received == "AssertionError":
        advice += " An `assert` is for what can't happen, and `python -O` skips it."
    return Remark(f"{attempt} {raises(received)}. {advice}")


def remark_unless_refused(says: str) -> Rule:
    """Return a rule that remarks `says` unless every call raises a `ValueError`; `{}` becomes those that don't.

    The harness names what each call raises: `{"k = 0": "ValueError"}`.
    """

    def rule(inputs, received):
        accepted = [given for given, error in received.items() if error not in REFUSED]
        return Remark(says.format(" and ".join(accepted))) if accepted else None

    return rule


def mode_is_restored(inputs: dict, received: dict[str, bool]) -> str | None:
    """Return in which mode a model shouldn't have come back, as `modes_afterwards` in `harnesses.py` reports it."""
    if received["training"] is not True:
        return "a model in training mode is left in evaluation mode, so the rest of a training run has no dropout"
    return "a model in evaluation mode is left in training mode" if received["evaluation"] else None
