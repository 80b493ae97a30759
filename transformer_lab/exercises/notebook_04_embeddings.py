"""Notebook 04, embeddings and positions: sections 3.4 and 3.5."""

import re
from collections.abc import Callable

import torch

from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import (
    build,
    call_in_evaluation,
    call_new_module,
    exception_of_call,
    gradients,
    gradients_of_module,
    raised,
)
from transformer_lab.exercises.notebook_01_attention import without
from transformer_lab.exercises.rules import REFUSED, raises, refusal, unless
from transformer_lab.exercises.sampling import InputSampler, sampled_until
from transformer_lab.model import PositionalEncoding, TokenEmbedding, sinusoidal_encoding

# --- TokenEmbedding --------------------------------------------------------------------------------------------------


def embedding_inputs(
    sampler: InputSampler, batch: int, length: int, vocab_size: int, d_model: int, pad_id: int
) -> dict:
    """Return sentences that start with the vocabulary's first word. The first sentence has padding if there is room."""
    weights = sampler.weights(TokenEmbedding(vocab_size, d_model, pad_id))
    weights["embedding.weight"][weights["embedding.weight"] == 0] = 0.3
    weights["embedding.weight"][pad_id] = 0
    first, *others = [token for token in range(vocab_size) if token != pad_id]
    tokens = torch.tensor([[first, *sampler.shuffled(others)][:length] for _ in range(batch)])
    if length > 2:
        tokens[0, -1] = pad_id
    return {
        "arguments": {"vocab_size": vocab_size, "d_model": d_model, "pad_id": pad_id},
        "weights": weights,
        "tokens": tokens,
    }


def embedding_gradients(subject, arguments, weights, tokens):
    module = build(subject, arguments, weights)
    return gradients(module(tokens), {"embedding.weight": module.embedding.weight})


def errors_of_right_pads(subject, arguments):
    vocab_size, d_model = arguments.values()
    return [raised(subject, vocab_size, d_model, pad_id) for pad_id in range(vocab_size)]


def right_pads_are_accepted(inputs, received):
    rejected = [pad_id for pad_id, error in enumerate(received) if error in REFUSED]
    if not rejected:
        return None
    vocab_size = inputs["arguments"]["vocab_size"]
    return f"`pad_id` {rejected[0]} raises a `ValueError`, but it's a valid token in a vocabulary of size {vocab_size}"


def errors_of_wrong_pads(subject, arguments, pad_ids):
    return {str(pad_id): raised(subject, *arguments.values(), pad_id) for pad_id in pad_ids}


def wrong_pads_are_refused(inputs, received):
    vocab_size, _ = inputs["arguments"].values()
    remarks = [
        refusal(error, f"Constructing the module with `pad_id` {pad_id} and a vocabulary of {vocab_size} tokens")
        for pad_id, error in received.items()
    ]
    return next(filter(None, remarks), None)


TOKEN_EMBEDDING = Exercise(
    answer=TokenEmbedding,
    blank=("__init__", "forward"),
    points=1,
    minutes=10,
    axes={"tokens": "batch length", "output": "batch length d_model", "gradient of embedding.weight": "vocab d_model"},
    probes=[
        Probe("two words", lambda sampler: embedding_inputs(sampler, 1, 2, 5, 3, pad_id=0)),
        Probe("two sentences, one with padding", lambda sampler: embedding_inputs(sampler, 2, 4, 7, 6, pad_id=0)),
        Probe("a `pad_id` other than 0", lambda sampler: embedding_inputs(sampler, 1, 3, 6, 5, sampler.integer(1, 4))),
        Probe(
            "gradients reach the vectors of words but not the vector of padding",
            lambda sampler: embedding_inputs(sampler, 2, 6, 7, 2, sampler.integer(2, 5)),
            embedding_gradients,
        ),
    ],
    properties=[
        Property(
            "the vector of padding starts at zero",
            lambda sampler: without(embedding_inputs(sampler, 1, 3, 6, 2, sampler.integer(2, 4)), "weights"),
            unless(
                lambda inputs, vectors: vectors[inputs["tokens"] == inputs["arguments"]["pad_id"]].abs().max() == 0,
                "in a new embedding, the vector of `pad_id` isn't zero",
            ),
            call_new_module,
        ),
        Property(
            "any token of the vocabulary can be `pad_id`",
            lambda sampler: {"arguments": {"vocab_size": sampler.integer(3, 6), "d_model": 4}},
            right_pads_are_accepted,
            errors_of_right_pads,
        ),
        Property(
            "tried: a `pad_id` outside the vocabulary",
            lambda sampler: {
                "arguments": {"vocab_size": 5, "d_model": 4},
                "pad_ids": [sampler.integer(6, 9), 5, -sampler.integer(1, 5)],
            },
            wrong_pads_are_refused,
            errors_of_wrong_pads,
        ),
    ],
)

# --- sinusoidal_encoding ---------------------------------------------------------------------------------------------


def table_size(length: tuple[int, int], frequencies: tuple[int, int]) -> Callable[[InputSampler], dict]:
    """Sample the length and the number of frequencies between these limits.

    The length differs from both sizes of the other axis. Otherwise, a table with its axes mixed up would fit by chance.
    """
    return sampled_until(
        lambda length, d_model: length not in (d_model // 2, d_model),
        lambda sampler: {"length": sampler.integer(*length), "d_model": 2 * sampler.integer(*frequencies)},
    )


def last_rows(subject, length, d_model):
    return {"the last two rows": subject(length, d_model)[-2:]}


def odd_width_is_refused(inputs, received):
    if received in REFUSED:
        return None
    return Remark(
        f"An odd `d_model` ({inputs['d_model']}) {raises(received)}. With an odd width, the last sine has no cosine, "
        "so raise a `ValueError` that names `d_model`."
    )


def dtype_with_float32_as_default(subject, length, d_model):
    torch.set_default_dtype(torch.float32)
    try:
        table = subject(length, d_model)
    finally:
        torch.set_default_dtype(torch.float64)
    return str(table.dtype) if isinstance(table, torch.Tensor) else None


def has_the_default_dtype(inputs, received):
    name = received.removeprefix("torch.")  # None, for a result that isn't a tensor, counts as the wrong kind of value
    return None if name == "float32" else f"the table is {name} although torch's default dtype is float32"


SINUSOIDAL_ENCODING = Exercise(
    answer=sinusoidal_encoding,
    points=3,
    minutes=25,
    returns=("encoding",),
    axes={"encoding": "length d_model", "the last two rows": "length d_model"},
    probes=[
        Probe("one sine and its cosine", lambda sampler: {"length": sampler.integer(3, 60), "d_model": 2}),
        Probe("two or three frequencies", table_size((3, 12), (2, 3))),
        Probe("four to seven frequencies", table_size((3, 9), (4, 7))),
        Probe("many frequencies", table_size((5, 9), (8, 24))),
        Probe(
            "positions beyond 400",
            table_size((410, 512), (3, 6)),
            last_rows,
            tolerance=1e-4,  # in float32, an angle of 500 is only accurate to 3e-5
        ),
    ],
    properties=[
        Property(
            "the table has torch's default dtype",
            table_size((2, 5), (2, 4)),
            has_the_default_dtype,
            dtype_with_float32_as_default,
        ),
        Property(
            "tried: an odd `d_model`",
            lambda sampler: {"length": 3, "d_model": 2 * sampler.integer(1, 4) + 1},
            odd_width_is_refused,
            exception_of_call,
        ),
    ],
)

# --- PositionalEncoding ----------------------------------------------------------------------------------------------


def position_inputs(sampler: InputSampler, batch: int, length: int, d_model: int = 4, **arguments) -> dict:
    """Return an `x` with numbers too large to be mistaken for encodings."""
    x = sampler.numbers(batch, length, d_model, low=3, high=6)
    return {"arguments": {"d_model": d_model, "dropout": 0.0, "max_length": 9} | arguments, "weights": {}, "x": x}


def longest_sentence_inputs(
    sampler: InputSampler, shortest: int, longest: int, batch: int, d_model: int, more: int = 0
) -> dict:
    """Return sentences with `max_length` plus `more` tokens."""
    max_length = sampler.integer(shortest, longest)
    return position_inputs(sampler, batch, max_length + more, d_model, max_length=max_length)


def too_long_a_sentence(subject, arguments, weights, x):
    module = build(subject, arguments, weights)
    try:
        return {"raised": "nothing", "message": "", "output": module(x)}
    except Exception as error:
        return {"raised": type(error).__name__, "message": str(error), "output": None}


def too_long_is_noticed(inputs, received):
    length, max_length = inputs["x"].size(1), inputs["arguments"]["max_length"]
    if received["raised"] == "nothing":
        right = inputs["x"] + sinusoidal_encoding(length, inputs["arguments"]["d_model"])
        if received["output"].shape == right[:, :max_length].shape:
            return f"with `max_length` {max_length}, a sentence of {length} tokens is silently truncated"
        if right.shape != received["output"].shape or not torch.allclose(right, received["output"], atol=1e-4):
            return f"with `max_length` {max_length}, a sentence of {length} tokens silently gets a wrong result"
    problem = refusal(received["raised"], f"With `max_length` {max_length}, a sentence of {length} tokens")
    if problem or {str(length), str(max_length)} <= set(re.findall(r"\d+", received["message"])):
        return problem
    return Remark(
        "Your `ValueError` doesn't name both numbers. With the sentence's length and `max_length` in the message, "
        "it's clear what to change, even an hour into a training run."
    )


def errors_of_right_sizes(subject, arguments, length, batch):
    module, d_model = subject(*arguments.values()), arguments["d_model"]
    return {
        f"a sentence of {length} tokens": raised(module, torch.ones(1, length, d_model)),
        f"a batch of {batch} sentences of one token": raised(module, torch.ones(batch, 1, d_model)),
    }


def right_sizes_are_accepted(inputs, received):
    refused = " and ".join(given for given, error in received.items() if error in REFUSED)
    says = f"with `max_length` {inputs['arguments']['max_length']}, a `ValueError` is raised for {refused}"
    return says if refused else None


def longest_sentence_and_largest_batch(sampler: InputSampler) -> dict:
    max_length = sampler.integer(3, 5)
    arguments = {"d_model": 6, "dropout": 0.0, "max_length": max_length}
    return {"arguments": arguments, "length": max_length, "batch": max_length + 1}


def position_dropout(subject, arguments, weights, x):
    module = build(subject, arguments, weights).train()
    drawn = module(x.repeat(300, 1, 1))  # one call makes 300 samples
    evaluated = module.eval()(x.repeat(300, 1, 1))
    return {
        "largest of 300 results in training": drawn.max(dim=0).values,
        "smallest of 300 results in training": drawn.min(dim=0).values,
        "smallest of those that aren't 0": drawn.where(drawn != 0, torch.inf).min(dim=0).values,
        "largest result in evaluation": evaluated.max(dim=0).values,
        "smallest result in evaluation": evaluated.min(dim=0).values,
    }


def trained_parameters(subject, arguments):
    return [parameter.numel() for parameter in subject(*arguments.values()).parameters() if parameter.requires_grad]


def table_after_a_move(subject, arguments, x):
    """Find tensors that are not moved with the module or in `forward`.

    Run `forward` on the CPU, because "meta" is slow.
    """
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


POSITIONAL_ENCODING = Exercise(
    answer=PositionalEncoding,
    blank=("__init__", "forward"),
    points=2,
    minutes=20,
    axes={"x": "batch length d_model", "output": "batch length d_model"},
    builds_on=("sinusoidal_encoding",),
    call=call_in_evaluation,
    probes=[
        Probe("one sentence of two tokens", lambda sampler: position_inputs(sampler, 1, 2)),
        Probe("a batch of three", lambda sampler: position_inputs(sampler, 3, 5)),
        Probe(
            "a sentence of exactly `max_length` tokens", lambda sampler: longest_sentence_inputs(sampler, 4, 5, 2, 4)
        ),
        Probe(
            "a sentence of more than a hundred tokens, with the defaults",
            lambda sampler: (
                position_inputs(sampler, 1, sampler.integer(120, 140), d_model=2) | {"arguments": {"d_model": 2}}
            ),
            tolerance=1e-4,  # in float32, the angle of such a position is only accurate to 1e-5
        ),
        Probe(
            "a `max_length` above the default of 512",
            lambda sampler: longest_sentence_inputs(sampler, 520, 600, 1, 2),
            tolerance=1e-4,
        ),
        Probe(
            "dropout acts on the sum, in training only",
            lambda sampler: position_inputs(sampler, 1, 2, dropout=0.25, max_length=400),
            position_dropout,
            is_example=False,
        ),
    ],
    properties=[
        Property(
            "it has no trainable parameters",
            lambda sampler: {"arguments": {"d_model": 4, "dropout": 0.0, "max_length": 5}},
            unless(lambda inputs, received: not received, "it has a parameter, which training would change"),
            trained_parameters,
        ),
        Property(
            "its table moves to another device with the model",
            lambda sampler: {
                "arguments": {"d_model": 4, "dropout": 0.0, "max_length": 5},
                "x": sampler.numbers(1, 3, 4),
            },
            unless(
                lambda inputs, received: not received["left behind"],
                "when the model moves to another device, the table is left behind, and adding it to `x` fails",
            ),
            table_after_a_move,
        ),
        Property(
            "`max_length` tokens are allowed, and any number of sentences",
            longest_sentence_and_largest_batch,
            right_sizes_are_accepted,
            errors_of_right_sizes,
        ),
        Property(
            "a sentence longer than `max_length` doesn't silently get a wrong result",
            lambda sampler: longest_sentence_inputs(sampler, 3, 5, 2, 4, more=1),
            too_long_is_noticed,
            too_long_a_sentence,
        ),
        Property(
            "gradients reach the embeddings",
            lambda sampler: position_inputs(sampler, 1, 3),
            unless(
                lambda inputs, received: (
                    received["gradient of x"] is not None and received["gradient of x"].abs().min() > 0
                ),
                "no gradient reaches `x`, so the embeddings before it would never learn",
            ),
            gradients_of_module,
        ),
    ],
)

EXERCISES = [TOKEN_EMBEDDING, SINUSOIDAL_ENCODING, POSITIONAL_ENCODING]
