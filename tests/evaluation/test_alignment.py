"""The alignment error rate by hand."""

import pytest
import torch

from transformer_lab.evaluation import alignment_error_rate


def test_perfect_and_disjoint():
    """0 is best. An inverted rate would rank the worst head first."""
    gold = torch.tensor([[0, 1, 0], [1, 0, 0]], dtype=torch.bool)
    weights = gold * 0.9 + 0.05
    assert alignment_error_rate(weights, gold) == 0.0
    assert alignment_error_rate(1 - weights, gold) == 1.0


def test_a_row_proposes_its_greatest_weight_and_nothing_else():
    """3 links proposed, 4 in gold, 2 shared: 1 - 2 * 2 / 7. A row without a gold link still proposes one."""
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.4, 0.35, 0.25]])
    gold = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=torch.bool)
    assert alignment_error_rate(weights, gold) == pytest.approx(1 - 4 / 7, rel=1e-15)


def test_rows_are_queries():
    """Taking the maximum of each column instead would give 0 here."""
    weights = torch.tensor([[0.6, 0.4], [0.55, 0.45]])
    gold = torch.tensor([[1, 0], [0, 1]], dtype=torch.bool)
    assert alignment_error_rate(weights, gold) == 0.5


def test_no_gold_link_is_all_wrong():
    assert alignment_error_rate(torch.eye(3), torch.zeros(3, 3, dtype=torch.bool)) == 1.0


@pytest.mark.parametrize(
    ("weights", "gold"), [((2, 3), (3, 2)), ((0, 3), (0, 3)), ((2, 0), (2, 0)), ((1, 2, 3), (1, 2, 3))]
)
def test_other_shapes_are_named(weights, gold):
    """Otherwise, a transposed gold alignment with the same number of cells would give some number."""
    with pytest.raises(ValueError, match=str(weights).replace("(", r"\(").replace(")", r"\)")):
        alignment_error_rate(torch.rand(weights), torch.zeros(gold, dtype=torch.bool))
