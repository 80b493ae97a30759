"""Compare attention rollout with results computed by hand."""

import torch

from transformer_lab.evaluation import attention_rollout

LOWER = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
UPPER = torch.tensor([[0.0, 1.0], [0.0, 1.0]])


def test_two_layers_by_hand():
    """With residuals, the lower layer is [[.75 .25] [.5 .5]]. The upper layer is [[.5 .5] [0 1]] and goes on the left.

    The other order would give [[.375 .625] [.25 .75]].
    """
    rollout = attention_rollout(torch.stack([LOWER, UPPER])[:, None])  # (layers 2, heads 1, 2, 2)
    assert torch.equal(rollout, torch.tensor([[0.625, 0.375], [0.5, 0.5]]))


def test_heads_are_averaged():
    """Two heads are combined by their mean, not their maximum: [[.25 .75] [.5 .5]] plus the residual, halved."""
    rollout = attention_rollout(torch.stack([LOWER, UPPER])[None])  # (layers 1, heads 2, 2, 2)
    assert torch.equal(rollout, torch.tensor([[0.625, 0.375], [0.25, 0.75]]))


def test_rows_add_up_to_one_where_a_query_may_attend_to_nothing():
    """A token that attends to nothing keeps only its residual. Halving it would lose half of it in every layer."""
    weights = torch.tensor([[[[0.0, 0.0], [0.5, 0.5]]]])
    assert torch.equal(attention_rollout(weights), torch.tensor([[1.0, 0.0], [0.25, 0.75]]))


def test_a_decoder_still_does_not_look_ahead():
    torch.manual_seed(0)
    hidden = torch.ones(6, 6).triu(1).bool()
    weights = torch.randn(4, 3, 6, 6, dtype=torch.float64).masked_fill(hidden, float("-inf")).softmax(-1)
    rollout = attention_rollout(weights)
    assert (rollout[hidden] == 0).all()
    torch.testing.assert_close(rollout.sum(-1), torch.ones(6, dtype=torch.float64))
