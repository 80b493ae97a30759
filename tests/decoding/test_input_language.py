"""English input to a German-English model must trigger a warning, and German input must never trigger one."""

import pytest

from transformer_lab.data import load_corpus
from transformer_lab.decoding.input_language import FUNCTION_WORDS, in_target_language


def test_no_word_is_in_both_lists():
    """A word in both lists would count for both languages and carry no information."""
    assert not FUNCTION_WORDS["de"] & FUNCTION_WORDS["en"]


@pytest.mark.parametrize(
    "sentence",
    [
        "Ein Mann singt „The Winner Takes It All“.",
        "In New York, Boston und Washington",
        "Was war das?",
        "Mann in Not",
        "Peter will Eis essen.",
        "Band",
        "42",
    ],
)
def test_german_with_english_words_is_german(sentence):
    assert in_target_language([sentence], "de", "en") == []


def test_the_numbers_of_the_sentences_are_returned():
    assert in_target_language(["Ein Hund.", "The dog is here.", "Noch ein Hund.", "It’s me"], "de", "en") == [2, 4]
    assert in_target_language(["Das ist ein Hund.", "The dog is here.", "King Arthur dies today."], "en", "de") == [1]


def test_other_languages_are_left_alone():
    assert in_target_language(["The dog is here."], "de", "fr") == []


def test_all_of_multi30k(real_data):
    """A false alarm is worse than no warning, so no German sentence may cause one."""
    pairs = [pair for test in load_corpus("multi30k", data_dir=real_data).tests.values() for pair in test]
    german, english = zip(*pairs, strict=True)
    assert len(german) == 2461
    assert in_target_language(german, "de", "en") == []
    long = [sentence for sentence in english if len(sentence.split()) >= 5]
    assert len(in_target_language(long, "de", "en")) > 0.99 * len(long)
