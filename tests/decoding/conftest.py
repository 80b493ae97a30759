"""Small models that make decoding interesting: their sentences differ, and end early, late, or never."""

import random

import pytest
import torch
from torch import Tensor

from transformer_lab.model import Transformer, TransformerConfig

PAD, BOS, EOS = 0, 1, 2


def make_sharpened_model(
    seed: int, target_vocab: int = 12, sharpness: float = 4.0, eos_bonus: float = 0.0, **own_sizes
) -> Transformer:
    """Return a random Transformer with very uneven predictions, in double precision, training mode, and with dropout.

    In double precision, cached and uncached sums agree to 1e-15, so equal tokens are not luck. Pad and bos are never
    predicted: they are left out of translations, which would make sentences seem to end with eos.
    """
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 32, "dropout": 0.3, "max_length": 24}
    sizes |= {"norm_first": True} | own_sizes
    model = Transformer(TransformerConfig(source_vocab=11, target_vocab=target_vocab, **sizes)).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gain", "bias")):
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.output.weight.mul_(sharpness)
        model.output.weight[EOS] *= 1.5  # sometimes very likely, sometimes very unlikely
        model.output.bias.add_(torch.randn(target_vocab))
        model.output.bias[EOS] += eos_bonus
        model.output.bias[[PAD, BOS]] -= 2 * sharpness
    return model


def make_random_sources(seed: int, batch: int = 5, longest: int = 8) -> Tensor:
    """Return source sentences of different lengths, `(batch, longest)`, each with eos and padded on the right."""
    rng = random.Random(seed)
    source = torch.full((batch, longest), PAD)
    for row in source:
        length = rng.randint(1, longest)
        row[:length] = torch.tensor([rng.randint(3, 10) for _ in range(length - 1)] + [EOS])
    return source


class TableModel:
    """A model that looks up its logits by source and prefix: it has only the methods that decoders may use.

    It records the mode and the gradient setting of each call.
    """

    def __init__(self, seed: int, target_vocab: int = 5, eos_bonus: float = 0.0, training: bool = True) -> None:
        self.config = TransformerConfig(source_vocab=11, target_vocab=target_vocab)
        self.seed, self.eos_bonus, self.training = seed, eos_bonus, training
        self.asked: list[tuple[bool, bool]] = []  # (training, gradients)

    def eval(self) -> None:
        self.training = False

    def train(self, mode: bool = True) -> None:
        self.training = mode

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        self.asked.append((self.training, torch.is_grad_enabled()))
        return source[:, :, None].double(), (source != PAD)[:, None, None, :]

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        self.asked.append((self.training, torch.is_grad_enabled()))
        rows = []
        for tokens, sentence, mask in zip(target.tolist(), memory[:, :, 0], source_mask[:, 0, 0], strict=True):
            words = sentence[mask].int().tolist()
            rows.append(torch.stack([self.logits(words, tokens[: end + 1]) for end in range(len(tokens))]))
        return torch.stack(rows)  # (batch, target, vocab)

    def logits(self, source: list[int], prefix: list[int]) -> Tensor:
        """Return `(vocab,)`: the same for the same source and prefix, bos included, and different for any other."""
        rng = random.Random(f"{self.seed} {source} {prefix}")
        logits = torch.tensor([rng.gauss(0, 2) for _ in range(self.config.target_vocab)], dtype=torch.float64)
        logits[EOS] += self.eos_bonus
        return logits


@pytest.fixture(scope="session")
def sharpened_model():
    return make_sharpened_model


@pytest.fixture(scope="session")
def random_sources():
    return make_random_sources


@pytest.fixture(scope="session")
def table_model():
    return TableModel
