"""Aspects that `test_transformer.py` does not cover: extreme inputs, initial values, and where dropout acts."""

import pytest
import torch
import torch.nn.functional as F

from transformer_lab.model import FeedForward, LayerNorm, ResidualConnection


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
@pytest.mark.parametrize("spread", [1.0, 1e-2], ids=["plain", "nearly constant"])
def test_layer_norm_agrees_with_torch(spread, eps, dtype, tolerance, with_gradients):
    """With four features, dividing by n - 1 gives a visible error. With a spread near √eps, so does a misplaced eps."""
    norm = LayerNorm(4, eps)
    with torch.no_grad():
        norm.gain.normal_(1.0, 0.5)
        norm.bias.normal_()
    x = (3 + spread * torch.randn(2, 3, 4)).requires_grad_()
    ours, theirs = norm(x), F.layer_norm(x, (4,), norm.gain, norm.bias, eps)
    # Dividing by the spread magnifies the rounding error in x, and does so again in the gradient.
    torch.testing.assert_close(ours, theirs, atol=tolerance / spread, rtol=0)
    inputs = (x, norm.gain, norm.bias)
    torch.testing.assert_close(
        with_gradients(ours, inputs), with_gradients(theirs, inputs), atol=tolerance / spread**2, rtol=0
    )


def test_layer_norm_of_a_constant_is_the_bias():
    """Without eps, a constant vector would cause a division by zero. Padding vectors without positions are constant."""
    x = torch.full((2, 4), 7.0, requires_grad=True)
    output = LayerNorm(4)(x)
    assert torch.equal(output, torch.zeros(2, 4))
    assert torch.autograd.grad(output[0, 0], x)[0].isfinite().all()


def test_layer_norm_starts_as_gain_one_and_bias_zero():
    parameters = {name: value.tolist() for name, value in LayerNorm(3).named_parameters()}
    assert parameters == {"gain": [1.0] * 3, "bias": [0.0] * 3}


def test_feed_forward_drops_the_hidden_layer():
    """If the whole hidden layer is dropped, only the last bias is left. Dropout on the result would leave zero."""
    feed_forward = FeedForward(4, 10, dropout=1.0)
    torch.testing.assert_close(feed_forward(torch.randn(2, 3, 4)), feed_forward.w_2.bias.expand(2, 3, 4))


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_residual_connection_drops_the_output_of_its_sublayer(norm_first, randomize):
    """If the whole output is dropped, only x is left. Dropout on the sum would drop the residual connection, too."""
    x = torch.randn(2, 3, 4)
    residual = randomize(ResidualConnection(4, 1.0, norm_first))
    torch.testing.assert_close(residual(x, torch.sin), x if norm_first else residual.norm(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_sublayer_is_called_once(norm_first):
    """Calling the sublayer twice would sample dropout twice, record weights twice, and take twice as long."""
    calls = []
    ResidualConnection(4, norm_first=norm_first)(torch.randn(2, 3, 4), lambda x: calls.append(x) or x)
    assert len(calls) == 1


def test_post_norm_is_the_default():
    """The default is the paper's LayerNorm(x + Sublayer(x)) from section 3.1."""
    residual, x = ResidualConnection(4), torch.randn(2, 3, 4)
    torch.testing.assert_close(residual(x, torch.sin), residual.norm(x + torch.sin(x)))
