"""How a probe uses the student's object.

A recipe is a function `(subject, **inputs) -> data`. It may run in another process than the one that judges, so it is
self-contained: it knows its arguments, the names in `RECIPE_NAMES`, and what it imports in its own body.
"""

import __future__

import functools
import inspect
import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class ParameterError(Exception):
    """The student's module has other parameters than those the exercise names. The message is for the student."""


def call_function(subject: Callable, **inputs: Any) -> Any:
    """The recipe of a function: call it with the inputs, in their order."""
    return subject(*inputs.values())


def call_module(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor], **inputs: Any) -> Any:
    """The recipe of a module: construct it from `arguments`, load `weights`, call it with the other inputs."""
    return build(subject, arguments, weights)(*inputs.values())


def build(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor]) -> nn.Module:
    """An object of the student's class: constructed from `arguments` in their order, `weights` loaded by name."""
    module = subject(*arguments.values())
    load_weights(module, weights)
    return module


def load_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy `weights` into the parameters of the same names.

    Raises:
        ParameterError: a parameter is missing or has another shape.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, weight in weights.items():
        if name not in parameters:
            others = ", ".join(f"`{other}`" for other in parameters if other not in weights)
            there_are = f"; there are {others}" if others else "" if parameters else "; there are no parameters at all"
            raise ParameterError(f"there is no parameter `{name}`{there_are}")
        if parameters[name].shape != weight.shape:
            raise ParameterError(
                f"the parameter `{name}` has shape {tuple(parameters[name].shape)}, expected {tuple(weight.shape)}"
            )
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[name].copy_(weight)


def gradients(output: Tensor, inputs: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """The gradient of a fixed weighted sum of `output` with respect to each input, as `gradient of NAME`.

    None where no gradient flows.
    """
    names = [f"gradient of {name}" for name in inputs]
    if not (isinstance(output, Tensor) and output.requires_grad):
        return dict.fromkeys(names)
    total = (output * torch.linspace(1, 2, output.numel(), dtype=output.dtype).view(output.shape)).sum()
    return dict(zip(names, torch.autograd.grad(total, list(inputs.values()), allow_unused=True), strict=True))


def raised(function: Callable, *arguments: Any) -> str:
    """The name of the exception that `function(*arguments)` raises, or "nothing"."""
    try:
        function(*arguments)
    except Exception as error:
        return type(error).__name__
    return "nothing"


def defaults_of(subject: Callable, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of the parameters that `expected` names; one that has none is "missing"."""
    import inspect

    parameters = inspect.signature(subject).parameters
    found = {name: parameters[name].default for name in expected if name in parameters}
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: "missing" if value is inspect.Parameter.empty else value if isinstance(value, plain) else repr(value)
        for name, value in found.items()
    }


RECIPE_NAMES = {
    "build": build,
    "gradients": gradients,
    "load_weights": load_weights,
    "math": math,
    "nn": nn,
    "np": np,
    "raised": raised,
    "torch": torch,
}


@functools.cache  # the file may be another one by the time it is asked for again
def recipe_source(recipe: Callable) -> str:
    """The text of a recipe, for a process that has the engine but not the file in which the recipe stands."""
    return textwrap.dedent(inspect.getsource(recipe))


def recipe_from_source(source: str) -> Callable:
    """The recipe again, from its text alone."""
    names = dict(RECIPE_NAMES)
    before = set(names)
    flags = __future__.annotations.compiler_flag  # annotations may name what a recipe does not know
    exec(compile(source, "<recipe>", "exec", flags, dont_inherit=True), names)
    (recipe,) = (value for name, value in names.items() if name not in before and inspect.isfunction(value))
    return recipe
