"""Notebook 05, the layers around attention: layer normalization, feed-forward layers, and residual connections."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import (
    build,
    call_in_evaluation,
    call_new_module,
    extremes,
    gradients,
    gradients_of_module,
    names_and_shapes,
)
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import FeedForward, LayerNorm, ResidualConnection


def uneven(sampler: InputSampler, *shape: int) -> Tensor:
    """Return numbers that all differ along the last axis, so that their standard deviation is not zero.

    The mean and standard deviation of each sentence's first position are higher than those of the others.
    """
    rows = [sampler.order(shape[-1]) for _ in range(math.prod(shape[:-1]))]
    numbers = torch.tensor(rows).view(shape) + sampler.numbers(*shape, low=-0.4, high=0.4)
    numbers[..., 0, :] *= 3
    return numbers


def has_parameters_of(answer: type[nn.Module]):
    """Return a rule that requires parameters with the same names and shapes as the answer's."""

    def rule(inputs, received):
        expected = names_and_shapes(answer, inputs["arguments"])
        problems = []
        for name, shape in expected.items():
            if name not in received:
                problems.append(f"there is no parameter `{name}`")
            elif received[name] != shape:
                problems.append(f"the parameter `{name}` has shape {tuple(received[name])}, expected {tuple(shape)}")
        extra = next((name for name in received if name not in expected), None)
        if extra and not problems:
            return f"there is a parameter `{extra}`, which doesn't belong here"
        return "; ".join(problems) or None

    return rule


# --- LayerNorm -------------------------------------------------------------------------------------------------------


def norm_inputs(sampler: InputSampler, *shape: int, spread: float = 1.0, **arguments) -> dict:
    gain, bias = sampler.numbers(shape[-1], low=0.5, high=1.5), sampler.numbers(shape[-1], low=-0.5, high=0.5)
    gain[0], bias[0] = 2, 0.7
    return {
        "arguments": {"d_model": shape[-1]} | arguments,
        "weights": {"gain": gain, "bias": bias},
        "x": uneven(sampler, *shape) * spread,
    }


def constant_position_inputs(sampler: InputSampler) -> dict:
    inputs = norm_inputs(sampler, 1, 2, 4)
    inputs["x"][0, sampler.integer(0, 1)] = sampler.integer(-5, -1)
    return inputs


def norm_gradients(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    return gradients(module(x.requires_grad_()), {"x": x, "gain": module.gain, "bias": module.bias})


def new_norm_inputs(sampler: InputSampler) -> dict:
    """Use a large `eps`, so that its effect shows even if no weights can be loaded."""
    return {"arguments": {"d_model": 5, "eps": sampler.integer(5, 20) / 10}, "x": uneven(sampler, 2, 3, 5)}


LAYER_NORM = Exercise(
    answer=LayerNorm,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes={
        "x": "batch length d_model",
        "output": "batch length d_model",
        "gradient of gain": "d_model",
        "gradient of bias": "d_model",
    },
    banned=("torch.nn.LayerNorm", "torch.nn.functional.layer_norm", "torch.layer_norm", "torch.native_layer_norm"),
    probes=[
        Probe("two positions", lambda sampler: norm_inputs(sampler, 1, 2, 3, spread=2.0)),
        Probe("a batch of two", lambda sampler: norm_inputs(sampler, 2, 3, 4)),
        Probe("a position whose features are all equal", constant_position_inputs),
        Probe("a large eps", lambda sampler: norm_inputs(sampler, 1, 2, 5, eps=sampler.integer(5, 20) / 10)),
        Probe("features that barely differ", lambda sampler: norm_inputs(sampler, 1, 2, 4, spread=1 / 512)),
        Probe("an extra axis for heads", lambda sampler: norm_inputs(sampler, 2, 3, 4, 5)),
        Probe(
            "gradients reach x, gain and bias",
            lambda sampler: norm_inputs(sampler, 1, 2, 4, spread=2.0),
            norm_gradients,
        ),
        Probe("a new LayerNorm, with gain 1 and bias 0, only normalizes", new_norm_inputs, call_new_module),
    ],
    properties=[
        Property(
            "its parameters are `gain` and `bias`, with one number per feature",
            lambda sampler: {"arguments": {"d_model": sampler.integer(3, 6)}},
            has_parameters_of(LayerNorm),
            names_and_shapes,
        ),
    ],
)

# --- FeedForward -----------------------------------------------------------------------------------------------------


def feed_forward_inputs(
    sampler: InputSampler, batch: int, length: int, d_model: int, d_ff: int, dropout: float = 0.0
) -> dict:
    """Make the first hidden feature positive and the second one negative for any x.

    The first position of x is negative, and the others are positive, so that the first hidden feature differs.
    """
    weights = sampler.weights(FeedForward(d_model, d_ff))
    weights["w_1.weight"][0] = sampler.numbers(d_model, low=0.1, high=0.3)
    for feature, bias in enumerate((7, -7)[:d_ff]):
        weights["w_1.bias"][feature] = bias
        weights["w_2.weight"][:, feature] = sampler.numbers(d_model, low=0.3, high=0.5)
    weights["w_2.bias"] = sampler.numbers(d_model, low=-4, high=-3)
    weights["w_2.bias"][0] = 4
    x = sampler.numbers(batch, length, d_model, low=0.1, high=2)
    x[:, 0] *= -1
    return {
        "arguments": {"d_model": d_model, "d_ff": d_ff, "dropout": dropout},
        "weights": weights,
        "x": x,
    }


def module_dropout(subject, arguments, weights, x):
    return extremes(build(subject, arguments, weights).train(), x, samples=300, evaluated=300)


FEED_FORWARD = Exercise(
    answer=FeedForward,
    blank=("__init__", "forward"),
    points=1,
    minutes=10,
    axes={
        "x": "batch length d_model",
        "output": "batch length d_model",
        "gradient of w_1.weight": "d_ff d_model",
        "gradient of w_1.bias": "d_ff",
        "gradient of w_2.weight": "d_model d_ff",
        "gradient of w_2.bias": "d_model",
    },
    probes=[
        Probe("two positions", lambda sampler: feed_forward_inputs(sampler, 1, 2, 3, 4), call_in_evaluation),
        Probe("a batch of two", lambda sampler: feed_forward_inputs(sampler, 2, 3, 4, 7), call_in_evaluation),
        Probe(
            "gradients reach x and all weights",
            lambda sampler: feed_forward_inputs(sampler, 1, 2, 3, 5),
            gradients_of_module,
        ),
        Probe(
            "dropout acts on the hidden layer, in training only",
            lambda sampler: feed_forward_inputs(sampler, 1, 2, 3, 1, dropout=0.25),
            module_dropout,
            is_example=False,
        ),
    ],
    properties=[
        Property(
            "its parameters are those of two linear layers with bias",
            lambda sampler: {"arguments": {"d_model": 3, "d_ff": sampler.integer(4, 7)}},
            has_parameters_of(FeedForward),
            names_and_shapes,
        ),
    ],
)

# --- ResidualConnection ----------------------------------------------------------------------------------------------


def residual_inputs(sampler: InputSampler, norm_first: bool, batch: int = 1, dropout: float = 0.0) -> dict:
    """Return inputs that describe a linear sublayer as data. The string `sublayer` is used only in the report."""
    d_model = 3
    matrix = sampler.numbers(d_model, d_model, low=-1, high=1)
    matrix += 2 * torch.eye(d_model)[sampler.order(d_model)]
    return {
        "arguments": {"d_model": d_model, "dropout": dropout, "norm_first": norm_first},
        "weights": {
            "norm.gain": torch.tensor([0.6, 1.2, 1.7])[sampler.order(d_model)],
            "norm.bias": torch.tensor([0.4, -0.3, 0.9])[sampler.order(d_model)],
        },
        "x": uneven(sampler, batch, 2, d_model),
        "sublayer": "y @ matrix + shift",
        "matrix": matrix,
        "shift": sampler.numbers(d_model, low=0.5, high=1.5),
    }


def residual_with_linear_sublayer(subject, arguments, weights, x, sublayer, matrix, shift):
    module = build(subject, arguments, weights).eval()  # so that a wrong dropout rate doesn't hide a wrong formula
    given = []

    def linear(y):
        given.append(y.clone())
        return y @ matrix + shift

    output = module(x, linear)
    return {"output": output, "the sublayer's input": given[0] if given else None}


def residual_calls(subject, arguments, weights, x, sublayer, matrix, shift):
    calls = {}
    for name, norm_first in (("post-norm", False), ("pre-norm", True)):
        module = build(subject, arguments | {"norm_first": norm_first}, weights)
        given = []

        def linear(y, given=given):
            given.append(y)
            return y @ matrix + shift

        module(x.clone(), linear)
        calls[name] = len(given)
    return calls


def called_once(inputs, received):
    for name, calls in received.items():
        if calls != 1:
            return f"expected one call of the sublayer; in {name}, it's called {calls} times"
    return None


def residual_gradients(subject, arguments, weights, x, sublayer, matrix, shift):
    module = build(subject, arguments, weights)
    inputs = {"x": x.requires_grad_(), "matrix": matrix.requires_grad_(), "shift": shift.requires_grad_()}
    output = module(x, lambda y: y @ matrix + shift)
    return gradients(output, inputs | dict(module.named_parameters()))


def residual_dropout(subject, arguments, weights, x, sublayer, matrix, shift):
    module = build(subject, arguments, weights).train()
    return extremes(module, x, others=[lambda y: y @ matrix + shift], samples=300, evaluated=300)


def residual_probe(order: str, name: str, call, **settings) -> Probe:
    inputs = partial(residual_inputs, norm_first=order == "pre-norm", **settings)
    return Probe(f"{order}: {name}", inputs, call, is_example=call is not residual_dropout)


def parts_after_a_call(subject, arguments, x):
    module = subject(*arguments.values())
    module(x.clone(), nn.Linear(x.size(-1), x.size(-1)))
    return [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]


RESIDUAL_CONNECTION = Exercise(
    answer=ResidualConnection,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes={
        "x": "batch length d_model",
        "matrix": "d_model d_model",
        "shift": "d_model",
        "output": "batch length d_model",
        "the sublayer's input": "batch length d_model",
    },
    builds_on=("LayerNorm",),
    probes=[
        residual_probe("post-norm", "the sum is normalized", residual_with_linear_sublayer),
        residual_probe("pre-norm", "the sublayer's input is normalized", residual_with_linear_sublayer),
        residual_probe("post-norm", "gradients reach x, the sublayer and the norm", residual_gradients, batch=2),
        residual_probe("pre-norm", "gradients reach x, the sublayer and the norm", residual_gradients, batch=2),
        residual_probe(
            "post-norm", "dropout acts on the sublayer's output, in training only", residual_dropout, dropout=0.5
        ),
        residual_probe(
            "pre-norm", "dropout acts on the sublayer's output, in training only", residual_dropout, dropout=0.25
        ),
    ],
    properties=[
        Property(
            "the sublayer is called exactly once",
            lambda sampler: residual_inputs(sampler, norm_first=bool(sampler.integer(0, 1))),
            called_once,
            residual_calls,
        ),
        Property(
            "its parameters are those of one `LayerNorm` from this course",
            lambda sampler: {"arguments": {"d_model": sampler.integer(3, 6)}},
            has_parameters_of(ResidualConnection),
            names_and_shapes,
        ),
        Property(
            "the sublayer isn't kept after a call",
            lambda sampler: {"arguments": {"d_model": 3}, "x": sampler.numbers(1, 2, 3)},
            lambda inputs, received: (
                f"it keeps the sublayer as one of its own parts, `self.{received[0]}`" if received else None
            ),
            parts_after_a_call,
            needs=("the sublayer is called exactly once",),
        ),
    ],
)

EXERCISES = [LAYER_NORM, FEED_FORWARD, RESIDUAL_CONNECTION]
