"""A GPU uses different kernels and different batches but must produce the same results.

Without a GPU, these tests are skipped.
"""

import copy
import math
from dataclasses import replace

import pytest
import torch

from transformer_lab.data import load_corpus, pad_batch
from transformer_lab.data.batches import bucketed_batches
from transformer_lab.decoding import DEFAULT_ALPHA, beam_search, load_pretrained
from transformer_lab.model import Transformer, TransformerConfig, fused_attention, set_attention
from transformer_lab.training import PRESETS, read_metrics, train
from transformer_lab.training.distributed import WorkerGroup
from transformer_lab.training.fast_gradients import FastGradients
from transformer_lab.training.loss import label_smoothing_loss, shift_target
from transformer_lab.training.steps import build_optimizer, update_weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device_of_batch", ["cpu", "cuda"])
def test_the_fast_path_has_the_gradients_of_the_plain_step(device_of_batch):
    """A batch on the CPU is copied asynchronously. If the copy finished too late, the training data would be wrong."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(40, 40, d_model=16, n_heads=2, n_layers=2, d_ff=32, dropout=0.0))
    set_attention(model, fused_attention)
    model = model.double().to("cuda")
    sources = [[*range(4, 4 + length), 2] for length in (3, 9, 6)]
    batch_on_cpu = bucketed_batches(sources, [[1, *source] for source in sources], 1000, 0)[0]
    batch = batch_on_cpu.to("cuda")
    decoder_input, labels = shift_target(batch.target)
    loss = label_smoothing_loss(model(batch.source, decoder_input), labels, 0.1, 0)
    expected = torch.autograd.grad(loss, list(model.parameters()))
    fast_loss = FastGradients(model, torch.float64).backward(batch_on_cpu.to(device_of_batch), smoothing=0.1, part=1.0)
    assert fast_loss.item() == pytest.approx(loss.item(), rel=1e-6)  # the loss is summed in float32
    gradients = tuple(parameter.grad for parameter in model.parameters())
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-7)  # as in test_fast_gradients.py


def test_translations_match_the_plain_search():
    translator = load_pretrained()
    sentences = [source for source, _ in load_corpus("captions").validation[:40]]
    translator.model.double().to("cuda")  # so that rounding never determines which hypothesis wins
    found = translator.translate(sentences)
    for sentence, translation in zip(sentences, found, strict=True):
        ids = translator.tokenizer.encode_source(sentence)
        source = pad_batch([ids], 0).to("cuda")
        expected = beam_search(translator.model, source, 4, DEFAULT_ALPHA, len(ids) + 50)[0]
        assert translation == translator.tokenizer.decode(expected)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_weights_do_not_change_if_the_loss_is_not_finite(optimizer):
    """The step does not wait for the loss, so the optimizer's kernels have to detect a loss that is not finite."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(40, 40, d_model=16, n_heads=2, n_layers=1, d_ff=32, dropout=0.0)).to("cuda")
    preset = replace(PRESETS["tour"], optimizer=optimizer, weight_decay=0.1)
    built = build_optimizer(model, preset)
    for group in built.param_groups:
        group["lr"] = 0.05
    batch = bucketed_batches([[5, 6, 2]], [[1, 5, 6, 2]], 100, 0)[0]
    with torch.no_grad():
        model.output.bias[7] = torch.nan
    before = copy.deepcopy(model.state_dict())
    losses, _ = update_weights(model, [batch], built, preset, torch.float32, WorkerGroup()).read()
    assert not math.isfinite(losses[0])
    torch.testing.assert_close(model.state_dict(), before, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_run_learns(compiled, tmp_path):
    preset = replace(PRESETS["tour"], train_limit=2000, epochs=3, optimizer="muon", compiled=compiled)
    train(preset, tmp_path, device="cuda")
    losses = [record["loss"] for record in read_metrics(tmp_path / "metrics.jsonl") if record["kind"] == "step"]
    assert losses[-1] < losses[0] - 3  # in nats: from 8.5, just above the log of the vocabulary size, to 4.3
