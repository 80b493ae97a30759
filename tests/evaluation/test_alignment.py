"""Compare the alignment error rate with results computed by hand."""

import pytest
import torch

from transformer_lab.evaluation import alignment_error_rate


@pytest.mark.parametrize(
    ("weights", "gold", "rate"),
    [
        ([[0.05, 0.95, 0.05], [0.95, 0.05, 0.05]], [[0, 1, 0], [1, 0, 0]], 0.0),  # an inverted rate would be 1
        ([[0.95, 0.05, 0.95], [0.05, 0.95, 0.95]], [[0, 1, 0], [1, 0, 0]], 1.0),
        # Three links are proposed, one of them in a row without a gold link; there are four gold links, and two match.
        ([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.4, 0.35, 0.25]], [[1, 1, 0], [0, 1, 1], [0, 0, 0]], 1 - 4 / 7),
        ([[0.6, 0.4], [0.55, 0.45]], [[1, 0], [0, 1]], 0.5),  # the maximum of each column would give 0
        ([[1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0]], 1.0),
    ],
)
def test_by_hand(weights, gold, rate):
    gold = torch.tensor(gold, dtype=torch.bool)
    assert alignment_error_rate(torch.tensor(weights), gold) == pytest.approx(rate, rel=1e-15)


@pytest.mark.parametrize(
    ("weights", "gold"), [((2, 3), (3, 2)), ((0, 3), (0, 3)), ((2, 0), (2, 0)), ((1, 2, 3), (1, 2, 3))]
)
def test_other_shapes_are_named(weights, gold):
    """A transposed gold alignment must raise an error instead of returning a meaningless rate."""
    with pytest.raises(ValueError, match=str(weights).replace("(", r"\(").replace(")", r"\)")):
        alignment_error_rate(torch.rand(weights), torch.zeros(gold, dtype=torch.bool))
