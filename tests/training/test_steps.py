import copy
import math
from dataclasses import replace

import pytest
import torch

from transformer_lab.data.batches import Batch, bucketed_batches, pad_batch
from transformer_lab.model import Transformer, TransformerConfig
from transformer_lab.presets import PRESETS
from transformer_lab.training.distributed import WorkerGroup
from transformer_lab.training.steps import (
    build_optimizer,
    computing_precision,
    evaluate,
    learning_rate,
    train_step,
    update_weights,
)

ALONE = WorkerGroup()
PRESET = replace(PRESETS["tour"], dropout=0.0, clip_norm=0.5, eps=1e-3)  # eps: a tiny gradient's sign has no effect


def tiny_model(dropout=0.0):
    torch.manual_seed(0)
    return Transformer(TransformerConfig(20, 20, 8, 2, 1, 16, dropout, max_length=30))


def sentences(count, seed=0):
    """Return `count` sentences of 3 to 9 tokens, as sources (with eos) and as targets (with bos and eos)."""
    generator = torch.Generator().manual_seed(seed)
    bodies = [
        torch.randint(4, 20, (int(length),), generator=generator).tolist()
        for length in torch.randint(3, 10, (count,), generator=generator)
    ]
    return [[*body, 2] for body in bodies], [[1, *body, 2] for body in bodies]


def one_batch(sources, targets):
    return Batch(pad_batch(sources, 0), pad_batch(targets, 0), 0, list(range(len(sources))))


def with_optimizer(model, rate=0.05, preset=PRESET):
    optimizer = build_optimizer(model, preset)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


def assert_same_weights(model, other, tolerance):
    torch.testing.assert_close(model.state_dict(), other.state_dict(), atol=tolerance, rtol=0)


def test_train_step_learns_a_batch_by_heart():
    """Without zero_grad, the shift, or the optimizer step, the loss would not get this low."""
    model, batch = tiny_model(), one_batch(*sentences(4))
    optimizer = with_optimizer(model, rate=0.02)
    losses = [train_step(model, batch, optimizer, smoothing=0.0) for _ in range(60)]
    assert losses[0] > 2.5  # about log(20)
    assert losses[-1] < 0.1


def test_train_step_works_in_training_mode_and_clips_the_gradient():
    """A model left in evaluation mode would train without dropout."""
    model, batch = tiny_model(), one_batch(*sentences(4))
    model.eval()
    train_step(model, batch, torch.optim.SGD(model.parameters(), lr=0.0), clip_norm=0.25)
    assert model.training
    norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    assert norm.item() == pytest.approx(0.25, rel=1e-3)  # clip_grad_norm_ adds 1e-6 to the norm before dividing


def test_evaluate_counts_every_token_the_same():
    """Averaging the batch means would give more weight to the words in a small batch."""
    model = tiny_model(dropout=0.3)
    sources, targets = sentences(10)
    whole = evaluate(model, [one_batch(sources, targets)])
    parts = evaluate(model, [one_batch(sources[:9], targets[:9]), one_batch(sources[9:], targets[9:])])
    assert parts == pytest.approx(whole, rel=1e-5)  # float32 sums in a different order
    assert whole[1] == pytest.approx(math.exp(whole[0]))
    assert model.training  # the mode is restored; with dropout on, the two would differ
    with pytest.raises(ValueError, match="no token"):
        evaluate(model, [])
    with torch.no_grad():
        model.output.bias[5] = math.nan
    assert all(map(math.isnan, evaluate(model, [one_batch(sources, targets)])))


def test_update_is_the_same_as_train_step():
    """The exercise's function and the one used for full-scale training must not drift apart."""
    batch = one_batch(*sentences(6))
    readable, full = tiny_model(), tiny_model()
    loss = train_step(readable, batch, with_optimizer(readable), PRESET.label_smoothing, PRESET.clip_norm)
    losses, norm = update_weights(full, [batch], with_optimizer(full), PRESET, torch.float32, ALONE).read()
    assert losses == [pytest.approx(loss, rel=1e-6)]
    assert norm > PRESET.clip_norm  # otherwise clipping would not be tested
    assert_same_weights(readable, full, 1e-7)


def test_accumulated_batches_give_the_update_of_one_big_batch():
    """Dividing by the number of batches instead of the number of tokens would favor the batch with fewer tokens."""
    sources, targets = sentences(12)
    pieces = bucketed_batches(sources, targets, 40, 0)
    assert len({piece.target_tokens for piece in pieces}) > 1
    at_once, in_pieces = tiny_model(), tiny_model()
    big = [one_batch(sources, targets)]
    losses, norm = update_weights(at_once, big, with_optimizer(at_once), PRESET, torch.float32, ALONE).read()
    update = update_weights(in_pieces, pieces, with_optimizer(in_pieces), PRESET, torch.float32, ALONE)
    parts, norm_of_parts = update.read()
    assert sum(parts) == pytest.approx(sum(losses), rel=1e-5)  # float32 sums in a different order
    assert norm_of_parts == pytest.approx(norm, rel=1e-4)
    assert_same_weights(at_once, in_pieces, 1e-5)


@pytest.mark.parametrize("changed", [{"clip_norm": 0.0}, {"betas": (0.5, 0.98)}, {"weight_decay": 0.5}])
def test_options_of_the_optimizer_have_an_effect(changed):
    """An option that nothing reads would look like one that makes no difference."""
    batch, models = one_batch(*sentences(6)), [tiny_model(), tiny_model(), tiny_model()]
    for model, preset in zip(models[1:], [PRESET, replace(PRESET, **changed)], strict=True):
        optimizer = with_optimizer(model, preset=preset)
        for _ in range(2):  # Adam's first update doesn't depend on betas
            update_weights(model, [batch], optimizer, preset, torch.float32, ALONE)
    old, usual, other = (model.target_embedding.embedding.weight for model in models)
    assert (other - old).abs().max() > 1e-3  # without clipping, the model still learns
    assert (other - usual).abs().max() > 1e-3


def test_the_papers_rate_is_scaled():
    paper = PRESETS["paper"]
    rates = [learning_rate(replace(paper, learning_rate_scale=scale), 10, 100) for scale in (1.0, 0.5)]
    assert rates[1] == pytest.approx(rates[0] / 2)


def test_processes_share_a_batch_without_loss_or_repetition():
    """If a sentence were used twice or not at all, two processes would have a different loss than one."""
    batch = one_batch(*sentences(5))
    shares = [WorkerGroup(rank, 3).share_of(batch) for rank in range(3)]
    assert sorted(index for share in shares for index in share.indices) == batch.indices
    assert sum(share.target_tokens for share in shares) == batch.target_tokens
    assert WorkerGroup(2, 3).share_of(one_batch(*sentences(2))).indices == []


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_weights_are_left_alone_if_the_loss_is_not_finite(poison, optimizer):
    """A single step with a NaN would turn every weight into NaN and leave nothing worth saving."""
    model, preset = tiny_model(), replace(PRESET, optimizer=optimizer, weight_decay=0.1)
    sources, targets = sentences(6)
    bad, good = one_batch([[3, 2]], [[1, 3, 2]]), one_batch(sources, targets)
    with torch.no_grad():
        model.source_embedding.embedding.weight[3] = poison
    before = copy.deepcopy(model.state_dict())
    optimizer = with_optimizer(model, preset=preset)
    losses, _ = update_weights(model, [good, bad], optimizer, preset, torch.float32, ALONE).read()
    assert math.isfinite(losses[0])
    assert not math.isfinite(losses[1])  # the batch with the NaN
    torch.testing.assert_close(model.state_dict(), before, atol=0, rtol=0, equal_nan=True)


def test_bfloat16_products_give_nearly_the_same_loss():
    """Without autocast, the losses would be equal. If the softmax also used bfloat16, they would differ far more."""
    batch = one_batch(*sentences(6))
    losses = [
        update_weights(model, [batch], with_optimizer(model), PRESET, precision, ALONE).read()[0][0]
        for model, precision in ((tiny_model(), torch.float32), (tiny_model(), torch.bfloat16))
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.01)  # bfloat16 has 8 bits: 0.4% per number


def test_precision_is_what_the_preset_says():
    """On a CPU that only emulates bfloat16, `auto` must never choose it, because emulation is slower than float32."""
    cpu = torch.device("cpu")
    assert computing_precision(replace(PRESET, precision="bf16"), cpu) is torch.bfloat16
    assert computing_precision(replace(PRESET, precision="float32"), cpu) is torch.float32
    native = any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16"))
    assert (computing_precision(PRESET, cpu) is torch.bfloat16) == native
