"""Notebook 20, what attention replaced: additive attention, and a recurrent encoder and decoder around it."""

import torch
from torch import Tensor, nn

from transformer_lab.decoding import greedy_decode
from transformer_lab.decoding.greedy import evaluation_mode, translated_tokens
from transformer_lab.electives.recurrent import (
    AdditiveAttention,
    AttentionDecoder,
    RecurrentEncoder,
    recurrent_greedy_decode,
)
from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.notebook_01_attention import allowed_weights_sum_to_one
from transformer_lab.exercises.notebook_06_encoder import has_parameters_of, parameters_and_shared
from transformer_lab.exercises.notebook_11_decoding import with_eval_left, with_eval_only, with_no_grad_only
from transformer_lab.exercises.recipes import build, gradients, raised

# --- AdditiveAttention -----------------------------------------------------------------------------------------------


def additive_inputs(draw: Draw, batch: int = 1, query: int = 1, key: int = 3, d_query: int = 2, d_memory: int = 3,
                    d_attention: int = 4) -> dict:  # fmt: skip
    arguments = {"d_query": d_query, "d_memory": d_memory, "d_attention": d_attention}
    return {
        "arguments": arguments,
        "weights": draw.weights(AdditiveAttention(*arguments.values()), scale=1.5),
        "query": draw.numbers(batch, query, d_query),
        "memory": draw.numbers(batch, key, d_memory),
    }


def additive_answer(inputs: dict) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return build(AdditiveAttention, inputs["arguments"], inputs["weights"])(inputs["query"], inputs["memory"])


def additive_mask_inputs(draw: Draw) -> dict:
    """Of each sentence, the word that would get the greatest weight is hidden."""
    inputs = additive_inputs(draw, batch=2, query=2, key=4)
    mask = torch.ones(2, 1, 4, dtype=torch.bool)
    for row, weights in enumerate(additive_answer(inputs)[1]):
        mask[row, 0, weights.sum(0).argmax()] = False
    return inputs | {"mask": mask}


def additive_keys_inputs(draw: Draw) -> dict:
    """Keys that are not those of the memory, so that who projects it once more is found out."""
    inputs = additive_inputs(draw, batch=2, query=1, key=3, d_memory=4, d_attention=4)
    return inputs | {"mask": None, "keys": draw.numbers(2, 3, 4, low=-1.5, high=1.5)}


def nothing_to_see_inputs(draw: Draw) -> dict:
    mask = torch.ones(2, 1, 3, dtype=torch.bool)
    nothing = draw.integer(0, 1)
    mask[nothing] = False
    mask[1 - nothing, 0, 2] = False
    return additive_inputs(draw, batch=2, key=3) | {"mask": mask}


def additive_call(subject, arguments, weights, **inputs):
    """As a module is called; parameters that do not belong to it are 0, so that one mistake is not taken for two."""
    module = build(subject, arguments, weights)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in weights:
                parameter.zero_()
    return module(*inputs.values())


def additive_gradients(subject, arguments, weights, query, memory):
    module = build(subject, arguments, weights)
    own = {name: parameter for name, parameter in module.named_parameters() if name in weights}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in own:
                parameter.zero_()
    inputs = {"query": query.requires_grad_(), "memory": memory.requires_grad_()}
    return gradients(module(query, memory)[0], inputs | own)


def additive_with_gradients(subject, arguments, weights, query, memory, mask):
    module = build(subject, arguments, weights)
    inputs = {"query": query.requires_grad_(), "memory": memory.requires_grad_()}
    context, rows = module(query, memory, mask)
    return {"context": context, "weights": rows, **gradients(context, inputs)}


def additive_of_other_hidden_memory(subject, arguments, weights, query, memory, mask, other):
    module = build(subject, arguments, weights)
    changed = torch.where(mask[:, 0, :, None], memory, other)
    return {"context": module(query, memory, mask)[0], "with other hidden memory": module(query, changed, mask)[0]}


def hidden_memory_does_not_matter(inputs, received):
    name, other = list(received.values())
    if torch.allclose(name, other, atol=1e-8):
        return None
    return "the result changes with words of the source that the mask hides"


def nothing_to_see_is_no_nan(inputs, received):
    if any(received[name].isnan().any() for name in ("context", "weights")):
        return "a query that may attend to nothing gets NaN, and NaN spreads to everything it meets"
    for name, gradient in received.items():
        if name.startswith("gradient") and gradient is not None and not gradient.isfinite().all():
            return "a query that may attend to nothing gets a gradient of NaN, and one training step ruins the model"
    mask, rows = inputs["mask"], received["weights"]
    if rows[~mask.any(-1)].abs().max() < 1e-8 or rows[(~mask & mask.any(-1, keepdim=True))].abs().max() > 1e-8:
        return None  # no fault, or not this one: where something may be seen, what is hidden has a weight, too
    return Remark(
        "A query that may attend to nothing spreads its attention over hidden words here, as a fill of -1e9 makes it. "
        "That is accepted; the package gives it zero weights, so that nothing hidden leaks."
    )


def lowest(scores, mask):
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def zero(weights, mask):
    return weights.masked_fill(~mask, 0.0)


def masked_and_summed(scores, memory, mask):
    weights = (scores if mask is None else lowest(scores, mask)).softmax(dim=-1)
    weights = weights if mask is None else zero(weights, mask)
    return weights @ memory, weights


def additive_with(combine=lambda q, k: q + k, squash=torch.tanh,
                  score=lambda layer, hidden: layer.v(hidden).squeeze(-1), axis=-1, mask_scores=lowest,
                  mask_weights=zero, summed=lambda memory, keys: memory,
                  give=lambda context, weights: (context, weights),
                  project=lambda layer, memory, keys: layer.w_k(memory) if keys is None else keys):  # fmt: skip
    """Additive attention with one thing done in another way."""

    class Attention(AdditiveAttention):
        def forward(self, query, memory, mask=None, keys=None):
            keys = project(self, memory, keys)
            hidden = squash(combine(self.w_q(query)[:, :, None], keys[:, None]))
            scores = score(self, hidden)
            if mask is not None and mask_scores is not None:
                scores = mask_scores(scores, mask)
            weights = scores.softmax(dim=axis)
            if mask is not None and mask_weights is not None:
                weights = mask_weights(weights, mask)
            return give(weights @ summed(memory, keys), weights)

    return Attention


class AttentionWithBiases(AdditiveAttention):
    def __init__(self, d_query, d_memory, d_attention):
        super().__init__(d_query, d_memory, d_attention)
        self.w_q = nn.Linear(d_query, d_attention)
        self.w_k = nn.Linear(d_memory, d_attention)
        self.v = nn.Linear(d_attention, 1, bias=False)


class AttentionWithBiasOfTheScore(AdditiveAttention):
    def __init__(self, d_query, d_memory, d_attention):
        super().__init__(d_query, d_memory, d_attention)
        self.v = nn.Linear(d_attention, 1)


class AttentionWithoutBias(AdditiveAttention):
    def __init__(self, d_query, d_memory, d_attention):
        super().__init__(d_query, d_memory, d_attention)
        self.w_q = nn.Linear(d_query, d_attention, bias=False)


class AttentionWithoutQueryAxis(AdditiveAttention):
    def forward(self, query, memory, mask=None, keys=None):
        keys = self.project(memory) if keys is None else keys
        return masked_and_summed(self.v((self.w_q(query) + keys).tanh()).squeeze(-1), memory, mask)


class AttentionWithoutAxisOfTheKeys(AdditiveAttention):
    def forward(self, query, memory, mask=None, keys=None):
        keys = self.project(memory) if keys is None else keys
        return masked_and_summed(self.v((self.w_q(query)[:, :, None] + keys).tanh()).squeeze(-1), memory, mask)


class AttentionThroughNumpy(AdditiveAttention):
    def forward(self, query, memory, mask=None, keys=None):
        context, weights = super().forward(query, memory, mask, keys)
        return torch.from_numpy(context.detach().numpy()), torch.from_numpy(weights.detach().numpy())


ADDITIVE_AXES = {
    "query": "batch query d_query",
    "memory": "batch key d_memory",
    "keys": "batch key d_attention",
    "mask": "batch query key",
    "context": "batch query d_memory",
    "weights": "batch query key",
    "gradient of query": "batch query d_query",
    "gradient of memory": "batch key d_memory",
}

ADDITIVE_ATTENTION = Exercise(
    answer=AdditiveAttention,
    blank=("__init__", "forward"),
    points=3,
    minutes=25,
    returns=("context", "weights"),
    axes=ADDITIVE_AXES,
    probes=[
        Probe("one state asks three words", additive_inputs, additive_call),
        Probe("a batch, several queries", lambda draw: additive_inputs(draw, 2, query=3, key=4), additive_call),
        Probe("a mask hides the word with the greatest weight", additive_mask_inputs, additive_call),
        Probe("keys that are at hand are used as they are", additive_keys_inputs, additive_call),
        Probe("gradients reach query, memory and all weights", lambda draw: additive_inputs(draw, query=2),
              additive_gradients),
    ],
    properties=[
        Property(
            "its parameters are those of w_q, w_k without bias, and v without bias",
            lambda draw: {"arguments": {"d_query": 3, "d_memory": 4, "d_attention": draw.integer(5, 7)}},
            has_parameters_of(AdditiveAttention),
            parameters_and_shared,
        ),
        Property("every row of weights sums to 1", additive_mask_inputs, allowed_weights_sum_to_one, additive_call),
        Property(
            "what is hidden does not matter",
            lambda draw: additive_mask_inputs(draw) | {"other": draw.numbers(2, 4, 3)},
            hidden_memory_does_not_matter,
            additive_of_other_hidden_memory,
        ),
        Property("a query that may attend to nothing gives no NaN", nothing_to_see_inputs, nothing_to_see_is_no_nan,
                 additive_with_gradients),
    ],
    misconceptions=[
        Misconception(
            "query_ignored",
            additive_with(combine=lambda q, k: k.expand(-1, q.size(1), -1, -1)),
            "The scores are made of the memory alone: the encoder's words attend to themselves, and whoever asks gets "
            "the same context at every step. The query has to be in the sum, inside the tanh: `w_q(query) + keys`.",
        ),
        Misconception(
            "query_alone",
            additive_with(combine=lambda q, k: q.expand(-1, -1, k.size(2), -1)),
            "The scores are made of the query alone, so every word of the source gets the same. Both have to be in the "
            "sum, inside the tanh: `w_q(query) + keys`.",
        ),
        Misconception(
            "no_tanh",
            additive_with(squash=lambda x: x),
            "There is no tanh between the sum and `v`. Then the query adds the same number to every score of its row, "
            "the softmax takes it out again, and it is as if nobody had asked (appendix A.1.2 has the tanh).",
        ),
        Misconception(
            "relu",
            additive_with(squash=torch.relu),
            "The sum goes through a ReLU. Bahdanau et al. have a tanh there (appendix A.1.2).",
        ),
        Misconception(
            "tanh_of_the_score",
            additive_with(squash=lambda x: x, score=lambda layer, hidden: layer.v(hidden).squeeze(-1).tanh()),
            "The tanh comes after `v`, on the finished score. No score is then above 1 or below -1, and the attention "
            "can never be sharp. It belongs inside: `v(tanh(w_q(query) + keys))`.",
        ),
        Misconception(
            "dot_product",
            additive_with(combine=lambda q, k: q * k, squash=lambda x: x, score=lambda layer, hidden: hidden.sum(-1)),
            "The score is the dot product of query and key. That is the Transformer's (there divided by √d_k). Here a "
            "small network scores the pair: the sum of both, a tanh, and then `v`.",
        ),
        Misconception(
            "scores_added_up",
            additive_with(score=lambda layer, hidden: hidden.sum(-1)),
            "The features are added up and `v` is not used. `v` says what each feature of the tanh counts, and it is "
            "learned: `self.v(…).squeeze(-1)`.",
        ),
        Misconception(
            "multiplied",
            additive_with(combine=lambda q, k: q * k),
            "Query and key are multiplied inside the tanh. Additive attention has its name from the sum: "
            "`w_q(query) + keys`.",
        ),
        Misconception(
            "scaled",
            additive_with(score=lambda layer, hidden: layer.v(hidden).squeeze(-1) / hidden.size(-1) ** 0.5),
            "The scores are divided by a root, as in scaled dot-product attention. There it tames the growth of a "
            "dot product; here the tanh has done so, and the paper divides by nothing.",
        ),
        Misconception(
            "softmax_over_queries",
            additive_with(axis=1),
            "The softmax runs over the queries. In a decoder, which asks with one state at a time, every weight is "
            "then 1. Each query spreads its attention over the words of the memory: `dim=-1`.",
        ),
        Misconception(
            "context_of_keys",
            additive_with(summed=lambda memory, keys: keys),
            "The weighted sum is taken of the keys. The context is made of the encoder's states themselves (equation 5 "
            "of section 3.1): `weights @ memory`. The keys only serve to score.",
        ),
        Misconception(
            "keys_projected_twice",
            additive_with(project=lambda layer, memory, keys: layer.w_k(memory if keys is None else keys)),
            "Keys that are at hand are projected once more. `keys` is what `project(memory)` has given: use it as it "
            "is, and project the memory only where `keys` is None.",
        ),
        Misconception(
            "keys_ignored",
            additive_with(project=lambda layer, memory, keys: layer.w_k(memory)),
            "Keys that are at hand are not used: the memory is projected all over again. The decoder hands in what "
            "does not change, so that it is computed once: project the memory only where `keys` is None.",
        ),
        Misconception(
            "mask_ignored",
            additive_with(mask_scores=None, mask_weights=None),
            "The mask is not used, so padding is attended to, and a sentence is translated differently in another "
            "batch.",
        ),
        Misconception(
            "mask_inverted",
            additive_with(mask_scores=lambda scores, mask: lowest(scores, ~mask),
                          mask_weights=lambda weights, mask: zero(weights, ~mask)),
            "The mask is used the wrong way round: what may be seen is hidden. True means “may attend”, so the places "
            "to fill are `~mask`.",
        ),
        Misconception(
            "mask_after_softmax",
            additive_with(mask_scores=None),
            "The mask is applied to the weights after the softmax. The hidden words have had their share by then, so "
            "the rest does not sum to 1. Fill the hidden scores before it.",
        ),
        Misconception(
            "hidden_scores_zero",
            additive_with(mask_scores=lambda scores, mask: scores.masked_fill(~mask, 0.0), mask_weights=None),
            "Hidden scores become 0. That is no small score: `exp(0)` is 1, more than any negative score has. Fill "
            "with `torch.finfo(scores.dtype).min`.",
        ),
        Misconception(
            "scores_times_mask",
            additive_with(mask_scores=lambda scores, mask: scores * mask),
            "The scores are multiplied by the mask, so hidden ones are 0 in the softmax, which is no small score: "
            "`exp(0)` is 1. They take a share before they are taken out, and the rest does not sum to 1. Fill with "
            "`torch.finfo(scores.dtype).min` before the softmax.",
        ),
        Misconception(
            "nan_rows",
            additive_with(mask_scores=lambda scores, mask: scores.masked_fill(~mask, float("-inf")), mask_weights=None),
            "Where a query may attend to nothing, all its scores are minus infinity and the softmax divides 0 by 0: "
            "NaN. Fill with `torch.finfo(scores.dtype).min`, then set hidden weights to 0.",
        ),
        Misconception(
            "bias_of_the_keys",
            AttentionWithBiases,
            "`w_k` has a bias. It is added to that of `w_q`, so one of the two is enough, and the paper has none here: "
            "`nn.Linear(d_memory, d_attention, bias=False)`. Nor does `v` need one.",
        ),
        Misconception(
            "bias_of_the_score",
            AttentionWithBiasOfTheScore,
            "`v` has a bias. It adds the same number to all scores, and the softmax takes it out again: the parameter "
            "would never learn anything. `nn.Linear(d_attention, 1, bias=False)`.",
        ),
        Misconception(
            "no_bias_at_all",
            AttentionWithoutBias,
            "`w_q` has no bias. The sum inside the tanh needs one, or the tanh is always centred at 0; by agreement "
            "it is that of `w_q`: `nn.Linear(d_query, d_attention)`.",
        ),
        Misconception(
            "query_axis_missing",
            AttentionWithoutQueryAxis,
            "Query and keys are added as they come, `(batch, query, …)` to `(batch, key, …)`. With one query the sum "
            "is that of all pairs, but the scores have lost their query axis; with several it stops or pairs the wrong "
            "ones. Every query meets every key with an axis for each: `self.w_q(query)[:, :, None] + keys[:, None]`.",
        ),
        Misconception(
            "axis_of_the_keys_missing",
            AttentionWithoutAxisOfTheKeys,
            "The keys have no axis for the queries, so torch lays their batch there: `(batch, key, …)` is read as "
            "`(1, batch, key, …)`, and sentences meet other sentences' words. `keys[:, None]` makes the axis.",
        ),
        Misconception(
            "all_axes_squeezed",
            additive_with(score=lambda layer, hidden: layer.v(hidden).squeeze()),
            "`.squeeze()` takes away every axis of size 1: that of the features, as it should, and with one query or "
            "one sentence those as well. Name the axis: `.squeeze(-1)`.",
        ),
        Misconception(
            "no_gradient",
            AttentionThroughNumpy,
            "No gradient flows: NumPy, `.detach()`, `.item()` and `torch.tensor(…)` cut a result off from what it was "
            "made of. The numbers are right, and the attention will never learn anything. Compute with torch all the "
            "way.",
        ),
        Misconception(
            "swapped",
            additive_with(give=lambda context, weights: (weights, context)),
            "Weights and context have changed places. The context comes first, as in `scaled_dot_product_attention`.",
        ),
        Misconception(
            "context_alone",
            additive_with(give=lambda context, weights: context),
            "Only the context comes back. Return both: `return context, weights`.",
        ),
    ],
    hints=[
        "Every query meets every key in a sum. What shapes must the two have, so that broadcasting makes all pairs: "
        "`(batch, query, key, d_attention)`?",
        "`self.w_q(query)[:, :, None]` is `(batch, query, 1, d_attention)`; `keys[:, None]` has a 1 in the place of "
        "the queries. `v` leaves one feature of the tanh: take that axis away, then mask, softmax and weighted sum as "
        "in notebook 01.",
        "`scores = self.v((self.w_q(query)[:, :, None] + keys[:, None]).tanh()).squeeze(-1)`; in the end "
        "`return weights @ memory, weights`. In `__init__`, `self.v = nn.Linear(d_attention, 1, bias=False)`.",
    ],
)

# --- RecurrentEncoder ------------------------------------------------------------------------------------------------


def encoder_inputs(draw: Draw, lengths: tuple[int, ...] = (3,), padded_to: int = 0, n_layers: int = 1, pad_id: int = 0,
                   dropout: float = 0.0) -> dict:  # fmt: skip
    arguments = {"vocab_size": 9, "d_model": 4, "n_layers": n_layers, "dropout": dropout, "pad_id": pad_id}
    weights = draw.weights(RecurrentEncoder(*arguments.values()), scale=0.9)
    for name in weights:  # vectors that no direction confuses with another
        if name.startswith("embedding"):
            weights[name] = draw.numbers(*weights[name].shape, low=-1.0, high=1.0)
    source = torch.full((len(lengths), max(*lengths, padded_to)), pad_id)
    words = [token for token in range(9) if token != pad_id]
    for row, length in enumerate(lengths):
        order = draw.order(8)
        source[row, :length] = torch.tensor([words[index] for index in order[:length]])
    return {"arguments": arguments, "weights": weights, "source": source}


def states_of_real_words(subject, arguments, weights, source):
    """The memory; what stands at padding is nobody's business."""
    memory = build(subject, arguments, weights)(source)
    if isinstance(memory, torch.Tensor) and memory.shape[:2] == source.shape:
        memory = memory * (source != arguments["pad_id"])[..., None]
    return memory


def encoder_gradients(subject, arguments, weights, source):
    module = build(subject, arguments, weights)
    memory = module(source) * (source != arguments["pad_id"])[..., None]
    return gradients(memory, dict(module.named_parameters()))


def states_alone_and_padded(subject, arguments, weights, source):
    module = build(subject, arguments, weights)
    length = int((source[0] != arguments["pad_id"]).sum())
    return {"padded": module(source)[0, :length], "alone": module(source[:1, :length])[0]}


def padding_does_not_matter(inputs, received):
    padded, alone = received.values()
    if padded.shape == alone.shape and torch.allclose(padded, alone, atol=1e-8):
        return None
    return "a sentence has other states when it is padded"


def states_at_padding(subject, arguments, weights, source):
    memory = build(subject, arguments, weights)(source)
    return {"padding": memory[source == arguments["pad_id"]]}


def padding_is_zero(inputs, received):
    if received["padding"].numel() and received["padding"].abs().max() == 0:
        return None
    return "where padding is, the memory is not zero"


def exception_of_odd_width(subject, d_model):
    return {"exception": raised(subject, 9, d_model)}


def odd_width_is_refused(inputs, received):
    if received["exception"] == "ValueError":
        return None
    return f"with d_model {inputs['d_model']} it raises {received['exception']}, expected is a ValueError"


def drawn_and_evaluated(subject, arguments, weights, **inputs):
    """With the embeddings, and with embeddings of zero, where dropping them changes nothing."""
    results = {}
    for name, factor in (("", 1.0), (" without embeddings", 0.0)):
        loaded = {key: value * factor if key.startswith("embedding") else value for key, value in weights.items()}
        module = build(subject, arguments, loaded).train()
        results["in training" + name] = torch.stack([module(*inputs.values()) for _ in range(8)])
        module.eval()
        results["in evaluation" + name] = torch.stack([module(*inputs.values()) for _ in range(2)])
    return results


def drops_where_it_should(inputs, received):
    """With p = 0.5, what is dropped at the end is 0 and the rest is doubled: behind that one sees what came before."""
    several_layers = inputs["arguments"].get("n_layers", 1) > 1
    drawn, evaluated = received["in training"], received["in evaluation"]
    if not torch.equal(evaluated[0], evaluated[1]):
        return "the same input gives two results in evaluation mode: something is still dropped"
    if all(torch.equal(drawn[0], one) for one in drawn[1:]):
        return "nothing is dropped in training mode"
    if not (drawn == 0).any():
        return "what comes out at the end is not dropped in training mode"

    def as_in_evaluation(name):
        drawn, evaluated = received["in training" + name], received["in evaluation" + name]
        return torch.allclose(torch.where(drawn == 0, 2 * evaluated[:1], drawn), 2 * evaluated[:1], atol=1e-6)

    behind_zeros = as_in_evaluation(" without embeddings")
    if several_layers:
        return "nothing is dropped between the layers of the GRU" if behind_zeros else None
    if not behind_zeros:
        return "something else is dropped beside the embeddings and what comes out at the end"
    return "the embeddings are not dropped in training mode" if as_in_evaluation("") else None


def encoder_by(forward):
    class Encoder(RecurrentEncoder):
        pass

    Encoder.forward = forward
    return Encoder


def encoder_with(lengths=lambda self, source: (source != self.pad_id).sum(dim=1), give=lambda memory: memory,
                 total=True, sorts=False, packs_batch_first=True, pads_batch_first=True, padding=0.0,
                 drops_embeddings=True, drops_memory=True):  # fmt: skip
    """A recurrent encoder with one thing done in another way."""

    def forward(self, source):
        x = self.embedding(source)
        x = self.dropout(x) if drops_embeddings else x
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths(self, source), batch_first=packs_batch_first, enforce_sorted=sorts
        )
        memory, _ = nn.utils.rnn.pad_packed_sequence(
            self.gru(packed)[0], pads_batch_first, padding, source.size(1) if total else None
        )
        return give(self.dropout(memory) if drops_memory else memory)

    return encoder_by(forward)


def encoder_reading_padding(self, source):
    return self.dropout(self.gru(self.dropout(self.embedding(source)))[0])


def encoder_with_time_first(self, source):
    x = self.dropout(self.embedding(source))
    return self.dropout(self.gru(x.transpose(0, 1))[0]).transpose(0, 1)


def encoder_with_last_state(self, source):
    lengths = (source != self.pad_id).sum(dim=1)
    x = self.dropout(self.embedding(source))
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    state = self.gru(packed)[1]
    return torch.cat([state[-2], state[-1]], dim=-1)


def encoder_left_in_order_of_length(self, source):
    order = (source != self.pad_id).sum(dim=1).argsort(descending=True)
    return RecurrentEncoder.forward(self, source[order])


def encoder_without_dropout(self, source):
    was_training = self.training
    memory = RecurrentEncoder.forward(self.eval(), source)
    self.train(was_training)
    return memory


def encoder_dropping_always(self, source):
    was_training = self.training
    memory = RecurrentEncoder.forward(self.train(), source)
    self.train(was_training)
    return memory


def halves(memory):
    return memory.chunk(2, dim=-1)


class EncoderOfOneDirection(RecurrentEncoder):
    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__(vocab_size, d_model, n_layers, dropout, pad_id)
        self.gru = nn.GRU(d_model, d_model // 2, n_layers, batch_first=True)


class EncoderOfFullWidth(RecurrentEncoder):
    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__(vocab_size, d_model, n_layers, dropout, pad_id)
        self.gru = nn.GRU(d_model, d_model, n_layers, batch_first=True, bidirectional=True)


class EncoderOfOneLayer(RecurrentEncoder):
    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__(vocab_size, d_model, 1, dropout, pad_id)


class EncoderWithPlainEmbedding(RecurrentEncoder):
    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__(vocab_size, d_model, n_layers, dropout, pad_id)
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)


class EncoderOfAnyWidth(RecurrentEncoder):
    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__(vocab_size, d_model - d_model % 2, n_layers, dropout, pad_id)


class EncoderWithoutDropoutBetween(RecurrentEncoder):
    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__(vocab_size, d_model, n_layers, dropout, pad_id)
        self.gru.dropout = 0.0


RECURRENT_ENCODER = Exercise(
    answer=RecurrentEncoder,
    blank=("__init__", "forward"),
    points=2,
    minutes=20,
    returns=("memory",),
    axes={"source": "batch source", "memory": "batch source d_model"},
    builds_on=("TokenEmbedding",),
    probes=[
        Probe("one sentence", encoder_inputs, states_of_real_words),
        Probe("a batch of different lengths, not in their order",
              lambda draw: encoder_inputs(draw, (2, 4, 3)), states_of_real_words),
        Probe("a batch that is padded beyond its longest sentence",
              lambda draw: encoder_inputs(draw, (2, 3), padded_to=5), states_of_real_words),
        Probe("two layers", lambda draw: encoder_inputs(draw, (3, 2), n_layers=2), states_of_real_words),
        Probe("padding is not 0", lambda draw: encoder_inputs(draw, (2, 4), pad_id=5), states_of_real_words),
        Probe("gradients reach the embedding and both directions", lambda draw: encoder_inputs(draw, (2, 3)),
              encoder_gradients),
    ],
    properties=[
        Property(
            "its parameters are those of an embedding and a GRU of two directions",
            lambda draw: {"arguments": {"vocab_size": 9, "d_model": 4, "n_layers": draw.integer(1, 2), "dropout": 0.0,
                                        "pad_id": 0}},
            has_parameters_of(RecurrentEncoder),
            parameters_and_shared,
        ),
        Property("how far a sentence was padded does not matter", lambda draw: encoder_inputs(draw, (2, 5)),
                 padding_does_not_matter, states_alone_and_padded),
        Property("where padding is, zeros", lambda draw: encoder_inputs(draw, (2, 4), padded_to=5), padding_is_zero,
                 states_at_padding),
        Property("an odd d_model is refused", lambda draw: {"d_model": 2 * draw.integer(1, 4) + 1},
                 odd_width_is_refused, exception_of_odd_width),
        Property("dropout acts in training and not in evaluation",
                 lambda draw: encoder_inputs(draw, (4,), dropout=0.5), drops_where_it_should, drawn_and_evaluated),
        Property("dropout acts between two layers, too", lambda draw: encoder_inputs(draw, (4,), 0, 2, 0, 0.5),
                 drops_where_it_should, drawn_and_evaluated),
    ],
    misconceptions=[
        Misconception(
            "padding_read",
            encoder_by(encoder_reading_padding),
            "The GRU reads the padding as if it were words. The backward direction begins there, so the states of "
            "every real word depend on how far the sentence was padded. Pack the batch by its lengths: "
            "`pack_padded_sequence`.",
        ),
        Misconception(
            "last_state_alone",
            encoder_by(encoder_with_last_state),
            "Only the last states come back, one vector for the whole sentence. That is the encoder before attention "
            "(Cho et al. 2014). The decoder is to choose among the words, so return the states of all of them: the "
            "first of the two things that a GRU gives.",
        ),
        Misconception(
            "time_first",
            encoder_by(encoder_with_time_first),
            "The batch is taken for time: the GRU goes from sentence to sentence instead of from word to word. In this "
            "course the batch comes first, and torch has to be told: `batch_first=True`.",
        ),
        Misconception(
            "directions_added",
            encoder_with(give=lambda memory: sum(halves(memory))),
            "The two directions are added. What was read from the left and what from the right stand side by side "
            "(section 3.2): `nn.GRU(…, bidirectional=True)` gives them so, each of width d_model / 2.",
        ),
        Misconception(
            "directions_swapped",
            encoder_with(give=lambda memory: torch.cat(halves(memory)[::-1], dim=-1)),
            "The backward state comes first. The decoder takes its first state from the second half and expects the "
            "backward direction there: leave the order as the GRU gives it.",
        ),
        Misconception(
            "order_of_length_kept",
            encoder_by(encoder_left_in_order_of_length),
            "The sentences were put in the order of their lengths and not back again, so each meets another one's "
            "translation. `enforce_sorted=False` does both, there and back.",
        ),
        Misconception(
            "sorted_expected",
            encoder_with(sorts=True),
            "`pack_padded_sequence` expects the longest sentence first and stops. A batch has its own order: "
            "`enforce_sorted=False`.",
        ),
        Misconception(
            "too_short",
            encoder_with(total=False),
            "The memory ends with the longest sentence of the batch. If all are padded further, it is shorter than the "
            "source, and the mask does not fit: `pad_packed_sequence(…, total_length=source.size(1))`.",
        ),
        Misconception(
            "packed_time_first",
            encoder_with(packs_batch_first=False),
            "`pack_padded_sequence` takes the batch for time: it expects `(time, batch, …)` unless it is told. Write "
            "`batch_first=True` there, in `pad_packed_sequence`, and in the GRU.",
        ),
        Misconception(
            "padded_time_first",
            encoder_with(pads_batch_first=False),
            "`pad_packed_sequence` gives `(time, batch, …)` unless it is told, so the memory's first two axes have "
            "changed places: `batch_first=True` belongs there, too.",
        ),
        Misconception(
            "padding_not_zero",
            encoder_with(padding=1.0),
            "Where padding is, the memory is not zero. Nothing was read there, and `pad_packed_sequence` fills in 0 by "
            "itself: leave out its `padding_value`.",
        ),
        Misconception(
            "odd_width_taken",
            EncoderOfAnyWidth,
            "An odd `d_model` is taken without a word. Each direction has half of it, rounded down, so the memory is "
            "narrower than was asked for, and the decoder stops far from the cause. Raise a `ValueError` in "
            "`__init__`.",
        ),
        Misconception(
            "plain_embedding",
            EncoderWithPlainEmbedding,
            "`embedding` is torch's `nn.Embedding`. The course's `TokenEmbedding` of notebook 04 is meant: it also "
            "multiplies by √d_model (section 3.4), and the translator ties its weights: `TokenEmbedding(vocab_size, "
            "d_model, pad_id)`.",
        ),
        Misconception(
            "padding_fixed_at_0",
            encoder_with(lengths=lambda self, source: (source != 0).sum(dim=1).clamp(min=1)),
            "Padding is taken to be 0. Other tokenizers have other ids: keep `pad_id` in `__init__` and compare with "
            "it.",
        ),
        Misconception(
            "one_direction",
            EncoderOfOneDirection,
            "The GRU reads in one direction only, so the state of a word knows nothing of those after it. Section 3.2 "
            "reads in both: `bidirectional=True`, with d_model / 2 for each.",
        ),
        Misconception(
            "full_width",
            EncoderOfFullWidth,
            "The states of the GRU have the full width d_model. Two directions side by side would then have twice "
            "that, and one alone knows nothing of the words to come (section 3.2): `nn.GRU(d_model, d_model // 2, …, "
            "bidirectional=True)`.",
        ),
        Misconception(
            "one_layer",
            EncoderOfOneLayer,
            "There is one layer, whatever `n_layers` says. It is the third argument of `nn.GRU`.",
        ),
        Misconception(
            "no_gradient",
            encoder_with(give=lambda memory: memory.detach()),
            "No gradient reaches the weights: NumPy, `.detach()`, `.data` and `torch.no_grad()` cut a result off from "
            "what it was made of. The encoder would never learn.",
        ),
        Misconception(
            "no_dropout",
            encoder_by(encoder_without_dropout),
            "Nothing is dropped in training. `self.dropout` goes around the embeddings, and around the memory at the "
            "end; between two layers of the GRU torch drops by itself.",
        ),
        Misconception(
            "embeddings_not_dropped",
            encoder_with(drops_embeddings=False),
            "The embeddings go into the GRU undropped: `self.dropout(self.embedding(source))`. Dropout acts in two "
            "places, there and on the memory at the end.",
        ),
        Misconception(
            "memory_not_dropped",
            encoder_with(drops_memory=False),
            "The memory comes back undropped: `return self.dropout(memory)`. Dropout acts in two places, on the "
            "embeddings and on the memory at the end.",
        ),
        Misconception(
            "no_dropout_between_layers",
            EncoderWithoutDropoutBetween,
            "With several layers nothing is dropped between them. torch's GRU does that, if it is told: "
            "`nn.GRU(…, dropout=dropout if n_layers > 1 else 0.0)`.",
        ),
        Misconception(
            "dropout_in_evaluation",
            encoder_by(encoder_dropping_always),
            "Features are dropped in evaluation mode too, so the same sentence is read differently each time. "
            "`nn.Dropout` knows the mode; `F.dropout` has to be told: `training=self.training`.",
        ),
    ],
    hints=[
        "Embedding, GRU, done: but for the padding. What does the backward direction read first in a short sentence of "
        "a padded batch? torch has a pair of functions that hide padding from a GRU.",
        "`lengths` are the numbers of tokens that are not `pad_id`. `nn.utils.rnn.pack_padded_sequence(x, "
        "lengths.cpu(), batch_first=True, enforce_sorted=False)` goes in, `pad_packed_sequence` comes back. The GRU is "
        "`nn.GRU(d_model, d_model // 2, n_layers, batch_first=True, bidirectional=True)`, with `dropout` where there "
        "are several layers.",
        "`states, _ = self.gru(packed)`, then `memory, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, "
        "total_length=source.size(1))` and `return self.dropout(memory)`.",
    ],
)

# --- AttentionDecoder ------------------------------------------------------------------------------------------------


KEYS_EVERY_STEP = (
    "The memory is projected to keys again at every step. No number changes by that, and it costs no points; but the "
    "keys stay the same while the decoder writes, so once is enough. "
)


def decoder_inputs(draw: Draw, batch: int = 1, target: int = 3, source: int = 3, dropout: float = 0.0) -> dict:
    """Weights with which who asks matters: the attention's are greater than the others."""
    arguments = {"vocab_size": 7, "d_model": 4, "dropout": dropout, "pad_id": 0}
    weights = draw.weights(AttentionDecoder(*arguments.values()), scale=0.9)
    for name in ("attention.w_q.weight", "attention.w_k.weight", "attention.v.weight"):
        weights[name] = 2 * weights[name]
    return {
        "arguments": arguments,
        "weights": weights,
        "target": draw.integers(batch, target, low=1, high=6),
        "memory": draw.numbers(batch, source, 4, low=-1.5, high=1.5),
    }


def decoder_mask_inputs(draw: Draw) -> dict:
    mask = torch.ones(2, 1, 5, dtype=torch.bool)
    mask[1, 0, draw.integer(2, 4) :] = False
    return decoder_inputs(draw, 2, 3, 5) | {"mask": mask}


def one_step_inputs(draw: Draw) -> dict:
    inputs = decoder_inputs(draw, 1)
    inputs["target"] = inputs["target"][:, 0]
    inputs = {"token" if name == "target" else name: value for name, value in inputs.items()}
    return inputs | {"state": draw.numbers(1, 4, low=-0.9, high=0.9)}


def one_masked_step_inputs(draw: Draw) -> dict:
    inputs = decoder_mask_inputs(draw)
    return {
        "arguments": inputs["arguments"],
        "weights": inputs["weights"],
        "token": inputs["target"][:, 0],
        "memory": inputs["memory"],
        "state": draw.numbers(2, 4, low=-0.9, high=0.9),
        "mask": inputs["mask"],
    }


def one_step(subject, arguments, weights, token, memory, state, mask=None):
    output, after = build(subject, arguments, weights).step(token, state, memory, mask)
    return {"output": output, "state": after}


def keys_of_forward_and_at_hand(subject, arguments, weights, token, memory, state, mask):
    """How often `forward` makes keys of the memory; and a step without keys, and with those that it would make."""
    module = build(subject, arguments, weights)
    counted = []
    hook = module.attention.w_k.register_forward_hook(lambda *_: counted.append(1))
    module(token[:, None].expand(-1, 3), memory, mask)
    hook.remove()
    keys = module.attention.project(memory)
    return {
        "projections": len(counted),
        "output": module.step(token, state, memory, mask)[0],
        "output with keys at hand": module.step(token, state, memory, mask, keys)[0],
    }


def keys_at_hand_change_nothing(inputs, received):
    without, with_keys = received["output"], received["output with keys at hand"]
    if without.shape != with_keys.shape or not torch.allclose(without, with_keys, atol=1e-8):
        return "`step` gives something else when it is handed the keys that it would make by itself"
    if received["projections"] > 1:
        return Remark(KEYS_EVERY_STEP + "Compute them once in `forward`, `keys = self.attention.project(memory)`, and "
                      "hand them to `step`, which hands them to `self.attention`.")  # fmt: skip
    return None


def decoder_gradients(subject, arguments, weights, target, memory):
    module = build(subject, arguments, weights)
    output = module(target, memory.requires_grad_())
    return gradients(output, {"memory": memory} | dict(module.named_parameters()))


def decoder_with_other_last_token(subject, arguments, weights, target, memory):
    module = build(subject, arguments, weights)
    changed = target.clone()
    changed[:, -1] = changed[:, -1] % 6 + 1
    return {"output": module(target, memory)[:, :-1], "with another last token": module(changed, memory)[:, :-1]}


def no_look_ahead(inputs, received):
    output, other = received.values()
    if output.shape == other.shape and torch.allclose(output, other, atol=1e-8):
        return None
    return "an earlier position changes with a later token"


def decoder_with_other_hidden_memory(subject, arguments, weights, target, memory, mask, other):
    module = build(subject, arguments, weights)
    changed = memory.clone()
    changed[1] = torch.where(mask[1, 0][:, None], memory[1], other[1])
    return {"output": module(target, memory, mask), "with other hidden memory": module(target, changed, mask)}


def decoder_with(asks=lambda self, state, memory: state[:, None], used=lambda context, memory, mask: context,
                 fed=lambda x, context: [x, context], shown=lambda new, context, x, old: [new, context, x],
                 mask_used=lambda mask: mask, squash=torch.tanh, gives=lambda output, state: (output, state),
                 drops=True, drops_embedding=True, drops_output=True, keys_used=lambda self, keys: keys,
                 taken=lambda found: found[0].mean(dim=1), asks_again=False,
                 embed=lambda self, token: self.embedding(token)):  # fmt: skip
    """An attention decoder whose step does one thing in another way."""

    class Decoder(AttentionDecoder):
        def step(self, token, state, memory, mask=None, keys=None):
            mask = mask_used(mask)
            x = embed(self, token)
            x = self.dropout(x) if drops and drops_embedding else x
            found = self.attention(asks(self, state, memory), memory, mask, keys_used(self, keys))
            context = used(taken(found), memory, mask)
            new = self.cell(torch.cat(fed(x, context), dim=-1), state)
            if asks_again:
                context = taken(self.attention(asks(self, new, memory), memory, mask, keys))
            output = squash(self.w_o(torch.cat(shown(new, context, x, state), dim=-1)))
            return gives(self.dropout(output) if drops and drops_output else output, new)

    return Decoder


def decoder_by(forward):
    class Decoder(AttentionDecoder):
        pass

    Decoder.forward = forward
    return Decoder


def unrolled(first=lambda self, memory: self.first_state(memory), fed=lambda target, i: [target[:, i]],
             carries=True, mask_used=lambda mask: mask, gives=lambda outputs: torch.stack(outputs, dim=1),
             read=lambda target: target):  # fmt: skip
    """A forward pass over the target that does one thing in another way."""

    def forward(self, target, memory, mask=None):
        target = read(target)
        state, outputs = first(self, memory), []
        for i in range(target.size(1)):
            before = state
            for token in fed(target, i):
                output, state = self.step(token, state, memory, mask_used(mask))
            state = state if carries else before
            outputs.append(output)
        return gives(outputs)

    return decoder_by(forward)


def fed_its_own_outputs(self, target, memory, mask=None):
    state, outputs = self.first_state(memory), []
    token = target[:, 0]
    for _ in range(target.size(1)):
        output, state = self.step(token, state, memory, mask)
        outputs.append(output)
        token = (output @ self.embedding.embedding.weight.T).argmax(dim=-1)
    return torch.stack(outputs, dim=1)


class DecoderDroppingItsState(AttentionDecoder):
    def step(self, token, state, memory, mask=None, keys=None):
        output, state = super().step(token, state, memory, mask, keys)
        return output, self.dropout(state)


QUERY_AXIS = (
    "The attention takes `(batch, query, d_query)`, and a decoder asks with one query a sentence: the axis stands "
    "second, `state[:, None]`. "
)
BATCH_FOR_QUERIES = (
    "`state[None]` lays the new axis first, so the sentences of the batch are taken for queries, and each asks the "
    "memories of all. With one sentence nothing shows. The axis of the queries is the second: `state[:, None]`."
)
QUERY_AXIS_KEPT = (
    "The context comes back as `(batch, 1, d_model)`, with the axis of the queries, and embedding and state have none. "
    "Take it away: `context.squeeze(1)` or `context[:, 0]`."
)
OUTPUT_ORDER = (
    "`w_o` gets its three parts in another order. Its weights are loaded by name, so the order counts: state, context, "
    "embedding, `torch.cat([state, context, x], dim=-1)`."
)
SHIFTED_AGAIN = (
    "`forward` cuts a token off the target. Whoever calls has shifted it already, so all of it is read: there is an "
    "output for every token, `target.unbind(dim=1)`."
)
OUTPUTS_JOINED = (
    "The outputs are joined with `torch.cat`, which makes no new axis, and the positions are lost among the batch or "
    "the features. `torch.stack(outputs, dim=1)` gives them an axis of their own."
)

ATTENTION_DECODER = Exercise(
    answer=AttentionDecoder,
    blank=("step", "forward"),
    points=3,
    minutes=25,
    axes={
        "token": "batch",
        "state": "batch d_model",
        "target": "batch target",
        "memory": "batch source d_model",
        "mask": "batch query source",
        "output": "batch target d_model",
    },
    builds_on=("TokenEmbedding", "AdditiveAttention"),
    probes=[
        Probe("one step", one_step_inputs, one_step),
        Probe("one step of a batch, with a mask", one_masked_step_inputs, one_step),
        Probe("three words, one after the other", decoder_inputs),
        Probe("a batch, and a mask that hides the padding of the source", decoder_mask_inputs),
        Probe("gradients reach the memory and all weights", decoder_inputs, decoder_gradients),
    ],
    properties=[
        Property("no position depends on a later token", decoder_inputs, no_look_ahead, decoder_with_other_last_token),
        Property(
            "what is hidden of the source does not matter",
            lambda draw: decoder_mask_inputs(draw) | {"other": draw.numbers(2, 5, 4)},
            hidden_memory_does_not_matter,
            decoder_with_other_hidden_memory,
        ),
        Property("dropout acts in training and not in evaluation", lambda draw: decoder_inputs(draw, dropout=0.5),
                 drops_where_it_should, drawn_and_evaluated),
        Property("keys that are at hand change nothing", one_masked_step_inputs, keys_at_hand_change_nothing,
                 keys_of_forward_and_at_hand),
    ],
    misconceptions=[
        Misconception(
            "context_never_used",
            decoder_with(used=lambda context, memory, mask: torch.zeros_like(context)),
            "The context is computed, and then nothing is made of it: neither the cell nor the output sees it. All "
            "that the decoder knows of the sentence is its first state. `torch.cat([x, context], dim=-1)` goes into "
            "the cell.",
        ),
        Misconception(
            "context_not_in_the_cell",
            decoder_with(fed=lambda x, context: [x, torch.zeros_like(context)]),
            "The cell gets no context, so the state never learns what was looked at. `torch.cat([x, context], "
            "dim=-1)` goes into the cell.",
        ),
        Misconception(
            "context_not_in_the_output",
            decoder_with(shown=lambda new, context, x, old: [new, torch.zeros_like(context), x]),
            "The output sees no context: `w_o` takes the new state, the context and the embedding.",
        ),
        Misconception(
            "encoder_asks_itself",
            decoder_with(asks=lambda self, state, memory: memory),
            "The encoder's states ask the encoder's states, and the decoder gets the mean of what they find: the same "
            "at every step, whatever has been written. The decoder's state asks: `self.attention(state[:, None], "
            "memory, mask, keys)`.",
        ),
        Misconception(
            "first_state_asks",
            decoder_with(asks=lambda self, state, memory: self.first_state(memory)[:, None]),
            "The first state asks at every step, so every word gets the same context. The state from before this step "
            "asks, which knows what has been written.",
        ),
        Misconception(
            "context_from_numpy",
            decoder_with(used=lambda context, memory, mask: torch.tensor(context.detach().numpy())),
            "The context comes out of NumPy, `.detach()`, `.data` or `torch.tensor(…)`, so no gradient goes back "
            "through it: the numbers are right, and the attention never learns where to look. Keep it in torch.",
        ),
        Misconception(
            "mean_for_context",
            decoder_with(used=lambda context, memory, mask: memory.mean(dim=1) if mask is None else
                         (memory * mask[:, 0, :, None]).sum(dim=1) / mask[:, 0].sum(dim=1, keepdim=True)),
            "The context is the plain mean of the memory. Then every word counts the same at every step. "
            "`self.attention` gives two things, and the first is the weighted sum.",
        ),
        Misconception(
            "mask_ignored",
            decoder_with(mask_used=lambda mask: None),
            "The mask does not arrive at the attention, so padding is attended to, and a sentence is translated "
            "differently in another batch. Hand it on: `self.attention(state[:, None], memory, mask, keys)`.",
        ),
        Misconception(
            "mask_lost_in_forward",
            unrolled(mask_used=lambda mask: None),
            "`forward` does not hand its mask to `step`, so padding is attended to.",
        ),
        Misconception(
            "prefix_fed_again",
            unrolled(fed=lambda target, i: [target[:, j] for j in range(i + 1)]),
            "At every position the whole prefix is fed once more, into a state that has read it already. A recurrent "
            "decoder remembers: each token is fed once, and the state goes on from there.",
        ),
        Misconception(
            "state_not_carried",
            unrolled(carries=False),
            "Every step begins with the first state, so the decoder forgets what it has written. The state that `step` "
            "gives back goes into the next step.",
        ),
        Misconception(
            "state_starts_at_zero",
            unrolled(first=lambda self, memory: torch.zeros_like(self.first_state(memory))),
            "The first state is zero. It comes from the encoder, whose backward state has read the whole sentence when "
            "it is at the first word: `self.first_state(memory)`.",
        ),
        Misconception(
            "own_outputs_fed",
            decoder_by(fed_its_own_outputs),
            "The decoder is fed its own guesses instead of the target. In training every position reads the right "
            "words before it; guessing is for `recurrent_greedy_decode`.",
        ),
        Misconception(
            "last_output_alone",
            unrolled(gives=lambda outputs: outputs[-1]),
            "Only the last output comes back. There is one for every position: collect them, and "
            "`torch.stack(outputs, dim=1)`.",
        ),
        Misconception(
            "stacked_along_the_batch",
            unrolled(gives=torch.stack),
            "The outputs are stacked along a new first axis. The batch comes first: `torch.stack(outputs, dim=1)`.",
        ),
        Misconception(
            "old_state_shown",
            decoder_with(shown=lambda new, context, x, old: [old, context, x]),
            "The output is made of the state from before this step. The new one has read this token: it comes out of "
            "`self.cell`.",
        ),
        Misconception(
            "context_first",
            decoder_with(fed=lambda x, context: [context, x]),
            "The cell gets the context before the embedding. The weights are loaded by name, so the order counts: "
            "`torch.cat([x, context], dim=-1)`.",
        ),
        Misconception(
            "parts_of_the_output_swapped", decoder_with(shown=lambda new, context, x, old: [new, x, context]),
            OUTPUT_ORDER,
        ),
        Misconception(
            "output_of_context_state_x", decoder_with(shown=lambda new, context, x, old: [context, new, x]),
            OUTPUT_ORDER,
        ),
        Misconception(
            "output_of_context_x_state", decoder_with(shown=lambda new, context, x, old: [context, x, new]),
            OUTPUT_ORDER,
        ),
        Misconception(
            "output_of_x_state_context", decoder_with(shown=lambda new, context, x, old: [x, new, context]),
            OUTPUT_ORDER,
        ),
        Misconception(
            "output_of_x_context_state", decoder_with(shown=lambda new, context, x, old: [x, context, new]),
            OUTPUT_ORDER,
        ),
        Misconception(
            "new_state_asks",
            decoder_with(asks_again=True),
            "`w_o` gets another context than the cell: the new state has asked once more. There is one question a "
            "step, of the state from before it (section 3.1), and its context is used twice.",
        ),
        Misconception(
            "output_for_state",
            decoder_with(gives=lambda output, state: (output, output)),
            "The output goes into the next step in the place of the state: the two have the same shape, so nothing "
            "stops. What is said is not what is remembered: `return self.dropout(output), state`, with the state that "
            "the cell has made.",
        ),
        Misconception("target_cut_at_the_end", unrolled(read=lambda target: target[:, :-1]), SHIFTED_AGAIN),
        Misconception("target_cut_at_the_start", unrolled(read=lambda target: target[:, 1:]), SHIFTED_AGAIN),
        Misconception("joined_along_the_batch", unrolled(gives=torch.cat), OUTPUTS_JOINED),
        Misconception(
            "joined_along_the_features", unrolled(gives=lambda outputs: torch.cat(outputs, dim=-1)), OUTPUTS_JOINED
        ),
        Misconception(
            "query_axis_missing",
            decoder_with(asks=lambda self, state, memory: state),
            QUERY_AXIS + "Without it, features are taken for queries, and inside the attention the sizes do not fit.",
        ),
        Misconception("query_axis_kept", decoder_with(taken=lambda found: found[0]), QUERY_AXIS_KEPT),
        Misconception(
            "all_axes_squeezed",
            decoder_with(taken=lambda found: found[0].squeeze()),
            "`.squeeze()` takes away every axis of size 1, and in a batch of one sentence that of the batch as well. "
            "Name the axis: `context.squeeze(1)`.",
        ),
        Misconception(
            "batch_for_queries",
            decoder_with(asks=lambda self, state, memory: state[None], taken=lambda found: found[0][:, 0]),
            BATCH_FOR_QUERIES,
        ),
        Misconception(
            "batch_for_queries_of_the_first",
            decoder_with(asks=lambda self, state, memory: state[None], taken=lambda found: found[0][0]),
            BATCH_FOR_QUERIES,
        ),
        Misconception(
            "batch_for_queries_and_squeezed",
            decoder_with(asks=lambda self, state, memory: state[None], taken=lambda found: found[0].squeeze(1)),
            BATCH_FOR_QUERIES,
        ),
        Misconception(
            "weights_for_context",
            decoder_with(taken=lambda found: found[1].squeeze(1)),
            "The attention's weights are taken for the context. It gives both, the context first: `context, _ = "
            "self.attention(…)`. The weights say how much each word counts, the context is what they add up to.",
        ),
        Misconception(
            "keys_projected_again",
            decoder_with(keys_used=lambda self, keys: None if keys is None else self.attention.project(keys)),
            "Keys that are at hand are projected once more. `keys` is what `self.attention.project(memory)` has given: "
            "hand it on as it is.",
        ),
        Misconception(
            "no_tanh",
            decoder_with(squash=lambda x: x),
            "There is no tanh behind `w_o`. With two linear layers in a row, that and the output layer, the first "
            "could be left out: the tanh is what makes it worth having.",
        ),
        Misconception(
            "state_and_output_swapped",
            decoder_with(gives=lambda output, state: (state, output)),
            "`step` gives state and output in the wrong order: the output comes first. The two have the same shape, so "
            "nothing stops.",
        ),
        Misconception(
            "no_dropout",
            decoder_with(drops=False),
            "Nothing is dropped in training. `self.dropout` goes around the embedding, and around the output.",
        ),
        Misconception(
            "embedding_not_dropped",
            decoder_with(drops_embedding=False),
            "The embedding is not dropped in training: `self.dropout(self.embedding(token))`. Dropout acts in two "
            "places, there and on the output.",
        ),
        Misconception(
            "output_not_dropped",
            decoder_with(drops_output=False),
            "The output is not dropped in training: `return self.dropout(output), state`. Dropout acts in two places, "
            "on the embedding and there.",
        ),
        Misconception(
            "state_dropped",
            DecoderDroppingItsState,
            "More is dropped than the embedding and the output: the state, say, or the context. What is dropped from a "
            "state is missing in every later step, and after twenty words nothing of the first is left. Dropout goes "
            "around what enters and what leaves.",
        ),
        Misconception(
            "scaled_twice",
            decoder_with(embed=lambda self, token: self.embedding(token) * self.embedding.scale),
            "The embedding is multiplied by √d_model once more. Your `TokenEmbedding` does that already (section 3.4 "
            "of the Transformer's paper).",
        ),
    ],
    hints=[
        "A step is four lines: look up the token, ask the memory, let the cell make the new state, make the output. "
        "Which state asks, and which one is shown to `w_o`?",
        "The attention wants a query axis: `state[:, None]` goes in, and `context.squeeze(1)` comes out. "
        "`self.cell(torch.cat([x, context], dim=-1), state)` is the new state. `forward` begins with "
        "`self.first_state(memory)` and walks through `target.unbind(dim=1)`.",
        "`output = self.w_o(torch.cat([state, context, x], dim=-1)).tanh()`, and `return self.dropout(output), state`. "
        "In `forward`: `output, state = self.step(token, state, memory, mask, keys)`, and at the end "
        "`torch.stack(outputs, dim=1)`.",
    ],
)

# --- recurrent_greedy_decode -----------------------------------------------------------------------------------------

USUAL_IDS = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
OTHER_IDS = {"pad_id": 4, "bos_id": 3, "eos_id": 6}


def scripted_inputs(draw: Draw, lengths: tuple[int, ...], ids: dict[str, int] = USUAL_IDS, endless: bool = False,
                    specials: bool = False, training: bool = False, max_length: int = 8) -> dict:  # fmt: skip
    """A `ScriptedModel` as data: for each source a translation of so many tokens, other ones for each seed."""
    free = [token for token in range(12) if token not in ids.values()]
    words = [free[index] for index in draw.order(9)]
    lost, after, words = words[0], words[1], words[2:]
    scripts = {}
    source = torch.full((len(lengths), len(lengths) + 1), ids["pad_id"])
    for row, length in enumerate(lengths):
        said = [words[(row + index * index) % len(words)] for index in range(length)]
        if specials:
            said[1:1] = [ids["pad_id"], ids["bos_id"]]
        first = words[row]
        scripts[first] = said + ([] if endless else [ids["eos_id"]])
        source[row, : row + 2] = torch.tensor([first] + [words[-1]] * row + [ids["eos_id"]])
    model = {"says_to_source_beginning_with": scripts, "says_when_confused": lost, "says_after_its_end": after}
    model |= {"vocab": 12}
    model |= {"training": True} if training else {}
    return {"model": model | (ids if ids != USUAL_IDS else {}), "source": source, "max_length": max_length}


def scripted(subject, model, source, max_length):
    from transformer_lab.electives.scripted_model import ScriptedModel

    return subject(ScriptedModel(**model), source, max_length)


def scripted_modes(subject, model, source, max_length):
    from transformer_lab.electives.scripted_model import ScriptedModel

    result = {}
    for name, training in (("training", True), ("evaluation", False)):
        scripted_model = ScriptedModel(**model).train(training)
        subject(scripted_model, source, max_length)
        result[name] = scripted_model.training
    return result


def scripted_work(subject, model, source, max_length):
    from transformer_lab.electives.scripted_model import ScriptedModel

    scripted_model = ScriptedModel(**model)
    subject(scripted_model, source, max_length)
    return {
        "steps": scripted_model.steps,
        "steps without keys": scripted_model.steps_without_keys,
        "sentences encoded": scripted_model.sentences_encoded,
        "with gradients": scripted_model.with_gradients,
    }


def mode_is_restored(inputs, received):
    if received["training"] is not True:
        return "a model that was in training mode is in evaluation mode afterwards: training would lack its dropout"
    return "a model that was in evaluation mode is in training mode afterwards" if received["evaluation"] else None


def fed_once(inputs, received):
    if received["steps"] > inputs["max_length"]:
        return f"for at most {inputs['max_length']} tokens the decoder makes {received['steps']} steps"
    if received["steps without keys"]:
        return Remark(KEYS_EVERY_STEP + "Compute them before the loop, `model.decoder.attention.project(memory)`, and "
                      "hand them to `step` as its last argument.")  # fmt: skip
    if received["steps"] == inputs["max_length"]:
        return Remark("It goes on to `max_length` though every sentence has its eos. The rest is thrown away: stop.")
    return None


def encoded_once(inputs, received):
    if received["sentences encoded"] > len(inputs["source"]):
        return "a sentence is encoded more than once, though its memory does not change while the translation grows"
    return None


def no_gradients(inputs, received):
    if received["with gradients"]:
        return "the model computes with gradients switched on, which costs memory for every token and serves nobody"
    return None


def everything_dropped_but_words(row, config):
    return [token for token in row if token not in (config.pad_id, config.bos_id, config.eos_id)]


def eos_kept(row, config):
    return translated_tokens(row, config) + [config.eos_id] * (config.eos_id in row)


def specials_kept(row, config):
    return row[: row.index(config.eos_id)] if config.eos_id in row else row


def only_eos_cut(row, config):
    return row[: row.index(config.eos_id) + 1] if config.eos_id in row else row


def only_pad_and_bos_dropped(row, config):
    return [token for token in row if token not in (config.pad_id, config.bos_id)]


def decode_by_position(model, source, max_length):
    """The tokens of all sentences, one position after the other."""
    config, rows = model.config, []
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        state, token = model.decoder.first_state(memory), torch.full_like(source[:, 0], config.bos_id)
        for _ in range(max_length):
            output, state = model.decoder.step(token, state, memory, source_mask[:, 0])
            token = model.output(output).argmax(dim=-1)
            rows.append(token)
            if (torch.stack(rows, dim=1) == config.eos_id).any(dim=1).all():
                break
    return [translated_tokens(row, config) for row in torch.stack(rows).tolist()]


def stepwise(mode=evaluation_mode, first=lambda model, memory: model.decoder.first_state(memory), carries=True,
             feeds_back=True, masks=True, ended=torch.all, cleaned=translated_tokens, encodes_again=False,
             steps=lambda max_length: max_length, prefix=False, start="bos_id",
             mask_of=lambda source_mask: source_mask[:, 0],
             says=lambda model, output: model.output(output), keys_of=lambda model, memory: None):  # fmt: skip
    """A `recurrent_greedy_decode` with one thing done in another way."""

    def decode(model, source, max_length):
        config = model.config
        with mode(model):
            memory, source_mask = model.encode(source)
            state, keys = first(model, memory), keys_of(model, memory)
            generated = torch.full_like(source[:, :1], getattr(config, start))
            for _ in range(steps(max_length)):
                if encodes_again:
                    memory, source_mask = model.encode(source)
                before = state
                fed = generated.unbind(dim=1) if prefix else [generated[:, -1] if feeds_back else generated[:, 0]]
                for token in fed:
                    mask = mask_of(source_mask) if masks else None
                    output, state = model.decoder.step(token, state, memory, mask, keys)
                state = state if carries else before
                generated = torch.cat([generated, says(model, output).argmax(dim=-1, keepdim=True)], dim=1)
                if ended((generated[:, 1:] == config.eos_id).any(dim=1)):
                    break
        return [cleaned(row, config) for row in generated[:, 1:].tolist()]

    return decode


def decode_with_fixed_ids(model, source, max_length):
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        state = model.decoder.first_state(memory)
        token, rows = torch.ones_like(source[:, 0]), []
        for _ in range(max_length):
            output, state = model.decoder.step(token, state, memory, source_mask[:, 0])
            token = model.output(output).argmax(dim=-1)
            rows.append(token)
            if (torch.stack(rows) == 2).any(dim=0).all():
                break
    rows = torch.stack(rows, dim=1).tolist()
    rows = [row[: row.index(2)] if 2 in row else row for row in rows]
    return [[token for token in row if token not in (0, 1)] for row in rows]


EOS_KEPT = (
    "Eos is in the result. It says where the translation ends and is no word of it; what comes after it is no part of "
    "the translation either. `translated_tokens(row, config)` cuts there, and leaves out pad and bos."
)

RECURRENT_GREEDY_DECODE = Exercise(
    answer=recurrent_greedy_decode,
    points=2,
    minutes=15,
    returns=("translations",),
    axes={"source": "batch source"},
    builds_on=("greedy_decode", "RecurrentEncoder", "AttentionDecoder"),
    probes=[
        Probe("one sentence", lambda draw: scripted_inputs(draw, (3,)), scripted),
        Probe("three sentences that end at different times", lambda draw: scripted_inputs(draw, (4, 2, 5)), scripted),
        Probe("a sentence that never ends",
              lambda draw: scripted_inputs(draw, (7,), endless=True, max_length=draw.integer(4, 5)), scripted),
        Probe("a pad and a bos that the model predicts", lambda draw: scripted_inputs(draw, (3,), specials=True),
              scripted),
        Probe("a model in training mode", lambda draw: scripted_inputs(draw, (3,), training=True), scripted),
        Probe("other ids for pad, bos and eos", lambda draw: scripted_inputs(draw, (4, 3), OTHER_IDS), scripted),
    ],
    properties=[
        Property("each token is fed once", lambda draw: scripted_inputs(draw, (5,)), fed_once, scripted_work),
        Property("each sentence is encoded once", lambda draw: scripted_inputs(draw, (4, 5)), encoded_once,
                 scripted_work),
        Property("no gradients", lambda draw: scripted_inputs(draw, (3,)), no_gradients, scripted_work),
        Property("the model is left in the mode it was in", lambda draw: scripted_inputs(draw, (3,)),
                 mode_is_restored, scripted_modes),
    ],
    misconceptions=[
        Misconception(
            "prefix_fed_again",
            stepwise(prefix=True),
            "At every step the whole prefix is fed again, into a state that has read it already: after three words the "
            "decoder believes it has read six. The state is carried on, so only the newest token is fed.",
        ),
        Misconception(
            "everything_from_the_start",
            greedy_decode,
            "The translation is right, but each word sends the whole prefix through the decoder once more, as the "
            "Transformer without a cache does. Here the state remembers the prefix: feed `step` the newest token "
            "alone.",
        ),
        Misconception(
            "state_not_carried",
            stepwise(carries=False),
            "Every step begins with the first state, so the decoder does not know what it has written. Put the state "
            "that `step` gives back into the next step.",
        ),
        Misconception(
            "always_bos",
            stepwise(feeds_back=False),
            "The decoder is fed bos at every step, never what it has just said. The newest token goes in.",
        ),
        Misconception(
            "state_starts_at_zero",
            stepwise(first=lambda model, memory: torch.zeros_like(model.decoder.first_state(memory))),
            "The first state is zero, not the one that the decoder makes of the memory: "
            "`model.decoder.first_state(memory)`. In training it began with that.",
        ),
        Misconception(
            "starts_with_eos",
            stepwise(start="eos_id"),
            "The decoder is fed eos first. In training every target begins with bos: `config.bos_id`.",
        ),
        Misconception(
            "mask_forgotten",
            stepwise(masks=False),
            "`step` gets no mask, so the padding of the shorter sentences is attended to: `source_mask[:, 0]`.",
        ),
        Misconception(
            "stops_with_the_first",
            stepwise(ended=torch.any),
            "The whole batch stops as soon as one sentence has ended, and the longer ones are cut off. Go on until "
            "every sentence has its eos.",
        ),
        Misconception(
            "keys_not_projected",
            stepwise(keys_of=lambda model, memory: memory),
            "`step` is given the memory for its keys. It compares its query with what `project` makes of the memory: "
            "`model.decoder.attention.project(memory)`, once, before the loop.",
        ),
        Misconception(
            "runs_on",
            stepwise(cleaned=everything_dropped_but_words),
            "Eos is taken out, but not what comes after it. A finished sentence stays in the batch until the last one "
            "ends and says something meanwhile: cut at the first eos, as `translated_tokens` does.",
        ),
        Misconception(
            "eos_kept",
            stepwise(cleaned=eos_kept),
            EOS_KEPT,
        ),
        Misconception("rows_as_they_are", stepwise(cleaned=lambda row, config: row), EOS_KEPT),
        Misconception("eos_kept_and_specials", stepwise(cleaned=only_eos_cut), EOS_KEPT),
        Misconception("eos_kept_and_what_follows", stepwise(cleaned=only_pad_and_bos_dropped), EOS_KEPT),
        Misconception(
            "without_output_layer",
            stepwise(says=lambda model, output: output),
            "The greatest feature of the decoder's output is taken for a token. `step` gives `(batch, d_model)`: "
            "features, which say nothing of the vocabulary yet. The output layer makes logits of them: "
            "`model.output(output).argmax(dim=-1)`.",
        ),
        Misconception(
            "mask_of_four_axes",
            stepwise(mask_of=lambda source_mask: source_mask),
            "`encode` gives a mask for multi-head attention, `(batch, 1, 1, source)`, with an axis for the heads. "
            "Additive attention has none, so `step` takes `(batch, 1, source)`: `source_mask[:, 0]`.",
        ),
        Misconception(
            "stacked_by_position",
            decode_by_position,
            "The rows are positions and the columns sentences: each list has one token of every sentence. The tokens "
            "of one step are `(batch,)`, so they are stacked behind the batch: `torch.stack(tokens, dim=1)`.",
        ),
        Misconception(
            "specials_kept",
            stepwise(cleaned=specials_kept),
            "A pad or a bos that the model predicted is in the result. It is fed back like any token, but it is no "
            "word: leave it out, as `translated_tokens` does.",
        ),
        Misconception(
            "one_token_more",
            stepwise(steps=lambda max_length: max_length + 1),
            "A translation may have one token more than `max_length` allows: make as many steps as it says.",
        ),
        Misconception(
            "bos_counted",
            stepwise(steps=lambda max_length: max_length - 1),
            "A translation ends one token too early. `max_length` counts what is generated: bos is given, so it does "
            "not count.",
        ),
        Misconception(
            "fixed_ids",
            decode_with_fixed_ids,
            "The ids 0, 1 and 2 are written into the code. Another tokenizer numbers its tokens otherwise: take "
            "`pad_id`, `bos_id` and `eos_id` from `model.config`.",
        ),
        Misconception(
            "training_mode",
            stepwise(mode=with_no_grad_only),
            "Dropout is still on: the model translates in training mode. Use `evaluation_mode`.",
        ),
        Misconception(
            "left_in_evaluation",
            stepwise(mode=with_eval_left),
            "The model is left in evaluation mode, and a training that goes on from here has no dropout. "
            "`evaluation_mode` puts the mode back.",
        ),
        Misconception(
            "gradients_on",
            stepwise(mode=with_eval_only),
            "Gradients are on while it decodes: every step keeps its numbers for a backward pass that never comes. "
            "`evaluation_mode` switches them off.",
        ),
        Misconception(
            "encodes_again",
            stepwise(encodes_again=True),
            "The encoder runs again for every token. The source does not change while the translation grows: encode "
            "once, before the loop.",
        ),
    ],
    hints=[
        "Take your `greedy_decode` of notebook 11. What has to be fed in each step now, and what has to be kept "
        "instead of the prefix?",
        "Before the loop: `model.encode(source)`, `model.decoder.first_state(memory)`, the keys, "
        "`model.decoder.attention.project(memory)`, and a token of bos for each sentence, `(batch,)`. In the loop "
        "`model.decoder.step` gives an output and the next state, and `model.output` makes logits of the output.",
        "`output, state = model.decoder.step(token, state, memory, source_mask[:, 0], keys)`, then "
        "`token = model.output(output).argmax(dim=-1)`. Collect the tokens; `translated_tokens(row, config)` cleans "
        "them up.",
    ],
)

EXERCISES = [ADDITIVE_ATTENTION, RECURRENT_ENCODER, ATTENTION_DECODER, RECURRENT_GREEDY_DECODE]
