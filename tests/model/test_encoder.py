import pytest
import torch
from torch import nn

from transformer_lab.model import Encoder, EncoderLayer, LayerNorm

BATCH, LENGTH, D_MODEL, HEADS, D_FF = 3, 6, 12, 3, 20
REAL = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]).bool()
MASK = REAL[:, None, None, :]

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


@norms
@pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "padding"])
def test_agrees_with_torchs_encoder(mask, norm_first, dtype, tolerance, randomise, transplant):
    """Same weights: outputs and input gradients show the order of the sublayers and where the norms are."""
    ours = randomise(Encoder(3, D_MODEL, HEADS, D_FF, norm_first=norm_first))
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first)
    final_norm = nn.LayerNorm(D_MODEL) if norm_first else None
    theirs = nn.TransformerEncoder(layer, 3, final_norm, enable_nested_tensor=False)
    transplant(ours, theirs)
    x = torch.randn(BATCH, LENGTH, D_MODEL, requires_grad=True)
    output = ours(x, mask)
    expected = theirs(x, src_key_padding_mask=None if mask is None else ~REAL)
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
    cotangent = torch.randn_like(output)
    torch.testing.assert_close(
        *(torch.autograd.grad(result, x, cotangent)[0] for result in (output, expected)), atol=tolerance, rtol=0
    )


@norms
def test_every_word_sees_every_word_and_no_padding(norm_first, randomise):
    """Check by gradient. A causal encoder would train, only worse; visible padding would tie a result to its batch."""
    encoder = randomise(Encoder(2, D_MODEL, HEADS, D_FF, norm_first=norm_first))
    x = torch.randn(BATCH, LENGTH, D_MODEL, requires_grad=True)
    output = encoder(x, MASK)
    cotangent = torch.randn(D_MODEL)
    for sentence, real in enumerate(REAL):
        for position in range(LENGTH):
            (gradient,) = torch.autograd.grad(output[sentence, position] @ cotangent, x, retain_graph=True)
            seen = gradient.abs().sum(-1) > 0  # (batch, length)
            expected = torch.zeros_like(REAL)
            expected[sentence] = real
            expected[sentence, position] = True  # its own vector passes through the residual connection
            assert torch.equal(seen, expected)


@norms
def test_a_layer_is_two_residual_connections(norm_first, randomise):
    """Attention first, then feed-forward: the layer must match notebook 06's picture."""
    layer = randomise(EncoderLayer(D_MODEL, HEADS, D_FF, norm_first=norm_first))
    x = torch.randn(BATCH, LENGTH, D_MODEL)
    middle = layer.residuals[0](x, lambda x: layer.self_attention(x, x, x, MASK))
    torch.testing.assert_close(layer(x, MASK), layer.residuals[1](middle, layer.feed_forward))


@norms
def test_dropout_and_norm_first_reach_every_part(norm_first):
    """A part that is left out would train without dropout or mix pre-norm with post-norm."""
    encoder = Encoder(2, D_MODEL, HEADS, D_FF, dropout=0.3, norm_first=norm_first)
    dropouts = [module.p for module in encoder.modules() if isinstance(module, nn.Dropout)]
    assert dropouts == [0.3] * 8  # attention weights, hidden layer, and two residuals in each layer
    assert {residual.norm_first for layer in encoder.layers for residual in layer.residuals} == {norm_first}


def test_layers_share_nothing():
    """`[EncoderLayer(...)] * n_layers` would have the parameters of a single layer."""
    encoder = Encoder(3, D_MODEL, HEADS, D_FF)
    one_layer = len(list(EncoderLayer(D_MODEL, HEADS, D_FF).parameters()))
    assert len(list(encoder.parameters())) == 3 * one_layer


def test_the_final_norm_belongs_to_pre_norm():
    """Post-norm layers already end in a norm; a second one is not the paper's model."""
    assert isinstance(Encoder(1, D_MODEL, HEADS, D_FF, norm_first=True).norm, LayerNorm)
    assert not any(name.startswith("norm") for name, _ in Encoder(1, D_MODEL, HEADS, D_FF).named_parameters())


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match="d_model 12 is not divisible by n_heads 5"):
        Encoder(1, D_MODEL, 5, D_FF)
    with pytest.raises(ValueError, match="d_model 12 is not divisible by n_heads 5"):
        EncoderLayer(D_MODEL, 5, D_FF)
    with pytest.raises(ValueError, match=r"between 0 and 1, but got -0\.1"):
        EncoderLayer(D_MODEL, HEADS, D_FF, dropout=-0.1)
