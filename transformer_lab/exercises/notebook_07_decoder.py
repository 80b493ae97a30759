"""Notebook 07, the decoder: a layer of three sublayers, and a stack of layers (sections 3.1 and 3.2.3)."""

from functools import partial

import torch

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.harnesses import build, gradients_of_module
from transformer_lab.exercises.notebook_06_encoder import (
    dropout_probe,
    module_inputs,
    parameters_of_stack,
    same_parameters,
)
from transformer_lab.model import Decoder, DecoderLayer, causal_mask

# --- DecoderLayer ----------------------------------------------------------------------------------------------------

layer_inputs = partial(module_inputs, DecoderLayer, x=2, memory=3)
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
        Probe("two target words, three source words, pre-norm", partial(layer_inputs, norm_first=True)),
        Probe(
            "a causal mask hides the target's future",
            lambda sampler: layer_inputs(sampler, x=3, memory=2) | {"source_mask": None, "target_mask": causal_mask(3)},
        ),
        Probe(
            "a batch with both masks, source longer than target",
            partial(layer_inputs, batch=2, x=3, memory=4, masked=True),
        ),
        Probe(
            "both masks, source and target equally long",
            # d_ff is four times d_model, so that other mistakes still show up in code that always uses this ratio
            partial(layer_inputs, batch=2, x=3, memory=3, d_ff=16, masked=True),
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
            partial(layer_inputs, x=3, memory=4, masked=True),
            no_look_ahead,
            reach_of_positions,
        ),
    ],
)

# --- Decoder ---------------------------------------------------------------------------------------------------------

stack_inputs = partial(module_inputs, Decoder, n_layers=2, x=2, memory=3)

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
        Probe("three layers, pre-norm, with the final norm", partial(stack_inputs, n_layers=3, norm_first=True)),
        Probe(
            "one layer, a batch with both masks, source longer than target",
            partial(stack_inputs, n_layers=1, batch=2, x=3, memory=4, masked=True),
        ),
        Probe(
            "two layers, both masks, source and target equally long",
            partial(stack_inputs, batch=2, x=3, memory=3, masked=True),
        ),
        Probe("gradients reach x, memory and the weights of all layers", stack_inputs, gradients_of_module),
        decoder_dropout_probe("dropout acts in the layers, in training only", Decoder, "cross_attention", n_layers=1),
    ],
    properties=parameters_of_stack(Decoder),
)

EXERCISES = [DECODER_LAYER, DECODER]
