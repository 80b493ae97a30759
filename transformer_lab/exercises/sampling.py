"""Seeded inputs for probes: the same on every machine, and short enough to print."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class InputSampler:
    """Draws the inputs of one probe from one seed. All are made of whole numbers: no machine rounds them."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def numbers(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
        """float64 numbers with one decimal place between `low` and `high`, of the given shape."""
        tenths = torch.randint(round(10 * low), round(10 * high) + 1, shape, generator=self.generator)
        return tenths.double() / 10

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def integers(self, *shape: int, low: int, high: int) -> Tensor:
        """Whole numbers (int64) from `low` to `high`, both included: tokens, for example."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def order(self, size: int) -> list[int]:
        """The numbers from 0 to `size - 1` in a random order that is not their own (from two on)."""
        while True:
            order = torch.randperm(size, generator=self.generator).tolist()
            if size < 2 or order != sorted(order):
                return order

    def shuffled(self, items: Sequence) -> list:
        """The items in a random order that is not the given one (from two on)."""
        return [items[index] for index in self.order(len(items))]

    def weights(self, module: nn.Module, scale: float = 0.5) -> dict[str, Tensor]:
        """A number between `-scale` and `scale` for each parameter of `module`, by name: what `build` loads."""
        return {
            name: self.numbers(*parameter.shape, low=-scale, high=scale)
            for name, parameter in module.named_parameters()
        }
