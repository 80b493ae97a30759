"""Notebook 13, attention heat maps: what the weights of a trained model say, and how to score it."""

import torch
from torch import Tensor

from transformer_lab.evaluation import alignment_error_rate, attention_rollout
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property

# --- attention_rollout -----------------------------------------------------------------------------------------------


def attention(draw: Draw, *shape: int) -> Tensor:
    """Weights in tenths, each row adding up to 1: ten tenths, cut at random places."""
    *rows, keys = shape
    cuts = draw.integers(*rows, keys - 1, low=0, high=10).sort(dim=-1).values
    edges = [torch.zeros(*rows, 1, dtype=torch.int64), cuts, torch.full((*rows, 1), 10)]
    return torch.cat(edges, dim=-1).diff(dim=-1).double() / 10


def stack_of(draw: Draw, layers: int, heads: int, length: int) -> dict:
    return {"weights": attention(draw, layers, heads, length, length)}


def causal_stack(draw: Draw) -> dict:
    """Each row spread over what stands before it, in tenths; never on one place alone, from the second row on."""
    weights = torch.zeros(2, 2, 4, 4, dtype=torch.float64)
    weights[:, :, 0, 0] = 1
    for query in range(1, 4):
        for layer in range(2):
            for head in range(2):
                first = draw.integer(1, 9)
                places = draw.order(query + 1)[:2]
                weights[layer, head, query, places] = torch.tensor([first, 10 - first]).double() / 10
    return {"weights": weights}


def rows_add_up(inputs, rollout):
    if rollout.shape != inputs["weights"].shape[-2:]:
        return "it is not one matrix `(length, length)`"
    if (rollout.sum(dim=-1) - 1).abs().max() > 1e-6:
        return "the rows do not add up to 1"
    return None


def does_not_look_ahead(inputs, rollout):
    length = inputs["weights"].size(-1)
    if rollout.shape != (length, length):
        return "it is not one matrix `(length, length)`"
    if rollout.triu(1).abs().max() > 0:
        return "in a decoder, where no layer looks ahead, an output holds something of a later token"
    return None


def with_heads_in_another_order(subject, weights):
    return {"one order": subject(weights), "another order": subject(weights.flip(1))}


def heads_are_equals(inputs, received):
    if (received["one order"] - received["another order"]).abs().max() > 1e-9:
        return "with the same heads in another order the result is another one"
    return None


def layers_of(weights, heads="mean", residual=True, normalise=True):
    """One matrix a layer, as rollout makes it, with one step left out or another in its place."""
    joined = {"mean": weights.mean(1), "max": weights.amax(1), "sum": weights.sum(1), "first": weights[:, 0]}[heads]
    if residual:
        joined = joined + torch.eye(weights.size(-1), dtype=weights.dtype)
    return joined / joined.sum(-1, keepdim=True) if normalise else joined


def rolled(layers):
    rollout = layers[0]
    for layer in layers[1:]:
        rollout = layer @ rollout
    return rollout


def rollout_in_wrong_order(weights):
    return rolled(layers_of(weights).flip(0))


def rollout_without_residual(weights):
    return rolled(layers_of(weights, residual=False))


def rollout_not_normalised(weights):
    return rolled(layers_of(weights, normalise=False))


def rollout_of_greatest_head(weights):
    return rolled(layers_of(weights, heads="max"))


def rollout_of_summed_heads(weights):
    return rolled(layers_of(weights, heads="sum"))


def rollout_of_first_head(weights):
    return rolled(layers_of(weights, heads="first"))


def rollout_with_heads_for_layers(weights):
    return rolled(layers_of(weights.transpose(0, 1)))


def rollout_by_mean_of_layers(weights):
    return layers_of(weights).mean(0)


def rollout_by_elements(weights):
    return layers_of(weights).prod(0)


def rollout_by_elements_from_identity(weights):
    return torch.eye(weights.size(-1), dtype=weights.dtype) * layers_of(weights).prod(0)


def rollout_by_softmax(weights):
    return rolled(layers_of(weights, normalise=False).softmax(-1))


def rollout_of_each_head(weights):
    return torch.stack([rolled(layers_of(head[:, None])) for head in weights.unbind(1)]).mean(0)


def rollout_without_lowest_layer(weights):
    identity = torch.eye(weights.size(-1), dtype=weights.dtype)
    return rolled([identity, *layers_of(weights)[1:]])


def rollout_of_top_layer(weights):
    return layers_of(weights)[-1]


def rollout_residual_once(weights):
    mixed = rolled(layers_of(weights, residual=False)) + torch.eye(weights.size(-1), dtype=weights.dtype)
    return mixed / mixed.sum(-1, keepdim=True)


def rollout_with_swapped_axes(weights):
    return rolled(layers_of(weights)).T


def rollout_columns_normalised(weights):
    mixed = layers_of(weights, normalise=False)
    return rolled(mixed / mixed.sum(-2, keepdim=True))


SAYS_ELEMENTS = (
    "The matrices are multiplied element by element, with `*` or `prod`. A way through two layers may go over any "
    "token in between, and the sum over all of them is the matrix product, `@`."
)


def rollout_with_bare_first_layer(weights):
    return rolled(torch.cat([layers_of(weights[:1], residual=False), layers_of(weights[1:])]))


ATTENTION_ROLLOUT = Exercise(
    answer=attention_rollout,
    points=2,
    minutes=20,
    returns=("rollout",),
    axes={"weights": "layers heads query key", "rollout": "output input"},
    probes=[
        Probe("two layers of one head", lambda draw: stack_of(draw, 2, 1, 3)),
        Probe("one layer of two heads", lambda draw: stack_of(draw, 1, 2, 3)),
        Probe("three layers of two heads", lambda draw: stack_of(draw, 3, 2, 4)),
        Probe("a decoder, which never looks ahead", causal_stack),
    ],
    properties=[
        Property("each row adds up to 1", lambda draw: stack_of(draw, 3, 2, 4), rows_add_up),
        Property("a decoder's outputs hold nothing of later tokens", causal_stack, does_not_look_ahead),
        Property(
            "the order of the heads does not matter",
            lambda draw: stack_of(draw, 2, 3, 3),
            heads_are_equals,
            with_heads_in_another_order,
        ),
    ],
    misconceptions=[
        Misconception(
            "wrong_order",
            rollout_in_wrong_order,
            "The layers are multiplied in the wrong order. The top layer's row says which outputs of the layer below "
            "it takes, so it stands on the left: `rollout = layer @ rollout`, going up (Abnar and Zuidema 2020, "
            "section 3.1).",
        ),
        Misconception(
            "no_residual",
            rollout_without_residual,
            "The residual connections are missing. Around every attention a token also passes unchanged (section 3.1 "
            "of the paper: x + Sublayer(x)), so each layer's matrix is the attention plus the identity. Without it "
            "all rows soon look alike.",
        ),
        Misconception(
            "not_renormalised",
            rollout_not_normalised,
            "After adding the identity the rows add up to 2, and that doubles with every layer. Divide each row by its "
            "sum, so that it says which share of the output comes from where.",
        ),
        Misconception(
            "max_for_mean",
            rollout_of_greatest_head,
            "The greatest weight of all heads is taken. The method averages the heads: each has the same share in what "
            "`w_o` mixes, as far as the weights can tell.",
        ),
        Misconception(
            "sum_of_heads",
            rollout_of_summed_heads,
            "The heads are added up, not averaged. Each head's rows add up to 1 already, so several heads together "
            "outweigh the residual connection, and the more of them there are, the less of it is left.",
        ),
        Misconception(
            "first_head",
            rollout_of_first_head,
            "Only the first head is followed. Average over the heads (axis 1) first.",
        ),
        Misconception(
            "heads_for_layers",
            rollout_with_heads_for_layers,
            "Axes 0 and 1 are mixed up: the layers are averaged and the heads multiplied. Heads work side by side, "
            "layers one after the other; axis 0 is the layers.",
        ),
        Misconception(
            "mean_of_layers",
            rollout_by_mean_of_layers,
            "The layers are averaged. A layer attends to outputs of the layer below, not to the input, so its matrix "
            "has to be multiplied with what the layers below have mixed already.",
        ),
        Misconception(
            "product_of_elements",
            rollout_by_elements,
            SAYS_ELEMENTS,
        ),
        Misconception("product_of_elements_from_identity", rollout_by_elements_from_identity, SAYS_ELEMENTS),
        Misconception(
            "softmax_again",
            rollout_by_softmax,
            "A softmax is taken of what has been through one already. It makes the rows add up to 1, but zeros become "
            "shares, and a decoder sees ahead: divide each row by its sum.",
        ),
        Misconception(
            "each_head_alone",
            rollout_of_each_head,
            "Each head is followed through all layers, and the mean is taken at the end. But a head reads what *all* "
            "heads of the layer below have written: average over the heads in each layer, then multiply.",
        ),
        Misconception(
            "lowest_layer_missing",
            rollout_without_lowest_layer,
            "The lowest layer is left out. `weights[0]` is a layer like the others, and the only one that looks at the "
            "words themselves.",
        ),
        Misconception(
            "top_layer_only",
            rollout_of_top_layer,
            "Only the top layer is left in the result. Its columns are outputs of the layer below, not the input "
            "tokens whose names stand there.",
        ),
        Misconception(
            "residual_once",
            rollout_residual_once,
            "The identity is added once, at the end. There is a residual connection around the attention of every "
            "layer: add it, and normalise, before multiplying.",
        ),
        Misconception(
            "swapped_axes",
            rollout_with_swapped_axes,
            "The result is transposed. As in every heat map here, rows are queries (outputs) and columns keys "
            "(inputs), and it is the rows that add up to 1.",
        ),
        Misconception(
            "columns_normalised",
            rollout_columns_normalised,
            "The columns are made to add up to 1. A softmax runs over the keys, so each query's row is what is shared "
            "out: divide by the sum over the last axis.",
        ),
        Misconception(
            "first_layer_bare",
            rollout_with_bare_first_layer,
            "The lowest layer enters as it is, without the identity. It has a residual connection as the others have: "
            "treat all layers alike, and begin with the first of the matrices that you have made.",
        ),
    ],
    hints=[
        "Draw two layers and three tokens, with an arrow for each weight, and one straight up for each residual "
        "connection. How much of input 0 arrives at output 2? Which product of matrices adds up all these ways?",
        "Take the mean over the heads, add `torch.eye(length)`, and divide each row by its sum. Start from the "
        "identity and multiply the layers from the lowest up, each new one from the left.",
        "In the loop over `weights.mean(dim=1)`: `mixed = attention + identity`, `mixed = mixed / mixed.sum(dim=-1, "
        "keepdim=True)`, `rollout = mixed @ rollout`.",
    ],
)


# --- alignment_error_rate --------------------------------------------------------------------------------------------


def aligned(draw: Draw, queries: int = 5, keys: int = 4) -> dict:
    """Rows of every kind in random order: found, found with another link, missed, missed twice, and without a link.

    There are at least five queries. The greatest weight of a row is always greater than 0.5 or less than 0.4, so that
    a threshold of a half would miss some.
    """
    weights = torch.zeros(queries, keys, dtype=torch.float64)
    gold = torch.zeros(queries, keys, dtype=torch.bool)
    for row, kind in enumerate(draw.order(queries)):
        order = draw.order(keys)
        shares = [6, 2, 1, 1] if kind % 2 else [35, 30, 20, 15]
        spread = torch.tensor(shares + [0] * (keys - 4)).double()
        weights[row, order] = spread / spread.sum()
        links = {0: [0], 1: [0, 1], 2: [2], 3: [1, 3], 4: []}.get(kind, [0])
        gold[row, [order[link] for link in links]] = True
    return {"weights": weights, "gold": gold}


def one_to_one(draw: Draw, length: int = 4) -> dict:
    """Every query finds its key, and the one that finds the last key has a link with the first, too."""
    order = draw.order(length)
    gold = torch.zeros(length, length, dtype=torch.bool)
    gold[range(length), order] = True
    weights = gold * 0.4 + attention(draw, length, length) * 0.6
    gold[order.index(length - 1), 0] = True
    return {"weights": weights, "gold": gold}


def of_other_weights(subject, weights, gold):
    return {"weights": float(subject(weights, gold)), "their squares": float(subject(weights**2, gold))}


def only_the_greatest_counts(inputs, received):
    if abs(received["weights"] - received["their squares"]) > 1e-9:
        return "squaring all weights leaves the greatest of each row the greatest, but changes the result"
    return None


def best_and_worst(subject, gold):
    return {"right": float(subject(gold.double(), gold)), "wrong": float(subject(1 - gold.double(), gold))}


def links_in_another_order(draw: Draw) -> dict:
    gold = torch.zeros(3, 4, dtype=torch.bool)
    gold[range(3), draw.order(4)[:3]] = True
    return {"gold": gold}


def nought_is_best(inputs, received):
    if received["right"] != 0:
        return "weights that find exactly the gold links do not get 0.0"
    if received["wrong"] != 1:
        return "weights that find no gold link do not get 1.0"
    return None


def exception_of_call(subject, weights, gold):
    try:
        subject(weights, gold)
    except Exception as error:
        return type(error).__name__
    return "nothing"


def is_value_error(inputs, received):
    if received == "ValueError":
        return None
    if received == "nothing":
        return "no error is raised for weights and gold links of two shapes, and a number comes out"
    return f"it ends in `{received}`; a `ValueError` that names both shapes is meant"


def same_shapes(weights, gold):
    if weights.shape != gold.shape:
        raise ValueError


def hits_and_links(weights, gold, axis=-1):
    same_shapes(weights, gold)
    found = torch.zeros_like(gold).scatter(axis, weights.argmax(axis, keepdim=True), True)
    return (found & gold).sum().item(), found.sum().item(), gold.sum().item()


def rate_of_columns(weights, gold):
    hits, found, true = hits_and_links(weights, gold, axis=0)
    return 1 - 2 * hits / (found + true)


def one_minus_precision(weights, gold):
    hits, found, _ = hits_and_links(weights, gold)
    return 1 - hits / found


def one_minus_recall(weights, gold):
    hits, _, true = hits_and_links(weights, gold)
    return 1 - hits / true


def f_score(weights, gold):
    return 1 - alignment_error_rate(weights, gold)


def rate_without_two(weights, gold):
    hits, found, true = hits_and_links(weights, gold)
    return 1 - hits / (found + true)


def rate_of_union(weights, gold):
    hits, found, true = hits_and_links(weights, gold)
    return 1 - hits / (found + true - hits)


def rate_in_percent(weights, gold):
    return 100 * alignment_error_rate(weights, gold)


def rate_of_threshold(weights, gold):
    same_shapes(weights, gold)
    found = weights > 0.5
    return 1 - 2 * (found & gold).sum().item() / (found.sum() + gold.sum()).item()


def rate_of_weight_on_gold(weights, gold):
    same_shapes(weights, gold)
    return 1 - 2 * (weights * gold).sum().item() / (weights.sum() + gold.sum()).item()


def rate_of_one_gold_link_a_row(weights, gold):
    same_shapes(weights, gold)
    return 1 - (weights.argmax(-1) == gold.int().argmax(-1)).double().mean().item()


def rate_of_first_gold_link_a_row(weights, gold):
    same_shapes(weights, gold)
    hits = (weights.argmax(-1) == gold.int().argmax(-1)).sum().item()
    return 1 - 2 * hits / (weights.size(0) + gold.sum().item())


def rate_of_rows_with_links(weights, gold):
    same_shapes(weights, gold)
    linked = gold.any(-1)
    return alignment_error_rate(weights[linked], gold[linked])


def rate_one_row_late(weights, gold):
    same_shapes(weights, gold)
    return alignment_error_rate(weights[1:], gold[:-1])


def rate_of_any_shape(weights, gold):
    if weights.shape == gold.shape:
        return alignment_error_rate(weights, gold)
    flat = gold.flatten()[: weights.size(0)]
    return 1 - flat.double().mean().item()


SAYS_ONE_GOLD_LINK = (
    "Each row is compared with one gold link only, the first. A target word may stand for several source words or for "
    "none: count hits by looking at `gold` where the greatest weight is."
)


def rate_of_gold_rows(weights, gold):
    hits, found, _ = hits_and_links(weights, gold)
    return 1 - 2 * hits / (found + gold.any(-1).sum().item())


def mean_rate_of_rows(weights, gold):
    same_shapes(weights, gold)
    rates = [alignment_error_rate(weights[row, None], gold[row, None]) for row in range(len(weights))]
    return sum(rates) / len(rates)


def rate_comparing_heights(weights, gold):
    if len(weights) != len(gold):
        raise ValueError("not as many rows")
    width = min(weights.size(1), gold.size(1))
    return alignment_error_rate(weights[:, :width], gold[:, :width])


ALIGNMENT_ERROR_RATE = Exercise(
    answer=alignment_error_rate,
    points=2,
    minutes=15,
    returns=("rate",),
    axes={"weights": "query key", "gold": "query key"},
    probes=[
        Probe("every query finds its key, and one link is missed", one_to_one),
        Probe("five queries, four keys", aligned),
        Probe("six queries, five keys", lambda draw: aligned(draw, 6, 5)),
    ],
    properties=[
        Property("0 is best, 1 is worst", links_in_another_order, nought_is_best, best_and_worst),
        Property(
            "only the greatest weight of a row counts",
            lambda draw: aligned(draw),
            only_the_greatest_counts,
            of_other_weights,
        ),
        Property(
            "gold links for more keys raise ValueError",
            lambda draw: {"weights": attention(draw, 3, 4), "gold": torch.ones(3, 5, dtype=torch.bool)},
            is_value_error,
            exception_of_call,
        ),
        Property(
            "gold links of another shape raise ValueError",
            lambda draw: {"weights": attention(draw, 3, 4), "gold": torch.ones(4, 3, dtype=torch.bool)},
            is_value_error,
            exception_of_call,
        ),
    ],
    misconceptions=[
        Misconception(
            "columns_propose",
            rate_of_columns,
            "The greatest weight of each column is taken, so that the keys choose their queries. Rows are queries, "
            "here the target's tokens, and each chooses the source token it looks at: `argmax(dim=-1)`.",
        ),
        Misconception(
            "precision_only",
            one_minus_precision,
            "This is 1 minus the precision: the share of proposed links that are wrong. Gold links that nobody has "
            "proposed cost nothing then. The rate looks at both: 1 - 2|A ∩ G| / (|A| + |G|).",
        ),
        Misconception(
            "recall_only",
            one_minus_recall,
            "This is 1 minus the recall: the share of gold links that were not found. Links that were proposed and are "
            "wrong cost nothing then. The rate looks at both: 1 - 2|A ∩ G| / (|A| + |G|).",
        ),
        Misconception(
            "f_score",
            f_score,
            "This is 2|A ∩ G| / (|A| + |G|), the F-score: it is 1 for the best head. An error rate is 0 for the best: "
            "subtract it from 1.",
        ),
        Misconception(
            "factor_two_lost",
            rate_without_two,
            "The 2 is missing. A link that was found counts twice below, once in |A| and once in |G|, so it has to "
            "count twice above: else even a perfect alignment gets 0.5.",
        ),
        Misconception(
            "union",
            rate_of_union,
            "The links shared are divided by the links of the union (Jaccard's index). The rate divides twice their "
            "number by |A| + |G| (Och and Ney 2003).",
        ),
        Misconception(
            "percent",
            rate_in_percent,
            "The rate is in percent. Och and Ney (2003) report it so, but here it is a share: 0 is best, 1 is worst.",
        ),
        Misconception(
            "threshold",
            rate_of_threshold,
            "A link is proposed where a weight is above 0.5. A query that is not sure proposes nothing then. Each row "
            "proposes exactly one link, to its greatest weight, however small that is.",
        ),
        Misconception(
            "weight_on_gold",
            rate_of_weight_on_gold,
            "The weights themselves are added up where there is a gold link. An alignment is a set of links: each row "
            "proposes one, to the column of its greatest weight, and it is right or wrong.",
        ),
        Misconception(
            "one_gold_link_a_row",
            rate_of_one_gold_link_a_row,
            SAYS_ONE_GOLD_LINK,
        ),
        Misconception("first_gold_link_a_row", rate_of_first_gold_link_a_row, SAYS_ONE_GOLD_LINK),
        Misconception(
            "rows_left_out",
            rate_of_rows_with_links,
            "Rows without a gold link are left out. Such a row proposes a link like any other, it is wrong, and it "
            "counts in |A|.",
        ),
        Misconception(
            "one_row_late",
            rate_one_row_late,
            "Weights and gold links are one row apart. The decoder reads `<bos>` first, so somebody has to shift; but "
            "what this function gets fits already, row by row.",
        ),
        Misconception(
            "no_value_error",
            rate_of_any_shape,
            "All results are right. But gold links of another shape, such as `(key, query)` for `(query, key)`, go "
            "through, and what comes out is a number that means nothing. Compare the shapes first and raise a "
            "`ValueError` that names both.",
        ),
        Misconception(
            "gold_rows_counted",
            rate_of_gold_rows,
            "|G| counts the rows that have a gold link, not the links. A word may be linked to two others, and then "
            "finding one of them is half of it: `gold.sum()`.",
        ),
        Misconception(
            "mean_of_rows",
            mean_rate_of_rows,
            "The rate is computed for each row, and these are averaged. It is one fraction over all links: a row with "
            "two of them has more to be found than a row with one.",
        ),
        Misconception(
            "rows_compared_alone",
            rate_comparing_heights,
            "Only the numbers of rows are compared, and gold links for other keys go through. Compare both axes, "
            "`weights.shape != gold.shape`, and raise a `ValueError` that names both.",
        ),
    ],
    hints=[
        "You need three numbers: how many links are proposed, how many are in `gold`, and how many are in both. The "
        "first is simply the number of rows. Why?",
        "`weights.argmax(dim=-1, keepdim=True)` is the column that each row proposes. `gold.gather(-1, ...)` looks "
        "whether gold has a link there. Their sum is |A ∩ G|.",
        "`hits = gold.gather(-1, weights.argmax(dim=-1, keepdim=True)).sum().item()`, then `return 1 - 2 * hits / "
        "(weights.size(0) + gold.sum().item())`, after `raise ValueError(...)` for other shapes.",
    ],
)


EXERCISES = [ALIGNMENT_ERROR_RATE, ATTENTION_ROLLOUT]
