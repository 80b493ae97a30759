"""Without these tests, a crash could leave a half-written gradebook, or a link could redirect a report elsewhere."""

import os

import pytest

from transformer_lab.errors import InputError
from transformer_lab.files import clean, file_names, on_screen, write_file


def test_a_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    """A full disk or a crash while writing must leave the old file and no temporary files."""
    path = tmp_path.resolve() / "gradebook.csv"
    write_file(path, "old")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        with pytest.raises(InputError, match="No space left"):
            write_file(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["gradebook.csv"]
    write_file(path, "new")
    assert path.read_text() == "new"


def test_a_link_is_replaced_and_not_followed(tmp_path):
    """Writing a report over a link must not overwrite the file the link points to."""
    target, path = tmp_path.resolve() / "target", tmp_path.resolve() / "summary.html"
    target.write_text("precious")
    path.symlink_to(target)
    write_file(path, "report")
    assert target.read_text() == "precious"
    assert path.read_text() == "report"
    assert not path.is_symlink()


def test_a_folder_that_is_a_link_is_rejected(tmp_path):
    elsewhere, folder = tmp_path.resolve() / "elsewhere", tmp_path.resolve() / "feedback"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    for name in ("ada.html", "deeper/ada.html"):
        with pytest.raises(InputError, match="is a link"):
            write_file(folder / name, "report")
    assert list(elsewhere.rglob("*.html")) == []


def test_file_names_are_safe_and_unique():
    names = [
        "Ada Lovelace",
        "ada lovelace",  # on macOS and Windows, this is the same file
        "../../etc/passwd",
        "-rf",
        ".hidden",
        "..",
        "con",
        "Jürgen Müller",
        "王小明",
        "ü" * 300,
        "ü" * 301,
        "a\nb",
        "a\udc80b",
        "",
        "trailing dot.",
    ]
    given = file_names(names)
    assert all(given[name] == name for name in ("Ada Lovelace", "Jürgen Müller", "王小明"))
    assert len({name.casefold() for name in given.values()}) == len(names)
    for name in given.values():
        assert name == os.path.basename(name)
        assert not name.startswith((".", "-"))
        assert not name.endswith((" ", "."))
        assert 0 < len(name.encode()) < 200
        assert name.isprintable()
        assert name.casefold() not in ("con", "")


def test_control_characters_do_not_reach_the_terminal():
    assert on_screen("Eve\x1b[2J\x1b]0;title\x07\r\n\u202egnp.exe\x9b31m") == "Eve�[2J�]0;title���\ufffdgnp.exe�31m"
    assert on_screen("Jürgen 王小明 😀") == "Jürgen 王小明 😀"


def test_clean_text_fits_into_xml_and_utf8():
    text = clean("a\x00\x1b\x0b\ud800\ufffe\uffff b\n\té😀")
    assert text == "a�\ufffd���� b\n\té😀"
    text.encode("utf-8")


def test_clean_text_has_no_direction_overrides():
    """A direction override can make `return 0` look like an answer. Terminals also obey control characters above
    U+007F."""
    unsafe = [*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    assert clean("".join(map(chr, unsafe))) == "\ufffd" * len(unsafe)
    assert clean("שלום \u200fعليكم\xa0") == "שלום \u200fعليكم\xa0"
