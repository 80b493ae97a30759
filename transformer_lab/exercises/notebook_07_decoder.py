"""Notebook 07, the decoder: a layer of three sublayers, and a stack of layers (sections 3.1 and 3.2.3)."""

from functools import partial

import torch
from torch import Tensor

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import build, gradients_of_module
from transformer_lab.exercises.notebook_06_encoder import (
    dropout_probe,
    module_inputs,
    padding_of,
    parameters_of_stack,
    same_parameters,
)
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import Decoder, DecoderLayer

# --- DecoderLayer ----------------------------------------------------------------------------------------------------


def causal_of(length: int) -> Tensor:
    """Return a mask `(1, 1, length, length)` that keeps each position from seeing the positions after it."""
    return torch.ones(length, length).tril().bool()[None, None]


def layer_inputs(
    sampler: InputSampler, batch: int = 1, target: int = 2, source: int = 3, answer=DecoderLayer, **settings
) -> dict:
    return module_inputs(answer, sampler, x=(batch, target), memory=(batch, source), **settings)


def with_masks(inputs: dict, sampler: InputSampler) -> dict:
    batch, target, _ = inputs["x"].shape
    source = inputs["memory"].size(1)
    return inputs | {"source_mask": padding_of(sampler, batch, source), "target_mask": causal_of(target)}


decoder_dropout_probe = partial(dropout_probe, names=("x", "memory"))


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
            # d_ff is four times d_model, so that other mistakes still show up in code that always uses this ratio
            lambda sampler: with_masks(layer_inputs(sampler, 2, 3, 3, d_ff=16), sampler),
        ),
        Probe("gradients reach x, memory and all weights", layer_inputs, gradients_of_module),
        decoder_dropout_probe("dropout acts in self-attention and on its output", DecoderLayer, "self_attention"),
        decoder_dropout_probe("dropout acts in cross-attention and on its output", DecoderLayer, "cross_attention"),
        decoder_dropout_probe("dropout acts inside the feed-forward and on its output", DecoderLayer, "feed_forward"),
    ],
    properties=[
        same_parameters(
            "its parameters are those of two attention modules, a feed-forward, and three residual connections",
            DecoderLayer,
        ),
        Property(
            "under a causal mask no position depends on a later one",
            lambda sampler: with_masks(layer_inputs(sampler, 1, 3, 4), sampler),
            no_look_ahead,
            reach_of_positions,
        ),
    ],
)

# --- Decoder ---------------------------------------------------------------------------------------------------------

stack_inputs = partial(layer_inputs, answer=Decoder, n_layers=2)

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
        Probe(
            "three layers, pre-norm, with the final norm",
            lambda sampler: stack_inputs(sampler, n_layers=3, norm_first=True),
        ),
        Probe(
            "one layer, a batch with both masks, source longer than target",
            lambda sampler: with_masks(stack_inputs(sampler, 2, 3, 4, n_layers=1), sampler),
        ),
        Probe(
            "two layers, both masks, source and target equally long",
            lambda sampler: with_masks(stack_inputs(sampler, 2, 3, 3), sampler),
        ),
        Probe("gradients reach x, memory and the weights of all layers", stack_inputs, gradients_of_module),
        decoder_dropout_probe("dropout acts in the layers, in training only", Decoder, "cross_attention", n_layers=1),
    ],
    properties=parameters_of_stack(Decoder),
)

EXERCISES = [DECODER_LAYER, DECODER]
