"""No mistake in the catalog fails these property checks. These tests show that the checks can still fail."""

import pytest
import torch
from torch import nn

from transformer_lab.data import build_vocabulary, learn_bpe
from transformer_lab.evaluation.bleu import bleu
from transformer_lab.exercises import find_exercise, run_check
from transformer_lab.exercises.judgment import judge, observe_all
from transformer_lab.model import (
    MultiHeadAttention,
    PositionalEncoding,
    TokenEmbedding,
    combine_heads,
    count_parameters,
    split_heads,
)
from transformer_lab.training.loss import label_smoothing_loss, shift_target


def same_numbers(model):
    with torch.random.fork_rng():
        for parameter in model.parameters():
            torch.manual_seed(0)
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)


def a_list_twice(sentences, min_frequency=1):
    len(sentences) if isinstance(sentences, list) else list(sentences)  # uses up a generator
    return build_vocabulary(sentences, min_frequency)


def specials_counted(sentences, min_frequency=1):
    class Doubled:
        def __init__(self, vocabulary):
            self.itos = [*vocabulary.itos, vocabulary.itos[0]]
            self.stoi = vocabulary.stoi

        def __getitem__(self, token):
            return self.stoi[token]

        def __len__(self):
            return len(self.itos)

    return Doubled(build_vocabulary(sentences, min_frequency))


def at_least_one_merge(word_counts, n_merges):
    return learn_bpe(word_counts, max(n_merges, 1))


def gradients_left(model, batch, optimizer, smoothing=0.1, clip_norm=1.0):
    model.train()
    decoder_input, labels = shift_target(batch.target)
    loss = label_smoothing_loss(model(batch.source, decoder_input), labels, smoothing, model.config.pad_id)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def up_to_the_shorter(hypotheses, references):
    pairs = list(zip(hypotheses, references, strict=False))
    return bleu([hypothesis for hypothesis, _ in pairs], [reference for _, reference in pairs])


class AnyPad(TokenEmbedding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, min(pad_id, vocab_size - 1))


class NegativePad(TokenEmbedding):
    def __init__(self, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id if pad_id >= 0 else pad_id + vocab_size)


def masked_after_the_softmax(query, key, value, mask=None, dropout=None):
    weights = (query @ key.mT / query.size(-1) ** 0.5).softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    return (weights if dropout is None else dropout(weights)) @ value, weights


class WithoutNumbers(PositionalEncoding):
    def forward(self, x):
        if x.size(1) > self.encoding.size(0):
            raise ValueError("too long")
        return super().forward(x)


BROKEN = [
    ("split_heads", "gradients pass through", lambda x, n_heads: split_heads(x, n_heads).detach()),
    ("combine_heads", "gradients pass through", lambda x: combine_heads(x).detach()),
    ("initialize_parameters", "layers of the same size get different weights", same_numbers),
    ("count_parameters", "every additional layer adds the same number", lambda c: count_parameters(c) + c.n_layers**2),
    ("build_vocabulary", "a generator of sentences works as well as a list", a_list_twice),
    (
        "build_vocabulary",
        "each token has exactly one id, even a special token that occurs in a sentence",
        specials_counted,
    ),
    ("learn_bpe", "no merges for `n_merges` 0 or without words", at_least_one_merge),
    ("bleu", "a reference for each hypothesis", up_to_the_shorter),
]
LONG_SENTENCE = "a sentence longer than `max_length` doesn't silently get a wrong result"
REMARKED = [
    ("PositionalEncoding", LONG_SENTENCE, WithoutNumbers, "doesn't name both numbers"),
    (
        "scaled_dot_product_attention",
        "tried: a hidden key whose score exceeds the others by more than 1000",
        masked_after_the_softmax,
        "Your softmax includes the scores of hidden keys",
    ),
    ("TokenEmbedding", "tried: a `pad_id` outside the vocabulary", AnyPad, "raises nothing"),
    ("TokenEmbedding", "tried: a `pad_id` outside the vocabulary", NegativePad, "with `pad_id` -"),
    ("train_step", "gradients left over from before the first step", gradients_left, "Gradients left over from before"),
]


@pytest.mark.parametrize(("name", "check", "wrong"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_the_check_fails(name, check, wrong):
    exercise = find_exercise(name)
    report = judge(exercise, observe_all(exercise, wrong, 0)[0], explained=False)
    (found,) = (one for one in report.checks if one.name == check)
    assert found.state == "failed", str(report)


@pytest.mark.parametrize(("name", "check", "other", "remark"), REMARKED, ids=[name for name, *_ in REMARKED])
def test_the_check_remarks(name, check, other, remark):
    report = run_check(find_exercise(name), other)
    (found,) = (one for one in report.checks if one.name == check)
    assert found.state == "passed"
    assert any(remark in one for one in report.remarks), str(report)


def test_a_forgotten_output_layer_is_not_taken_for_dropped_features():
    """Without `w_o`, a head whose attention weights are all dropped returns zeros."""

    class WithoutOutputLayer(MultiHeadAttention):
        def forward(self, query, key, value, mask=None):
            inputs = zip((self.w_q, self.w_k, self.w_v), (query, key, value), strict=True)
            heads, _ = self.attend(*(split_heads(layer(x), self.n_heads) for layer, x in inputs), mask, self.dropout)
            return combine_heads(heads)

    report = run_check(find_exercise("MultiHeadAttention"), WithoutOutputLayer)
    (of_dropout,) = (check for check in report.checks if check.name.startswith("dropout acts"))
    assert of_dropout.state == "passed", str(report)
    assert report.state == "failed"


def test_a_float_mask_is_not_called_float64():
    """Checks run with float64 as the default, which students do not see in their notebooks."""

    def as_floats(length, device=None):
        return torch.ones(1, 1, length, length).tril()

    report = run_check(find_exercise("causal_mask"), as_floats)
    assert "float64" not in str(report)
    assert "a floating-point dtype; expected dtype bool" in " ".join(str(report).split())
