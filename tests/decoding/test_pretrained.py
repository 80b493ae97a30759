"""The decoders on the model that comes with the package, with real sentences, in single precision."""

import gzip

import pytest
import torch

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


def test_greedy_with_a_cache_is_greedy_on_all_of_test2016(translator, sentences):
    """A pass over source and translation, without a cache, gives the most likely token after each prefix.

    If these are the generated tokens, the translation is greedy. This proves as much as decoding all sentences without
    a cache, which takes a minute.
    """
    model, pad, bos, eos = translator.model, 0, 1, 2
    sources = translator.tokenizer.encode_sources(sentences)
    found = translator.search(sentences, 1, 0.0, 60)
    labels = [[*ids, eos] if len(ids) < 60 else ids for ids in found]
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for start in range(0, len(order), 100):
        batch = order[start : start + 100]
        source = pad_batch([sources[index] for index in batch], pad)
        label = pad_batch([labels[index] for index in batch], pad)
        target = torch.cat([torch.full((len(batch), 1), bos), label[:, :-1]], dim=1)
        with torch.no_grad():
            likeliest = model(source, target).argmax(dim=-1)
        assert torch.equal(likeliest[label != pad], label[label != pad])


def test_a_sample_of_test2016_with_and_without_a_cache(translator, sentences):
    """Every 40th sentence. `benchmarks/decoding.py --all` compares all of them."""
    sample = sentences[::40]
    sources = [pad_batch([source], 0) for source in translator.tokenizer.encode_sources(sample)]
    greedy = [greedy_decode(translator.model, source, 60)[0] for source in sources]
    assert translator.search(sample, 1, 0.0, 60) == greedy
    beam = [beam_search(translator.model, source, 4, DEFAULT_ALPHA, source.size(1) + 50)[0] for source in sources]
    assert translator.search(sample, 4, DEFAULT_ALPHA, None) == beam


def test_the_sentence_of_the_readme(translator):
    """This is the model's first translation that a reader sees, so it must be right."""
    translation = translator.translate(["Ein kleiner Junge spielt draußen mit einem Ball."])[0].lower()
    assert all(word in translation for word in ("boy", "play", "outside", "ball"))
