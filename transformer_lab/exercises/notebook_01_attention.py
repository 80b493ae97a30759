"""Notebook 01, attention: section 3.2.1 in NumPy, then in torch, then one head of section 3.2.2."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.recipes import build, gradients
from transformer_lab.model import SingleHeadAttention, numpy_attention, scaled_dot_product_attention, softmax

# --- softmax ---------------------------------------------------------------------------------------------------------


def softmax_of_shifted_scores(subject, scores, shift):
    return {"weights": subject(scores), "weights of shifted scores": subject(scores + shift)}


def shifted_scores_give_the_same(inputs, received):
    before, after = received["weights"], received["weights of shifted scores"]
    if not np.allclose(before, after, atol=1e-8):
        return "scores that are all greater by the same number give other weights"
    return None


def rows_sum_to_one(inputs, weights):
    if (weights < 0).any():
        return "some weights are negative"
    if not np.allclose(weights.sum(-1), 1, atol=1e-8):
        return "there is a row whose weights do not sum to 1"
    return None


def softmax_without_exponential(scores):
    return scores / scores.sum(axis=-1, keepdims=True)


def softmax_over_everything(scores):
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def softmax_over_the_first_axis(scores):
    exponentials = np.exp(scores - scores.max(axis=0, keepdims=True))
    return exponentials / exponentials.sum(axis=0, keepdims=True)


def softmax_over_axis_1(scores):
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def softmax_without_keepdims(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1)


def softmax_that_overflows(scores):
    return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)


def softmax_with_one_maximum(scores):
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def softmax_with_one_sum(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum()


def softmax_less_the_mean(scores):
    exponentials = np.exp(scores - scores.mean(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def softmax_in_place(scores):
    scores -= scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def softmax_less_the_greatest_size(scores):
    exponentials = np.exp(scores - np.abs(scores).max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def softmax_of_clipped_scores(scores):
    exponentials = np.exp(np.clip(scores, -500, 500))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


SOFTMAX = Exercise(
    answer=softmax,
    points=1,
    minutes=10,
    returns=("weights",),
    axes={"scores": "query key", "weights": "query key"},
    banned=(
        "scipy.special.softmax",
        "scipy.special.log_softmax",
        "torch.softmax",
        "torch.log_softmax",
        "torch.nn.functional.softmax",
        "torch.nn.functional.log_softmax",
        "torch.nn.Softmax",
        "torch.nn.LogSoftmax",
        "torch.nn.functional.softmin",
        "torch.nn.functional.gumbel_softmax",
        "torch.nn.Softmin",
        "torch.nn.Softmax2d",
        "torch.distributions.",
        ".softmax",
        ".log_softmax",
    ),
    probes=[
        Probe("one row of scores", lambda draw: {"scores": draw.numbers(4).numpy()}),
        Probe("two rows, each by itself", lambda draw: {"scores": draw.numbers(2, 3).numpy()}),
        Probe("a batch: always the last axis", lambda draw: {"scores": draw.numbers(2, 3, 4).numpy()}),
        Probe("scores around 1000", lambda draw: {"scores": 1000 + draw.numbers(2, 4).numpy()}),
        Probe("scores around -1000", lambda draw: {"scores": -1000 + draw.numbers(2, 4).numpy()}),
        Probe(
            "one row around 1000, one around -1000",
            lambda draw: {"scores": np.array([[1000.0], [-1000.0]]) + draw.numbers(2, 3).numpy()},
        ),
        Probe(
            "from -1000 to 1000 in one row",
            lambda draw: {"scores": np.array([-1000.0, -999.0, 999.0, 1000.0])[draw.order(4)]},
        ),
    ],
    properties=[
        Property("every row sums to 1", lambda draw: {"scores": draw.numbers(3, 5).numpy()}, rows_sum_to_one),
        Property(
            "adding the same number to all scores changes nothing",
            lambda draw: {"scores": draw.numbers(2, 4).numpy(), "shift": draw.integer(1, 9)},
            shifted_scores_give_the_same,
            softmax_of_shifted_scores,
        ),
    ],
    misconceptions=[
        Misconception(
            "no_exponential",
            softmax_without_exponential,
            "The scores are divided by their sum, without `exp`. Scores may be negative, and weights must not be: "
            "the exponential makes every score positive first, and lets a score that is greater by 1 weigh e times "
            "as much.",
        ),
        Misconception(
            "over_everything",
            softmax_over_everything,
            "All scores of the array share one sum. Each query has weights of its own, which sum to 1 along its row "
            "(section 3.2.1: the softmax runs over the keys): sum along the last axis and keep it.",
        ),
        Misconception(
            "first_axis",
            softmax_over_the_first_axis,
            "The softmax runs along the first axis, so that columns sum to 1. A row is one query and its columns are "
            "the keys it chooses among: use `axis=-1`.",
        ),
        Misconception(
            "second_axis",
            softmax_over_axis_1,
            "The softmax runs along `axis=1`. That is the last axis of a table, but with a batch in front it is the "
            "queries' axis, and a single row has no such axis at all: `axis=-1` is the last one of any array.",
        ),
        Misconception(
            "no_keepdims",
            softmax_without_keepdims,
            "The sum (or the maximum) of each row lost its axis, so NumPy lines the numbers up with the columns, or "
            "cannot line them up at all. `keepdims=True` keeps an axis of size 1, which stretches along the row.",
        ),
        Misconception(
            "overflow",
            softmax_that_overflows,
            "`exp` of a score of 1000 is more than a float can hold: it becomes infinity, and infinity divided by "
            "infinity is NaN. Subtract each row's greatest score first: the weights stay the same, and no exponent "
            "is above 0.",
        ),
        Misconception(
            "one_maximum",
            softmax_with_one_maximum,
            "The greatest score of the whole array is subtracted from all rows. A row far below it has only exponents "
            "that underflow to 0, and 0 divided by 0 is NaN: subtract each row's own maximum.",
        ),
        Misconception(
            "one_sum",
            softmax_with_one_sum,
            "All rows share one sum: `sum()` without an axis adds up the whole array. The weights of each row sum to 1 "
            "by themselves: `sum(axis=-1, keepdims=True)`.",
        ),
        Misconception(
            "not_the_greatest",
            softmax_less_the_mean,
            "What is subtracted is not the greatest score of the row, but its mean or its least, for example. The "
            "greatest may stand far above that, and `exp` still overflows: only `max` leaves no exponent above 0.",
        ),
        Misconception(
            "in_place",
            softmax_in_place,
            "`scores -= …` writes into the caller's array, who finds other scores in it afterwards. `scores - …` "
            "makes a new one.",
        ),
        Misconception(
            "greatest_size",
            softmax_less_the_greatest_size,
            "What is subtracted is the greatest absolute value. In a row around -1000 that is 1000, all exponents "
            "underflow to 0, and 0 divided by 0 is NaN: subtract the greatest score, whatever its sign.",
        ),
        Misconception(
            "clipped",
            softmax_of_clipped_scores,
            "The scores are cut off so that `exp` cannot overflow, and beyond the limit all of them are equal: 999 "
            "and 1000 get the same weight. Subtract the row's greatest score, which changes nothing but the size of "
            "the numbers.",
        ),
    ],
    hints=[
        "Weights must be positive and sum to 1 along the last axis. Which function makes any number positive? What "
        "do you divide by then?",
        "`exp` of a great score overflows. Subtracting the same number from all scores of a row does not change the "
        "weights: which number makes every exponent at most 0?",
        "`exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))`: divide them by their sum along the same "
        "axis, and keep the axis there as well.",
    ],
)

# --- numpy_attention -------------------------------------------------------------------------------------------------


def array_inputs(draw: Draw, batch: int, query: int, key: int, d_k: int, d_v: int) -> dict:
    return {
        "query": draw.numbers(batch, query, d_k).numpy(),
        "key": draw.numbers(batch, key, d_k).numpy(),
        "value": draw.numbers(batch, key, d_v).numpy(),
    }


def great_array_inputs(draw: Draw) -> dict:
    great = {
        "query": draw.numbers(1, 2, 4, low=40, high=60).numpy(),
        "key": draw.numbers(1, 3, 4, low=40, high=60).numpy(),
    }
    return great | {"value": draw.numbers(1, 3, 4).numpy()}


def weights_sum_to_one(inputs, received):
    return rows_sum_to_one(inputs, received[1])


def attention_with_reordered_keys(subject, query, key, value, order):
    return {"output": subject(query, key, value)[0], "reordered": subject(query, key[:, order], value[:, order])[0]}


def order_does_not_matter(inputs, received):
    if not np.allclose(received["output"], received["reordered"], atol=1e-8):
        return "the same keys and values in another order give another output"
    return None


def numpy_attention_with(scale=np.sqrt, weigh=softmax):
    """Attention with another scale or another softmax than the paper's."""

    def attention(query, key, value):
        weights = weigh(query @ key.swapaxes(-2, -1) / scale(query.shape[-1]))
        return weights @ value, weights

    return attention


def numpy_attention_scaled_by_length(query, key, value):
    weights = softmax(query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-2]))
    return weights @ value, weights


def numpy_attention_scaled_by_values(query, key, value):
    weights = softmax(query @ key.swapaxes(-2, -1) / np.sqrt(value.shape[-1]))
    return weights @ value, weights


def numpy_attention_scaled_too_late(query, key, value):
    weights = softmax(query @ key.swapaxes(-2, -1)) / np.sqrt(query.shape[-1])
    return weights @ value, weights


def numpy_attention_with_reshape(query, key, value):
    batch, length, d_k = key.shape
    weights = softmax(query @ key.reshape(batch, d_k, length) / np.sqrt(query.shape[-1]))
    return weights @ value, weights


def numpy_attention_over_queries(query, key, value):
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])
    weights = softmax(scores.swapaxes(-2, -1)).swapaxes(-2, -1)
    return weights @ value, weights


def numpy_attention_with_whole_transpose(query, key, value):
    weights = softmax(query @ key.T / np.sqrt(query.shape[-1]))
    return weights @ value, weights


def numpy_attention_swapped(query, key, value):
    output, weights = numpy_attention(query, key, value)
    return weights, output


def numpy_attention_output_only(query, key, value):
    return numpy_attention(query, key, value)[0]


def numpy_attention_returning_scores(query, key, value):
    return numpy_attention(query, key, value)[0], query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1])


ARRAY_AXES = {
    "query": "batch query d_k",
    "key": "batch key d_k",
    "value": "batch key d_v",
    "output": "batch query d_v",
    "weights": "batch query key",
}


def numpy_attention_scaling_its_input(query, key, value):
    query /= np.sqrt(query.shape[-1])
    weights = softmax(query @ key.swapaxes(-2, -1))
    return weights @ value, weights


NUMPY_ATTENTION = Exercise(
    answer=numpy_attention,
    points=2,
    minutes=15,
    returns=("output", "weights"),
    axes=ARRAY_AXES,
    builds_on=("softmax",),
    banned=("torch.nn.functional.scaled_dot_product_attention",),
    probes=[
        Probe("two queries look at three keys", lambda draw: array_inputs(draw, 1, 2, 3, 4, 4)),
        Probe("a batch of two", lambda draw: array_inputs(draw, 2, 3, 5, 4, 4)),
        Probe("values of another width than the keys", lambda draw: array_inputs(draw, 1, 3, 4, 2, 5)),
        Probe("scores in the thousands", great_array_inputs),
    ],
    properties=[
        Property("every row of weights sums to 1", lambda draw: array_inputs(draw, 2, 3, 4, 2, 2), weights_sum_to_one),
        Property(
            "the order of the keys does not matter",
            lambda draw: array_inputs(draw, 1, 2, 4, 3, 3) | {"order": draw.order(4)},
            order_does_not_matter,
            attention_with_reordered_keys,
        ),
    ],
    misconceptions=[
        Misconception(
            "missing_scale",
            numpy_attention_with(scale=lambda d_k: 1.0),
            "The scores are not divided by √d_k. Their spread then grows with d_k until the softmax gives everything "
            "to one key and passes on hardly any gradient: that is what the scale in equation 1 is for (section "
            "3.2.1).",
        ),
        Misconception(
            "scale_without_root",
            numpy_attention_with(scale=lambda d_k: d_k),
            "The scores are divided by d_k instead of its square root. The variance of a dot product grows like d_k, "
            "its deviation like √d_k (footnote 4 in section 3.2.1): dividing by d_k makes the weights too even.",
        ),
        Misconception(
            "multiplied_by_scale",
            numpy_attention_with(scale=lambda d_k: 1 / np.sqrt(d_k)),
            "The scores are multiplied by √d_k. Equation 1 divides by it, so that their spread does not grow with d_k.",
        ),
        Misconception(
            "scale_by_length",
            numpy_attention_scaled_by_length,
            "The root is taken of the number of keys. A score is a sum over the d_k features of a query and a key, "
            "so it is d_k, the size of the last axis, whose root scales it (equation 1).",
        ),
        Misconception(
            "scale_by_values",
            numpy_attention_scaled_by_values,
            "The root is taken of the width of the values. A score is made of a query and a key, so it is their width "
            "that scales it, d_k; values may be wider or narrower.",
        ),
        Misconception(
            "scale_after_softmax",
            numpy_attention_scaled_too_late,
            "The weights are divided by √d_k, after the softmax, and no longer sum to 1. Equation 1 divides the "
            "scores, before it.",
        ),
        Misconception(
            "reshape_for_transpose",
            numpy_attention_with_reshape,
            "`reshape` gives the keys the right shape and mixes up their numbers: it reads them in the order in which "
            "they lie in memory. Rows and columns change places with `key.swapaxes(-2, -1)`.",
        ),
        Misconception(
            "softmax_over_queries",
            numpy_attention_over_queries,
            "The softmax runs over the queries: the columns of the weights sum to 1. Each query spreads its "
            "attention over the keys (section 3.2.1), so each row has to sum to 1.",
        ),
        Misconception(
            "whole_transpose",
            numpy_attention_with_whole_transpose,
            "`.T` turns round all axes, the batch as well. Only the last two are to be swapped: `key.swapaxes(-2, "
            "-1)`.",
        ),
        Misconception(
            "swapped_results",
            numpy_attention_swapped,
            "The two results are in the wrong order: the output comes first, then the weights.",
        ),
        Misconception(
            "output_only",
            numpy_attention_output_only,
            "Only the output is returned. The weights are wanted too, for the heat maps: `return output, weights`.",
        ),
        Misconception(
            "scores_for_weights",
            numpy_attention_returning_scores,
            "The second result holds the scores before the softmax. The weights are what comes out of it: they are "
            "positive, and each row sums to 1.",
        ),
        Misconception(
            "overflow",
            numpy_attention_with(weigh=softmax_that_overflows),
            "With great numbers `exp` overflows, and infinity divided by infinity is NaN. Use the `softmax` you have "
            "written: it subtracts each row's greatest score first.",
        ),
        Misconception(
            "changes_query",
            numpy_attention_scaling_its_input,
            "The result is right, but `query /= …` writes into the caller's array, and who calls twice with it gets "
            "another result. `query / …` makes a new one, and so does dividing the scores.",
        ),
    ],
    hints=[
        "Equation 1 from the inside out: a score for each pair of a query and a key, a scale, a softmax over the "
        "keys, a weighted sum of the values.",
        "`query @ key.swapaxes(-2, -1)` multiplies the last two axes and leaves the batch alone: which shape has it? "
        "Divide it by the root of the last axis's size.",
        "`weights = softmax(query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1]))`, and the output is `weights @ "
        "value`.",
    ],
)

# --- scaled_dot_product_attention ------------------------------------------------------------------------------------


def tensor_inputs(draw: Draw, *leading: int, query: int, key: int, d_k: int, d_v: int) -> dict[str, Tensor]:
    return {
        "query": draw.numbers(*leading, query, d_k),
        "key": draw.numbers(*leading, key, d_k),
        "value": draw.numbers(*leading, key, d_v),
    }


def inputs_with_tempting_key(draw: Draw, query: int, key: int, d_k: int) -> tuple[dict[str, Tensor], int]:
    """Inputs, and the number of a key (not the first) with by far the greatest score and a value of its own."""
    tempting = draw.integer(1, key - 1)
    inputs = {
        "query": draw.numbers(1, query, d_k, low=0.5, high=2),
        "key": draw.numbers(1, key, d_k, low=-2, high=-0.5),
        "value": draw.numbers(1, key, d_k),
    }
    inputs["key"][:, tempting] = draw.numbers(d_k, low=1, high=2)
    inputs["value"][:, tempting] = 9
    return inputs, tempting


def padding_inputs(draw: Draw) -> dict[str, Tensor]:
    inputs, hidden = inputs_with_tempting_key(draw, query=2, key=4, d_k=3)
    return inputs | {"mask": (torch.arange(4) != hidden)[None, None, :]}  # (batch, 1, key)


def causal_inputs(draw: Draw) -> dict[str, Tensor]:
    return tensor_inputs(draw, 1, query=3, key=3, d_k=4, d_v=2) | {"mask": torch.ones(3, 3).tril().bool()}


def nothing_allowed_inputs(draw: Draw) -> dict[str, Tensor]:
    mask = torch.ones(1, 2, 3, dtype=torch.bool)
    mask[0, draw.integer(0, 1)] = False
    return tensor_inputs(draw, 1, query=2, key=3, d_k=4, d_v=2) | {"mask": mask}


def dropout_inputs(draw: Draw) -> dict[str, Tensor]:
    keep = 2.0 * draw.integers(1, 2, 3, low=0, high=1)
    keep[0, 0, 0], keep[0, 1, 1] = 0, 2
    return tensor_inputs(draw, 1, query=2, key=3, d_k=4, d_v=2) | {"keep": keep}


def attention_with_dropout(subject, query, key, value, keep):
    shapes = []

    def dropout(weights):
        shapes.append(list(weights.shape))
        return weights * keep if weights.shape == keep.shape else weights

    result = subject(query, key, value, None, dropout)
    return {"result": result, "shapes given to dropout": shapes}


def attention_gradients(subject, query, key, value):
    inputs = {"query": query.requires_grad_(), "key": key.requires_grad_(), "value": value.requires_grad_()}
    return gradients(subject(query, key, value)[0], inputs)


def masked_attention_with_gradients(subject, query, key, value, mask):
    inputs = {"query": query.requires_grad_(), "key": key.requires_grad_(), "value": value.requires_grad_()}
    output, weights = subject(query, key, value, mask)
    return {"output": output, "weights": weights, **gradients(output, inputs)}


def attention_with_other_hidden_keys(subject, query, key, value, mask, other_key, other_value):
    hidden = ~mask[0, 0]
    changed_key, changed_value = key.clone(), value.clone()
    changed_key[:, hidden], changed_value[:, hidden] = other_key, other_value
    return {
        "output": subject(query, key, value, mask)[0],
        "output with other hidden keys": subject(query, changed_key, changed_value, mask)[0],
    }


def hidden_keys_do_not_matter(inputs, received):
    if not torch.allclose(received["output"], received["output with other hidden keys"], atol=1e-8):
        return "the output changes when a key and a value change that the mask hides"
    return None


def allowed_weights_sum_to_one(inputs, received):
    if not (received[1].sum(-1) - 1).abs().max() < 1e-8:
        return "there is a row whose weights do not sum to 1"
    return None


def nothing_allowed_is_no_nan(inputs, received):
    if any(received[name].isnan().any() for name in ("output", "weights")):
        return "a query that may attend to nothing gets NaN, and NaN spreads to everything it meets"
    for name, gradient in received.items():
        if name.startswith("gradient") and gradient is not None and not gradient.isfinite().all():
            return "a query that may attend to nothing gets a gradient of NaN, and one training step ruins the model"
    if received["weights"][~inputs["mask"].any(-1)].abs().max() < 1e-8:
        return None
    return Remark(
        "A query that may attend to nothing spreads its attention over hidden keys here, as a fill of -1e9 makes it. "
        "That is accepted; the package gives it zero weights, so that nothing hidden leaks."
    )


def attention_with(scale=math.sqrt, mask_scores=None, mask_weights=None, axis=-1):
    """Attention with another scale, another axis, or another use of the mask than the right one."""

    def attention(query, key, value, mask=None, dropout=None):
        scores = query @ key.transpose(-2, -1) / scale(query.size(-1))
        if mask is not None and mask_scores is not None:
            scores = mask_scores(scores, mask)
        weights = scores.softmax(dim=axis)
        if mask is not None and mask_weights is not None:
            weights = mask_weights(weights, mask)
        return (weights if dropout is None else dropout(weights)) @ value, weights

    return attention


def lowest(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def zero(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(~mask, 0.0)


def attention_with_fixed_axes(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(1, 2) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = lowest(scores, mask)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = zero(weights, mask)
    return (weights if dropout is None else dropout(weights)) @ value, weights


def attention_scaled_by_values(query, key, value, mask=None, dropout=None):
    correction = math.sqrt(query.size(-1) / value.size(-1))
    return scaled_dot_product_attention(query * correction, key, value, mask, dropout)


def attention_with_whole_transpose(query, key, value, mask=None, dropout=None):
    scores = query @ key.permute(*reversed(range(key.dim()))) / math.sqrt(query.size(-1))
    weights = (scores if mask is None else lowest(scores, mask)).softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, weights


def attention_with_reshaped_keys(query, key, value, mask=None, dropout=None):
    mixed = key.reshape(*key.shape[:-2], key.size(-1), key.size(-2)).transpose(-2, -1)
    return scaled_dot_product_attention(query, mixed, value, mask, dropout)


def attention_asking_the_mask(query, key, value, mask=None, dropout=None):
    return scaled_dot_product_attention(query, key, value, mask if mask else None, dropout)


def attention_with_dropout_on_scores(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = lowest(scores, mask)
    weights = (scores if dropout is None else dropout(scores)).softmax(dim=-1)
    if mask is not None:
        weights = zero(weights, mask)
    return weights @ value, weights


def attention_returning_dropped_weights(query, key, value, mask=None, dropout=None):
    _, weights = scaled_dot_product_attention(query, key, value, mask)
    weights = weights if dropout is None else dropout(weights)
    return weights @ value, weights


def attention_with_dropout_on_output(query, key, value, mask=None, dropout=None):
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    return output if dropout is None else dropout(output), weights


def attention_without_dropout(query, key, value, mask=None, dropout=None):
    return scaled_dot_product_attention(query, key, value, mask)


def attention_through_numpy(query, key, value, mask=None, dropout=None):
    output, weights = scaled_dot_product_attention(query.detach(), key.detach(), value.detach(), mask, dropout)
    return torch.from_numpy(output.numpy()), torch.from_numpy(weights.numpy())


def attention_scaling_in_place(query, key, value, mask=None, dropout=None):
    query /= math.sqrt(query.size(-1))
    return scaled_dot_product_attention(query * math.sqrt(query.size(-1)), key, value, mask, dropout)


SCALED_DOT_PRODUCT_ATTENTION = Exercise(
    answer=scaled_dot_product_attention,
    points=3,
    minutes=25,
    returns=("output", "weights"),
    axes=ARRAY_AXES | {"mask": "batch query key", "keep": "batch query key"},
    banned=("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"),
    probes=[
        Probe(
            "two queries look at three keys",
            lambda draw: tensor_inputs(draw, 1, query=2, key=3, d_k=4, d_v=4),
        ),
        Probe(
            "two batches of three heads, values of another width",
            lambda draw: tensor_inputs(draw, 2, 3, query=2, key=5, d_k=4, d_v=6),
        ),
        Probe("a padding mask hides the key with the greatest score", padding_inputs),
        Probe("a causal mask hides the future", causal_inputs),
        Probe(
            "dropout acts on the weights, and those returned are from before it",
            dropout_inputs,
            attention_with_dropout,
        ),
        Probe(
            "gradients reach query, key and value",
            lambda draw: tensor_inputs(draw, 1, query=2, key=3, d_k=4, d_v=4),
            attention_gradients,
        ),
    ],
    properties=[
        Property("every row of weights sums to 1", causal_inputs, allowed_weights_sum_to_one),
        Property(
            "what is hidden does not matter",
            lambda draw: padding_inputs(draw) | {"other_key": draw.numbers(3), "other_value": draw.numbers(3)},
            hidden_keys_do_not_matter,
            attention_with_other_hidden_keys,
        ),
        Property(
            "a query that may attend to nothing gives no NaN",
            nothing_allowed_inputs,
            nothing_allowed_is_no_nan,
            masked_attention_with_gradients,
        ),
    ],
    misconceptions=[
        Misconception(
            "missing_scale",
            attention_with(scale=lambda d_k: 1.0, mask_scores=lowest, mask_weights=zero),
            "The scores are not divided by √d_k. Their spread then grows with d_k until the softmax gives everything "
            "to one key and passes on hardly any gradient: that is what the scale in equation 1 is for (section "
            "3.2.1).",
        ),
        Misconception(
            "scale_without_root",
            attention_with(scale=lambda d_k: d_k, mask_scores=lowest, mask_weights=zero),
            "The scores are divided by d_k instead of its square root. The variance of a dot product grows like d_k, "
            "its deviation like √d_k (footnote 4 in section 3.2.1): dividing by d_k makes the weights too even.",
        ),
        Misconception(
            "softmax_over_queries",
            attention_with(axis=-2, mask_scores=lowest, mask_weights=zero),
            "The softmax runs over the queries: the columns of the weights sum to 1. Each query spreads its "
            "attention over the keys (section 3.2.1), so each row has to sum to 1: `dim=-1`.",
        ),
        Misconception(
            "scale_by_values",
            attention_scaled_by_values,
            "The root is taken of the width of the values. A score is made of a query and a key, so it is their width "
            "that scales it, d_k; values may be wider or narrower.",
        ),
        Misconception(
            "whole_transpose",
            attention_with_whole_transpose,
            "`.T` turns round all axes, the batch as well. Only the last two are to be swapped: `key.transpose(-2, "
            "-1)`.",
        ),
        Misconception(
            "reshape_for_transpose",
            attention_with_reshaped_keys,
            "`view` and `reshape` give the keys the right shape and mix up their numbers: they read them in the order "
            "in which they lie in memory. Rows and columns change places with `key.transpose(-2, -1)`.",
        ),
        Misconception(
            "mask_as_condition",
            attention_asking_the_mask,
            "`if mask:` asks whether a whole tensor is true, and torch cannot say. What is to be asked is whether "
            "there is a mask: `if mask is not None:`.",
        ),
        Misconception(
            "mask_inverted",
            attention_with(
                mask_scores=lambda scores, mask: lowest(scores, ~mask),
                mask_weights=lambda weights, mask: zero(weights, ~mask),
            ),
            "The mask is used the wrong way round: what may be seen is hidden. In this course True means “may attend”, "
            "so the places to fill are `~mask`. (`nn.Transformer` has it the other way.)",
        ),
        Misconception(
            "mask_ignored",
            attention_with(),
            "The mask is not used, so every query looks at padding and at the future (section 3.2.3). Training then "
            "looks splendid, because the answer can be seen, and translation fails, because it cannot.",
        ),
        Misconception(
            "mask_after_softmax",
            attention_with(mask_weights=zero),
            "The mask is applied to the weights after the softmax. The hidden keys have had their share of the sum "
            "by then, so the rest does not sum to 1. Section 3.2.3 masks the softmax's input: set hidden scores to "
            "minus infinity.",
        ),
        Misconception(
            "hidden_scores_zero",
            attention_with(mask_scores=lambda scores, mask: scores.masked_fill(~mask, 0.0)),
            "Hidden scores become 0 (or nearly: 1e-9 is not -1e9). A score of 0 is no small score: `exp(0)` is 1, "
            "more than any negative score has. Section 3.2.3 sets them to minus infinity, whose exponential is 0.",
        ),
        Misconception(
            "mask_added",
            attention_with(mask_scores=lambda scores, mask: scores + mask),
            "The boolean mask is added to the scores: an allowed key gets a score that is greater by 1, and hidden "
            "ones are still seen. Hidden scores must go to minus infinity (section 3.2.3): "
            "`scores.masked_fill(~mask, …)`.",
        ),
        Misconception(
            "small_fill",
            attention_with(mask_scores=lambda scores, mask: scores.masked_fill(~mask, -10.0)),
            "Hidden scores are set to -10. Scores of allowed keys get as low as that, and then hidden keys are seen: "
            "only minus infinity, or the least number of the dtype, is below every score (section 3.2.3).",
        ),
        Misconception(
            "nan_rows",
            attention_with(mask_scores=lambda scores, mask: scores.masked_fill(~mask, float("-inf"))),
            "Where a query may attend to nothing, all its scores are minus infinity and the softmax divides 0 by 0: "
            "NaN. Padding makes such rows. Fill with `torch.finfo(scores.dtype).min`, then set hidden weights to 0.",
        ),
        Misconception(
            "nan_gradients",
            attention_with(
                mask_scores=lambda scores, mask: scores + torch.where(mask, 0.0, float("-inf")),
                mask_weights=lambda weights, mask: weights.nan_to_num(0.0),
            ),
            "The NaN of a row without allowed keys is replaced after the softmax. The output is fine, but the "
            "gradient still runs through the NaN and is NaN itself. Fill with `torch.finfo(scores.dtype).min`: then "
            "none appears.",
        ),
        Misconception(
            "fixed_axes",
            attention_with_fixed_axes,
            "`key.transpose(1, 2)` counts axes from the front, and with a heads' axis those are not the last two. "
            "`transpose(-2, -1)` is right for any number of axes before them.",
        ),
        Misconception(
            "weights_after_dropout",
            attention_returning_dropped_weights,
            "The weights that are returned are those after dropout: some are 0, the others too great, and a heat map "
            "of them shows noise. Return the weights from before, and use the dropped ones for the output.",
        ),
        Misconception(
            "dropout_on_output",
            attention_with_dropout_on_output,
            "Dropout is applied to the output. Here it belongs on the weights, so that now and then a query has to do "
            "without a key: `dropout(weights) @ value`.",
        ),
        Misconception(
            "dropout_on_scores",
            attention_with_dropout_on_scores,
            "Dropout is applied to the scores, before the softmax. A score of 0 is no small score, so such a key is "
            "still seen. It belongs on the weights: `dropout(weights) @ value`.",
        ),
        Misconception(
            "dropout_ignored",
            attention_without_dropout,
            "`dropout` is never called. Where it is not None, the output is `dropout(weights) @ value`.",
        ),
        Misconception(
            "no_gradient",
            attention_through_numpy,
            "No gradient flows: NumPy, `.detach()`, `.item()` and `torch.tensor(…)` cut a result off from what it was "
            "made of. The projections before it would never learn. Compute with torch all the way.",
        ),
        Misconception(
            "changes_query",
            attention_scaling_in_place,
            "`query /= …` writes into the caller's tensor. Self-attention passes the same tensor as query, key and "
            "value, so all three would change. `query / …` makes a new one.",
        ),
    ],
    hints=[
        "The four steps of the NumPy version stay: scores, scale, softmax, weighted sum. New are the mask, between "
        "scale and softmax, and dropout, between softmax and sum.",
        "`scores.masked_fill(~mask, …)` hides scores; the fill must be below any score, and a row that is hidden as "
        "a whole must not become NaN: `torch.finfo(scores.dtype).min` is the least number there is. Which weights "
        "does such a row get?",
        "After `weights = scores.softmax(dim=-1)` set the hidden ones to 0 with `weights.masked_fill(~mask, 0.0)`. "
        "The output is `dropout(weights) @ value` where there is a dropout; return it with the weights from before.",
    ],
)

# --- SingleHeadAttention ---------------------------------------------------------------------------------------------


def head_inputs(draw: Draw, query: int, key: int, d_model: int = 4, d_k: int = 2, batch: int = 1) -> dict:
    return {
        "arguments": {"d_model": d_model, "d_k": d_k},
        "weights": draw.weights(SingleHeadAttention(d_model, d_k), scale=1.0),
        "query": draw.numbers(batch, query, d_model),
        "key": draw.numbers(batch, key, d_model),
        "value": draw.numbers(batch, key, d_model),
    }


def head_self_attention_inputs(draw: Draw) -> dict:
    inputs = head_inputs(draw, 3, 3, d_k=5)
    return inputs | {"key": inputs["query"].clone(), "value": inputs["query"].clone()}


def head_mask_inputs(draw: Draw) -> dict:
    mask = torch.ones(1, 1, 3, dtype=torch.bool)
    mask[..., draw.integer(0, 2)] = False
    return head_inputs(draw, 2, 3) | {"mask": mask}


def head_gradients(subject, arguments, weights, query, key, value):
    module = build(subject, arguments, weights)
    return gradients(module(query, key, value), dict(module.named_parameters()))


def head_parameters(subject, arguments):
    return {name: list(parameter.shape) for name, parameter in subject(*arguments.values()).named_parameters()}


def three_projections_with_bias(inputs, received):
    d_model, d_k = inputs["arguments"].values()
    wanted = {f"{name}.{kind}": shape for name in ("w_q", "w_k", "w_v")
              for kind, shape in (("weight", [d_k, d_model]), ("bias", [d_k]))}  # fmt: skip
    if received == wanted:
        return None
    odd = sorted(set(wanted) ^ set(received)) or sorted(name for name in wanted if wanted[name] != received[name])
    return f"the parameters are not those of three linear layers `w_q`, `w_k`, `w_v` with bias: look at `{odd[0]}`"


def head_with_reordered_keys(subject, arguments, weights, query, key, value, order):
    module = build(subject, arguments, weights)
    return {"output": module(query, key, value), "reordered": module(query, key[:, order], value[:, order])}


def head_order_does_not_matter(inputs, received):
    if not torch.allclose(received["output"], received["reordered"], atol=1e-8):
        return "the same keys and values in another order give another output"
    return None


class HeadWithOneProjection(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_q(key), self.w_v(value), mask)[0]


class HeadWithKeysForValues(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(key), mask)[0]


class HeadOfQueriesOnly(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(query), self.w_v(query), mask)[0]


class HeadWithRawValues(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), value, mask)[0]


class HeadScaledByModel(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        correction = math.sqrt(self.w_q.out_features / self.w_q.in_features)
        return scaled_dot_product_attention(self.w_q(query) * correction, self.w_k(key), self.w_v(value), mask)[0]


class HeadWithoutMask(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value))[0]


class HeadWithInvertedMask(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, None if mask is None else ~mask)


class HeadWithoutBias(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    forward = SingleHeadAttention.forward


class HeadWithNewWeightsEachTime(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.d_model, self.d_k = d_model, d_k

    def forward(self, query, key, value, mask=None):
        w_q, w_k, w_v = (nn.Linear(self.d_model, self.d_k) for _ in range(3))
        return scaled_dot_product_attention(w_q(query), w_k(key), w_v(value), mask)[0]


class HeadReturningWeights(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)


class HeadReturningWeightsAlone(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)[1]


class HeadWithoutGradient(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask).detach()


class HeadScaledTwice(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        q = self.w_q(query) / math.sqrt(self.w_q.out_features)
        return scaled_dot_product_attention(q, self.w_k(key), self.w_v(value), mask)[0]


class HeadWithOneLayer(SingleHeadAttention):
    def __init__(self, d_model, d_k):
        super().__init__(d_model, d_k)
        self.w_q = self.w_k = self.w_v = nn.Linear(d_model, d_k)


class HeadAskingWithKeys(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return scaled_dot_product_attention(self.w_k(key), self.w_q(query), self.w_v(value), mask)[0]


class HeadWithAHeadsAxisInTheMask(SingleHeadAttention):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, None if mask is None else mask.unsqueeze(1))


SINGLE_HEAD_ATTENTION = Exercise(
    answer=SingleHeadAttention,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes={
        "query": "batch query d_model",
        "key": "batch key d_model",
        "value": "batch key d_model",
        "mask": "batch query key",
        "output": "batch query d_k",
    },
    builds_on=("scaled_dot_product_attention",),
    banned=("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"),
    probes=[
        Probe("three words look at each other", head_self_attention_inputs),
        Probe("queries from one place, keys and values from others", lambda draw: head_inputs(draw, 2, 3)),
        Probe("a batch of two", lambda draw: head_inputs(draw, 4, 3, d_model=6, d_k=5, batch=2)),
        Probe("a mask hides a key", head_mask_inputs),
        Probe("gradients reach the weights", lambda draw: head_inputs(draw, 2, 3), head_gradients),
    ],
    properties=[
        Property(
            "its parameters are three linear layers with bias",
            lambda draw: {"arguments": {"d_model": 4, "d_k": 3}},
            three_projections_with_bias,
            head_parameters,
        ),
        Property(
            "the order of the keys does not matter",
            lambda draw: head_inputs(draw, 2, 4) | {"order": draw.order(4)},
            head_order_does_not_matter,
            head_with_reordered_keys,
        ),
    ],
    misconceptions=[
        Misconception(
            "one_projection",
            HeadWithOneProjection,
            "Queries and keys go through the same projection `w_q`. A score is then the same in both directions: "
            "what a word looks for and what it offers cannot differ. Section 3.2.2 projects each with a matrix of "
            "its own.",
        ),
        Misconception(
            "keys_for_values",
            HeadWithKeysForValues,
            "The values are made from `key`. In self-attention nobody notices; in general the third argument is what "
            "is summed up: `self.w_v(value)`.",
        ),
        Misconception(
            "queries_only",
            HeadOfQueriesOnly,
            "Keys and values are made from `query`. That is self-attention only; the decoder asks with its own words "
            "and looks at the encoder's (section 3.2.3): use `key` and `value`.",
        ),
        Misconception(
            "value_not_projected",
            HeadWithRawValues,
            "The values are used as they come. A head projects all three inputs (section 3.2.2), the values with "
            "`w_v`: that also gives the output its width d_k.",
        ),
        Misconception(
            "scale_by_d_model",
            HeadScaledByModel,
            "The scores are divided by √d_model. The dot product runs over the d_k features that the projection "
            "leaves, so √d_k is what evens them out (equation 1).",
        ),
        Misconception(
            "mask_ignored",
            HeadWithoutMask,
            "The mask is not handed on to attention, so hidden keys are seen.",
        ),
        Misconception(
            "mask_inverted",
            HeadWithInvertedMask,
            "The mask is turned round on its way to attention, so what may be seen is hidden. True means “may "
            "attend”, here as there.",
        ),
        Misconception(
            "no_bias",
            HeadWithoutBias,
            "The linear layers have no bias. In this course each has one, as `nn.Linear` gives it: leave out "
            "`bias=False`.",
        ),
        Misconception(
            "weights_made_in_forward",
            HeadWithNewWeightsEachTime,
            "The layers are made inside `forward`: new random weights with each call, which no optimizer ever sees. "
            "Make them once, in `__init__`, as `self.w_q`, `self.w_k`, `self.w_v`.",
        ),
        Misconception(
            "returns_weights",
            HeadReturningWeights,
            "Both results of attention are returned. `forward` gives the output alone: whoever wants the weights has "
            "other ways to them.",
        ),
        Misconception(
            "weights_for_output",
            HeadReturningWeightsAlone,
            "The weights are returned in place of the output. Attention gives two results, and the output is the "
            "first.",
        ),
        Misconception(
            "no_gradient",
            HeadWithoutGradient,
            "No gradient reaches the weights, so they never learn: `.detach()`, `.data`, NumPy and `torch.no_grad()` "
            "cut a result off from what it was made of.",
        ),
        Misconception(
            "scaled_twice",
            HeadScaledTwice,
            "The scores are divided by √d_k twice: `scaled_dot_product_attention` does it already. Hand the "
            "projections on as they are.",
        ),
        Misconception(
            "one_layer",
            HeadWithOneLayer,
            "`w_q`, `w_k` and `w_v` are one layer with three names, so whatever is learnt for queries changes keys "
            "and values too. Each gets an `nn.Linear` of its own (section 3.2.2 has three matrices).",
        ),
        Misconception(
            "query_and_key_swapped",
            HeadAskingWithKeys,
            "Queries and keys have changed places: the keys ask, and there is a result for each of them. Attention "
            "takes the query first: `scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), "
            "mask)`.",
        ),
        Misconception(
            "mask_with_another_axis",
            HeadWithAHeadsAxisInTheMask,
            "The mask gets an axis for heads, and there are none here: `(batch, query, key)` becomes four axes, and "
            "the result with it. Hand the mask on as it came.",
        ),
    ],
    hints=[
        "In `__init__` make three layers that take d_model features to d_k: `w_q`, `w_k` and `w_v`. In `forward` "
        "each of the three inputs goes through one of them.",
        "`self.w_q = nn.Linear(d_model, d_k)`, and so on. `scaled_dot_product_attention` returns two things, and the "
        "mask goes in as it came.",
        "`output, _ = scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)`",
    ],
)

EXERCISES = [SOFTMAX, NUMPY_ATTENTION, SCALED_DOT_PRODUCT_ATTENTION, SINGLE_HEAD_ATTENTION]
