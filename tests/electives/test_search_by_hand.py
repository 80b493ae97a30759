"""Without these tests, the notebook's example could be wrong, or its task could be too easy to need a search."""

import pytest

from transformer_lab.electives.search_by_hand import pair_data, random_search, train_spotter


def test_the_example_of_the_notebook():
    """After three trials have finished, a fourth trial falls below their median after epoch 3."""
    curves = [[10, 22, 30, 33], [4, 12, 25, 31], [8, 9, 11, 12], [6, 15, 20, 40]]
    numbers = iter(range(4))
    results = random_search(lambda: {"trial": next(numbers)}, lambda one: curves[one["trial"]], 4, startup=3)
    assert [(one["trial"], curve, pruned) for one, curve, pruned in results] == [
        (0, curves[0], False),
        (1, curves[1], False),
        (2, curves[2], False),
        (3, [6, 15, 20], True),
    ]


def test_a_single_token_does_not_give_the_label_away():
    """The notebook says that the model has to combine two tokens. Neither token may give the label away on its own."""
    tokens, labels = pair_data(20_000, seed=3)
    assert labels.float().mean().item() == pytest.approx(0.5, abs=0.02)
    for token in (3, 7):
        occurs = (tokens == token).any(dim=1)
        assert 0.4 < labels[occurs].float().mean().item() < 0.6  # the other token occurs in 46% of the sequences


def test_the_learning_rate_decides_and_a_run_is_repeatable():
    """Accuracy must depend on the learning rate, and readers must get the same accuracies as the course."""
    choice = {"rate": 0.005, "width": 32, "n_heads": 4}
    good, again, bad = (list(train_spotter(one)) for one in (choice, choice, choice | {"rate": 0.0002}))
    assert good == again
    assert len(good) == 6
    assert good[-1] > 0.95
    assert bad[-1] < 0.7
