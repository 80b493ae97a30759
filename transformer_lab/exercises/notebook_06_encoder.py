"""Notebook 06, the encoder: a layer of two sublayers, and a stack of layers (section 3.1)."""

from functools import partial

import torch
from torch import Tensor, nn

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import build, extremes, gradients_of_module, names_and_shapes
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import Encoder, EncoderLayer, causal_mask


def lively_weights(sampler: InputSampler, module: nn.Module) -> dict[str, Tensor]:
    """Return weights that make every part matter: no gain is near zero, and the hidden features are mostly positive."""
    weights = sampler.weights(module, scale=0.9)
    for name, weight in weights.items():
        if name.endswith("norm.gain"):
            weights[name] = sampler.numbers(*weight.shape, low=0.5, high=1.5)
        if name.endswith("w_1.bias"):
            weights[name] = sampler.numbers(*weight.shape, low=0.5, high=1.2)
    return weights


def padding_of(sampler: InputSampler, batch: int, length: int) -> Tensor:
    """Return a mask `(batch, 1, 1, length)` for sentences. All except the first are padded on the right."""
    mask = torch.ones(batch, 1, 1, length, dtype=torch.bool)
    for row in range(1, batch):
        mask[row, ..., sampler.integer(1, length - 1) :] = False
    return mask


def parameters_and_shared(subject, arguments):
    module = subject(*arguments.values())
    own = {name: list(parameter.shape) for name, parameter in module.named_parameters()}
    shared = [name for name, _ in module.named_parameters(remove_duplicate=False) if name not in own]
    return {"own": own, "shared": shared}


def has_parameters_of(answer: type[nn.Module]):
    """Return a rule that requires parameters with the answer's names and shapes, none of them shared."""

    def rule(inputs, received):
        expected, own = names_and_shapes(answer, inputs["arguments"]), received["own"]
        if received["shared"]:
            return f"`{received['shared'][0]}` is the same parameter as an earlier one, but each part needs its own"
        extra = [name for name in own if name not in expected]
        for name, shape in sorted(expected.items(), key=lambda item: not item[0].startswith("norm")):
            if name not in own:
                return f"there is no parameter `{name}`" + (f", but there is one called `{extra[0]}`" if extra else "")
            if own[name] != shape:
                return f"the parameter `{name}` has shape {tuple(own[name])}, expected {tuple(shape)}"
        return f"there is a parameter `{extra[0]}`, which doesn't belong here" if extra else None

    return rule


def module_inputs(
    answer: type[nn.Module],
    sampler: InputSampler,
    batch: int = 1,
    d_ff: int | None = None,
    norm_first: bool = False,
    n_layers: int | None = None,
    masked: bool = False,
    **lengths: int,
) -> dict:
    """Return inputs for a stack of `n_layers` (None: a single layer), with sequences of the given lengths.

    A stack's `d_ff` is odd, so it cannot be used as `d_model`. With `masked`, the source has padding, and a decoder's
    target cannot look ahead.
    """
    sizes = {"n_layers": n_layers} if n_layers else {}
    d_ff = d_ff or (2 * sampler.integer(1, 2) + 1 if n_layers else sampler.integer(5, 7))
    arguments = sizes | {"d_model": 4, "n_heads": 2, "d_ff": d_ff, "dropout": 0.0, "norm_first": norm_first}
    weights = lively_weights(sampler, answer(*arguments.values()))
    inputs = {"arguments": arguments, "weights": weights}
    inputs |= {name: sampler.numbers(batch, length, 4) for name, length in lengths.items()}
    if masked:
        inputs["source_mask"] = padding_of(sampler, batch, lengths.get("memory", lengths["x"]))
    if masked and "memory" in lengths:
        inputs["target_mask"] = causal_mask(lengths["x"])
    return inputs


def dropout_inputs(
    sampler: InputSampler, answer: type[nn.Module], loud: str, names: tuple[str, ...], n_layers: int | None
) -> dict:
    """Use one word, one head, and one hidden feature, so that 1000 random samples cover all possible outcomes.

    The sublayer `loud` adds the same positive numbers to any input, and the others add nothing. This separates the
    effect of dropout inside `loud` from that of dropout on its output.
    """
    sizes = {"n_layers": n_layers} if n_layers else {}
    arguments = sizes | {"d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": not n_layers}
    weights = lively_weights(sampler, answer(*arguments.values()))
    for name, weight in weights.items():
        is_loud = f"{loud}." in name
        zeros = (".w_v.weight", ".w_1.weight") if is_loud else (".w_o", ".w_2")
        if any(part in name for part in zeros):
            weights[name] = torch.zeros(weight.shape)
        elif is_loud and ".w_q" not in name and ".w_k" not in name:
            weights[name] = sampler.numbers(*weight.shape, low=0.4, high=1.2)
    return {"arguments": arguments, "weights": weights} | {name: sampler.numbers(1, 1, 3) for name in names}


def module_dropout(subject, arguments, weights, **inputs):
    module = build(subject, arguments, weights)  # in training mode
    return extremes(module, *inputs.values(), samples=1000, evaluated=50)


def dropout_probe(
    name: str, answer: type[nn.Module], loud: str, names: tuple[str, ...] = ("x",), n_layers: int | None = None
) -> Probe:
    return Probe(
        name, lambda sampler: dropout_inputs(sampler, answer, loud, names, n_layers), module_dropout, is_example=False
    )


def same_parameters(
    name: str, answer: type[nn.Module], n_layers: int | None = None, norm_first: bool = False
) -> Property:
    """Return a property that requires the same parameters as the answer's, for a layer or a stack of `n_layers`."""

    def inputs(sampler: InputSampler) -> dict:
        sizes = {"d_model": 4, "n_heads": 2, "d_ff": 2 * sampler.integer(2, 3) + 1}
        of_stack = {"n_layers": n_layers} | sizes | {"dropout": 0.0, "norm_first": norm_first}
        return {"arguments": of_stack if n_layers else sizes}

    return Property(name, inputs, has_parameters_of(answer), parameters_and_shared)


def parameters_of_stack(answer: type[nn.Module]) -> list[Property]:
    return [
        same_parameters("post-norm: its parameters are those of its layers, each with its own", answer, 2),
        same_parameters("pre-norm: its parameters are those of its layers and of one final norm", answer, 1, True),
    ]


# --- EncoderLayer ----------------------------------------------------------------------------------------------------

layer_inputs = partial(module_inputs, EncoderLayer, x=2)

LAYER_AXES = {"x": "batch length d_model", "output": "batch length d_model", "source_mask": "batch heads query key"}

LIBRARY_ENCODERS = ("torch.nn.TransformerEncoderLayer", "torch.nn.TransformerEncoder", "torch.nn.Transformer")

ENCODER_LAYER = Exercise(
    answer=EncoderLayer,
    blank=("__init__", "forward"),
    points=3,
    minutes=20,
    axes=LAYER_AXES,
    builds_on=("MultiHeadAttention", "FeedForward", "LayerNorm", "ResidualConnection"),
    banned=LIBRARY_ENCODERS,
    probes=[
        Probe("two words, post-norm", layer_inputs),
        Probe("two words, pre-norm", partial(layer_inputs, norm_first=True)),
        Probe(
            "a padded batch with its mask",
            # d_ff is four times d_model, so that other mistakes still show up in code that always uses this ratio
            partial(layer_inputs, batch=2, x=3, d_ff=16, masked=True),
        ),
        Probe("gradients reach x and all weights", layer_inputs, gradients_of_module),
        dropout_probe(
            "dropout acts on the attention weights and on attention's output", EncoderLayer, "self_attention"
        ),
        dropout_probe("dropout acts inside the feed-forward and on its output", EncoderLayer, "feed_forward"),
    ],
    properties=[
        same_parameters(
            "its parameters are those of attention, feed-forward and two residual connections", EncoderLayer
        ),
    ],
)

# --- Encoder ---------------------------------------------------------------------------------------------------------

stack_inputs = partial(module_inputs, Encoder, n_layers=2, x=2)

ENCODER = Exercise(
    answer=Encoder,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes=LAYER_AXES,
    builds_on=("LayerNorm", "EncoderLayer"),
    banned=LIBRARY_ENCODERS,
    probes=[
        Probe("two layers, post-norm", stack_inputs),
        Probe("three layers, pre-norm, with the final norm", partial(stack_inputs, n_layers=3, norm_first=True)),
        Probe("a padded batch: every layer gets the mask", partial(stack_inputs, batch=2, x=3, masked=True)),
        Probe("gradients reach x and the weights of all layers", stack_inputs, gradients_of_module),
        dropout_probe("dropout acts in the layers, in training only", Encoder, "self_attention", n_layers=1),
    ],
    properties=parameters_of_stack(Encoder),
)

EXERCISES = [ENCODER_LAYER, ENCODER]
