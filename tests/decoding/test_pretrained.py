"""Test the decoders with the included model and real sentences in single precision."""

from transformer_lab.data import pad_batch
from transformer_lab.decoding import beam_search, greedy_decode
from transformer_lab.decoding.translator import DEFAULT_ALPHA


def test_greedy_decoding_with_a_cache_is_greedy(pretrained, test2016, greedy_share):
    found = pretrained.search(test2016[0], 1, 0.0, None)
    assert greedy_share(test2016[0], found) == 1.0


def test_a_sample_with_and_without_a_cache(pretrained, test2016):
    """This test compares a sample of sentences. `benchmarks/decoding.py --all` compares all of them."""
    sample = test2016[0][::30]
    sources = [pad_batch([source], 0) for source in pretrained.tokenizer.encode_sources(sample)]
    greedy = [greedy_decode(pretrained.model, source, 60)[0] for source in sources]
    assert pretrained.search(sample, 1, 0.0, 60) == greedy
    beam = [beam_search(pretrained.model, source, 4, DEFAULT_ALPHA, source.size(1) + 50)[0] for source in sources]
    assert pretrained.search(sample, 4, DEFAULT_ALPHA, None) == beam


def test_the_sentence_of_the_readme(pretrained):
    """The translation in the README is the first that readers see, so it must be right."""
    translation = pretrained.translate(["Ein kleiner Junge spielt draußen mit einem Ball."])[0].lower()
    assert all(word in translation for word in ("boy", "play", "outside", "ball"))
