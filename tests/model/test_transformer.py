import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.model import (
    ResidualConnection,
    Transformer,
    TransformerConfig,
    causal_mask,
    count_parameters,
    fused_attention,
    initialize_parameters,
    padding_mask,
    scaled_dot_product_attention,
    set_attention,
    sinusoidal_encoding,
    tie_embeddings,
)

PAD, BOS, EOS = 0, 1, 2
SOURCE_VOCAB, TARGET_VOCAB = 17, 19
SOURCES = [[5, 9, 16, 4, 5, EOS], [7, 8, EOS], [EOS]]
TARGETS = [[BOS, 4, 6], [BOS, 18, 3, 11, 5], [BOS]]

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
kernels = pytest.mark.parametrize("attend", [scaled_dot_product_attention, fused_attention])


def small_config(**changes) -> TransformerConfig:
    sizes = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24, "dropout": 0.0, "max_length": 32}
    return TransformerConfig(**({"source_vocab": SOURCE_VOCAB, "target_vocab": TARGET_VOCAB} | sizes | changes))


def padded(sequences: list[list[int]]) -> Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([sequence + [PAD] * (longest - len(sequence)) for sequence in sequences])


# Parity. The models are small on purpose: among millions of hidden units, there is always one so close to zero that
# rounding decides whether ReLU lets it through, and float32 gradients then differ by 1e-3 between any two correct
# implementations.


def torchs_twin(model: Transformer, transplant) -> nn.Transformer:
    """Return an nn.Transformer with the same weights. It always has final norms, which only pre-norm layers need."""
    config = model.config
    twin = nn.Transformer(
        config.d_model,
        config.n_heads,
        config.n_layers,
        config.n_layers,
        config.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=config.norm_first,
    )
    if not config.norm_first:
        twin.encoder.norm = twin.decoder.norm = None
    transplant(nn.ModuleDict({"encoder": model.encoder, "decoder": model.decoder}), twin)
    return twin


def torchs_masks(source: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return masks for nn.Transformer, where True means "may not attend"."""
    return {
        "tgt_mask": ~causal_mask(target.size(1))[0, 0],
        "src_key_padding_mask": source == PAD,
        "tgt_key_padding_mask": target == PAD,
        "memory_key_padding_mask": source == PAD,
    }


parity = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # nn.Transformer's warning about nested tensors


@parity
@norms
def test_agrees_with_torchs_transformer(norm_first, dtype, tolerance, randomize, transplant, with_gradients):
    """This one test covers every part of the paper's model, from token ids to logits and back to both embeddings.

    nn.Transformer has no embeddings, scale, positions, or output layer, so the test adds them.
    """
    ours = randomize(Transformer(small_config(n_layers=3, norm_first=norm_first)))
    twin = torchs_twin(ours, transplant)
    source, target = padded(SOURCES), padded(TARGETS)
    weights = [ours.source_embedding.embedding.weight, ours.target_embedding.embedding.weight]
    embedded = [
        F.embedding(tokens, weight, padding_idx=PAD) * 4.0 + sinusoidal_encoding(tokens.size(1), 16)
        for tokens, weight in zip((source, target), weights, strict=True)
    ]
    decoded = twin(*embedded, **torchs_masks(source, target))
    expected = F.linear(decoded, ours.output.weight, ours.output.bias)
    logits = ours(source, target)
    assert logits.shape == (3, 5, TARGET_VOCAB)
    assert logits.std() > 0.5  # otherwise agreement would mean little
    torch.testing.assert_close(logits, expected, atol=tolerance, rtol=0)
    # The scale of 4 and sums over a token's positions push gradients to 10 and above, so rounding errors grow too.
    torch.testing.assert_close(
        with_gradients(logits, weights), with_gradients(expected, weights), atol=tolerance, rtol=tolerance
    )


@parity
@norms
def test_stacks_without_masks_agree_with_torchs(norm_first, dtype, tolerance, randomize, transplant, with_gradients):
    """Without embeddings and masks, the decoder's outputs and the gradients of both inputs must match."""
    ours = randomize(Transformer(small_config(n_layers=3, norm_first=norm_first)))
    twin = torchs_twin(ours, transplant)
    inputs = [torch.randn(3, length, 16, requires_grad=True) for length in (6, 5)]
    output = ours.decoder(inputs[1], ours.encoder(inputs[0]))
    expected = twin(*inputs)
    torch.testing.assert_close(with_gradients(output, inputs), with_gradients(expected, inputs), atol=tolerance, rtol=0)


# Padding and causality


@norms
@kernels
def test_a_padded_batch_gives_what_each_sentence_gives_alone(attend, norm_first, dtype, tolerance, randomize):
    """A padded batch gives the same results as its sentences give one at a time."""
    model = randomize(Transformer(small_config(norm_first=norm_first)))
    set_attention(model, attend)
    memory, source_mask = model.encode(padded(SOURCES))
    logits = model(padded(SOURCES), padded(TARGETS))
    assert source_mask.shape == (3, 1, 1, 6)
    for index, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone, _ = model.encode(torch.tensor([source]))
        torch.testing.assert_close(memory[index, : len(source)], alone[0], atol=tolerance, rtol=0)
        alone = model(torch.tensor([source]), torch.tensor([target]))
        torch.testing.assert_close(logits[index, : len(target)], alone[0], atol=tolerance, rtol=0)


@norms
@kernels
@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
def test_no_logit_depends_on_a_later_token(tie, attend, norm_first, randomize):
    """Check the gradient of the decoder's input. A model that looks ahead has a perfect loss but cannot translate."""
    config = small_config(norm_first=norm_first, tie=tie, source_vocab=TARGET_VOCAB)
    model = randomize(Transformer(config))
    set_attention(model, attend)
    embedded = []
    model.target_embedding.register_forward_hook(lambda module, arguments, output: embedded.append(output))
    target = torch.tensor([[BOS, 4, 6, 5, 11]])
    logits = model(torch.tensor([SOURCES[0]]), target)
    cotangent = torch.randn(TARGET_VOCAB)
    gradients = [
        torch.autograd.grad(logits[0, position] @ cotangent, embedded[0], retain_graph=True)[0][0].abs().sum(-1)
        for position in range(5)
    ]
    assert torch.equal(torch.stack(gradients) > 0, causal_mask(5)[0, 0])  # exactly zero, not small


@kernels
def test_a_sentence_of_nothing_but_padding_spoils_nobody(attend, randomize):
    """Fixed-size batches are filled up with rows of padding, and a NaN in one such row would reach every weight."""
    model = randomize(Transformer(small_config()))
    set_attention(model, attend)
    source, target = padded([SOURCES[0], [PAD]]), padded([TARGETS[0], [PAD]])
    logits = model(source, target)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[0], model(source[:1], target[:1])[0], atol=1e-5, rtol=0)
    logits.square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_forward_is_encode_then_decode(randomize):
    """Decoding calls the two halves and training calls `forward`. Both must give the same result, without any shift."""
    model = randomize(Transformer(small_config()))
    source, target = padded(SOURCES), padded(TARGETS)
    memory, source_mask = model.encode(source)
    assert memory.shape == (3, 6, 16)
    assert torch.equal(source_mask, padding_mask(source, PAD))
    assert torch.equal(model(source, target), model.decode(target, memory, source_mask))


def test_padding_follows_the_config(randomize):
    """With another pad_id, token 0 is a word and must be visible."""
    model = randomize(Transformer(small_config(pad_id=7, bos_id=0)))
    target = torch.tensor([[0, 4]])
    long, short = torch.tensor([[5, 2, 7, 7]]), torch.tensor([[5, 2]])
    torch.testing.assert_close(model(long, target), model(short, target))
    assert not torch.allclose(model(torch.tensor([[5, 2, 0, 0]]), target), model(short, target))


# Tying and counting


def test_three_way_tying_shares_one_parameter():
    """Weights that seem tied but are not tied are a classic bug, which only the size of the checkpoint reveals."""
    model = Transformer(small_config(source_vocab=TARGET_VOCAB))
    untied = counted(model)
    tie_embeddings(model)  # the exercise calls it on a finished model, and `Transformer` calls it if `tie` is set
    weight = model.output.weight
    assert model.source_embedding.embedding.weight is weight
    assert model.target_embedding.embedding.weight is weight
    assert counted(model) == untied - 2 * weight.numel()
    logits = model(torch.tensor([[5, EOS]]), torch.tensor([[BOS, 6]]))
    F.cross_entropy(logits[0], torch.tensor([6, EOS])).backward()
    assert (weight.grad.abs().sum(-1) > 0).all()  # even tokens that don't occur get a gradient from the output


def test_a_copy_stays_tied_and_shares_nothing_with_the_original():
    """The averaged checkpoint and the best model so far are both copies of a model."""
    model = Transformer(small_config(source_vocab=TARGET_VOCAB, tie=True))
    twin = copy.deepcopy(model)
    assert twin.source_embedding.embedding.weight is twin.output.weight
    assert twin.output.weight is not model.output.weight
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def counted(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())  # a shared parameter is counted once


def test_the_formula_counts_what_the_model_has():
    """The grid covers every field that adds parameters, so that two errors cannot cancel out."""
    names = ("d_model", "n_heads", "n_layers", "d_ff", "norm_first", "tie")
    for values in itertools.product((4, 12), (1, 2), (1, 3), (7, 30), (False, True), (False, True)):
        sizes = dict(zip(names, values, strict=True))
        config = small_config(source_vocab=TARGET_VOCAB if sizes["tie"] else SOURCE_VOCAB, **sizes)
        assert count_parameters(config) == counted(Transformer(config)), config


@pytest.mark.parametrize(
    ("config", "count", "millions"),
    [
        (TransformerConfig(37000, 37000, tie=True), 63_119_496, 65),
        (TransformerConfig(37000, 37000, d_model=1024, n_heads=16, d_ff=4096, tie=True), 214_282_376, 213),
    ],
    ids=["base", "big"],
)
def test_the_papers_models_have_the_papers_size(config, count, millions):
    """Table 3 has the sizes, and section 5.1 has the 37,000 shared tokens. The paper rounds its parameter counts."""
    with torch.device("meta"):  # counts parameters without allocating a gigabyte
        model = Transformer(config)
    assert count_parameters(config) == counted(model) == count
    assert count == pytest.approx(millions * 1e6, rel=0.03)


# Initial weights


@pytest.mark.parametrize(("d_model", "xavier_deviation", "xavier_share"), [(256, 0.25, 0.17), (512, 0.35, 0.285)])
def test_xavier_would_starve_the_tokens_of_signal(d_model, xavier_deviation, xavier_share):
    """Embeddings start as N(0, 1/d_model), because Xavier would make tokens too weak compared with the positions.

    With 8,000 tokens, Xavier initialization gives each entry a variance of 2 / (vocab + d_model), which has nothing to
    do with the positions that are added to it. The test compares standard deviations in the encoder's input, after the
    factor √d_model, and the tokens' share of its variance.
    """
    embedding = Transformer(TransformerConfig(8000, 8000, d_model, n_layers=1, n_heads=2, d_ff=8)).source_embedding
    positions = sinusoidal_encoding(20, d_model).std().item()
    tokens = torch.randint(1, 8000, (200, 20))
    ours = embedding(tokens).std().item()
    nn.init.xavier_uniform_(embedding.embedding.weight)
    xavier = embedding(tokens).std().item()
    # Each is a mean over 10^6 entries, so a tolerance of 1% is far more than random variation needs.
    assert (positions, ours, xavier) == pytest.approx((0.55, 1.0, xavier_deviation), abs=0.01)
    shares = [deviation**2 / (deviation**2 + positions**2) for deviation in (ours, xavier)]
    assert shares == pytest.approx([0.77, xavier_share], abs=0.01)


@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
def test_first_values(tie):
    """Matrices start with Xavier values, biases at 0, embeddings at N(0, 1/d_model), and padding at 0, even if tied."""
    vocab, d_model = 2000, 64
    model = Transformer(TransformerConfig(vocab, vocab, d_model=d_model, n_heads=4, n_layers=1, d_ff=256, tie=tie))
    initialize_parameters(model)  # calling it twice does no harm
    embeddings = [model.source_embedding.embedding.weight, model.target_embedding.embedding.weight]
    for weight in embeddings:
        assert (weight[PAD] == 0).all()
        assert weight.std().item() == pytest.approx(d_model**-0.5, rel=0.02)  # 128,000 entries: 0.2% random variation
        assert weight.abs().max() > 3 * d_model**-0.5  # a normal distribution, not a uniform one
        assert weight.is_leaf
        assert weight.requires_grad
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert (module.bias == 0).all()
            if not (tie and module is model.output):
                bound = math.sqrt(6 / (module.in_features + module.out_features))
                assert 0.99 * bound < module.weight.abs().max() <= bound


@norms
@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
def test_an_untrained_model_guesses_among_all_tokens(tie, norm_first):
    """The initial loss is ln(vocab) plus half the logits' variance: 0.1 for untied models and 0.4 to 0.6 for tied ones.

    With torch's own N(0, 1) for embeddings, a tied model would start at 28 instead of 7.4.
    """
    vocab = 1000
    config = TransformerConfig(
        vocab, vocab, d_model=64, n_heads=4, n_layers=2, d_ff=128, dropout=0.0, tie=tie, norm_first=norm_first
    )
    model = Transformer(config).eval()
    source, target, labels = (torch.randint(3, vocab, (32, 20)) for _ in range(3))
    with torch.no_grad():
        loss = F.cross_entropy(model(source, target).flatten(0, 1), labels.flatten()).item()
    assert math.log(vocab) - 0.1 < loss < math.log(vocab) + 0.8


# The parts of a model


def test_names_of_the_weights():
    """Checkpoints, checks, and old submissions load weights by these names.

    The table of positions is not a weight, so a model can read longer sentences than those it was trained on.
    """
    attention = [f"{w}.{kind}" for w in ("w_q", "w_k", "w_v", "w_o") for kind in ("weight", "bias")]
    feed_forward = [f"feed_forward.{w}.{kind}" for w in ("w_1", "w_2") for kind in ("weight", "bias")]

    def residuals(count: int) -> list[str]:
        return [f"residuals.{index}.norm.{kind}" for index in range(count) for kind in ("gain", "bias")]

    encoder = [f"self_attention.{name}" for name in attention] + feed_forward + residuals(2)
    decoder = (
        [f"self_attention.{name}" for name in attention]
        + [f"cross_attention.{name}" for name in attention]
        + feed_forward
        + residuals(3)
    )
    expected = {
        "source_embedding.embedding.weight",
        "target_embedding.embedding.weight",
        "output.weight",
        "output.bias",
        *(f"encoder.layers.{layer}.{name}" for layer in (0, 1) for name in encoder),
        *(f"decoder.layers.{layer}.{name}" for layer in (0, 1) for name in decoder),
    }
    final_norms = {f"{stack}.norm.{kind}" for stack in ("encoder", "decoder") for kind in ("gain", "bias")}
    assert set(Transformer(small_config()).state_dict()) == expected
    assert set(Transformer(small_config(norm_first=True)).state_dict()) == expected | final_norms
    assert set(Transformer(small_config(source_vocab=TARGET_VOCAB, tie=True)).state_dict()) == expected


def test_the_config_keeps_its_promises():
    """The paper's base model must be the default: post-norm and untied."""
    config = TransformerConfig(100, 200)
    assert (config.d_model, config.n_heads, config.n_layers, config.d_ff, config.dropout) == (512, 8, 6, 2048, 0.1)
    assert (config.norm_first, config.tie, config.max_length) == (False, False, 512)
    assert (config.pad_id, config.bos_id, config.eos_id) == (0, 1, 2)
    model = Transformer(small_config(n_layers=3, dropout=0.2, norm_first=True))
    assert len(model.encoder.layers) == len(model.decoder.layers) == 3
    assert all(module.norm_first for module in model.modules() if isinstance(module, ResidualConnection))
    dropouts = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert dropouts == [0.2] * (1 + 3 * 4 + 3 * 6)  # positions, encoder, decoder


@norms
@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
def test_gradients_reach_every_parameter(tie, norm_first, randomize):
    """If a part is built but not used, it would not be trained.

    The bias of w_k gets no gradient: it adds the same number to all of a query's scores, which does not change the
    softmax.
    """
    config = small_config(norm_first=norm_first, tie=tie, source_vocab=TARGET_VOCAB)
    model = randomize(Transformer(config))
    model(padded(SOURCES), padded(TARGETS)).square().mean().backward()
    for name, parameter in model.named_parameters():
        largest = parameter.grad.abs().max().item()
        if name.endswith("w_k.bias"):
            assert largest < 1e-5, name
        else:
            assert largest > 1e-5, name


# Dtypes


@pytest.mark.parametrize(
    ("other", "allowed"), [(torch.float16, 0.03), (torch.bfloat16, 0.25), (torch.float64, 1e-5)], ids=str
)
def test_a_model_runs_in_other_precisions(other, allowed, randomize):
    """The tolerance allows thirty roundings of 2^-11 or 2^-8 on logits of size 3. Measured errors: 0.009 and 0.09."""
    model = randomize(Transformer(small_config())).eval()
    source, target = padded(SOURCES), padded(TARGETS)
    expected = model(source, target)
    logits = model.to(other)(source, target)
    assert logits.dtype == other
    torch.testing.assert_close(logits.float(), expected, atol=allowed, rtol=0)


@kernels
def test_training_under_bfloat16_autocast(attend, randomize):
    """The trainer computes products in bfloat16, but sums and all gradients in float32. The measured error is 0.04."""
    model = randomize(Transformer(small_config()))
    set_attention(model, attend)
    source, target = padded(SOURCES), padded(TARGETS)
    expected = model(source, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory, _ = model.encode(source)
        logits = model(source, target)
    assert memory.dtype == torch.float32
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, atol=0.1, rtol=0)
    logits.float().square().mean().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# Invalid input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 16, "n_heads": 3}, "d_model 16 is not divisible by n_heads 3"),
        ({"d_model": 15, "n_heads": 3}, "d_model 15 is odd, but each sine needs a cosine: use 14 or 16"),
        ({"dropout": -0.1}, "dropout probability has to be between 0 and 1, but got -0.1"),
        ({"dropout": 1.0}, "dropout is 1.0, but must be below 1"),
        ({"dropout": math.nan}, "dropout is nan, but must be below 1"),
        ({"tie": True}, "tied embeddings need one vocabulary, but source_vocab is 17 and target_vocab 19"),
        ({"pad_id": 18}, "pad_id 18 is not a token of a vocabulary of 17"),
        ({"pad_id": -1}, "pad_id -1 is not a token of a vocabulary of 17"),
        *(
            ({name: 0}, f"{name} is 0, but must be at least 1")
            for name in ("source_vocab", "target_vocab", "d_model", "n_heads", "n_layers", "d_ff", "max_length")
        ),
        ({"n_layers": -1}, "n_layers is -1, but must be at least 1"),
    ],
    ids=str,
)
def test_a_config_that_cannot_work_is_refused_in_one_line(changes, message):
    """The error states both values. Otherwise, torch would divide by zero, raise another error, or fail much later."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 the message is compared as a whole
        Transformer(small_config(**changes))
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_sequence_of_max_length_is_the_longest():
    """Adding one more token on either side must raise an error that states both numbers."""
    model = Transformer(small_config(max_length=6)).eval()
    fits, too_long = torch.full((1, 6), 5), torch.full((1, 7), 5)
    assert model(fits, fits).shape == (1, 6, TARGET_VOCAB)
    for source, target in ((too_long, fits), (fits, too_long)):
        with pytest.raises(ValueError, match="sequence of 7 tokens, but max_length is 6"):
            model(source, target)
