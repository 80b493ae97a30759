"""Notebook 04, embeddings and positions: sections 3.4 and 3.5."""

import math
import re

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.recipes import build, gradients, raised
from transformer_lab.model import PositionalEncoding, TokenEmbedding, sinusoidal_encoding

# --- TokenEmbedding --------------------------------------------------------------------------------------------------


def embedding_inputs(draw: Draw, batch: int, length: int, vocab_size: int, d_model: int, pad_id: int) -> dict:
    """The first word of the vocabulary is among the tokens; padding is too, where a sentence has three or more."""
    weights = draw.weights(TokenEmbedding(vocab_size, d_model, pad_id))
    weights["embedding.weight"][weights["embedding.weight"] == 0] = 0.3
    weights["embedding.weight"][pad_id] = 0
    first, *others = [token for token in range(vocab_size) if token != pad_id]
    sentences = [[first, *(others[i] for i in draw.order(len(others)))][:length] for _ in range(batch)]
    tokens = torch.tensor(sentences)
    if length > 2:
        tokens[0, -1] = pad_id
    return {
        "arguments": {"vocab_size": vocab_size, "d_model": d_model, "pad_id": pad_id},
        "weights": weights,
        "tokens": tokens,
    }


def new_embedding_inputs(draw: Draw) -> dict:
    inputs = embedding_inputs(draw, 1, 3, 6, 2, pad_id=draw.integer(1, 5))
    return {"arguments": inputs["arguments"], "tokens": inputs["tokens"]}


def embedding_gradients(subject, arguments, weights, tokens):
    module = build(subject, arguments, weights)
    return gradients(module(tokens), {"embedding.weight": module.embedding.weight})


def new_embedding(subject, arguments, tokens):
    return subject(*arguments.values())(tokens)


def padding_starts_at_zero(inputs, vectors):
    if vectors[inputs["tokens"] == inputs["arguments"]["pad_id"]].abs().max() != 0:
        return "in a new embedding the vector of `pad_id` is not zero"
    return None


def embedding_three_times(subject, arguments, weights, tokens, order):
    module = build(subject, arguments, weights)
    return {
        "vectors": module(tokens),
        "vectors again": module(tokens),
        "vectors of reordered tokens": module(tokens[:, order]),
    }


def vector_belongs_to_its_token(inputs, received):
    if not torch.allclose(received["vectors"], received["vectors again"], atol=1e-8):
        return "the same tokens give other vectors the second time"
    if not torch.allclose(received["vectors"][:, inputs["order"]], received["vectors of reordered tokens"], atol=1e-8):
        return "a token's vector depends on where the token stands"
    return None


def error_of_wrong_pad(subject, arguments):
    return {"raised": raised(subject, *arguments.values())}


def wrong_pad_is_refused(inputs, received):
    if received["raised"] == "ValueError":
        return None
    vocab_size, _, pad_id = inputs["arguments"].values()
    outcome = "nothing happens" if received["raised"] == "nothing" else f"`{received['raised']}` is raised"
    return Remark(
        f"With a `pad_id` of {pad_id} in a vocabulary of {vocab_size}, {outcome}. That is accepted; the package "
        "raises a `ValueError` that names both numbers."
    )


def embedding_scaled_by(scale):
    """An embedding with another factor than √d_model."""

    class Embedding(TokenEmbedding):
        def __init__(self, vocab_size, d_model, pad_id):
            super().__init__(vocab_size, d_model, pad_id)
            self.scale = scale(vocab_size, d_model)

    return Embedding


class EmbeddingWithoutPadding(TokenEmbedding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id)
        self.embedding = nn.Embedding(vocab_size, d_model)


class EmbeddingWithPaddingOnlyZeroed(EmbeddingWithoutPadding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id)
        nn.init.zeros_(self.embedding.weight[pad_id])


class EmbeddingWithPaddingZero(TokenEmbedding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id)
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=0)


class EmbeddingInitialisedOver(TokenEmbedding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)


class EmbeddingWithSizesSwapped(TokenEmbedding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id)
        self.embedding = nn.Embedding(d_model, vocab_size)


class EmbeddingLengthFirst(TokenEmbedding):
    def forward(self, tokens):
        return super().forward(tokens).transpose(0, 1)


class EmbeddingScalingItsWeight(TokenEmbedding):
    def forward(self, tokens):
        self.embedding.weight.data *= self.scale
        return self.embedding(tokens)


class EmbeddingWithoutGradient(TokenEmbedding):
    def forward(self, tokens):
        return self.embedding.weight.data[tokens] * self.scale


TOKEN_EMBEDDING = Exercise(
    answer=TokenEmbedding,
    blank=("__init__", "forward"),
    points=1,
    minutes=10,
    axes={
        "tokens": "batch length",
        "output": "batch length d_model",
        "gradient of embedding.weight": "vocab d_model",
    },
    probes=[
        Probe("two words", lambda draw: embedding_inputs(draw, 1, 2, 5, 3, pad_id=0)),
        Probe("two sentences, one with padding", lambda draw: embedding_inputs(draw, 2, 4, 7, 6, pad_id=0)),
        Probe("padding that is not token 0", lambda draw: embedding_inputs(draw, 1, 3, 6, 5, draw.integer(1, 5))),
        Probe(
            "gradients reach the words' vectors, and not that of padding",
            lambda draw: embedding_inputs(draw, 1, 4, 6, 2, draw.integer(1, 5)),
            embedding_gradients,
        ),
    ],
    properties=[
        Property("the vector of padding starts at zero", new_embedding_inputs, padding_starts_at_zero, new_embedding),
        Property(
            "a vector belongs to its token: in every place, every time",
            lambda draw: embedding_inputs(draw, 1, 4, 6, 3, pad_id=0) | {"order": draw.order(4)},
            vector_belongs_to_its_token,
            embedding_three_times,
        ),
        Property(
            "padding is a token of the vocabulary",
            lambda draw: {"arguments": {"vocab_size": 5, "d_model": 4, "pad_id": draw.integer(5, 9)}},
            wrong_pad_is_refused,
            error_of_wrong_pad,
        ),
    ],
    misconceptions=[
        Misconception(
            "unscaled",
            embedding_scaled_by(lambda vocab_size, d_model: 1.0),
            "The vectors come out as they are stored. Section 3.4 multiplies them by √d_model in each forward pass: "
            "the weight, shared with the output layer, is kept small there, and without the factor the positions that "
            "are added next would drown the words.",
        ),
        Misconception(
            "divided_by_scale",
            embedding_scaled_by(lambda vocab_size, d_model: 1 / math.sqrt(d_model)),
            "The vectors are divided by √d_model. That is attention's scale; embeddings are multiplied by it (section "
            "3.4), so that the words are not drowned by the positions.",
        ),
        Misconception(
            "scale_without_root",
            embedding_scaled_by(lambda vocab_size, d_model: float(d_model)),
            "The vectors are multiplied by d_model. Section 3.4 takes its square root: numbers that start with a "
            "deviation of 1/√d_model then come out with a deviation of 1, like the positions.",
        ),
        Misconception(
            "scale_by_vocabulary",
            embedding_scaled_by(lambda vocab_size, d_model: math.sqrt(vocab_size)),
            "The factor is the root of the vocabulary's size. Section 3.4 takes √d_model: how long a vector is depends "
            "on its width, and not on how many other words there are.",
        ),
        Misconception(
            "padding_trained",
            EmbeddingWithoutPadding,
            "`pad_id` is not used, so padding has a random vector that is trained like a word. Padding stands for "
            "nothing: `padding_idx=pad_id` lets its vector start at zero and gives it no gradient.",
        ),
        Misconception(
            "padding_only_zeroed",
            EmbeddingWithPaddingOnlyZeroed,
            "The vector of padding starts at zero, but it gets a gradient, so the first step of training moves it. "
            "`padding_idx=pad_id` does both: it sets the vector to zero and keeps the gradient away.",
        ),
        Misconception(
            "padding_is_zero",
            EmbeddingWithPaddingZero,
            "Token 0 is treated as padding, whatever `pad_id` says. With another `pad_id` a real word never learns, "
            "and padding does: hand `pad_id` on.",
        ),
        Misconception(
            "padding_overwritten",
            EmbeddingInitialisedOver,
            "The weights are initialised after `nn.Embedding` has set the vector of padding to zero, so it is random "
            "now and stays so: it gets no gradient. Leave the initialisation alone (notebook 08 does it), or set the "
            "row to zero again.",
        ),
        Misconception(
            "sizes_swapped",
            EmbeddingWithSizesSwapped,
            "The two sizes of `nn.Embedding` are swapped. It is a table with a row for each token of the vocabulary "
            "and a column for each of the d_model features: `nn.Embedding(vocab_size, d_model, …)`.",
        ),
        Misconception(
            "length_first",
            EmbeddingLengthFirst,
            "The axes of batch and length are swapped on the way out. In this course the batch comes first everywhere, "
            "as it comes in.",
        ),
        Misconception(
            "weight_scaled",
            EmbeddingScalingItsWeight,
            "The factor is multiplied into the stored weight itself, in every call: the vectors grow by √d_model each "
            "time. Multiply what comes out, and leave the table alone.",
        ),
        Misconception(
            "no_gradient",
            EmbeddingWithoutGradient,
            "No gradient reaches the table, so it never learns, whatever the numbers are: `.data`, `.detach()`, NumPy "
            "and `torch.no_grad()` cut a result off from what it was made of. Call `self.embedding(tokens)`.",
        ),
        Misconception(
            "whole_root",
            embedding_scaled_by(lambda vocab_size, d_model: int(d_model**0.5)),
            "The root is cut down to a whole number, by `math.isqrt`, `int` or `//`. For 512 it is 22.6, not 22: "
            "`math.sqrt(d_model)`.",
        ),
        Misconception(
            "power_before_division",
            embedding_scaled_by(lambda vocab_size, d_model: d_model / 2),
            "`d_model ** 1 / 2` is half of d_model, because the power comes before the division: `d_model ** 0.5`, or "
            "`math.sqrt(d_model)`.",
        ),
    ],
    hints=[
        "A table with one row for each token: which module of `torch.nn` looks rows up by their numbers? Section 3.4 "
        "says in its last sentence what is done to the rows.",
        "`nn.Embedding(vocab_size, d_model, padding_idx=…)` keeps the row of padding at zero and without gradient. The "
        "factor is `math.sqrt(d_model)`: where do you multiply, so that it happens in each call?",
        "`self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)` in `__init__`, and in `forward` "
        "`return self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)`",
    ],
)

# --- sinusoidal_encoding ---------------------------------------------------------------------------------------------


def last_rows(subject, length, d_model):
    return {"the last two rows": subject(length, d_model)[-2:]}


def error_of_odd_width(subject, length, d_model):
    return {"raised": raised(subject, length, d_model)}


def odd_width_is_refused(inputs, received):
    if received["raised"] == "ValueError":
        return None
    outcome = "no error is raised" if received["raised"] == "nothing" else f"`{received['raised']}` is raised"
    return f"d_model is {inputs['d_model']}, which is odd: {outcome}, expected is `ValueError`"


def two_lengths(subject, length, longer, d_model):
    return {"table": subject(length, d_model), "longer table": subject(longer, d_model)}


def longer_table_begins_with_shorter(inputs, received):
    if not torch.allclose(received["table"], received["longer table"][: inputs["length"]], atol=1e-5):
        return "a position is encoded differently in a longer table"
    return None


def refuse_other_shapes(inputs, table):
    """The two rules that follow speak of rows and columns, and would say something untrue of another table."""
    if table.shape != (inputs["length"], inputs["d_model"]):
        raise ValueError(f"a table of shape {tuple(table.shape)}")


def distance_decides_likeness(inputs, table):
    refuse_other_shapes(inputs, table)
    likeness = table @ table.mT  # (length, length)
    for distance in range(inputs["length"]):
        diagonal = likeness.diagonal(distance)
        if not (diagonal - diagonal[0]).abs().max() < 1e-5:
            return "two pairs of positions have the same distance, but another dot product"
    return None


def pairs_lie_on_a_circle(inputs, table):
    refuse_other_shapes(inputs, table)
    radius = table[:, 0::2] ** 2 + table[:, 1::2] ** 2
    if not (radius - 1).abs().max() < 1e-5:
        return "their squares do not sum to 1"
    return None


def encoding_with(frequencies=None, positions=None, arrange=None):
    """The encoding with other frequencies, other positions or another arrangement of the sines and cosines."""

    def encoding(length, d_model):
        if d_model % 2:
            raise ValueError(f"d_model {d_model} is odd")
        pair = torch.arange(d_model // 2).double()
        frequency = frequencies(pair, d_model) if frequencies else 10000 ** (-2 * pair / d_model)
        position = positions(length) if positions else torch.arange(length).double()
        angles = position[:, None] * frequency
        if arrange:
            return arrange(angles)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)

    return encoding


def encoding_with_a_frequency_each(length, d_model):
    if d_model % 2:
        raise ValueError(f"d_model {d_model} is odd")
    angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(d_model).double() / d_model)
    table = angles.cos()
    table[:, 0::2] = angles[:, 0::2].sin()
    return table


def encoding_that_stops_at_odd_widths(length, d_model):
    angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, d_model, 2).double() / d_model)
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)
    return table


def encoding_of_any_width(length, d_model):
    return sinusoidal_encoding(length, d_model + d_model % 2)[:, :d_model]


def encoding_with_batch_axis(length, d_model):
    return sinusoidal_encoding(length, d_model)[None]


def encoding_transposed(length, d_model):
    return sinusoidal_encoding(length, d_model).T


def encoding_as_array(length, d_model):
    return sinusoidal_encoding(length, d_model).numpy()


SINUSOIDAL_ENCODING = Exercise(
    answer=sinusoidal_encoding,
    points=3,
    minutes=25,
    returns=("encoding",),
    axes={"encoding": "length d_model", "the last two rows": "length d_model"},
    probes=[
        Probe("one sine and its cosine", lambda draw: {"length": draw.integer(3, 4), "d_model": 2}),
        Probe("two frequencies", lambda draw: {"length": draw.integer(2, 3), "d_model": 4}),
        Probe("three frequencies", lambda draw: {"length": draw.integer(3, 5), "d_model": 6}),
        Probe("many frequencies", lambda draw: {"length": draw.integer(5, 9), "d_model": 2 * draw.integer(8, 16)}),
        Probe(
            "far positions",
            lambda draw: {"length": draw.integer(400, 512), "d_model": 8},
            last_rows,
            tolerance=1e-4,  # float32 knows an angle of 500 to 3e-5 only
        ),
    ],
    properties=[
        Property(
            "an odd d_model is refused",
            lambda draw: {"length": 3, "d_model": 2 * draw.integer(1, 4) + 1},
            odd_width_is_refused,
            error_of_odd_width,
        ),
        Property(
            "a longer table begins with the shorter one",
            lambda draw: {"length": 3, "longer": draw.integer(5, 8), "d_model": 6},
            longer_table_begins_with_shorter,
            two_lengths,
        ),
        Property(
            "how alike two positions are depends on their distance only",
            lambda draw: {"length": draw.integer(5, 8), "d_model": 8},
            distance_decides_likeness,
        ),
        Property(
            "features 2i and 2i + 1 are sine and cosine of one angle",
            lambda draw: {"length": draw.integer(3, 5), "d_model": 6},
            pairs_lie_on_a_circle,
        ),
    ],
    misconceptions=[
        Misconception(
            "halves",
            encoding_with(arrange=lambda angles: torch.cat([angles.sin(), angles.cos()], dim=1)),
            "All sines stand in the first half and all cosines in the second. Section 3.5 interleaves them: sine in "
            "feature 2i, cosine in feature 2i + 1. A model could learn with either, but tables of the two kinds do not "
            "fit each other's weights.",
        ),
        Misconception(
            "cosine_first",
            encoding_with(arrange=lambda angles: torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(1)),
            "Sines and cosines have changed places. In section 3.5 the even features 2i, from 0 on, are sines and the "
            "odd ones cosines. Look at position 0: it is 0, 1, 0, 1 and so on.",
        ),
        Misconception(
            "sines_only",
            encoding_with(arrange=lambda angles: torch.stack([angles.sin(), angles.sin()], dim=-1).flatten(1)),
            "Every feature is a sine. The odd ones have to be cosines (section 3.5): from a sine alone, a position a "
            "few words further on cannot be computed by a linear map; from sine and cosine it can.",
        ),
        Misconception(
            "exponent_halved",
            encoding_with(frequencies=lambda pair, d_model: 10000 ** (-pair / d_model)),
            "The exponent is i / d_model, where i counts the pairs. Section 3.5 has 2i / d_model: wavelengths run up "
            "to 10000 · 2π, and here they end at 100 · 2π.",
        ),
        Misconception(
            "exponent_doubled",
            encoding_with(frequencies=lambda pair, d_model: 10000 ** (-4 * pair / d_model)),
            "The exponent is twice what it should be: `arange(0, d_model, 2)` already holds the 2i of section 3.5, and "
            "here it is multiplied by 2 once more. Half of the features then hardly move at all.",
        ),
        Misconception(
            "frequency_each",
            encoding_with_a_frequency_each,
            "Each feature has a frequency of its own: the cosine in 2i + 1 uses the exponent (2i + 1) / d_model. In "
            "section 3.5 the two of a pair share 2i / d_model. Only then are they sine and cosine of one angle, which "
            "a step of k positions turns.",
        ),
        Misconception(
            "frequencies_grow",
            encoding_with(frequencies=lambda pair, d_model: 10000 ** (2 * pair / d_model)),
            "The position is multiplied by 10000^(2i / d_model). Section 3.5 divides by it: the waves get longer from "
            "feature to feature. Here they get so short that neighbouring positions look like noise.",
        ),
        Misconception(
            "position_from_one",
            encoding_with(positions=lambda length: torch.arange(1, length + 1).double()),
            "Positions are counted from 1. In this course the first token stands at position 0, whose encoding is 0, "
            "1, 0, 1, …: `torch.arange(length)`.",
        ),
        Misconception(
            "position_relative",
            encoding_with(positions=lambda length: torch.arange(length).double() / length),
            "Positions are divided by the length. The third word of a short sentence then looks unlike the third word "
            "of a long one; section 3.5 takes `pos` as it is.",
        ),
        Misconception(
            "batch_axis",
            encoding_with_batch_axis,
            "The values are right, but there is an axis too many in front. Return `(length, d_model)`: adding it to "
            "`(batch, length, d_model)` stretches it over the batch by itself.",
        ),
        Misconception(
            "transposed",
            encoding_transposed,
            "Rows and columns are swapped. A row is a position and a column a feature: `(length, d_model)`.",
        ),
        Misconception(
            "numpy_array",
            encoding_as_array,
            "The values are right, but it is a NumPy array. A tensor is wanted, which is added to tensors and moves to "
            "their device: compute with `torch.arange`, `torch.sin` and `torch.cos`.",
        ),
        Misconception(
            "odd_width_crashes",
            encoding_that_stops_at_odd_widths,
            "An odd d_model is not looked for: it stops with an error of torch about shapes, which says nothing to the "
            "one who chose the number. Raise a `ValueError` that names d_model.",
        ),
        Misconception(
            "odd_width_unnoticed",
            encoding_of_any_width,
            "An odd d_model goes through, and the last sine has no cosine. Section 3.5 works in pairs: raise a "
            "`ValueError` that names d_model.",
        ),
        Misconception(
            "last_pair_slowest",
            encoding_with(frequencies=lambda pair, d_model: 10000 ** (-pair / max(d_model // 2 - 1, 1))),
            "The exponent is i / (d_model / 2 - 1), as in tensor2tensor, so that the last pair has exactly 1 / 10000. "
            "Section 3.5 has 2i / d_model: the last pair stops one step short of that.",
        ),
        Misconception(
            "one_frequency",
            encoding_with(frequencies=lambda pair, d_model: torch.ones_like(pair)),
            "All pairs turn at the same speed: the exponent is 0 for each, which `//` makes of every 2i / d_model. "
            "Divide with `/`.",
        ),
    ],
    hints=[
        "Write the formula of section 3.5 as a table: rows are positions, and each *pair* of columns has one "
        "frequency, `1 / 10000^(2i / d_model)`. How many frequencies are there?",
        "`torch.arange(length)[:, None]` is a column of positions and `torch.arange(0, d_model, 2)` holds every 2i. "
        "Multiply the column by the frequencies: which shape has that? Then sines go to the columns `0::2`, cosines to "
        "`1::2`. Do not forget the odd d_model.",
        "`angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)`, and then "
        "`encoding[:, 0::2] = angles.sin()` and `encoding[:, 1::2] = angles.cos()` in a table of zeros.",
    ],
)

# --- PositionalEncoding ----------------------------------------------------------------------------------------------


def position_inputs(draw: Draw, batch: int, length: int, d_model: int = 4, **arguments) -> dict:
    """The size of x differs in each axis, and none of its numbers is that of another place."""
    x = draw.numbers(batch, length, d_model, low=3, high=6)
    return {"arguments": {"d_model": d_model, "dropout": 0.0, "max_length": 9} | arguments, "weights": {}, "x": x}


def long_sentence_inputs(draw: Draw) -> dict:
    return position_inputs(draw, 1, draw.integer(120, 140), d_model=2) | {"arguments": {"d_model": 2}}


def longest_sentence_inputs(draw: Draw) -> dict:
    max_length = draw.integer(3, 5)
    return position_inputs(draw, 2, max_length + 1, max_length=max_length)


def longest_sentence(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    try:
        longest = module(x[:, : arguments["max_length"]].clone())
    except ValueError as error:  # as a value: its text is the student's own, and says nothing of the mistake
        longest = type(error).__name__
    try:
        longer = f"a result for {module(x).size(1)} tokens"
    except Exception as error:
        longer = type(error).__name__
    return {"with max_length tokens": longest, "with one token more": longer}


def refusal_of_a_long_sentence(subject, arguments, weights, x):
    try:
        build(subject, arguments, weights)(x)
    except ValueError as error:
        return {"message": str(error)}
    return {"message": None}


def refusal_names_both_numbers(inputs, received):
    length, max_length = inputs["x"].size(1), inputs["arguments"]["max_length"]
    message = received["message"]
    if message is None or {str(length), str(max_length)} <= set(re.findall(r"\d+", message)):
        return None
    return Remark(
        "Its `ValueError` does not name both numbers. Whoever meets it after an hour of training is helped by the "
        "sentence's length and `max_length` in the message."
    )


def position_dropout(subject, arguments, weights, x):
    module = build(subject, arguments, weights).train()
    drawn = module(x.repeat(300, 1, 1))  # 300 draws in one call
    evaluated = module.eval()(x.repeat(300, 1, 1))
    return {
        "greatest result of 300 in training": drawn.max(dim=0).values,
        "least result of 300 in training": drawn.min(dim=0).values,
        "greatest result in evaluation": evaluated.max(dim=0).values,
        "least result in evaluation": evaluated.min(dim=0).values,
    }


def trained_parameters(subject, arguments):
    return [parameter.numel() for parameter in subject(*arguments.values()).parameters() if parameter.requires_grad]


def nothing_is_trained(inputs, received):
    return "it has a parameter, which training would change" if received else None


def table_after_a_move(subject, arguments, x):
    """Which tensors stay when the module moves, and whether `forward` fetches them. Computing on "meta" is slow."""
    moves = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            moves.extend(name for name in ("to", "cuda", "type_as") if name == function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    moved = subject(*arguments.values()).to("meta")
    tables = {name: value for name, value in vars(moved).items() if isinstance(value, torch.Tensor) and value.dim()}
    stayed = [name for name, table in tables.items() if table.device.type == "cpu"]
    module = subject(*arguments.values())
    for name in stayed:
        setattr(module, name, getattr(module, name).as_subclass(Watched))
    module(x)
    return {"left behind": stayed if not moves else []}


def table_moves_with_the_model(inputs, received):
    if received["left behind"]:
        return "when the model moves to another device, its table stays where it was, and adding the two fails"
    return None


def batch_and_one_sentence(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    return {"sentences together": module(x.clone()), "each alone": [module(one[None].clone()) for one in x]}


def sentences_do_not_matter_to_each_other(inputs, received):
    if not torch.allclose(received["sentences together"], torch.cat(received["each alone"]), atol=1e-8):
        return "a sentence gets other positions in a batch than alone"
    return None


def position_gradients(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    x.requires_grad_()
    return gradients(module(x), {"x": x})


def gradient_reaches_x(inputs, received):
    gradient = received["gradient of x"]
    if gradient is None or not gradient.abs().min() > 0:
        return "no gradient reaches `x`, so the embeddings before it would never learn"
    return None


class PositionsOfTheBatch(PositionalEncoding):
    def forward(self, x):
        super().forward(x)  # for its ValueError, here and below
        return self.dropout(x + self.encoding[: x.size(0), None])


class PositionsOfTheFeatures(PositionalEncoding):
    def forward(self, x):
        return self.dropout(x + self.encoding[: x.size(-1)])


class PositionsTrained(PositionalEncoding):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.encoding = nn.Parameter(sinusoidal_encoding(max_length, d_model))


class PositionsNotRegistered(PositionalEncoding):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        nn.Module.__init__(self)
        self.dropout = nn.Dropout(dropout)
        self.encoding = sinusoidal_encoding(max_length, d_model)


class PositionsUpTo100(PositionalEncoding):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__(d_model, dropout, max_length=100)


class PositionsWithoutLimit(PositionalEncoding):
    def forward(self, x):
        return self.dropout(x + self.encoding[: x.size(1)])


class PositionsOfTheWholeTable(PositionalEncoding):
    def forward(self, x):
        return self.dropout(x + self.encoding)


class PositionsCuttingOff(PositionalEncoding):
    def forward(self, x):
        return super().forward(x[:, : self.encoding.size(0)])


class PositionsOneTooFew(PositionalEncoding):
    def forward(self, x):
        if x.size(1) >= self.encoding.size(0):
            raise ValueError("too long")
        return super().forward(x)


class PositionsAlone(PositionalEncoding):
    def forward(self, x):
        return super().forward(torch.zeros_like(x))


class PositionsMultiplied(PositionalEncoding):
    def forward(self, x):
        super().forward(x)
        return self.dropout(x * self.encoding[: x.size(1)])


class PositionsAppended(PositionalEncoding):
    def forward(self, x):
        super().forward(x)
        return self.dropout(torch.cat([x, self.encoding[: x.size(1)].expand_as(x)], dim=-1))


class PositionsOfScaledEmbeddings(PositionalEncoding):
    def forward(self, x):
        return super().forward(x * math.sqrt(x.size(-1)))


class PositionsWithoutDropout(PositionalEncoding):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__(d_model, 0.0, max_length)


class PositionsDroppedOut(PositionalEncoding):
    def forward(self, x):
        if x.size(1) > self.encoding.size(0):
            raise ValueError("too long")
        return x + self.dropout(self.encoding[: x.size(1)])


class EmbeddingsDroppedOut(PositionalEncoding):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__(d_model, 0.0, max_length)
        self.early_dropout = nn.Dropout(dropout)

    def forward(self, x):
        return super().forward(self.early_dropout(x))


class PositionsAlwaysDroppedOut(PositionalEncoding):
    def __init__(self, d_model, dropout=0.0, max_length=512):
        super().__init__(d_model, 0.0, max_length)
        self.rate = dropout

    def forward(self, x):
        return F.dropout(super().forward(x), self.rate)


class PositionsInPlace(PositionalEncoding):
    def forward(self, x):
        super().forward(x)
        x += self.encoding[: x.size(1)]
        return self.dropout(x)


class PositionsMakingMore(PositionalEncoding):
    def forward(self, x):
        length, d_model = x.shape[1:]
        return self.dropout(x + sinusoidal_encoding(max(length, self.encoding.size(0)), d_model).to(x)[:length])


POSITIONAL_ENCODING = Exercise(
    answer=PositionalEncoding,
    blank=("__init__", "forward"),
    points=2,
    minutes=20,
    axes={
        "x": "batch length d_model",
        "output": "batch length d_model",
        "with max_length tokens": "batch length d_model",
    },
    builds_on=("sinusoidal_encoding",),
    probes=[
        Probe("one sentence of two tokens", lambda draw: position_inputs(draw, 1, 2)),
        Probe("a batch of three", lambda draw: position_inputs(draw, 3, 5)),
        Probe(
            "a sentence of more than a hundred tokens, with the defaults",
            long_sentence_inputs,
            tolerance=1e-4,  # float32 knows the angle of such a position to 1e-5 only
        ),
        Probe("max_length tokens are legal, one more is a ValueError", longest_sentence_inputs, longest_sentence),
        Probe(
            "dropout acts on the sum, in training only",
            lambda draw: position_inputs(draw, 1, 2, dropout=0.25),
            position_dropout,
        ),
    ],
    properties=[
        Property(
            "nothing in it is trained",
            lambda draw: {"arguments": {"d_model": 4, "dropout": 0.0, "max_length": 5}},
            nothing_is_trained,
            trained_parameters,
        ),
        Property(
            "its table moves to another device with the model",
            lambda draw: {"arguments": {"d_model": 4, "dropout": 0.0, "max_length": 5}, "x": draw.numbers(1, 3, 4)},
            table_moves_with_the_model,
            table_after_a_move,
        ),
        Property(
            "the sentences of a batch do not matter to each other",
            lambda draw: position_inputs(draw, 3, 2),
            sentences_do_not_matter_to_each_other,
            batch_and_one_sentence,
        ),
        Property(
            "its ValueError says how long the sentence is, and may be",
            longest_sentence_inputs,
            refusal_names_both_numbers,
            refusal_of_a_long_sentence,
        ),
        Property(
            "gradients reach the embeddings",
            lambda draw: position_inputs(draw, 1, 3),
            gradient_reaches_x,
            position_gradients,
        ),
    ],
    misconceptions=[
        Misconception(
            "batch_axis",
            PositionsOfTheBatch,
            "The table is cut along the batch: each sentence gets its own number in the batch as position, and all its "
            "words get the same. That comes from examples in which the length is the first axis. Here it is the "
            "second: `self.encoding[: x.size(1)]`.",
        ),
        Misconception(
            "feature_axis",
            PositionsOfTheFeatures,
            "The table is cut to `x.size(-1)` rows, the number of features. Its rows are positions, and the length of "
            "the sentence is `x.size(1)`.",
        ),
        Misconception(
            "trained_table",
            PositionsTrained,
            "The table is a parameter, so training changes it. Section 3.5 tried learned positions as well (row E of "
            "table 3, nearly the same scores) and chose the fixed sinusoids: keep them in a buffer, with "
            "`self.register_buffer`.",
        ),
        Misconception(
            "unregistered_table",
            PositionsNotRegistered,
            "The table is a plain attribute. `model.to(device)` moves parameters and buffers only, so on a GPU the "
            'table stays behind and adding fails: `self.register_buffer("encoding", …, persistent=False)`.',
        ),
        Misconception(
            "table_of_100",
            PositionsUpTo100,
            "The table has 100 rows, whatever `max_length` says. All goes well until the first sentence of more than "
            "100 tokens comes: make it `max_length` rows long.",
        ),
        Misconception(
            "no_limit",
            PositionsWithoutLimit,
            "A sentence longer than `max_length` is not looked for, and adding stops with an error of torch about "
            "sizes that do not match. Raise a `ValueError` with both numbers, which says what is wrong and what to "
            "change.",
        ),
        Misconception(
            "whole_table",
            PositionsOfTheWholeTable,
            "The whole table is added, all its `max_length` rows, and it fits no shorter sentence. Take as many rows "
            "as the sentence has tokens: `self.encoding[: x.size(1)]`.",
        ),
        Misconception(
            "cut_off",
            PositionsCuttingOff,
            "A sentence longer than `max_length` is cut off without a word: the model then translates half of it, and "
            "nobody knows why. Raise a `ValueError` with both numbers.",
        ),
        Misconception(
            "one_too_few",
            PositionsOneTooFew,
            "A sentence of exactly `max_length` tokens is refused. There is a row for each of its tokens, so only a "
            "longer one is too long: `>` instead of `>=`.",
        ),
        Misconception(
            "positions_only",
            PositionsAlone,
            "The result holds the positions alone; the embeddings are lost. Section 3.5 adds the two: `x + …`.",
        ),
        Misconception(
            "multiplied",
            PositionsMultiplied,
            "The embeddings are multiplied by the positions. Section 3.5 adds them. A product would wipe out every "
            "feature whose sine is 0: at position 0 that is every second one.",
        ),
        Misconception(
            "appended",
            PositionsAppended,
            "The positions are appended to the embeddings, which makes the vectors twice as wide. Section 3.5 gives "
            "both the same width d_model so that they can be added.",
        ),
        Misconception(
            "scaled_again",
            PositionsOfScaledEmbeddings,
            "The embeddings are multiplied by √d_model here. `TokenEmbedding` has done that (section 3.4); doing it "
            "twice makes the positions too faint to be heard.",
        ),
        Misconception(
            "no_dropout",
            PositionsWithoutDropout,
            "There is no dropout. Section 5.4 applies it to the sums of embeddings and positions: "
            "`self.dropout(x + …)`.",
        ),
        Misconception(
            "dropout_on_positions",
            PositionsDroppedOut,
            "Dropout is applied to the positions only. Section 5.4 applies it to the sum: `self.dropout(x + …)`, with "
            "the sum inside the brackets.",
        ),
        Misconception(
            "dropout_on_embeddings",
            EmbeddingsDroppedOut,
            "Dropout is applied to the embeddings, before the positions are added. Section 5.4 applies it to the sum "
            "of the two.",
        ),
        Misconception(
            "dropout_always",
            PositionsAlwaysDroppedOut,
            "Dropout acts in evaluation too: `F.dropout` does unless it is told `training=self.training`. A "
            "translation would then change from call to call. `nn.Dropout`, made in `__init__`, knows by itself.",
        ),
        Misconception(
            "changes_x",
            PositionsInPlace,
            "The sum is right, but `x += …` writes it into the caller's tensor, and where gradients are wanted torch "
            "refuses. `x + …` makes a new one.",
        ),
        Misconception(
            "table_grows",
            PositionsMakingMore,
            "A sentence longer than `max_length` gets positions all the same: the table grows, or is made anew. The "
            "limit is there to be noticed, because no such sentence was ever trained on: raise a `ValueError` with "
            "both numbers.",
        ),
    ],
    hints=[
        "Compute the table once, in `__init__`, for `max_length` positions. It must move with the model but not be "
        "trained: what does `nn.Module` call a tensor that is no parameter?",
        '`self.register_buffer("encoding", sinusoidal_encoding(max_length, d_model), persistent=False)`. In `forward`, '
        "x has shape `(batch, length, d_model)`: how many rows of the table do you need, and what if there are not so "
        "many?",
        "First `if x.size(1) > self.encoding.size(0): raise ValueError(…)` with both numbers, then "
        "`return self.dropout(x + self.encoding[: x.size(1)])`.",
    ],
)

EXERCISES = [TOKEN_EMBEDDING, SINUSOIDAL_ENCODING, POSITIONAL_ENCODING]
