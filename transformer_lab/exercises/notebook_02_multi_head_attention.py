"""Notebook 02, multi-head attention: section 3.2.2."""

import torch
from torch import Tensor

from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import (
    build,
    call_module,
    exception_of_call,
    gradients,
    gradients_of_weights,
    raised,
)
from transformer_lab.exercises.notebook_01_attention import (
    MODULE_AXES,
    attention_inputs,
    inputs_of_layers,
    layers_get_their_own_inputs,
    masked_module_with_gradients,
    no_nan_where_nothing_is_allowed,
    nothing_allowed,
    to_itself,
    without,
)
from transformer_lab.exercises.rules import refusal, unless
from transformer_lab.exercises.sampling import InputSampler
from transformer_lab.model import MultiHeadAttention, causal_mask, combine_heads, split_heads

# --- split_heads -----------------------------------------------------------------------------------------------------


def any_length_is_split(inputs, received):
    if received == "nothing":
        return None
    return f"{inputs['x'].size(1)} words and {inputs['n_heads']} heads raise `{received}`, but only features are split"


def gradient_of_moved_numbers(subject, x, **others):
    x.requires_grad_()
    return gradients(subject(x, *others.values()), {"x": x})


gradient_passes = unless(
    lambda inputs, received: received["gradient of x"] is not None,
    "no gradient gets through: NumPy, `.detach()`, and `torch.tensor(…)` cut it off",
)


SPLIT_HEADS = Exercise(
    answer=split_heads,
    points=1,
    minutes=10,
    returns=("heads",),
    axes={"x": "batch length d_model", "heads": "batch heads length d_k"},
    probes=[
        Probe(
            "three words with eight features, two heads", lambda sampler: {"x": sampler.numbers(1, 3, 8), "n_heads": 2}
        ),
        Probe("a batch of two, three heads", lambda sampler: {"x": sampler.numbers(2, 5, 12), "n_heads": 3}),
        Probe("as many heads as features", lambda sampler: {"x": sampler.numbers(2, 3, 4), "n_heads": 4}),
        Probe("one head", lambda sampler: {"x": sampler.numbers(2, 3, 4), "n_heads": 1}),
    ],
    properties=[
        Property(
            "gradients pass through",
            lambda sampler: {"x": sampler.numbers(1, 2, 4), "n_heads": 2},
            gradient_passes,
            gradient_of_moved_numbers,
        ),
        Property(
            "it's fine if `n_heads` doesn't divide the number of words",
            lambda sampler: {"x": sampler.numbers(1, 5, 8), "n_heads": 2},
            any_length_is_split,
            exception_of_call,
        ),
        Property(
            "tried: a `d_model` that `n_heads` doesn't divide",
            lambda sampler: {"x": sampler.numbers(1, 3, 5), "n_heads": 2},
            lambda inputs, received: refusal(
                received, f"Splitting {inputs['x'].size(-1)} features into {inputs['n_heads']} heads"
            ),
            exception_of_call,
        ),
    ],
)

# --- combine_heads ---------------------------------------------------------------------------------------------------


def heads_of_one_number(sampler: InputSampler) -> dict:
    """Return an `x` in which every number in head h is h + 1."""
    return {"x": torch.arange(1.0, 4.0)[None, :, None, None].expand(2, 3, 4, 2).contiguous()}


COMBINE_HEADS = Exercise(
    answer=combine_heads,
    points=1,
    minutes=5,
    axes={"x": "batch heads length d_k", "output": "batch length d_model"},
    builds_on=("split_heads",),
    probes=[
        Probe("two heads, three words", lambda sampler: {"x": sampler.numbers(1, 2, 3, 4)}),
        Probe("a batch of two, three heads", lambda sampler: {"x": sampler.numbers(2, 3, 5, 4)}),
        Probe("heads with a single feature", lambda sampler: {"x": sampler.numbers(2, 5, 3, 1)}),
        Probe("one head", lambda sampler: {"x": sampler.numbers(2, 1, 3, 4)}),
    ],
    properties=[
        Property(
            "the features of a head stay side by side",
            heads_of_one_number,
            unless(
                lambda inputs, received: received.tolist() == [[[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]] * 4] * 2,
                "if head 0 holds only ones, head 1 only twos, and so on, each word should come out as 1 1 2 2 3 3",
            ),
        ),
        Property(
            "gradients pass through",
            lambda sampler: {"x": sampler.numbers(1, 2, 3, 2)},
            gradient_passes,
            gradient_of_moved_numbers,
        ),
    ],
)

# --- MultiHeadAttention ----------------------------------------------------------------------------------------------


def multi_head_inputs(sampler: InputSampler, query: int, key: int, d_model: int, n_heads: int, batch: int = 1) -> dict:
    return {
        "arguments": {"d_model": d_model, "n_heads": n_heads},
        "weights": sampler.weights(MultiHeadAttention(d_model, n_heads), scale=0.9),
        **attention_inputs(sampler, (batch,), query, key, d_model, d_model),
    }


def padding_mask_inputs(sampler: InputSampler) -> dict:
    mask = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    mask[0, ..., sampler.integer(2, 3) :] = False
    mask[1, ..., sampler.integer(1, 2) :] = False
    return multi_head_inputs(sampler, 3, 4, 6, 2, batch=2) | {"mask": mask}


def dropout_inputs(sampler: InputSampler) -> dict:
    inputs = multi_head_inputs(sampler, 3, 5, 4, 2)
    inputs["query"] = torch.zeros(1, 3, 4)  # zero, so that adding it to the output doesn't hide zeros from dropout
    inputs["weights"]["w_o.bias"] = sampler.numbers(4, low=0.1, high=0.9)  # not zero, so that zeros are from dropout
    return inputs | {"arguments": inputs["arguments"] | {"dropout": 0.5}}


def constructions(subject, sizes, uneven):
    fitting = [raised(subject, d_model, n_heads) for d_model, n_heads in sizes]
    d_model, n_heads = sizes[-1]
    kept = getattr(subject(d_model, n_heads), "n_heads", None) if fitting[-1] == "nothing" else None
    return {"fitting": fitting, "kept n_heads": kept, "uneven": raised(subject, *uneven)}


def sizes_that_fit(inputs, received):
    for (d_model, n_heads), exception in zip(inputs["sizes"], received["fitting"], strict=True):
        if exception != "nothing":
            return f"`MultiHeadAttention({d_model}, {n_heads})` raises `{exception}`, but {n_heads} divides {d_model}"
    if received["kept n_heads"] != inputs["sizes"][-1][1]:
        return Remark(
            "The module doesn't keep the number of heads as `self.n_heads`, which later cells in the notebook need."
        )
    d_model, n_heads = inputs["uneven"]
    return refusal(received["uneven"], f"Constructing the module with d_model {d_model} and n_heads {n_heads}")


def dropout_effect(subject, arguments, weights, query, key, value):
    module = build(subject, arguments, weights)
    module.train()
    trained = [module(query, key, value) for _ in range(6)]
    zeros = (torch.stack(trained) == 0).unflatten(-1, (arguments["n_heads"], -1))
    module.eval()
    return {
        "in training": sum(not torch.equal(trained[0], other) for other in trained[1:]) > 0,
        "constant in evaluation": torch.equal(module(query, key, value), module(query, key, value)),
        # without `w_o`, all features of a head are 0 if its weights are dropped
        "dropped features": (zeros.any(-1) & ~zeros.all(-1)).any().item(),
    }


def dropout_acts_in_training_only(inputs, received):
    if not received["constant in evaluation"]:
        return "in evaluation mode, two calls give different outputs: dropout has to stop there, as `nn.Dropout` does"
    if not received["in training"]:
        return "with dropout 0.5, every call in training mode gives the same output: nothing is dropped"
    if received["dropped features"]:
        return "features of the output are dropped: dropout belongs on the attention weights"
    return None


def what_attend_gets(subject, arguments, query, key, value, mask):
    module = subject(*arguments.values())
    calls = []

    def attend(*given, **named):
        call = dict(zip(("query", "key", "value", "mask", "dropout"), given, strict=False)) | named
        dropout = call.get("dropout")
        dropped = dropout(torch.ones(400)) if callable(dropout) else torch.ones(400)
        seen = {"shapes": [list(tensor.shape) for tensor in given[:3]], "mask": call.get("mask")}
        seen |= {"drops": bool((dropped == 0).any()), "heads": given[:3]}
        calls.append(seen | {"unknown names": sorted(set(named) - {"mask", "dropout"})})
        return torch.ones_like(given[0]), None

    module.attend = attend
    module.train()
    output = module(query, key, value, mask)
    own_heads = []
    for call in calls:
        for layer, x, heads in zip(("w_q", "w_k", "w_v"), (query, key, value), call.pop("heads"), strict=False):
            wanted = getattr(module, layer)(x).unflatten(-1, (arguments["n_heads"], -1)).transpose(1, 2)
            same = heads.shape == wanted.shape
            factor = (heads * wanted).sum() / wanted.square().sum() if same else torch.tensor(1.0)
            own_heads.append(round(factor.item(), 6) if not same or torch.allclose(heads, factor * wanted) else None)
    return {
        "calls": calls,
        "heads come from the layers": own_heads,
        "output comes from attend": torch.allclose(output, module.w_o(torch.ones_like(query)).expand_as(output)),
    }


def attend_is_the_hook(inputs, received):
    calls = received["calls"]
    if len(calls) != 1:
        return f"`self.attend` is called {len(calls)} times: compute all of the attention there, in one call"
    (call,) = calls
    arguments = inputs["arguments"]
    batch, length, _ = inputs["query"].shape
    heads = [batch, arguments["n_heads"], length, arguments["d_model"] // arguments["n_heads"]]
    mask, wanted = call["mask"], inputs["mask"]
    problems = []
    if len(call["shapes"]) < 3 or call["unknown names"]:
        problems.append("`self.attend` takes query, key, and value as positional arguments, "
                        "each `(batch, heads, length, d_k)`")  # fmt: skip
    for name, shape in zip(("queries", "keys", "values"), call["shapes"], strict=False):
        if shape != heads:
            problems.append(f"`self.attend` gets {name} of shape {tuple(shape)}; expected {tuple(heads)}")
    for name, factor in zip("qkv", received["heads come from the layers"], strict=False):
        if factor is None:
            problems.append(f"`{name}` isn't the output of `w_{name}` for its input, split into heads")
        elif factor != 1:
            problems.append(f"`{name}` is {factor:.4g} times the output of `w_{name}` for its input")
    if not isinstance(mask, Tensor):
        problems.append("`self.attend` doesn't get the mask as its fourth argument")
    elif mask.dim() > wanted.dim():
        problems.append(f"the mask has {wanted.dim()} axes, but the one that `self.attend` gets has {mask.dim()}")
    elif mask.dtype != torch.bool or mask.shape[-2:] != wanted.shape[-2:] or not mask.eq(wanted).all():
        problems.append("the mask that `self.attend` gets isn't the one passed to `forward`")
    if not call["drops"]:
        problems.append("`self.attend` gets no dropout that works during training: pass it as the fifth argument")
    if not received["output comes from attend"]:
        problems.append("the output isn't `w_o` applied to the combined heads that `self.attend` returns")
    return "; ".join(problems) or None


def attend_inputs(sampler: InputSampler) -> dict:
    arguments = {"d_model": 6, "n_heads": 2, "dropout": 0.5}
    return {"arguments": arguments, **attention_inputs(sampler, (1,), 4, 4, 6, 6), "mask": causal_mask(4)}


MULTI_HEAD_ATTENTION = Exercise(
    answer=MultiHeadAttention,
    blank=("__init__", "forward"),
    points=4,
    minutes=30,
    axes=MODULE_AXES | {"mask": "batch heads query key", "output": "batch query d_model"},
    builds_on=("scaled_dot_product_attention", "split_heads", "combine_heads"),
    banned=(
        "torch.nn.MultiheadAttention",
        "torch.nn.functional.multi_head_attention_forward",
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    probes=[
        Probe("two words attend to a single other word", lambda sampler: multi_head_inputs(sampler, 2, 1, 4, 2)),
        Probe("a single head", lambda sampler: multi_head_inputs(sampler, 2, 3, 4, 1)),
        Probe(
            "three words attend to one another through two heads",
            lambda sampler: to_itself(multi_head_inputs(sampler, 3, 3, 4, 2)),
        ),
        Probe(
            "two words attend to four others, in a batch of two",
            lambda sampler: multi_head_inputs(sampler, 2, 4, 6, 3, batch=2),
        ),
        Probe("a padding mask hides keys", padding_mask_inputs),
        Probe(
            "a causal mask hides the future",
            lambda sampler: to_itself(multi_head_inputs(sampler, 4, 4, 6, 2)) | {"mask": causal_mask(4)},
        ),
        Probe(
            "gradients reach all weights", lambda sampler: multi_head_inputs(sampler, 3, 3, 4, 2), gradients_of_weights
        ),
    ],
    properties=[
        Property(
            "no layer gets another layer's input",
            lambda sampler: without(multi_head_inputs(sampler, 2, 3, 4, 2), "weights"),
            layers_get_their_own_inputs,
            inputs_of_layers,
        ),
        Property(
            "all of the attention happens in one call to `self.attend`",
            attend_inputs,
            attend_is_the_hook,
            what_attend_gets,
        ),
        Property(
            "dropout acts during training and stops in evaluation mode",
            dropout_inputs,
            dropout_acts_in_training_only,
            dropout_effect,
        ),
        Property(
            "a query that may attend to nothing gets no NaN",
            nothing_allowed(lambda sampler: multi_head_inputs(sampler, 2, 3, 4, 2), 1, 1),
            no_nan_where_nothing_is_allowed("output", lambda inputs: call_module(MultiHeadAttention, **inputs)),
            masked_module_with_gradients,
        ),
        Property(
            "valid sizes are accepted",
            lambda sampler: {"sizes": [[4, 4], [5, 1], [6, 3]], "uneven": [6, 4]},
            sizes_that_fit,
            constructions,
        ),
    ],
)

EXERCISES = [SPLIT_HEADS, COMBINE_HEADS, MULTI_HEAD_ATTENTION]
