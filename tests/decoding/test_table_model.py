"""The table model must follow its table of probabilities, because examples and checks are derived from the table."""

import pytest
import torch

from transformer_lab.decoding import beam_search, greedy_decode
from transformer_lab.decoding.table_model import TableModel

TABLE = {9: {"": {3: 0.6, 4: 0.4}, "3": {5: 0.55, 4: 0.45}, "4": {5: 0.9, 2: 0.1}}, 8: {"": {6: 1.0}}}


def test_its_probabilities_are_those_of_the_table():
    model = TableModel(TABLE)
    logits = model.decode(torch.tensor([[1, 3, 5]]), *model.encode(torch.tensor([[9, 2]])))
    probabilities = logits.softmax(-1)[0]  # (position, vocab)
    assert probabilities[0, 3].item() == pytest.approx(0.6, abs=1e-6)
    assert probabilities[1, 5].item() == pytest.approx(0.55, abs=1e-6)
    assert probabilities[2, 2].item() == pytest.approx(1.0, abs=1e-6)  # eos follows everything not in the table


def test_each_source_has_its_own_sentences():
    assert greedy_decode(TableModel(TABLE), torch.tensor([[9, 2], [8, 2]]), 5) == [[3, 5], [6]]
    assert beam_search(TableModel(TABLE), torch.tensor([[9, 2]]), 2, 0.0, 5) == [[4, 5]]


def test_it_notes_how_it_was_used():
    """The table model records its mode, gradients, and encoding. Checks rely on these records."""
    model = TableModel(TABLE, training=True)
    greedy_decode(model, torch.tensor([[9, 2], [8, 2]]), 5)
    assert model.training
    assert not model.with_gradients
    assert model.sentences_encoded == 2
    model.encode(torch.tensor([[9, 2]]))
    assert model.with_gradients


def test_it_is_another_in_training_mode_and_without_bos():
    """A decoder that does not switch to evaluation mode, or does not start with bos, must produce different words."""
    model = TableModel(TABLE, training=True)
    memory, mask = model.encode(torch.tensor([[9, 2]]))
    assert model.decode(torch.tensor([[1]]), memory, mask)[0, -1].argmax() not in (3, 4)
    assert model.eval().decode(torch.tensor([[0]]), memory, mask)[0, -1].argmax() == 2
