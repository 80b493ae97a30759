"""The Transformer's trainer, decoders, and heat maps rely on these features of the recurrent translator."""

from dataclasses import replace

import pytest
import torch

from transformer_lab.data import Corpus
from transformer_lab.decoding import beam_search, cached_beam_search, cached_greedy_decode, greedy_decode
from transformer_lab.electives.recurrent import (
    FixedContext,
    NoContext,
    RecurrentEncoder,
    additive_weights,
    recurrent_greedy_decode,
    with_attention,
    with_context,
)
from transformer_lab.model import TransformerConfig
from transformer_lab.training import find_preset, train
from transformer_lab.training.fast_gradients import FastGradients
from transformer_lab.training.loss import label_smoothing_loss, shift_target

BUILDERS = [with_attention, with_context(FixedContext), with_context(NoContext)]
KINDS = pytest.mark.parametrize("build", BUILDERS, ids=["attention", "fixed context", "no context"])


def lively_model(build, seed=0, vocab=14, **changes):
    """Return a model with large weights, so that hypotheses differ and some end early."""
    torch.manual_seed(seed)
    config = TransformerConfig(vocab, vocab, d_model=8, n_heads=1, n_layers=1, d_ff=1, dropout=0.3, **changes)
    model = build(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
        model.output.bias[config.eos_id] = 1.0
    return model


@pytest.fixture
def source():
    return torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0], [11, 2, 0, 0, 0]])


@KINDS
@pytest.mark.parametrize("seed", range(8))
def test_all_decoders_agree(build, seed, source):
    """The plain decoders read the whole prefix. The fast decoders keep a state and move it with the beam."""
    model = lively_model(build, seed, tie=seed % 2 == 0)
    greedy = greedy_decode(model, source, 9)
    assert recurrent_greedy_decode(model, source, 9) == greedy
    assert cached_greedy_decode(model, source, 9) == greedy
    assert cached_beam_search(model, source, 3, 0.6, 9) == beam_search(model, source, 3, 0.6, 9)
    assert model.training


@KINDS
def test_padding_changes_nothing(build, source):
    model = lively_model(build).eval()
    target = torch.tensor([[1, 4, 5, 6]])
    alone = model(source[1:2, :3], target)
    torch.testing.assert_close(model(source, target.expand(3, -1))[1:2], alone)
    memory, mask = model.encode(source)
    memory[~mask[:, 0, 0]] = 1e3
    torch.testing.assert_close(model.decode(target.expand(3, -1), memory, mask)[1:2], alone)


def test_each_context_is_the_one_that_its_name_says(source):
    """`FixedContext` gives every step the same context.

    `NoContext` reproduces the mistake of leaving out the context.
    """
    memory = torch.randn(3, 5, 8)
    mask = (source != 0)[:, None]
    context, weights = FixedContext()(torch.randn(3, 2, 8), memory, mask)
    assert weights is None
    torch.testing.assert_close(context[:, 0], context[:, 1])
    torch.testing.assert_close(context[1, 0], torch.cat([memory[1, 2, :4], memory[1, 0, 4:]]))
    assert not NoContext()(torch.randn(3, 2, 8), memory, mask)[0].any()


def test_additive_weights_have_a_row_for_every_step(source):
    model = lively_model(with_attention)
    weights = additive_weights(model, source, torch.tensor([[1, 4, 5, 6]]).expand(3, -1))
    assert weights.shape == (3, 4, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4).double())
    assert not weights[1, :, 3:].any()
    assert model.training
    assert not model.decoder.attention._forward_hooks


def test_odd_width_and_two_vocabularies_are_refused():
    with pytest.raises(ValueError, match="d_model is 7"):
        RecurrentEncoder(10, 7)
    with pytest.raises(ValueError, match="one vocabulary"):
        with_attention(TransformerConfig(10, 11, d_model=4, tie=True))


def test_fast_gradients_are_the_models_own(source):
    """The trainer's fast copy must also work for a model without multi-head attention."""
    from transformer_lab.data import Batch

    model = lively_model(with_attention, tie=True).float()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    batch = Batch(source, torch.tensor([[1, 4, 5, 6, 2], [1, 7, 2, 0, 0], [1, 8, 9, 2, 0]]), 0, [0, 1, 2])
    fast = FastGradients(model, torch.float32)
    loss = fast.backward(batch, 0.1, 1.0)
    computed = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    decoder_input, labels = shift_target(batch.target)
    expected = label_smoothing_loss(model(batch.source, decoder_input), labels, 0.1, 0)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(computed, [parameter.grad for parameter in model.parameters()])


def test_the_courses_trainer_trains_it(tmp_path, monkeypatch):
    """A recurrent model has the same training loop, tokens, decoding, and record as a Transformer."""
    words = ["ein Hund", "eine Frau", "zwei Kinder", "ein Mann"]
    pairs = [(f"{one} sieht {other}", f"{one} looks {other}") for one in words for other in words] * 8
    monkeypatch.setattr(
        "transformer_lab.training.trainer.load_corpus",
        lambda *arguments: Corpus("toy", "de", "en", pairs, pairs[:16], {}),
    )
    preset = replace(
        find_preset("tour"), vocab_size=540, d_model=16, n_layers=1, epochs=8, max_tokens=200, warmup_steps=5,
        peak_rate=0.02, attention="explicit", precision="float32", beam_size=2, average=2,
    )  # fmt: skip
    losses = []
    record = train(
        preset, tmp_path / "run", build_model=with_attention,
        on_log=lambda one: losses.append(one["loss"]) if one["kind"] == "step" else None,
    )  # fmt: skip
    assert losses[-1] < losses[0] / 2
    assert record["result"]["validation_bleu"] > 30  # it would be 0 without training
