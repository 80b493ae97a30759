"""Notebook 03, masks: which positions may attend to which (sections 3.1 and 3.2.3)."""

import torch
from torch import Tensor

from transformer_lab.exercises.exercise import Exercise, Probe, Property
from transformer_lab.exercises.rules import unless
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import causal_mask, padding_mask, target_mask


def sentences(sampler: InputSampler, batch: int, length: int, pad_id: int = 0) -> dict:
    """Return sentences, all but the first padded on the right. Token 1 is a word, and token 0 can be a word."""
    tokens = sampler.integers(batch, length, low=0, high=9)
    tokens[tokens == pad_id] = 10
    tokens[0, 0] = 0 if pad_id else 7
    tokens[0, 1] = 1
    for row in range(1, batch):
        tokens[row, sampler.integer(1, length - 1) :] = pad_id
    return {"tokens": tokens, "pad_id": pad_id}


def some_sentences(sampler: InputSampler) -> dict:
    return sentences(sampler, sampler.integer(4, 5), sampler.integer(6, 8))


def padded_on_the_left(sampler: InputSampler) -> dict:
    inputs = some_sentences(sampler)
    return inputs | {"tokens": inputs["tokens"].flip(1)}


PROBES_OF_TOKENS = [
    Probe("sentences of different lengths", some_sentences),
    Probe(
        "another pad id, and 0 is a word",
        lambda sampler: sentences(sampler, sampler.integer(4, 5), sampler.integer(6, 8), pad_id=sampler.integer(3, 6)),
    ),
    Probe("padding on the left", padded_on_the_left),
]


def is_boolean(mask: Tensor, shape: tuple[int, ...]) -> str | None:
    if mask.dtype != torch.bool:
        return "the mask isn't boolean, so `~mask` and `&` would fail or do something else"
    return None if tuple(mask.shape) == shape else f"its shape isn't {shape}"


# --- padding_mask ----------------------------------------------------------------------------------------------------


def scores_under_mask(subject, tokens, pad_id, scores):
    mask = subject(tokens, pad_id)
    return scores.masked_fill(~mask, float("-inf")).softmax(-1)


def padding_gets_no_weight(inputs, weights):
    padding = (inputs["tokens"] == inputs["pad_id"])[:, None, None, :].expand_as(weights)
    if weights.isnan().any():
        return "a whole row of scores is hidden, so its softmax is NaN: hide keys, never queries"
    if weights[padding].abs().max() > 0:
        return "padding gets a weight above 0"
    if (weights[~padding] == 0).any():
        return "a real word gets a weight of 0"
    return None


PADDING_MASK = Exercise(
    answer=padding_mask,
    points=1,
    minutes=10,
    returns=("mask",),
    axes={"tokens": "batch length", "mask": "batch heads query key", "scores": "batch heads query key"},
    probes=PROBES_OF_TOKENS,
    properties=[
        Property(
            "the mask is boolean, with shape (batch, 1, 1, length)",
            lambda sampler: sentences(sampler, 3, 4),
            lambda inputs, mask: is_boolean(mask, (3, 1, 1, 4)),
        ),
        Property(
            "padding gets no weight, and real words keep theirs",
            lambda sampler: sentences(sampler, 3, 4) | {"scores": sampler.numbers(3, 2, 4, 4)},
            padding_gets_no_weight,
            scores_under_mask,
        ),
    ],
)

# --- causal_mask -----------------------------------------------------------------------------------------------------


def masks_of_several_lengths(subject, lengths):
    return {f"mask for {length} words": subject(length) for length in lengths}


def scores_under_causal_mask(subject, scores):
    return scores.masked_fill(~subject(scores.size(-1)), float("-inf")).softmax(-1)


def causal_scores(sampler: InputSampler) -> dict:
    length = sampler.integer(8, 40)
    return {"scores": sampler.numbers(1, 1, length, length)}


def visible_keys(subject, length, queries):
    mask = subject(length)
    return {f"keys that query {query} sees": int((mask[..., query, :] != 0).sum()) for query in queries}


def long_sentence(sampler: InputSampler) -> dict:
    length = sampler.integer(20, 60)
    return {"length": length, "queries": sampler.order(length)[:4]}


def device_reaches_torch(subject, length):
    """Return whether any torch function is called with the device "meta". Such calls run on the CPU instead."""
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        seen = False

        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*map(self.on_cpu, args), **{name: self.on_cpu(arg) for name, arg in (kwargs or {}).items()})

        def on_cpu(self, argument):
            if not isinstance(argument, torch.device | str) or str(argument) != "meta":
                return argument
            self.seen = True
            return torch.device("cpu")

    device = torch.device("meta")
    with Watch() as watch:
        subject(length, device)
    return watch.seen


def shape_of_the_mask(subject, length):
    return list(subject(length).shape)


def is_as_large_as_asked(inputs, received):
    length = inputs["length"]
    return None if received == [1, 1, length, length] else f"for {length} words, its shape is {tuple(received)}"


CAUSAL_MASK = Exercise(
    answer=causal_mask,
    points=1,
    minutes=10,
    returns=("mask",),
    axes={f"mask for {length} words": "batch heads query key" for length in range(3, 41)}
    | {"mask": "batch heads query key", "scores": "batch heads query key"},
    banned=("torch.nn.Transformer.generate_square_subsequent_mask",),
    probes=[
        Probe(
            "sentences of different lengths",
            lambda sampler: {"lengths": [sampler.integer(3, 6), sampler.integer(7, 15), sampler.integer(16, 40)]},
            masks_of_several_lengths,
        ),
        Probe("in a long sentence, query i sees i + 1 keys", long_sentence, visible_keys),
        Probe("the softmax of masked scores", causal_scores, scores_under_causal_mask),
    ],
    properties=[
        Property(
            "the mask is boolean, with shape (1, 1, length, length)",
            lambda sampler: {"length": sampler.integer(3, 6)},
            lambda inputs, mask: is_boolean(mask, (1, 1, inputs["length"], inputs["length"])),
        ),
        Property(
            "a mask for over 500 words has the right size",
            lambda sampler: {"length": sampler.integer(515, 550)},
            is_as_large_as_asked,
            shape_of_the_mask,
        ),
        Property(
            "the mask is created on the device it's asked for",
            lambda sampler: {"length": 3},
            unless(
                lambda inputs, received: received,
                "`device` isn't used: on a GPU, the mask and the scores would be on different devices",
            ),
            device_reaches_torch,
        ),
    ],
)

# --- target_mask -----------------------------------------------------------------------------------------------------


def made_on_the_cpu(subject, tokens, pad_id):
    """Pretend that the tokens are on another device, and return whether a new tensor is left on the CPU."""
    from torch.overrides import TorchFunctionMode

    makers = {torch.ones, torch.zeros, torch.full, torch.empty, torch.eye, torch.arange, torch.tensor}

    class Watch(TorchFunctionMode):
        made = followed = False

        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function == torch.Tensor.device.__get__:
                return torch.device("meta")
            named = kwargs or {}
            self.made |= function in makers and str(named.get("device")) != "meta"
            self.followed |= function in (torch.Tensor.to, torch.Tensor.type_as)
            return function(*map(self.on_cpu, args), **{name: self.on_cpu(arg) for name, arg in named.items()})

        def on_cpu(self, argument):
            is_device = isinstance(argument, torch.device | str) and str(argument) == "meta"
            return torch.device("cpu") if is_device else argument

    with Watch() as watch:
        subject(tokens, pad_id)
    return watch.made and not watch.followed


TARGET_MASK = Exercise(
    answer=target_mask,
    points=1,
    minutes=5,
    returns=("mask",),
    axes={"tokens": "batch length", "mask": "batch heads query key"},
    builds_on=("padding_mask", "causal_mask"),
    banned=("torch.nn.Transformer.generate_square_subsequent_mask",),
    probes=PROBES_OF_TOKENS,
    properties=[
        Property(
            "the mask is boolean, with shape (batch, 1, length, length)",
            lambda sampler: sentences(sampler, 3, 4),
            lambda inputs, mask: is_boolean(mask, (3, 1, 4, 4)),
        ),
        Property(
            "nothing is created on a device other than the tokens'",
            lambda sampler: sentences(sampler, 2, 4),
            unless(
                lambda inputs, received: not received,
                "a mask is created on the CPU even if the tokens are on another device: on a GPU, that's an error",
            ),
            made_on_the_cpu,
        ),
    ],
)

EXERCISES = [PADDING_MASK, CAUSAL_MASK, TARGET_MASK]
