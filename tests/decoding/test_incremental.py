"""The cache must change only the speed, not the results."""

import random

import pytest
import torch
from torch import nn

from transformer_lab.decoding import (
    CachedAttention,
    beam_search,
    cached_beam_search,
    cached_greedy_decode,
    greedy_decode,
)
from transformer_lab.decoding.incremental import GROUPS, ROWS_AT_ONCE, likeliest_tokens, top_indices
from transformer_lab.model import (
    Decoder,
    MultiHeadAttention,
    Transformer,
    causal_mask,
    fused_attention,
    scaled_dot_product_attention,
    set_attention,
    target_mask,
)

PAD, BOS, EOS = 0, 1, 2


rng = random.Random(1)
CASES = [  # eos likely or unlikely, a vocabulary smaller or larger than the beam, both norms
    {
        "seed": seed,
        "target_vocab": rng.choice([3, 5, 12, 40]),
        "sharpness": rng.choice([1.0, 3.0, 8.0]),
        "eos_bonus": rng.choice([-4.0, 0.0, 1.5, 4.0]),
        "norm_first": rng.random() < 0.5,
        "n_heads": rng.choice([1, 2, 4]),
    }
    for seed in range(16)
]


class TestCachedAttention:
    """Test single steps of incremental self-attention."""

    @pytest.fixture
    def attention(self):
        torch.manual_seed(2)
        return MultiHeadAttention(12, 3, dropout=0.5).double().eval()

    @pytest.fixture
    def x(self):
        return torch.randn(4, 9, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def test_a_step_gives_the_last_row_of_causal_attention(self, attention, x):
        cached = CachedAttention(attention, 3)
        outputs = []
        for length in range(1, 10):
            prefix = x[:, :length]
            whole = attention(prefix, prefix, prefix, causal_mask(length))[:, -1:]
            output = cached.step(x[:, length - 1 : length])
            torch.testing.assert_close(output, whole, rtol=0, atol=1e-12)
            outputs.append((output, output.clone()))
        assert all(torch.equal(output, copy) for output, copy in outputs)  # not a buffer that a later step overwrites

    def test_a_step_projects_one_vector(self, attention, x):
        """Projecting the prefix again gives the same numbers, but the cache exists to avoid exactly that work."""
        projected = []
        for name in ("w_q", "w_k", "w_v", "w_o"):
            getattr(attention, name).register_forward_hook(lambda _, inputs, __: projected.append(inputs[0].size(1)))
        cached = CachedAttention(attention, 3)
        for position in range(9):
            cached.step(x[:, position : position + 1])
        assert projected == [1] * 4 * 9

    def test_reorder_moves_repeats_and_drops_rows(self, attention, x):
        """Row 3 becomes rows 0 and 2, row 1 stays, and the old rows 0 and 2 are dropped. Cached keys must move too."""
        indices = torch.tensor([3, 1, 3])
        cached = CachedAttention(attention, 3)
        for position in range(5):
            cached.step(x[:, position : position + 1])
        cached.reorder(indices)
        mixed = torch.cat([x[indices, :5], x[:3, 5:]], dim=1)
        for length in (6, 7, 8, 9):
            prefix = mixed[:, :length]
            whole = attention(prefix, prefix, prefix, causal_mask(length))
            torch.testing.assert_close(cached.step(mixed[:, length - 1 : length]), whole[:, -1:], rtol=0, atol=1e-12)

    def test_reorder_before_the_first_step_has_nothing_to_move(self, attention, x):
        cached = CachedAttention(attention, 3)
        cached.reorder(torch.tensor([1, 0]))
        assert torch.equal(cached.step(x[:2, :1]), CachedAttention(attention, 3).step(x[:2, :1]))

    def test_a_mask_hides_what_it_hides(self, attention, x):
        """With this mask, two tokens fed in one step must not see each other, as if each token were fed alone."""
        cached = CachedAttention(attention, 3)
        together = cached.step(x[:, :2], torch.eye(2, dtype=torch.bool)[None, None])
        for position in range(2):
            alone = CachedAttention(attention, 3).step(x[:, position : position + 1])
            torch.testing.assert_close(together[:, position : position + 1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["seed"]))
def test_cached_and_uncached_give_the_same_tokens(case, sharpened_model, random_sources):
    model = sharpened_model(**case)
    source = random_sources(case["seed"])
    for max_length in (1, 14):
        assert cached_greedy_decode(model, source, max_length) == greedy_decode(model, source, max_length)
    for beam_size, alpha, max_length in ((2, 0.0, 14), (4, 0.6, 6), (4, 2.0, 14), (50, 1.0, 4)):
        arguments = model, source, beam_size, alpha, max_length
        assert cached_beam_search(*arguments) == beam_search(*arguments), (beam_size, alpha, max_length)


def test_the_cases_cover_what_matters(sharpened_model, random_sources):
    """Matching tokens do not prove much if all sentences end at the same step or if none reaches max_length."""
    ends = set()
    for case in CASES:
        translations = cached_beam_search(sharpened_model(**case), random_sources(case["seed"]), 4, 0.6, 14)
        lengths = [len(tokens) for tokens in translations]
        ends |= {"early"} if min(lengths) < 3 else set()
        ends |= {"late"} if any(6 <= length < 14 for length in lengths) else set()
        ends |= {"never"} if max(lengths) == 14 else set()
        ends |= {"apart"} if max(lengths) - min(lengths) > 5 else set()
    assert ends == {"early", "late", "never", "apart"}


@pytest.mark.parametrize("token", [PAD, BOS])
def test_a_predicted_pad_or_bos_is_fed_back_as_in_the_plain_decoders(token, sharpened_model, random_sources):
    """The plain decoders hide a predicted pad from every later query, so the cache must hide its key, too."""
    fed = []
    for seed in range(3):
        model = sharpened_model(seed, sharpness=2.0)
        with torch.no_grad():
            model.output.bias[token] += 8.0
        source = random_sources(seed)
        hook = model.target_embedding.register_forward_hook(lambda _, inputs, __: fed.append(inputs[0][:, 1:]))
        greedy = greedy_decode(model, source, 10)
        hook.remove()
        assert cached_greedy_decode(model, source, 10) == greedy
        assert cached_beam_search(model, source, 3, 0.6, 10) == beam_search(model, source, 3, 0.6, 10)
        assert not any(token in tokens for tokens in greedy)
    assert any((tokens[:, :-1] == token).any() for tokens in fed)  # in the middle of sentences, not only after eos


def test_the_rest_of_the_batch_changes_nothing(sharpened_model, random_sources):
    """Sentences are batched by length, so a translation must not depend on the rest of its batch."""
    model = sharpened_model(4, eos_bonus=2.0)
    source = random_sources(5, batch=16)
    together = cached_beam_search(model, source, 4, 0.6, 14)
    alone = [cached_beam_search(model, row[row != PAD][None], 4, 0.6, 14)[0] for row in source]
    assert together == alone
    assert cached_greedy_decode(model, source.flip(0), 14) == cached_greedy_decode(model, source, 14)[::-1]


def test_each_sentence_may_have_its_own_limit(sharpened_model, random_sources):
    """A sentence that never ends stops at its own limit, not at the limit of the longest sentence in the batch."""
    for seed in range(2):
        model = sharpened_model(seed, eos_bonus=-1.0)
        source = random_sources(seed, batch=8)
        limits = torch.tensor([1, 2, 3, 5, 8, 8, 13, 20])
        greedy, beam = cached_greedy_decode(model, source, limits), cached_beam_search(model, source, 3, 0.6, limits)
        for row, limit, from_greedy, from_beam in zip(source, limits.tolist(), greedy, beam, strict=True):
            assert from_greedy == greedy_decode(model, row[None], limit)[0]
            assert from_beam == beam_search(model, row[None], 3, 0.6, limit)[0]


def test_finished_sentences_leave_the_batch_and_memory_is_projected_once(sharpened_model, random_sources):
    """Finished sentences require no further computation, and no step projects the memory again."""
    model = sharpened_model(4, eos_bonus=2.0)
    source = random_sources(4, batch=40)
    rows, projections = [], []
    model.decoder.layers[0].feed_forward.register_forward_hook(lambda _, inputs, __: rows.append(inputs[0].size(0)))
    model.decoder.layers[0].cross_attention.w_k.register_forward_hook(lambda *args: projections.append(len(args[2])))
    for decode in (cached_greedy_decode, lambda *arguments: cached_beam_search(*arguments[:2], 4, 0.6, arguments[2])):
        rows.clear()
        projections.clear()
        lengths = sorted(len(tokens) for tokens in decode(model, source, 14))
        assert lengths[20] < lengths[-1] - 3  # half of the sentences end early
        assert rows[:2] == projections == [1, 40]  # first, one sentence shows what follows the output layer
        del rows[0]
        assert rows[-1] <= 30
        assert rows == sorted(rows, reverse=True)


def test_beyond_max_length_fails_as_the_plain_decoders_do(sharpened_model, random_sources):
    """Decoding beyond the model's last position must raise an error."""
    model = sharpened_model(3, eos_bonus=-100.0)
    source = random_sources(3)
    with pytest.raises(ValueError, match=r"25.*24"):
        cached_beam_search(model, source, 3, 0.6, 30)
    assert model.training
    assert cached_beam_search(model, source, 3, 0.6, 24) == beam_search(model, source, 3, 0.6, 24)


def test_the_function_at_the_hook_is_used(sharpened_model, random_sources):
    """If you replace the model's attention, translations must use your function."""
    model = sharpened_model(3)
    source = random_sources(3)
    usual = cached_beam_search(model, source, 4, 0.6, 12)

    def unscaled(query, key, value, mask, dropout):
        return scaled_dot_product_attention(query * query.size(-1) ** 0.5, key, value, mask, dropout)

    set_attention(model, fused_attention)
    assert cached_beam_search(model, source, 4, 0.6, 12) == usual
    set_attention(model, unscaled)
    assert cached_beam_search(model, source, 4, 0.6, 12) == beam_search(model, source, 4, 0.6, 12) != usual
    assert cached_greedy_decode(model, source, 12) == greedy_decode(model, source, 12)


def test_works_with_a_model_of_the_readers_own(sharpened_model, random_sources):
    """Decoding may rely only on names that the course prescribes, not on `n_heads`, `attend`, or a positions buffer."""

    class OwnNorm(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.gain, self.bias, self.tiny = norm.gain, norm.bias, norm.eps

        def forward(self, x):
            centered = x - x.mean(-1, keepdim=True)
            return centered * torch.rsqrt(centered.square().mean(-1, keepdim=True) + self.tiny) * self.gain + self.bias

    class OwnAttention(nn.Module):
        def __init__(self, attention):
            super().__init__()
            self.w_q, self.w_k, self.w_v, self.w_o = attention.w_q, attention.w_k, attention.w_v, attention.w_o
            self.number_of_heads = attention.n_heads

        def forward(self, query, key, value, mask=None):
            q, k, v = (
                project(x).unflatten(-1, (self.number_of_heads, -1)).transpose(1, 2)
                for project, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
            )
            return self.w_o(scaled_dot_product_attention(q, k, v, mask)[0].transpose(1, 2).flatten(2))

    class OwnPositions(nn.Module):
        def __init__(self, positions):
            super().__init__()
            self.table = nn.Embedding.from_pretrained(positions.encoding)

        def forward(self, x):
            return x + self.table(torch.arange(x.size(1)))

    class DecoderWithoutNorm(Decoder):
        def forward(self, x, memory, source_mask=None, target_mask=None):
            for layer in self.layers:
                x = layer(x, memory, source_mask, target_mask)
            return x

    for norm_first in (True, False):
        model = sharpened_model(8, norm_first=norm_first)
        source = random_sources(8)
        expected = beam_search(model, source, 4, 0.6, 12)
        for layer in model.decoder.layers:
            layer.self_attention, layer.cross_attention = (
                OwnAttention(layer.self_attention),
                OwnAttention(layer.cross_attention),
            )
            for residual in layer.residuals:
                residual.norm = OwnNorm(residual.norm)
        model.positional_encoding = OwnPositions(model.positional_encoding)
        if not norm_first:
            model.decoder.__class__ = DecoderWithoutNorm
            del model.decoder.norm
        assert cached_beam_search(model, source, 4, 0.6, 12) == expected


def test_a_model_that_has_only_encode_and_decode_is_fed_whole_prefixes(table_model, random_sources):
    """A hypothesis must keep its prefix when it moves to another row and when other sentences leave the batch."""
    for seed in range(8):
        model, source = table_model(seed, eos_bonus=seed % 3), random_sources(seed)
        assert cached_greedy_decode(model, source, 6) == greedy_decode(model, source, 6)
        assert cached_beam_search(model, source, 3, 0.6, 6) == beam_search(model, source, 3, 0.6, 6)


class SoftCapped(Transformer):
    """A model that computes more logits than its output layer."""

    def decode(self, target, memory, source_mask):
        logits = 2 * (super().decode(target, memory, source_mask) / 2).tanh()
        return logits.index_fill(-1, torch.tensor([5]), -torch.inf)


class WeightOnly(Transformer):
    """A model that doesn't call its output layer."""

    def decode(self, target, memory, source_mask):
        x = self.positional_encoding(self.target_embedding(target))
        x = self.decoder(x, memory, source_mask, target_mask(target, PAD))
        return nn.functional.linear(x, self.output.weight)


class OtherNames(nn.Module):
    """A model with an output layer whose stack isn't called `decoder`. With `d_model` equal to the vocabulary's size,
    applying the output layer to its logits doesn't even crash."""

    def __init__(self, model):
        super().__init__()
        self.config, self.output, self.stack = model.config, model.output, model
        self.encode, self.decode = model.encode, model.decode


def same_class(kind):
    def change(model):
        model.__class__ = kind
        return model

    return change


@pytest.mark.parametrize("change", [same_class(SoftCapped), same_class(WeightOnly), OtherNames])
@pytest.mark.parametrize("target_vocab", [12, 16])
def test_logits_that_do_not_come_straight_from_the_output_layer(change, target_vocab, sharpened_model, random_sources):
    """What your model does to its logits must have an effect on translations, even if it takes more time."""
    for seed in range(3):
        model, source = change(sharpened_model(seed, target_vocab)), random_sources(seed)
        assert cached_greedy_decode(model, source, 10) == greedy_decode(model, source, 10)
        assert cached_beam_search(model, source, 3, 0.6, 10) == beam_search(model, source, 3, 0.6, 10)


@pytest.mark.filterwarnings("ignore:var")  # a batch without rows warns
def test_a_batch_of_none_and_a_length_of_none(sharpened_model, random_sources):
    model = sharpened_model(0)
    source = random_sources(0)
    assert cached_beam_search(model, source, 4, 0.6, 0) == cached_greedy_decode(model, source, 0) == [[]] * 5
    assert cached_beam_search(model, source[:0], 4, 0.6, 5) == cached_greedy_decode(model, source[:0], 5) == []


@pytest.mark.parametrize("columns", [1, 7, GROUPS * 4 - 1, GROUPS * 4, 3 * GROUPS * 5 + 1, 8000])
@pytest.mark.parametrize("k", [1, 4, 40])
def test_top_indices_are_those_of_topk(columns, k):
    """The groups must cover every column, including the remainder, and one group may contain all k largest values."""
    k = min(k, columns)
    generator = torch.Generator().manual_seed(columns + k)
    x = torch.randn(20, columns, generator=generator)
    x[0] = -torch.inf
    x[1, -k:] += 100  # the largest are in the remainder
    x[2, : k * GROUPS : GROUPS] += 100  # the largest are in one group
    x[3] = x[3].round()  # many ties
    chosen = top_indices(x, k)
    assert torch.equal(x.gather(1, chosen), x.topk(k).values)
    assert all(len(set(row)) == k for row in chosen.tolist())


def test_likeliest_tokens_of_more_rows_than_fit_at_once():
    torch.manual_seed(0)
    output = nn.Linear(4, 9)
    x = torch.randn(2 * ROWS_AT_ONCE + 3, 4)
    with torch.no_grad():
        log_probabilities, tokens = likeliest_tokens(output, x, 3)
        expected = output(x).double().log_softmax(-1).topk(3)
    assert torch.equal(tokens, expected.indices)
    # The logits are in single precision: seven digits of values around 3.
    torch.testing.assert_close(log_probabilities, expected.values, rtol=0, atol=2e-6)
