"""Small models that make decoding interesting: their translations differ and end early, late, or never."""

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from transformer_lab.data import pad_batch
from transformer_lab.decoding import Translator, load_pretrained
from transformer_lab.decoding.table_model import TableModel
from transformer_lab.decoding.translator import PRETRAINED
from transformer_lab.model import Transformer, TransformerConfig

PAD, BOS, EOS = 0, 1, 2


def make_sharpened_model(
    seed: int, target_vocab: int = 12, sharpness: float = 4.0, eos_bonus: float = 0.0, **own_sizes
) -> Transformer:
    """Return a random Transformer with dropout and very uneven predictions, in double precision and training mode.

    In double precision, cached and uncached sums agree to 1e-15, so equal tokens are no coincidence. Pad and bos are
    never predicted: they are left out of translations, so a sentence that ended with them would seem to end with eos.
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
        model.output.weight[EOS] *= 1.5  # makes eos very likely in some cases and very unlikely in others
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


class RandomTable(TableModel):
    """A `TableModel` with random logits that depend only on the source word and the prefix."""

    def __init__(self, seed: int, target_vocab: int = 5, eos_bonus: float = 0.0, training: bool = True) -> None:
        super().__init__({}, training=training, target_vocab=target_vocab)
        self.seed, self.eos_bonus = seed, eos_bonus

    def decode(self, *arguments: Tensor) -> Tensor:
        assert not self.training, "decoders must switch to evaluation mode"
        return super().decode(*arguments)

    def logits(self, word: int, tokens: list[int]) -> list[float]:
        rng = random.Random(f"{self.seed} {word} {tokens}")
        logits = [rng.gauss(0, 2) for _ in range(self.config.target_vocab)]
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
    return RandomTable


@pytest.fixture(scope="session")
def pretrained() -> Translator:
    if not PRETRAINED.is_dir():
        pytest.skip(f"no trained model: {PRETRAINED} is missing")
    return load_pretrained()


@pytest.fixture(scope="session")
def test2016(real_data: Path) -> tuple[list[str], list[str]]:
    """Return every fourth German and English sentence of Multi30k's 2016 test set. `benchmarks/` uses all of them."""
    sides = []
    for language in ("de", "en"):
        with gzip.open(real_data / "multi30k" / f"test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.strip() for line in file][::4])
    return sides[0], sides[1]


@pytest.fixture(scope="session")
def greedy_share(pretrained: Translator) -> Callable[[Sequence[str], Sequence[Sequence[int]]], float]:
    """Return the share of translations in which each token, including eos, is the most likely one given the prefix.

    A single pass of the model over sources and translations takes a fifth of the time needed to decode them.
    """

    def greedy_share(sentences: Sequence[str], translations: Sequence[Sequence[int]]) -> float:
        source = pad_batch(pretrained.tokenizer.encode_sources(sentences), PAD)
        label = pad_batch([[*ids, EOS] for ids in translations], PAD)  # (batch, target)
        target = torch.cat([torch.full_like(label[:, :1], BOS), label[:, :-1]], dim=1)
        with torch.no_grad():
            likeliest = pretrained.model(source, target).argmax(dim=-1)
        return ((likeliest == label) | (label == PAD)).all(dim=1).double().mean().item()

    return greedy_share
