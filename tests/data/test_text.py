"""A text of the reader's own: what it may look like, and the one line that says what is wrong with it."""

import gzip

import pytest

from transformer_lab.data import load_corpus, load_text
from transformer_lab.errors import InputError

NOVEL = "".join(f"Line {number} of a story.\n" for number in range(300))


def test_captions_are_the_english_side_line_by_line():
    text, corpus = load_text("captions"), load_corpus("captions")
    assert text.train.split("\n")[:-1] == [english for _, english in corpus.train]
    assert text.validation.split("\n")[:-1] == [english for _, english in corpus.validation]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_cut_at_a_line_and_nothing_is_lost(tmp_path, packed):
    path = tmp_path / ("story.txt.gz" if packed else "story.txt")
    path.write_bytes(gzip.compress(NOVEL.encode()) if packed else NOVEL.encode())
    text = load_text(path)
    assert text.name == "story"
    assert text.train + text.validation == NOVEL
    assert text.train.endswith("\n")
    assert 0.09 < len(text.validation) / len(NOVEL) <= 0.1


def test_line_ends_bom_and_accents_have_one_spelling(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ("cafe\u0301 noir\r\n" * 300).encode())
    text = load_text(path)
    assert text.train.startswith("caf\u00e9 noir\ncaf")
    assert "\r" not in text.train + text.validation


def test_white_space_inside_is_kept(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("def f():\n    return  1\n\n\n" * 200, encoding="utf-8")
    assert load_text(path).train.startswith("def f():\n    return  1\n\n\ndef")


def test_one_endless_line_is_cut_too(tmp_path):
    path = tmp_path / "endless.txt"
    path.write_text("word " * 1000, encoding="utf-8")
    text = load_text(path)
    assert len(text.train) == 4500
    assert text.train + text.validation == "word " * 1000 + "\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty: give a file"),
        (b"\n \n\t\n", "is empty: give a file"),
        (b"Once upon a time.\n", r"has 18 characters, too few to learn from: give at least 2,000"),
        (b"Once upon a time.", r"has 17 characters, too few to learn from: give at least 2,000"),
        (b"good line\nK\xe4se\n", r"line 2: not valid UTF-8: save the file as UTF-8"),
        (b"PNG\0\0" * 900, r"line 1: a NUL byte, which no text has"),
    ],
)
def test_what_cannot_be_used_is_answered_in_one_line(tmp_path, content, says):
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as raised:
        load_text(path)
    assert "own.txt" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_file_is_named(tmp_path):
    with pytest.raises(InputError, match="is a folder: give one text file"):
        load_text(tmp_path)
    with pytest.raises(InputError, match=r"no text .*nothing.txt.: give captions, or an existing file"):
        load_text(tmp_path / "nothing.txt")
