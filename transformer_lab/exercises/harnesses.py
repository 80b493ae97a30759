"""How a probe uses the student's object.

A harness is a function `(subject, **inputs) -> data`. It may run in another process than the one that judges, so it is
self-contained: it knows its arguments, the names in `HARNESS_NAMES` and `CLASSES`, and what it imports in its own body.
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
    """The student's module has other parameters than those the exercise names. The message is for the student."""


def call_function(subject: Callable, **inputs: Any) -> Any:
    """The harness of a function: call it with the inputs, in their order."""
    return subject(*inputs.values())


def call_module(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor], **inputs: Any) -> Any:
    """The harness of a module: construct it from `arguments`, load `weights`, call it with the other inputs."""
    return build(subject, arguments, weights)(*inputs.values())


def call_in_evaluation(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor], **inputs: Any) -> Any:
    """The harness of a module without its dropout, so that a wrong rate doesn't hide a wrong formula."""
    return build(subject, arguments, weights).eval()(*inputs.values())


def call_new_module(subject: type[nn.Module], arguments: dict, **inputs: Any) -> Any:
    """The harness of a module whose weights stay as they are initialized."""
    return subject(*arguments.values())(*inputs.values())


def gradients_of_module(subject: type[nn.Module], arguments: dict, weights: dict, **inputs: Any) -> dict:
    """The harness of gradients: those of every parameter, and of each input that isn't made of tokens."""
    module = build(subject, arguments, weights)
    numbers = {name: value.requires_grad_() for name, value in inputs.items() if value.is_floating_point()}
    return gradients(module(*inputs.values()), numbers | dict(module.named_parameters()))


def gradients_of_weights(subject: type[nn.Module], arguments: dict, weights: dict, **inputs: Any) -> dict:
    """The harness of gradients, of every parameter alone."""
    module = build(subject, arguments, weights)
    return gradients(module(*inputs.values()), dict(module.named_parameters()))


def names_and_shapes(subject: type[nn.Module], arguments: dict) -> dict[str, list[int]]:
    """The harness of parameters: the shape of each, by name."""
    return {name: list(parameter.shape) for name, parameter in subject(*arguments.values()).named_parameters()}


def exception_of_call(subject: Callable, **inputs: Any) -> str:
    """The harness of an exception: its name, or "nothing"."""
    return raised(subject, *inputs.values())


def exception_of_construction(subject: type[nn.Module], arguments: dict) -> str:
    """The harness of an exception that constructing a module raises: its name, or "nothing"."""
    return raised(subject, *arguments.values())


def build(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor]) -> nn.Module:
    """An object of the student's class: constructed from `arguments` in their order, `weights` loaded by name."""
    module = subject(*arguments.values())
    load_weights(module, weights)
    return module


def build_with_zeros(subject: type[nn.Module], arguments: dict, weights: dict[str, Tensor]) -> nn.Module:
    """What `build` returns, with all other parameters at 0, so that an extra bias alone doesn't change the results."""
    module = build(subject, arguments, weights)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in weights:
                parameter.zero_()
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


def extremes(
    module: nn.Module, *inputs: Tensor, samples: int, evaluated: int, others: Sequence[Callable] = ()
) -> dict[str, Tensor]:
    """What `samples` calls in training and `evaluated` calls in evaluation give at most and at least.

    All of them are rows of one batch; `others` are arguments that aren't repeated. With few outcomes, many samples meet
    them all, so that these don't depend on chance.
    """

    def results(count: int) -> Tensor:
        return module(*[x.repeat(count, *[1] * (x.dim() - 1)) for x in inputs], *others)

    drawn = results(samples)
    module.eval()
    constant = results(evaluated)
    return {
        f"largest of {samples} results in training": drawn.max(dim=0).values,
        f"smallest of {samples} results in training": drawn.min(dim=0).values,
        "largest result in evaluation": constant.max(dim=0).values,
        "smallest result in evaluation": constant.min(dim=0).values,
    }


def bare_transformer(source_vocab: int, target_vocab: int, d_model: int) -> nn.Module:
    """What `tie_embeddings` uses of a `Transformer`: its configuration, two embeddings and the output layer."""
    from transformer_lab.model import TransformerConfig

    model = nn.Module()
    model.config = TransformerConfig(source_vocab, target_vocab, d_model=d_model, n_heads=1, tie=True)
    model.source_embedding, model.target_embedding = nn.Module(), nn.Module()
    model.source_embedding.embedding = nn.Embedding(source_vocab, d_model)
    model.target_embedding.embedding = nn.Embedding(target_vocab, d_model)
    model.output = nn.Linear(d_model, target_vocab)
    return model


def two_tables(weights: dict[str, Tensor], pad_id: int) -> nn.Module:
    """Return a model to train: a token's logits depend on the token before it and on the mean of the source.

    `calls` says of each call whether the model was in training mode, and whether gradients were recorded.
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
    """The `Batch`es of these sources and targets."""
    from transformer_lab.data import Batch

    return [Batch(*pair, pad_id, list(range(len(pair[0])))) for pair in zip(sources, targets, strict=True)]


def likely_tokens(vocab: int, likeliest: list[int], their_logits: list[float]) -> nn.Module:
    """A language model in which a few tokens have these logits, whatever was written before, and all others have 0."""
    from transformer_lab.electives.table_language_model import TableLanguageModel

    logits = torch.zeros(vocab)
    logits[likeliest] = torch.tensor(their_logits)
    return TableLanguageModel(logits.repeat(vocab, 1), max_length=64)


def class_of_its_own(subject: Any) -> Any:
    """Return a class like `subject`, so that nothing that it keeps is carried over from one check to the next."""
    if not isinstance(subject, type):
        return subject
    own = {name: copy.deepcopy(part) for name, part in vars(subject).items() if hasattr(part, "append")}
    return type(subject)(subject.__name__, (subject,), own)


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
    defaults = {name: parameters[name].default for name in expected if name in parameters}
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: "missing" if value is inspect.Parameter.empty else value if isinstance(value, plain) else repr(value)
        for name, value in defaults.items()
    }


HARNESS_NAMES = {
    "bare_transformer": bare_transformer,
    "batches_of": batches_of,
    "build": build,
    "build_with_zeros": build_with_zeros,
    "class_of_its_own": class_of_its_own,
    "extremes": extremes,
    "gradients": gradients,
    "likely_tokens": likely_tokens,
    "load_weights": load_weights,
    "math": math,
    "nn": nn,
    "np": np,
    "raised": raised,
    "torch": torch,
    "two_tables": two_tables,
}

# Classes of the package that harnesses may use. They are imported only for a harness whose text names them.
CLASSES = {
    "CountingLanguageModel": "transformer_lab.electives.table_language_model",
    "LanguageModel": "transformer_lab.electives.language_model",
    "MultiHeadAttention": "transformer_lab.model",
    "ScriptedModel": "transformer_lab.electives.scripted_model",
    "TableLanguageModel": "transformer_lab.electives.table_language_model",
    "TableModel": "transformer_lab.decoding.table_model",
    "TransformerConfig": "transformer_lab.model",
}


@functools.cache  # the file may be another one by the time it is asked for again
def harness_source(harness: Callable) -> str:
    """The text of a harness, for a process that has the engine but not the file in which the harness stands."""
    return textwrap.dedent(inspect.getsource(harness))


def harness_from_source(source: str) -> Callable:
    """The harness again, from its text alone."""
    used = {name for name in CLASSES if re.search(rf"\b{name}\b", source)}
    names = HARNESS_NAMES | {name: getattr(importlib.import_module(CLASSES[name]), name) for name in used}
    before = set(names)
    flags = __future__.annotations.compiler_flag  # annotations may name what a harness does not know
    exec(compile(source, "<harness>", "exec", flags, dont_inherit=True), names)
    (harness,) = (value for name, value in names.items() if name not in before and inspect.isfunction(value))
    return harness
