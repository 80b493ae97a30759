"""Notebook 03, masks: who may look at whom (sections 3.1 and 3.2.3)."""

import torch
from torch import Tensor

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.model import causal_mask, padding_mask, target_mask


def sentences(draw: Draw, batch: int, length: int, pad_id: int = 0) -> dict:
    """Sentences of different lengths, the first one full, the others padded on the right. 0 may be a word."""
    tokens = draw.integers(batch, length, low=0, high=9)
    tokens[tokens == pad_id] = 10
    tokens[0, 0] = 0 if pad_id else 7
    for row in range(batch if batch == 1 else 1, batch):
        tokens[row, draw.integer(1, length - 1) :] = pad_id
    if batch == 1:
        tokens[0, draw.integer(2, length - 1) :] = pad_id
    return {"tokens": tokens, "pad_id": pad_id}


def is_boolean(mask: Tensor, shape: tuple[int, ...]) -> str | None:
    if mask.dtype != torch.bool:
        return "the mask is not boolean: `~mask` and `&` would do something else, or nothing at all"
    return None if tuple(mask.shape) == shape else f"its shape is not {shape}"


def numbers_of(mask: Tensor) -> Tensor:
    """The mask as 1.0 (may attend) and 0.0."""
    return mask.to(torch.float64)


# --- padding_mask ----------------------------------------------------------------------------------------------------


def padded_on_the_left(draw: Draw) -> dict:
    inputs = sentences(draw, 3, 4)
    return inputs | {"tokens": inputs["tokens"].flip(1)}


def padding_mask_is_boolean(inputs, mask):
    batch, length = inputs["tokens"].shape
    return is_boolean(mask, (batch, 1, 1, length))


def scores_under_mask(subject, tokens, pad_id, scores):
    mask = subject(tokens, pad_id)
    return scores.masked_fill(~mask, float("-inf")).softmax(-1)


def padding_inputs_with_scores(draw: Draw) -> dict:
    return sentences(draw, 3, 4) | {"scores": draw.numbers(3, 2, 4, 4)}


def padding_gets_no_weight(inputs, weights):
    padding = (inputs["tokens"] == inputs["pad_id"])[:, None, None, :].expand_as(weights)
    if weights.isnan().any():
        return "a whole row of scores is hidden, and its softmax is NaN: only keys are to be hidden, never queries"
    if weights[padding].abs().max() > 0:
        return "padding gets weight"
    if (weights[~padding] == 0).any():
        return "a real word gets no weight"
    return None


def padding_mask_of_one_sentence(tokens, pad_id):
    return (tokens != pad_id)[None, None]


def padding_mask_stretched(tokens, pad_id):
    return (tokens != pad_id)[:, None, None, :].expand(-1, -1, tokens.size(1), -1)


def padding_mask_inverted(tokens, pad_id):
    return (tokens == pad_id)[:, None, None, :]


def padding_mask_of_two_axes(tokens, pad_id):
    return tokens != pad_id


def padding_mask_of_three_axes(tokens, pad_id):
    return (tokens != pad_id)[:, None, :]


def padding_mask_of_queries(tokens, pad_id):
    return (tokens != pad_id)[:, None, :, None]


def padding_mask_of_pairs(tokens, pad_id):
    real = tokens != pad_id
    return real[:, None, :, None] & real[:, None, None, :]


def padding_mask_for_zero(tokens, pad_id):
    return (tokens != 0)[:, None, None, :]


def padding_mask_of_greater(tokens, pad_id):
    return (tokens > pad_id)[:, None, None, :]


def padding_mask_of_floats(tokens, pad_id):
    return (tokens != pad_id)[:, None, None, :].float()


def padding_mask_of_integers(tokens, pad_id):
    return (tokens != pad_id)[:, None, None, :].long()


def padding_mask_to_add(tokens, pad_id):
    return torch.zeros(tokens.shape).masked_fill(tokens == pad_id, float("-inf"))[:, None, None, :]


def padding_mask_up_to_the_first(tokens, pad_id):
    first = (tokens == pad_id).int().argmax(dim=1, keepdim=True)
    return (torch.arange(tokens.size(1), device=tokens.device) < first)[:, None, None, :]


def padding_mask_by_count(tokens, pad_id):
    words = (tokens != pad_id).sum(dim=1, keepdim=True)
    return (torch.arange(tokens.size(1), device=tokens.device) < words)[:, None, None, :]


PADDING_MASK = Exercise(
    answer=padding_mask,
    points=1,
    minutes=10,
    returns=("mask",),
    axes={"tokens": "batch length", "mask": "batch 1 1 key", "scores": "batch heads query key"},
    probes=[
        Probe("two sentences, the second one padded", lambda draw: sentences(draw, 2, 5)),
        Probe("another pad id, and 0 is a word", lambda draw: sentences(draw, 3, 5, pad_id=draw.integer(3, 6))),
        Probe("padding on the left", padded_on_the_left),
    ],
    properties=[
        Property(
            "it is boolean, of shape (batch, 1, 1, length)", lambda draw: sentences(draw, 3, 4), padding_mask_is_boolean
        ),
        Property(
            "padding gets no weight, and every query keeps some",
            padding_inputs_with_scores,
            padding_gets_no_weight,
            scores_under_mask,
        ),
    ],
    misconceptions=[
        Misconception(
            "inverted",
            padding_mask_inverted,
            "The mask is True where there is padding. In this course True means “may attend”, as in torch's "
            "`scaled_dot_product_attention`; `nn.Transformer`'s `key_padding_mask` is the other way round. Use `!=`.",
        ),
        Misconception(
            "two_axes",
            padding_mask_of_two_axes,
            "The mask has the shape of the tokens. It has to stretch over `(batch, heads, query, key)`: without axes "
            "for heads and queries, torch lines its batch up with the queries. Add two axes of size 1 in the "
            "middle.",
        ),
        Misconception(
            "three_axes",
            padding_mask_of_three_axes,
            "One axis is missing. With three axes the batch is lined up with the heads: use `(batch, 1, 1, length)`, "
            "one axis of size 1 for the heads and one for the queries.",
        ),
        Misconception(
            "axes_in_front",
            padding_mask_of_one_sentence,
            "The two axes of size 1 stand before the batch, so the sentences are lined up with the queries. The batch "
            "stays in front, and the axes for heads and queries come behind it: `[:, None, None, :]`.",
        ),
        Misconception(
            "stretched",
            padding_mask_stretched,
            "The mask is stretched over the queries. That is not wrong, and not needed: torch stretches an axis of "
            "size 1 by itself, and without it the mask is smaller. `(batch, 1, 1, length)` is asked for.",
        ),
        Misconception(
            "on_the_queries",
            padding_mask_of_queries,
            "The words are on the queries' axis. Then the rows of padding are hidden, whose output nobody reads, and "
            "padding itself is looked at as before. What is hidden are keys, which are the last axis: `[:, None, "
            "None, :]`.",
        ),
        Misconception(
            "queries_and_keys",
            padding_mask_of_pairs,
            "The queries of padding are hidden too. Those rows have no allowed key at all then, and their softmax is "
            "NaN or useless. Hide keys alone: what comes out at padding is never read.",
        ),
        Misconception(
            "pad_id_zero",
            padding_mask_for_zero,
            "The mask compares with 0, whatever `pad_id` says. With another pad id padding is seen, and the word 0 "
            "is hidden.",
        ),
        Misconception(
            "greater_than_pad_id",
            padding_mask_of_greater,
            "The mask is `tokens > pad_id`, which is right as long as padding has the smallest id. Words with "
            "smaller ids are hidden otherwise: use `!=`.",
        ),
        Misconception(
            "floats",
            padding_mask_of_floats,
            "The mask holds 1.0 and 0.0 in place of True and False. `~` and `&` fail on floats, and added to the "
            "scores they hide nothing. The comparison is boolean already: leave `.float()` out.",
        ),
        Misconception(
            "whole_numbers",
            padding_mask_of_integers,
            "The mask holds 1 and 0 in place of True and False. `~1` is -2, not 0, so `masked_fill(~mask, …)` goes "
            "wrong. The comparison is boolean already: leave `.int()` or `.long()` out.",
        ),
        Misconception(
            "to_be_added",
            padding_mask_to_add,
            "This is a mask to be added to the scores, 0 and minus infinity. Here a mask says who may be seen, True or "
            "False; what that does to scores is the business of attention.",
        ),
        Misconception(
            "up_to_the_first_padding",
            padding_mask_up_to_the_first,
            "Each sentence is cut at its first padding, which `argmax` finds at 0 where there is none: a full "
            "sentence is hidden from end to end, and so is one with padding in front. Ask each token by itself: "
            "`tokens != pad_id`.",
        ),
        Misconception(
            "counted_words",
            padding_mask_by_count,
            "The words are counted, and as many places from the left are seen. That is right as long as padding "
            "stands on the right. Ask each token by itself: `tokens != pad_id`.",
        ),
    ],
    hints=[
        "Which tokens may be looked at? One comparison says it for all of them at once.",
        "The comparison gives `(batch, length)`. The scores are `(batch, heads, query, key)`: at which places do "
        "axes of size 1 have to go, so that the words are the keys?",
        "`tokens != pad_id`, and `[:, None, None, :]` puts the two axes in.",
    ],
)

# --- causal_mask -----------------------------------------------------------------------------------------------------


def scores_under_causal_mask(subject, scores):
    return scores.masked_fill(~subject(scores.size(-1)), float("-inf")).softmax(-1)


def device_reaches_torch(subject, length):
    """Hand in a device that no tensor should really lie on, and see whether any function of torch is given it."""
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


def mask_is_on_that_device(inputs, received):
    return None if received else "`device` is not used: on a GPU, the mask and the scores would lie on two devices"


def causal_mask_is_boolean(inputs, mask):
    return is_boolean(mask, (1, 1, inputs["length"], inputs["length"]))


def shape_of_the_mask(subject, length):
    return list(subject(length).shape)


def as_long_as_asked_for(inputs, received):
    length = inputs["length"]
    return None if received == [1, 1, length, length] else f"its shape for {length} words is {tuple(received)}"


def causal_mask_without_itself(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).tril(-1)[None, None]


def causal_mask_inverted(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)[None, None]


def causal_mask_transposed(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).triu()[None, None]


def causal_mask_seeing_the_next(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).tril(1)[None, None]


def causal_mask_of_two_axes(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def causal_mask_of_floats(length, device=None):
    return torch.ones(length, length, device=device).tril()[None, None]


def causal_mask_to_add(length, device=None):
    return torch.full((length, length), float("-inf"), device=device).triu(1)[None, None]


def causal_mask_of_three_axes(length, device=None):
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None]


def causal_mask_of_integers(length, device=None):
    return torch.ones(length, length, dtype=torch.long, device=device).tril()[None, None]


def causal_mask_on_the_cpu(length, device=None):
    return causal_mask(length)


def causal_mask_out_of_a_table(length, device=None):
    return causal_mask(512, device)[..., :length, :length]


CAUSAL_MASK = Exercise(
    answer=causal_mask,
    points=1,
    minutes=10,
    returns=("mask",),
    axes={"mask": "1 1 query key", "scores": "batch heads query key"},
    banned=("torch.nn.Transformer.generate_square_subsequent_mask",),
    probes=[
        Probe("a short sentence", lambda draw: {"length": draw.integer(3, 4)}),
        Probe("a longer sentence", lambda draw: {"length": draw.integer(5, 8)}),
        Probe(
            "what is left of the attention weights",
            lambda draw: {"scores": draw.numbers(2, 3, 4, 4)},
            scores_under_causal_mask,
        ),
    ],
    properties=[
        Property(
            "it is boolean, of shape (1, 1, length, length)",
            lambda draw: {"length": draw.integer(3, 6)},
            causal_mask_is_boolean,
        ),
        Property(
            "it is as long as is asked for",
            lambda draw: {"length": draw.integer(1025, 1100)},
            as_long_as_asked_for,
            shape_of_the_mask,
        ),
        Property(
            "it is made on the device that is asked for",
            lambda draw: {"length": 3},
            mask_is_on_that_device,
            device_reaches_torch,
        ),
        Property(
            "a single word sees itself",
            lambda draw: {"length": 1},
            lambda inputs, mask: None if numbers_of(mask).flatten().tolist() == [1.0] else "it does not",
        ),
    ],
    misconceptions=[
        Misconception(
            "not_itself",
            causal_mask_without_itself,
            "A position may not look at itself here, and the first may look at nothing: its softmax is NaN. Section "
            "3.2.3 hides what comes after; position i sees 0 to i, itself included: `tril()` without a shift.",
        ),
        Misconception(
            "inverted",
            causal_mask_inverted,
            "The mask is True for the future. Tutorials for `nn.Transformer` mark what is hidden; in this course "
            "True means “may attend”, so the past and the position itself are True: `tril()`.",
        ),
        Misconception(
            "transposed",
            causal_mask_transposed,
            "The triangle is the wrong one: every position sees itself and the future. Rows are queries and columns "
            "are keys, so row i is True up to column i: `tril()`, the lower one.",
        ),
        Misconception(
            "sees_the_next",
            causal_mask_seeing_the_next,
            "The triangle is shifted by one, so that every position sees the next word, which is just what it has to "
            "predict. The input is shifted already (section 3.1: “offset by one position”): `tril()` without a "
            "shift.",
        ),
        Misconception(
            "two_axes",
            causal_mask_of_two_axes,
            "The axes for batch and heads are missing: `[None, None]` in front, so that it goes together with padding "
            "masks of `(batch, 1, 1, length)` in plain sight.",
        ),
        Misconception(
            "three_axes",
            causal_mask_of_three_axes,
            "One axis is missing. Two axes of size 1 stand in front, one for the batch and one for the heads: `[None, "
            "None]`.",
        ),
        Misconception(
            "whole_numbers",
            causal_mask_of_integers,
            "The mask holds 1 and 0 in place of True and False. `~1` is -2, not 0, so `masked_fill(~mask, …)` goes "
            "wrong: `torch.ones(…, dtype=torch.bool)`.",
        ),
        Misconception(
            "floats",
            causal_mask_of_floats,
            "The mask holds 1.0 and 0.0 in place of True and False, and `~` and `&` fail on floats: `torch.ones(…, "
            "dtype=torch.bool)`, or `.bool()` at the end.",
        ),
        Misconception(
            "to_be_added",
            causal_mask_to_add,
            "This is a mask to be added to the scores, 0 and minus infinity. Here a mask says who may be seen, True or "
            "False; what that does to scores is the business of attention.",
        ),
        Misconception(
            "device_ignored",
            causal_mask_on_the_cpu,
            "The mask is always made on the CPU. On a GPU, scores and mask would lie on different "
            "devices: hand `device=device` to the function that creates it.",
        ),
        Misconception(
            "table_too_small",
            causal_mask_out_of_a_table,
            "The mask is cut out of a table, and for a longer sentence than the table has it is too small. Make it as "
            "large as `length` says.",
        ),
    ],
    hints=[
        "Write the mask for three words down by hand. Rows are queries, columns are keys: what may the first word "
        "see, what the last?",
        "torch has functions that keep one triangle of a matrix and clear the other. Which one keeps the diagonal "
        "and what lies below?",
        "`torch.ones(length, length, dtype=torch.bool, device=device).tril()`, with two axes in front: `[None, None]`.",
    ],
)

# --- target_mask -----------------------------------------------------------------------------------------------------


def target_mask_is_boolean(inputs, mask):
    batch, length = inputs["tokens"].shape
    return is_boolean(mask, (batch, 1, length, length))


def no_look_ahead(inputs, mask):
    if numbers_of(mask).triu(1).any():
        return "a position sees what comes after it"
    return None


def words_see_themselves(inputs, mask):
    real = inputs["tokens"] != inputs["pad_id"]
    if (numbers_of(mask)[:, 0].diagonal(dim1=-2, dim2=-1)[real] != 1).any():
        return "a word does not see itself"
    return None


def made_on_the_cpu(subject, tokens, pad_id):
    """Say that the tokens lie on a device of their own, and see whether a tensor is made without asking for it."""
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


def mask_lies_beside_its_tokens(inputs, received):
    return "a mask is made on the CPU, wherever the tokens lie: on a GPU that is an error" if received else None


def future_hidden(tokens: Tensor) -> Tensor:
    return causal_mask(tokens.size(1), tokens.device)


def target_mask_without_padding(tokens, pad_id):
    return future_hidden(tokens).expand(tokens.size(0), 1, -1, -1)


def target_mask_of_the_future_alone(tokens, pad_id):
    return future_hidden(tokens)


def target_mask_of_padding_alone(tokens, pad_id):
    return padding_mask(tokens, pad_id)


def target_mask_by_word(tokens, pad_id):
    return padding_mask(tokens, pad_id) and future_hidden(tokens)


def target_mask_as_long_as_the_batch(tokens, pad_id):
    return padding_mask(tokens, pad_id) & causal_mask(tokens.size(0), tokens.device)


def target_mask_on_the_cpu(tokens, pad_id):
    return padding_mask(tokens, pad_id) & causal_mask(tokens.size(1))


def target_mask_without_future(tokens, pad_id):
    return padding_mask(tokens, pad_id).expand(-1, -1, tokens.size(1), -1)


def target_mask_by_or(tokens, pad_id):
    return padding_mask(tokens, pad_id) | future_hidden(tokens)


def target_mask_for_zero(tokens, pad_id):
    return target_mask(tokens, 0)


def target_mask_on_queries(tokens, pad_id):
    return padding_mask(tokens, pad_id).transpose(-2, -1) & future_hidden(tokens)


def target_mask_on_queries_and_keys(tokens, pad_id):
    return target_mask(tokens, pad_id) & padding_mask(tokens, pad_id).transpose(-2, -1)


def target_mask_without_itself(tokens, pad_id):
    return padding_mask(tokens, pad_id) & causal_mask_without_itself(tokens.size(1), tokens.device)


def target_mask_of_floats(tokens, pad_id):
    return padding_mask(tokens, pad_id) & future_hidden(tokens).float()


def target_mask_by_product(tokens, pad_id):
    return padding_mask(tokens, pad_id).float() * future_hidden(tokens).float()


def target_mask_inverted(tokens, pad_id):
    return ~target_mask(tokens, pad_id)


def target_mask_of_half_inverted(tokens, pad_id):
    return padding_mask(tokens, pad_id) & causal_mask_inverted(tokens.size(1), tokens.device)


def target_mask_with_the_diagonal(tokens, pad_id):
    itself = torch.eye(tokens.size(1), dtype=torch.bool, device=tokens.device)
    return target_mask(tokens, pad_id) | itself


def target_mask_of_shifted_tokens(tokens, pad_id):
    return target_mask(tokens[:, :-1], pad_id)


def target_mask_joined_in_place(tokens, pad_id):
    mask = future_hidden(tokens)
    mask &= padding_mask(tokens, pad_id)
    return mask


TARGET_MASK = Exercise(
    answer=target_mask,
    points=1,
    minutes=5,
    returns=("mask",),
    axes={"tokens": "batch length", "mask": "batch 1 query key"},
    builds_on=("padding_mask", "causal_mask"),
    banned=("torch.nn.Transformer.generate_square_subsequent_mask",),
    probes=[
        Probe("two sentences, the second one padded", lambda draw: sentences(draw, 2, 4)),
        Probe("another pad id, and 0 is a word", lambda draw: sentences(draw, 2, 5, pad_id=draw.integer(3, 6))),
        Probe("padding on the left", padded_on_the_left),
    ],
    properties=[
        Property(
            "it is boolean, of shape (batch, 1, length, length)",
            lambda draw: sentences(draw, 3, 4),
            target_mask_is_boolean,
        ),
        Property("nobody sees the future", lambda draw: sentences(draw, 3, 5), no_look_ahead),
        Property("every word sees itself", lambda draw: sentences(draw, 3, 5), words_see_themselves),
        Property(
            "it lies on the device of its tokens",
            lambda draw: sentences(draw, 2, 4),
            mask_lies_beside_its_tokens,
            made_on_the_cpu,
        ),
    ],
    misconceptions=[
        Misconception(
            "padding_forgotten",
            target_mask_without_padding,
            "Only the future is hidden. Target sentences are padded as well, and where padding is in sight, the "
            "outcome depends on how long the other sentences of the batch are. Both masks together: `&`.",
        ),
        Misconception(
            "future_forgotten",
            target_mask_without_future,
            "Only padding is hidden. The decoder then sees the word it has to predict (section 3.2.3), learns to "
            "copy it, and cannot translate. Both masks together: `&`.",
        ),
        Misconception(
            "future_alone",
            target_mask_of_the_future_alone,
            "This is the triangle alone, the same for all sentences. Target sentences are padded as well: join it "
            "with `padding_mask(tokens, pad_id)` by `&`.",
        ),
        Misconception(
            "padding_alone",
            target_mask_of_padding_alone,
            "This is the padding mask alone. The decoder then sees the word it has to predict (section 3.2.3), learns "
            "to copy it, and cannot translate: join it with the triangle by `&`.",
        ),
        Misconception(
            "word_and",
            target_mask_by_word,
            "`and` asks whether a whole tensor is true, and torch cannot say. `&` joins two masks place by place.",
        ),
        Misconception(
            "as_long_as_the_batch",
            target_mask_as_long_as_the_batch,
            "The triangle is as long as there are sentences: `len(tokens)` and `tokens.size(0)` are the batch. The "
            "number of words is `tokens.size(1)`.",
        ),
        Misconception(
            "device_ignored",
            target_mask_on_the_cpu,
            "The triangle is always made on the CPU. On a GPU, it and the tokens would lie on different devices: "
            "`causal_mask(tokens.size(1), tokens.device)`.",
        ),
        Misconception(
            "or_for_and",
            target_mask_by_or,
            "The masks are joined by `|`: a key is seen if it is real or in the past, which is nearly always. True "
            "means “may attend”, and both masks have to allow it: `&`.",
        ),
        Misconception(
            "pad_id_zero",
            target_mask_for_zero,
            "The mask compares with 0, whatever `pad_id` says. Source and target may pad with different ids: use the "
            "one that is given.",
        ),
        Misconception(
            "on_the_queries",
            target_mask_on_queries,
            "Padding is hidden on the queries' axis: rows instead of columns. Nobody reads the rows of padding, "
            "while padding as a key is seen as before. Keys are the last axis.",
        ),
        Misconception(
            "queries_and_keys",
            target_mask_on_queries_and_keys,
            "The queries of padding are hidden too, so that their rows allow nothing and the softmax is NaN or "
            "useless. Hide padding as keys only.",
        ),
        Misconception(
            "not_itself",
            target_mask_without_itself,
            "No word may look at itself, and the first may look at nothing: its softmax is NaN. Position i sees 0 to i "
            "(section 3.2.3).",
        ),
        Misconception(
            "and_of_floats",
            target_mask_of_floats,
            "`&` joins truth values, and one of the two masks holds floats. Make both boolean; then `&` does what it "
            "says.",
        ),
        Misconception(
            "product_of_floats",
            target_mask_by_product,
            "The masks are multiplied as floats, and `~mask` fails on floats: let both be boolean and join them by "
            "`&`.",
        ),
        Misconception(
            "inverted",
            target_mask_inverted,
            "The mask is True for what is hidden. In this course True means “may attend”: leave the `~` out.",
        ),
        Misconception(
            "triangle_inverted",
            target_mask_of_half_inverted,
            "The triangle is True for the future, as in tutorials for `nn.Transformer`, while padding is True for "
            "words. Both have to say “may attend”: `tril()`.",
        ),
        Misconception(
            "always_itself",
            target_mask_with_the_diagonal,
            "Every position sees itself here, padding too, so that padding gets weight. It is a key like any other "
            "and hidden from all; what comes out at its own position is never read.",
        ),
        Misconception(
            "shifted",
            target_mask_of_shifted_tokens,
            "The mask is one position too short: the last token was cut off first. Whoever trains shifts the target "
            "before (notebook 10); the mask is for the tokens that it is given.",
        ),
        Misconception(
            "joined_in_place",
            target_mask_joined_in_place,
            "`&=` writes the result into the triangle, which has one sentence's room, `(1, 1, length, length)`, and "
            "torch refuses. `a & b` makes a new tensor and stretches both.",
        ),
    ],
    hints=[
        "A key may be seen if it is no padding and not in the future: you have a function for each of the two.",
        "One mask is `(batch, 1, 1, length)`, the other `(1, 1, length, length)`. Which operator joins truth values, "
        "and which shape comes out?",
        "`padding_mask(tokens, pad_id) & causal_mask(tokens.size(1), tokens.device)`",
    ],
)

EXERCISES = [PADDING_MASK, CAUSAL_MASK, TARGET_MASK]
