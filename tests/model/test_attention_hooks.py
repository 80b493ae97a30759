import copy
import weakref

import pytest
import torch
from torch import Tensor, nn

from transformer_lab.model import (
    MultiHeadAttention,
    Transformer,
    TransformerConfig,
    attending_modules,
    fused_attention,
    record_attention,
    scaled_dot_product_attention,
    set_attention,
)

HEADS, KEY, PAD = 3, 5, 0
SOURCE = torch.tensor([[4, 5, 6, 2], [7, 2, PAD, PAD]])
TARGET = torch.tensor([[1, 8, 9], [1, 3, PAD]])
ATTENTIONS = {
    "encoder.layers.0.self_attention",
    "encoder.layers.1.self_attention",
    "decoder.layers.0.self_attention",
    "decoder.layers.0.cross_attention",
    "decoder.layers.1.self_attention",
    "decoder.layers.1.cross_attention",
}


def small_model(**changes) -> Transformer:
    sizes = {"d_model": 12, "n_heads": HEADS, "n_layers": 2, "d_ff": 16, "dropout": 0.0}
    return Transformer(TransformerConfig(11, 13, **(sizes | changes)))


def test_fused_attention_drops_weights_while_training_only():
    """Fused attention must apply dropout in training but not afterward. Otherwise, translations would be random."""
    query, key = torch.randn(1, 2, 64, 8), torch.randn(1, 2, 64, 8)
    ones = torch.ones(1, 2, 64, 8)  # the output is then the sum of the kept weights, divided by 1 - p
    dropout = nn.Dropout(0.5)
    sums = fused_attention(query, key, ones, None, dropout)[0]
    assert sums.std() > 0.1
    assert 0.9 < sums.mean() < 1.1  # 128 rows, each with a standard deviation below 0.4: four standard errors
    dropout.eval()
    torch.testing.assert_close(fused_attention(query, key, ones, None, dropout)[0], ones)
    torch.testing.assert_close(fused_attention(query, key, ones)[0], ones)


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_the_whole_model_is_the_same_with_fused_attention(norm_first, dtype, tolerance, randomize, with_gradients):
    """Logits and the gradient of every parameter must match. Otherwise, the fused model would train differently."""
    model = randomize(small_model(norm_first=norm_first))
    weights = list(model.parameters())
    explicit, *expected = with_gradients(model(SOURCE, TARGET), weights)
    set_attention(model, fused_attention)
    fused, *gradients = with_gradients(model(SOURCE, TARGET), weights)
    torch.testing.assert_close(fused, explicit, atol=tolerance, rtol=0)
    torch.testing.assert_close(gradients, expected, atol=2 * tolerance, rtol=1e-5)  # sums over all positions are larger


def test_set_attention_reaches_every_attention():
    """If one attention module were missed, a fused run would be slow or a recorded run would be incomplete."""
    model = small_model()
    assert set(attending_modules(model)) == ATTENTIONS
    assert all(module.attend is scaled_dot_product_attention for module in attending_modules(model).values())
    set_attention(model, fused_attention)
    assert all(module.attend is fused_attention for module in attending_modules(model).values())


def test_a_model_without_the_hook_is_refused():
    with pytest.raises(ValueError, match="no module of this Linear has an `attend`"):
        set_attention(nn.Linear(2, 2), fused_attention)
    with pytest.raises(ValueError, match="no module of this Linear has an `attend`"), record_attention(nn.Linear(2, 2)):
        pass


def test_a_copy_of_a_model_has_an_attention_of_its_own():
    """Averaging and compiling both copy a model. A copy must keep its kernel but not share it with the original."""
    model = small_model()
    set_attention(model, fused_attention)
    twin = copy.deepcopy(model)
    set_attention(model, scaled_dot_product_attention)
    assert all(module.attend is fused_attention for module in attending_modules(twin).values())
    with record_attention(twin) as weights:
        model(SOURCE, TARGET)
    assert weights == {}


def test_recorded_weights_are_those_of_their_module():
    """If names pointed to the wrong layer, pictures would look convincing but show something else."""
    model = small_model().eval()
    expected = model(SOURCE, TARGET)
    inputs = {}
    for name, module in attending_modules(model).items():
        module.register_forward_pre_hook(lambda _, arguments, name=name: inputs.update({name: arguments}))
    with record_attention(model) as weights:
        output = model(SOURCE, TARGET)
    assert torch.equal(output, expected)  # recording does not change the output
    assert weights.keys() == inputs.keys() == ATTENTIONS
    assert not any(weight.requires_grad for weight in weights.values())
    for name, (query, key, _, mask) in inputs.items():
        module = model.get_submodule(name)
        q = module.w_q(query).unflatten(-1, (HEADS, -1))  # (batch, query, heads, d_k)
        k = module.w_k(key).unflatten(-1, (HEADS, -1))  # (batch, key, heads, d_k)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.size(-1) ** 0.5
        torch.testing.assert_close(weights[name], scores.masked_fill(~mask, -torch.inf).softmax(-1))


def test_the_latest_call_is_kept():
    model = small_model().eval()
    with record_attention(model) as weights:
        model(SOURCE, TARGET)
        model(SOURCE[1:, :2], TARGET[1:, :2])
    assert weights["decoder.layers.1.cross_attention"].shape == (1, HEADS, 2, 2)


def test_fused_attention_comes_back_even_after_an_exception():
    """A heat map that fails halfway must not leave behind a slow model that accumulates weights."""
    model = small_model()
    set_attention(model, fused_attention)
    with pytest.raises(ValueError, match="max_length is 512"), record_attention(model) as weights:
        model(SOURCE, torch.ones(2, 513, dtype=torch.long))
    assert len(weights) == 2  # the encoder has already run when the decoder fails
    assert all(module.attend is fused_attention for module in attending_modules(model).values())


def test_nested_recordings():
    """At the end, no attention module may still have a recorder. A recorder would keep storing weights."""
    model = small_model()
    with record_attention(model) as outer:
        with record_attention(model) as inner:
            model(SOURCE, TARGET)
        assert set(inner) == ATTENTIONS
        inner.clear()
        model(SOURCE, TARGET)
        assert inner == {}
    assert set(outer) == ATTENTIONS
    assert all(module.attend is scaled_dot_product_attention for module in attending_modules(model).values())


def test_no_module_keeps_weights():
    """The weights of a long batch are the largest tensors of all. Only the returned dictionary may hold them."""
    model = small_model()
    with record_attention(model) as weights:
        model(SOURCE, TARGET)
        held = [weakref.ref(weight) for weight in weights.values()]
    assert len(held) == len(ATTENTIONS)
    weights.clear()
    assert all(reference() is None for reference in held)
    assert not any(isinstance(value, Tensor) for module in model.modules() for value in vars(module).values())


def test_an_attend_that_is_a_module_is_recorded_and_comes_back():
    """A kernel with its own weights, such as relative positions, must survive a heat map."""

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1))

        def forward(self, query, key, value, mask=None, dropout=None):
            return scaled_dot_product_attention(query, key, value, mask, dropout)

    attention = MultiHeadAttention(8, 2)
    del attention.attend
    attention.attend = kernel = Kernel()
    names = [name for name, _ in attention.named_parameters()]
    x = torch.randn(1, 3, 8)
    before = attention(x, x, x)
    with record_attention(attention) as recorded:
        torch.testing.assert_close(attention(x, x, x), before)
    assert recorded[""].shape == (1, 2, 3, 3)
    assert attention.attend is kernel
    assert [name for name, _ in attention.named_parameters()] == names


def test_a_class_that_defines_attend_as_a_method_gets_its_method_back():
    """A student may write `attend` as a method of the class instead of setting it in the constructor."""

    class Attention(MultiHeadAttention):
        def __init__(self) -> None:
            super().__init__(12, HEADS)
            del self.attend

        def attend(self, query, key, value, mask, dropout):
            return fused_attention(query, key, value, mask, dropout)

    attention = Attention()
    x = torch.randn(2, KEY, 12)
    with record_attention(attention) as weights:
        attention(x, x, x)
    assert weights[""].shape == (2, HEADS, KEY, KEY)  # the model itself is the attention, so its name is empty
    assert "attend" not in vars(attention)
    attention(x, x, x)
