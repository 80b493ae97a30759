"""The reader's own text is either split without losing a character or rejected with a one-line error."""

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
def test_a_file_is_split_at_a_line_and_nothing_is_lost(tmp_path, packed):
    path = tmp_path / ("story.txt.gz" if packed else "story.txt")
    path.write_bytes(gzip.compress(NOVEL.encode()) if packed else NOVEL.encode())
    text = load_text(path)
    assert text.name == "story"
    assert text.train + text.validation == NOVEL
    assert text.train.endswith("\n")
    assert 0.09 < len(text.validation) / len(NOVEL) <= 0.1


@pytest.mark.parametrize(
    ("content", "start", "length"),
    [
        (b"\xef\xbb\xbf" + "cafe\u0301 noir\r\n".encode() * 300, "caf\u00e9 noir\ncaf", 3000),  # from Windows
        (b"def f():\n    return  1\n\n\n" * 200, "def f():\n    return  1\n\n\ndef", 4998),
        (b"word " * 1000, "word word", 5001),  # a single line
    ],
)
def test_white_space_is_kept_and_line_ends_are_normalized(tmp_path, content, start, length):
    (tmp_path / "own.txt").write_bytes(content)
    text = load_text(tmp_path / "own.txt")
    assert text.train.startswith(start)
    assert len(text.train + text.validation) == length
    assert 0.09 < len(text.validation) / length <= 0.11


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty: give a file"),
        (b"\n \n\t\n", "is empty: give a file"),
        (b"Once upon a time.\n", r"has 18 characters, too few to learn from: give at least 2,000"),
        (b"Once upon a time.", r"has 17 characters, too few to learn from: give at least 2,000"),
        (b"good line\nK\xe4se\n", r"line 2: not valid UTF-8: save the file as UTF-8"),
        (b"PNG\0\0" * 900, r"line 1: a NUL byte, which text never contains"),
    ],
)
def test_an_unusable_text_is_refused_in_one_line(tmp_path, content, says):
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as raised:
        load_text(path)
    assert "own.txt" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="is a folder: give one text file"):
        load_text(tmp_path)
    with pytest.raises(InputError, match=r"no text .*nothing.txt.: give captions, or an existing file"):
        load_text(tmp_path / "nothing.txt")
