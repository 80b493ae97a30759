"""Harnesses: functions `(subject, **inputs) -> data` that call the student's object for a check.

A harness may run in a different process from the one that judges its result, so it must be self-contained: it can use
only its arguments, the names in `HARNESS_NAMES` and `CLASSES`, and what it imports in its own body.
"""

import __future__

import copy
import functools
import importlib
import inspect
import math
import re
import textwrap
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class ParameterError(Exception):
    """Raised if a module does not have the parameters that the exercise requires. The message is for the student."""


def call_function(subject: Callable, **inputs: Any) -> Any:
    """Call a function with the inputs as positional arguments."""
    return subject(*inputs.values())


def call_module(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor], **inputs: Any) -> Any:
    """Construct a module from `arguments`, load `weights`, and call it with the other inputs."""
    return build(subject, arguments, weights)(*inputs.values())


def call_in_evaluation(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor], **inputs: Any) -> Any:
    """Call a module in evaluation mode, so that a wrong dropout rate does not hide a wrong formula."""
    return build(subject, arguments, weights).eval()(*inputs.values())


def call_new_module(subject: type[nn.Module], arguments: dict, **inputs: Any) -> Any:
    """Call a module with its initial weights."""
    return subject(*arguments.values())(*inputs.values())


def gradients_of_module(subject: type[nn.Module], arguments: dict, weights: dict, **inputs: Any) -> dict:
    """Return the gradients of every parameter and every floating-point input."""
    module = build(subject, arguments, weights)
    numbers = {name: value.requires_grad_() for name, value in inputs.items() if value.is_floating_point()}
    return gradients(module(*inputs.values()), numbers | dict(module.named_parameters()))


def gradients_of_weights(subject: type[nn.Module], arguments: dict, weights: dict, **inputs: Any) -> dict:
    module = build(subject, arguments, weights)
    return gradients(module(*inputs.values()), dict(module.named_parameters()))


def names_and_shapes(subject: type[nn.Module], arguments: dict) -> dict[str, list[int]]:
    """Return the shape of each parameter, by name."""
    return {name: list(parameter.shape) for name, parameter in subject(*arguments.values()).named_parameters()}


def exception_of_call(subject: Callable, **inputs: Any) -> str:
    """Return the name of the exception that a call raises. If it raises none, return "nothing"."""
    return raised(subject, *inputs.values())


def build(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor]) -> nn.Module:
    """Construct an object of the student's class from positional `arguments`, and load `weights` by name."""
    module = subject(*arguments.values())
    load_weights(module, weights)
    return module


def build_with_zeros(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor]) -> nn.Module:
    """Do the same as `build`, but set all other parameters to 0, so that an extra bias does not change the results."""
    module = build(subject, arguments, weights)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in weights:
                parameter.zero_()
    return module


def load_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy `weights` into the parameters with the same names.

    Raises:
        ParameterError: A parameter is missing or has a different shape.
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
    """Return the gradients of a fixed weighted sum of `output`, keyed by `gradient of NAME`.

    A missing gradient is None.
    """
    names = [f"gradient of {name}" for name in inputs]
    if not (isinstance(output, Tensor) and output.requires_grad):
        return dict.fromkeys(names)
    total = (output * torch.linspace(1, 2, output.numel(), dtype=output.dtype).view(output.shape)).sum()
    return dict(zip(names, torch.autograd.grad(total, list(inputs.values()), allow_unused=True), strict=True))


def extremes(
    module: nn.Module, *inputs: Tensor, samples: int, evaluated: int, others: Sequence[Callable] = ()
) -> dict[str, Tensor]:
    """Return the largest and smallest results of `samples` training-mode calls and `evaluated` evaluation-mode calls.

    All calls are made as rows of one batch. The arguments in `others` are not repeated. If there are only a few
    possible outcomes, a large number of samples covers them all, so the extremes do not depend on chance.
    """

    def results(count: int) -> Tensor:
        return module(*[x.repeat(count, *[1] * (x.dim() - 1)) for x in inputs], *others)

    in_training = results(samples)
    module.eval()
    in_evaluation = results(evaluated)
    return {
        f"largest of {samples} results in training": in_training.max(dim=0).values,
        f"smallest of {samples} results in training": in_training.min(dim=0).values,
        "largest result in evaluation": in_evaluation.max(dim=0).values,
        "smallest result in evaluation": in_evaluation.min(dim=0).values,
    }


def bare_transformer(source_vocab: int, target_vocab: int, d_model: int) -> nn.Module:
    """Return a module with only the parts of a `Transformer` that `tie_embeddings` uses.

    These are the configuration, both embeddings, and the output layer.
    """
    from transformer_lab.model import TransformerConfig

    model = nn.Module()
    model.config = TransformerConfig(source_vocab, target_vocab, d_model=d_model, n_heads=1, tie=True)
    model.source_embedding, model.target_embedding = nn.Module(), nn.Module()
    model.source_embedding.embedding = nn.Embedding(source_vocab, d_model)
    model.target_embedding.embedding = nn.Embedding(target_vocab, d_model)
    model.output = nn.Linear(d_model, target_vocab)
    return model


def two_tables(weights: dict[str, Tensor], pad_id: int) -> nn.Module:
    """Return a trainable model whose logits for a token depend on the previous token and on the mean of the source.

    Its `calls` attribute records, for each call, whether the model was in training mode and whether gradients were on.
    """
    model = nn.Module()
    model.config = types.SimpleNamespace(pad_id=pad_id)
    model.source_table, model.target_table = (nn.Parameter(table.clone()) for table in weights.values())
    model.calls = []

    def forward(source: Tensor, target: Tensor) -> Tensor:
        logits = model.target_table[target] + model.source_table[source].mean(dim=1, keepdim=True)
        model.calls.append((model.training, logits.requires_grad))
        return logits

    model.forward = forward
    return model


def batches_of(sources: list[Tensor], targets: list[Tensor], pad_id: int) -> list:
    from transformer_lab.data import Batch

    return [Batch(*pair, pad_id, list(range(len(pair[0])))) for pair in zip(sources, targets, strict=True)]


def model_with_known_translations(model: dict) -> Any:
    """Return a `TableModel` or a `ScriptedModel` with these arguments."""
    from transformer_lab.decoding.table_model import TableModel
    from transformer_lab.electives.scripted_model import ScriptedModel

    return (TableModel if "table" in model else ScriptedModel)(**model)


def likely_tokens(vocab: int, likeliest: list[int], their_logits: list[float]) -> nn.Module:
    """Return a language model in which a few tokens always have the given logits. All other logits are 0."""
    from transformer_lab.electives.table_language_model import TableLanguageModel

    logits = torch.zeros(vocab)
    logits[likeliest] = torch.tensor(their_logits)
    return TableLanguageModel(logits.repeat(vocab, 1), max_length=64)


def class_of_its_own(subject: Any) -> Any:
    """Return a copy of a class, so that data stored in the class does not carry over from one check to the next."""
    if not isinstance(subject, type):
        return subject
    stored = {name: part for name, part in vars(subject).items() if isinstance(part, dict) or hasattr(part, "append")}
    return type(subject)(subject.__name__, (subject,), copy.deepcopy(stored))


def outcome(function: Callable, *arguments: Any) -> dict[str, Any]:
    """Return what `function(*arguments)` returns, and the name of the exception that it raises, or "nothing"."""
    try:
        return {"returned": function(*arguments), "raised": "nothing"}
    except Exception as error:
        return {"returned": None, "raised": type(error).__name__}


def raised(function: Callable, *arguments: Any) -> str:
    """Return the name of the exception that `function(*arguments)` raises. If it raises none, return "nothing"."""
    return outcome(function, *arguments)["raised"]


def modes_afterwards(model: Any, call: Callable[[Any], Any]) -> dict[str, bool]:
    """Call `call(model)` once in each mode, and return for each whether `model` is in training mode afterward."""
    afterwards = {}
    for mode in ("training", "evaluation"):
        call(model.train(mode == "training"))
        afterwards[mode] = model.training
    return afterwards


def defaults_of(subject: Callable, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of the parameters named in `expected`.

    For a parameter without a default, return "missing".
    """
    import inspect

    parameters = inspect.signature(subject).parameters
    defaults = {name: parameters[name].default for name in expected if name in parameters}
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: "missing" if value is inspect.Parameter.empty else value if isinstance(value, plain) else repr(value)
        for name, value in defaults.items()
    }


HARNESS_NAMES = {"math": math, "nn": nn, "np": np, "torch": torch} | {
    function.__name__: function
    for function in (
        bare_transformer, batches_of, build, build_with_zeros, class_of_its_own, extremes, gradients, likely_tokens,
        load_weights, model_with_known_translations, modes_afterwards, outcome, raised, two_tables,
    )
}  # fmt: skip

# The package's classes that harnesses may use. Each is imported only if the harness's source mentions it.
CLASSES = {
    "CountingLanguageModel": "transformer_lab.electives.table_language_model",
    "LanguageModel": "transformer_lab.electives.language_model",
    "MultiHeadAttention": "transformer_lab.model",
    "ScriptedModel": "transformer_lab.electives.scripted_model",
    "TableLanguageModel": "transformer_lab.electives.table_language_model",
    "TableModel": "transformer_lab.decoding.table_model",
    "TransformerConfig": "transformer_lab.model",
}


@functools.cache  # the file may have changed by the next call
def harness_source(harness: Callable) -> str:
    """Return a harness's source, for use in a process that has the engine but not the file that defines the harness."""
    return textwrap.dedent(inspect.getsource(harness))


def harness_from_source(source: str) -> Callable:
    """Rebuild a harness from the source that `harness_source` returned."""
    names = HARNESS_NAMES | {
        name: getattr(importlib.import_module(module), name)
        for name, module in CLASSES.items()
        if re.search(rf"\b{name}\b", source)
    }
    known = set(names)
    flags = __future__.annotations.compiler_flag  # annotations may contain names that aren't available here
    exec(compile(source, "<harness>", "exec", flags, dont_inherit=True), names)
    (harness,) = (value for name, value in names.items() if name not in known and inspect.isfunction(value))
    return harness
