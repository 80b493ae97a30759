"""Rules that several properties share: each says in its own words what's wrong."""

from collections.abc import Callable
from typing import Any

import torch

from transformer_lab.exercises.exercise import Remark

Rule = Callable[[dict, Any], str | None]  # what a property's `rule` is

REFUSED = ("ValueError", "InputError")


def same_results(says: str, allclose: Callable[..., bool] = torch.allclose, atol: float = 1e-8) -> Rule:
    """Return a rule: the harness's two results have to be the same numbers; otherwise `says` is what's wrong."""

    def rule(inputs, received):
        one, other = received.values()
        return None if allclose(one, other, atol=atol) else says

    return rule


def equal_results(says: str) -> Rule:
    """Return a rule: the harness's two results have to be equal; otherwise `says` is what's wrong."""

    def rule(inputs, received):
        one, other = received.values()
        return None if one == other else says

    return rule


def raises(error: str, verb: str = "raises") -> str:
    """Return the name of an exception, or "nothing", as part of a sentence."""
    return f"{verb} nothing" if error == "nothing" else f"{verb} `{error}`"


def refusal(received: str, attempt: str) -> Remark | None:
    """Remark on sizes that don't fit, unless they raise a `ValueError`; `received` is what they raise."""
    if received in REFUSED:
        return None
    advice = "A `ValueError` that names both numbers tells the caller right away what's wrong."
    if received == "AssertionError":
        advice += " An `assert` is for what can't happen, and `python -O` skips it."
    return Remark(f"{attempt} {raises(received)}. {advice}")
