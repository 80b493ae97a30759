import random
from itertools import pairwise

import pytest
import torch

from transformer_lab.data import Batch, bucketed_batches, pad_batch, token_batches


def test_pad_batch_pads_on_the_right_with_int64():
    padded = pad_batch([[5, 6, 7], [8], []], pad_id=9)
    assert padded.dtype == torch.int64
    assert padded.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]


def test_pad_batch_of_nothing_has_no_rows():
    assert pad_batch([], pad_id=0).shape == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_token_batches_is_a_full_partition_within_the_bound(seed: int):
    """A sentence lost or doubled, a batch over the bound, or one split without need would all go unseen in training."""
    generator = random.Random(seed)
    lengths = [generator.randint(0, 40) for _ in range(generator.randint(0, 200))]
    max_tokens = generator.randint(40, 400)
    batches = token_batches(lengths, max_tokens)

    def cells(batch: list[int]) -> int:
        return len(batch) * max(lengths[index] for index in batch)

    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(cells(batch) <= max_tokens for batch in batches)
    assert all(cells(one + other) > max_tokens for one, other in pairwise(batches))


def test_token_batches_names_the_sentence_that_fits_nowhere():
    with pytest.raises(ValueError, match=r"sentence 1 has 12 tokens, but max_tokens is 10"):
        token_batches([3, 12], 10)


def some_pairs(count: int) -> tuple[list[list[int]], list[list[int]]]:
    generator = random.Random(0)
    sources = [[generator.randint(3, 99) for _ in range(generator.randint(1, 12))] + [2] for _ in range(count)]
    targets = [[1] + [generator.randint(3, 99) for _ in range(generator.randint(1, 12))] + [2] for _ in range(count)]
    return sources, targets


def unpadded(batch: Batch) -> dict[int, tuple[list[int], list[int]]]:
    rows = zip(batch.indices, batch.source.tolist(), batch.target.tolist(), strict=True)
    return {
        index: ([token for token in source if token], [token for token in target if token])
        for index, source, target in rows
    }


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(4)])
def test_bucketed_batches_keep_source_and_target_together(generator: torch.Generator | None):
    """A source beside the wrong target would still train, and never learn."""
    sources, targets = some_pairs(300)
    batches = bucketed_batches(sources, targets, 100, 0, generator)
    found = {index: pair for batch in batches for index, pair in unpadded(batch).items()}
    assert found == dict(enumerate(zip(sources, targets, strict=True)))
    assert sum(len(batch.indices) for batch in batches) == 300
    assert all(batch.source.numel() <= 100 and batch.target.numel() <= 100 for batch in batches)


def test_batches_follow_the_seed():
    """The same seed must repeat a run; another epoch must mix the pairs anew."""
    sources, targets = some_pairs(300)

    def order(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return [batch.indices for batch in bucketed_batches(sources, targets, 100, 0, generator)]

    assert order(1) == order(1)
    assert {frozenset(batch) for batch in order(1)} != {frozenset(batch) for batch in order(2)}


def test_without_a_generator_batches_stand_in_order_of_length():
    sources, targets = some_pairs(300)
    batches = bucketed_batches(sources, targets, 100, 0)
    longest = [max(batch.source.shape[1], batch.target.shape[1]) for batch in batches]
    assert longest == sorted(longest)
    assert [batch.indices for batch in batches] == [b.indices for b in bucketed_batches(sources, targets, 100, 0)]


def test_target_tokens_counts_what_the_loss_sees():
    """bos is never predicted and padding never counts: a wrong count would bend the loss's mean and the speed shown."""
    batch = Batch(torch.ones(2, 3), torch.tensor([[1, 7, 8, 2], [1, 7, 2, 0]]), pad_id=0, indices=[0, 1])
    assert batch.target_tokens == 5


def test_batch_moves_both_sides():
    [batch] = bucketed_batches([[3, 2]], [[1, 4, 2]], 10, 0)
    moved = batch.to("meta")
    assert (moved.source.device.type, moved.target.device.type, moved.indices) == ("meta", "meta", [0])


def test_unequal_sides_are_refused():
    with pytest.raises(ValueError, match="1 sources but 2 targets"):
        bucketed_batches([[3]], [[3], [4]], 10, 0)


def test_padding_on_multi30k_is_under_eight_percent(multi30k, bpe):
    """Every padded cell is computed and thrown away."""
    sources = bpe.encode_sources([source for source, _ in multi30k.train])
    targets = bpe.encode_targets([target for _, target in multi30k.train])
    real = sum(map(len, sources + targets))
    for seed in range(2):
        batches = bucketed_batches(sources, targets, 4096, bpe.pad_id, torch.Generator().manual_seed(seed))
        padding = 1 - real / sum(batch.source.numel() + batch.target.numel() for batch in batches)
        print(f"padding at 4,096 tokens, seed {seed}: {padding:.2%} in {len(batches)} batches")
        assert padding < 0.08
