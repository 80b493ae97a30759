"""Test the file of the `captions` corpus in the package, and how the corpus is split."""

import hashlib

import pytest

from transformer_lab.data.captions import FILE, Caption, load_captions


@pytest.fixture(scope="module")
def corpus() -> list[Caption]:
    return load_captions()


def test_published_scores_are_for_these_sentences(corpus):
    """If you generate different sentences, change this hash and measure all scores on captions again."""
    text = "".join(f"{caption.german}\t{caption.english}\t{caption.links}\n" for caption in corpus)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "779b0f1db8010957"


def test_no_sentence_occurs_twice(corpus):
    """A repeated sentence could be in both the training set and a test set."""
    assert len(corpus) == 50_000
    assert len({caption.german for caption in corpus}) == len(corpus)
    assert len({caption.english for caption in corpus}) == len(corpus)


def test_a_line_of_the_file_becomes_tokens_and_links():
    caption = Caption("Ein Hund, der bellt.", "A dog that is barking.", "0-0 1-1 3-2 4-3 4-4 5-5")
    assert caption.german_tokens == ("Ein", "Hund", ",", "der", "bellt", ".")
    assert caption.english_tokens == ("A", "dog", "that", "is", "barking", ".")
    assert caption.alignment == ((0, 0), (1, 1), (3, 2), (4, 3), (4, 4), (5, 5))


def test_tokens_are_those_of_spacys_blank_tokenizers(corpus):
    """Word alignments count tokens. A tokenizer that splits differently would shift every link.

    spaCy's rules look at the text between two spaces, so it is enough to test every such chunk of the corpus once.
    """
    spacy = pytest.importorskip("spacy")
    for code, side in (("de", "german"), ("en", "english")):
        tokenize = spacy.blank(code).tokenizer
        chunks = {chunk for caption in corpus for chunk in getattr(caption, side).split(" ")}
        for chunk in chunks:
            expected = [chunk[:-1], chunk[-1]] if chunk[-1] in ",." else [chunk]
            assert [token.text for token in tokenize(chunk)] == expected
        for caption in corpus[:300]:
            expected = getattr(caption, f"{side}_tokens")
            assert [token.text for token in tokenize(getattr(caption, side))] == list(expected)


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "altered", "another format"])
def test_a_damaged_file_is_named_in_one_line(tmp_path, monkeypatch, damage, refusal):
    """An interrupted installation must not look like a bug in the course.

    No model may be trained on half of the captions.
    """
    path = tmp_path / "captions.tsv.xz"
    whole = FILE.read_bytes()
    half = len(whole) // 2
    content = {
        "empty": b"",
        "truncated": whole[:half],
        "altered": whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :],
        "another format": b"Ein Hund bellt.\tA dog is barking.\n",
    }
    if damage != "missing":
        path.write_bytes(content[damage])
    monkeypatch.setattr("transformer_lab.data.captions.FILE", path)
    message = refusal("captions")
    assert message.startswith(f"{path} cannot be read (")
    assert message.endswith("install transformer-lab again")
