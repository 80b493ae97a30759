"""Notebook 20, what attention replaced: additive attention, with a recurrent encoder and decoder around it."""

from functools import partial

import torch
from torch import Tensor

from transformer_lab.data import pad_batch
from transformer_lab.electives.recurrent import (
    AdditiveAttention,
    AttentionDecoder,
    RecurrentEncoder,
    recurrent_greedy_decode,
)
from transformer_lab.electives.scripted_model import ScriptedModel
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import (
    build,
    build_with_zeros,
    exception_of_call,
    extremes,
    gradients,
    gradients_of_module,
)
from transformer_lab.exercises.notebook_01_attention import (
    allowed_weights_sum_to_one,
    nan_of_nothing_allowed,
    remark_on_uniform_weights,
)
from transformer_lab.exercises.notebook_06_encoder import has_parameters_of, parameters_and_shared
from transformer_lab.exercises.notebook_11_decoding import (
    decoded,
    encoded_once,
    modes_after_decoding,
    no_gradients,
    special_ids,
    steps_taken,
    stops_in_time,
)
from transformer_lab.exercises.rules import REFUSED, mode_is_restored, raises, requirement
from transformer_lab.exercises.sampling import InputSampler

# --- AdditiveAttention -----------------------------------------------------------------------------------------------


def additive_inputs(
    sampler: InputSampler, batch: int = 1, query: int = 1, key: int = 3, d_query: int = 2, d_memory: int = 3,
                    d_attention: int = 4) -> dict:  # fmt: skip
    arguments = {"d_query": d_query, "d_memory": d_memory, "d_attention": d_attention}
    return {
        "arguments": arguments,
        "weights": sampler.weights(AdditiveAttention(*arguments.values()), scale=1.5),
        "query": sampler.numbers(batch, query, d_query),
        "memory": sampler.numbers(batch, key, d_memory),
    }


def additive_answer(inputs: dict) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        module = build(AdditiveAttention, inputs["arguments"], inputs["weights"])
        return module(inputs["query"], inputs["memory"], inputs.get("mask"))


def additive_mask_inputs(sampler: InputSampler) -> dict:
    """Hide the word that would get the most attention in each sentence."""
    inputs = additive_inputs(sampler, batch=2, query=2, key=4)
    mask = torch.ones(2, 1, 4, dtype=torch.bool)
    for row, weights in enumerate(additive_answer(inputs)[1]):
        mask[row, 0, weights.sum(0).argmax()] = False
    return inputs | {"mask": mask}


def additive_keys_inputs(sampler: InputSampler) -> dict:
    """Pass keys that do not come from the memory but have its width, so that projecting them again does not crash."""
    inputs = additive_inputs(sampler, batch=2, query=1, key=3, d_memory=4, d_attention=4)
    return inputs | {"mask": None, "keys": sampler.numbers(2, 3, 4, low=-1.5, high=1.5)}


def nothing_allowed_inputs(sampler: InputSampler) -> dict:
    mask = torch.ones(2, 1, 3, dtype=torch.bool)
    nothing = sampler.integer(0, 1)
    mask[nothing] = False
    mask[1 - nothing, 0, 2] = False
    return additive_inputs(sampler, batch=2, key=3) | {"mask": mask}


def additive_call(subject, arguments, weights, **inputs):
    return build_with_zeros(subject, arguments, weights)(*inputs.values())


def additive_gradients(subject, arguments, weights, query, memory):
    module = build_with_zeros(subject, arguments, weights)
    own = {name: parameter for name, parameter in module.named_parameters() if name in weights}
    inputs = {"query": query.requires_grad_(), "memory": memory.requires_grad_()}
    return gradients(module(query, memory)[0], inputs | own)


def additive_with_gradients(subject, arguments, weights, query, memory, mask):
    module = build(subject, arguments, weights)
    inputs = {"query": query.requires_grad_(), "memory": memory.requires_grad_()}
    context, rows = module(query, memory, mask)
    return {"context": context, "weights": rows, **gradients(context, inputs)}


def nothing_allowed_is_no_nan(inputs, received):
    if problem := nan_of_nothing_allowed(received):
        return problem
    return remark_on_uniform_weights(inputs["mask"], received["weights"], additive_answer(inputs)[1])


ADDITIVE_ATTENTION = Exercise(
    answer=AdditiveAttention,
    blank=("__init__", "forward"),
    points=3,
    minutes=25,
    returns=("context", "weights"),
    axes={
        "query": "batch query d_query",
        "memory": "batch key d_memory",
        "keys": "batch key d_attention",
        "mask": "batch query key",
        "context": "batch query d_memory",
        "weights": "batch query key",
    },
    call=additive_call,
    probes=[
        Probe("one query and three words", additive_inputs),
        Probe("a batch with several queries", lambda sampler: additive_inputs(sampler, 2, query=3, key=4)),
        Probe("a mask hides the word with the highest weight", additive_mask_inputs),
        Probe("keys that the caller passes are used as they are", additive_keys_inputs),
        Probe(
            "gradients reach query, memory, and all weights",
            lambda sampler: additive_inputs(sampler, query=2),
            additive_gradients,
        ),
    ],
    properties=[
        Property(
            "its parameters are those of w_q, of w_k without a bias, and of v without a bias",
            lambda sampler: {"arguments": {"d_query": 3, "d_memory": 4, "d_attention": sampler.integer(5, 7)}},
            has_parameters_of(AdditiveAttention),
            parameters_and_shared,
        ),
        Property("every row of weights adds up to 1", additive_mask_inputs, allowed_weights_sum_to_one),
        Property(
            "a query that may attend to nothing doesn't cause NaN",
            nothing_allowed_inputs,
            nothing_allowed_is_no_nan,
            additive_with_gradients,
        ),
    ],
)

# --- RecurrentEncoder ------------------------------------------------------------------------------------------------


def encoder_inputs(sampler: InputSampler, lengths: tuple[int, ...] = (3,), padded_to: int = 0, n_layers: int = 1,
                   pad_id: int = 0) -> dict:  # fmt: skip
    arguments = {"vocab_size": 9, "d_model": 4, "n_layers": n_layers, "dropout": 0.0, "pad_id": pad_id}
    weights = sampler.weights(RecurrentEncoder(*arguments.values()), scale=0.9)
    for name in weights:  # make the words very different, so that no two states look alike
        if name.startswith("embedding"):
            weights[name] = sampler.numbers(*weights[name].shape, low=-1.0, high=1.0)
    source = torch.full((len(lengths), max(*lengths, padded_to)), pad_id)
    words = [token for token in range(9) if token != pad_id]
    for row, length in enumerate(lengths):
        source[row, :length] = torch.tensor(sampler.shuffled(words)[:length])
    return {"arguments": arguments, "weights": weights, "source": source}


def encoder_gradient_inputs(sampler: InputSampler) -> dict:
    """Pad with a token other than 0, and use 0 as a word. Its embedding must therefore get a gradient."""
    inputs = encoder_inputs(sampler, (1, 3), pad_id=sampler.integer(1, 8))
    inputs["source"][0, 0] = 0
    return inputs


def encoder_dropout_inputs(sampler: InputSampler, n_layers: int = 1) -> dict:
    """Use only one feature of the embeddings, so that 600 random samples cover all possible outcomes."""
    rate = (0.4, 0.45, 0.55)[sampler.integer(0, 2)]
    arguments = {"vocab_size": 4, "d_model": 2, "n_layers": n_layers, "dropout": rate, "pad_id": 0}
    weights = {
        name: sampler.numbers(*parameter.shape, low=0.3, high=1.2)
        for name, parameter in RecurrentEncoder(*arguments.values()).named_parameters()
    }
    for name in weights:
        if name.startswith("embedding"):
            weights[name][:, sampler.integer(0, 1)] = 0
        elif not name.startswith("gru.weight_ih"):  # keeps the update gate open
            weights[name] = -weights[name] / 2
    return {"arguments": arguments, "weights": weights, "source": sampler.integers(1, 1, low=1, high=3)}


def states_of_words(subject, arguments, weights, source):
    """Return the memory, with zeros at padded positions. Parameters not in `weights` are set to 0."""
    module = build_with_zeros(subject, arguments, weights).eval()
    memory = module(source)
    if isinstance(memory, torch.Tensor) and memory.shape[:2] == source.shape:
        memory = memory * (source != arguments["pad_id"])[..., None]
    return memory


def encoder_gradients(subject, arguments, weights, source):
    module = build_with_zeros(subject, arguments, weights).eval()
    memory = module(source) * (source != arguments["pad_id"])[..., None]
    return gradients(memory, {name: parameter for name, parameter in module.named_parameters() if name in weights})


def states_at_padding(subject, arguments, weights, source):
    memory = build(subject, arguments, weights)(source)
    return memory[source == arguments["pad_id"]]


def odd_width_is_refused(inputs, received):
    if received in REFUSED:
        return None
    return Remark(
        f"A `d_model` of {inputs['d_model']} {raises(received)}. Each direction gets half of it, so an odd number "
        "can't work. A `ValueError` that says so tells the caller right away what's wrong."
    )


def order_of_axes(subject, arguments, weights):
    return build(subject, arguments, weights).gru.batch_first


def lengths_on_a_gpu(subject, arguments, weights, source):
    """Track which tensors would be on the GPU if `source` were. Stop at packing, which requires lengths on the CPU."""

    class PackingError(Exception):
        pass

    class OnGpu(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            name, named = getattr(function, "__name__", ""), kwargs or {}
            if name == "_pack_padded_sequence":
                raise PackingError("the GPU" if isinstance(args[1], OnGpu) else "the CPU")
            result = super().__torch_function__(function, types, args, named)
            others = [str(value) for value in [*args, *named.values()] if isinstance(value, str | torch.device)]
            is_copied = name == "cpu" or "cpu" in others
            return result.as_subclass(torch.Tensor) if is_copied else result

    try:
        build(subject, arguments, weights)(source.as_subclass(OnGpu))
    except PackingError as packing:
        return str(packing)
    return "never packed"


def encoder_dropout(subject, arguments, weights, source):
    return extremes(build(subject, arguments, weights).train(), source, samples=600, evaluated=20)


dropout_probe = partial(Probe, call=encoder_dropout, is_example=False)

RECURRENT_ENCODER = Exercise(
    answer=RecurrentEncoder,
    blank=("__init__", "forward"),
    points=2,
    minutes=20,
    returns=("memory",),
    axes={"source": "batch source", "memory": "batch source d_model"},
    builds_on=("TokenEmbedding",),
    call=states_of_words,
    probes=[
        Probe("one sentence", encoder_inputs),
        Probe(
            "sentences of different lengths, not sorted by length", lambda sampler: encoder_inputs(sampler, (2, 4, 3))
        ),
        Probe(
            "a batch padded beyond its longest sentence", lambda sampler: encoder_inputs(sampler, (2, 3), padded_to=5)
        ),
        Probe("several layers", lambda sampler: encoder_inputs(sampler, (3, 2), n_layers=3)),
        Probe("a pad_id other than 0", lambda sampler: encoder_inputs(sampler, (2, 4), pad_id=sampler.integer(1, 8))),
        Probe("gradients reach the embedding and both directions", encoder_gradient_inputs, encoder_gradients),
        dropout_probe("dropout acts on embeddings and memory, in training only", encoder_dropout_inputs),
        dropout_probe(
            "with two layers, dropout also acts between them", lambda sampler: encoder_dropout_inputs(sampler, 2)
        ),
    ],
    properties=[
        Property(
            "its parameters are those of an embedding and a GRU with two directions",
            lambda sampler: {"arguments": encoder_inputs(sampler, n_layers=sampler.integer(3, 4))["arguments"]},
            has_parameters_of(RecurrentEncoder),
            parameters_and_shared,
        ),
        requirement(
            "the memory is zero at padded positions",
            lambda sampler: encoder_inputs(sampler, (2, 4), padded_to=5, pad_id=sampler.integer(1, 8)),
            lambda inputs, received: received.numel() and received.abs().max() == 0,
            "the memory is not zero at padded positions",
            states_at_padding,
        ),
        requirement(
            "`gru` takes tensors with the batch first, as the notebook's next cell assumes",
            lambda sampler: {name: part for name, part in encoder_inputs(sampler).items() if name != "source"},
            lambda inputs, batch_first: batch_first,
            "`gru.batch_first` is False, so the GRU would mistake the batch axis of a padded tensor for time",
            order_of_axes,
            penalty=0.5,
        ),
        requirement(
            "packing would work on a GPU too",
            lambda sampler: encoder_inputs(sampler, (2, 3)),
            lambda inputs, lengths: lengths != "the GPU",
            "with a source on a GPU, `pack_padded_sequence` gets lengths on the GPU too, and raises a "
            "`RuntimeError`: pass `lengths.cpu()`",
            lengths_on_a_gpu,
            penalty=0.5,
        ),
        Property(
            "an odd d_model",
            lambda sampler: {"vocab_size": 9, "d_model": 2 * sampler.integer(1, 4) + 1},
            odd_width_is_refused,
            exception_of_call,
        ),
    ],
)

# --- AttentionDecoder ------------------------------------------------------------------------------------------------


KEYS_EVERY_STEP = (
    "The memory is projected to keys again at every step. That doesn't change the result and costs no points, but the "
    "keys stay the same while the decoder writes, so once is enough. "
)


def decoder_inputs(sampler: InputSampler, batch: int = 1, target: int = 3, source: int = 3) -> dict:
    """Make the attention layer's weights larger than the others, so that the query has an effect.

    The second token's embedding is halfway between two others, so that it is never the likeliest output.
    """
    arguments = {"vocab_size": 7, "d_model": 4, "dropout": 0.0, "pad_id": 0}
    weights = sampler.weights(AttentionDecoder(*arguments.values()), scale=0.9)
    for name in ("attention.w_q.weight", "attention.w_k.weight", "attention.v.weight"):
        weights[name] = 2 * weights[name]
    table, tokens = weights["embedding.embedding.weight"], sampler.integers(batch, target, low=1, high=6)
    table[6], tokens[:, 1] = table[4:6].mean(dim=0), 6
    return {
        "arguments": arguments,
        "weights": weights,
        "target": tokens,
        "memory": sampler.numbers(batch, source, 4, low=-1.5, high=1.5),
    }


def decoder_mask_inputs(sampler: InputSampler) -> dict:
    mask = torch.ones(2, 1, 5, dtype=torch.bool)
    mask[1, 0, sampler.integer(2, 4) :] = False
    return decoder_inputs(sampler, 2, 3, 5) | {"mask": mask}


def step_inputs(sampler: InputSampler, arguments: dict, weights: dict, target: Tensor, memory: Tensor, **mask) -> dict:
    """Return the inputs for one step: the first token of each target, the memory, and a random state, in this order."""
    state = sampler.numbers(len(target), 4, low=-0.9, high=0.9)
    return {"arguments": arguments, "weights": weights, "token": target[:, 0], "memory": memory, "state": state} | mask


def plain_step_inputs(sampler: InputSampler) -> dict:
    return step_inputs(sampler, **decoder_inputs(sampler))


def masked_step_inputs(sampler: InputSampler) -> dict:
    return step_inputs(sampler, **decoder_mask_inputs(sampler))


def decoder_dropout_inputs(sampler: InputSampler) -> dict:
    """Use only one feature of the embeddings, so that 400 random samples cover all possible outcomes.

    This feature raises the state, which raises the output, while the embedding itself lowers the output. This shows
    whether dropout drops different features for the cell and for the output. There is only one source word, so the
    state does not change the context. The second token has a medium-sized embedding, which is never the likeliest
    output.
    """
    arguments = {"vocab_size": 4, "d_model": 2, "dropout": (0.4, 0.45, 0.55)[sampler.integer(0, 2)], "pad_id": 0}
    weights = sampler.weights(AttentionDecoder(*arguments.values()), scale=0.9)
    weights["embedding.embedding.weight"] = torch.zeros(4, 2)
    weights["embedding.embedding.weight"][:, sampler.integer(0, 1)] = sampler.integers(4, low=2, high=3).cumsum(0) / 10
    weights["w_o.weight"] = sampler.numbers(2, 6, low=0.2, high=0.6)
    weights["w_o.weight"][:, 4:] *= -1
    for name in ("cell.weight_ih", "cell.weight_hh"):
        weights[name] = sampler.numbers(*weights[name].shape, low=0.3, high=1.2)
    weights["cell.weight_ih"][:4, :2] = 0  # the gates
    return {
        "arguments": arguments,
        "weights": weights,
        "target": torch.tensor([[sampler.integer(1, 3), sampler.integer(1, 2)]]),
        "memory": sampler.numbers(1, 1, 2, low=0.3, high=1.2),
    }


def output_of_one_step(subject, arguments, weights, token, memory, state):
    return build(subject, arguments, weights).step(token, state, memory)[0]


def state_after_one_step(subject, arguments, weights, token, memory, state):
    return build(subject, arguments, weights).step(token, state, memory)[1]


def one_step(subject, arguments, weights, token, memory, state, mask):
    output, after = build(subject, arguments, weights).step(token, state, memory, mask)
    return {"output": output, "state": after}


def keys_of_forward_and_step(subject, arguments, weights, token, memory, state, mask):
    """Count how often `forward` projects the memory, then take one step without keys and one with them."""
    module = build(subject, arguments, weights)
    counted = []
    hook = module.attention.w_k.register_forward_hook(lambda *_: counted.append(1))
    module(token[:, None].expand(-1, 3), memory, mask)
    hook.remove()
    keys = module.attention.project(memory)
    return {
        "projections": len(counted),
        "output": module.step(token, state, memory, mask)[0],
        "output with keys": module.step(token, state, memory, mask, keys)[0],
    }


def keys_change_nothing(inputs, received):
    without, with_keys = received["output"], received["output with keys"]
    if without.shape != with_keys.shape or not torch.allclose(without, with_keys, atol=1e-8):
        return "`step` returns something different when it's given exactly the keys that it would compute itself"
    if received["projections"] > 1:
        return Remark(KEYS_EVERY_STEP + "Compute `keys = self.attention.project(memory)` at the start of `forward` and "
                      "pass them to `step`, which passes them to `self.attention`.")  # fmt: skip
    return None


def decoder_dropout(subject, arguments, weights, target, memory):
    return extremes(build(subject, arguments, weights).train(), target, memory, samples=400, evaluated=20)


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
        Probe("the output of one step", plain_step_inputs, output_of_one_step),
        Probe("the state after one step", plain_step_inputs, state_after_one_step),
        Probe("one step of a batch, with a mask", masked_step_inputs, one_step),
        Probe("three tokens, one after the other", decoder_inputs),
        Probe("a batch with a mask that hides the padding of the source", decoder_mask_inputs),
        Probe("gradients reach the memory and all weights", decoder_inputs, gradients_of_module),
        Probe(
            "dropout acts on the embedding and on the output, in training only",
            decoder_dropout_inputs,
            decoder_dropout,
            is_example=False,
        ),
    ],
    properties=[
        Property(
            "keys computed in advance change nothing", masked_step_inputs, keys_change_nothing, keys_of_forward_and_step
        ),
    ],
)

# --- recurrent_greedy_decode -----------------------------------------------------------------------------------------


def scripted_inputs(sampler: InputSampler, lengths: tuple[int, ...], other_ids: bool = False, endless: bool = False,
                    specials: bool = False, training: bool = False, max_length: int = 8) -> dict:  # fmt: skip
    """Return a `ScriptedModel` as data, with translations of the given lengths. Each seed uses different tokens."""
    ids, usual = special_ids(sampler, other_ids)  # words in the first translation have the usual ids of special tokens
    free = sampler.shuffled([token for token in range(16) if token not in [*ids.values(), *usual]])
    sayings, free = free[:5], free[5:]
    first, filler = free[-len(lengths) :], free[0]
    scripts, sources = {}, []
    middle = len(lengths) // 2  # of four, the first is neither the shortest nor the longest: its mask fits no other
    widths = [middle, *sampler.shuffled([width for width in range(len(lengths)) if width != middle])]
    for row, length in enumerate(lengths):
        said = [free[sampler.integer(0, len(free) - 1)] for _ in range(length)]
        if row == 0:
            said[: len(usual)] = usual
        for special in ("pad_id", "bos_id") if specials else ():
            said.insert(sampler.integer(0, len(said) - 1), ids[special])
        scripts[first[row]] = said + ([] if endless else [ids["eos_id"]])
        sources.append([first[row], *[filler] * widths[row], ids["eos_id"]])
    names = ("says_when_confused", "says_when_it_sees_padding", "says_when_it_sees_nothing", "says_in_training_mode",
             "says_after_its_end")  # fmt: skip
    model = {"says_to_source_beginning_with": scripts, **dict(zip(names, sayings, strict=True)), "vocab": 16}
    model |= {"training": True} if training else {}
    source = pad_batch(sources, ids["pad_id"])
    return {"model": model | (ids if other_ids else {}), "source": source, "max_length": max_length}


def one_sentence_inputs(sampler: InputSampler, low: int = 3, high: int = 4, **others) -> dict:
    return scripted_inputs(sampler, (sampler.integer(low, high),), **others)


def four_sentences_inputs(sampler: InputSampler, max_length: int = 8) -> dict:
    """Return four sentences: the second is the longest, the third is the shortest, and the others differ in length."""
    first = sampler.integer(2, 3)
    return scripted_inputs(sampler, (first, 6, 1, 5 - first), max_length=max_length)


def work_done(subject, model, source, max_length):
    scripted_model = ScriptedModel(**model)
    subject(scripted_model, source, max_length)
    names = "with_gradients", "sentences_encoded", "times_decoded", "steps_without_keys"
    return {name: getattr(scripted_model, name) for name in names}


NEVER_STEPS = "the model's decoder never takes a step"


def fed_once(inputs, received):
    if not received["times_decoded"]:
        return NEVER_STEPS
    if received["times_decoded"] > inputs["max_length"]:
        return f"the decoder takes {received['times_decoded']} steps to write at most {inputs['max_length']} tokens"
    if received["steps_without_keys"]:
        return Remark(KEYS_EVERY_STEP + "Compute `keys = model.decoder.attention.project(memory)` before the loop and "
                      "pass them to `step` as its last argument.")  # fmt: skip
    return None


RECURRENT_GREEDY_DECODE = Exercise(
    answer=recurrent_greedy_decode,
    points=2,
    minutes=15,
    returns=("translations",),
    axes={"source": "batch source"},
    builds_on=("greedy_decode", "RecurrentEncoder", "AttentionDecoder"),
    call=decoded,
    probes=[
        Probe("one sentence", one_sentence_inputs),
        Probe("four sentences that end at different times", four_sentences_inputs),
        Probe(
            "an empty translation next to a longer one",
            lambda sampler: scripted_inputs(sampler, (0, sampler.integer(4, 5))),
        ),
        Probe(
            "a sentence that never ends",
            lambda sampler: scripted_inputs(sampler, (8,), endless=True, max_length=sampler.integer(3, 6)),
        ),
        Probe("a pad and a bos that the model predicts", lambda sampler: one_sentence_inputs(sampler, specials=True)),
        Probe("a model in training mode", lambda sampler: one_sentence_inputs(sampler, training=True)),
        Probe(
            "other ids for pad, bos, and eos",
            lambda sampler: scripted_inputs(sampler, (sampler.integer(4, 5), 2), other_ids=True),
        ),
    ],
    properties=[
        # The penalty equals the points of all probes, because the exercise is about feeding each token only once.
        Property(
            "each token is fed once", lambda sampler: one_sentence_inputs(sampler, 5, 6), fed_once, work_done, penalty=7
        ),
        Property(
            "decoding stops once every sentence has its eos",
            lambda sampler: four_sentences_inputs(sampler, max_length=sampler.integer(18, 22)),
            stops_in_time(NEVER_STEPS),
            steps_taken,
            penalty=0.5,
            needs=("four sentences that end at different times", "each token is fed once"),
        ),
        Property("each sentence is encoded once", four_sentences_inputs, encoded_once, work_done),
        Property("gradients are switched off", one_sentence_inputs, no_gradients(NEVER_STEPS), work_done),
        Property("the model stays in the mode it was in", one_sentence_inputs, mode_is_restored, modes_after_decoding),
    ],
)

EXERCISES = [ADDITIVE_ATTENTION, RECURRENT_ENCODER, ATTENTION_DECODER, RECURRENT_GREEDY_DECODE]
