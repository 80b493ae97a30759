"""Without these tests, a model could see the answers, or two scores could measure different things."""

import math

import pytest
import torch
from torch import nn

from transformer_lab.electives.language_model import (
    LanguageModel,
    causal_language_model_loss,
    sample,
    score_language_model,
    top_k_filter,
    top_p_filter,
    train_language_model,
)
from transformer_lab.electives.table_language_model import TableLanguageModel
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.model import causal_mask

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 2, "d_ff": 32, "max_length": 8}
LINES = "the cat sat on the mat\nthe dog sat on the log\n" * 20


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(30, **SMALL)


def test_layers_start_with_different_weights(model):
    """nn.TransformerEncoder copies a layer and its weights, but identical layers would first learn the same thing."""
    first, second = (layer.linear1.weight for layer in model.encoder.layers)
    assert not torch.equal(first, second)


def test_with_the_mask_no_logit_depends_on_a_later_token(model):
    tokens = torch.arange(8)[None]
    hidden = ~causal_mask(8)[0, 0]
    changed = tokens.clone()
    changed[0, 5:] = 20
    with torch.no_grad():
        before, after = model(tokens, hidden), model(changed, hidden)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("norm_first", [True, False])
def test_evaluation_mode_has_the_same_logits(norm_first):
    """When a model generates text without gradients, PyTorch runs different code than it does in training."""
    torch.manual_seed(0)
    model = LanguageModel(30, **SMALL, norm_first=norm_first)
    tokens, hidden = torch.randint(30, (3, 8)), ~causal_mask(8)[0, 0]
    trained = model(tokens, hidden)
    model.eval()
    with torch.no_grad():
        assert torch.allclose(trained, model(tokens, hidden), atol=1e-5)


def test_wrong_lengths_are_refused(model):
    tokens = torch.arange(9)
    with pytest.raises(ValueError, match=r"sequence of 9 tokens, but max_length is 8"):
        model(tokens[None])
    with pytest.raises(ValueError, match="too few"):
        next(train_language_model(model, tokens[:8], 1))
    with pytest.raises(ValueError, match="empty"):
        score_language_model(model, TextTokenizer(["a", "\n"]), "")


def test_training_learns_a_repeating_text_and_the_same_seed_repeats_it():
    tokenizer = TextTokenizer.train(LINES)
    tokens = tokenizer.encode(LINES)

    def losses():
        torch.manual_seed(0)
        model = LanguageModel(len(tokenizer), **SMALL)
        return [record["loss"] for record in train_language_model(model, tokens, 40, batch_size=16, peak_rate=1e-2)]

    once = losses()
    assert len(once) == 40
    assert once[-1] < once[0] / 2
    assert once == losses()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 25])
def test_a_score_counts_every_character_of_the_text(length):
    """If partial windows were dropped, two models would be scored on different parts of the text."""
    tokenizer = TextTokenizer(["a", "b", "\n"])
    model = TableLanguageModel(torch.tensor([[0.2, 0.3, 0.5]] * 3).log())
    text = ("ab\n" * 9)[:length]
    score = score_language_model(model, tokenizer, text)
    expected = -sum(math.log({"a": 0.2, "b": 0.3, "\n": 0.5}[character]) for character in text)
    assert (score.tokens, score.characters) == (length, length)
    assert score.nats == pytest.approx(expected, rel=1e-5)
    assert score.bits_per_character == pytest.approx(expected / math.log(2) / length, rel=1e-5)
    assert model.training  # the mode is restored


def test_bits_per_character_do_not_depend_on_the_tokens():
    """Two models give the text the same probability. One has only characters; the other also has the token "ab"."""
    characters = TextTokenizer(["a", "b", "\n"])
    pairs = TextTokenizer(["a", "b", "\n", "ab"], [("a", "b")])
    after = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]).log()  # rows: after a, b, newline
    joined = torch.tensor([[0.25, 0.25, 0.375, 0.125]] * 4).log()
    one = score_language_model(TableLanguageModel(after), characters, "ab")
    other = score_language_model(TableLanguageModel(joined), pairs, "ab")
    assert (one.tokens, other.tokens) == (2, 1)
    assert one.bits_per_character == pytest.approx(1.5)
    assert other.bits_per_character == pytest.approx(1.5)
    assert (one.perplexity, other.perplexity) == (pytest.approx(2**1.5), pytest.approx(8))


def test_filters_work_in_half_precision_and_keep_their_input():
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)).bfloat16()
    before = logits.clone()
    for filtered in (top_k_filter(logits, 7), top_p_filter(logits, 0.9)):
        assert filtered.dtype == torch.bfloat16
        assert filtered.isfinite().any(dim=-1).all()
    assert torch.equal(logits, before)


def test_a_p_of_one_keeps_all_tokens_although_the_sum_is_rounded():
    logits = torch.tensor([20.0] + [0.0] * 9)
    assert logits.softmax(dim=-1).cumsum(dim=-1)[0] == 1, "in float32, the sum rounds to 1"
    filtered = top_p_filter(logits, 1.0)
    assert torch.equal(filtered, logits)
    assert filtered.data_ptr() != logits.data_ptr(), "the result must be a new tensor"


def test_exactly_k_of_equal_logits_are_kept():
    assert top_k_filter(torch.zeros(3, 6), 2).isfinite().sum(dim=-1).tolist() == [2, 2, 2]


def test_sampling_follows_temperature_and_top_k():
    table = torch.full((4, 4), -9.0)
    table[0, 1] = table[1, 2] = table[2, 0] = 9.0
    model = TableLanguageModel(table, max_length=2)
    assert sample(model, torch.tensor([0]), 5, temperature=0).tolist() == [1, 2, 0, 1, 2]
    assert sample(model, torch.tensor([0]), 3, top_k=1).tolist() == [1, 2, 0]
    assert sample(model, torch.tensor([0]), 0).tolist() == []


def test_a_model_that_predicts_noise_has_seen_the_answers():
    """The notebook tests a training loop on random tokens.

    Unless the model cheats, the loss cannot be below log(vocab).
    """
    noise = torch.randint(50, (4000,), generator=torch.Generator().manual_seed(1))

    def last_losses(loss):
        torch.manual_seed(0)
        model = LanguageModel(50, **SMALL)
        records = list(train_language_model(model, noise, 60, batch_size=16, peak_rate=1e-2, loss=loss))
        return sum(record["loss"] for record in records[-10:]) / 10

    def other_convention(model, inputs, labels):
        logits = model(inputs, causal_mask(inputs.size(1))[0, 0])
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    assert last_losses(causal_language_model_loss) > math.log(50) - 0.15
    assert last_losses(other_convention) < math.log(50) - 0.5
