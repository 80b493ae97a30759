"""The two encoders use different names for the same weights. A single wrong pair of names would change all logits."""

import pytest
import torch
from torch import nn

from transformer_lab.electives.torch_encoder import course_weights, torch_weights
from transformer_lab.model import Encoder, causal_mask

D_MODEL, HEADS, D_FF, LAYERS = 12, 3, 20, 3


def both(norm_first: bool) -> tuple[nn.TransformerEncoder, Encoder]:
    """Return both encoders.

    All of PyTorch's weights are random. If the norms contained only ones and zeros, a mix-up would go unnoticed.
    """
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first)
    last = nn.LayerNorm(D_MODEL) if norm_first else None
    theirs = nn.TransformerEncoder(layer, LAYERS, last, enable_nested_tensor=False)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.4)
    return theirs, Encoder(LAYERS, D_MODEL, HEADS, D_FF, norm_first=norm_first)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_same_weights_give_the_same_results_and_gradients(norm_first):
    theirs, ours = both(norm_first)
    ours.load_state_dict(course_weights(theirs))
    mask = causal_mask(5)
    x = torch.randn(2, 5, D_MODEL)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected, received = theirs(one, mask=~mask[0, 0]), ours(other, mask)
    assert torch.allclose(received, expected, atol=1e-5)
    weights = torch.linspace(-1, 1, expected.numel()).view_as(expected)
    (expected * weights).sum().backward()
    (received * weights).sum().backward()
    assert torch.allclose(one.grad, other.grad, atol=1e-4)
    assert not torch.allclose(ours(x, ~mask), expected, atol=1e-2), "the inverted mask must give a different result"


@pytest.mark.parametrize("norm_first", [True, False])
def test_there_and_back_changes_no_weight_and_shares_none(norm_first):
    theirs, ours = both(norm_first)
    before = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    weights = course_weights(theirs)
    ours.load_state_dict(weights)
    back = torch_weights(ours)
    torch.testing.assert_close(back, before, rtol=0, atol=0)
    for copied in (*weights.values(), *back.values()):
        copied.zero_()
    torch.testing.assert_close(dict(theirs.state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(torch_weights(ours), before, rtol=0, atol=0)
