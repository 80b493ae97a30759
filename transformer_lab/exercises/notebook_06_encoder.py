"""Notebook 06, the encoder: a layer of two sublayers, and a stack of layers (section 3.1)."""

import torch
from torch import Tensor, nn

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import build, extremes, gradients_of_module
from transformer_lab.exercises.rules import same_results
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import Encoder, EncoderLayer


def lively_weights(sampler: InputSampler, module: nn.Module) -> dict[str, Tensor]:
    """Return weights that make every part count: no gain near zero, and hidden features that mostly pass the ReLU."""
    weights = sampler.weights(module, scale=0.9)
    for name, weight in weights.items():
        if name.endswith("norm.gain"):
            weights[name] = sampler.numbers(*weight.shape, low=0.5, high=1.5)
        if name.endswith("w_1.bias"):
            weights[name] = sampler.numbers(*weight.shape, low=0.5, high=1.2)
    return weights


def steady_weights(
    weights: dict[str, Tensor], sampler: InputSampler, silent: tuple[str, ...], loud: str
) -> dict[str, Tensor]:
    """Make the sublayer `loud` add the same positive numbers to any input, and those in `silent` add nothing.

    That separates the effect of dropout inside `loud` from the effect of dropout on its output.
    """
    last_layers = [f"{part}.{layer}." for part in silent for layer in ("w_o", "w_2")]
    first_matrices = [f"{loud}.w_v.weight", f"{loud}.w_1.weight"]
    for name in weights:
        shape = weights[name].shape
        if any(part in name for part in last_layers + first_matrices):
            weights[name] = torch.zeros(shape)
        elif f"{loud}." in name and ".w_q" not in name and ".w_k" not in name:
            weights[name] = sampler.numbers(*shape, low=0.4, high=1.2)
    return weights


def padding_of(sampler: InputSampler, batch: int, length: int) -> Tensor:
    """Return a mask `(batch, 1, 1, length)`: the first sentence is full, the others are padded on the right."""
    mask = torch.ones(batch, 1, 1, length, dtype=torch.bool)
    for row in range(1, batch):
        mask[row, ..., sampler.integer(1, length - 1) :] = False
    return mask


def parameters_and_shared(subject, arguments):
    own, shared, seen = {}, [], set()
    for name, parameter in subject(*arguments.values()).named_parameters(remove_duplicate=False):
        if parameter in seen:
            shared.append(name)
        else:
            own[name] = [*parameter.shape]
        seen |= {parameter}
    return {"own": own, "shared": shared}


def has_parameters_of(answer: type[nn.Module]):
    """Return a rule: the same parameters as the answer, by name and shape, and none of them shared."""

    def rule(inputs, received):
        expected = {n: list(p.shape) for n, p in answer(*inputs["arguments"].values()).named_parameters()}
        if received["shared"]:
            return f"`{received['shared'][0]}` is the same parameter as an earlier one, but each part needs its own"
        own = received["own"]
        extra = [name for name in own if name not in expected]
        for name, shape in sorted(expected.items(), key=lambda item: not item[0].startswith("norm")):
            if name not in own:
                return f"there is no parameter `{name}`" + (f", but there is one called `{extra[0]}`" if extra else "")
            if own[name] != shape:
                return f"the parameter `{name}` has shape {tuple(own[name])}, expected {tuple(shape)}"
        return f"there is a parameter `{extra[0]}`, which doesn't belong here" if extra else None

    return rule


# --- EncoderLayer ----------------------------------------------------------------------------------------------------


def layer_inputs(
    sampler: InputSampler, batch: int = 1, length: int = 2, norm_first: bool = False, d_ff: int | None = None
) -> dict:
    d_ff = d_ff or sampler.integer(5, 7)
    arguments = {"d_model": 4, "n_heads": 2, "d_ff": d_ff, "dropout": 0.0, "norm_first": norm_first}
    return {
        "arguments": arguments,
        "weights": lively_weights(sampler, EncoderLayer(*arguments.values())),
        "x": sampler.numbers(batch, length, 4),
    }


def padded_layer_inputs(sampler: InputSampler) -> dict:
    """Here d_ff is four times d_model, so that what else is wrong shows if someone always takes that."""
    return layer_inputs(sampler, 2, 3, d_ff=16) | {"source_mask": padding_of(sampler, 2, 3)}


def layer_dropout_inputs(sampler: InputSampler, loud: str) -> dict:
    """One word, one head and one hidden feature: so few outcomes that 1000 random samples meet them all."""
    arguments = {"d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": True}
    weights = lively_weights(sampler, EncoderLayer(*arguments.values()))
    weights = steady_weights(weights, sampler, tuple({"self_attention", "feed_forward"} - {loud}), loud)
    return {"arguments": arguments, "weights": weights, "x": sampler.numbers(1, 1, 3)}


def module_dropout(subject, arguments, weights, x):
    return extremes(build(subject, arguments, weights), x, samples=1000, evaluated=50)  # it is in training mode


def reordered_words(subject, arguments, weights, x, order):
    module = build(subject, arguments, weights)
    return {"output, then reordered": module(x)[:, order], "output of the reordered": module(x[:, order])}


def other_hidden_words(subject, arguments, weights, x, source_mask, other):
    module = build(subject, arguments, weights)
    seen = source_mask[:, 0, 0]  # (batch, length)
    changed = torch.where(seen[..., None], x, other)
    return {"output": module(x, source_mask)[seen], "with other hidden words": module(changed, source_mask)[seen]}


order_is_kept = same_results(
    "the same words in a different order get different results, not the same ones in that order"
)
hidden_words_do_not_matter = same_results(
    "the results for real words change when the words that the mask hides are different ones"
)

LAYER_AXES = {"x": "batch length d_model", "output": "batch length d_model", "source_mask": "batch heads query key"}

ENCODER_LAYER = Exercise(
    answer=EncoderLayer,
    blank=("__init__", "forward"),
    points=3,
    minutes=20,
    axes=LAYER_AXES,
    builds_on=("MultiHeadAttention", "FeedForward", "LayerNorm", "ResidualConnection"),
    banned=("torch.nn.TransformerEncoderLayer", "torch.nn.TransformerEncoder", "torch.nn.Transformer"),
    probes=[
        Probe("two words, post-norm", layer_inputs),
        Probe("two words, pre-norm", lambda sampler: layer_inputs(sampler, norm_first=True)),
        Probe("a padded batch with its mask", padded_layer_inputs),
        Probe("gradients reach x and all weights", layer_inputs, gradients_of_module),
        Probe(
            "dropout acts on the attention weights and on attention's output",
            lambda sampler: layer_dropout_inputs(sampler, "self_attention"),
            module_dropout,
        ),
        Probe(
            "dropout acts inside the feed-forward and on its output",
            lambda sampler: layer_dropout_inputs(sampler, "feed_forward"),
            module_dropout,
        ),
    ],
    properties=[
        Property(
            "its parameters are those of attention, feed-forward and two residual connections",
            lambda sampler: {"arguments": {"d_model": 4, "n_heads": 2, "d_ff": sampler.integer(5, 7)}},
            has_parameters_of(EncoderLayer),
            parameters_and_shared,
        ),
        Property(
            "reordering the words reorders the output in the same way",
            lambda sampler: layer_inputs(sampler, length=4) | {"order": sampler.order(4)},
            order_is_kept,
            reordered_words,
        ),
        Property(
            "hidden words don't affect the real ones",
            lambda sampler: padded_layer_inputs(sampler) | {"other": sampler.numbers(2, 3, 4)},
            hidden_words_do_not_matter,
            other_hidden_words,
        ),
    ],
)

# --- Encoder ---------------------------------------------------------------------------------------------------------


def stack_inputs(
    sampler: InputSampler, n_layers: int = 2, batch: int = 1, length: int = 2, norm_first: bool = False
) -> dict:
    sizes = {"n_layers": n_layers, "d_model": 4, "n_heads": 2, "d_ff": sampler.integer(3, 5)}
    arguments = sizes | {"dropout": 0.0, "norm_first": norm_first}
    return {
        "arguments": arguments,
        "weights": lively_weights(sampler, Encoder(*arguments.values())),
        "x": sampler.numbers(batch, length, 4),
    }


def padded_stack_inputs(sampler: InputSampler) -> dict:
    return stack_inputs(sampler, batch=2, length=3) | {"source_mask": padding_of(sampler, 2, 3)}


def stack_dropout_inputs(sampler: InputSampler) -> dict:
    arguments = {"n_layers": 1, "d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": False}
    weights = lively_weights(sampler, Encoder(*arguments.values()))
    weights = steady_weights(weights, sampler, ("feed_forward",), "self_attention")
    return {"arguments": arguments, "weights": weights, "x": sampler.numbers(1, 1, 3)}


def sizes_of_stack(sampler: InputSampler, n_layers: int, norm_first: bool) -> dict:
    sizes = {"n_layers": n_layers, "d_model": 4, "n_heads": 2, "d_ff": sampler.integer(5, 7)}
    return {"arguments": sizes | {"dropout": 0.0, "norm_first": norm_first}}


ENCODER = Exercise(
    answer=Encoder,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes=LAYER_AXES,
    builds_on=("LayerNorm", "EncoderLayer"),
    banned=("torch.nn.TransformerEncoderLayer", "torch.nn.TransformerEncoder", "torch.nn.Transformer"),
    probes=[
        Probe("two layers, post-norm", stack_inputs),
        Probe("three layers, pre-norm, with the final norm", lambda sampler: stack_inputs(sampler, 3, norm_first=True)),
        Probe("a padded batch: every layer gets the mask", padded_stack_inputs),
        Probe("gradients reach x and the weights of all layers", stack_inputs, gradients_of_module),
        Probe("dropout acts in the layers, in training only", stack_dropout_inputs, module_dropout),
    ],
    properties=[
        Property(
            "post-norm: its parameters are those of its layers, each with its own",
            lambda sampler: sizes_of_stack(sampler, 2, norm_first=False),
            has_parameters_of(Encoder),
            parameters_and_shared,
        ),
        Property(
            "pre-norm: its parameters are those of its layers and of one final norm",
            lambda sampler: sizes_of_stack(sampler, 1, norm_first=True),
            has_parameters_of(Encoder),
            parameters_and_shared,
        ),
        Property(
            "reordering the words reorders the output in the same way",
            lambda sampler: stack_inputs(sampler, length=4) | {"order": sampler.order(4)},
            order_is_kept,
            reordered_words,
        ),
        Property(
            "hidden words don't affect the real ones",
            lambda sampler: padded_stack_inputs(sampler) | {"other": sampler.numbers(2, 3, 4)},
            hidden_words_do_not_matter,
            other_hidden_words,
        ),
    ],
)

EXERCISES = [ENCODER_LAYER, ENCODER]
