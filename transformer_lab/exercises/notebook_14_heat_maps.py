"""Notebook 14, attention heat maps: what a trained model's attention weights show, and how to score them."""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_lab.evaluation import alignment_error_rate, attention_rollout
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import raised
from transformer_lab.exercises.rules import REFUSED, raises, same_results
from transformer_lab.exercises.sampling import InputSampler, sampled_until

# --- attention_rollout -----------------------------------------------------------------------------------------------


def attention(sampler: InputSampler, *shape: int) -> Tensor:
    """Return attention weights that are multiples of 0.1. Each row splits a total of 1 at random."""
    *rows, keys = shape
    cuts = sampler.integers(*rows, keys - 1, low=0, high=10).sort(dim=-1).values
    edges = [torch.zeros(*rows, 1, dtype=torch.int64), cuts, torch.full((*rows, 1), 10)]
    return torch.cat(edges, dim=-1).diff(dim=-1).double() / 10


def stack_of(sampler: InputSampler, layers: int, heads: int, length: int) -> dict:
    return {"weights": attention(sampler, layers, heads, length, length)}


def with_heads_in_another_order(subject, weights):
    return {"one order": subject(weights), "another order": subject(weights.flip(1))}


def rows_sum_to_1(inputs, rollout):
    if rollout.shape != inputs["weights"].shape[-2:]:
        return "the result isn't a single matrix of shape `(length, length)`"
    if (rollout.sum(dim=-1) - 1).abs().max() > 1e-6:
        return "the rows don't sum to 1"
    return None


ATTENTION_ROLLOUT = Exercise(
    answer=attention_rollout,
    points=2,
    minutes=20,
    returns=("rollout",),
    axes={"weights": "layers heads query key", "rollout": "output input"},
    probes=[
        Probe("two layers with one head", lambda sampler: stack_of(sampler, 2, 1, 3)),
        Probe("one layer with two heads", lambda sampler: stack_of(sampler, 1, 2, 3)),
        Probe("three layers with two heads", lambda sampler: stack_of(sampler, 3, 2, 4)),
    ],
    properties=[
        Property("each row sums to 1", lambda sampler: stack_of(sampler, 3, 2, 4), rows_sum_to_1),
        Property(
            "the order of the heads doesn't matter",
            lambda sampler: stack_of(sampler, 2, 3, 3),
            same_results("the same heads in a different order give a different result"),
            with_heads_in_another_order,
        ),
    ],
)


# --- alignment_error_rate --------------------------------------------------------------------------------------------


FOUND, FOUND_ONE_OF_TWO, MISSED, MISSED_TWO, NOT_LINKED = range(5)
LINKS = {FOUND: [0], FOUND_ONE_OF_TWO: [0, 1], MISSED: [2], MISSED_TWO: [1, 3], NOT_LINKED: []}  # 0: highest weight


def mistakes_show(weights: Tensor, gold: Tensor) -> bool:
    """Return whether each mistaken way to count the links leads to a different rate."""
    (queries, keys), links = gold.shape, gold.sum()
    best, first_link = weights.argmax(dim=-1, keepdim=True), gold.int().argmax(dim=-1, keepdim=True)
    found, found_by_keys = gold.gather(-1, best), gold.gather(0, weights.argmax(dim=0, keepdim=True))
    hits, first_hits, above_average = found.sum(), (best == first_link).sum(), weights > 1 / keys
    mistaken = [
        hits / queries,
        first_hits / queries,
        2 * first_hits / (queries + links),
        2 * hits / (len(best.unique()) + links),
        2 * hits / (queries + gold.any(dim=0).sum()),
        2 * found_by_keys.sum() / (queries + links),
        2 * found_by_keys.sum() / (keys + links),
        2 * weights[gold].sum() / (queries + links),
        2 * above_average[gold].sum() / (above_average.sum() + links),
        (2 * found / (1 + gold.sum(dim=-1, keepdim=True))).mean(),
    ]
    return all(abs(rate - 2 * hits / (queries + links)) > 1e-3 for rate in mistaken)


def alignment_probe(name: str, inputs: Callable[[InputSampler], dict]) -> Probe:
    return Probe(name, sampled_until(mistakes_show, inputs))


def aligned(sampler: InputSampler, queries: int, keys: int) -> dict:
    """Return five or more rows in random order, with at least one row of each kind.

    Some additional links are missed. The highest weight in a row is above 0.5 or below 0.4, so a threshold of 0.5 would
    miss some links. The highest weight overall is not a link.
    """
    weights = torch.zeros(queries, keys, dtype=torch.float64)
    gold = torch.zeros(queries, keys, dtype=torch.bool)
    kinds = [*LINKS, *(sampler.integer(FOUND, NOT_LINKED) for _ in range(queries - len(LINKS)))]
    for row, place in enumerate(sampler.order(queries)):
        order = sampler.order(keys)
        shares = [6, 2, 1, 1] if place % 2 else [35, 30, 20, 15]
        spread = torch.tensor(shares + [0] * (keys - 4)).double()
        weights[row, order] = spread / spread.sum()
        gold[row, [order[link] for link in LINKS[kinds[place]]]] = True
    others = (~gold & gold.any(-1, keepdim=True) & (weights < weights.amax(-1, keepdim=True))).nonzero()
    gold[tuple(others[sampler.order(len(others))[: sampler.integer(0, 6)]].T)] = True
    missed = (~gold.gather(-1, weights.argmax(-1, keepdim=True))).nonzero()[0, 0]
    weights[missed] = weights[missed] ** 8 / (weights[missed] ** 8).sum()
    return {"weights": weights, "gold": gold}


def aligned_with_ties(sampler: InputSampler) -> dict:
    """Start with two rows in which two keys share the highest weight.

    In one of the rows, neither key is linked; in the other row, both are linked.
    """
    inputs = aligned(sampler, sampler.integer(5, 8), sampler.integer(4, 6))
    keys = inputs["weights"].size(1)
    weights, gold = torch.zeros(2, keys, dtype=torch.float64), torch.zeros(2, keys, dtype=torch.bool)
    for row in range(2):
        order = sampler.order(keys)
        weights[row, order[:3]] = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
        gold[row, order[:2] if row else order[2:3]] = True
    return {"weights": torch.cat([weights, inputs["weights"]]), "gold": torch.cat([gold, inputs["gold"]])}


def all_found(sampler: InputSampler) -> dict:
    """Link each query to its own key, which gets the query's highest weight, and add some links that are missed.

    The query that finds the last key is also linked to the first one, so it is wrong to look only at a row's first
    link. That link has the second-highest weight in its row, so it is also wrong to propose two links in each row.
    """
    length = sampler.integer(4, 7)
    order, keys = sampler.order(length), torch.eye(length, dtype=torch.float64)
    weights = (0.8 * keys + 0.12 * keys.roll(1, dims=1) + 0.08 * keys.roll(2, dims=1))[order]
    gold = weights == 0.8
    gold[order.index(length - 1), 0] = True
    others = (weights == 0).nonzero()
    gold[tuple(others[sampler.order(len(others))[: sampler.integer(0, 2)]].T)] = True
    return {"weights": weights, "gold": gold}


def best_and_worst(subject, gold):
    return {"right": float(subject(gold.double(), gold)), "wrong": float(subject(1 - gold.double(), gold))}


def links_in_another_order(sampler: InputSampler) -> dict:
    gold = torch.zeros(3, 4, dtype=torch.bool)
    gold[range(3), sampler.order(4)[:3]] = True
    return {"gold": gold}


def zero_is_best(inputs, received):
    if received["right"] != 0:
        return "weights that find exactly the gold links should get 0.0"
    if received["wrong"] != 1:
        return "weights that find no gold link at all should get 1.0"
    return None


def exceptions_of_other_shapes(subject, weights, gold):
    return [raised(subject, weights, other) for other in (gold[:, :-1].T, gold)]


def other_shapes_are_refused(inputs, received):
    shape, other = tuple(inputs["weights"].shape), tuple(inputs["gold"].shape)
    for given, error in zip((shape[::-1], other), received, strict=True):
        if error not in REFUSED:
            return Remark(
                f"Weights of shape {shape} and gold links of shape {given} {raises(error, 'raise')}. Such a mismatch "
                "means that rows and columns, or two sentences, have been mixed up, so raise a `ValueError` that names "
                "both shapes."
            )
    return None


ALIGNMENT_ERROR_RATE = Exercise(
    answer=alignment_error_rate,
    points=2,
    minutes=15,
    returns=("rate",),
    axes={"weights": "query key", "gold": "query key"},
    probes=[
        Probe("each query finds a key of its own, but some links are missed", all_found),
        alignment_probe(
            "more queries than keys", lambda sampler: aligned(sampler, sampler.integer(6, 9), sampler.integer(4, 5))
        ),
        alignment_probe(
            "more keys than queries", lambda sampler: aligned(sampler, sampler.integer(5, 7), sampler.integer(8, 10))
        ),
        alignment_probe("a row whose highest weight occurs twice proposes one link", aligned_with_ties),
    ],
    properties=[
        Property("0 is best and 1 is worst", links_in_another_order, zero_is_best, best_and_worst),
        Property(
            "tried: gold links of another shape",
            lambda sampler: {"weights": attention(sampler, 3, 4), "gold": torch.ones(3, 5, dtype=torch.bool)},
            other_shapes_are_refused,
            exceptions_of_other_shapes,
        ),
    ],
)


EXERCISES = [ALIGNMENT_ERROR_RATE, ATTENTION_ROLLOUT]
