"""A random search in a few lines, and a tiny model to try it on. The model trains in less than a second."""

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.model import MultiHeadAttention

EPOCHS, BATCH = 6, 20  # in `train_spotter`


def random_search(
    sample: Callable[[], dict[str, Any]],
    train: Callable[[dict[str, Any]], Iterable[float]],
    trials: int,
    startup: int = 5,
    warmup: int = 1,
) -> list[tuple[dict[str, Any], list[float], bool]]:
    """Run a number of trials and prune those that fall behind.

    After an epoch, a trial is pruned if its score is below the median of the scores that the finished trials had after
    the same epoch. A pruned trial does not count as finished. Nothing is pruned until `startup` trials have finished,
    and no trial is pruned in its first `warmup` epochs.

    Args:
        sample: `sample()` returns the hyperparameters of a new trial.
        train: `train(hyperparameters)` yields the validation score after each epoch; higher is better. Every trial has
            the same number of epochs.
        trials: Number of trials.
        startup: At least 1.
        warmup: At least 0.

    Returns:
        One tuple per trial, in order: `(hyperparameters, curve, pruned)`. `curve` is the list of its scores, up to
        and including the one that got it pruned.
    """
    results = []
    for _ in range(trials):
        hyperparameters, curve, pruned = sample(), [], False
        finished = [other for _, other, was_pruned in results if not was_pruned]
        for score in train(hyperparameters):
            curve.append(score)
            epoch = len(curve)
            if epoch > warmup and len(finished) >= startup and score < median(other[epoch - 1] for other in finished):
                pruned = True
                break
        results.append((hyperparameters, curve, pruned))
    return results


class PairSpotter(nn.Module):
    """A tiny classifier for two classes and 20 tokens: one self-attention layer with a residual connection.

    Args:
        width: Width of the model.
        n_heads: Number of heads. `width` must be divisible by this number.
    """

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, width)
        self.attention = MultiHeadAttention(width, n_heads)
        self.output = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens, `(batch, length)`, to logits, `(batch, 2)`."""
        x = self.embedding(tokens)  # (batch, length, width)
        x = x + self.attention(x, x, x)
        return self.output(x.mean(dim=1))


def pair_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return random token sequences, `(count, 12)`, and their labels, `(count,)`.

    The label is 0 if exactly one of the tokens 3 and 7 occurs (exclusive or), and 1 if both or neither occur.
    """
    tokens = torch.randint(20, (count, 12), generator=torch.Generator().manual_seed(seed))
    return tokens, ((tokens == 3).any(dim=1) == (tokens == 7).any(dim=1)).long()


def train_spotter(hyperparameters: dict[str, Any]) -> Iterator[float]:
    """Train a `PairSpotter` in less than a second, and yield its validation accuracy (0 to 1) after each epoch.

    Args:
        hyperparameters: A dictionary with `rate` (the learning rate of Adam) and the model's `width` and `n_heads`.
    """
    tokens, labels = pair_data(600, seed=0)
    new_tokens, new_labels = pair_data(500, seed=1)
    torch.manual_seed(0)
    model = PairSpotter(hyperparameters["width"], hyperparameters["n_heads"])
    optimizer = torch.optim.Adam(model.parameters(), lr=hyperparameters["rate"])
    for _ in range(EPOCHS):
        for batch, answers in zip(tokens.split(BATCH), labels.split(BATCH), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(batch), answers).backward()
            optimizer.step()
        with torch.no_grad():
            yield (model(new_tokens).argmax(dim=-1) == new_labels).float().mean().item()
