"""Fixtures for the tests of the plots."""

import itertools
from types import SimpleNamespace

import pytest
import torch

SOURCE = ["▁Ein", "▁Hund", "▁rennt", "<eos>"]
TARGET = ["<bos>", "▁A", "▁dog", "▁runs", "."]


class SpokenAttention:
    """A fake translator whose attention is known and differs between all stacks, layers, and heads."""

    layers, heads = 2, 3
    tokenizer = SimpleNamespace(source="de", target="en")

    def attention(self, sentence, translation=None):
        recorded = {}
        numbers = itertools.count(1)
        for stack, module, queries, keys in (
            ("encoder", "self_attention", SOURCE, SOURCE),
            ("decoder", "self_attention", TARGET, TARGET),
            ("decoder", "cross_attention", TARGET, SOURCE),
        ):
            for layer in range(self.layers):
                seeded = torch.Generator().manual_seed(next(numbers))
                scores = torch.randn(1, self.heads, len(queries), len(keys), generator=seeded)
                recorded[f"{stack}.layers.{layer}.{module}"] = scores.softmax(dim=-1)
        return recorded, SOURCE, TARGET


@pytest.fixture
def translator() -> SpokenAttention:
    return SpokenAttention()


@pytest.fixture(scope="session")
def untrained_translator():
    """Return a function that builds a real translator, small enough to answer at once."""
    from transformer_lab.data import BpeTokenizer
    from transformer_lab.decoding import Translator
    from transformer_lab.model import Transformer, TransformerConfig

    pairs = [("Ein Hund rennt.", "A dog runs."), ("Zwei Frauen sitzen draußen.", "Two women sit outside.")]
    tokenizer = BpeTokenizer.train(pairs * 4, vocab_size=600)

    def build(**sizes) -> Translator:
        torch.manual_seed(1)
        config = TransformerConfig(tokenizer.source_size, tokenizer.target_size, **sizes)
        return Translator(Transformer(config).eval(), tokenizer)

    return build


@pytest.fixture(autouse=True)
def _nothing_stays_open():
    """Assert that pyplot does not keep any figures open. They would use memory and appear twice in a notebook."""
    yield
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


@pytest.fixture
def cut_off():
    """Return a function that lists the texts that extend beyond the edge of a figure."""

    def texts(figure) -> list[str]:
        from matplotlib.text import Text

        figure.draw_without_rendering()
        not_drawn = set()  # tick labels beyond the ends of an axis
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            start, end = sorted(axis.get_view_interval())
            beyond = [tick for tick in axis.get_major_ticks() if not start <= tick.get_loc() <= end]
            not_drawn.update(label for tick in beyond for label in (tick.label1, tick.label2))
        edge = figure.bbox.padded(1.0)
        over = []
        for text in figure.findobj(Text):
            box = text.get_window_extent()
            inside = edge.x0 <= box.x0 and box.x1 <= edge.x1 and edge.y0 <= box.y0 and box.y1 <= edge.y1
            if text.get_visible() and text.get_text() and text not in not_drawn and not inside:
                over.append(text.get_text())
        return over

    return texts
