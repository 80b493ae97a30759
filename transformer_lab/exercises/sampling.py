"""Random inputs for checks. They are the same on every machine and short enough to print."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class InputSampler:
    """A seeded generator of inputs for one check.

    The inputs are built from random integers, which are the same on every machine.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def numbers(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
        """Return a float64 tensor of numbers between `low` and `high` with one decimal place."""
        tenths = torch.randint(round(10 * low), round(10 * high) + 1, shape, generator=self.generator)
        return tenths.double() / 10

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, inclusive."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def integers(self, *shape: int, low: int, high: int) -> Tensor:
        """Return an int64 tensor of integers (such as tokens) from `low` to `high`, inclusive."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def order(self, size: int) -> list[int]:
        """Return the numbers from 0 to `size - 1` in random order.

        If there are at least two, they are never in sorted order.
        """
        while True:
            order = torch.randperm(size, generator=self.generator).tolist()
            if size < 2 or order != sorted(order):
                return order

    def shuffled(self, items: Sequence) -> list:
        """Return the items in random order. If there are at least two, they are never in their original order."""
        return [items[index] for index in self.order(len(items))]

    def weights(self, module: nn.Module, scale: float = 0.5) -> dict[str, Tensor]:
        """Return random weights between `-scale` and `scale` for the parameters of `module`, by name."""
        return {
            name: self.numbers(*parameter.shape, low=-scale, high=scale)
            for name, parameter in module.named_parameters()
        }


def sampled_until(
    holds: Callable[..., bool], inputs: Callable[[InputSampler], dict[str, Any]]
) -> Callable[[InputSampler], dict[str, Any]]:
    """Return a function that samples the inputs of a check again until `holds(**inputs)` is true.

    Use this if the case that a check covers cannot be constructed but is common, so that a few tries are enough.
    """

    def sampled(sampler: InputSampler) -> dict[str, Any]:
        while not holds(**(found := inputs(sampler))):
            pass
        return found

    return sampled
