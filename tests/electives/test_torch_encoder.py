"""Two encoders' names, mapped onto each other: a wrong pair would give other logits, and nobody would know why."""

import pytest
import torch
from torch import nn

from transformer_lab.electives.torch_encoder import course_weights, torch_weights
from transformer_lab.model import Encoder, causal_mask

D_MODEL, HEADS, D_FF, LAYERS = 12, 3, 20, 3


def both(norm_first: bool) -> tuple[nn.TransformerEncoder, Encoder]:
    """PyTorch's with random weights, those of the norms too: while they are 1 and 0, mixed-up norms look right."""
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
    assert not torch.allclose(ours(x, ~mask), expected, atol=1e-2), "the other convention gives something else"


@pytest.mark.parametrize("norm_first", [True, False])
def test_there_and_back_changes_no_weight(norm_first):
    theirs, ours = both(norm_first)
    ours.load_state_dict(course_weights(theirs))
    before = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    back = torch_weights(ours)
    assert back.keys() == before.keys()
    assert all(torch.equal(back[name], weight) for name, weight in before.items())


def test_the_copies_are_copies():
    theirs, ours = both(True)
    for weight in course_weights(theirs).values():
        weight.zero_()
    assert all(weight.any() for weight in theirs.state_dict().values())
    for weight in torch_weights(ours).values():
        weight.zero_()
    assert ours.layers[0].feed_forward.w_1.weight.any()
