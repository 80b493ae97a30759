"""Without these tests, decoding could change the text, or a rare character could contribute nothing to the score."""

import pytest
import torch

from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.errors import InputError

TEXT = "The dog runs.\nThe dogs run, and the cat runs.\n" * 30
STRANGE = "  Hé\t\tllo  wörld\n\n   <0x41> 😀 漢字 12 a\u2028b \r x<eos>\n"


@pytest.fixture(params=[0, 40], ids=["characters", "byte pairs"])
def tokenizer(request) -> TextTokenizer:
    return TextTokenizer.train(TEXT, request.param)


@pytest.mark.parametrize("text", [TEXT, STRANGE, "", "\n", "\n\n", " ", "ends without a break"])
def test_decoding_restores_every_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == torch.int64
    assert tokenizer.decode(ids) == text


def test_without_merges_a_token_is_a_character():
    tokenizer = TextTokenizer.train(TEXT)
    assert tokenizer.merges == []
    assert len(tokenizer.encode(TEXT)) == len(TEXT)
    assert tokenizer.names(tokenizer.encode("The\n d")) == ["T", "h", "e", "⏎", "▁", "d"]


def test_merges_make_the_text_shorter_and_keep_words_apart():
    tokenizer = TextTokenizer.train(TEXT, 40)
    assert len(tokenizer) == 256 + len(set(TEXT)) + len(tokenizer.merges)
    assert len(tokenizer.encode(TEXT)) < len(TEXT) / 2
    for token in tokenizer.tokens[256:]:
        assert " " not in token[1:]
        assert token == "\n" or "\n" not in token


def test_rare_characters_are_encoded_as_bytes():
    tokenizer = TextTokenizer.train(TEXT + "é")
    assert tokenizer.names(tokenizer.encode("é")) == ["<0xC3>", "<0xA9>"]
    assert "é" in TextTokenizer.train(TEXT + "é", rare=1).tokens


def test_invalid_bytes_are_shown_as_replacement_characters(tokenizer):
    assert tokenizer.decode([0xC3]) == "\ufffd"


def test_the_vocabulary_has_a_line_break_even_if_the_text_has_none():
    tokenizer = TextTokenizer.train("aaabbb")
    assert tokenizer.names(tokenizer.encode("\na")) == ["⏎", "a"]


def test_a_negative_number_of_merges_is_refused():
    with pytest.raises(InputError, match="n_merges is -1"):
        TextTokenizer.train(TEXT, -1)
