"""Notebook 07, the decoder: a layer of three sublayers, and a stack of layers (sections 3.1 and 3.2.3)."""

import torch
from torch import Tensor, nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.notebook_06_encoder import (
    has_parameters_of,
    lively_weights,
    padding_of,
    parameters_and_shared,
    steady_weights,
)
from transformer_lab.exercises.recipes import build, gradients
from transformer_lab.model import Decoder, DecoderLayer, FeedForward, LayerNorm, MultiHeadAttention, ResidualConnection

# --- DecoderLayer ----------------------------------------------------------------------------------------------------


def causal_of(length: int) -> Tensor:
    """`(1, 1, length, length)`: no position sees a later one."""
    return torch.ones(length, length).tril().bool()[None, None]


def layer_inputs(draw: Draw, batch: int = 1, target: int = 2, source: int = 3, norm_first: bool = False) -> dict:
    arguments = {"d_model": 4, "n_heads": 2, "d_ff": 5, "dropout": 0.0, "norm_first": norm_first}
    return {
        "arguments": arguments,
        "weights": lively_weights(draw, DecoderLayer(*arguments.values())),
        "x": draw.numbers(batch, target, 4),
        "memory": draw.numbers(batch, source, 4),
    }


def with_masks(inputs: dict, draw: Draw) -> dict:
    batch, target, _ = inputs["x"].shape
    source = inputs["memory"].size(1)
    return inputs | {"source_mask": padding_of(draw, batch, source), "target_mask": causal_of(target)}


def causal_layer_inputs(draw: Draw) -> dict:
    return layer_inputs(draw, target=3, source=2) | {"source_mask": None, "target_mask": causal_of(3)}


def decoder_dropout_inputs(draw: Draw, answer: type[nn.Module], loud: str, layers: dict) -> dict:
    """One word on either side, one head and one hidden feature: few outcomes, so that many draws meet them all."""
    arguments = layers | {"d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": not layers}
    weights = lively_weights(draw, answer(*arguments.values()))
    silent = tuple({"self_attention", "cross_attention", "feed_forward"} - {loud})
    return {
        "arguments": arguments,
        "weights": steady_weights(weights, draw, silent, loud),
        "x": draw.numbers(1, 1, 3),
        "memory": draw.numbers(1, 1, 3),
    }


def decoder_dropout(subject, arguments, weights, x, memory):
    module = build(subject, arguments, weights).train()
    drawn = module(x.repeat(1000, 1, 1), memory.repeat(1000, 1, 1))  # 1000 draws in one call
    evaluated = module.eval()(x.repeat(50, 1, 1), memory.repeat(50, 1, 1))
    return {
        "greatest result of 1000 in training": drawn.max(dim=0).values,
        "least result of 1000 in training": drawn.min(dim=0).values,
        "greatest result in evaluation": evaluated.max(dim=0).values,
        "least result in evaluation": evaluated.min(dim=0).values,
    }


def decoder_gradients(subject, arguments, weights, x, memory):
    module = build(subject, arguments, weights)
    inputs = {"x": x.requires_grad_(), "memory": memory.requires_grad_()}
    return gradients(module(x, memory), inputs | dict(module.named_parameters()))


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


def order_of_memory_does_not_matter(inputs, received):
    if torch.allclose(received["output"], received["with reordered memory"], atol=1e-8):
        return None
    return "the same memory in another order gives another output"


def other_hidden_memory(subject, arguments, weights, x, memory, source_mask, target_mask, other):
    module = build(subject, arguments, weights)
    seen = source_mask[:, 0, 0]  # (batch, source)
    changed = torch.where(seen[..., None], memory, other)
    return {
        "output": module(x, memory, source_mask, target_mask),
        "with other hidden memory": module(x, changed, source_mask, target_mask),
    }


def hidden_memory_does_not_matter(inputs, received):
    if torch.allclose(received["output"], received["with other hidden memory"], atol=1e-8):
        return None
    return "the output changes with words of the source that the mask hides"


def hidden_memory_inputs(draw: Draw) -> dict:
    return with_masks(layer_inputs(draw, 2, 2, 3), draw) | {"other": draw.numbers(2, 3, 4)}


def decoder_layer_by(forward):
    """A decoder layer whose forward pass is `forward(layer, x, memory, source_mask, target_mask)`."""

    class Layer(DecoderLayer):
        def forward(self, x, memory, source_mask=None, target_mask=None):
            return forward(self, x, memory, source_mask, target_mask)

    return Layer


def decoder_layer_with(cross=None, order=(0, 1, 2), around=(0, 1, 2), masks=lambda source, target: (source, target)):
    """A decoder layer with another cross-attention, another order of sublayers, other residuals or other masks.

    `cross(layer, x, memory, source_mask)` is what the second sublayer does.
    """

    def forward(layer, x, memory, source_mask, target_mask):
        source_mask, target_mask = masks(source_mask, target_mask)
        look = cross or (lambda layer, y, memory, mask: layer.cross_attention(y, memory, memory, mask))
        sublayers = [
            lambda y: layer.self_attention(y, y, y, target_mask),
            lambda y: look(layer, y, memory, source_mask),
            layer.feed_forward,
        ]
        for sublayer in order:
            x = layer.residuals[around[sublayer]](x, sublayers[sublayer])
        return x

    return decoder_layer_by(forward)


def reading_itself(layer, y, memory, mask):
    return layer.cross_attention(y, y, y, mask)


def asking_from_memory(layer, y, memory, mask):
    return layer.cross_attention(memory, y, y, mask)


def taking_own_values(layer, y, memory, mask):
    return layer.cross_attention(y, memory, y, mask)


def reading_normed_memory(layer, y, memory, mask):
    if layer.residuals[1].norm_first:
        memory = layer.residuals[1].norm(memory)
    return layer.cross_attention(y, memory, memory, mask)


def reading_detached_memory(layer, y, memory, mask):
    memory = memory.detach()
    return layer.cross_attention(y, memory, memory, mask)


def through_self_attention(layer, y, memory, mask):
    return layer.self_attention(y, memory, memory, mask)


def inverted(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else ~mask


def with_own_causal_mask(layer, x, memory, source_mask, target_mask):
    return DecoderLayer.forward(layer, x, memory, source_mask, causal_of(x.size(1)))


def with_arguments_unused(layer, x, memory, source_mask, target_mask):
    attended = layer.residuals[0](x, lambda y: layer.self_attention(x, x, x, target_mask))
    seen = layer.residuals[1](attended, lambda y: layer.cross_attention(attended, memory, memory, source_mask))
    return layer.residuals[2](seen, layer.feed_forward)


def with_cross_attention_of_input(layer, x, memory, source_mask, target_mask):
    attended = layer.residuals[0](x, lambda y: layer.self_attention(y, y, y, target_mask))
    seen = layer.residuals[1](attended, lambda y: layer.cross_attention(x, memory, memory, source_mask))
    return layer.residuals[2](seen, layer.feed_forward)


def without_residuals(layer, x, memory, source_mask, target_mask):
    x = layer.self_attention(x, x, x, target_mask)
    return layer.feed_forward(layer.cross_attention(x, memory, memory, source_mask))


def called_too_early(layer, x, memory, source_mask, target_mask):
    x = layer.residuals[0](x, layer.self_attention(x, x, x, target_mask))
    x = layer.residuals[1](x, layer.cross_attention(x, memory, memory, source_mask))
    return layer.residuals[2](x, layer.feed_forward)


def decoder_layer_of(attention=1.0, cross=1.0, feed_forward=1.0, residual=1.0, norm_first=lambda flag: flag):
    """A decoder layer that hands on other settings: each of the first four is a factor of the dropout given."""

    class Layer(DecoderLayer):
        def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first_=False):
            super().__init__(d_model, n_heads, d_ff, dropout, norm_first_)
            self.self_attention = MultiHeadAttention(d_model, n_heads, attention * dropout)
            self.cross_attention = MultiHeadAttention(d_model, n_heads, cross * dropout)
            self.feed_forward = FeedForward(d_model, d_ff, feed_forward * dropout)
            self.residuals = nn.ModuleList(
                ResidualConnection(d_model, residual * dropout, norm_first(norm_first_)) for _ in range(3)
            )

    return Layer


class DecoderLayerWithOneAttention(DecoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.cross_attention = self.self_attention


class DecoderLayerWithOneResidual(DecoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.residuals = nn.ModuleList([ResidualConnection(d_model, dropout, norm_first)] * 3)


class DecoderLayerWithPlainList(DecoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        residuals = list(self.residuals)
        del self.residuals
        self.residuals = residuals


class DecoderLayerWithTwoResiduals(DecoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, dropout, norm_first) for _ in range(2))


DECODER_AXES = {
    "x": "batch target d_model",
    "memory": "batch source d_model",
    "output": "batch target d_model",
    "gradient of x": "batch target d_model",
    "gradient of memory": "batch source d_model",
    "source_mask": "batch heads query key",
    "target_mask": "batch heads query key",
}

LIBRARY_DECODERS = ("torch.nn.TransformerDecoderLayer", "torch.nn.TransformerDecoder", "torch.nn.Transformer")


def with_pre_norm_passed_by(layer, x, memory, source_mask, target_mask):
    x = layer.residuals[0](x, lambda y: layer.self_attention(y, y, y, target_mask))
    queries = x
    x = layer.residuals[1](x, lambda y: layer.cross_attention(queries, memory, memory, source_mask))
    return layer.residuals[2](x, layer.feed_forward)


DECODER_LAYER = Exercise(
    answer=DecoderLayer,
    blank=("__init__", "forward"),
    points=3,
    minutes=20,
    axes=DECODER_AXES,
    builds_on=("MultiHeadAttention", "FeedForward", "LayerNorm", "ResidualConnection"),
    banned=LIBRARY_DECODERS,
    probes=[
        Probe("two words look at three of the source, post-norm", layer_inputs),
        Probe("two words look at three of the source, pre-norm", lambda draw: layer_inputs(draw, norm_first=True)),
        Probe("a causal mask hides the future of the target", causal_layer_inputs),
        Probe(
            "a batch with both masks, source longer than target",
            lambda draw: with_masks(layer_inputs(draw, 2, 3, 4), draw),
        ),
        Probe(
            "both masks, source and target of one length",
            lambda draw: with_masks(layer_inputs(draw, 2, 3, 3), draw),
        ),
        Probe("gradients reach x, memory and all weights", layer_inputs, decoder_gradients),
        Probe(
            "dropout acts in self-attention and on what it gives",
            lambda draw: decoder_dropout_inputs(draw, DecoderLayer, "self_attention", {}),
            decoder_dropout,
        ),
        Probe(
            "dropout acts in cross-attention and on what it gives",
            lambda draw: decoder_dropout_inputs(draw, DecoderLayer, "cross_attention", {}),
            decoder_dropout,
        ),
        Probe(
            "dropout acts inside the feed-forward and on what it gives",
            lambda draw: decoder_dropout_inputs(draw, DecoderLayer, "feed_forward", {}),
            decoder_dropout,
        ),
    ],
    properties=[
        Property(
            "its parameters are those of two attentions, feed-forward and three residual connections",
            lambda draw: {"arguments": {"d_model": 4, "n_heads": 2, "d_ff": draw.integer(5, 7)}},
            has_parameters_of(DecoderLayer),
            parameters_and_shared,
        ),
        Property(
            "under a causal mask no position depends on a later one",
            lambda draw: with_masks(layer_inputs(draw, 1, 4, 4), draw),
            no_look_ahead,
            reach_of_positions,
        ),
        Property(
            "the order of the memory does not matter",
            lambda draw: layer_inputs(draw, source=4) | {"order": draw.order(4)},
            order_of_memory_does_not_matter,
            reordered_memory,
        ),
        Property(
            "what is hidden of the source does not matter",
            hidden_memory_inputs,
            hidden_memory_does_not_matter,
            other_hidden_memory,
        ),
    ],
    misconceptions=[
        Misconception(
            "cross_attention_reads_itself",
            decoder_layer_with(reading_itself),
            "Cross-attention reads the decoder's own words: its keys and values are x, so the source sentence never "
            "arrives and the model writes about nothing. Queries come from the decoder, keys and values from "
            "`memory` (section 3.2.3).",
        ),
        Misconception(
            "queries_from_memory",
            decoder_layer_with(asking_from_memory),
            "Cross-attention is the wrong way round: `memory` asks and the decoder's words answer, so one result "
            "comes out for each word of the source. The query is the decoder's (section 3.2.3).",
        ),
        Misconception(
            "values_from_x",
            decoder_layer_with(taking_own_values),
            "The keys are `memory` but the values are x: the weights say how much to take of each source word, "
            "and something else is taken. Keys and values come from the same place (section 3.2.3).",
        ),
        Misconception(
            "one_attention_for_both",
            DecoderLayerWithOneAttention,
            "`self_attention` and `cross_attention` are the same object, with the same weights. To look at what was "
            "written and to look at the source are two tasks: each has an attention of its own (section 3.1).",
        ),
        Misconception(
            "self_attention_twice",
            decoder_layer_with(through_self_attention),
            "The second sublayer calls `self_attention` again, on `memory`, and the weights of `cross_attention` are "
            "never used. Copied lines are easily left half changed.",
        ),
        Misconception(
            "cross_attention_missing",
            decoder_layer_with(order=(0, 2)),
            "There is no cross-attention, so the decoder never sees the source sentence. Section 3.1 puts it between "
            "self-attention and feed-forward.",
        ),
        Misconception(
            "feed_forward_missing",
            decoder_layer_with(order=(0, 1)),
            "There is no feed-forward. Section 3.1 ends each layer with it, in a residual connection of its own.",
        ),
        Misconception(
            "cross_attention_first",
            decoder_layer_with(order=(1, 0, 2)),
            "Cross-attention comes before self-attention. In figure 1 a word first looks at what has been written, and "
            "then, knowing that, asks the source.",
        ),
        Misconception(
            "cross_attention_in_first_residual",
            decoder_layer_with(order=(1, 0, 2), around=(1, 0, 2)),
            "Cross-attention comes first, in `residuals[0]`, and self-attention second. In figure 1 a word first looks "
            "at what has been written, and then, knowing that, asks the source.",
        ),
        Misconception(
            "cross_attention_last",
            decoder_layer_with(order=(0, 2, 1)),
            "The feed-forward comes before cross-attention. In figure 1 it is the last of the three: it works on what "
            "was found in the source.",
        ),
        Misconception(
            "masks_swapped",
            decoder_layer_with(masks=lambda source, target: (target, source)),
            "The two masks have changed places. `target_mask` is for self-attention, where the future is hidden; "
            "`source_mask` for cross-attention, where the padding of the source is (section 3.2.3). With sentences "
            "of one length nothing stops, and the future leaks.",
        ),
        Misconception(
            "target_mask_ignored",
            decoder_layer_with(masks=lambda source, target: (source, None)),
            "The target mask does not arrive at self-attention, so each word sees those that come after it. Training "
            "then looks splendid, because the answer can be seen, and translation fails (section 3.1).",
        ),
        Misconception(
            "source_mask_ignored",
            decoder_layer_with(masks=lambda source, target: (None, target)),
            "The source mask does not arrive at cross-attention, so padding of the source is looked at, and a sentence "
            "is translated differently in another batch.",
        ),
        Misconception(
            "own_causal_mask",
            decoder_layer_by(with_own_causal_mask),
            "The layer hides the future by a mask of its own making. What is hidden is for the caller to say: hand "
            "`target_mask` on as it comes, also where it is None.",
        ),
        Misconception(
            "target_mask_in_both",
            decoder_layer_with(masks=lambda source, target: (target, target)),
            "Cross-attention gets the target mask. The source may be seen whole, first word to last; only its padding "
            "is hidden, and that is what `source_mask` says (section 3.2.3).",
        ),
        Misconception(
            "masks_inverted",
            decoder_layer_with(masks=lambda source, target: (inverted(source), inverted(target))),
            "Both masks are turned round on their way to attention, so what may be seen is hidden. True means “may "
            "attend”, here as there.",
        ),
        Misconception(
            "memory_normalised",
            decoder_layer_with(reading_normed_memory),
            "With `norm_first` the memory is normalised as well. It comes from the encoder's last norm; here only "
            "the queries are normalised, and the residual connection does that.",
        ),
        Misconception(
            "memory_detached",
            decoder_layer_with(reading_detached_memory),
            "No gradient goes back through `memory`, whatever the numbers are, and that is the encoder's only way to "
            "learn. Leave out `.detach()`, `.data` and `torch.no_grad()`.",
        ),
        Misconception(
            "arguments_unused",
            decoder_layer_by(with_arguments_unused),
            "Attention reads the x of the layer, not the one that the residual connection hands to it. Post-norm "
            "makes no difference there; with `norm_first` the norm is lost on the way. Use the argument of the "
            "`lambda`.",
        ),
        Misconception(
            "cross_attention_asks_with_input",
            decoder_layer_by(with_cross_attention_of_input),
            "Cross-attention asks with the x from before self-attention. Its queries are what self-attention has made "
            "of it: use the argument of the `lambda`, which the residual connection fills.",
        ),
        Misconception(
            "no_residuals",
            decoder_layer_by(without_residuals),
            "The sublayers are called one after the other, without residual connections. Section 3.1 puts one, with "
            "its norm, around each of the three.",
        ),
        Misconception(
            "called_too_early",
            decoder_layer_by(called_too_early),
            "The residual connection is given a tensor, the finished result of the sublayer. It wants the sublayer "
            "itself, a function, so that it can decide what goes in: `lambda x: self.self_attention(x, x, x, "
            "target_mask)`.",
        ),
        Misconception(
            "one_norm_for_all",
            DecoderLayerWithOneResidual,
            "The sublayers share one residual connection, and with it one LayerNorm: `[...] * 3` repeats the object. "
            "Each sublayer learns its own gain and bias (section 3.1): build one in each turn of a loop.",
        ),
        Misconception(
            "two_residuals",
            DecoderLayerWithTwoResiduals,
            "There are two residual connections, as in the encoder's layer. The decoder's has three sublayers "
            "(section 3.1), so it needs three.",
        ),
        Misconception(
            "residual_used_twice",
            decoder_layer_with(around=(0, 1, 1)),
            "`residuals[1]` surrounds cross-attention and feed-forward, and `residuals[2]` is never used: its norm "
            "would never learn.",
        ),
        Misconception(
            "residual_used_thrice",
            decoder_layer_with(around=(0, 0, 0)),
            "`residuals[0]` surrounds all three sublayers, and the other two are never used: their norms would never "
            "learn. The three sublayers go into `residuals[0]`, `[1]` and `[2]`.",
        ),
        Misconception(
            "plain_list",
            DecoderLayerWithPlainList,
            "`residuals` is a plain Python list, so torch does not know what is in it: no optimizer finds these "
            "weights, and they are neither saved nor moved to a GPU. `nn.ModuleList` is a list that torch knows.",
        ),
        Misconception(
            "norm_first_ignored",
            decoder_layer_of(norm_first=lambda flag: False),
            "`norm_first` does not reach the residual connections, so the layer is post-norm in any case. Hand it on: "
            "`ResidualConnection(d_model, dropout, norm_first)`.",
        ),
        Misconception(
            "no_dropout",
            decoder_layer_of(0, 0, 0, 0),
            "`dropout` is not handed on to any part. Both attentions, the feed-forward and the residual connections "
            "take it.",
        ),
        Misconception(
            "no_dropout_in_attention",
            decoder_layer_of(attention=0, cross=0),
            "The attentions get no dropout: `MultiHeadAttention(d_model, n_heads, dropout)`, both of them.",
        ),
        Misconception(
            "no_dropout_in_cross_attention",
            decoder_layer_of(cross=0),
            "Cross-attention gets no dropout: `MultiHeadAttention(d_model, n_heads, dropout)`, as self-attention does.",
        ),
        Misconception(
            "no_dropout_in_feed_forward",
            decoder_layer_of(feed_forward=0),
            "The feed-forward gets no dropout: `FeedForward(d_model, d_ff, dropout)`.",
        ),
        Misconception(
            "no_dropout_in_residuals",
            decoder_layer_of(residual=0),
            "The residual connections get no dropout, and theirs is the one of section 5.4: "
            "`ResidualConnection(d_model, dropout, norm_first)`.",
        ),
        Misconception(
            "argument_passed_by",
            decoder_layer_by(with_pre_norm_passed_by),
            "Cross-attention asks with the `x` from outside, not with what the residual connection hands in. In "
            "post-norm the two are the same; with `norm_first` the norm is passed by. Use the argument: `lambda y: "
            "self.cross_attention(y, memory, memory, source_mask)`.",
        ),
    ],
    hints=[
        "The encoder's layer with one more sublayer in the middle. For each of the two attentions ask: who asks, who "
        "is looked at, and what has to be hidden?",
        "Self-attention takes query, key and value from x and the target mask. Cross-attention takes its queries from "
        "x, keys and values from `memory`, and the source mask. Three residual connections, three `lambda`s or two.",
        "`x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, target_mask))`, then `x = "
        "self.residuals[1](x, lambda x: self.cross_attention(x, memory, memory, source_mask))`, then the feed-forward "
        "in `self.residuals[2]`.",
    ],
)

# --- Decoder ---------------------------------------------------------------------------------------------------------


def stack_inputs(draw: Draw, n_layers: int = 2, batch: int = 1, target: int = 2, source: int = 3,
                 norm_first: bool = False) -> dict:  # fmt: skip
    arguments = {
        "n_layers": n_layers,
        "d_model": 4,
        "n_heads": 2,
        "d_ff": 3,
        "dropout": 0.0,
        "norm_first": norm_first,
    }
    return {
        "arguments": arguments,
        "weights": lively_weights(draw, Decoder(*arguments.values())),
        "x": draw.numbers(batch, target, 4),
        "memory": draw.numbers(batch, source, 4),
    }


def any_depth(draw: Draw, norm_first: bool) -> dict:
    sizes = {"n_layers": draw.integer(2, 3), "d_model": 4, "n_heads": 2, "d_ff": 5}
    return {"arguments": sizes | {"dropout": 0.0, "norm_first": norm_first}}


def decoder_by(forward):
    """A decoder whose forward pass is `forward(decoder, x, memory, source_mask, target_mask)`."""

    class Stack(Decoder):
        def forward(self, x, memory, source_mask=None, target_mask=None):
            return forward(self, x, memory, source_mask, target_mask)

    return Stack


def decoder_built_by(change):
    """A decoder that `change(decoder, arguments)` has worked on after it was built, by its own arguments."""

    class Stack(Decoder):
        def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
            super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
            change(self, (n_layers, d_model, n_heads, d_ff, dropout, norm_first))

    return Stack


def with_first_layer_only(decoder, x, memory, source_mask, target_mask):
    for _ in decoder.layers:
        x = decoder.layers[0](x, memory, source_mask, target_mask)
    return decoder.norm(x)


def with_every_layer_on_x(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        output = layer(x, memory, source_mask, target_mask)
    return decoder.norm(output)


def with_memory_replaced(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = layer(x, memory, source_mask, target_mask)
        memory, source_mask = x, target_mask
    return decoder.norm(x)


def with_memory_replaced_too(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = memory = layer(x, memory, source_mask, target_mask)
    return decoder.norm(x)


def with_residuals_around_layers(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = x + layer(x, memory, source_mask, target_mask)
    return decoder.norm(x)


def with_memory_of_x(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = layer(x, x, source_mask, target_mask)
    return decoder.norm(x)


def with_x_and_memory_swapped(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = layer(memory, x, source_mask, target_mask)
    return decoder.norm(x)


def with_masks_swapped(decoder, x, memory, source_mask, target_mask):
    return Decoder.forward(decoder, x, memory, target_mask, source_mask)


def without_target_mask(decoder, x, memory, source_mask, target_mask):
    return Decoder.forward(decoder, x, memory, source_mask)


def without_source_mask(decoder, x, memory, source_mask, target_mask):
    return Decoder.forward(decoder, x, memory, None, target_mask)


def without_masks(decoder, x, memory, source_mask, target_mask):
    return Decoder.forward(decoder, x, memory)


def with_norm_in_loop(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = decoder.norm(layer(x, memory, source_mask, target_mask))
    return x


def with_norm_unused(decoder, x, memory, source_mask, target_mask):
    for layer in decoder.layers:
        x = layer(x, memory, source_mask, target_mask)
    return x


def repeat_one_layer(decoder, arguments):
    n_layers, *sizes = arguments
    decoder.layers = nn.ModuleList([DecoderLayer(*sizes)] * n_layers)


def put_layers_in_plain_list(decoder, arguments):
    n_layers, *sizes = arguments
    del decoder.layers
    decoder.layers = [DecoderLayer(*sizes) for _ in range(n_layers)]


class DecoderOfSix(Decoder):
    """Nothing else is built: the layers that no weights are given for have to draw what a student's would."""

    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        nn.Module.__init__(self)
        self.layers = nn.ModuleList(DecoderLayer(d_model, n_heads, d_ff, dropout, norm_first) for _ in range(6))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()


def always_add_norm(decoder, arguments):
    decoder.norm = LayerNorm(arguments[1])


def never_add_norm(decoder, arguments):
    decoder.norm = nn.Identity()


def forget_norm_first(decoder, arguments):
    n_layers, *sizes, _ = arguments
    decoder.layers = nn.ModuleList(DecoderLayer(*sizes) for _ in range(n_layers))


def swap_dropout_and_norm_first(decoder, arguments):
    n_layers, d_model, n_heads, d_ff, dropout, norm_first = arguments
    decoder.layers = nn.ModuleList(DecoderLayer(d_model, n_heads, d_ff, norm_first, dropout) for _ in range(n_layers))


def forget_dropout(decoder, arguments):
    n_layers, d_model, n_heads, d_ff, _, norm_first = arguments
    decoder.layers = nn.ModuleList(
        DecoderLayer(d_model, n_heads, d_ff, norm_first=norm_first) for _ in range(n_layers)
    )


def with_norm_at_the_start(decoder, x, memory, source_mask, target_mask):
    x = decoder.norm(x)
    for layer in decoder.layers:
        x = layer(x, memory, source_mask, target_mask)
    return x


def with_target_mask_for_first(decoder, x, memory, source_mask, target_mask):
    for index, layer in enumerate(decoder.layers):
        x = layer(x, memory, source_mask, target_mask if index == 0 else None)
    return decoder.norm(x)


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
        Probe("three layers, pre-norm: a last norm follows", lambda draw: stack_inputs(draw, 3, norm_first=True)),
        Probe(
            "a batch with both masks, source longer than target",
            lambda draw: with_masks(stack_inputs(draw, 2, 2, 3, 4), draw),
        ),
        Probe(
            "both masks, source and target of one length",
            lambda draw: with_masks(stack_inputs(draw, 2, 2, 3, 3), draw),
        ),
        Probe("gradients reach x, memory and the weights of all layers", stack_inputs, decoder_gradients),
        Probe(
            "dropout acts in the layers, in training only",
            lambda draw: decoder_dropout_inputs(draw, Decoder, "cross_attention", {"n_layers": 1}),
            decoder_dropout,
        ),
    ],
    properties=[
        Property(
            "post-norm: its parameters are those of its layers, each with its own",
            lambda draw: any_depth(draw, norm_first=False),
            has_parameters_of(Decoder),
            parameters_and_shared,
        ),
        Property(
            "pre-norm: its parameters are those of its layers and of one last norm",
            lambda draw: any_depth(draw, norm_first=True),
            has_parameters_of(Decoder),
            parameters_and_shared,
        ),
        Property(
            "under a causal mask no position depends on a later one",
            lambda draw: with_masks(stack_inputs(draw, 2, 1, 4, 4), draw),
            no_look_ahead,
            reach_of_positions,
        ),
    ],
    misconceptions=[
        Misconception(
            "memory_replaced",
            decoder_by(with_memory_replaced),
            "Only the first layer reads the memory; the ones above read what the layer below has given. Every layer "
            "of the decoder looks at the same memory, the encoder's output (section 3.1).",
        ),
        Misconception(
            "memory_replaced_masks_kept",
            decoder_by(with_memory_replaced_too),
            "Only the first layer reads the memory: `memory` is overwritten with what the layer gives. Every layer of "
            "the decoder looks at the same memory, the encoder's output (section 3.1): only x is new in each turn.",
        ),
        Misconception(
            "memory_not_handed_on",
            decoder_by(with_memory_of_x),
            "The layers get x in the place of the memory, so the source sentence never arrives: "
            "`layer(x, memory, source_mask, target_mask)`.",
        ),
        Misconception(
            "x_and_memory_swapped",
            decoder_by(with_x_and_memory_swapped),
            "x and memory have changed places: the encoder's words ask and the decoder's answer. The order is "
            "`layer(x, memory, source_mask, target_mask)`.",
        ),
        Misconception(
            "masks_swapped",
            decoder_by(with_masks_swapped),
            "The two masks have changed places on their way to the layers. The order is `layer(x, memory, source_mask, "
            "target_mask)`; with sentences of one length nothing stops, and the future leaks.",
        ),
        Misconception(
            "target_mask_ignored",
            decoder_by(without_target_mask),
            "The target mask does not arrive at the layers, so each word sees those that come after it. Training then "
            "looks splendid, and translation fails (section 3.1).",
        ),
        Misconception(
            "source_mask_ignored",
            decoder_by(without_source_mask),
            "The source mask does not arrive at the layers, so the padding of the source is looked at.",
        ),
        Misconception(
            "no_masks",
            decoder_by(without_masks),
            "No mask arrives at the layers: the future of the target is seen, and the padding of the source. Every "
            "layer needs both.",
        ),
        Misconception(
            "same_layer",
            decoder_built_by(repeat_one_layer),
            "The stack holds the same layer several times: `[layer] * n_layers` repeats the object. All layers then "
            "have the same weights for ever. Section 3.1 stacks layers that each learn their own: build one in each "
            "turn of a loop.",
        ),
        Misconception(
            "first_layer_only",
            decoder_by(with_first_layer_only),
            "The first layer is applied again and again, and the others never. Walk through them: "
            "`for layer in self.layers:`.",
        ),
        Misconception(
            "every_layer_reads_the_input",
            decoder_by(with_every_layer_on_x),
            "Every layer reads the input of the stack, and only what the last one makes of it is returned. A layer "
            "builds on the one below (section 3.1): `x = layer(x, …)`.",
        ),
        Misconception(
            "residual_around_layers",
            decoder_by(with_residuals_around_layers),
            "Each layer's input is added to its output. The residual connections are inside of the layer, one around "
            "each sublayer (section 3.1); the stack adds nothing: `x = layer(x, …)`.",
        ),
        Misconception(
            "norm_always",
            decoder_built_by(always_add_norm),
            "There is a last norm without `norm_first` too, as in `nn.Transformer`. In the paper each layer ends in a "
            "norm (section 3.1), so another one right behind it has nothing to do: only with `norm_first` does the "
            "stack have one.",
        ),
        Misconception(
            "no_norm",
            decoder_built_by(never_add_norm),
            "With `norm_first` there is no last norm. No pre-norm layer ends in a norm, so what leaves the stack "
            "has grown with every layer (Xiong et al. 2020): `self.norm = LayerNorm(d_model)`, applied once, at the "
            "end.",
        ),
        Misconception(
            "norm_unused",
            decoder_by(with_norm_unused),
            "The last norm is made in `__init__`, but `forward` never calls it: `return self.norm(x)`.",
        ),
        Misconception(
            "norm_in_loop",
            decoder_by(with_norm_in_loop),
            "The last norm is applied after every layer, inside the loop. It comes once, behind the last layer: the "
            "open way from layer to layer is what pre-norm is for.",
        ),
        Misconception(
            "norm_first_ignored",
            decoder_built_by(forget_norm_first),
            "`norm_first` does not reach the layers: they are post-norm in any case. Hand it on, as the last argument "
            "of `DecoderLayer`.",
        ),
        Misconception(
            "no_dropout",
            decoder_built_by(forget_dropout),
            "`dropout` does not reach the layers, so nothing is dropped in training. Hand it on: "
            "`DecoderLayer(d_model, n_heads, d_ff, dropout, norm_first)`.",
        ),
        Misconception(
            "dropout_and_norm_first_swapped",
            decoder_built_by(swap_dropout_and_norm_first),
            "`dropout` and `norm_first` have changed places on their way to the layers. A bool is a number and a "
            "number can be asked for its truth, so nothing stops: `DecoderLayer(d_model, n_heads, d_ff, dropout, "
            "norm_first)`.",
        ),
        Misconception(
            "plain_list",
            decoder_built_by(put_layers_in_plain_list),
            "`layers` is a plain Python list, so torch does not know what is in it: no optimizer finds these weights, "
            "and they are neither saved nor moved to a GPU. `nn.ModuleList` is a list that torch knows.",
        ),
        Misconception(
            "always_six",
            DecoderOfSix,
            "There are always six layers, as in the paper's base model. Their number is `n_layers`.",
        ),
        Misconception(
            "norm_at_the_start",
            decoder_by(with_norm_at_the_start),
            "The norm of the stack is applied to its input. The first layer normalises that by itself; it is the end "
            "of the stack that lacks a norm with `norm_first`.",
        ),
        Misconception(
            "target_mask_for_first_layer",
            decoder_by(with_target_mask_for_first),
            "Only the first layer gets the target mask. From the second on, every position reads those behind it, and "
            "with them the words it has to predict: every layer needs both masks.",
        ),
    ],
    hints=[
        "Your `Encoder` with another kind of layer. What does each of its layers need, beside the result of the one "
        "below?",
        "Every layer gets the same `memory` and the same two masks; only x changes on the way up. The last norm is "
        "there with `norm_first` only.",
        "`for layer in self.layers: x = layer(x, memory, source_mask, target_mask)`, and then `return self.norm(x)`.",
    ],
)

EXERCISES = [DECODER_LAYER, DECODER]
