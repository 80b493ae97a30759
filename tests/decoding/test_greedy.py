"""Greedy decoding must match its definition."""

import pytest

from transformer_lab.decoding import greedy_decode

PAD, BOS, EOS = 0, 1, 2


def greedy_by_hand(model, word: int, max_length: int) -> list[int]:
    generated = []
    while len(generated) < max_length and EOS not in generated:
        logits = model.logits(word, [BOS, *generated])
        generated.append(logits.index(max(logits)))
    return generated


def test_takes_the_likeliest_token_of_each_prefix(table_model, random_sources):
    """Even bos and pad are fed back if the model predicts them, but they are left out of the result."""
    lengths, predicted = set(), set()
    for seed in range(15):
        model = table_model(seed, eos_bonus=seed % 3 - 1)
        source = random_sources(seed)
        for max_length in (0, 1, 7):
            generated = [greedy_by_hand(model, word, max_length) for word in source[:, 0].tolist()]
            expected = [[token for token in tokens if token not in (BOS, EOS, PAD)] for tokens in generated]
            assert greedy_decode(model, source, max_length) == expected
        lengths |= {(len(tokens), EOS in tokens) for tokens in generated}
        predicted |= {token for tokens in generated for token in tokens}
    # With these models, eos comes early, late, or never.
    assert {(1, True), (2, True), (7, True), (7, False)} <= lengths
    assert {PAD, BOS} <= predicted


def test_a_sentence_is_translated_as_if_it_were_alone(sharpened_model, random_sources):
    """Padding and longer sentences in the batch must not affect a translation."""
    for seed in range(3):
        model = sharpened_model(seed, eos_bonus=2.0)
        source = random_sources(seed)
        alone = [greedy_decode(model, sentence[sentence != PAD][None], 12)[0] for sentence in source]
        assert greedy_decode(model, source, 12) == alone


def test_restores_the_mode_after_an_error(sharpened_model, random_sources):
    """A sentence that gets longer than max_length raises an error. Dropout must be turned on again after it."""
    model = sharpened_model(3, eos_bonus=-100.0)
    with pytest.raises(ValueError, match=r"25.*24"):
        greedy_decode(model, random_sources(3), 30)
    assert model.training
    assert all(module.training for module in model.modules())


def test_exactly_max_length_positions_are_legal(sharpened_model, random_sources):
    """The last step feeds bos and 23 tokens, so all 24 of the model's positions are used."""
    model = sharpened_model(3, eos_bonus=-100.0)
    steps = []
    model.output.register_forward_hook(lambda _, inputs, __: steps.append(inputs[0].size(1)))
    greedy_decode(model, random_sources(3), 24)
    assert steps == list(range(1, 25))
