"""Notebook 08, the Transformer: initial weights, tied weights, the whole model, and its number of parameters."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.harnesses import bare_transformer, build, gradients, raised
from transformer_lab.exercises.notebook_01_attention import without
from transformer_lab.exercises.notebook_06_encoder import lively_weights
from transformer_lab.exercises.rules import unless
from transformer_lab.exercises.sampling import InputSampler, sampled_until
from transformer_lab.model import (
    Transformer,
    TransformerConfig,
    count_parameters,
    initialize_parameters,
    padding_mask,
    tie_embeddings,
)

# --- initialize_parameters -------------------------------------------------------------------------------------------


def matrix_inputs(sampler: InputSampler, narrow: bool) -> dict:
    few = [sampler.integer(90, 160) for _ in range(2)]
    many = [sampler.integer(200, 360) for _ in range(2)]
    return {"inputs": many if narrow else few, "outputs": few if narrow else many}


def table_inputs(sampler: InputSampler) -> dict:
    return {
        "vocab": [sampler.integer(300, 500) for _ in range(2)],
        "d_model": [sampler.integer(30, 90) for _ in range(2)],
    }


def deviation_of_weights(subject, **sizes):
    are_tables = "vocab" in sizes
    pairs = zip(*sizes.values(), strict=True)
    layers = [nn.Embedding(*pair, padding_idx=0) if are_tables else nn.Linear(*pair) for pair in pairs]
    subject(nn.Sequential(nn.ReLU(), layers[0], nn.Sequential(layers[1])))
    weights = [layer.weight[int(are_tables) :].detach() for layer in layers]  # without the padding's row
    return {
        "standard deviations × 1000": [round(1000 * weight.std().item(), 1) for weight in weights],
        "the mean is 0": [bool(weight.mean().abs() < 0.1 * weight.std()) for weight in weights],
    }


def deviation_of_tied(subject, vocab, d_model):
    result = {}
    for order, rows, width in zip(("embedding first", "linear layer first"), vocab, d_model, strict=True):
        table, matrix = nn.Embedding(rows, width, padding_idx=0), nn.Linear(width, rows)
        matrix.weight = table.weight
        subject(nn.Sequential(table, matrix) if order == "embedding first" else nn.Sequential(matrix, table))
        result[f"standard deviation × 1000, {order}"] = round(1000 * table.weight[1:].detach().std().item(), 1)
    return result


def deviation_probe(name: str, inputs: Callable[[InputSampler], dict], call=deviation_of_weights) -> Probe:
    return Probe(name, inputs, call, tolerance=0.03)


def biases_afterwards(subject, width):
    model = nn.Sequential(nn.Linear(width, 4), nn.Linear(4, 3, bias=False), nn.Linear(3, width))
    subject(model)
    return {"zero": [bool((layer.bias == 0).all()) for layer in (model[0], model[2])]}


def padding_afterwards(subject, vocab, d_model, pad_id):
    tables = {
        "an embedding": nn.Embedding(vocab, d_model, padding_idx=pad_id),
        "an embedding with padding token 0": nn.Embedding(vocab, d_model, padding_idx=0),
        "an embedding without padding": nn.Embedding(vocab, d_model),
        "an embedding that shares its weight with a linear layer": nn.Embedding(vocab, d_model, padding_idx=pad_id),
    }
    output = nn.Linear(d_model, vocab)
    output.weight = list(tables.values())[-1].weight
    subject(nn.Sequential(*tables.values(), output))
    return {
        name: [(table.weight == 0).all(axis).nonzero().flatten().tolist() for axis in (1, 0)]  # rows, then columns
        for name, table in tables.items()
    }


def padding_is_zero(inputs, received):
    for name, (rows, columns) in received.items():
        pad_id = 0 if "token 0" in name else inputs["pad_id"]
        if "without" in name:
            if rows:
                return f"in {name}, row {rows[0]} is all zeros"
        elif rows != [pad_id]:
            found = f"rows {rows} are" if len(rows) > 1 else f"row {rows[0]} is" if rows else "no row is"
            found += f", but column {columns[0]} is" if columns and not rows else ""
            return f"in {name}, expected only row {pad_id} to be all zeros, because of `padding_idx={pad_id}`; {found}"
    return None


def norm_afterwards(subject, gain, bias):
    norm = nn.Module()
    norm.gain, norm.bias = nn.Parameter(gain.clone()), nn.Parameter(bias.clone())
    subject(nn.Sequential(nn.Linear(3, 3), norm))
    return {"gain": norm.gain, "bias": norm.bias}


def norm_is_left_alone(inputs, received):
    found = []
    for name in ("gain", "bias"):
        if not torch.equal(received[name], inputs[name]):
            values = received[name].unique()
            found.append(f"its {name} is " + (f"now {values.item():g} everywhere" if len(values) == 1 else "different"))
    return f"a LayerNorm was changed: {' and '.join(found)}" if found else None


def twins_afterwards(subject, width):
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    subject(model)
    return {"equal": torch.equal(model[0].weight, model[1].weight), "trained": model[0].weight.requires_grad}


def twins_differ(inputs, received):
    if received["equal"]:
        return "two layers of the same size have the same weights"
    return None if received["trained"] else "the weights can't be trained anymore"


def parameters_before_and_after(subject, vocab, d_model):
    table, matrix = nn.Embedding(vocab, d_model, padding_idx=0), nn.Linear(d_model, vocab)
    matrix.weight = table.weight
    model = nn.Sequential(table, matrix, nn.Linear(vocab, 2))
    before = dict(model.named_parameters())
    subject(model)
    after = dict(model.named_parameters())
    return [name for name, parameter in before.items() if after.get(name) is not parameter]


def parameters_are_the_same_objects(inputs, received):
    return f"`{received[0]}` is a new parameter; expected the existing one, with new numbers" if received else None


INITIALIZE_PARAMETERS = Exercise(
    answer=initialize_parameters,
    points=1,
    minutes=15,
    probes=[
        deviation_probe("the weights of linear layers that narrow", partial(matrix_inputs, narrow=True)),
        deviation_probe("the weights of linear layers that widen", partial(matrix_inputs, narrow=False)),
        deviation_probe("the vectors of embeddings", table_inputs),
        deviation_probe("a weight that an embedding shares with a linear layer", table_inputs, deviation_of_tied),
    ],
    properties=[
        Property(
            "biases start at zero, and a layer may have none",
            lambda sampler: {"width": sampler.integer(4, 8)},
            unless(lambda inputs, received: all(received["zero"]), "the bias of a linear layer isn't zero"),
            biases_afterwards,
        ),
        Property(
            "the padding token's vector is zero",
            lambda sampler: {"vocab": 6, "d_model": 7, "pad_id": sampler.integer(1, 5)},
            padding_is_zero,
            padding_afterwards,
        ),
        Property(
            "norms are left alone",
            lambda sampler: {"gain": sampler.numbers(3, low=0.5, high=2), "bias": sampler.numbers(3, low=0.5, high=2)},
            norm_is_left_alone,
            norm_afterwards,
        ),
        Property(
            "layers of the same size get different weights",
            lambda sampler: {"width": sampler.integer(4, 8)},
            twins_differ,
            twins_afterwards,
        ),
        Property(
            "the parameters are filled in place, not replaced",
            lambda sampler: {"vocab": sampler.integer(5, 8), "d_model": 4},
            parameters_are_the_same_objects,
            parameters_before_and_after,
        ),
    ],
)

# --- tie_embeddings --------------------------------------------------------------------------------------------------


def tying_inputs(sampler: InputSampler, written: str) -> dict:
    vocab, d_model = sampler.integer(4, 7), sampler.integer(2, 3)
    return {
        "written": written,
        "numbers": sampler.numbers(vocab, d_model, low=0.5, high=2),
        "tokens": sampler.integers(2, low=0, high=vocab - 1),
        "x": sampler.numbers(1, d_model, low=0.5, high=2),
    }


def what_all_three_read(subject, written, numbers, tokens, x):
    vocab, d_model = numbers.shape
    model = bare_transformer(vocab, vocab, d_model)
    source, target, output = model.source_embedding.embedding, model.target_embedding.embedding, model.output
    with torch.no_grad():  # all three are equal, so that it doesn't matter which one is kept
        for part in (source, target, output):
            part.weight.copy_(torch.arange(vocab * d_model).view(vocab, d_model) / 10)
    subject(model)
    source, target, output = model.source_embedding.embedding, model.target_embedding.embedding, model.output
    with torch.no_grad():
        {"source": source, "target": target, "output": output}[written].weight.copy_(numbers)
        output.bias.copy_(torch.arange(vocab))
    return {"source embedding": source(tokens), "target embedding": target(tokens), "logits": output(x)}


def gradient_of_shared_weight(subject, written, numbers, tokens, x):
    vocab, d_model = numbers.shape
    model = bare_transformer(vocab, vocab, d_model)
    subject(model)
    source, target, output = model.source_embedding.embedding, model.target_embedding.embedding, model.output
    loss = source(tokens).sum() + 2 * target(tokens).sum() + 3 * (output(x) * torch.arange(vocab)).sum()
    loss.backward()
    return {"gradient of the weight": source.weight.grad}


def tying_probe(name: str, written: str, call=what_all_three_read) -> Probe:
    return Probe(name, lambda sampler: tying_inputs(sampler, written), call)


def weights_after_tying(subject, vocab, d_model):
    model = bare_transformer(vocab, vocab, d_model)
    before = [model.source_embedding.embedding.weight, model.target_embedding.embedding.weight, model.output.weight]
    numbers = [weight.clone() for weight in before]
    subject(model)
    after = [model.source_embedding.embedding.weight, model.target_embedding.embedding.weight, model.output.weight]
    pairs = [(after[0], after[1]), (after[0], after[2]), (after[1], after[2])]
    return {
        "names": [name for name, _ in model.named_parameters(remove_duplicate=False)],
        "whose": [next((part for part in range(3) if before[part] is weight), None) for weight in after],
        "one parameter": [one is other for one, other in pairs],
        "one memory": [one.data_ptr() == other.data_ptr() for one, other in pairs],
        "the same numbers": [torch.equal(one, other) for one, other in pairs],
        "factors": [(after[0] / one).flatten().detach() for one in numbers],
    }


def one_parameter_and_a_bias(inputs, received):
    names = ("source_embedding.embedding.weight", "target_embedding.embedding.weight", "output.weight", "output.bias")
    for name in received["names"]:
        if name not in names:
            return f"there is a new parameter `{name}`"
    if all(received["one parameter"]):
        if any(torch.allclose(one, one[0].expand_as(one)) and abs(one[0] - 1) > 0.01 for one in received["factors"]):
            return "the shared weight is one of the three original weights, multiplied by a factor"
        return None if "output.bias" in received["names"] else "the output layer has lost its bias"
    if any(received["one parameter"]):
        odd = 2 - received["one parameter"].index(True)  # the pairs are 0 and 1, 0 and 2, 1 and 2
        parts = ("source embedding", "target embedding", "output layer")
        whose = received["whose"][odd]
        found = "a new weight" if whose is None else f"the old weight of the {parts[whose]}"
        found = f"the {parts[odd]} has {'a weight of its own' if whose == odd else found}"
    else:
        found = "the three weights are still three separate parameters"
    if all(received["one memory"]):
        return f"{found}, even though they share their memory"
    return f"{found}, even though the numbers are the same" if all(received["the same numbers"]) else found


def exceptions_by_vocabularies(subject, smaller, larger, d_model):
    pairs = ((smaller, larger), (larger, smaller), (larger, larger))
    return [raised(subject, bare_transformer(source, target, d_model)) for source, target in pairs]


def two_vocabularies_are_refused(inputs, received):
    *different, same = received
    if same == "ValueError":
        return "two vocabularies of the same size raise a `ValueError`"
    if different == ["ValueError", "ValueError"]:
        return None
    if different == ["nothing", "nothing"]:
        found = "nothing was raised"
    elif "nothing" in different:
        larger = "source" if different[0] == "nothing" else "target"
        found = f"an exception was raised only if the {larger} vocabulary is the larger one"
    else:
        found = f"`{different[0]}` was raised" + (", which `python -O` skips" if "Assert" in different[0] else "")
    return Remark(
        f"For two vocabularies of different sizes, expected a `ValueError`; {found}. Compare `num_embeddings` first, "
        "and name both sizes in the message. Otherwise, the model fails much later, at a token that only the larger "
        "vocabulary has."
    )


TIE_EMBEDDINGS = Exercise(
    answer=tie_embeddings,
    points=1,
    minutes=10,
    axes={
        "numbers": "vocab d_model",
        "tokens": "length",
        "x": "length d_model",
        "source embedding": "length d_model",
        "target embedding": "length d_model",
        "logits": "length vocab",
        "gradient of the weight": "vocab d_model",
    },
    probes=[
        tying_probe("a change in the source embedding reaches the other two", "source"),
        tying_probe("a change in the target embedding reaches the other two", "target"),
        tying_probe("a change in the output layer reaches both embeddings", "output"),
        tying_probe("the gradients of all three add up", "nothing", gradient_of_shared_weight),
    ],
    properties=[
        Property(
            "the three weights are one parameter, and the bias stays",
            lambda sampler: {"vocab": sampler.integer(4, 6), "d_model": sampler.integer(2, 4)},
            one_parameter_and_a_bias,
            weights_after_tying,
        ),
        Property(
            "two vocabularies of different sizes were tried",
            lambda sampler: {"smaller": sampler.integer(3, 5), "larger": sampler.integer(6, 8), "d_model": 3},
            two_vocabularies_are_refused,
            exceptions_by_vocabularies,
        ),
    ],
)

# --- Transformer -----------------------------------------------------------------------------------------------------


def config_of(**others) -> dict:
    """Return a small configuration. The settings under test come first, because reports may truncate the rest."""
    sizes = {"source_vocab": 8, "target_vocab": 7, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 3}
    return others | sizes | {"dropout": 0.0, "max_length": 6} | others


def words(sampler: InputSampler, batch: int, length: int, vocab: int, pad_id: int = 0, padded: bool = False) -> Tensor:
    """Return sentences of different tokens. With `padded`, all but the first have padding.

    If `pad_id` is not 0, then 0 is a word.
    """
    known = [token for token in range(vocab) if token != pad_id]
    tokens = torch.tensor([sampler.shuffled(known)[:length] for _ in range(batch)])
    if pad_id:
        tokens[0, 0] = 0
    if padded:
        for row in range(1, batch):
            tokens[row, sampler.integer(1, length - 1) :] = pad_id
    return tokens


def sentence_inputs(
    sampler: InputSampler, source: int = 3, target: int = 2, batch: int = 1, padded: bool = False, **others
):
    """Use only tokens that both vocabularies have, so that a token in the wrong embedding does not always crash.

    With `tie`, three of the weights are loaded into one parameter, and the last one wins.
    """
    config = config_of(**others)
    pad_id, vocab = config.get("pad_id", 0), config["target_vocab"]
    return {
        "config": config,
        "weights": lively_weights(sampler, Transformer(TransformerConfig(**config | {"tie": False}))),
        "source": words(sampler, batch, source, vocab, pad_id, padded),
        "target": words(sampler, batch, target, vocab, pad_id, padded),
    }


def decode_inputs(sampler: InputSampler) -> dict:
    inputs = sentence_inputs(sampler, 4, 3, 2, padded=True)
    mask = padding_mask(inputs.pop("source"), pad_id=0)
    return inputs | {"memory": sampler.numbers(2, 4, 4), "source_mask": mask}


def logits_of_words(subject, config, weights, source, target):
    model = build(subject, {"config": TransformerConfig(**config)}, weights)
    logits = model(source, target)
    real = target != config.get("pad_id", 0)  # the output at padding positions may be anything
    return {"logits of real words": logits[real] if logits.shape[:2] == real.shape else logits}


def logits_in_evaluation(subject, config, weights, source, target):
    model = build(subject, {"config": TransformerConfig(**config)}, weights).eval()
    return {"logits in evaluation mode": model(source, target)}


def memory_of_words(subject, config, weights, source):
    model = build(subject, {"config": TransformerConfig(**config)}, weights)
    result = model.encode(source)
    if not isinstance(result, tuple) or len(result) != 2:
        return {"memory of real words": result, "source_mask": None}
    return {"memory of real words": result[0][source != 0], "source_mask": result[1]}


def logits_from_memory(subject, config, weights, target, memory, source_mask):
    model = build(subject, {"config": TransformerConfig(**config)}, weights)
    return {"logits of real words": model.decode(target, memory, source_mask)[target != 0]}


def model_gradients(subject, config, weights, source, target):
    model = build(subject, {"config": TransformerConfig(**config)}, weights)
    return gradients(model(source, target), dict(model.named_parameters()))


def dropout_by_part(subject, config, source, target):
    model = subject(TransformerConfig(**config)).eval()
    evaluated = model(source, target)
    result = {"none": not torch.equal(evaluated, model(source, target))}
    for part in ("positional_encoding", "encoder", "decoder"):
        getattr(model, part).train()
        result[part] = not torch.equal(evaluated, model(source, target))
        getattr(model, part).eval()
    return result


def each_part_drops(inputs, received):
    if received["none"]:
        return "in evaluation mode, two calls return different logits"
    silent = [f"`{part}`" for part in ("positional_encoding", "encoder", "decoder") if not received[part]]
    return f"in training, there's no dropout in {' and '.join(silent)}" if silent else None


def stacks_by_norm_first(subject, config, x):
    model = subject(TransformerConfig(**config)).eval()
    result = {}
    for name, inputs in (("encoder", [x]), ("decoder", [x, x])):
        stack = getattr(model, name)
        drops = not torch.equal(stack(*inputs), stack.train()(*inputs))
        result[name] = {"norm": any(part == "norm.gain" for part, _ in stack.named_parameters()), "drops": drops}
    return result


def both_have_a_final_norm(inputs, received):
    missing = [name for name in ("encoder", "decoder") if not received[name]["norm"]]
    if not missing:
        return None
    idle = [name for name in missing if not received[name]["drops"]]
    found = f"with `norm_first` there's no final norm in {' and '.join(f'`{name}`' for name in missing)}"
    return found + (", and there's no dropout there" if idle == missing else "")


def weights_by_tie(subject, config):
    result = {}
    for tie in (True, False):
        model = subject(TransformerConfig(**config, tie=tie))
        parts = model.source_embedding.embedding, model.target_embedding.embedding, model.output
        result[f"weights with tie={tie}"] = len({part.weight for part in parts})
        result[f"equal with tie={tie}"] = all(torch.equal(parts[0].weight, part.weight) for part in parts)
    return result


def tied_when_asked(inputs, received):
    if received["weights with tie=False"] < 3:
        return "weights are shared even though `tie` is False"
    if received["weights with tie=True"] == 1:
        return None
    if received["equal with tie=True"]:
        return "with `tie`, the three weights start out equal, but they're copies rather than one parameter"
    return "with `tie`, the two embeddings and the output layer don't share one weight"


def exception_of_two_vocabularies(subject, config):
    return raised(subject, TransformerConfig(**config))


def different_sizes_are_refused(inputs, received):
    if received == "ValueError":
        return None
    found = "nothing was raised" if received == "nothing" else f"`{received}` was raised"
    return Remark(
        f"For `tie` with two vocabularies of different sizes, expected a `ValueError`; {found}. Raise it in "
        "`tie_embeddings`."
    )


def configuration_afterwards(subject, config):
    return getattr(subject(TransformerConfig(**config)), "config", None) == TransformerConfig(**config)


def exceptions_by_length(subject, config):
    model = subject(TransformerConfig(**config))
    longest, too_long = (torch.zeros(1, config["max_length"] + more, config["d_model"]) for more in (0, 1))
    positions = model.positional_encoding
    return {"longest": raised(positions, longest), "too long": raised(positions, too_long)}


def longest_sentence_gets_positions(inputs, received):
    if received["longest"] != "nothing":
        return f"a sentence of exactly `max_length` tokens raises `{received['longest']}` in `positional_encoding`"
    if received["too long"] != "ValueError":
        found = "nothing" if received["too long"] == "nothing" else f"`{received['too long']}`"
        return Remark(
            f"For a sentence longer than `config.max_length`, expected a `ValueError`; {found} was raised. "
            "`PositionalEncoding` raises it if you give it `config.max_length`."
        )
    return None


def initial_weights(subject, config):
    model = subject(TransformerConfig(**config))
    tables = model.source_embedding.embedding.weight, model.target_embedding.embedding.weight
    words = torch.arange(config["source_vocab"]) != config["pad_id"]
    matrices = [weight for name, weight in model.encoder.named_parameters() if weight.dim() == 2]
    # Xavier's variance is 2 / (inputs + outputs), so these weights have a standard deviation of 1
    scaled = [weight.flatten() * (sum(weight.shape) / 2) ** 0.5 for weight in matrices]
    return {
        "embeddings": [(table[words] * config["d_model"] ** 0.5).std().item() for table in tables],
        "padding": all(bool((table[config["pad_id"]] == 0).all()) for table in tables),
        "matrices": torch.cat(scaled).std().item(),
        "bias": bool((model.output.bias == 0).all()),
    }


def weights_are_initialized(inputs, received):
    as_expected = [abs(deviation - 1) < 0.1 for deviation in (*received["embeddings"], received["matrices"])]
    if all(as_expected) and received["padding"] and received["bias"]:
        return None
    torchs = inputs["config"]["d_model"] ** 0.5
    if all(abs(deviation - torchs) < 0.1 * torchs for deviation in received["embeddings"]) and not received["bias"]:
        return "its weights still have torch's default initialization: `initialize_parameters` had no effect on them"
    return Remark(
        "Some of its weights don't have the initial values that `initialize_parameters` sets. Call it at the end of "
        "`__init__`."
    )


TRANSFORMER = Exercise(
    answer=Transformer,
    blank=("__init__", "encode", "decode", "forward"),
    points=4,
    minutes=30,
    axes={
        "source": "batch source",
        "target": "batch target",
        "memory": "batch source d_model",
        "source_mask": "batch 1 1 source",
        "memory of real words": "words d_model",
        "logits of real words": "words vocab",
        "logits in evaluation mode": "batch target vocab",
    },
    builds_on=(
        "padding_mask",
        "target_mask",
        "TokenEmbedding",
        "PositionalEncoding",
        "Encoder",
        "Decoder",
        "initialize_parameters",
        "tie_embeddings",
    ),
    banned=("torch.nn.Transformer", "torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder"),
    call=logits_of_words,
    probes=[
        Probe("one sentence: the logits of two target words", sentence_inputs),
        Probe(
            "encode: memory and mask of a padded batch",
            lambda sampler: without(sentence_inputs(sampler, 4, 2, 3, padded=True), "target"),
            memory_of_words,
        ),
        Probe("decode: the logits for a given memory", decode_inputs, logits_from_memory),
        Probe(
            "two layers, a padded batch, source longer than target",
            lambda sampler: sentence_inputs(sampler, 4, 3, 2, padded=True, n_layers=2),
        ),
        Probe("pre-norm", partial(sentence_inputs, norm_first=True)),
        Probe("evaluation mode", partial(sentence_inputs, dropout=0.5), logits_in_evaluation),
        Probe(
            "a different pad id, so token 0 is a real word",
            lambda sampler: sentence_inputs(sampler, 4, 4, 2, padded=True, pad_id=sampler.integer(3, 5)),
        ),
        Probe(
            "one weight for both embeddings and the output layer", partial(sentence_inputs, tie=True, target_vocab=8)
        ),
        Probe(
            "gradients reach all weights, token 0 included",
            lambda sampler: sentence_inputs(sampler, pad_id=sampler.integer(3, 5)),
            model_gradients,
        ),
    ],
    properties=[
        Property(
            "dropout acts on embeddings, encoder and decoder, in training only",
            lambda sampler: without(sentence_inputs(sampler, dropout=0.5), "weights"),
            each_part_drops,
            dropout_by_part,
        ),
        Property(
            "with `norm_first`, encoder and decoder each end in a norm",
            lambda sampler: {"config": config_of(norm_first=True, dropout=0.5), "x": sampler.numbers(1, 3, 4)},
            both_have_a_final_norm,
            stacks_by_norm_first,
        ),
        Property(
            "the three weights are one parameter if `tie` is True, and three otherwise",
            lambda sampler: {"config": config_of(target_vocab=8)},
            tied_when_asked,
            weights_by_tie,
        ),
        Property(
            "its weights have been initialized",
            lambda sampler: {
                "config": config_of(pad_id=sampler.integer(1, 9), source_vocab=90, target_vocab=90, d_model=32, d_ff=64)
            },
            weights_are_initialized,
            initial_weights,
        ),
        Property(
            "it keeps its configuration",
            lambda sampler: {"config": config_of(max_length=sampler.integer(6, 9))},
            unless(
                lambda inputs, received: received,
                "`model.config` isn't the configuration that the model was built from",
            ),
            configuration_afterwards,
            penalty=0.5,
        ),
        Property(
            "there are positions for a sentence of exactly `max_length` tokens",
            lambda sampler: {"config": config_of(max_length=sampler.integer(513, 530), d_model=2, n_heads=1, d_ff=2)},
            longest_sentence_gets_positions,
            exceptions_by_length,
            penalty=0.5,
        ),
        Property(
            "`tie` was tried with vocabularies of different sizes",
            lambda sampler: {"config": config_of(tie=True)},
            different_sizes_are_refused,
            exception_of_two_vocabularies,
        ),
    ],
)

# --- count_parameters ------------------------------------------------------------------------------------------------


def size_inputs(sampler: InputSampler, **others) -> dict:
    """Return random sizes. The settings under test come first, because reports may truncate the rest."""
    sizes = {
        "source_vocab": sampler.integer(20, 40),
        "target_vocab": sampler.integer(50, 70),
        "d_model": 4 * sampler.integer(1, 4),
        "n_heads": 2 * sampler.integer(1, 2),
        "n_layers": sampler.integer(2, 4),
        "d_ff": 2 * sampler.integer(2, 7) + 1,  # odd, so that it isn't equal to `d_model`
    }
    return {"config": others | sizes | others}


def tied_size_inputs(sampler: InputSampler) -> dict:
    vocab = sampler.integer(50, 70)
    return size_inputs(sampler, tie=True, source_vocab=vocab, target_vocab=vocab)


def counted_by(subject, config):
    return subject(TransformerConfig(**config))


def added_by_a_layer(subject, config):
    one, other = (TransformerConfig(**config | {"n_layers": config["n_layers"] + more}) for more in (0, 1))
    return subject(other) - subject(one)


def outside_of_the_layers(subject, config):
    one, two = (TransformerConfig(**config | {"n_layers": layers}) for layers in (1, 2))
    return 2 * subject(one) - subject(two)


def added_by_a_hidden_feature(subject, config):
    one, other = (TransformerConfig(**config | {"d_ff": config["d_ff"] + more}) for more in (0, 1))
    return subject(other) - subject(one)


def counts_of_other_settings(subject, config):
    others = ({}, {"n_heads": 1}, {"max_length": 77}, {"dropout": 0.3}, {"pad_id": 3})
    return [subject(TransformerConfig(**(config | other))) for other in others]


def settings_without_weights(inputs, received):
    for name, count in zip(("n_heads", "max_length", "dropout", "pad_id"), received[1:], strict=True):
        if count != received[0]:
            return f"the count changes with `{name}`, which adds no parameters"
    return None


def counts_by_depth(subject, config):
    return [subject(TransformerConfig(**(config | {"n_layers": layers}))) for layers in (1, 2, 3)]


def layers_count_alike(inputs, received):
    one, two, three = received
    if three - two != two - one:
        return "the second and third layers don't add the same number of parameters"
    return None if two > one else "an additional layer adds no parameters"


def is_no_float(config: dict) -> bool:
    """Return whether a float64 cannot represent the number of parameters exactly."""
    count = count_parameters(TransformerConfig(**config))
    return int(float(count)) != count


COUNT_PARAMETERS = Exercise(
    answer=count_parameters,
    points=2,
    minutes=20,
    returns=("parameters",),
    call=counted_by,
    probes=[
        Probe("post-norm, two vocabularies", size_inputs),
        Probe("pre-norm", partial(size_inputs, norm_first=True)),
        Probe("tied weights", tied_size_inputs),
        Probe("one layer", partial(size_inputs, n_layers=1)),
        Probe("what one more layer adds", size_inputs, added_by_a_layer),
        Probe("what is outside of the layers", size_inputs, outside_of_the_layers),
        Probe("what one more hidden feature adds", size_inputs, added_by_a_hidden_feature),
        Probe(
            "a vocabulary too large for any machine, by formula",
            sampled_until(
                is_no_float, lambda sampler: size_inputs(sampler, source_vocab=10**16 + sampler.integer(1, 10**6))
            ),
        ),
    ],
    properties=[
        Property(
            "heads, `max_length`, dropout and `pad_id` don't change the count",
            size_inputs,
            settings_without_weights,
            counts_of_other_settings,
        ),
        Property("every additional layer adds the same number", size_inputs, layers_count_alike, counts_by_depth),
    ],
)

EXERCISES = [INITIALIZE_PARAMETERS, TIE_EMBEDDINGS, TRANSFORMER, COUNT_PARAMETERS]
