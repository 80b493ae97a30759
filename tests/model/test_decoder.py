import pytest
import torch
from torch import Tensor, nn

from transformer_lab.model import Decoder, DecoderLayer, LayerNorm, causal_mask, fused_attention, set_attention

BATCH, SOURCE, TARGET, D_MODEL, HEADS, D_FF = 3, 6, 5, 12, 3, 20
SOURCE_REAL = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]).bool()
TARGET_REAL = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
SOURCE_MASK = SOURCE_REAL[:, None, None, :]
TARGET_MASK = TARGET_REAL[:, None, None, :] & causal_mask(TARGET)

norms = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(BATCH, TARGET, D_MODEL, requires_grad=True)
    memory = torch.randn(BATCH, SOURCE, D_MODEL, requires_grad=True)
    return x, memory


@norms
@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "padding and causal"])
def test_agrees_with_torchs_decoder(masked, norm_first, dtype, tolerance, randomise, transplant):
    """Same weights: outputs and both inputs' gradients must match, so that memory gives keys and values, not queries.
    """
    ours = randomise(Decoder(3, D_MODEL, HEADS, D_FF, norm_first=norm_first))
    layer = nn.TransformerDecoderLayer(D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first)
    theirs = nn.TransformerDecoder(layer, 3, nn.LayerNorm(D_MODEL) if norm_first else None)
    transplant(ours, theirs)
    x, memory = inputs()
    if masked:
        output = ours(x, memory, SOURCE_MASK, TARGET_MASK)
        expected = theirs(
            x,
            memory,
            tgt_mask=~causal_mask(TARGET)[0, 0],
            tgt_key_padding_mask=~TARGET_REAL,
            memory_key_padding_mask=~SOURCE_REAL,
        )
    else:
        output, expected = ours(x, memory), theirs(x, memory)
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
    cotangent = torch.randn_like(output)
    for mine, torchs in zip(
        torch.autograd.grad(output, (x, memory), cotangent),
        torch.autograd.grad(expected, (x, memory), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(mine, torchs, atol=tolerance, rtol=0)


@norms
@pytest.mark.parametrize("fused", [False, True], ids=["explicit", "fused"])
def test_no_layer_looks_ahead(fused, norm_first, randomise):
    """Check by gradient after every layer: position i must depend on each of the positions 0 to i, and on no other."""
    decoder = randomise(Decoder(3, D_MODEL, HEADS, D_FF, norm_first=norm_first))
    if fused:
        set_attention(decoder, fused_attention)
    outputs = []
    for layer in decoder.layers:
        layer.register_forward_hook(lambda module, arguments, output: outputs.append(output))
    x, memory = inputs()
    outputs.append(decoder(x, memory, SOURCE_MASK, causal_mask(TARGET)))
    assert len(outputs) == 4
    cotangent = torch.randn(D_MODEL)
    for output in outputs:
        gradients = [
            torch.autograd.grad(output[0, position] @ cotangent, x, retain_graph=True)[0][0].abs().sum(-1)
            for position in range(TARGET)
        ]
        assert torch.equal(torch.stack(gradients) > 0, causal_mask(TARGET)[0, 0])  # exactly zero, not small


@norms
def test_padding_of_the_source_is_not_seen(norm_first, randomise):
    decoder = randomise(Decoder(2, D_MODEL, HEADS, D_FF, norm_first=norm_first))
    x, memory = inputs()
    output = decoder(x, memory, SOURCE_MASK, TARGET_MASK)
    (gradient,) = torch.autograd.grad((output @ torch.randn(D_MODEL)).sum(), memory)
    assert torch.equal(gradient.abs().sum(-1) > 0, SOURCE_REAL)


@norms
def test_a_layer_is_three_residual_connections(norm_first, randomise):
    """Self-attention, attention to the source, feed-forward: the layer must match notebook 07's picture."""
    layer = randomise(DecoderLayer(D_MODEL, HEADS, D_FF, norm_first=norm_first))
    x, memory = inputs()
    first = layer.residuals[0](x, lambda x: layer.self_attention(x, x, x, TARGET_MASK))
    second = layer.residuals[1](first, lambda x: layer.cross_attention(x, memory, memory, SOURCE_MASK))
    torch.testing.assert_close(
        layer(x, memory, SOURCE_MASK, TARGET_MASK), layer.residuals[2](second, layer.feed_forward)
    )


@norms
def test_dropout_and_norm_first_reach_every_part(norm_first):
    """A part that is left out would train without dropout or mix pre-norm with post-norm."""
    decoder = Decoder(2, D_MODEL, HEADS, D_FF, dropout=0.3, norm_first=norm_first)
    dropouts = [module.p for module in decoder.modules() if isinstance(module, nn.Dropout)]
    assert dropouts == [0.3] * 12  # two attentions, the hidden layer, and three residuals in each layer
    assert {residual.norm_first for layer in decoder.layers for residual in layer.residuals} == {norm_first}


def test_layers_share_nothing():
    """`[DecoderLayer(...)] * n_layers` would have the parameters of a single layer."""
    decoder = Decoder(3, D_MODEL, HEADS, D_FF)
    one_layer = len(list(DecoderLayer(D_MODEL, HEADS, D_FF).parameters()))
    assert len(list(decoder.parameters())) == 3 * one_layer


def test_the_final_norm_belongs_to_pre_norm():
    """Post-norm layers already end in a norm; a second one is not the paper's model."""
    assert isinstance(Decoder(1, D_MODEL, HEADS, D_FF, norm_first=True).norm, LayerNorm)
    assert not any(name.startswith("norm") for name, _ in Decoder(1, D_MODEL, HEADS, D_FF).named_parameters())


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match="d_model 12 is not divisible by n_heads 5"):
        Decoder(1, D_MODEL, 5, D_FF)
    with pytest.raises(ValueError, match="d_model 12 is not divisible by n_heads 5"):
        DecoderLayer(D_MODEL, 5, D_FF)
    with pytest.raises(ValueError, match=r"between 0 and 1, but got -0\.1"):
        DecoderLayer(D_MODEL, HEADS, D_FF, dropout=-0.1)
