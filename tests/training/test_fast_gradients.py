"""The fast path must compute the same gradients as the paper's code. Wrong gradients would train a worse model."""

import shutil
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from transformer_lab.data.batches import bucketed_batches, pad_batch
from transformer_lab.decoding import beam_search, cached_beam_search, cached_greedy_decode, greedy_decode
from transformer_lab.model import (
    LayerNorm,
    Transformer,
    TransformerConfig,
    fused_attention,
    scaled_dot_product_attention,
    set_attention,
)
from transformer_lab.presets import PRESETS
from transformer_lab.training.distributed import WorkerGroup
from transformer_lab.training.fast_gradients import (
    ByteDropout,
    FastGradients,
    FusedLayerNorm,
    OutputLayerLoss,
    unfused_attention,
)
from transformer_lab.training.loss import consistency_loss, label_smoothing_loss, shift_target
from transformer_lab.training.steps import build_optimizer, learning_rate, update_weights


def small_model(**changes) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 32, "dropout": 0.0, "tie": True} | changes
    return Transformer(TransformerConfig(40, 40, **sizes))


def some_batch():
    generator = torch.Generator().manual_seed(1)
    lengths = (3, 9, 6, 5)
    sentences = [torch.randint(4, 40, (length,), generator=generator).tolist() for length in lengths]
    sources = [[*sentence, 2] for sentence in sentences]
    targets = [[1, *sentence[::-1], 2] for sentence in reversed(sentences)]
    return bucketed_batches(sources, targets, 1000, 0)[0]


def plain_gradients(model: nn.Module, batch, smoothing: float):
    decoder_input, labels = shift_target(batch.target)
    loss = label_smoothing_loss(model(batch.source, decoder_input), labels, smoothing, 0)
    return loss, torch.autograd.grad(loss, list(model.parameters()))


def gradients_of(model: nn.Module) -> tuple[Tensor, ...]:
    return tuple(parameter.grad for parameter in model.parameters())


@pytest.mark.parametrize("pieces", [512, 7])
@pytest.mark.parametrize("device_type", ["cpu", "cuda"])  # whose kernels to use; both run on the CPU
@pytest.mark.parametrize("changes", [{}, {"tie": False}, {"norm_first": True}])
def test_gradients_are_those_of_the_plain_step(changes, device_type, pieces, monkeypatch):
    monkeypatch.setattr(OutputLayerLoss, "tokens_at_a_time", pieces)
    model, batch = small_model(**changes).double(), some_batch()
    loss, expected = plain_gradients(model, batch, 0.1)  # with the explicit attention formula
    set_attention(model, fused_attention)
    gradients = FastGradients(model, torch.float64, device_type=device_type)
    fast_loss = gradients.backward(batch, smoothing=0.1, part=1.0)
    assert fast_loss.item() == pytest.approx(loss.item(), rel=1e-6)  # the loss is summed in float32
    # The softmax uses float32 internally, so the results may differ only by its rounding error, 6e-8.
    torch.testing.assert_close(gradients_of(model), expected, rtol=1e-4, atol=1e-7)


class TwoMinds(nn.Module):
    """Dropout that is the same on every call but differs between the two halves of a batch."""

    def forward(self, x):
        first, second = x.chunk(2)
        return torch.cat([first, second * torch.linspace(-1, 2, x.size(-1), dtype=x.dtype)])


@pytest.mark.filterwarnings("ignore:In CPU autocast")  # `TwoMinds` is unknown to autocast, which has no float64
@pytest.mark.parametrize("pieces", [512, 4])
@pytest.mark.parametrize("changes", [{}, {"tie": False, "norm_first": True}])
def test_gradients_of_two_passes_are_those_of_the_plain_consistency_loss(changes, pieces, monkeypatch):
    """The fast path has its own formula for these gradients and puts a token's two passes next to each other."""
    monkeypatch.setattr(OutputLayerLoss, "tokens_at_a_time", pieces)
    model, batch = small_model(**changes).double(), some_batch()
    model.positional_encoding.dropout = TwoMinds()
    twice = batch.repeated(2)
    logits = model(twice.source, shift_target(twice.target)[0])
    labels = shift_target(batch.target)[1]
    loss = consistency_loss(*logits.chunk(2), labels, 0.1, 0, consistency=5.0)
    expected = torch.autograd.grad(loss, list(model.parameters()))
    plain, _ = plain_gradients(model, twice, 0.1)
    assert loss > plain + 0.05  # the passes do disagree
    fast_loss = FastGradients(model, torch.float64).backward(batch, smoothing=0.1, part=1.0, consistency=5.0)
    assert fast_loss.item() == pytest.approx(loss.item(), rel=1e-6)  # float32 sums, as above
    torch.testing.assert_close(gradients_of(model), expected, rtol=1e-4, atol=1e-7)


def test_an_update_with_consistency_is_the_same_on_both_paths():
    """Accumulated batches with two passes each must not be counted twice."""
    preset = replace(PRESETS["tour"], consistency=5.0, eps=1e-3)  # so that the sign of a tiny gradient has no effect
    batches, losses, norms = [some_batch(), some_batch().repeated(3)], [], []
    for fast in (False, True):
        model = small_model()
        model.positional_encoding.dropout = TwoMinds()
        optimizer = build_optimizer(model, preset)
        optimizer.param_groups[0]["lr"] = 0.05
        gradients = FastGradients(model, torch.float32) if fast else None
        for _ in range(2):  # the second update starts from the weights changed by the first
            update = update_weights(model, batches, optimizer, preset, torch.float32, WorkerGroup(), gradients)
            parts, norm = update.read()
            losses.append(parts)
            norms.append(norm)
    assert losses[2:] == [pytest.approx(parts, rel=1e-4) for parts in losses[:2]]  # float32
    assert norms[2:] == pytest.approx(norms[:2], rel=1e-4)
    assert losses[0][1] == pytest.approx(3 * losses[0][0], rel=0.5)  # its batch has three times as many tokens


def relative_error(gradients, expected) -> float:
    difference = sum((one - other).square().sum() for one, other in zip(gradients, expected, strict=True))
    return (difference / sum(gradient.square().sum() for gradient in expected)).sqrt().item()


def error_of_autocast(model: nn.Module, batch, expected) -> float:
    with torch.autocast("cpu", torch.bfloat16):
        _, gradients = plain_gradients(model, batch, 0.1)
    return relative_error(gradients, expected)


def test_bfloat16_changes_gradients_little_more_than_autocast_does():
    model, batch = small_model(), some_batch()
    _, expected = plain_gradients(model, batch, 0.1)
    FastGradients(model, torch.bfloat16).backward(batch, smoothing=0.1, part=1.0)
    # Autocast rounds only the products; the copy also rounds the residual stream and the weights' gradients.
    assert relative_error(gradients_of(model), expected) < 2 * error_of_autocast(model, batch, expected)


def test_the_gradient_of_a_frequent_word_is_not_lost_in_bfloat16():
    """A bfloat16 sum stops growing at 256 times its summand, and nearly every sentence has a period."""
    embedding = nn.Embedding(8, 4, padding_idx=0)
    model = small_model()
    model.source_embedding.embedding = embedding
    copied = FastGradients(model, torch.bfloat16, device_type="cpu").copy.source_embedding.embedding
    assert copied.weight.dtype == torch.bfloat16
    copied(torch.tensor([3] * 1000 + [0] * 9)).sum().backward()
    torch.testing.assert_close(copied.weight.grad[3].float(), torch.full((4,), 1000.0), rtol=0.01, atol=0)
    assert copied.weight.grad[0].count_nonzero() == 0


def test_tied_weights_stay_one_in_the_copy():
    copied = FastGradients(small_model(), torch.bfloat16)
    assert copied.copy.source_embedding.embedding.weight is copied.output.weight
    assert copied.copy.target_embedding.embedding.weight is copied.output.weight


def test_a_gpu_gets_a_kernel_for_each_norm_dropout_and_attention():
    """Many small operations would keep a GPU waiting. Dropout remains torch's own, because it is a single kernel."""
    model = small_model(dropout=0.1)
    set_attention(model, fused_attention)
    kernels = {"cpu": (ByteDropout, unfused_attention), "cuda": (nn.Dropout, fused_attention)}
    for device_type, (dropout, attend) in kernels.items():
        copy = FastGradients(model, torch.float32, device_type=device_type).copy
        kinds = {type(module) for module in copy.modules()}
        assert FusedLayerNorm in kinds
        assert LayerNorm not in kinds
        assert {kind for kind in kinds if issubclass(kind, nn.Dropout)} == {dropout}
        assert {module.attend for module in copy.modules() if hasattr(module, "attend")} == {attend}


def test_an_attention_of_ones_own_computes_the_gradients():
    """If you replace attention or choose the paper's formula, the gradients must come from the function you chose."""
    called = []

    def own(query, key, value, mask=None, dropout=None):
        called.append(query.shape)
        return scaled_dot_product_attention(query, key, value, mask, dropout)

    model = small_model()
    set_attention(model, own)
    FastGradients(model, torch.float32).backward(some_batch(), 0.1, part=1.0)
    assert len(called) == 6


def test_a_model_without_an_output_layer_is_refused():
    model = small_model()
    for other in (nn.Identity(), nn.Linear(model.config.d_model, model.config.target_vocab, bias=False)):
        model.output = other
        with pytest.raises(ValueError, match=r"output of this Transformer is not an nn\.Linear with a bias: train"):
            FastGradients(model, torch.float32)


def test_a_readers_own_norm_is_trained_as_it_is():
    class OwnNorm(LayerNorm):
        def forward(self, x):
            x = x.float()  # a part that leaves bfloat16 must not crash the run
            return super().forward(x)

    model, batch = small_model(), some_batch()
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        for residual in layer.residuals:
            residual.norm = OwnNorm(16)
    fast = FastGradients(model, torch.bfloat16)
    _, expected = plain_gradients(model, batch, 0.1)
    fast.backward(batch, 0.1, part=1.0)
    assert fast.has_foreign_parts
    assert sum(isinstance(module, OwnNorm) for module in fast.copy.modules()) == 10
    assert relative_error(gradients_of(model), expected) < 2 * error_of_autocast(model, batch, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_byte_dropout_drops_the_share_it_is_asked_for_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 1003, dtype=dtype, requires_grad=True)  # not a multiple of eight
    y = ByteDropout(p)(x)
    dropped = (y == 0).double().mean().item()
    assert abs(dropped - round(p * 256) / 256) < 5 * (p * (1 - p) / x.numel()) ** 0.5  # five standard deviations
    kept = y[y != 0]
    assert (kept == kept[0]).all()
    assert kept[0].item() * (1 - round(p * 256) / 256) == pytest.approx(1, rel=torch.finfo(dtype).eps)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # dropped entries get no gradient
    assert torch.equal(ByteDropout(p).eval()(x), x)


def test_byte_dropout_keeps_at_least_one_of_256():
    torch.manual_seed(0)
    y = ByteDropout(0.999)(torch.ones(256 * 1000))
    assert 0 < (y != 0).sum() < 2000
    assert (y[y != 0] == 256).all()


def pairs_to_learn():
    """Return sentences in an invented language and their translations, which are word for word but in reverse order."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(2, 8, (160,), generator=generator).tolist()
    sentences = [torch.randint(4, 22, (length,), generator=generator).tolist() for length in lengths]
    return [[*words, 2] for words in sentences], [
        [1, *(word + 18 for word in reversed(words)), 2] for words in sentences
    ]


@cache
def train_200_steps(
    attention: str = "explicit", fast: str | None = None, compiled: bool = False, n_layers: int = 2
) -> tuple[Transformer, list[float]]:
    """Return a model after 200 updates in float32 without dropout, and the loss of each update.

    `fast` names the device whose kernels compute the gradients; they all run on the CPU.
    """
    # At twice this learning rate, a rounding error of 1e-7 would grow to 1e-3 on any path.
    preset = replace(PRESETS["tour"], peak_rate=0.005, warmup_steps=50, eps=1e-6)
    sources, targets = pairs_to_learn()
    batches = bucketed_batches(sources, targets, 120, 0, torch.Generator().manual_seed(0))
    model = small_model(norm_first=True, n_layers=n_layers)
    if attention == "fused":
        set_attention(model, fused_attention)
    gradients = FastGradients(model, torch.float32, compiled, fast) if fast else None
    optimizer = build_optimizer(model, preset)
    losses = []
    for step in range(1, 201):
        optimizer.param_groups[0]["lr"] = learning_rate(preset, step, 200)
        batch = batches[step % len(batches)]
        losses += update_weights(model, [batch], optimizer, preset, torch.float32, WorkerGroup(), gradients).read()[0]
    return model, losses


NO_COMPILER = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")


@pytest.mark.parametrize(
    ("attention", "fast", "compiled", "n_layers"),
    [
        ("fused", None, False, 2),
        ("explicit", "cpu", False, 2),
        ("fused", "cpu", False, 2),
        ("fused", "cuda", False, 2),
        pytest.param("fused", "cuda", True, 1, marks=NO_COMPILER),  # compiling two layers takes twice as long
    ],
)
def test_the_quick_paths_have_the_papers_loss_curve_and_translate_alike(attention, fast, compiled, n_layers):
    """Recorded runs must train the model that the notebooks explain: after 200 steps, only rounding may differ."""
    model, expected = train_200_steps(n_layers=n_layers)
    quick, losses = train_200_steps(attention, fast, compiled, n_layers)
    assert losses == pytest.approx(expected, abs=1e-4)
    assert expected[-1] < expected[0] / 2  # the model has learned, so comparing translations is meaningful
    sources, _ = pairs_to_learn()
    source = pad_batch(sources[:24], 0)
    limits = torch.full((24,), 12)
    plain = greedy_decode(model, source, 12), beam_search(model, source, 4, 1.0, 12)
    cached = cached_greedy_decode(quick, source, limits), cached_beam_search(quick, source, 4, 1.0, limits)
    assert cached == plain
    assert len({tuple(ids) for ids in plain[0]}) > 12
