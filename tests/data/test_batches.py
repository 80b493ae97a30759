"""Every sentence must be in exactly one batch, together with its translation and with little padding."""

import random
from itertools import pairwise

import pytest
import torch

from transformer_lab.data import Batch, bucketed_batches, pad_batch, token_batches


def test_pad_batch_pads_on_the_right_with_int64():
    padded = pad_batch([[5, 6, 7], [8], []], pad_id=9)
    assert padded.dtype == torch.int64
    assert padded.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
    assert pad_batch([], pad_id=0).shape == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_token_batches_partition_the_sentences(seed: int):
    """Training would not reveal that a sentence is lost or repeated, or that a batch is too large or too small."""
    generator = random.Random(seed)
    lengths = [generator.randint(0, 40) for _ in range(generator.randint(0, 200))]
    max_tokens = generator.randint(40, 400)
    batches = token_batches(lengths, max_tokens)

    def cells(batch: list[int]) -> int:
        return len(batch) * max(lengths[index] for index in batch)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(cells(batch) <= max_tokens for batch in batches)
    assert all(cells(one + other) > max_tokens for one, other in pairwise(batches))


def test_pairs_that_fit_nowhere_are_refused():
    with pytest.raises(ValueError, match="sentence 1 has 12 tokens, but max_tokens is 10"):
        token_batches([3, 12], 10)
    with pytest.raises(ValueError, match="1 sources but 2 targets"):
        bucketed_batches([[3]], [[3], [4]], 10, 0)


@pytest.fixture
def pairs() -> tuple[list[list[int]], list[list[int]]]:
    generator = random.Random(0)
    words = [[generator.randint(3, 99) for _ in range(generator.randint(1, 12))] for _ in range(600)]
    return [[*ids, 2] for ids in words[:300]], [[1, *ids, 2] for ids in words[300:]]


@pytest.mark.parametrize("seed", [None, 4])
def test_source_and_target_stay_together(seed: int | None, pairs):
    """If sources had the wrong targets, a model would still train but never learn to translate."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    batches = bucketed_batches(*pairs, 100, 0, generator)
    found = {}
    for batch in batches:
        assert max(batch.source.numel(), batch.target.numel()) <= 100
        for index, *rows in zip(batch.indices, batch.source.tolist(), batch.target.tolist(), strict=True):
            found[index] = tuple([token for token in row if token] for row in rows)
    assert found == dict(enumerate(zip(*pairs, strict=True)))
    assert sum(len(batch.indices) for batch in batches) == 300


def test_batches_follow_the_seed(pairs):
    """The same seed must reproduce a run, and each epoch must shuffle the pairs differently."""

    def order(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return [batch.indices for batch in bucketed_batches(*pairs, 100, 0, generator)]

    assert order(1) == order(1)
    assert {frozenset(batch) for batch in order(1)} != {frozenset(batch) for batch in order(2)}


def test_without_a_generator_batches_are_sorted_by_length(pairs):
    batches = bucketed_batches(*pairs, 100, 0)
    longest = [max(batch.source.shape[1], batch.target.shape[1]) for batch in batches]
    assert longest == sorted(longest)
    assert [batch.indices for batch in batches] == [batch.indices for batch in bucketed_batches(*pairs, 100, 0)]


def test_target_tokens_are_the_ones_in_the_loss():
    """Bos is never predicted, and padding never counts. A wrong count would distort the loss and the reported speed."""
    batch = Batch(torch.ones(2, 3), torch.tensor([[1, 7, 8, 2], [1, 7, 2, 0]]), pad_id=0, indices=[0, 1])
    assert batch.target_tokens == 5
    moved = batch.to("meta")
    assert (moved.source.device.type, moved.target.device.type, moved.indices) == ("meta", "meta", [0, 1])


def test_padding_on_multi30k_is_under_eight_percent(multi30k, bpe):
    """The results for padded positions are computed and then discarded, so padding wastes time."""
    sources = bpe.encode_sources([source for source, _ in multi30k.train])
    targets = bpe.encode_targets([target for _, target in multi30k.train])
    batches = bucketed_batches(sources, targets, 4096, bpe.pad_id, torch.Generator().manual_seed(0))
    cells = sum(batch.source.numel() + batch.target.numel() for batch in batches)
    assert 1 - sum(map(len, sources + targets)) / cells < 0.08
