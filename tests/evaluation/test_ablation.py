"""Without these tests, a head that is turned off could still have an effect or stay off afterward."""

import pytest
import torch

from transformer_lab.decoding import cached_greedy_decode, greedy_decode
from transformer_lab.evaluation import without_heads
from transformer_lab.model import (
    Transformer,
    TransformerConfig,
    fused_attention,
    record_attention,
    scaled_dot_product_attention,
    set_attention,
)

CROSS = "decoder.layers.{}.cross_attention"


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(12, 12, d_model=12, n_heads=3, n_layers=2, d_ff=16, max_length=16)).eval()


SOURCE = torch.tensor([[4, 5, 6, 7, 2], [8, 9, 10, 11, 2]])
TARGET = torch.tensor([[1, 4, 5, 6], [1, 4, 5, 6]])


def test_a_head_is_off_as_if_its_columns_of_w_o_were_zero(model):
    attention = model.decoder.layers[1].cross_attention
    with without_heads(model, [(CROSS.format(1), 1)]):
        without = model(SOURCE, TARGET)
    with torch.no_grad():
        attention.w_o.weight[:, 4:8] = 0.0  # d_k is 4: the columns of head 1 of 3
    torch.testing.assert_close(without, model(SOURCE, TARGET))


@pytest.mark.parametrize("attend", [scaled_dot_product_attention, fused_attention])
def test_a_head_stays_off_while_attention_is_recorded(model, attend):
    """While a head is turned off, heat maps must not show the attention of the complete model."""
    set_attention(model, attend)
    with without_heads(model, [(CROSS.format(0), 1)]):
        without = model(SOURCE, TARGET)
        with record_attention(model) as weights:
            torch.testing.assert_close(model(SOURCE, TARGET), without)
    assert (model(SOURCE, TARGET) - without).abs().max() > 1e-3
    assert weights[CROSS.format(1)].sum(dim=-1).allclose(torch.ones(2, 3, 4))


def test_without_cross_attention_the_source_does_not_matter(model):
    """All the given heads must be off, whether they belong to one module or to several."""
    with without_heads(model, [(CROSS.format(layer), head) for head in range(3) for layer in range(2)]):
        one, other = model(SOURCE, TARGET)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)  # the rows of the batch are equal up to rounding
    one, other = model(SOURCE, TARGET)
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("attend", [scaled_dot_product_attention, fused_attention])
def test_the_model_is_left_as_it_was(model, attend):
    set_attention(model, attend)
    before, function = model(SOURCE, TARGET), model.encoder.layers[0].self_attention.attend

    def stop_in_the_middle():
        with without_heads(model, [("encoder.layers.0.self_attention", 0)]):
            assert (model(SOURCE, TARGET) - before).abs().max() > 1e-4
            raise KeyError

    with pytest.raises(KeyError):
        stop_in_the_middle()
    assert model.encoder.layers[0].self_attention.attend is function
    assert torch.equal(model(SOURCE, TARGET), before)


def test_both_decoders_go_without_the_head(model):
    """The cached decoder reads the model's weights directly, so it could ignore that a head is turned off."""
    every = [(CROSS.format(layer), head) for head in range(3) for layer in range(2)]
    with without_heads(model, [*every, ("decoder.layers.0.self_attention", 2)]):
        assert cached_greedy_decode(model, SOURCE, 8) == greedy_decode(model, SOURCE, 8)


@pytest.mark.parametrize("head", [("decoder.layers.2.cross_attention", 0), (CROSS.format(0), 3), (CROSS.format(0), -1)])
def test_a_head_that_is_not_there_is_named(model, head):
    with pytest.raises(ValueError, match="there is no"), without_heads(model, [head]):
        model(SOURCE, TARGET)
