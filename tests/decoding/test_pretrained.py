"""The decoders on the model that comes with the package and on real sentences, in single precision."""

import gzip

import pytest

from transformer_lab.data import pad_batch
from transformer_lab.decoding import beam_search, greedy_decode, load_pretrained
from transformer_lab.decoding.translator import DEFAULT_ALPHA, PRETRAINED


@pytest.fixture(scope="module")
def translator():
    if not PRETRAINED.is_dir():
        pytest.skip(f"no trained model: {PRETRAINED} is missing")
    return load_pretrained()


@pytest.fixture(scope="module")
def sentences(real_data):
    with gzip.open(real_data / "multi30k" / "test_2016_flickr.de.gz", "rt", encoding="utf-8") as file:
        return [line.strip() for line in file]


def test_greedy_with_and_without_a_cache_on_all_of_test2016(translator, sentences):
    sources = translator.tokenizer.encode_sources(sentences)
    found = translator.search(sentences, 1, 0.0, 60)
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for start in range(0, len(order), 100):
        batch = order[start : start + 100]
        plain = greedy_decode(translator.model, pad_batch([sources[index] for index in batch], 0), 60)
        assert [found[index] for index in batch] == plain


@pytest.mark.parametrize("alpha", [0.6, DEFAULT_ALPHA])
def test_beam_search_with_and_without_a_cache(translator, sentences, alpha):
    """Every 40th sentence: `benchmarks/decoding.py --all` compares them all."""
    sample = sentences[::40]
    sources = translator.tokenizer.encode_sources(sample)
    plain = [beam_search(translator.model, pad_batch([source], 0), 4, alpha, len(source) + 50)[0] for source in sources]
    assert translator.search(sample, 4, alpha, None) == plain


def test_the_sentence_of_the_readme(translator):
    """The first thing a reader sees of the model must be right."""
    translation = translator.translate(["Ein kleiner Junge spielt draußen mit einem Ball."])[0].lower()
    assert all(word in translation for word in ("boy", "play", "outside", "ball"))
