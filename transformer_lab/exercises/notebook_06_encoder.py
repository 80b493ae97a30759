"""Notebook 06, the encoder: a layer of two sublayers, and a stack of layers (section 3.1)."""

import torch
from torch import Tensor, nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.recipes import build, gradients
from transformer_lab.model import Encoder, EncoderLayer, FeedForward, LayerNorm, MultiHeadAttention, ResidualConnection


def lively_weights(draw: Draw, module: nn.Module) -> dict[str, Tensor]:
    """Weights with which every part shows: no gain near zero, hidden features that mostly survive the ReLU."""
    weights = draw.weights(module, scale=0.9)
    for name, weight in weights.items():
        if name.endswith("norm.gain"):
            weights[name] = draw.numbers(*weight.shape, low=0.5, high=1.5)
        if name.endswith("w_1.bias"):
            weights[name] = draw.numbers(*weight.shape, low=0.5, high=1.2)
    return weights


def steady_weights(weights: dict[str, Tensor], draw: Draw, silent: tuple[str, ...], loud: str) -> dict[str, Tensor]:
    """Weights with which the sublayer `loud` adds the same positive numbers to any input, and those `silent` nothing.

    What dropout does in `loud` can then be told from what it does behind it.
    """
    last_layers = [f"{part}.{layer}." for part in silent for layer in ("w_o", "w_2")]
    first_matrices = [f"{loud}.w_v.weight", f"{loud}.w_1.weight"]
    for name in weights:
        shape = weights[name].shape
        if any(part in name for part in last_layers + first_matrices):
            weights[name] = torch.zeros(shape)
        elif f"{loud}." in name and ".w_q" not in name and ".w_k" not in name:
            weights[name] = draw.numbers(*shape, low=0.4, high=1.2)
    return weights


def padding_of(draw: Draw, batch: int, length: int) -> Tensor:
    """`(batch, 1, 1, length)`: the first sentence is full, each other one is padded on the right."""
    mask = torch.ones(batch, 1, 1, length, dtype=torch.bool)
    for row in range(1, batch):
        mask[row, ..., draw.integer(1, length - 1) :] = False
    return mask


def parameters_and_shared(subject, arguments):
    module = subject(*arguments.values())
    own = {name: list(parameter.shape) for name, parameter in module.named_parameters()}
    everything = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    return {"own": own, "shared": [name for name in everything if name not in own]}


def has_parameters_of(answer: type[nn.Module]):
    """A rule: the same parameters by name and shape as the answer, none of them shared."""

    def holds(inputs, received):
        expected = {n: list(p.shape) for n, p in answer(*inputs["arguments"].values()).named_parameters()}
        if received["shared"]:
            return f"`{received['shared'][0]}` is the same parameter as an earlier one: each part has its own"
        own = received["own"]
        extra = [name for name in own if name not in expected]
        for name, shape in expected.items():
            if name not in own:
                return f"there is no parameter `{name}`" + (f", but there is one `{extra[0]}`" if extra else "")
            if own[name] != shape:
                return f"the parameter `{name}` has shape {tuple(own[name])}, expected {tuple(shape)}"
        return f"there is a parameter `{extra[0]}`, which does not belong to it" if extra else None

    return holds


# --- EncoderLayer ----------------------------------------------------------------------------------------------------


def layer_inputs(draw: Draw, batch: int = 1, length: int = 2, norm_first: bool = False) -> dict:
    arguments = {"d_model": 4, "n_heads": 2, "d_ff": 5, "dropout": 0.0, "norm_first": norm_first}
    return {
        "arguments": arguments,
        "weights": lively_weights(draw, EncoderLayer(*arguments.values())),
        "x": draw.numbers(batch, length, 4),
    }


def padded_layer_inputs(draw: Draw) -> dict:
    return layer_inputs(draw, 2, 3) | {"source_mask": padding_of(draw, 2, 3)}


def layer_dropout_inputs(draw: Draw, loud: str) -> dict:
    """One word, one head and one hidden feature: few outcomes, so that many draws meet them all."""
    arguments = {"d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": True}
    weights = lively_weights(draw, EncoderLayer(*arguments.values()))
    silent = tuple({"self_attention", "feed_forward"} - {loud})
    return {
        "arguments": arguments,
        "weights": steady_weights(weights, draw, silent, loud),
        "x": draw.numbers(1, 1, 3),
    }


def module_dropout(subject, arguments, weights, x):
    module = build(subject, arguments, weights).train()
    drawn = module(x.repeat(1000, 1, 1))  # 1000 draws in one call
    evaluated = module.eval()(x.repeat(50, 1, 1))
    return {
        "greatest result of 1000 in training": drawn.max(dim=0).values,
        "least result of 1000 in training": drawn.min(dim=0).values,
        "greatest result in evaluation": evaluated.max(dim=0).values,
        "least result in evaluation": evaluated.min(dim=0).values,
    }


def module_gradients(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    return gradients(module(x.requires_grad_()), {"x": x} | dict(module.named_parameters()))


def reordered_words(subject, arguments, weights, x, order):
    module = build(subject, arguments, weights)
    return {"output, then reordered": module(x)[:, order], "output of the reordered": module(x[:, order])}


def order_goes_along(inputs, received):
    if torch.allclose(received["output, then reordered"], received["output of the reordered"], atol=1e-8):
        return None
    return "words in another order give other results, not the same in that order"


def other_hidden_words(subject, arguments, weights, x, source_mask, other):
    module = build(subject, arguments, weights)
    seen = source_mask[:, 0, 0]  # (batch, length)
    changed = torch.where(seen[..., None], x, other)
    return {"output": module(x, source_mask)[seen], "with other hidden words": module(changed, source_mask)[seen]}


def hidden_words_do_not_matter(inputs, received):
    if torch.allclose(received["output"], received["with other hidden words"], atol=1e-8):
        return None
    return "the results of real words change with words that the mask hides"


def encoder_layer_by(forward):
    """An encoder layer whose forward pass is `forward(layer, x, source_mask)`."""

    class Layer(EncoderLayer):
        def forward(self, x, source_mask=None):
            return forward(self, x, source_mask)

    return Layer


def attended(layer, x, mask):
    return layer.residuals[0](x, lambda x: layer.self_attention(x, x, x, mask))


def without_residuals(layer, x, mask):
    return layer.feed_forward(layer.self_attention(x, x, x, mask))


def with_residual_twice(layer, x, mask):
    x = x + attended(layer, x, mask)
    return x + layer.residuals[1](x, layer.feed_forward)


def with_feed_forward_first(layer, x, mask):
    return attended(layer, layer.residuals[1](x, layer.feed_forward), mask)


def with_feed_forward_first_in_order(layer, x, mask):
    x = layer.residuals[0](x, layer.feed_forward)
    return layer.residuals[1](x, lambda x: layer.self_attention(x, x, x, mask))


def with_feed_forward_bare(layer, x, mask):
    return layer.feed_forward(attended(layer, x, mask))


def with_residuals_swapped(layer, x, mask):
    x = layer.residuals[1](x, lambda x: layer.self_attention(x, x, x, mask))
    return layer.residuals[0](x, layer.feed_forward)


def with_first_residual_for_both(layer, x, mask):
    return layer.residuals[0](attended(layer, x, mask), layer.feed_forward)


def with_attention_thrown_away(layer, x, mask):
    return layer.residuals[1](x, layer.feed_forward)


def with_argument_unused(layer, x, mask):
    x = layer.residuals[0](x, lambda y: layer.self_attention(x, x, x, mask))
    return layer.residuals[1](x, layer.feed_forward)


def with_queries_only_normed(layer, x, mask):
    x = layer.residuals[0](x, lambda y: layer.self_attention(y, x, x, mask))
    return layer.residuals[1](x, layer.feed_forward)


def called_too_early(layer, x, mask):
    x = layer.residuals[0](x, layer.self_attention(x, x, x, mask))
    return layer.residuals[1](x, layer.feed_forward(x))


def with_attention_as_sublayer(layer, x, mask):
    x = layer.residuals[0](x, layer.self_attention)
    return layer.residuals[1](x, layer.feed_forward)


def with_mask_ignored(layer, x, mask):
    return EncoderLayer.forward(layer, x)


def with_mask_inverted(layer, x, mask):
    return EncoderLayer.forward(layer, x, None if mask is None else ~mask)


def encoder_layer_of(attention=0.0, feed_forward=0.0, residual=0.0, norm_first=lambda flag: flag):
    """An encoder layer that hands on other settings: each of the first three is a factor of the dropout given."""

    class Layer(EncoderLayer):
        def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first_=False):
            super().__init__(d_model, n_heads, d_ff, dropout, norm_first_)
            self.self_attention = MultiHeadAttention(d_model, n_heads, attention * dropout)
            self.feed_forward = FeedForward(d_model, d_ff, feed_forward * dropout)
            self.residuals = nn.ModuleList(
                ResidualConnection(d_model, residual * dropout, norm_first(norm_first_)) for _ in range(2)
            )

    return Layer


class EncoderLayerWithFlagForDropout(EncoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout)
        self.residuals = nn.ModuleList(ResidualConnection(d_model, norm_first) for _ in range(2))


class EncoderLayerDroppedTwice(EncoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, source_mask=None):
        x = self.residuals[0](x, lambda x: self.dropout(self.self_attention(x, x, x, source_mask)))
        return self.residuals[1](x, lambda x: self.dropout(self.feed_forward(x)))


class EncoderLayerWithOneResidual(EncoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, d_ff, dropout, norm_first)
        self.residuals = nn.ModuleList([ResidualConnection(d_model, dropout, norm_first)] * 2)


class EncoderLayerWithPlainList(EncoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        nn.Module.__init__(self)
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.residuals = [ResidualConnection(d_model, dropout, norm_first) for _ in range(2)]


class EncoderLayerOfFixedWidth(EncoderLayer):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(d_model, n_heads, 4 * d_model, dropout, norm_first)


LAYER_AXES = {
    "x": "batch length d_model",
    "output": "batch length d_model",
    "gradient of x": "batch length d_model",
    "source_mask": "batch heads query key",
}


def with_mask_of_pairs(layer, x, mask):
    return EncoderLayer.forward(layer, x, mask if mask is None else mask & mask.transpose(-2, -1))


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
        Probe("two words, pre-norm", lambda draw: layer_inputs(draw, norm_first=True)),
        Probe("a mask hides padding from the others", padded_layer_inputs),
        Probe("gradients reach x and all weights", layer_inputs, module_gradients),
        Probe(
            "dropout acts on the attention weights and on what attention gives",
            lambda draw: layer_dropout_inputs(draw, "self_attention"),
            module_dropout,
        ),
        Probe(
            "dropout acts inside the feed-forward and on what it gives",
            lambda draw: layer_dropout_inputs(draw, "feed_forward"),
            module_dropout,
        ),
    ],
    properties=[
        Property(
            "its parameters are those of attention, feed-forward and two residual connections",
            lambda draw: {"arguments": {"d_model": 4, "n_heads": 2, "d_ff": draw.integer(5, 7)}},
            has_parameters_of(EncoderLayer),
            parameters_and_shared,
        ),
        Property(
            "words in another order give the same in that order",
            lambda draw: layer_inputs(draw, length=4) | {"order": draw.order(4)},
            order_goes_along,
            reordered_words,
        ),
        Property(
            "what is hidden does not matter",
            lambda draw: padded_layer_inputs(draw) | {"other": draw.numbers(2, 3, 4)},
            hidden_words_do_not_matter,
            other_hidden_words,
        ),
    ],
    misconceptions=[
        Misconception(
            "one_norm_for_both",
            EncoderLayerWithOneResidual,
            "Both sublayers share one residual connection, and with it one LayerNorm: `[...] * 2` repeats the object, "
            "it does not make a second one. Each sublayer learns its own gain and bias (section 3.1): build one in "
            "each turn of a loop.",
        ),
        Misconception(
            "first_residual_twice",
            encoder_layer_by(with_first_residual_for_both),
            "`residuals[0]` surrounds both sublayers, and `residuals[1]` is never used: its norm would never learn. "
            "The feed-forward goes into `residuals[1]`.",
        ),
        Misconception(
            "residuals_swapped",
            encoder_layer_by(with_residuals_swapped),
            "The residual connections have changed places: `residuals[0]` belongs to self-attention, `residuals[1]` to "
            "the feed-forward. Trained weights would not fit otherwise.",
        ),
        Misconception(
            "no_residuals",
            encoder_layer_by(without_residuals),
            "The sublayers are called one after the other, without residual connections. Section 3.1 puts one, with "
            "its norm, around each of the two: without the way around them a deep stack hardly learns.",
        ),
        Misconception(
            "residual_twice",
            encoder_layer_by(with_residual_twice),
            "x is added once more to what the residual connection gives, which has added it already. `x = "
            "self.residuals[0](x, …)` is all of it.",
        ),
        Misconception(
            "feed_forward_first",
            encoder_layer_by(with_feed_forward_first),
            "The feed-forward comes before attention. In figure 1 self-attention comes first: the words look around, "
            "then each works on what it has seen.",
        ),
        Misconception(
            "feed_forward_first_in_order",
            encoder_layer_by(with_feed_forward_first_in_order),
            "The feed-forward comes before attention. In figure 1 self-attention comes first, in `residuals[0]`: the "
            "words look around, then each works on what it has seen.",
        ),
        Misconception(
            "feed_forward_without_residual",
            encoder_layer_by(with_feed_forward_bare),
            "The feed-forward stands without a residual connection, and `residuals[1]` is never used. Section 3.1 puts "
            "one around each of the two sublayers: `self.residuals[1](x, self.feed_forward)`.",
        ),
        Misconception(
            "attention_thrown_away",
            encoder_layer_by(with_attention_thrown_away),
            "Attention has no effect: its result is not assigned, so the feed-forward gets the x from before. Write "
            "`x = self.residuals[0](…)`.",
        ),
        Misconception(
            "argument_unused",
            encoder_layer_by(with_argument_unused),
            "Attention reads the x of the layer, not the one that the residual connection hands to it. Post-norm "
            "makes no difference there; with `norm_first` the norm is lost on the way. Use the argument of the "
            "`lambda` three times.",
        ),
        Misconception(
            "only_queries_normed",
            encoder_layer_by(with_queries_only_normed),
            "With `norm_first` only the queries are normalised; keys and values are the x from outside. In "
            "self-attention all three come from the same place (section 3.2.3): the argument of the `lambda`.",
        ),
        Misconception(
            "called_too_early",
            encoder_layer_by(called_too_early),
            "The residual connection is given a tensor, the finished result of the sublayer. It wants the sublayer "
            "itself, a function, so that it can decide what goes in: `lambda x: self.self_attention(x, x, x, "
            "source_mask)`.",
        ),
        Misconception(
            "attention_without_keys",
            encoder_layer_by(with_attention_as_sublayer),
            "The residual connection calls the sublayer with one tensor, and attention wants three and the mask. A "
            "`lambda` of one argument makes up the difference: it hands x on as query, key and value.",
        ),
        Misconception(
            "mask_ignored",
            encoder_layer_by(with_mask_ignored),
            "The mask does not arrive at attention, so real words look at padding, and a sentence gives something else "
            "in another batch.",
        ),
        Misconception(
            "mask_inverted",
            encoder_layer_by(with_mask_inverted),
            "The mask is turned round on its way to attention, so what may be seen is hidden. True means “may "
            "attend”, here as there.",
        ),
        Misconception(
            "norm_first_ignored",
            encoder_layer_of(1, 1, 1, norm_first=lambda flag: False),
            "`norm_first` does not reach the residual connections, so the layer is post-norm in any case. Hand it on: "
            "`ResidualConnection(d_model, dropout, norm_first)`.",
        ),
        Misconception(
            "always_pre_norm",
            encoder_layer_of(1, 1, 1, norm_first=lambda flag: True),
            "The layer is pre-norm in any case. The paper's layers are post-norm (section 3.1), and so must these be "
            "unless `norm_first` is True.",
        ),
        Misconception(
            "flag_for_dropout",
            EncoderLayerWithFlagForDropout,
            "`norm_first` stands where the residual connections expect `dropout`, so they are post-norm in any case. "
            "Hand both on: `ResidualConnection(d_model, dropout, norm_first)`.",
        ),
        Misconception(
            "no_dropout",
            encoder_layer_of(0, 0, 0),
            "`dropout` is not handed on to any part. Attention, feed-forward and both residual connections take it.",
        ),
        Misconception(
            "no_dropout_in_attention",
            encoder_layer_of(0, 1, 1),
            "Attention gets no dropout: `MultiHeadAttention(d_model, n_heads, dropout)`.",
        ),
        Misconception(
            "no_dropout_in_feed_forward",
            encoder_layer_of(1, 0, 1),
            "The feed-forward gets no dropout: `FeedForward(d_model, d_ff, dropout)`.",
        ),
        Misconception(
            "no_dropout_in_residuals",
            encoder_layer_of(1, 1, 0),
            "The residual connections get no dropout, and theirs is the one of section 5.4: "
            "`ResidualConnection(d_model, dropout, norm_first)`.",
        ),
        Misconception(
            "dropout_twice",
            EncoderLayerDroppedTwice,
            "What a sublayer gives is dropped out twice: here, and again by the residual connection, which does it by "
            "itself (section 5.4). The layer needs no dropout of its own.",
        ),
        Misconception(
            "plain_list",
            EncoderLayerWithPlainList,
            "`residuals` is a plain Python list, so torch does not know what is in it: no optimizer finds these norms, "
            "and they are neither saved nor moved to a GPU. `nn.ModuleList` is a list that torch knows.",
        ),
        Misconception(
            "d_ff_ignored",
            EncoderLayerOfFixedWidth,
            "The feed-forward is four times as wide as the model, whatever `d_ff` says. That is the paper's ratio "
            "(2048 to 512, section 3.3) and no law: hand `d_ff` on.",
        ),
        Misconception(
            "queries_hidden_too",
            encoder_layer_by(with_mask_of_pairs),
            "The mask is joined with its own transpose, so that the queries of padding are hidden too: their rows "
            "allow nothing. Hand the mask on as it comes; what padding finds is never read.",
        ),
    ],
    hints=[
        "Two sublayers, each inside a residual connection, one after the other. You have written every part; here "
        "they are only made and joined. What does a residual connection want as its second argument?",
        "In `__init__`: `self.self_attention`, `self.feed_forward`, and `self.residuals`, an `nn.ModuleList` of two. "
        "The feed-forward is a function of one tensor already; attention becomes one by a `lambda`.",
        "`x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, source_mask))`, then "
        "`return self.residuals[1](x, self.feed_forward)`.",
    ],
)

# --- Encoder ---------------------------------------------------------------------------------------------------------


def stack_inputs(
    draw: Draw, n_layers: int = 2, batch: int = 1, length: int = 2, norm_first: bool = False, dropout: float = 0.0
) -> dict:
    arguments = {
        "n_layers": n_layers,
        "d_model": 4,
        "n_heads": 2,
        "d_ff": 3,
        "dropout": dropout,
        "norm_first": norm_first,
    }
    return {
        "arguments": arguments,
        "weights": lively_weights(draw, Encoder(*arguments.values())),
        "x": draw.numbers(batch, length, 4),
    }


def padded_stack_inputs(draw: Draw) -> dict:
    return stack_inputs(draw, batch=2, length=3) | {"source_mask": padding_of(draw, 2, 3)}


def stack_dropout_inputs(draw: Draw) -> dict:
    arguments = {"n_layers": 1, "d_model": 3, "n_heads": 1, "d_ff": 1, "dropout": 0.5, "norm_first": False}
    weights = lively_weights(draw, Encoder(*arguments.values()))
    weights = steady_weights(weights, draw, ("feed_forward",), "self_attention")
    return {"arguments": arguments, "weights": weights, "x": draw.numbers(1, 1, 3)}


def any_depth(draw: Draw, norm_first: bool) -> dict:
    sizes = {"n_layers": draw.integer(2, 3), "d_model": 4, "n_heads": 2, "d_ff": 5}
    return {"arguments": sizes | {"dropout": 0.0, "norm_first": norm_first}}


def encoder_by(forward):
    """An encoder whose forward pass is `forward(encoder, x, source_mask)`."""

    class Stack(Encoder):
        def forward(self, x, source_mask=None):
            return forward(self, x, source_mask)

    return Stack


def encoder_built_by(change):
    """An encoder that `change(encoder, arguments)` has worked on after it was built, by its own arguments."""

    class Stack(Encoder):
        def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
            super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
            change(self, (n_layers, d_model, n_heads, d_ff, dropout, norm_first))

    return Stack


def with_first_layer_only(encoder, x, mask):
    for _ in encoder.layers:
        x = encoder.layers[0](x, mask)
    return encoder.norm(x)


def with_return_in_loop(encoder, x, mask):
    return encoder.norm(encoder.layers[0](x, mask))


def with_layers_as_a_function(encoder, x, mask):
    return encoder.norm(nn.Sequential(*encoder.layers)(x, mask))


def with_every_layer_on_x(encoder, x, mask):
    for layer in encoder.layers:
        output = layer(x, mask)
    return encoder.norm(output)


def with_shortcut_around_layers(encoder, x, mask):
    for layer in encoder.layers:
        x = x + layer(x, mask)
    return encoder.norm(x)


def with_no_mask(encoder, x, mask):
    return Encoder.forward(encoder, x)


def with_mask_for_first(encoder, x, mask):
    for index, layer in enumerate(encoder.layers):
        x = layer(x, mask if index == 0 else None)
    return encoder.norm(x)


def with_norm_in_loop(encoder, x, mask):
    for layer in encoder.layers:
        x = encoder.norm(layer(x, mask))
    return x


def with_norm_at_the_start(encoder, x, mask):
    x = encoder.norm(x)
    for layer in encoder.layers:
        x = layer(x, mask)
    return x


def with_norm_unused(encoder, x, mask):
    for layer in encoder.layers:
        x = layer(x, mask)
    return x


def repeat_one_layer(encoder, arguments):
    n_layers, *sizes = arguments
    encoder.layers = nn.ModuleList([EncoderLayer(*sizes)] * n_layers)


def put_layers_in_plain_list(encoder, arguments):
    n_layers, *sizes = arguments
    del encoder.layers
    encoder.layers = [EncoderLayer(*sizes) for _ in range(n_layers)]


def always_build_six(encoder, arguments):
    encoder.layers = nn.ModuleList(EncoderLayer(*arguments[1:]) for _ in range(6))


def always_add_norm(encoder, arguments):
    encoder.norm = LayerNorm(arguments[1])


class EncoderWithIdleNorm(Encoder):
    def __init__(self, n_layers, d_model, n_heads, d_ff, dropout=0.0, norm_first=False):
        super().__init__(n_layers, d_model, n_heads, d_ff, dropout, norm_first)
        self.norm, self.norm_first = LayerNorm(d_model), norm_first

    def forward(self, x, source_mask=None):
        for layer in self.layers:
            x = layer(x, source_mask)
        return self.norm(x) if self.norm_first else x


def never_add_norm(encoder, arguments):
    encoder.norm = nn.Identity()


def take_library_norm(encoder, arguments):
    encoder.norm = nn.LayerNorm(arguments[1]) if arguments[-1] else nn.Identity()


def forget_norm_first(encoder, arguments):
    n_layers, *sizes, _ = arguments
    encoder.layers = nn.ModuleList(EncoderLayer(*sizes) for _ in range(n_layers))


def forget_dropout(encoder, arguments):
    n_layers, d_model, n_heads, d_ff, _, norm_first = arguments
    encoder.layers = nn.ModuleList(EncoderLayer(d_model, n_heads, d_ff, norm_first=norm_first) for _ in range(n_layers))


def put_norm_first_for_dropout(encoder, arguments):
    n_layers, d_model, n_heads, d_ff, dropout, norm_first = arguments
    encoder.layers = nn.ModuleList(
        EncoderLayer(d_model, n_heads, d_ff, float(norm_first), bool(dropout)) for _ in range(n_layers)
    )


def with_padding_set_to_zero(encoder, x, mask):
    memory = Encoder.forward(encoder, x, mask)
    return memory if mask is None else memory * mask[:, 0, 0, :, None]


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
        Probe("three layers, pre-norm: a last norm follows", lambda draw: stack_inputs(draw, 3, norm_first=True)),
        Probe("a mask hides padding in every layer", padded_stack_inputs),
        Probe("gradients reach x and the weights of all layers", stack_inputs, module_gradients),
        Probe("dropout acts in the layers, in training only", stack_dropout_inputs, module_dropout),
    ],
    properties=[
        Property(
            "post-norm: its parameters are those of its layers, each with its own",
            lambda draw: any_depth(draw, norm_first=False),
            has_parameters_of(Encoder),
            parameters_and_shared,
        ),
        Property(
            "pre-norm: its parameters are those of its layers and of one last norm",
            lambda draw: any_depth(draw, norm_first=True),
            has_parameters_of(Encoder),
            parameters_and_shared,
        ),
        Property(
            "words in another order give the same in that order",
            lambda draw: stack_inputs(draw, length=4) | {"order": draw.order(4)},
            order_goes_along,
            reordered_words,
        ),
        Property(
            "what is hidden does not matter",
            lambda draw: padded_stack_inputs(draw) | {"other": draw.numbers(2, 3, 4)},
            hidden_words_do_not_matter,
            other_hidden_words,
        ),
    ],
    misconceptions=[
        Misconception(
            "same_layer",
            encoder_built_by(repeat_one_layer),
            "The stack holds the same layer several times: `[layer] * n_layers` repeats the object. All layers then "
            "have the same weights for ever. Section 3.1 stacks layers that each learn their own: build one in each "
            "turn of a loop.",
        ),
        Misconception(
            "first_layer_only",
            encoder_by(with_first_layer_only),
            "The first layer is applied again and again, and the others never. Walk through them: "
            "`for layer in self.layers: x = layer(x, source_mask)`.",
        ),
        Misconception(
            "return_in_loop",
            encoder_by(with_return_in_loop),
            "The `return` stands inside the loop, so the first layer is also the last. Move it out: one level to the "
            "left.",
        ),
        Misconception(
            "sequential",
            encoder_by(with_layers_as_a_function),
            "`nn.Sequential` hands one tensor from layer to layer, and has no room for the mask. Use `nn.ModuleList` "
            "and a loop: `x = layer(x, source_mask)`.",
        ),
        Misconception(
            "every_layer_reads_the_input",
            encoder_by(with_every_layer_on_x),
            "Every layer reads the input of the stack, and only what the last one makes of it is returned. A layer "
            "builds on the one below (section 3.1): `x = layer(x, source_mask)`.",
        ),
        Misconception(
            "shortcut_around_layers",
            encoder_by(with_shortcut_around_layers),
            "x is added to what each layer gives. The ways around are inside the layers, one for each sublayer "
            "(section 3.1); the stack adds nothing.",
        ),
        Misconception(
            "mask_ignored",
            encoder_by(with_no_mask),
            "The mask does not arrive at the layers, so real words look at padding. Each layer needs it: "
            "`layer(x, source_mask)`.",
        ),
        Misconception(
            "mask_for_first_layer",
            encoder_by(with_mask_for_first),
            "Only the first layer gets the mask. Padding has results too, and from the second layer on real words look "
            "at those: every layer needs the mask.",
        ),
        Misconception(
            "norm_always",
            encoder_built_by(always_add_norm),
            "There is a last norm without `norm_first` too, as in `nn.Transformer`. In the paper each layer ends in a "
            "norm (section 3.1), so another one right behind it has nothing to do: only with `norm_first` does the "
            "stack have one.",
        ),
        Misconception(
            "norm_idle",
            EncoderWithIdleNorm,
            "The last norm is made without `norm_first` too, and then never used: weights that are saved and never "
            "learn. Make it with `norm_first` only: `LayerNorm(d_model) if norm_first else nn.Identity()`.",
        ),
        Misconception(
            "no_norm",
            encoder_built_by(never_add_norm),
            "With `norm_first` there is no last norm. No pre-norm layer ends in a norm, so what leaves the stack "
            "has grown with every layer (Xiong et al. 2020): `self.norm = LayerNorm(d_model)`, applied once, at the "
            "end.",
        ),
        Misconception(
            "norm_unused",
            encoder_by(with_norm_unused),
            "The last norm is made in `__init__`, but `forward` never calls it: `return self.norm(x)`.",
        ),
        Misconception(
            "norm_in_loop",
            encoder_by(with_norm_in_loop),
            "The last norm is applied after every layer, inside the loop. It comes once, behind the last layer: the "
            "open way from layer to layer is what pre-norm is for.",
        ),
        Misconception(
            "norm_at_the_start",
            encoder_by(with_norm_at_the_start),
            "The norm of the stack is applied to its input. The first layer normalises that by itself; it is the end "
            "of the stack that lacks a norm with `norm_first`.",
        ),
        Misconception(
            "library_norm",
            encoder_built_by(take_library_norm),
            "The last norm is `nn.LayerNorm`, whose parameters are called `weight` and `bias`. Use the `LayerNorm` "
            "that you have written, with `gain` and `bias`.",
        ),
        Misconception(
            "norm_first_ignored",
            encoder_built_by(forget_norm_first),
            "`norm_first` does not reach the layers: they are post-norm in any case. Hand it on, as the last argument "
            "of `EncoderLayer`.",
        ),
        Misconception(
            "no_dropout",
            encoder_built_by(forget_dropout),
            "`dropout` does not reach the layers, so nothing is dropped in training. Hand it on: "
            "`EncoderLayer(d_model, n_heads, d_ff, dropout, norm_first)`.",
        ),
        Misconception(
            "arguments_swapped",
            encoder_built_by(put_norm_first_for_dropout),
            "`dropout` and `norm_first` have changed places on their way to the layers. The order is "
            "`EncoderLayer(d_model, n_heads, d_ff, dropout, norm_first)`.",
        ),
        Misconception(
            "plain_list",
            encoder_built_by(put_layers_in_plain_list),
            "`layers` is a plain Python list, so torch does not know what is in it: no optimizer finds these weights, "
            "and they are neither saved nor moved to a GPU. `nn.ModuleList` is a list that torch knows.",
        ),
        Misconception(
            "always_six",
            encoder_built_by(always_build_six),
            "There are always six layers, as in the paper's base model. Their number is `n_layers`.",
        ),
        Misconception(
            "padding_set_to_zero",
            encoder_by(with_padding_set_to_zero),
            "The results at padding are set to zero. Nobody reads them, because the mask hides them in "
            "cross-attention as well; the stack gives back what its last layer, or its norm, gives.",
        ),
    ],
    hints=[
        "A list of layers that torch knows, and a loop through them. What does the input of the second layer have to "
        "be? And which norm is missing when no layer ends in one?",
        "`nn.ModuleList(EncoderLayer(…) for _ in range(n_layers))` makes a new layer in each turn. With `norm_first` "
        "there is `self.norm = LayerNorm(d_model)`; without it `nn.Identity()` does nothing.",
        "`for layer in self.layers: x = layer(x, source_mask)`, and then `return self.norm(x)`.",
    ],
)

EXERCISES = [ENCODER_LAYER, ENCODER]
