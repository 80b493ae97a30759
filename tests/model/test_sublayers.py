import pytest
import torch
import torch.nn.functional as F

from transformer_lab.model import FeedForward, LayerNorm, ResidualConnection

# LayerNorm


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
@pytest.mark.parametrize("spread", [1.0, 1e-2], ids=["plain", "nearly constant"])
def test_layer_norm_agrees_with_torch(spread, eps, dtype, tolerance):
    """Four features reveal a variance divided by n - 1; a spread near √eps reveals an eps outside the square root."""
    norm = LayerNorm(4, eps)
    with torch.no_grad():
        norm.gain.normal_(1.0, 0.5)
        norm.bias.normal_()
    x = (3 + spread * torch.randn(2, 3, 4)).requires_grad_()
    ours, theirs = norm(x), F.layer_norm(x, (4,), norm.gain, norm.bias, eps)
    # Dividing by the spread magnifies the rounding of x, and once more in the gradient.
    torch.testing.assert_close(ours, theirs, atol=tolerance / spread, rtol=0)
    cotangent = torch.randn_like(ours)
    for mine, torchs in zip(
        torch.autograd.grad(ours, (x, norm.gain, norm.bias), cotangent),
        torch.autograd.grad(theirs, (x, norm.gain, norm.bias), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(mine, torchs, atol=tolerance / spread**2, rtol=0)


def test_layer_norm_by_hand():
    """Mean 4, variance (9 + 1 + 1 + 9) / 4 = 5, biased."""
    norm = LayerNorm(4, eps=0.0)
    x = torch.tensor([1.0, 3.0, 5.0, 7.0])
    torch.testing.assert_close(norm(x), torch.tensor([-3.0, -1.0, 1.0, 3.0]) / 5**0.5)


def test_layer_norm_of_a_constant_is_the_bias():
    """Without eps, this divides by zero. The padding vector before the first position is such a case."""
    norm = LayerNorm(4)
    x = torch.full((2, 4), 7.0, requires_grad=True)
    output = norm(x)
    assert torch.equal(output, torch.zeros(2, 4))
    assert torch.autograd.grad(output[0, 0], x)[0].isfinite().all()


def test_layer_norm_starts_as_gain_one_and_bias_zero():
    parameters = dict(LayerNorm(3).named_parameters())
    assert {name: value.tolist() for name, value in parameters.items()} == {"gain": [1.0] * 3, "bias": [0.0] * 3}


# FeedForward


def test_feed_forward_is_equation_2(dtype, tolerance):
    feed_forward = FeedForward(d_model=4, d_ff=10)
    x = torch.randn(2, 3, 4)
    w_1, w_2 = feed_forward.w_1, feed_forward.w_2
    assert w_1.weight.shape == (10, 4)
    assert w_2.weight.shape == (4, 10)
    expected = torch.clamp(x @ w_1.weight.T + w_1.bias, min=0) @ w_2.weight.T + w_2.bias
    torch.testing.assert_close(feed_forward(x), expected, atol=tolerance, rtol=0)


def test_feed_forward_looks_at_each_position_alone():
    feed_forward = FeedForward(4, 10)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(feed_forward(x)[:, 1], feed_forward(x[:, 1]))


def test_feed_forward_drops_the_hidden_layer():
    """If all of it is dropped, only the last bias is left; dropout on the result would leave zero."""
    feed_forward = FeedForward(4, 10, dropout=1.0)
    torch.testing.assert_close(feed_forward(torch.randn(2, 3, 4)), feed_forward.w_2.bias.expand(2, 3, 4))


# ResidualConnection


def residual_with_random_norm(norm_first: bool, dropout: float = 0.0) -> ResidualConnection:
    residual = ResidualConnection(4, dropout, norm_first)
    with torch.no_grad():
        residual.norm.gain.normal_(1.0, 0.5)
        residual.norm.bias.normal_()
    return residual


def test_post_norm_normalizes_the_sum():
    """The paper's LayerNorm(x + Sublayer(x)), section 3.1, and the default."""
    residual = residual_with_random_norm(norm_first=False)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(residual(x, torch.sin), residual.norm(x + torch.sin(x)))
    assert not ResidualConnection(4).norm_first


def test_pre_norm_normalizes_the_input_of_the_sublayer():
    """The residual connection stays free of any norm: x itself is added, not the norm of x."""
    residual = residual_with_random_norm(norm_first=True)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(residual(x, torch.sin), x + torch.sin(residual.norm(x)))


def test_dropout_acts_on_the_output_of_the_sublayer():
    """If all of it is dropped, x is left; dropout on the sum would lose the residual connection."""
    x = torch.randn(2, 3, 4)
    for norm_first in (False, True):
        residual = residual_with_random_norm(norm_first, dropout=1.0)
        torch.testing.assert_close(residual(x, torch.sin), x if norm_first else residual.norm(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_sublayer_is_called_once(norm_first):
    """Calling it twice would sample dropout twice, record twice, and take twice as long."""
    calls = []
    ResidualConnection(4, norm_first=norm_first)(torch.randn(2, 3, 4), lambda x: calls.append(x) or x)
    assert len(calls) == 1


def test_the_norm_is_the_layer_norm_of_this_course():
    """Weights are loaded under the names `norm.gain` and `norm.bias`."""
    assert {name for name, _ in ResidualConnection(4).named_parameters()} == {"norm.gain", "norm.bias"}


@pytest.mark.parametrize("sublayer", [FeedForward, ResidualConnection])
def test_a_negative_dropout_is_refused(sublayer):
    arguments = {"d_model": 4, "dropout": -0.1} | ({"d_ff": 8} if sublayer is FeedForward else {})
    with pytest.raises(ValueError, match=r"between 0 and 1, but got -0\.1"):
        sublayer(**arguments)
