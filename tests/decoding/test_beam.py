"""Beam search must match its definition and find the best of all sentences if the beam is large enough."""

import itertools

import pytest
import torch

from transformer_lab.decoding import beam_search, cached_beam_search, cached_greedy_decode, greedy_decode
from transformer_lab.decoding.beam import length_penalty

PAD, BOS, EOS = 0, 1, 2


def cleaned(tokens: tuple[int, ...]) -> list[int]:
    return [token for token in tokens if token not in (PAD, BOS, EOS)]


def log_probabilities(model, word: int, tokens: tuple[int, ...]) -> list[float]:
    return torch.tensor(model.logits(word, [BOS, *tokens])).double().log_softmax(-1).tolist()


def beam_by_definition(model, word: int, beam_size, alpha, max_length) -> list[int]:
    """Follow the definition literally by listing every extension of every unfinished hypothesis."""
    beam = {(): 0.0}
    for _ in range(max_length):
        if all(tokens[-1:] == (EOS,) for tokens in beam):
            break
        candidates = {}
        for tokens, score in beam.items():
            if tokens[-1:] == (EOS,):
                candidates[tokens] = score
            else:
                gains = enumerate(log_probabilities(model, word, tokens))
                candidates |= {(*tokens, token): score + gain for token, gain in gains}
        beam = dict(sorted(candidates.items(), key=lambda item: -item[1])[:beam_size])
    return cleaned(max(beam, key=lambda tokens: beam[tokens] / ((5 + len(tokens)) / 6) ** alpha))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("beam_size", "alpha", "max_length"), [(2, 0.6, 5), (3, 0.0, 4), (4, 1.5, 6), (3, 1.0, 1)])
def test_follows_the_definition(seed, beam_size, alpha, max_length, table_model, random_sources):
    model = table_model(seed, target_vocab=4 + seed % 3, eos_bonus=seed % 4 - 1)
    source = random_sources(seed, batch=2)
    expected = [beam_by_definition(model, word, beam_size, alpha, max_length) for word in source[:, 0].tolist()]
    assert beam_search(model, source, beam_size, alpha, max_length) == expected


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_huge_beam_finds_the_best_of_all_sentences(alpha, table_model):
    """If there is room for every hypothesis, nothing is pruned, so the answer must be the best sentence of all."""
    vocabulary, max_length = range(4), 4
    going_on = [token for token in vocabulary if token != EOS]
    everything = [
        (*start, last)
        for length in range(max_length)
        for start in itertools.product(going_on, repeat=length)
        for last in (vocabulary if length == max_length - 1 else [EOS])
    ]
    for seed in range(3):
        model = table_model(seed, target_vocab=4)

        def normalized_score(tokens: tuple[int, ...], model=model) -> float:
            gains = (log_probabilities(model, 5, tokens[:end])[token] for end, token in enumerate(tokens))
            return sum(gains) / length_penalty(len(tokens), alpha)

        best = max(everything, key=normalized_score)
        assert beam_search(model, torch.tensor([[5, 6, EOS]]), 1000, alpha, max_length) == [cleaned(best)]


def test_a_beam_of_one_is_greedy(table_model, sharpened_model, random_sources):
    for seed in range(3):
        source = random_sources(seed)
        for model in (table_model(seed), sharpened_model(seed)):
            greedy = greedy_decode(model, source, 8)
            assert [beam_search(model, source, 1, alpha, 8) for alpha in (0.0, 1.0)] == [greedy, greedy]


def test_near_ties_are_told_apart_in_double_precision(table_model):
    """Tiny float32 logits that differ only in the last digit have the same log-probability in single precision.

    The best token comes before, between, or after the runners-up, so no tie-breaking rule would always find it.
    """

    class TinyLogits(table_model):
        def logits(self, word, prefix):
            best = torch.tensor(1e-3)
            logits = torch.full((6,), -1e-3)
            logits[3:] = torch.nextafter(best, torch.tensor(0.0))
            logits[3 + len(prefix) % 3] = best
            logits[EOS] = 1.0 if len(prefix) > 3 else -5.0
            assert len(set(logits.log_softmax(-1)[3:].tolist())) == 1  # they are equal in single precision
            return logits.tolist()

    model = TinyLogits(0, target_vocab=6)
    source = torch.tensor([[5, EOS]])
    assert greedy_decode(model, source, 6) == [[4, 5, 3]]
    for beam_size in (1, 2, 3):
        assert beam_search(model, source, beam_size, 0.6, 6) == [[4, 5, 3]]


def test_length_penalty_of_wu_et_al():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(0, 1.0) == pytest.approx(5 / 6)
    assert length_penalty(30, 0.0) == 1.0


def test_alpha_favors_long_translations(table_model, random_sources):
    """An inverted penalty would make translations shorter."""
    total = dict.fromkeys((0.0, 1.0, 3.0), 0)
    for seed in range(8):
        model, source = table_model(seed, eos_bonus=1.0), random_sources(seed)
        for alpha in total:
            total[alpha] += sum(map(len, beam_search(model, source, 4, alpha, 8)))
    assert total[0.0] < total[1.0] < total[3.0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("decode", "beam"),
    [(greedy_decode, ()), (beam_search, (3, 0.6)), (cached_greedy_decode, ()), (cached_beam_search, (3, 0.6))],
)
def test_decodes_in_evaluation_mode_without_gradients(decode, beam, training, table_model, random_sources):
    """Decoding turns off dropout and gradients, and afterward restores the model's mode."""
    model = table_model(1, training=training)
    decode(model, random_sources(1), *beam, 4)
    assert not model.with_gradients
    assert not model.saw_padding
    assert model.training is training
    assert torch.is_grad_enabled()


def test_zero_length_and_empty_batch(table_model, random_sources):
    model = table_model(0)
    assert beam_search(model, random_sources(0, batch=2), 3, 0.6, 0) == [[], []]
    assert beam_search(model, random_sources(0)[:0], 3, 0.6, 5) == []
