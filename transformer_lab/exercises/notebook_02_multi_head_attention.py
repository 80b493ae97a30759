"""Notebook 02, multi-head attention: section 3.2.2."""

import torch
from torch import nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property
from transformer_lab.exercises.recipes import build, gradients, raised
from transformer_lab.model import MultiHeadAttention, combine_heads, scaled_dot_product_attention, split_heads

# --- split_heads -----------------------------------------------------------------------------------------------------


def exception_of_call(subject, x, n_heads):
    return raised(subject, x, n_heads)


def is_value_error(inputs, received):
    if received == "ValueError":
        return None
    if received == "nothing":
        return "no error is raised, and some features are lost or mixed"
    return f"it ends in `{received}`; a `ValueError` that names both numbers is meant"


def result_and_gradient(subject, x, **others):
    x.requires_grad_()
    result = subject(x, *others.values())
    return {"result": result, **gradients(result, {"x": x})}


def numbers_are_only_moved(inputs, received):
    if sorted(received["result"].flatten().tolist()) != sorted(inputs["x"].flatten().tolist()):
        return "the numbers that come out are not those that went in"
    return None


def gradient_passes(inputs, received):
    if received["gradient of x"] is None:
        return "no gradient comes through: NumPy, `.detach()` and `torch.tensor(…)` cut it off"
    return None


def split_without_transpose(x, n_heads):
    batch, length, d_model = x.shape
    if d_model % n_heads:
        raise ValueError
    return x.reshape(batch, n_heads, length, d_model // n_heads)


def split_with_heads_after_length(x, n_heads):
    return split_heads(x, n_heads).transpose(1, 2)


def split_with_heads_first(x, n_heads):
    return split_heads(x, n_heads).transpose(0, 1)


def split_in_turn(x, n_heads):
    batch, length, d_model = x.shape
    if d_model % n_heads:
        raise ValueError
    return x.reshape(batch, length, d_model // n_heads, n_heads).permute(0, 3, 1, 2)


def split_into_batch(x, n_heads):
    return split_heads(x, n_heads).flatten(0, 1)


def split_features_before_length(x, n_heads):
    return split_heads(x, n_heads).transpose(2, 3)


def split_without_looking(x, n_heads):
    batch, length, d_model = x.shape
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)


def split_with_assertion(x, n_heads):
    assert x.size(-1) % n_heads == 0
    return split_heads(x, n_heads)


def split_losing_features(x, n_heads):
    return split_heads(x[..., : x.size(-1) // n_heads * n_heads], n_heads)


def split_into_pieces_of_n_heads(x, n_heads):
    if x.size(-1) % n_heads:
        raise ValueError
    return torch.stack(x.split(n_heads, dim=-1), dim=1)


def split_looking_at_the_length(x, n_heads):
    if x.size(1) % n_heads:
        raise ValueError
    return split_heads(x, n_heads)


SPLIT_HEADS = Exercise(
    answer=split_heads,
    points=1,
    minutes=10,
    returns=("heads",),
    axes={"x": "batch length d_model", "heads": "batch heads length d_k"},
    probes=[
        Probe("three words of eight features, two heads", lambda draw: {"x": draw.numbers(1, 3, 8), "n_heads": 2}),
        Probe("a batch of two, three heads", lambda draw: {"x": draw.numbers(2, 5, 12), "n_heads": 3}),
        Probe("as many heads as features", lambda draw: {"x": draw.numbers(2, 3, 4), "n_heads": 4}),
        Probe("one head", lambda draw: {"x": draw.numbers(2, 3, 4), "n_heads": 1}),
    ],
    properties=[
        Property(
            "the numbers are only moved",
            lambda draw: {"x": draw.numbers(2, 3, 6), "n_heads": 2},
            numbers_are_only_moved,
            result_and_gradient,
        ),
        Property(
            "gradients pass through",
            lambda draw: {"x": draw.numbers(1, 2, 4), "n_heads": 2},
            gradient_passes,
            result_and_gradient,
        ),
        Property(
            "features that cannot be shared out evenly raise ValueError",
            lambda draw: {"x": draw.numbers(1, 3, 5), "n_heads": 2},
            is_value_error,
            exception_of_call,
        ),
    ],
    misconceptions=[
        Misconception(
            "view_without_transpose",
            split_without_transpose,
            "The shape is right, but the numbers have been cut up in the order in which they lie in memory: a head "
            "gets all features of some words in place of some features of all words. First split the last axis in "
            "two, `(batch, length, n_heads, d_k)`, then move the heads with `transpose(1, 2)`.",
        ),
        Misconception(
            "heads_after_length",
            split_with_heads_after_length,
            "The features are split, but the heads still stand behind the words. Attention multiplies the last two "
            "axes, which have to be words and features: `transpose(1, 2)` puts the heads beside the batch.",
        ),
        Misconception(
            "heads_first",
            split_with_heads_first,
            "The heads stand before the batch. The order in this course is `(batch, heads, length, d_k)`, so that a "
            "mask of `(batch, 1, 1, length)` fits.",
        ),
        Misconception(
            "features_in_turn",
            split_in_turn,
            "The features are dealt out in turn, like cards, because the last axis was split into `(d_k, n_heads)`. "
            "Head h takes the d_k features from h · d_k on: split into `(n_heads, d_k)`. Trained weights would not "
            "fit otherwise.",
        ),
        Misconception(
            "heads_in_batch",
            split_into_batch,
            "The heads are folded into the batch axis. That can be made to work, but masks of `(batch, 1, 1, "
            "length)` no longer fit: keep four axes, `(batch, heads, length, d_k)`.",
        ),
        Misconception(
            "features_before_length",
            split_features_before_length,
            "The last two axes are the wrong way round: words come before features, `(batch, heads, length, d_k)`.",
        ),
        Misconception(
            "no_value_error",
            split_without_looking,
            "The case of a width that cannot be shared out evenly is missing: torch's own error speaks of shapes that "
            "nobody has heard of. Raise a `ValueError` that names `d_model` and `n_heads`.",
        ),
        Misconception(
            "assertion_for_error",
            split_with_assertion,
            "A wrong argument is to raise `ValueError`: an `assert` is for what cannot happen, and `python -O` leaves "
            "it out.",
        ),
        Misconception(
            "features_lost",
            split_losing_features,
            "Where the width cannot be shared out evenly, the features that are left over vanish without a word. "
            "Raise a `ValueError` that names `d_model` and `n_heads`.",
        ),
        Misconception(
            "pieces_of_n_heads",
            split_into_pieces_of_n_heads,
            "There are d_k heads of `n_heads` features: `split` takes the size of a piece, not the number of pieces. "
            "`x.split(d_model // n_heads, dim=-1)`, or `x.chunk(n_heads, dim=-1)`.",
        ),
        Misconception(
            "length_for_width",
            split_looking_at_the_length,
            "The length is tested in place of the width. Features are shared out, not words: it is `d_model`, the "
            "size of the last axis, that `n_heads` has to divide.",
        ),
    ],
    hints=[
        "Two steps: cut the last axis into heads and features, then bring the heads to the front of the words. Which "
        "of the two may `view` do?",
        "`view(batch, length, n_heads, d_k)` cuts the last axis and moves nothing. Which two axes are to change "
        "places then? And look at the remainder of `d_model` by `n_heads` first.",
        "`return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)`, after `raise ValueError(…)` "
        "where `d_model % n_heads` is not 0.",
    ],
)

# --- combine_heads ---------------------------------------------------------------------------------------------------


def heads_of_one_number(draw: Draw) -> dict:
    """Head h holds nothing but h + 1."""
    return {"x": torch.arange(1.0, 4.0)[None, :, None, None].expand(2, 3, 4, 2).contiguous()}


def heads_stay_together(inputs, received):
    if received.tolist() != [[[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]] * 4] * 2:
        return "where head 0 holds only ones, head 1 only twos, and so on, a word does not come out as 1 1 2 2 3 3"
    return None


def combine_without_transpose(x):
    batch, heads, length, d_k = x.shape
    return x.reshape(batch, length, heads * d_k)


def combine_with_view(x):
    batch, heads, length, d_k = x.shape
    return x.transpose(1, 2).view(batch, length, heads * d_k)


def combine_in_turn(x):
    return x.permute(0, 2, 3, 1).flatten(2)


def combine_with_wrong_transpose(x):
    batch, heads, length, d_k = x.shape
    return x.transpose(2, 3).reshape(batch, length, heads * d_k)


def combine_along_length(x):
    return x.flatten(1, 2)


def combine_by_sum(x):
    return x.sum(dim=1)


def combine_transposing_only(x):
    return x.transpose(1, 2)


def combine_transposing_in_place(x):
    return x.transpose_(1, 2).flatten(2)


def combine_and_squeeze(x):
    return combine_heads(x).squeeze()


def combine_with_length_first(x):
    return combine_heads(x).transpose(0, 1)


def combine_the_batch(x):
    return torch.cat(list(x), dim=-1)


COMBINE_HEADS = Exercise(
    answer=combine_heads,
    points=1,
    minutes=5,
    axes={"x": "batch heads length d_k", "output": "batch length d_model"},
    builds_on=("split_heads",),
    probes=[
        Probe("two heads of three words", lambda draw: {"x": draw.numbers(1, 2, 3, 4)}),
        Probe("a batch of two, three heads", lambda draw: {"x": draw.numbers(2, 3, 5, 4)}),
        Probe("heads of a single feature", lambda draw: {"x": draw.numbers(2, 5, 3, 1)}),
        Probe("one head", lambda draw: {"x": draw.numbers(2, 1, 3, 4)}),
    ],
    properties=[
        Property("the features of a head stay side by side", heads_of_one_number, heads_stay_together),
        Property(
            "the numbers are only moved",
            lambda draw: {"x": draw.numbers(2, 3, 4, 2)},
            numbers_are_only_moved,
            result_and_gradient,
        ),
        Property(
            "gradients pass through", lambda draw: {"x": draw.numbers(1, 2, 3, 2)}, gradient_passes, result_and_gradient
        ),
    ],
    misconceptions=[
        Misconception(
            "reshape_without_transpose",
            combine_without_transpose,
            "The shape is right, but words and heads are mixed up: the numbers were read in the order in which they "
            "lie in memory. Bring the heads back behind the words first, `transpose(1, 2)`, then join the last two "
            "axes.",
        ),
        Misconception(
            "view_after_transpose",
            combine_with_view,
            "`transpose` does not move any number, it only reads them in another order, and `view` cannot join axes "
            "that do not lie side by side in memory. `reshape` copies where it must.",
        ),
        Misconception(
            "features_in_turn",
            combine_in_turn,
            "The features of the heads are dealt out in turn: the first of each head, then the second of each. The "
            "heads stand side by side (“Concat” in section 3.2.2): join `(heads, d_k)`, not `(d_k, heads)`.",
        ),
        Misconception(
            "wrong_transpose",
            combine_with_wrong_transpose,
            "The wrong axes change places. The heads are axis 1 and the words axis 2: `transpose(1, 2)`. (An "
            "`einsum` that has put the heads last already needs no transpose at all; a second one scrambles the "
            "words.)",
        ),
        Misconception(
            "along_length",
            combine_along_length,
            "The heads are put one below the other, as if they were more words. They belong side by side, as "
            "features: the result is `(batch, length, heads * d_k)`.",
        ),
        Misconception(
            "sum_of_heads",
            combine_by_sum,
            "The heads are added up, so what each has found is lost in the sum. The paper concatenates them (section "
            "3.2.2) and leaves it to `w_o` to mix them.",
        ),
        Misconception(
            "not_joined",
            combine_transposing_only,
            "The heads are back behind the words, but still an axis of their own. Join the last two axes: "
            "`reshape(batch, length, heads * d_k)`.",
        ),
        Misconception(
            "changes_x",
            combine_transposing_in_place,
            "`transpose_` turns the caller's own tensor round, who finds other axes in it afterwards. Without the `_` "
            "the caller's stays as it is: `x.transpose(1, 2)`.",
        ),
        Misconception(
            "squeezed",
            combine_and_squeeze,
            "`squeeze` takes away every axis of size 1: the batch of a single sentence, the length of a single word. "
            "All three axes have to stay.",
        ),
        Misconception(
            "length_first",
            combine_with_length_first,
            "The length stands before the batch, as `nn.MultiheadAttention` has it unless told `batch_first=True`. In "
            "this course the batch comes first: `(batch, length, heads * d_k)`.",
        ),
        Misconception(
            "batch_for_heads",
            combine_the_batch,
            "What is put side by side are the sentences: a loop or an unpacking over `x` goes through axis 0, the "
            "batch. The heads are axis 1: `x.unbind(1)`, or `x.transpose(1, 2)` first.",
        ),
    ],
    hints=[
        "Undo the steps of `split_heads` in the reverse order.",
        "After `x.transpose(1, 2)` the axes are `(batch, length, heads, d_k)`: the last two become one. Why does "
        "`view` refuse, and what can do it?",
        "`return x.transpose(1, 2).reshape(batch, length, heads * d_k)`",
    ],
)

# --- MultiHeadAttention ----------------------------------------------------------------------------------------------


def multi_head_inputs(draw: Draw, query: int, key: int, d_model: int, n_heads: int, batch: int = 1) -> dict:
    return {
        "arguments": {"d_model": d_model, "n_heads": n_heads},
        "weights": draw.weights(MultiHeadAttention(d_model, n_heads), scale=0.9),
        "query": draw.numbers(batch, query, d_model),
        "key": draw.numbers(batch, key, d_model),
        "value": draw.numbers(batch, key, d_model),
    }


def self_attention_inputs(draw: Draw, length: int = 3, d_model: int = 4, n_heads: int = 2) -> dict:
    inputs = multi_head_inputs(draw, length, length, d_model, n_heads)
    return inputs | {"key": inputs["query"].clone(), "value": inputs["query"].clone()}


def padding_mask_inputs(draw: Draw) -> dict:
    mask = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    mask[0, ..., draw.integer(2, 3) :] = False
    mask[1, ..., draw.integer(1, 2) :] = False
    return multi_head_inputs(draw, 3, 4, 6, 2, batch=2) | {"mask": mask}


def causal_mask_inputs(draw: Draw) -> dict:
    return self_attention_inputs(draw, length=4, d_model=6) | {"mask": torch.ones(4, 4).tril().bool()[None, None]}


def parameter_gradients(subject, arguments, weights, query, key, value):
    module = build(subject, arguments, weights)
    return gradients(module(query, key, value), dict(module.named_parameters()))


def exception_of_construction(subject, arguments):
    return raised(subject, *arguments.values())


def construction_is_value_error(inputs, received):
    if received == "ValueError":
        return None
    if received == "nothing":
        return "no error is raised when it is constructed"
    return f"constructing it ends in `{received}`; a `ValueError` that names both numbers is meant"


def dropout_effect(subject, arguments, weights, query, key, value):
    module = build(subject, arguments, weights)
    module.train()
    trained = [module(query, key, value) for _ in range(6)]
    module.eval()
    return {
        "in training": sum(not torch.equal(trained[0], other) for other in trained[1:]) > 0,
        "constant in evaluation": torch.equal(module(query, key, value), module(query, key, value)),
        "zeros in the output": any((output == 0).any().item() for output in trained),
    }


def dropout_acts_in_training_only(inputs, received):
    if not received["constant in evaluation"]:
        return "in evaluation mode two calls give different outputs: dropout has to stop there (`nn.Dropout` does)"
    if not received["in training"]:
        return "with dropout 0.5 every call in training mode gives the same output: nothing is dropped"
    if received["zeros in the output"]:
        return "features of the output are dropped; dropout belongs on the attention weights"
    return None


def what_attend_gets(subject, arguments, query, key, value, mask):
    module = subject(*arguments.values())
    calls = []

    def attend(*given, **named):
        dropout = given[4] if len(given) > 4 else None
        ones = dropout(torch.ones(400)) if callable(dropout) else torch.ones(400)
        calls.append(
            {
                "shapes": [list(tensor.shape) for tensor in given[:3]],
                "mask": None if len(given) < 4 or given[3] is None else bool(given[3].eq(mask).all()),
                "axes of the mask": None if len(given) < 4 or given[3] is None else given[3].dim(),
                "drops": bool((ones == 0).any()),
                "named": sorted(named),
            }
        )
        return torch.zeros_like(given[0]), None

    module.attend = attend
    module.train()
    output = module(query, key, value, mask)
    return {"calls": calls, "output is the bias": bool(torch.allclose(output, module.w_o.bias.expand_as(output)))}


def attend_is_the_seam(inputs, received):
    calls = received["calls"]
    if len(calls) != 1:
        return f"`self.attend` is called {len(calls)} times: attention has to happen there, once, and nowhere else"
    (call,) = calls
    arguments = inputs["arguments"]
    batch, length, _ = inputs["query"].shape
    heads = [batch, arguments["n_heads"], length, arguments["d_model"] // arguments["n_heads"]]
    if call["named"] or call["shapes"] != [heads] * 3:
        return "`self.attend` wants query, key and value as heads `(batch, heads, length, d_k)`, by position"
    if not call["mask"]:
        return "the fourth argument of `self.attend` is not the mask"
    if call["axes of the mask"] > inputs["mask"].dim():
        return f"the mask has {inputs['mask'].dim()} axes, and `self.attend` gets {call['axes of the mask']}"
    if not call["drops"]:
        return "the fifth argument of `self.attend` is not a dropout that drops something in training"
    if not received["output is the bias"]:
        return "what `self.attend` returns is not what `w_o` gets: heads of zeros must come out as the bias of `w_o`"
    return None


def attend_inputs(draw: Draw) -> dict:
    return {
        "arguments": {"d_model": 6, "n_heads": 2, "dropout": 0.5},
        "query": draw.numbers(1, 4, 6),
        "key": draw.numbers(1, 4, 6),
        "value": draw.numbers(1, 4, 6),
        "mask": torch.ones(4, 4).tril().bool()[None, None],
    }


def dropout_inputs(draw: Draw) -> dict:
    inputs = multi_head_inputs(draw, 3, 5, 4, 2)
    return inputs | {"arguments": inputs["arguments"] | {"dropout": 0.5}}


class HeadsNotSplit(MultiHeadAttention):
    def forward(self, query, key, value, mask=None):
        heads = (split_heads(x, 1) for x in (self.w_q(query), self.w_k(key), self.w_v(value)))
        return self.w_o(combine_heads(self.attend(*heads, mask, self.dropout)[0]))


class MultiHeadWith(MultiHeadAttention):
    """Multi-head attention put together from other parts than the right ones."""

    split = staticmethod(split_heads)
    combine = staticmethod(combine_heads)

    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x, self.n_heads) for x in self.project(query, key, value))
        output, _ = self.attend(q, k, v, self.see(mask), self.dropout)
        return self.finish(self.combine(output))

    def project(self, query, key, value):
        return self.w_q(query), self.w_k(key), self.w_v(value)

    def see(self, mask):
        return mask

    def finish(self, output):
        return self.w_o(output)


class MultiHeadScaledByModel(MultiHeadWith):
    def project(self, query, key, value):
        return self.w_q(query) / self.n_heads**0.5, self.w_k(key), self.w_v(value)


class MultiHeadSplitByView(MultiHeadWith):
    split = staticmethod(split_without_transpose)

    def combine(self, heads):
        batch, n_heads, length, d_k = heads.shape
        return heads.reshape(batch, length, n_heads * d_k)


class MultiHeadCombinedByReshape(MultiHeadWith):
    combine = staticmethod(combine_without_transpose)


class MultiHeadWithoutOutputProjection(MultiHeadWith):
    def finish(self, output):
        return output


class MultiHeadWithOneProjection(MultiHeadWith):
    def project(self, query, key, value):
        return self.w_q(query), self.w_q(key), self.w_v(value)


class MultiHeadWithKeysForValues(MultiHeadWith):
    def project(self, query, key, value):
        return self.w_q(query), self.w_k(key), self.w_v(key)


class MultiHeadOfQueriesOnly(MultiHeadWith):
    def project(self, query, key, value):
        return self.w_q(query), self.w_k(query), self.w_v(query)


class MultiHeadWithoutMask(MultiHeadWith):
    def see(self, mask):
        return None


class MultiHeadWithInvertedMask(MultiHeadWith):
    def see(self, mask):
        return None if mask is None else ~mask


class MultiHeadWithHeadsAfterLength(MultiHeadWith):
    """Each word attends from head to head."""

    split = staticmethod(split_with_heads_after_length)

    def combine(self, heads):
        return heads.flatten(2)


class MultiHeadWithoutDropout(MultiHeadWith):
    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x, self.n_heads) for x in self.project(query, key, value))
        return self.w_o(combine_heads(self.attend(q, k, v, mask, None)[0]))


class MultiHeadWithDropoutOnOutput(MultiHeadWithoutDropout):
    def forward(self, query, key, value, mask=None):
        return self.dropout(super().forward(query, key, value, mask))


class MultiHeadWithANumberForDropout(MultiHeadWith):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads)
        del self.dropout
        self.dropout = dropout


class MultiHeadJoiningBothResults(MultiHeadWith):
    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x, self.n_heads) for x in self.project(query, key, value))
        return self.w_o(combine_heads(self.attend(q, k, v, mask, self.dropout)))


class MultiHeadWithAnotherAxisOfTheMask(MultiHeadWith):
    def see(self, mask):
        return None if mask is None else mask.unsqueeze(1)


class MultiHeadBesideTheSeam(MultiHeadWith):
    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x, self.n_heads) for x in self.project(query, key, value))
        return self.w_o(combine_heads(scaled_dot_product_attention(q, k, v, mask, self.dropout)[0]))


class MultiHeadWithoutBias(MultiHeadWith):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))


class MultiHeadWithNarrowProjections(MultiHeadWith):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, dropout)
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_model // n_heads) for _ in range(3))
        self.w_o = nn.Linear(d_model // n_heads, d_model)


class MultiHeadReturningWeights(MultiHeadWith):
    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x, self.n_heads) for x in self.project(query, key, value))
        output, weights = self.attend(q, k, v, mask, self.dropout)
        return self.w_o(combine_heads(output)), weights


class MultiHeadForAnyWidth(MultiHeadWith):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model - d_model % n_heads, n_heads, dropout)


class MultiHeadWithAssertion(MultiHeadWith):
    def __init__(self, d_model, n_heads, dropout=0.0):
        assert d_model % n_heads == 0
        super().__init__(d_model, n_heads, dropout)


class MultiHeadWithProbabilityToKeep(MultiHeadWith):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__(d_model, n_heads, 1 - dropout)


class MultiHeadOfOneLength(MultiHeadAttention):
    def forward(self, query, key, value, mask=None):
        batch, length, d_model = query.shape
        projected = (self.w_q(query), self.w_k(key), self.w_v(value))
        q, k, v = (x.view(batch, length, self.n_heads, d_model // self.n_heads).transpose(1, 2) for x in projected)
        return self.w_o(combine_heads(self.attend(q, k, v, mask, self.dropout)[0]))


MULTI_HEAD_ATTENTION = Exercise(
    answer=MultiHeadAttention,
    blank=("__init__", "forward"),
    points=4,
    minutes=30,
    axes={
        "query": "batch query d_model",
        "key": "batch key d_model",
        "value": "batch key d_model",
        "mask": "batch heads query key",
        "output": "batch query d_model",
    },
    builds_on=("scaled_dot_product_attention", "split_heads", "combine_heads"),
    banned=(
        "torch.nn.MultiheadAttention",
        "torch.nn.functional.multi_head_attention_forward",
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    probes=[
        Probe("three words look at each other through two heads", self_attention_inputs),
        Probe(
            "queries from one place, keys and values from others",
            lambda draw: multi_head_inputs(draw, 2, 4, 6, 3, batch=2),
        ),
        Probe("a padding mask hides keys", padding_mask_inputs),
        Probe("a causal mask hides the future", causal_mask_inputs),
        Probe("gradients reach all weights", self_attention_inputs, parameter_gradients),
    ],
    properties=[
        Property("attention happens in `self.attend`", attend_inputs, attend_is_the_seam, what_attend_gets),
        Property(
            "dropout acts on the weights, and in training only",
            dropout_inputs,
            dropout_acts_in_training_only,
            dropout_effect,
        ),
        Property(
            "a width that cannot be shared out evenly raises ValueError",
            lambda draw: {"arguments": {"d_model": 6, "n_heads": 4}},
            construction_is_value_error,
            exception_of_construction,
            costs=0.5,
        ),
    ],
    misconceptions=[
        Misconception(
            "heads_not_split",
            HeadsNotSplit,
            "There is one head of the full width: the features are projected and never split, so each query has one "
            "set of weights for everything it looks for. Section 3.2.2 lets `n_heads` of them look at once.",
        ),
        Misconception(
            "scale_by_d_model",
            MultiHeadScaledByModel,
            "The scores are divided by √d_model. Within a head the dot product runs over d_k = d_model / n_heads "
            "features, so √d_k is what evens them out (sections 3.2.1 and 3.2.2).",
        ),
        Misconception(
            "split_by_view",
            MultiHeadSplitByView,
            "The heads are cut with `view(batch, n_heads, length, d_k)`: that mixes words and features, as they lie in "
            "memory. Split the last axis, then `transpose(1, 2)`: your `split_heads` does it.",
        ),
        Misconception(
            "combined_by_reshape",
            MultiHeadCombinedByReshape,
            "The heads are joined without bringing them back behind the words, so every word gets pieces of others. "
            "`transpose(1, 2)` comes first: your `combine_heads` does it.",
        ),
        Misconception(
            "heads_after_length",
            MultiHeadWithHeadsAfterLength,
            "The heads were not moved to the front of the words, so attention multiplies heads by heads within one "
            "word: no word sees another. `transpose(1, 2)` before, and back again after.",
        ),
        Misconception(
            "no_output_projection",
            MultiHeadWithoutOutputProjection,
            "The joined heads are returned as they are. `w_o` comes last (section 3.2.2): without it no head ever "
            "learns what the others have found.",
        ),
        Misconception(
            "one_projection",
            MultiHeadWithOneProjection,
            "Queries and keys go through the same projection `w_q`: what a word looks for and what it offers cannot "
            "differ. Section 3.2.2 projects each with a matrix of its own.",
        ),
        Misconception(
            "keys_for_values",
            MultiHeadWithKeysForValues,
            "The values are made from `key`. In self-attention nobody notices; in general the third argument is what "
            "is summed up: `self.w_v(value)`.",
        ),
        Misconception(
            "queries_only",
            MultiHeadOfQueriesOnly,
            "Keys and values are made from `query`: that is self-attention only. The decoder asks with its own words "
            "and looks at the encoder's (section 3.2.3).",
        ),
        Misconception(
            "mask_ignored",
            MultiHeadWithoutMask,
            "The mask does not arrive at `self.attend`, so padding and the future are seen.",
        ),
        Misconception(
            "mask_inverted",
            MultiHeadWithInvertedMask,
            "The mask is turned round on its way to `self.attend`, so what may be seen is hidden. True means “may "
            "attend”, here as there.",
        ),
        Misconception(
            "dropout_ignored",
            MultiHeadWithoutDropout,
            "Dropout is never used. It acts on the attention weights: hand `self.dropout` to `self.attend` as its "
            "fifth argument.",
        ),
        Misconception(
            "dropout_on_output",
            MultiHeadWithDropoutOnOutput,
            "Dropout acts on the output. In this course the residual connection does that; here it belongs on the "
            "attention weights: hand `self.dropout` to `self.attend` as its fifth argument.",
        ),
        Misconception(
            "number_for_dropout",
            MultiHeadWithANumberForDropout,
            "`self.dropout` is a number, and attention calls it like a function. Make a module of it: `self.dropout = "
            "nn.Dropout(dropout)`.",
        ),
        Misconception(
            "both_results_joined",
            MultiHeadJoiningBothResults,
            "`self.attend` returns two things, the output and the weights, and both were handed on together. Unpack "
            "them: `output, _ = self.attend(…)`.",
        ),
        Misconception(
            "mask_with_another_axis",
            MultiHeadWithAnotherAxisOfTheMask,
            "The mask gets one more axis, so it has five. It comes with an axis for the heads already, `(batch, 1, "
            "query, key)`: hand it on as it is.",
        ),
        Misconception(
            "attend_not_used",
            MultiHeadBesideTheSeam,
            "Attention is called past `self.attend`. Heat maps and the fast kernel put their own function there, and "
            "yours would not notice: call `self.attend(q, k, v, mask, self.dropout)`.",
        ),
        Misconception(
            "no_bias",
            MultiHeadWithoutBias,
            "The linear layers have no bias. In this course each has one, as `nn.Linear` gives it: leave out "
            "`bias=False`.",
        ),
        Misconception(
            "narrow_projections",
            MultiHeadWithNarrowProjections,
            "The projections lead to d_k features, which is one head's share. One matrix holds the projections of "
            "all heads side by side: `nn.Linear(d_model, d_model)`.",
        ),
        Misconception(
            "returns_weights",
            MultiHeadReturningWeights,
            "Two results are returned. `forward` gives the output alone; whoever wants the weights puts a recorder "
            "into `attend`.",
        ),
        Misconception(
            "no_value_error",
            MultiHeadForAnyWidth,
            "A width that cannot be shared out evenly goes through when the module is constructed. Later features are "
            "lost, or an error comes in the middle of a training: raise a `ValueError` that names `d_model` and "
            "`n_heads`, in `__init__`.",
        ),
        Misconception(
            "assertion_for_error",
            MultiHeadWithAssertion,
            "A wrong argument is to raise `ValueError`: an `assert` is for what cannot happen, and `python -O` leaves "
            "it out.",
        ),
        Misconception(
            "probability_to_keep",
            MultiHeadWithProbabilityToKeep,
            "`nn.Dropout` is given `1 - dropout`, as if it took the probability to keep. In torch, and in section "
            "5.4, it is the probability to drop: `nn.Dropout(dropout)`.",
        ),
        Misconception(
            "length_of_the_queries",
            MultiHeadOfOneLength,
            "Keys and values are split with the length of the queries. In the decoder there are as many queries as "
            "target words, and as many keys as source words: each takes its own length, as `split_heads` does.",
        ),
    ],
    hints=[
        "Five steps: project, split into heads, attend, combine, project again. Four layers of the same size do the "
        "projections, and the functions for three of the steps are written already.",
        "In `__init__`: the error for a width that does not fit, `self.n_heads`, `w_q`, `w_k`, `w_v`, `w_o`, "
        "`self.dropout = nn.Dropout(dropout)`, `self.attend = scaled_dot_product_attention`. Which of them does each "
        "step of `forward` use?",
        "`q = split_heads(self.w_q(query), self.n_heads)`, likewise `k` and `v`; then `output, _ = self.attend(q, k, "
        "v, mask, self.dropout)`, and last `self.w_o(combine_heads(output))`.",
    ],
)

EXERCISES = [SPLIT_HEADS, COMBINE_HEADS, MULTI_HEAD_ATTENTION]
