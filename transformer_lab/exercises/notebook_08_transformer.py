"""Notebook 08, the Transformer: first values, tied weights, the whole model, and how many numbers it has."""

import math

import torch
from torch import Tensor, nn

from transformer_lab.exercises.draw import Draw
from transformer_lab.exercises.exercise import Exercise, Misconception, Probe, Property, Remark
from transformer_lab.exercises.notebook_06_encoder import lively_weights
from transformer_lab.exercises.recipes import gradients, load_weights, raised
from transformer_lab.model import (
    Decoder,
    Encoder,
    PositionalEncoding,
    TokenEmbedding,
    Transformer,
    TransformerConfig,
    count_parameters,
    initialize_parameters,
    padding_mask,
    target_mask,
    tie_embeddings,
)

# --- initialize_parameters -------------------------------------------------------------------------------------------


def matrix_inputs(draw: Draw, rows: int, columns: int) -> dict:
    return {"rows": 10 * draw.integer(rows, rows + 5), "columns": 10 * draw.integer(columns, columns + 5)}


def table_inputs(draw: Draw) -> dict:
    return {"vocab": 10 * draw.integer(60, 70), "d_model": draw.integer(60, 80)}


def deviation_of_matrix(subject, rows, columns):
    layer = nn.Linear(columns, rows)
    subject(nn.Sequential(nn.ReLU(), nn.Sequential(layer)))
    return {"deviation in thousandths": float(round(1000 * layer.weight.detach().std().item()))}


def deviation_of_table(subject, vocab, d_model):
    table = nn.Embedding(vocab, d_model, padding_idx=0)
    subject(nn.Sequential(nn.Sequential(table)))
    return {"deviation in thousandths": float(round(1000 * table.weight[1:].detach().std().item()))}


def deviation_of_tied(subject, vocab, d_model):
    result = {}
    for order in ("table before matrix", "matrix before table"):
        table, matrix = nn.Embedding(vocab, d_model, padding_idx=0), nn.Linear(d_model, vocab)
        matrix.weight = table.weight
        subject(nn.Sequential(table, matrix) if order.startswith("table") else nn.Sequential(matrix, table))
        result[order] = float(round(1000 * table.weight[1:].detach().std().item()))
    return result


def biases_afterwards(subject, width):
    model = nn.Sequential(nn.Linear(width, 4), nn.Linear(4, 3, bias=False), nn.Linear(3, width))
    subject(model)
    return {"zero": [bool((layer.bias == 0).all()) for layer in (model[0], model[2])]}


def biases_are_zero(inputs, received):
    return None if all(received["zero"]) else "a linear layer does not start with a bias of zero"


def padding_afterwards(subject, vocab, d_model, pad_id):
    padded, plain = nn.Embedding(vocab, d_model, padding_idx=pad_id), nn.Embedding(vocab, d_model)
    output = nn.Linear(d_model, vocab)
    output.weight = padded.weight
    subject(nn.Sequential(padded, plain, output))
    return {"zero rows": [(table.weight == 0).all(1).nonzero().flatten().tolist() for table in (padded, plain)]}


def padding_is_zero(inputs, received):
    padded, plain = received["zero rows"]
    if padded != [inputs["pad_id"]]:
        return (
            f"in the embedding whose padding token is {inputs['pad_id']}, the rows of zeros are {padded or 'none'}: "
            f"expected is [{inputs['pad_id']}]"
        )
    return "an embedding without a padding token has a row of zeros" if plain else None


def norm_afterwards(subject, gain, bias):
    norm = nn.Module()
    norm.gain, norm.bias = nn.Parameter(gain.clone()), nn.Parameter(bias.clone())
    subject(nn.Sequential(nn.Linear(3, 3), norm))
    return {"gain": norm.gain, "bias": norm.bias}


def norm_is_left_alone(inputs, received):
    if torch.equal(received["gain"], inputs["gain"]) and torch.equal(received["bias"], inputs["bias"]):
        return None
    return "the gain or the bias of a LayerNorm has been changed"


def twins_afterwards(subject, width):
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    subject(model)
    return {"equal": torch.equal(model[0].weight, model[1].weight), "trained": model[0].weight.requires_grad}


def twins_differ(inputs, received):
    if received["equal"]:
        return "two layers of the same size have the same weights"
    return None if received["trained"] else "the weights can no longer be trained"


def parameters_before_and_after(subject, vocab, d_model):
    table, matrix = nn.Embedding(vocab, d_model, padding_idx=0), nn.Linear(d_model, vocab)
    matrix.weight = table.weight
    model = nn.Sequential(table, matrix, nn.Linear(vocab, 2))
    before = dict(model.named_parameters())
    subject(model)
    after = dict(model.named_parameters())
    return [name for name, parameter in before.items() if after.get(name) is not parameter]


def parameters_are_the_same_objects(inputs, received):
    return f"`{received[0]}` is another parameter afterwards, not the old one with other numbers" if received else None


def normal_of(deviation):
    return lambda weight: nn.init.normal_(weight, std=deviation)


def normal_of_width(weight):
    nn.init.normal_(weight, std=weight.size(1) ** -0.5)


def first_values(linear=nn.init.xavier_uniform_, table=normal_of_width, bias=nn.init.zeros_, padding=True,
                 matrices_first=True):  # fmt: skip
    """An `initialize_parameters` with other first values. None leaves them as torch made them."""

    def fill(module):
        if isinstance(module, nn.Linear):
            if linear:
                linear(module.weight)
            if bias and module.bias is not None:
                bias(module.bias)
        elif isinstance(module, nn.Embedding) and table:
            table(module.weight)
            if padding and module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])

    def initialize(model):
        modules = list(model.modules())
        if matrices_first:
            modules.sort(key=lambda module: isinstance(module, nn.Embedding))
        for module in modules:
            fill(module)

    return initialize


def xavier_for_all(model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


def zeros_for_vectors(model):
    initialize_parameters(model)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)


def always_the_same_seed(model):
    torch.manual_seed(0)
    initialize_parameters(model)


def every_bias_exists(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])


def padding_row_in_place(model):
    first_values(padding=False)(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx] = 0


def children_only(model):
    for module in model.children():
        if not len(list(module.children())):
            initialize_parameters(module)


def row_0_for_padding(model):
    first_values(padding=False)(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight[0])


def parameters_made_anew(model):
    first_values(table=None)(model)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            weight = torch.randn_like(module.weight) * module.embedding_dim**-0.5
            if module.padding_idx is not None:
                weight[module.padding_idx] = 0
            module.weight = nn.Parameter(weight)


INITIALIZE_PARAMETERS = Exercise(
    answer=initialize_parameters,
    points=1,
    minutes=15,
    probes=[
        Probe("the weights of a linear layer that narrows", lambda draw: matrix_inputs(draw, 12, 30),
              deviation_of_matrix, tolerance=0.02),
        Probe("the weights of a linear layer that widens", lambda draw: matrix_inputs(draw, 30, 12),
              deviation_of_matrix, tolerance=0.02),
        Probe("the vectors of an embedding", table_inputs, deviation_of_table, tolerance=0.02),
        Probe("a weight that an embedding shares with a linear layer", table_inputs, deviation_of_tied, tolerance=0.02),
    ],
    properties=[
        Property(
            "biases start at zero, and a layer may have none",
            lambda draw: {"width": draw.integer(4, 8)},
            biases_are_zero,
            biases_afterwards,
        ),
        Property(
            "the vector of the padding token is zero",
            lambda draw: {"vocab": 6, "d_model": 4, "pad_id": draw.integer(0, 5)},
            padding_is_zero,
            padding_afterwards,
        ),
        Property(
            "norms are left alone",
            lambda draw: {"gain": draw.numbers(3, low=0.5, high=2), "bias": draw.numbers(3, low=0.5, high=2)},
            norm_is_left_alone,
            norm_afterwards,
        ),
        Property(
            "each layer draws numbers of its own",
            lambda draw: {"width": draw.integer(4, 8)},
            twins_differ,
            twins_afterwards,
        ),
        Property(
            "the parameters stay the objects that they are",
            lambda draw: {"vocab": draw.integer(5, 8), "d_model": 4},
            parameters_are_the_same_objects,
            parameters_before_and_after,
        ),
    ],
    misconceptions=[
        Misconception(
            "xavier_for_all",
            xavier_for_all,
            "Every tensor with more than one axis gets Xavier values, as in many listings. For an embedding they "
            "depend on the size of the vocabulary: with 8,000 tokens and d_model 256, and after the factor √d_model, "
            "the words are far quieter than the positions. Embeddings are N(0, 1 / d_model) here, their padding row "
            "and all biases zero.",
        ),
        Misconception(
            "embeddings_left",
            first_values(table=None),
            "The embeddings stay as torch makes them, N(0, 1). Multiplied by √d_model (section 3.4) that is far too "
            "loud beside positions between -1 and 1. N(0, 1 / d_model) comes out as 1.",
        ),
        Misconception(
            "one_small_deviation",
            first_values(normal_of(0.02), normal_of(0.02)),
            "Everything is drawn with a deviation of 0.02, as in BERT and GPT-2. That fits their width of 768; here "
            "matrices get Xavier's, which follows their size, and embeddings 1 / √d_model.",
        ),
        Misconception(
            "variance_for_deviation",
            first_values(table=lambda weight: nn.init.normal_(weight, std=1 / weight.size(1))),
            "1 / d_model is taken as the deviation of the embeddings. It is their variance, the second number in "
            "N(0, 1 / d_model); `std` is its root, `d_model ** -0.5`.",
        ),
        Misconception(
            "kaiming",
            first_values(nn.init.kaiming_uniform_),
            "The matrices get Kaiming's values, which are meant for layers that all end in a ReLU and look at the "
            "inputs only. Xavier's look at inputs and outputs: `nn.init.xavier_uniform_`.",
        ),
        Misconception(
            "matrices_left",
            first_values(linear=None),
            "The matrices stay as torch makes them, with about half the deviation: `nn.Linear` looks at the number of "
            "inputs only. `nn.init.xavier_uniform_` is meant.",
        ),
        Misconception(
            "biases_left",
            first_values(bias=None),
            "The biases stay as torch makes them, small random numbers. They start at zero here: "
            "`nn.init.zeros_(module.bias)`.",
        ),
        Misconception(
            "tied_weight_overwritten",
            first_values(matrices_first=False),
            "In one walk through the modules a weight that an embedding shares with the output layer is filled twice, "
            "and the last one wins: the output layer, with Xavier's values. Fill the matrices first, then the "
            "embeddings.",
        ),
        Misconception(
            "padding_not_zero",
            first_values(padding=False),
            "The vector of the padding token is drawn like the others. `nn.Embedding` had set it to zero and gives it "
            "no gradient, so it would keep these numbers: set the row `padding_idx` back to zero.",
        ),
        Misconception(
            "padding_in_place",
            padding_row_in_place,
            "The row of the padding token is changed while torch records what happens to the weight, and torch refuses "
            "that. Do it inside of `with torch.no_grad():`, or by `nn.init.zeros_(…)`, which brings that along.",
        ),
        Misconception(
            "norms_zeroed",
            zeros_for_vectors,
            "All tensors with one axis are set to zero. The gain of a LayerNorm is one of them: with a gain of 0 "
            "nothing comes through, and nothing learns. Only the biases of linear layers are meant.",
        ),
        Misconception(
            "sets_the_seed",
            always_the_same_seed,
            "The values are right, but a global seed is set inside. Every model is then the same, and whatever is "
            "drawn after it as well: leave seeds to whoever calls this.",
        ),
        Misconception(
            "bias_expected",
            every_bias_exists,
            "A linear layer without bias has `module.bias = None`, which cannot be filled: look whether there is one "
            "first.",
        ),
        Misconception(
            "children_only",
            children_only,
            "Only the parts directly in the model are reached, not those inside of them. `model.children()` looks one "
            "level deep; `model.modules()` walks through all levels.",
        ),
        Misconception(
            "relu_gain",
            first_values(linear=lambda weight: nn.init.xavier_uniform_(weight, gain=2**0.5)),
            "Xavier's values are multiplied by √2, the gain for layers with a ReLU behind them. Most layers here have "
            "none, and the usual start of this model has a gain of 1: leave `gain` out.",
        ),
        Misconception(
            "deviation_by_vocabulary",
            first_values(table=lambda weight: nn.init.normal_(weight, std=weight.size(0) ** -0.5)),
            "The deviation of the embeddings is taken from the number of tokens. It is d_model, the width of a "
            "vector, that decides: times √d_model, each feature then has a variance of 1. `std=d_model ** -0.5`.",
        ),
        Misconception(
            "row_0_for_padding",
            row_0_for_padding,
            "Row 0 of each embedding is set to zero, whichever token is padding, and there may be none. `padding_idx` "
            "of the embedding says which row it is, or None.",
        ),
        Misconception(
            "parameters_made_anew",
            parameters_made_anew,
            "The weights are replaced by new parameters. Who shared the old one, as the output layer does, keeps it "
            "and is tied no more; an optimizer would go on moving what nobody uses. Write into the old one: "
            "`nn.init.normal_(module.weight, …)`.",
        ),
    ],
    hints=[
        "Walk through `model.modules()` and ask each what it is: `isinstance(module, nn.Linear)`. What does torch's "
        "`nn.init` offer for it?",
        "`nn.init.xavier_uniform_` and `nn.init.zeros_` for the linear layers (a bias may be None), `nn.init.normal_` "
        "with `std=module.embedding_dim**-0.5` for the embeddings. What happens to a weight that both share?",
        "Two loops, the second one for embeddings, so that a shared weight ends as one. After `normal_`, "
        "`nn.init.zeros_(module.weight[module.padding_idx])` where `padding_idx` is not None.",
    ],
)

# --- tie_embeddings --------------------------------------------------------------------------------------------------


def tying_inputs(draw: Draw, written: str) -> dict:
    vocab, d_model = 5, 3
    return {
        "written": written,
        "numbers": draw.numbers(vocab, d_model, low=0.5, high=2),
        "tokens": draw.integers(2, low=0, high=vocab - 1),
        "x": draw.numbers(1, d_model, low=0.5, high=2),
    }


def what_all_three_read(subject, written, numbers, tokens, x):
    from transformer_lab.model import TransformerConfig

    vocab, d_model = numbers.shape
    model, bias = nn.Module(), torch.arange(vocab, dtype=torch.float64)
    model.config = TransformerConfig(vocab, vocab, d_model=d_model, n_heads=1, tie=True)
    model.source_embedding, model.target_embedding = nn.Module(), nn.Module()
    model.source_embedding.embedding = nn.Embedding(vocab, d_model)
    model.target_embedding.embedding = nn.Embedding(vocab, d_model)
    model.output = nn.Linear(d_model, vocab)
    subject(model)
    source, target, output = model.source_embedding.embedding, model.target_embedding.embedding, model.output
    with torch.no_grad():
        {"source": source, "target": target, "output": output}[written].weight.copy_(numbers)
        output.bias.copy_(bias)
    return {"source embedding": source(tokens), "target embedding": target(tokens), "logits": output(x)}


def gradient_of_shared_weight(subject, written, numbers, tokens, x):
    from transformer_lab.model import TransformerConfig

    vocab, d_model = numbers.shape
    model = nn.Module()
    model.config = TransformerConfig(vocab, vocab, d_model=d_model, n_heads=1, tie=True)
    model.source_embedding, model.target_embedding = nn.Module(), nn.Module()
    model.source_embedding.embedding = nn.Embedding(vocab, d_model)
    model.target_embedding.embedding = nn.Embedding(vocab, d_model)
    model.output = nn.Linear(d_model, vocab)
    subject(model)
    source, target, output = model.source_embedding.embedding, model.target_embedding.embedding, model.output
    loss = source(tokens).sum() + 2 * target(tokens).sum() + 3 * (output(x) * torch.arange(vocab)).sum()
    loss.backward()
    return {"gradient of the weight": source.weight.grad}


def parameters_after_tying(subject, source_vocab, target_vocab, d_model):
    from transformer_lab.model import TransformerConfig

    model = nn.Module()
    model.config = TransformerConfig(source_vocab, target_vocab, d_model=d_model, n_heads=1, tie=True)
    model.source_embedding, model.target_embedding = nn.Module(), nn.Module()
    model.source_embedding.embedding = nn.Embedding(source_vocab, d_model)
    model.target_embedding.embedding = nn.Embedding(target_vocab, d_model)
    model.output = nn.Linear(d_model, target_vocab)
    error = raised(subject, model)
    return {"raised": error, "parameters": [name for name, _ in model.named_parameters()]}


def one_parameter_and_a_bias(inputs, received):
    if received["raised"] != "nothing":
        return f"it raises `{received['raised']}`"
    names = ("source_embedding.embedding.weight", "target_embedding.embedding.weight", "output.weight", "output.bias")
    for name in received["parameters"]:
        if name not in names:
            return f"there is a new parameter `{name}`"
    if len(received["parameters"]) != 2:
        return (
            f"the two embeddings and the output layer have {len(received['parameters'])} parameters, expected are 2: "
            "one weight for all, and the bias of the output layer"
        )
    return None


def vocabularies_must_agree(inputs, received):
    if received["raised"] == "ValueError":
        return None
    if received["raised"] == "nothing":
        return "vocabularies of two sizes are tied without an error"
    return f"it ends in `{received['raised']}`; a `ValueError` that names both sizes is meant"


def tied_by(tie):
    """A `tie_embeddings` that looks at the sizes first, and then ties by `tie(source, target, output)`."""

    def tie_by(model):
        source, target = model.source_embedding.embedding, model.target_embedding.embedding
        if source.num_embeddings != target.num_embeddings:
            raise ValueError
        tie(source, target, model.output)

    return tie_by


def copy_numbers(source, target, output):
    with torch.no_grad():
        source.weight.copy_(target.weight)
        output.weight.copy_(target.weight)


def share_storage(source, target, output):
    source.weight.data = target.weight.data
    output.weight.data = target.weight.data


def wrap_for_output(source, target, output):
    source.weight = target.weight
    output.weight = nn.Parameter(target.weight)


def leave_output_without_bias(source, target, output):
    source.weight = output.weight = target.weight
    output.bias = None


def tie_embeddings_only(source, target, output):
    source.weight = target.weight


def tie_output_only(source, target, output):
    output.weight = target.weight


def tie_output_to_source(source, target, output):
    output.weight = source.weight


def tie_transposed(source, target, output):
    source.weight = target.weight
    output.weight = nn.Parameter(target.weight.T)


def tie_at_the_wrong_level(model):
    if model.source_embedding.embedding.num_embeddings != model.target_embedding.embedding.num_embeddings:
        raise ValueError
    model.source_embedding.weight = model.target_embedding.embedding.weight
    model.output.weight = model.target_embedding.embedding.weight


def tie_without_looking(model):
    model.source_embedding.embedding.weight = model.target_embedding.embedding.weight
    model.output.weight = model.target_embedding.embedding.weight


def tie_with_assertion(model):
    assert model.source_embedding.embedding.num_embeddings == model.target_embedding.embedding.num_embeddings
    tie_without_looking(model)


def tie_looking_one_way(model):
    source, target = model.source_embedding.embedding, model.target_embedding.embedding
    if source.num_embeddings > target.num_embeddings:
        raise ValueError
    tie_without_looking(model)


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
        Probe("what the source embedding learns, all three know", lambda draw: tying_inputs(draw, "source"),
              what_all_three_read),
        Probe("what the target embedding learns, all three know", lambda draw: tying_inputs(draw, "target"),
              what_all_three_read),
        Probe("what the output layer learns, all three know", lambda draw: tying_inputs(draw, "output"),
              what_all_three_read),
        Probe("the gradients of all three add up", lambda draw: tying_inputs(draw, "nothing"),
              gradient_of_shared_weight),
    ],
    properties=[
        Property(
            "the three weights are one parameter, and the bias stays",
            lambda draw: {"source_vocab": 5, "target_vocab": 5, "d_model": draw.integer(2, 4)},
            one_parameter_and_a_bias,
            parameters_after_tying,
        ),
        Property(
            "vocabularies of two sizes raise ValueError",
            lambda draw: {"source_vocab": draw.integer(6, 8), "target_vocab": 5, "d_model": 3},
            vocabularies_must_agree,
            parameters_after_tying,
        ),
        Property(
            "a target vocabulary that is the larger one raises it too",
            lambda draw: {"source_vocab": 5, "target_vocab": draw.integer(6, 8), "d_model": 3},
            vocabularies_must_agree,
            parameters_after_tying,
        ),
    ],
    misconceptions=[
        Misconception(
            "copied",
            tied_by(copy_numbers),
            "The numbers are copied, so the three are equal once, and after the first training step no longer. To "
            "share a weight (section 3.4) is to have one tensor with three names: assign the parameter itself.",
        ),
        Misconception(
            "shared_storage",
            tied_by(share_storage),
            "`.data`, or `nn.Parameter(…)` around a weight, makes three parameters with one memory. Each has a "
            "gradient of its own, and an optimizer moves the same numbers three times; saving them fails or stores "
            "them three times. Assign the parameter itself: `model.output.weight = target.weight`.",
        ),
        Misconception(
            "output_wrapped",
            tied_by(wrap_for_output),
            "The output layer has a parameter of its own that shares only the memory: `.data` and `nn.Parameter(…)` "
            "around a weight do that. It has a gradient of its own, and an optimizer moves the same numbers twice. "
            "Assign the parameter itself: `model.output.weight = target.weight`.",
        ),
        Misconception(
            "bias_removed",
            tied_by(leave_output_without_bias),
            "The output layer has lost its bias. Only the weight is shared; the bias, one number for each word, "
            "stays: assign to `model.output.weight` and leave the layer as it is.",
        ),
        Misconception(
            "output_left_out",
            tied_by(tie_embeddings_only),
            "The two embeddings share their weight, the output layer has its own. Section 3.4 lets all three share.",
        ),
        Misconception(
            "source_left_out",
            tied_by(tie_output_only),
            "The output layer and the target embedding share their weight, the source embedding has its own. Section "
            "3.4 lets all three share: the vocabulary is one for both languages.",
        ),
        Misconception(
            "target_left_out",
            tied_by(tie_output_to_source),
            "The output layer shares its weight with the source embedding, and the target embedding has its own. "
            "Section 3.4 lets all three share.",
        ),
        Misconception(
            "transposed",
            tied_by(tie_transposed),
            "The weight is transposed for the output layer. `nn.Linear` keeps its weight as (outputs, inputs), which "
            "is (vocab, d_model), exactly the shape of the embedding: no transpose is needed, and a transposed one is "
            "a new parameter.",
        ),
        Misconception(
            "wrong_level",
            tie_at_the_wrong_level,
            "The weight is assigned to the `TokenEmbedding`, which does not use it: the table is one level deeper, in "
            "`model.source_embedding.embedding.weight`.",
        ),
        Misconception(
            "no_value_error",
            tie_without_looking,
            "Vocabularies of two sizes are tied without a word; the first token that the smaller one lacks then ends "
            "in an index error. Raise a `ValueError` that names both sizes.",
        ),
        Misconception(
            "assertion_for_error",
            tie_with_assertion,
            "A wrong argument is to raise `ValueError`: an `assert` is for what cannot "
            "happen, and `python -O` leaves it out.",
        ),
        Misconception(
            "only_one_is_larger",
            tie_looking_one_way,
            "A `ValueError` comes only where the source vocabulary is the larger one. The smaller one lacks tokens of "
            "the other in both cases: compare with `!=`.",
        ),
    ],
    hints=[
        "One tensor, three names. A module's `weight` can be assigned like any attribute, as long as it is an "
        "`nn.Parameter`.",
        "The tables are `model.source_embedding.embedding` and `model.target_embedding.embedding`; the third is "
        "`model.output`. Do the shapes fit? What if the vocabularies differ (`num_embeddings`)?",
        "`source.weight = target.weight` and `model.output.weight = target.weight`, after `raise ValueError(…)` where "
        "`source.num_embeddings != target.num_embeddings`.",
    ],
)

# --- Transformer -----------------------------------------------------------------------------------------------------


def config_of(**others) -> dict:
    sizes = {"source_vocab": 8, "target_vocab": 7, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 3}
    return sizes | {"dropout": 0.0, "max_length": 6} | others


def model_weights(draw: Draw, config: dict) -> dict[str, Tensor]:
    return lively_weights(draw, Transformer(TransformerConfig(**config)))


def words(draw: Draw, batch: int, length: int, vocab: int, pad_id: int = 0, padded: bool = False) -> Tensor:
    """Tokens without padding, or with the last sentences padded on the right. Some words are 0 where that is no pad."""
    tokens = draw.integers(batch, length, low=0, high=vocab - 1)
    tokens[tokens == pad_id] = vocab - 1
    if pad_id:
        tokens[0, 0] = 0
    if padded:
        for row in range(1, batch):
            tokens[row, draw.integer(1, length - 1) :] = pad_id
    return tokens


def sentence_inputs(draw: Draw, source: int = 3, target: int = 2, batch: int = 1, padded: bool = False, **others):
    config = config_of(**others)
    pad_id = config.get("pad_id", 0)
    return {
        "config": config,
        "weights": model_weights(draw, config),
        "source": words(draw, batch, source, config["source_vocab"], pad_id, padded),
        "target": words(draw, batch, target, config["target_vocab"], pad_id, padded),
    }


def encode_inputs(draw: Draw) -> dict:
    inputs = sentence_inputs(draw, 4, 2, 3, padded=True)
    del inputs["target"]
    return inputs


def decode_inputs(draw: Draw) -> dict:
    inputs = sentence_inputs(draw, 4, 3, 2, padded=True)
    source = inputs.pop("source")
    target = inputs.pop("target")
    mask = (source != 0)[:, None, None, :]
    return inputs | {"target": target, "memory": draw.numbers(2, 4, 4), "source_mask": mask}


def logits_of_words(subject, config, weights, source, target):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    load_weights(model, weights)
    logits = model(source, target)
    real = target != config.get("pad_id", 0)  # what comes out at padding is nobody's business
    return {"logits of real words": logits[real] if logits.shape[:2] == real.shape else logits}


def memory_of_words(subject, config, weights, source):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    load_weights(model, weights)
    result = model.encode(source)
    if not isinstance(result, tuple) or len(result) != 2:
        return {"memory of real words": result, "source_mask": None}
    return {"memory of real words": result[0][source != 0], "source_mask": result[1]}


def logits_from_memory(subject, config, weights, target, memory, source_mask):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    load_weights(model, weights)
    return {"logits of real words": model.decode(target, memory, source_mask)[target != 0]}


def model_gradients(subject, config, weights, source, target):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    load_weights(model, weights)
    return gradients(model(source, target), dict(model.named_parameters()))


def other_last_word(subject, config, weights, source, target, other):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    load_weights(model, weights)
    changed = target.clone()
    changed[:, -1] = other
    return {"logits": model(source, target)[:, :-1], "with another last word": model(source, changed)[:, :-1]}


def no_look_ahead(inputs, received):
    if torch.allclose(received["logits"], received["with another last word"], atol=1e-8):
        return None
    return "the logits before the last word of the target change with it: the future is seen"


def other_last_word_inputs(draw: Draw) -> dict:
    inputs = sentence_inputs(draw, target=4)
    last = int(inputs["target"][0, -1])
    return inputs | {"other": 1 + last % 6}


def dropout_by_part(subject, config, weights, source, target):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    load_weights(model, weights)
    evaluated = model.eval()(source, target)
    result = {"none": not torch.equal(evaluated, model(source, target))}
    for part in ("positional_encoding", "encoder", "decoder"):
        getattr(model.eval(), part).train()
        result[part] = not torch.equal(evaluated, model(source, target))
    return result


def each_part_drops(inputs, received):
    if received["none"]:
        return "in evaluation mode two calls give different logits"
    silent = [f"`{part}`" for part in ("positional_encoding", "encoder", "decoder") if not received[part]]
    return f"{', '.join(silent)}: nothing is dropped there in training" if silent else None


def weights_by_tie(subject, config):
    from transformer_lab.model import TransformerConfig

    result = {}
    for tie in (True, False):
        model = subject(TransformerConfig(**config, tie=tie))
        source, target = model.source_embedding.embedding.weight, model.target_embedding.embedding.weight
        output = model.output.weight
        result[f"one parameter with tie={tie}"] = source is target and target is output
        result[f"any shared with tie={tie}"] = source is target or target is output or source is output
        result[f"equal with tie={tie}"] = bool(torch.equal(source, target) and torch.equal(target, output))
    return result


def tied_when_asked(inputs, received):
    if received["any shared with tie=False"]:
        return "weights are shared although `tie` is False"
    if received["one parameter with tie=True"]:
        return None
    if received["equal with tie=True"]:
        return "with `tie` the three weights are equal at first, but they are copies and not one parameter"
    return "with `tie` the two embeddings and the output layer do not share one weight"


def exception_of_two_vocabularies(subject, config):
    from transformer_lab.model import TransformerConfig

    return raised(subject, TransformerConfig(**config))


def is_value_error(inputs, received):
    if received == "ValueError":
        return None
    return f"it ends in {'no error' if received == 'nothing' else f'`{received}`'}; a `ValueError` is meant"


def use_of_config(subject, config, longest):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    model.eval()
    memory, mask = torch.zeros(1, 2, config["d_model"]), torch.ones(1, 1, 1, 2, dtype=torch.bool)
    result = {"config is kept": getattr(model, "config", None) == TransformerConfig(**config)}
    for length in (longest, longest + 1):
        tokens = torch.ones(1, length, dtype=torch.int64)
        result[f"encode {length - longest}"] = raised(model.encode, tokens)
        result[f"decode {length - longest}"] = raised(model.decode, tokens, memory, mask)
    return result


def config_holds(inputs, received):
    for side in ("encode", "decode"):
        if received[f"{side} 0"] != "nothing":
            return f"`{side}` refuses a sentence of exactly `max_length` tokens"
        if received[f"{side} 1"] != "ValueError":
            return f"`{side}` takes a sentence longer than `config.max_length`; a `ValueError` is meant"
    return None if received["config is kept"] else "`model.config` is not the configuration it was built from"


def first_values_of_model(subject, config):
    from transformer_lab.model import TransformerConfig

    model = subject(TransformerConfig(**config))
    tables = model.source_embedding.embedding.weight, model.target_embedding.embedding.weight
    words = torch.arange(config["source_vocab"]) != config["pad_id"]
    matrices = [weight for name, weight in model.encoder.named_parameters() if weight.dim() == 2]
    # Xavier's variance is 2 / (inputs + outputs), so these numbers have a deviation of 1
    scaled = [weight.flatten() * (sum(weight.shape) / 2) ** 0.5 for weight in matrices]
    return {
        "embeddings": [(table[words] * config["d_model"] ** 0.5).std().item() for table in tables],
        "padding": all(bool((table[config["pad_id"]] == 0).all()) for table in tables),
        "matrices": torch.cat(scaled).std().item(),
        "bias": bool((model.output.bias == 0).all()),
    }


def first_values_are_filled_in(inputs, received):
    as_meant = [abs(deviation - 1) < 0.1 for deviation in (*received["embeddings"], received["matrices"])]
    if all(as_meant) and received["padding"] and received["bias"]:
        return None
    if not any(as_meant):
        return Remark(
            "Its weights start as torch makes them. The embeddings, multiplied by √d_model, then drown the positions: "
            "call `initialize_parameters(self)` at the end of `__init__`."
        )
    return Remark(
        "Some of its weights do not start as `initialize_parameters` fills them: call it at the end of `__init__`."
    )


def transformer_by(encode=None, decode=None, forward=None):
    """A Transformer with other methods: `encode(model, source)` and so on."""

    class Model(Transformer):
        def encode(self, source):
            return encode(self, source) if encode else super().encode(source)

        def decode(self, target, memory, source_mask):
            return decode(self, target, memory, source_mask) if decode else super().decode(target, memory, source_mask)

        def forward(self, source, target):
            return forward(self, source, target) if forward else super().forward(source, target)

    return Model


def transformer_built_by(change):
    """A Transformer that `change(model, config)` has worked on after it was built."""

    class Model(Transformer):
        def __init__(self, config):
            super().__init__(config)
            change(self, config)

    return Model


def encode_with(embed=lambda model, source: model.positional_encoding(model.source_embedding(source)),
                mask=lambda model, source: padding_mask(source, model.config.pad_id), see=True):  # fmt: skip
    def encode(model, source):
        source_mask = mask(model, source)
        return model.encoder(embed(model, source), source_mask if see else None), source_mask

    return encode


def decode_with(embed=lambda model, target: model.positional_encoding(model.target_embedding(target)),
                mask=lambda model, target: target_mask(target, model.config.pad_id),
                see=lambda source_mask, mask: (source_mask, mask), finish=lambda logits: logits):  # fmt: skip
    def decode(model, target, memory, source_mask):
        masks = see(source_mask, mask(model, target))
        return finish(model.output(model.decoder(embed(model, target), memory, *masks)))

    return decode


def decode_with_memory_first(model, target, memory, source_mask):
    x = model.positional_encoding(model.target_embedding(target))
    return model.output(model.decoder(memory, x, source_mask, target_mask(target, model.config.pad_id)))


def scaled(embedding):
    """The embedding again times √d_model."""
    return lambda model, tokens: model.positional_encoding(
        getattr(model, embedding)(tokens) * math.sqrt(model.config.d_model)
    )


def encode_to_memory_alone(model, source):
    return Transformer.encode(model, source)[0]


def forward_with_own_mask(model, source, target):
    return model.decode(target, model.encode(source), padding_mask(source, model.config.pad_id))


def forward_that_shifts(model, source, target):
    return model.decode(target[:, :-1], *model.encode(source))


def drop_nothing(model, config):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def drop_no_embeddings(model, config):
    model.positional_encoding = PositionalEncoding(config.d_model, max_length=config.max_length)


def forget_norm_first(model, config):
    sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff, config.dropout)
    model.encoder, model.decoder = Encoder(*sizes), Decoder(*sizes)
    initialize_parameters(model)


def forget_max_length(model, config):
    model.positional_encoding = PositionalEncoding(config.d_model, config.dropout)


def forget_bias(model, config):
    model.output = nn.Linear(config.d_model, config.target_vocab, bias=False)
    initialize_parameters(model)


def predict_source_words(model, config):
    model.output = nn.Linear(config.d_model, config.source_vocab)
    initialize_parameters(model)


def share_table_always(model, config):
    model.target_embedding = model.source_embedding


def lose_config(model, config):
    del model.config


def untie(model, config):
    if config.tie:
        model.target_embedding = TokenEmbedding(config.target_vocab, config.d_model, config.pad_id)
        model.output = nn.Linear(config.d_model, config.target_vocab)
        initialize_parameters(model)


def tie_by_copy(model, config):
    if config.tie:
        weight = model.source_embedding.embedding.weight.detach()
        untie(model, config)
        model.target_embedding.embedding.weight = nn.Parameter(weight.clone())
        model.output.weight = nn.Parameter(weight.clone())


class TransformerAlwaysTied(Transformer):
    def __init__(self, config):
        super().__init__(config)
        if config.source_vocab == config.target_vocab:
            tie_embeddings(self)


class TransformerTiedWithoutLooking(Transformer):
    def __init__(self, config):
        nn.Module.__init__(self)
        sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff, config.dropout, config.norm_first)
        self.config = config
        self.source_embedding = TokenEmbedding(config.source_vocab, config.d_model, config.pad_id)
        self.target_embedding = TokenEmbedding(config.target_vocab, config.d_model, config.pad_id)
        self.positional_encoding = PositionalEncoding(config.d_model, config.dropout, config.max_length)
        self.encoder, self.decoder = Encoder(*sizes), Decoder(*sizes)
        self.output = nn.Linear(config.d_model, config.target_vocab)
        if config.tie:
            tie_without_looking(self)
        initialize_parameters(self)


class TransformerWithoutConfig(Transformer):
    encode = encode_with(mask=lambda model, source: padding_mask(source, model.pad_id))
    decode = decode_with(mask=lambda model, target: target_mask(target, model.pad_id))

    def __init__(self, config):
        super().__init__(config)
        self.pad_id = config.pad_id
        del self.config


def decode_shifted(model, target, memory, source_mask):
    begin = torch.full_like(target[:, :1], model.config.bos_id)
    return Transformer.decode(model, torch.cat([begin, target[:, :-1]], dim=1), memory, source_mask)


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
    probes=[
        Probe("one sentence: the logits of two target words", sentence_inputs, logits_of_words),
        Probe("encode: memory and mask of a padded batch", encode_inputs, memory_of_words),
        Probe("decode: the logits from a given memory", decode_inputs, logits_from_memory),
        Probe("two layers, a padded batch, source longer than target",
              lambda draw: sentence_inputs(draw, 4, 3, 2, padded=True, n_layers=2), logits_of_words),
        Probe("pre-norm",
              lambda draw: sentence_inputs(draw, norm_first=True), logits_of_words),
        Probe("another pad id, and 0 is a word",
              lambda draw: sentence_inputs(draw, 4, 4, 2, padded=True, pad_id=draw.integer(3, 5)), logits_of_words),
        Probe("one weight for both embeddings and the output layer",
              lambda draw: sentence_inputs(draw, target_vocab=8, tie=True), logits_of_words),
        Probe("gradients reach all weights", sentence_inputs, model_gradients),
    ],
    properties=[
        Property(
            "no logits depend on a later word of the target",
            other_last_word_inputs,
            no_look_ahead,
            other_last_word,
        ),
        Property(
            "dropout acts on embeddings, encoder and decoder, in training only",
            lambda draw: sentence_inputs(draw, dropout=0.5),
            each_part_drops,
            dropout_by_part,
        ),
        Property(
            "the three weights are one parameter if `tie` is True, and three otherwise",
            lambda draw: {"config": config_of(target_vocab=8)},
            tied_when_asked,
            weights_by_tie,
        ),
        Property(
            "`tie` with two vocabularies raises ValueError",
            lambda draw: {"config": config_of(tie=True)},
            is_value_error,
            exception_of_two_vocabularies,
            costs=0.5,
        ),
        Property(
            "its first values: any are accepted",
            lambda draw: {
                "config": config_of(source_vocab=90, target_vocab=90, d_model=32, d_ff=64, pad_id=draw.integer(1, 9))
            },
            first_values_are_filled_in,
            first_values_of_model,
            costs=0.5,
        ),
        Property(
            "it keeps its configuration; sentences longer than `max_length` raise ValueError",
            lambda draw: {"config": config_of(), "longest": 6},
            config_holds,
            use_of_config,
            costs=0.5,
        ),
    ],
    misconceptions=[
        Misconception(
            "no_positions",
            transformer_by(encode_with(lambda model, source: model.source_embedding(source)),
                           decode_with(lambda model, target: model.target_embedding(target))),
            "The positions are never added. Attention does not know of any order, so the model reads a bag of words "
            "(section 3.5): `self.positional_encoding(self.source_embedding(source))`.",
        ),
        Misconception(
            "target_without_positions",
            transformer_by(decode=decode_with(lambda model, target: model.target_embedding(target))),
            "The target gets no positions. Section 3.5 adds them at the bottom of both stacks.",
        ),
        Misconception(
            "source_without_positions",
            transformer_by(encode_with(lambda model, source: model.source_embedding(source))),
            "The source gets no positions. Section 3.5 adds them at the bottom of both stacks.",
        ),
        Misconception(
            "scaled_twice",
            transformer_by(encode_with(scaled("source_embedding")), decode_with(scaled("target_embedding"))),
            "The embeddings are multiplied by √d_model once more. Your `TokenEmbedding` does that already (section "
            "3.4); twice makes the words so loud that the positions are not heard.",
        ),
        Misconception(
            "source_embedding_for_target",
            transformer_by(decode=decode_with(lambda m, target: m.positional_encoding(m.source_embedding(target)))),
            "The target is looked up in the source embedding. Unless they are tied, the two languages have a "
            "vocabulary each, and the same number means another word: `self.target_embedding(target)`.",
        ),
        Misconception(
            "future_seen",
            transformer_by(decode=decode_with(mask=lambda model, target: padding_mask(target, model.config.pad_id))),
            "The decoder sees the words that it is to predict: its mask hides padding, but not the future. Training "
            "goes to a loss of almost nothing, and the translations are nonsense (section 3.1): use `target_mask`.",
        ),
        Misconception(
            "no_target_mask",
            transformer_by(decode=decode_with(see=lambda source_mask, mask: (source_mask, None))),
            "The decoder gets no target mask at all, so it sees the words that it is to predict. Training goes to a "
            "loss of almost nothing, and the translations are nonsense (section 3.1).",
        ),
        Misconception(
            "encoder_without_mask",
            transformer_by(encode_with(see=False)),
            "The encoder does not get the source mask, so padding is read like words and a sentence changes with the "
            "batch it is in: `self.encoder(x, source_mask)`.",
        ),
        Misconception(
            "decoder_without_source_mask",
            transformer_by(decode=decode_with(see=lambda source_mask, mask: (None, mask))),
            "Cross-attention looks at the padding of the source: `decode` does not hand `source_mask` to the decoder.",
        ),
        Misconception(
            "masks_swapped",
            transformer_by(decode=decode_with(see=lambda source_mask, mask: (mask, source_mask))),
            "The two masks have changed places on their way to the decoder. The order is `self.decoder(x, memory, "
            "source_mask, mask)`.",
        ),
        Misconception(
            "x_and_memory_swapped",
            transformer_by(decode=decode_with_memory_first),
            "x and memory have changed places on their way to the decoder. The target is what asks, and comes first: "
            "`self.decoder(x, memory, source_mask, mask)`.",
        ),
        Misconception(
            "pad_is_always_zero",
            transformer_by(encode_with(mask=lambda model, source: padding_mask(source, 0)),
                           decode_with(mask=lambda model, target: target_mask(target, 0))),
            "0 is taken for the padding token, whatever the configuration says: `self.config.pad_id`. Here 0 is a "
            "word, and it disappears.",
        ),
        Misconception(
            "memory_alone",
            transformer_by(encode_to_memory_alone, forward=forward_with_own_mask),
            "`encode` returns the memory alone. The mask is wanted with it, `(memory, source_mask)`: whoever decodes "
            "word by word needs both, many times, and does not have the source any more.",
        ),
        Misconception(
            "softmax_at_the_end",
            transformer_by(decode=decode_with(finish=lambda logits: logits.softmax(-1))),
            "Probabilities are returned. Logits are meant, the numbers before the softmax: the loss of notebook 10 "
            "takes their softmax itself, and a second one flattens everything.",
        ),
        Misconception(
            "log_softmax_at_the_end",
            transformer_by(decode=decode_with(finish=lambda logits: logits.log_softmax(-1))),
            "Logarithms of probabilities are returned. Logits are meant, the numbers that `output` gives: the loss of "
            "notebook 10 takes their softmax itself.",
        ),
        Misconception(
            "last_word_only",
            transformer_by(decode=decode_with(finish=lambda logits: logits[:, -1])),
            "Only the logits of the last position are returned. Training needs those of every position at once; "
            "whoever translates takes the last ones from them.",
        ),
        Misconception(
            "shifts_the_target",
            transformer_by(forward=forward_that_shifts),
            "`forward` cuts the last token off the target. Whoever calls it has shifted the target already (notebook "
            "10): it gives logits for every token that it gets.",
        ),
        Misconception(
            "no_dropout",
            transformer_built_by(drop_nothing),
            "`config.dropout` is handed on to nobody. Positional encoding, encoder and decoder take it (section 5.4).",
        ),
        Misconception(
            "no_dropout_on_embeddings",
            transformer_built_by(drop_no_embeddings),
            "The sums of embeddings and positions are not dropped out; section 5.4 does so in both stacks: "
            "`PositionalEncoding(config.d_model, config.dropout, config.max_length)`.",
        ),
        Misconception(
            "norm_first_ignored",
            transformer_built_by(forget_norm_first),
            "`config.norm_first` does not reach encoder and decoder: it is their last argument.",
        ),
        Misconception(
            "max_length_ignored",
            transformer_built_by(forget_max_length),
            "`config.max_length` does not reach the positional encoding, so it is 512 whatever was asked for.",
        ),
        Misconception(
            "output_without_bias",
            transformer_built_by(forget_bias),
            "The output layer has no bias. In this course each linear layer has one: leave out `bias=False`.",
        ),
        Misconception(
            "output_of_source_words",
            transformer_built_by(predict_source_words),
            "The output layer has as many logits as the source has words. What is predicted is a word of the target: "
            "`nn.Linear(config.d_model, config.target_vocab)`.",
        ),
        Misconception(
            "one_table_always",
            transformer_built_by(share_table_always),
            "The two embeddings are one object, even without `tie`. Two vocabularies need two tables.",
        ),
        Misconception(
            "always_tied",
            TransformerAlwaysTied,
            "The weights are tied even where `config.tie` is False. Two vocabularies may well be of one size and hold "
            "other words.",
        ),
        Misconception(
            "tie_ignored",
            transformer_built_by(untie),
            "`config.tie` is not used: embeddings and output layer have weights of their own in any case. Call "
            "`tie_embeddings(self)` where it is True (section 3.4).",
        ),
        Misconception(
            "tied_by_copy",
            transformer_built_by(tie_by_copy),
            "With `tie` the weights are copied: equal at first, and after one training step no longer. They have to be "
            "one parameter (section 3.4): your `tie_embeddings` does that.",
        ),
        Misconception(
            "ties_any_vocabularies",
            TransformerTiedWithoutLooking,
            "Two vocabularies of different sizes are tied without a word. Your `tie_embeddings` raises `ValueError` "
            "there.",
        ),
        Misconception(
            "config_not_kept",
            TransformerWithoutConfig,
            "The model does not keep its configuration. Decoders read `model.config` to know which tokens begin, end "
            "and pad a sentence: `self.config = config`.",
        ),
        Misconception(
            "bos_put_in_front",
            transformer_by(decode=decode_shifted),
            "`decode` puts bos in front and drops the last token by itself, as T5 does. Here it takes the target as "
            "it comes: the caller shifts it once (notebook 10), and who does both predicts each word from those two "
            "before.",
        ),
    ],
    hints=[
        "`__init__` makes the parts of figure 1; `encode` is its left side, `decode` its right side, `forward` both. "
        "Where does each mask come from, and where does it go?",
        "`sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff, config.dropout, config.norm_first)` "
        "serves encoder and decoder. Tie before you fill in the first values. One positional encoding serves both "
        "sides: it has nothing to learn.",
        "`encode`: `source_mask = padding_mask(source, self.config.pad_id)`, `x = "
        "self.positional_encoding(self.source_embedding(source))`, `return self.encoder(x, source_mask), "
        "source_mask`. `decode` is alike, with `target_mask` and `self.output` around it; `forward` returns "
        "`self.decode(target, *self.encode(source))`.",
    ],
)

# --- count_parameters ------------------------------------------------------------------------------------------------


def size_inputs(draw: Draw, **others) -> dict:
    d_model = 4 * draw.integer(1, 4)
    sizes = {
        "source_vocab": draw.integer(20, 40),
        "target_vocab": draw.integer(50, 70),
        "d_model": d_model,
        "n_heads": 2,
        "n_layers": draw.integer(2, 4),
        "d_ff": draw.integer(5, 19),
    }
    return {"config": sizes | others}


def counted_by(subject, config):
    from transformer_lab.model import TransformerConfig

    return subject(TransformerConfig(**config))


def counts_of_other_settings(subject, config):
    from transformer_lab.model import TransformerConfig

    others = ({}, {"n_heads": 4}, {"max_length": 77}, {"dropout": 0.3}, {"pad_id": 3})
    return [subject(TransformerConfig(**(config | other))) for other in others]


def settings_without_weights(inputs, received):
    for name, count in zip(("n_heads", "max_length", "dropout", "pad_id"), received[1:], strict=True):
        if count != received[0]:
            return f"the number changes with `{name}`, which gives no parameter"
    return None


def counts_by_depth(subject, config):
    from transformer_lab.model import TransformerConfig

    return [subject(TransformerConfig(**(config | {"n_layers": layers}))) for layers in (1, 2, 3)]


def layers_count_alike(inputs, received):
    one, two, three = received
    if three - two != two - one:
        return "the second and the third layer do not add the same number"
    return None if two > one else "a further layer adds nothing"


def count_with(attention=lambda d, heads: 4 * (d * d + d), feed_forward=lambda d, f: 2 * d * f + f + d,
               norms=(2, 3), norm=2, attentions=(1, 2), final=lambda config: 2 if config.norm_first else 0,
               tables=lambda config: 1 if config.tie else None, bias=True, more=lambda config: 0):  # fmt: skip
    """A count that takes something else for true. `tables`: how many tables of the target's size, None for all."""

    def count(config):
        d, layers = config.d_model, config.n_layers
        per_layer = sum(attentions) * attention(d, config.n_heads) + 2 * feed_forward(d, config.d_ff)
        per_layer += sum(norms) * norm * d
        found = tables(config)
        rows = config.source_vocab + 2 * config.target_vocab if found is None else found * config.target_vocab
        total = layers * per_layer + final(config) * norm * d + rows * d
        return total + (config.target_vocab if bias else 0) + more(config)

    return count


def counted_by_building(config):
    return sum(parameter.numel() for parameter in Transformer(config).parameters())


def rows_of_the_source_for_output(config):
    rows = config.source_vocab - config.target_vocab
    return rows if config.tie else rows * (config.d_model + 1)


def one_stack_counted(config):
    d_model, d_ff = config.d_model, config.d_ff
    layer = 4 * (d_model * d_model + d_model) + 2 * d_model * d_ff + d_ff + d_model + 4 * d_model
    return config.n_layers * layer + count_with(lambda d, heads: 0, lambda d, f: 0, norms=(0, 0))(config)


COUNT_PARAMETERS = Exercise(
    answer=count_parameters,
    points=2,
    minutes=20,
    returns=("parameters",),
    probes=[
        Probe("post-norm, two vocabularies", size_inputs, counted_by),
        Probe("pre-norm", lambda draw: size_inputs(draw, norm_first=True), counted_by),
        Probe("tied weights", lambda draw: size_inputs(draw, source_vocab=55, target_vocab=55, tie=True), counted_by),
        Probe("one layer", lambda draw: size_inputs(draw, n_layers=1), counted_by),
        Probe(
            "a vocabulary that no machine could hold: by formula, without building",
            lambda draw: size_inputs(draw, source_vocab=10**14 + draw.integer(1, 9)),
            counted_by,
        ),
    ],
    properties=[
        Property(
            "heads, longest sentence, dropout and pad id change nothing",
            size_inputs,
            settings_without_weights,
            counts_of_other_settings,
        ),
        Property("each further layer adds the same", size_inputs, layers_count_alike, counts_by_depth),
    ],
    misconceptions=[
        Misconception(
            "attention_without_biases",
            count_with(attention=lambda d, heads: 4 * d * d),
            "The four matrices of attention are counted without their biases. In this course each linear layer has "
            "one: d_model numbers more for each.",
        ),
        Misconception(
            "output_projection_forgotten",
            count_with(attention=lambda d, heads: 3 * (d * d + d)),
            "Attention is counted with three matrices. There are four: w_q, w_k, w_v and w_o (section 3.2.2).",
        ),
        Misconception(
            "heads_multiplied",
            count_with(attention=lambda d, heads: heads * 3 * (d * d + d) + d * d + d),
            "Attention is multiplied by the number of heads. The heads share the d_model features among them, d_k "
            "each, so that more heads cost nothing (section 3.2.2).",
        ),
        Misconception(
            "feed_forward_without_biases",
            count_with(feed_forward=lambda d, f: 2 * d * f),
            "The feed-forward is counted without its biases: d_ff for the first layer, d_model for the second "
            "(equation 2).",
        ),
        Misconception(
            "no_biases_at_all",
            count_with(lambda d, heads: 4 * d * d, lambda d, f: 2 * d * f, bias=False),
            "Only the matrices are counted, no bias anywhere. In this course each linear layer has one.",
        ),
        Misconception(
            "norms_forgotten",
            count_with(norms=(0, 0), final=lambda config: 0),
            "The norms are not counted. Each has a gain and a bias, 2 · d_model numbers: two norms in a layer of the "
            "encoder, three in one of the decoder.",
        ),
        Misconception(
            "norms_without_bias",
            count_with(norm=1),
            "The norms are counted with d_model numbers. Each has two vectors, gain and bias.",
        ),
        Misconception(
            "decoder_like_encoder",
            count_with(norms=(2, 2), attentions=(1, 1)),
            "The decoder's layers are counted like the encoder's. They have a second attention, and a third norm "
            "around it (section 3.1).",
        ),
        Misconception(
            "cross_attention_forgotten",
            count_with(attentions=(1, 1)),
            "The decoder's layers are counted with one attention. They have two, self-attention and cross-attention "
            "(section 3.1).",
        ),
        Misconception(
            "third_norm_forgotten",
            count_with(norms=(2, 2)),
            "The decoder's layers are counted with two norms. They have three sublayers, and each has a norm (section "
            "3.1).",
        ),
        Misconception(
            "one_stack",
            one_stack_counted,
            "Only the encoder's layers are counted. `n_layers` is the depth of the encoder, and the decoder has as "
            "many again.",
        ),
        Misconception(
            "final_norms_forgotten",
            count_with(final=lambda config: 0),
            "The last norms are not counted: with `norm_first` encoder and decoder each have one more.",
        ),
        Misconception(
            "one_final_norm",
            count_with(final=lambda config: 1 if config.norm_first else 0),
            "With `norm_first` one last norm is counted. There are two: the encoder has one, and so has the decoder.",
        ),
        Misconception(
            "final_norms_always",
            count_with(final=lambda config: 2),
            "Encoder and decoder are counted with a last norm each, as `nn.Transformer` has them. Here they have one "
            "with `norm_first` only.",
        ),
        Misconception(
            "output_bias_forgotten",
            count_with(bias=False),
            "The bias of the output layer is not counted: one number for each word of the target.",
        ),
        Misconception(
            "output_bias_tied_away",
            count_with(more=lambda config: -config.target_vocab if config.tie else 0),
            "With `tie` the bias of the output layer is not counted. Only the weights are shared; an embedding has no "
            "bias to share.",
        ),
        Misconception(
            "tie_ignored",
            count_with(tables=lambda config: None),
            "Tied weights are counted three times. With `tie` the two embeddings and the output layer are one matrix "
            "(section 3.4).",
        ),
        Misconception(
            "tied_pair",
            count_with(tables=lambda config: 2 if config.tie else None),
            "With `tie` two matrices are counted. All three share one (section 3.4): both embeddings and the output "
            "layer.",
        ),
        Misconception(
            "output_layer_forgotten",
            count_with(
                tables=lambda config: 1 if config.tie else None,
                more=lambda config: 0 if config.tie else -config.target_vocab * config.d_model,
            ),
            "The matrix of the output layer is not counted: d_model · target_vocab more, unless it is tied.",
        ),
        Misconception(
            "output_layer_with_bias_forgotten",
            count_with(bias=False, more=lambda config: 0 if config.tie else -config.target_vocab * config.d_model),
            "The output layer is not counted, neither its matrix nor its bias: d_model · target_vocab + target_vocab "
            "more. With `tie` the matrix is shared, and the bias still counts.",
        ),
        Misconception(
            "positions_counted",
            count_with(more=lambda config: config.max_length * config.d_model),
            "The table of positions is counted. Sines and cosines are not learned (section 3.5): they are no "
            "parameters.",
        ),
        Misconception(
            "counted_by_building",
            counted_by_building,
            "The model is built and its parameters are counted. The number is right, as long as the model fits into "
            "memory; a formula knows it before, and shows what makes a model large. That is what is asked for.",
        ),
        Misconception(
            "output_by_source",
            count_with(more=rows_of_the_source_for_output),
            "The output layer is counted with the source vocabulary. It gives a score to each word of the target: its "
            "matrix and its bias have `target_vocab` rows.",
        ),
        Misconception(
            "padding_rows_left_out",
            count_with(more=lambda config: -config.d_model * (1 if config.tie else 2)),
            "The row of the padding token is left out of each embedding. It gets no gradient there, but it is a part "
            "of the weight, and a tied one learns through the output layer: count all rows.",
        ),
    ],
    hints=[
        "Take figure 1 and write down, box by box, which matrices and vectors it has. Count one attention, one "
        "feed-forward, one norm; then one layer of each kind.",
        "A linear layer from n to m has n · m + m numbers, a norm 2 · d_model. An attention has four linear layers. A "
        "layer of the encoder has one attention and two norms, one of the decoder two and three. What do `tie` and "
        "`norm_first` change?",
        "`attention = 4 * (d_model * d_model + d_model)`, `feed_forward = 2 * d_model * d_ff + d_ff + d_model`, `norm "
        "= 2 * d_model`; outside of the layers: the embeddings `(source_vocab + target_vocab) * d_model`, the output "
        "layer `target_vocab * d_model + target_vocab`, and two norms with `norm_first`.",
    ],
)

EXERCISES = [INITIALIZE_PARAMETERS, TIE_EMBEDDINGS, TRANSFORMER, COUNT_PARAMETERS]
