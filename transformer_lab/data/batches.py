"""Padded batches of token IDs, grouped by approximate length (section 5.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


def pad_batch(sequences: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Return sequences of different lengths as one int64 tensor, `(batch, longest)`, right-padded with `pad_id`."""
    longest = max((len(sequence) for sequence in sequences), default=0)
    padded = [[*sequence, *[pad_id] * (longest - len(sequence))] for sequence in sequences]
    return torch.tensor(padded, dtype=torch.int64).view(len(sequences), longest)  # (batch, longest)


def token_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group sentences of similar length into batches, each a list of indices into `lengths`.

    If a batch has n sentences and the longest of them has m tokens, it takes n * m cells once it is padded. This is at
    most `max_tokens`. Every index is in exactly one batch, and each batch is as full as the order by length allows. If
    there are no lengths, there are no batches.

    Raises:
        ValueError: A single sentence is longer than `max_tokens`.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        length = lengths[index]  # the longest so far, because lengths are in ascending order
        if length > max_tokens:
            raise ValueError(f"sentence {index} has {length} tokens, but max_tokens is {max_tokens}: raise max_tokens")
        if batches and (len(batches[-1]) + 1) * length <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@dataclass
class Batch:
    """A batch of padded sentence pairs.

    `source` and `target` are int64, `(batch, length)`; the two lengths may differ.
    """

    source: Tensor
    target: Tensor  # with bos and eos
    pad_id: int
    indices: list[int]  # index of each pair in the corpus

    @property
    def target_tokens(self) -> int:
        """Number of tokens that count toward the loss: all real tokens after bos."""
        return int((self.target[:, 1:] != self.pad_id).sum())

    def to(self, device: torch.device | str) -> "Batch":
        return replace(self, source=copy_to(self.source, device), target=copy_to(self.target, device))

    def repeated(self, times: int) -> "Batch":
        """Return a batch with all pairs repeated `times` times. Dropout is different for each copy of a pair."""
        source, target = self.source.repeat(times, 1), self.target.repeat(times, 1)  # (times * batch, length)
        return replace(self, source=source, target=target, indices=self.indices * times)


def copy_to(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return the tensor on `device`. Copying to a GPU uses pinned memory, so that the CPU does not have to wait."""
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def bucketed_batches(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    max_tokens: int,
    pad_id: int,
    generator: torch.Generator | None = None,
) -> list[Batch]:
    """Return all pairs in padded batches of similar length, with at most `max_tokens` cells on each side of a batch.

    The length of a pair is that of its longer side. With a generator, pairs of the same length are shuffled and the
    batches are in random order, so every epoch is different. Without a generator, the order is always the same: by
    length.

    Raises:
        ValueError: `sources` and `targets` differ in length, or a sentence is longer than `max_tokens`.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources but {len(targets)} targets: each source needs a target")
    pairs = list(range(len(sources)))
    if generator is not None:
        pairs = torch.randperm(len(sources), generator=generator).tolist()
    # Among pairs of the same length, put those with a longer target first. This saves a sixth of the padding.
    pairs.sort(key=lambda pair: len(sources[pair]) >= len(targets[pair]))
    longer_side = [max(len(sources[pair]), len(targets[pair])) for pair in pairs]
    groups = [[pairs[position] for position in group] for group in token_batches(longer_side, max_tokens)]
    if generator is not None:
        groups = [groups[position] for position in torch.randperm(len(groups), generator=generator).tolist()]
    return [
        Batch(
            source=pad_batch([sources[pair] for pair in group], pad_id),
            target=pad_batch([targets[pair] for pair in group], pad_id),
            pad_id=pad_id,
            indices=group,
        )
        for group in groups
    ]
