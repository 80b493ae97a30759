"""Notebook 07, the decoder: a layer of three sublayers, and a stack of layers (sections 3.1 and 3.2.3)."""

import torch
from torch import Tensor, nn

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import build, extremes, gradients_of_module
from transformer_lab.exercises.notebook_06_encoder import (
    has_parameters_of,
    lively_weights,
    padding_of,
    parameters_and_shared,
    sizes_of_stack,
    steady_weights,
)
from transformer_lab.exercises.rules import same_results
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import Decoder, DecoderLayer

# --- DecoderLayer ----------------------------------------------------------------------------------------------------


def causal_of(length: int) -> Tensor:
    """Return a mask `(1, 1, length, length)` in which no position sees a later one."""
    return torch.ones(length, length).tril().bool()[None, None]


def layer_inputs(sampler: InputSampler, batch: int = 1, target: int = 2, source: int = 3, norm_first: bool = False,
                 d_ff: int | None = None) -> dict:  # fmt: skip
    d_ff = d_ff or sampler.integer(5, 7)
    arguments = {"d_model": 4, "n_heads": 2, "d_ff": d_ff, "dropout": 0.0, "norm_first": norm_first}
    return {
        "arguments": arguments,
        "weights": lively_weights(sampler, DecoderLayer(*arguments.values())),
        "x": sampler.numbers(batch, target, 4),
        "memory": sampler.numbers(batch, source, 4),
    }


def with_masks(inputs: dict, sampler: InputSampler) -> dict:
    batch, target, _ = inputs["x"].shape
    source = inputs["memory"].size(1)
    return inputs | {"source_mask": padding_of(sampler, batch, source), "target_mask": causal_of(target)}


def decoder_dropout_inputs(sampler: InputSampler, answer: type[nn.Module], loud: str, layers: dict) -> dict:
    """One word per side, one head and one hidden feature: so few outcomes that 1000 random samples meet them all."""
    arguments = layers | {"d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": not layers}
    weights = lively_weights(sampler, answer(*arguments.values()))
    silent = tuple({"self_attention", "cross_attention", "feed_forward"} - {loud})
    weights = steady_weights(weights, sampler, silent, loud)
    return {
        "arguments": arguments,
        "weights": weights,
        "x": sampler.numbers(1, 1, 3),
        "memory": sampler.numbers(1, 1, 3),
    }


def decoder_dropout(subject, arguments, weights, x, memory):
    return extremes(build(subject, arguments, weights), x, memory, samples=1000, evaluated=50)  # it is in training mode


def dropout_probe(name: str, answer: type[nn.Module], loud: str, **layers: int) -> Probe:
    return Probe(name, lambda sampler: decoder_dropout_inputs(sampler, answer, loud, layers), decoder_dropout)


def reach_of_positions(subject, arguments, weights, x, memory, source_mask, target_mask):
    module = build(subject, arguments, weights)
    x.requires_grad_()
    output = module(x, memory, source_mask, target_mask)
    rows = []
    for position in range(x.size(1)):
        (gradient,) = torch.autograd.grad(output[:, position].square().sum(), x, retain_graph=True)
        rows.append((gradient.abs().sum((0, 2)) > 0).tolist())
    return {"position depends on": rows}


def no_look_ahead(inputs, received):
    for position, row in enumerate(received["position depends on"]):
        if any(row[position + 1 :]):
            return f"position {position} depends on position {row.index(True, position + 1)}, which comes later"
    return None


def reordered_memory(subject, arguments, weights, x, memory, order):
    module = build(subject, arguments, weights)
    return {"output": module(x, memory), "with reordered memory": module(x, memory[:, order])}


def other_hidden_memory(subject, arguments, weights, x, memory, source_mask, target_mask, other):
    module = build(subject, arguments, weights)
    seen = source_mask[:, 0, 0]  # (batch, source)
    changed = torch.where(seen[..., None], memory, other)
    return {
        "output": module(x, memory, source_mask, target_mask),
        "with other hidden memory": module(x, changed, source_mask, target_mask),
    }


DECODER_AXES = {
    "x": "batch target d_model",
    "memory": "batch source d_model",
    "output": "batch target d_model",
    "source_mask": "batch heads query key",
    "target_mask": "batch heads query key",
}

LIBRARY_DECODERS = ("torch.nn.TransformerDecoderLayer", "torch.nn.TransformerDecoder", "torch.nn.Transformer")


DECODER_LAYER = Exercise(
    answer=DecoderLayer,
    blank=("__init__", "forward"),
    points=3,
    minutes=20,
    axes=DECODER_AXES,
    builds_on=("MultiHeadAttention", "FeedForward", "LayerNorm", "ResidualConnection"),
    banned=LIBRARY_DECODERS,
    probes=[
        Probe("two target words, three source words, post-norm", layer_inputs),
        Probe("two target words, three source words, pre-norm", lambda sampler: layer_inputs(sampler, norm_first=True)),
        Probe(
            "a causal mask hides the target's future",
            lambda sampler: (
                layer_inputs(sampler, target=3, source=2) | {"source_mask": None, "target_mask": causal_of(3)}
            ),
        ),
        Probe(
            "a batch with both masks, source longer than target",
            lambda sampler: with_masks(layer_inputs(sampler, 2, 3, 4), sampler),
        ),
        Probe(
            "both masks, source and target equally long",
            # d_ff is four times d_model, so that what else is wrong shows if someone always takes that
            lambda sampler: with_masks(layer_inputs(sampler, 2, 3, 3, d_ff=16), sampler),
        ),
        Probe("gradients reach x, memory and all weights", layer_inputs, gradients_of_module),
        dropout_probe("dropout acts in self-attention and on its output", DecoderLayer, "self_attention"),
        dropout_probe("dropout acts in cross-attention and on its output", DecoderLayer, "cross_attention"),
        dropout_probe("dropout acts inside the feed-forward and on its output", DecoderLayer, "feed_forward"),
    ],
    properties=[
        Property(
            "its parameters are those of two attentions, a feed-forward and three residual connections",
            lambda sampler: {"arguments": {"d_model": 4, "n_heads": 2, "d_ff": sampler.integer(5, 7)}},
            has_parameters_of(DecoderLayer),
            parameters_and_shared,
        ),
        Property(
            "under a causal mask no position depends on a later one",
            lambda sampler: with_masks(layer_inputs(sampler, 1, 3, 4), sampler),
            no_look_ahead,
            reach_of_positions,
        ),
        Property(
            "the order of the memory doesn't matter",
            lambda sampler: layer_inputs(sampler, source=4) | {"order": sampler.order(4)},
            same_results("the output changes when the same memory comes in a different order"),
            reordered_memory,
        ),
        Property(
            "hidden source words don't affect the output",
            lambda sampler: with_masks(layer_inputs(sampler, 2, 2, 3), sampler) | {"other": sampler.numbers(2, 3, 4)},
            same_results("the output changes when the source words that the mask hides are different ones"),
            other_hidden_memory,
        ),
    ],
)

# --- Decoder ---------------------------------------------------------------------------------------------------------


def stack_inputs(sampler: InputSampler, n_layers: int = 2, batch: int = 1, target: int = 2, source: int = 3,
                 norm_first: bool = False) -> dict:  # fmt: skip
    sizes = {"n_layers": n_layers, "d_model": 4, "n_heads": 2, "d_ff": sampler.integer(3, 5)}
    arguments = sizes | {"dropout": 0.0, "norm_first": norm_first}
    return {
        "arguments": arguments,
        "weights": lively_weights(sampler, Decoder(*arguments.values())),
        "x": sampler.numbers(batch, target, 4),
        "memory": sampler.numbers(batch, source, 4),
    }


DECODER = Exercise(
    answer=Decoder,
    blank=("__init__", "forward"),
    points=2,
    minutes=10,
    axes=DECODER_AXES,
    builds_on=("LayerNorm", "DecoderLayer"),
    banned=LIBRARY_DECODERS,
    probes=[
        Probe("two layers, post-norm", stack_inputs),
        Probe("three layers, pre-norm, with the final norm", lambda sampler: stack_inputs(sampler, 3, norm_first=True)),
        Probe(
            "one layer, a batch with both masks, source longer than target",
            lambda sampler: with_masks(stack_inputs(sampler, 1, 2, 3, 4), sampler),
        ),
        Probe(
            "two layers, both masks, source and target equally long",
            lambda sampler: with_masks(stack_inputs(sampler, 2, 2, 3, 3), sampler),
        ),
        Probe("gradients reach x, memory and the weights of all layers", stack_inputs, gradients_of_module),
        dropout_probe("dropout acts in the layers, in training only", Decoder, "cross_attention", n_layers=1),
    ],
    properties=[
        Property(
            "post-norm: its parameters are those of its layers, each with its own",
            lambda sampler: sizes_of_stack(sampler, 2, norm_first=False),
            has_parameters_of(Decoder),
            parameters_and_shared,
        ),
        Property(
            "pre-norm: its parameters are those of its layers and of one final norm",
            lambda sampler: sizes_of_stack(sampler, 1, norm_first=True),
            has_parameters_of(Decoder),
            parameters_and_shared,
        ),
        Property(
            "under a causal mask no position depends on a later one",
            lambda sampler: with_masks(stack_inputs(sampler, 2, 1, 3, 4), sampler),
            no_look_ahead,
            reach_of_positions,
        ),
    ],
)

EXERCISES = [DECODER_LAYER, DECODER]
