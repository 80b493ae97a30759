"""Greedy decoding must match its definition."""

import pytest
import torch

from transformer_lab.decoding import greedy_decode

PAD, BOS, EOS = 0, 1, 2


def greedy_by_hand(model, sentence: list[int], max_length: int) -> list[int]:
    prefix = [BOS]
    while len(prefix) <= max_length:
        token = int(model.logits(sentence, prefix).argmax())
        if token == EOS:
            break
        prefix.append(token)
    return [token for token in prefix if token not in (BOS, PAD)]


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("max_length", [1, 7])
def test_takes_the_likeliest_token_of_each_prefix(seed, max_length, table_model, random_sources):
    """This includes bos and pad, which the model may predict mid-sentence: fed back, but left out of the result."""
    model = table_model(seed, eos_bonus=seed % 3 - 1)
    source = random_sources(seed)
    expected = [greedy_by_hand(model, sentence[sentence != PAD].tolist(), max_length) for sentence in source]
    assert greedy_decode(model, source, max_length) == expected


def test_table_models_cover_what_matters(table_model, random_sources):
    """The test above proves nothing about early, late, or missing eos, pad, or bos unless they occur."""
    lengths, specials = set(), set()
    for seed in range(15):
        model = table_model(seed, eos_bonus=seed % 3 - 1)
        for sentence in random_sources(seed):
            prefix = [BOS]
            while len(prefix) <= 7 and prefix[-1] != EOS:
                prefix.append(int(model.logits(sentence[sentence != PAD].tolist(), prefix).argmax()))
            lengths.add((len(prefix) - 1, prefix[-1] == EOS))
            specials |= set(prefix[1:])
    assert {(1, True), (2, True), (7, True), (7, False)} <= lengths
    assert {PAD, BOS} <= specials


def test_counts_eos_but_not_bos(sharpened_model, random_sources):
    """With room for two tokens, a word and eos still form a complete sentence; max_length 0 generates nothing."""
    model = sharpened_model(0)
    source = random_sources(0)
    assert greedy_decode(model, source, 0) == [[]] * len(source)
    assert all(len(tokens) <= 3 for tokens in greedy_decode(model, source, 3))


def test_a_sentence_is_translated_as_if_it_were_alone(sharpened_model, random_sources):
    """Padding, or a neighbor that goes on for longer, must not leak into a translation."""
    for seed in range(6):
        model = sharpened_model(seed, eos_bonus=2.0)
        source = random_sources(seed)
        alone = [greedy_decode(model, sentence[sentence != PAD][None], 12)[0] for sentence in source]
        assert greedy_decode(model, source, 12) == alone


@pytest.mark.parametrize("training", [True, False])
def test_runs_in_evaluation_mode_without_gradients_and_restores(training, table_model, random_sources):
    """Otherwise dropout would randomize translations, a graph fill the memory, or training go on without dropout."""
    model = table_model(1, training=training)
    greedy_decode(model, random_sources(1), 4)
    assert set(model.asked) == {(False, False)}
    assert model.training is training
    assert torch.is_grad_enabled()


def test_restores_the_mode_after_an_error(sharpened_model, random_sources):
    """A sentence beyond max_length must end the decoding, but must not turn off dropout in training."""
    model = sharpened_model(3, eos_bonus=-100.0)
    with pytest.raises(ValueError, match=r"25.*24"):
        greedy_decode(model, random_sources(3), 30)
    assert model.training
    assert all(module.training for module in model.modules())


def test_exactly_max_length_positions_are_legal(sharpened_model, random_sources):
    """The last step feeds bos and 23 tokens, which are all of the model's 24 positions."""
    model = sharpened_model(3, eos_bonus=-100.0)
    steps = []
    model.output.register_forward_hook(lambda _, inputs, __: steps.append(inputs[0].size(1)))
    greedy_decode(model, random_sources(3), 24)
    assert steps == list(range(1, 25))
