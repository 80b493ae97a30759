"""Notebook 01, attention: section 3.2.1 in NumPy, then in torch, then one head of section 3.2.2."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import build, call_module, gradients, gradients_of_weights, names_and_shapes
from transformer_lab.exercises.rules import Rule, same_results, unless
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import SingleHeadAttention, numpy_attention, scaled_dot_product_attention, softmax

# --- softmax ---------------------------------------------------------------------------------------------------------


def wide_row(sampler: InputSampler) -> dict:
    """Return two scores near -1000 and two near 1000, all different, in random order."""
    low, high = sampler.integer(1, 30) / 10, sampler.integer(1, 30) / 10
    return {"scores": np.array([-1000.0, low - 1000, 1000 - high, 1000.0])[sampler.order(4)]}


def softmax_of_shifted_scores(subject, scores, shift):
    return {"weights": subject(scores.copy()), "weights of shifted scores": subject(scores + shift)}


ROW_SUM = "the weights of at least one row don't add up to 1"


def rows_sum_to_one(inputs, weights):
    if (weights < 0).any():
        return "some weights are negative"
    return None if np.allclose(weights.sum(-1), 1, atol=1e-8) else ROW_SUM


SOFTMAX = Exercise(
    answer=softmax,
    points=1,
    minutes=10,
    returns=("weights",),
    axes={"scores": "query key", "weights": "query key"},
    banned=(
        *(f"scipy.special.{name}" for name in ("softmax", "log_softmax")),
        *(f"torch.nn.functional.{name}" for name in ("softmax", "log_softmax", "softmin", "gumbel_softmax")),
        *(f"torch.nn.{name}" for name in ("Softmax", "LogSoftmax", "Softmin", "Softmax2d")),
        *("torch.softmax", "torch.log_softmax", "torch.distributions.", ".softmax", ".log_softmax"),
    ),
    probes=[
        Probe("one row of scores", lambda sampler: {"scores": sampler.numbers(4).numpy()}),
        Probe("two rows, each by itself", lambda sampler: {"scores": sampler.numbers(2, 3).numpy()}),
        Probe("a batch of tables: still the last axis", lambda sampler: {"scores": sampler.numbers(2, 3, 4).numpy()}),
        Probe("scores around 1000", lambda sampler: {"scores": 1000 + sampler.numbers(2, 4).numpy()}),
        Probe("scores around -1000", lambda sampler: {"scores": -1000 + sampler.numbers(2, 4).numpy()}),
        Probe(
            "one row around 1000, another around -1000",
            lambda sampler: {"scores": np.array([[1000.0], [-1000.0]]) + sampler.numbers(2, 3).numpy()},
        ),
        Probe("scores from -1000 to 1000 in one row", wide_row),
    ],
    properties=[
        Property(
            "no weight is negative, and every row adds up to 1",
            lambda sampler: {"scores": sampler.numbers(3, 5).numpy()},
            rows_sum_to_one,
        ),
        Property(
            "adding the same number to all scores changes nothing",
            lambda sampler: {"scores": sampler.numbers(2, 4).numpy(), "shift": sampler.integer(1, 9)},
            same_results("adding the same number to all scores changes the weights", np.allclose),
            softmax_of_shifted_scores,
        ),
    ],
)

# --- numpy_attention -------------------------------------------------------------------------------------------------


def attention_inputs(
    sampler: InputSampler, leading: tuple[int, ...], query: int, key: int, d_k: int, d_v: int, **limits: float
) -> dict:
    """Return queries, keys, and values. The numbers in queries and keys are within `limits`."""
    return {
        "query": sampler.numbers(*leading, query, d_k, **limits),
        "key": sampler.numbers(*leading, key, d_k, **limits),
        "value": sampler.numbers(*leading, key, d_v),
    }


def array_inputs(sampler: InputSampler, batch: int, query: int, key: int, d_k: int, d_v: int, **limits: float) -> dict:
    inputs = attention_inputs(sampler, (batch,), query, key, d_k, d_v, **limits)
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def attention_with_reordered_keys(subject, query, key, value, order):
    return {"output": subject(query, key, value)[0], "reordered": subject(query, key[:, order], value[:, order])[0]}


ARRAY_AXES = {
    "query": "batch query d_k",
    "key": "batch key d_k",
    "value": "batch key d_v",
    "output": "batch query d_v",
    "weights": "batch query key",
}

NUMPY_ATTENTION = Exercise(
    answer=numpy_attention,
    points=2,
    minutes=15,
    returns=("output", "weights"),
    axes=ARRAY_AXES,
    builds_on=("softmax",),
    banned=("torch.nn.functional.scaled_dot_product_attention",),
    probes=[
        Probe("a single query and a single key", lambda sampler: array_inputs(sampler, 1, 1, 1, 4, 3)),
        Probe("queries and keys with a single feature", lambda sampler: array_inputs(sampler, 1, 2, 3, 1, 4)),
        Probe("two queries attend to three keys", lambda sampler: array_inputs(sampler, 1, 2, 3, 4, 4)),
        Probe("a batch of two", lambda sampler: array_inputs(sampler, 2, 3, 5, 4, 4)),
        Probe(
            "as many queries and keys as features, and wider values",
            lambda sampler: array_inputs(sampler, 1, 3, 3, 3, 5),
        ),
        Probe("scores in the thousands", lambda sampler: array_inputs(sampler, 1, 2, 3, 4, 4, low=24.9, high=25.1)),
    ],
    properties=[
        Property(
            "no weight is negative, and every row adds up to 1",
            lambda sampler: array_inputs(sampler, 2, 3, 4, 2, 2),
            lambda inputs, received: rows_sum_to_one(inputs, received[1]),
        ),
        Property(
            "the order of the keys doesn't matter",
            lambda sampler: array_inputs(sampler, 1, 2, 4, 3, 3) | {"order": sampler.order(4)},
            same_results("the output changes when the same keys and values come in a different order", np.allclose),
            attention_with_reordered_keys,
        ),
    ],
)

# --- scaled_dot_product_attention ------------------------------------------------------------------------------------


def padding_inputs(sampler: InputSampler) -> dict[str, Tensor]:
    """Hide a key that has by far the highest score and an unusual value. It is not the first one."""
    hidden = sampler.integer(1, 3)
    inputs = {
        "query": sampler.numbers(1, 2, 3, low=0.5, high=2),
        "key": sampler.numbers(1, 4, 3, low=-2, high=-0.5),
        "value": sampler.numbers(1, 4, 3),
    }
    inputs["key"][:, hidden] = sampler.numbers(3, low=1, high=2)
    inputs["value"][:, hidden] = 9
    return inputs | {"mask": (torch.arange(4) != hidden)[None, None, :]}  # (batch, 1, key)


def high_score_inputs(sampler: InputSampler) -> dict[str, Tensor]:
    """Hide a key whose score exceeds the others so far that a softmax over all scores gives them a weight of 0."""
    hidden = sampler.integer(0, 2)
    inputs = {
        "query": sampler.numbers(1, 2, 2, low=0.5, high=2),
        "key": sampler.numbers(1, 3, 2),
        "value": sampler.numbers(1, 3, 2),
    }
    inputs["query"][:, :, 1] = 100
    inputs["key"][:, :, 1] = torch.where(torch.arange(3) == hidden, 20.0, 0.0)
    return inputs | {"mask": (torch.arange(3) != hidden)[None, None, :]}  # (batch, 1, key)


def low_score_inputs(sampler: InputSampler) -> dict[str, Tensor]:
    """Return inputs whose scores are all near -1250. The hidden score is even lower, but far above minus infinity."""
    hidden = sampler.integer(0, 3)
    inputs = {
        "query": sampler.numbers(1, 2, 4, low=24, high=26),
        "key": sampler.numbers(1, 4, 4, low=-25.2, high=-24.8),
        "value": sampler.numbers(1, 4, 3),
    }
    inputs["key"][:, hidden] = -30
    return inputs | {"mask": (torch.arange(4) != hidden)[None, None, :]}  # (batch, 1, key)


def causal_inputs(sampler: InputSampler) -> dict[str, Tensor]:
    return attention_inputs(sampler, (1,), 3, 3, 4, 2) | {"mask": torch.ones(3, 3).tril().bool()}


def nothing_allowed(inputs: Callable[[InputSampler], dict], *leading: int) -> Callable[[InputSampler], dict]:
    """Add a mask to inputs with two queries and three keys. It hides all keys from one of the queries."""

    def masked_inputs(sampler: InputSampler) -> dict:
        mask = torch.ones(*leading, 2, 3, dtype=torch.bool)
        mask[..., sampler.integer(0, 1), :] = False
        return inputs(sampler) | {"mask": mask}

    return masked_inputs


def dropout_inputs(sampler: InputSampler) -> dict[str, Tensor]:
    keep = 2.0 * sampler.integers(1, 2, 3, low=0, high=1)
    keep[0, 0, 0], keep[0, 1, 1] = 0, 2
    return attention_inputs(sampler, (1,), 2, 3, 4, 2) | {"keep": keep}


def attention_with_dropout(subject, query, key, value, keep):
    shapes = []

    def dropout(weights):
        shapes.append(list(weights.shape))
        return weights * keep if weights.shape == keep.shape else weights

    result = subject(query, key, value, None, dropout)
    output, weights = result if isinstance(result, list | tuple) and len(result) == 2 else (result, None)
    return {"output": output, "weights": weights, "shapes given to dropout": shapes}


def attention_gradients(subject, **inputs):
    numbers = {name: inputs[name].requires_grad_() for name in ("query", "key", "value")}
    return gradients(subject(*inputs.values())[0], numbers)


def masked_attention_with_gradients(subject, **inputs):
    numbers = {name: inputs[name].requires_grad_() for name in ("query", "key", "value")}
    output, weights = subject(*inputs.values())
    return {"output": output, "weights": weights, **gradients(output, numbers)}


allowed_weights_sum_to_one = unless(lambda inputs, received: (received[1].sum(-1) - 1).abs().max() < 1e-8, ROW_SUM)


def nan_of_nothing_allowed(received):
    """Say where NaN appears if all keys are hidden from a query. If there is no NaN, return None."""
    grads = [value for name, value in received.items() if name.startswith("gradient") and value is not None]
    if any(value.isnan().any() for name, value in received.items() if not name.startswith("gradient")):
        return "if a mask hides every key from a query, the result is NaN, which spreads to everything it touches"
    if not all(gradient.isfinite().all() for gradient in grads):
        return "if a mask hides every key from a query, a gradient is NaN, and one training step would ruin the model"
    return None


UNIFORM_WEIGHTS = Remark(
    "If a mask hides every key from a query, your code spreads the query's attention over the hidden keys, which is "
    "also what filling with -1e9 does. That's accepted. The package gives such a query zero weights, so that nothing "
    "hidden leaks into its output."
)


def remark_on_uniform_weights(mask, received, expected):
    """If only fully masked rows are wrong, return the remark. Otherwise, return None."""
    is_right = (received - expected).abs().amax(-1) < 1e-6  # (batch, query)
    allowed = mask.any(-1).view(is_right.shape)
    return UNIFORM_WEIGHTS if is_right[allowed].all() and not is_right[~allowed].any() else None


def no_nan_where_nothing_is_allowed(result: str, expected: Callable[[dict], Tensor]) -> Rule:
    """Return a rule that reports NaN, and makes a remark if only the fully masked rows of `result` are unexpected."""

    def rule(inputs, received):
        return nan_of_nothing_allowed(received) or remark_on_uniform_weights(
            inputs["mask"], received[result], expected(inputs)
        )

    return rule


def weights_with_and_without_a_high_score(subject, query, key, value, mask):
    results = {"high score": subject(query, key, value, mask), "zero": subject(query, key * mask.mT, value, mask)}
    return {name: result[1] if isinstance(result, list | tuple) else None for name, result in results.items()}


def visible_weights_remain(inputs, received):
    """Return a remark if the weights of visible keys vanish only because of a hidden key's high score."""
    visible = inputs["mask"][0, 0]
    totals = [weights[..., visible].sum(dim=-1) for weights in received.values() if isinstance(weights, Tensor)]
    if len(totals) < 2 or (totals[0] > 0.5).all() or not torch.allclose(totals[1], torch.ones_like(totals[1])):
        return None
    return Remark(
        "Your softmax includes the scores of hidden keys. If one of them exceeds the others by a lot, here by more "
        "than 1000, the weights of all other keys become 0, and you can't rescale them. That's accepted. If you mask "
        "the scores (section 3.2.3), it can't happen."
    )


SCALED_DOT_PRODUCT_ATTENTION = Exercise(
    answer=scaled_dot_product_attention,
    points=3,
    minutes=25,
    returns=("output", "weights"),
    axes=ARRAY_AXES | {"mask": "batch query key", "keep": "batch query key"},
    banned=("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"),
    probes=[
        Probe("a single query and a single key", lambda sampler: attention_inputs(sampler, (1,), 1, 1, 4, 3)),
        Probe("queries and keys with a single feature", lambda sampler: attention_inputs(sampler, (1,), 2, 3, 1, 4)),
        Probe("two queries attend to three keys", lambda sampler: attention_inputs(sampler, (1,), 2, 3, 4, 4)),
        Probe(
            "a batch of two, three heads, and wider values",
            lambda sampler: attention_inputs(sampler, (2, 3), 2, 5, 4, 6),
        ),
        Probe("a padding mask hides the key with the highest score", padding_inputs),
        Probe("a mask hides a key when all scores are far below zero", low_score_inputs),
        Probe("a causal mask hides the future", causal_inputs),
        Probe(
            "dropout acts on the weights, and the returned weights are those from before dropout",
            dropout_inputs,
            attention_with_dropout,
        ),
        Probe(
            "gradients reach query, key, and value",
            lambda sampler: attention_inputs(sampler, (1,), 2, 3, 4, 4),
            attention_gradients,
        ),
    ],
    properties=[
        Property("every row of weights adds up to 1", causal_inputs, allowed_weights_sum_to_one),
        Property(
            "a query that may attend to nothing gets no NaN",
            nothing_allowed(lambda sampler: attention_inputs(sampler, (1,), 2, 3, 4, 2), 1),
            no_nan_where_nothing_is_allowed("weights", lambda inputs: scaled_dot_product_attention(**inputs)[1]),
            masked_attention_with_gradients,
        ),
        Property(
            "tried: a hidden key whose score exceeds the others by more than 1000",
            high_score_inputs,
            visible_weights_remain,
            weights_with_and_without_a_high_score,
        ),
    ],
)

# --- SingleHeadAttention ---------------------------------------------------------------------------------------------


def head_inputs(sampler: InputSampler, query: int, key: int, d_model: int = 4, d_k: int = 2, batch: int = 1) -> dict:
    return {
        "arguments": {"d_model": d_model, "d_k": d_k},
        "weights": sampler.weights(SingleHeadAttention(d_model, d_k), scale=1.0),
        **attention_inputs(sampler, (batch,), query, key, d_model, d_model),
    }


def to_itself(inputs: dict) -> dict:
    """Return the same inputs for self-attention, in which the queries are also the keys and values."""
    return inputs | {"key": inputs["query"].clone(), "value": inputs["query"].clone()}


def head_mask_inputs(sampler: InputSampler) -> dict:
    mask = (torch.arange(3) != sampler.integer(0, 2))[None, None, :]  # (batch, 1, key)
    return head_inputs(sampler, 2, 3) | {"mask": mask}


def with_other_hidden_keys(sampler: InputSampler, inputs: dict) -> dict:
    """Return a batch of two inputs that differ only at the positions that the mask hides."""
    hidden = ~inputs["mask"].flatten()
    changed = {name: inputs[name].expand(2, -1, -1).clone() for name in ("query", "key", "value")}
    for name in ("key", "value"):
        changed[name][1, hidden] = sampler.numbers(inputs[name].size(-1), low=3, high=5)
    return {"arguments": inputs["arguments"]} | changed | {"mask": inputs["mask"]}


def without(inputs: dict, left_out: str) -> dict:
    return {name: value for name, value in inputs.items() if name != left_out}


def masked_module_with_gradients(subject, arguments, weights, query, key, value, mask):
    module = build(subject, arguments, weights)
    output = module(query, key, value, mask)
    return {"output": output, **gradients(output, dict(module.named_parameters()))}


def three_projections_with_bias(inputs, received):
    wanted = names_and_shapes(SingleHeadAttention, inputs["arguments"])
    if received == wanted:
        return None
    odd = sorted(set(wanted) ^ set(received)) or sorted(name for name in wanted if wanted[name] != received[name])
    return f"expected the parameters of three linear layers `w_q`, `w_k`, and `w_v` with bias: look at `{odd[0]}`"


def output_with_other_hidden_keys(subject, arguments, query, key, value, mask):
    """Call the module with its initial weights, because a mask's effect does not depend on the layers' sizes."""
    output, other = subject(*arguments.values()).eval()(query, key, value, mask)
    return {"output": output, "output with other hidden keys": other}


def inputs_of_layers(subject, arguments, query, key, value):
    """Return the inputs that `w_q`, `w_k`, and `w_v` were called with, even if the call to the module fails later.

    A layer that was not called is left out, because its weights may be used in a different way.
    """
    from contextlib import suppress

    module = subject(*arguments.values())
    seen = {}

    def watch(name):
        def hook(layer, given):
            for other, x in {"query": query, "key": key, "value": value}.items():
                if given[0].shape == x.shape and torch.equal(given[0], x):
                    seen.setdefault(name, []).append(other)

        return hook

    for name in ("w_q", "w_k", "w_v"):
        if isinstance(getattr(module, name, None), nn.Module):
            getattr(module, name).register_forward_pre_hook(watch(name))
    with suppress(Exception):  # such an error is reported by other checks
        module(query, key, value)
    return seen


def layers_get_their_own_inputs(inputs, received):
    own = {"w_q": "query", "w_k": "key", "w_v": "value"}
    wrong = {name: sorted(set(given)) for name, given in received.items() if set(given) != {own[name]}}
    return ", ".join(f"`{name}` gets `{'` and `'.join(given)}`" for name, given in wrong.items()) or None


MODULE_AXES = {"query": "batch query d_model", "key": "batch key d_model", "value": "batch key d_model"}

SINGLE_HEAD_ATTENTION = Exercise(
    answer=SingleHeadAttention,
    blank=("__init__", "forward"),
    points=2,
    minutes=15,
    axes=MODULE_AXES | {"mask": "batch query key", "output": "batch query d_k"},
    builds_on=("scaled_dot_product_attention",),
    banned=("torch.nn.functional.scaled_dot_product_attention", "torch.nn.MultiheadAttention"),
    probes=[
        Probe("two words attend to a single other word", lambda sampler: head_inputs(sampler, 2, 1, d_k=3)),
        Probe("three words attend to one another", lambda sampler: to_itself(head_inputs(sampler, 3, 3, d_k=5))),
        Probe("two words attend to three others", lambda sampler: head_inputs(sampler, 2, 3)),
        Probe("a batch of two", lambda sampler: head_inputs(sampler, 4, 3, d_model=6, d_k=5, batch=2)),
        Probe("a mask hides a key", head_mask_inputs),
        Probe("gradients reach the weights", lambda sampler: head_inputs(sampler, 3, 3), gradients_of_weights),
    ],
    properties=[
        Property(
            "its parameters are those of three linear layers with bias",
            lambda sampler: {"arguments": {"d_model": 4, "d_k": 3}},
            three_projections_with_bias,
            names_and_shapes,
        ),
        Property(
            "no layer gets another layer's input",
            lambda sampler: without(head_inputs(sampler, 2, 3), "weights"),
            layers_get_their_own_inputs,
            inputs_of_layers,
        ),
        Property(
            "hidden keys and values don't matter",
            lambda sampler: with_other_hidden_keys(sampler, head_mask_inputs(sampler)),
            same_results("the output changes when a hidden key and its value change"),
            output_with_other_hidden_keys,
        ),
        Property(
            "a query that may attend to nothing gets no NaN",
            nothing_allowed(lambda sampler: head_inputs(sampler, 2, 3), 1),
            no_nan_where_nothing_is_allowed("output", lambda inputs: call_module(SingleHeadAttention, **inputs)),
            masked_module_with_gradients,
        ),
    ],
)

EXERCISES = [SOFTMAX, NUMPY_ATTENTION, SCALED_DOT_PRODUCT_ATTENTION, SINGLE_HEAD_ATTENTION]
