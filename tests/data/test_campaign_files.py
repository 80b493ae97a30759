"""Read TED talks in the IWSLT campaigns' format: training lines with tags between them, and evaluation sets in XML."""

from pathlib import Path

import pytest

from transformer_lab.data import load_corpus


def write_set(folder: Path, name: str, language: str, texts: list[str], direction: str = "de-en") -> Path:
    """Write an evaluation set of two talks. The second talk starts again with segment 1."""
    middle = len(texts) // 2
    talks = [("535", texts[:middle]), ("531", texts[middle:])]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<srcset setid="{name}" srclang="english">']
    for talk, segments in talks:
        lines += [f'<doc docid="{talk}" genre="lectures">', "<title>Not & a sentence</title>"]
        lines += [f'<seg id="{number}">  {text}  </seg>' for number, text in enumerate(segments, start=1)]
        lines.append("</doc>")
    path = folder / f"IWSLT17.TED.{name}.{direction}.{language}.xml"
    path.write_text("\n".join([*lines, "</srcset>", ""]), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for language, word in (("de", "Satz"), ("en", "sentence")):
        (tmp_path / f"train.{language}").write_text("".join(f"{word} {n}\n" for n in range(5)), encoding="utf-8")
        for name in ("dev2010", "dev2012", "tst2010", "tst2011"):
            write_set(tmp_path, name, language, [f"{word} {n} &amp; {name}" for n in range(4)])
    return tmp_path


def test_the_first_development_set_is_for_validation_and_all_others_for_testing(folder: Path):
    corpus = load_corpus(folder)
    assert corpus.validation == [(f"Satz {n} & dev2010", f"sentence {n} & dev2010") for n in range(4)]
    assert list(corpus.tests) == ["tst2010", "tst2011", "dev2012"]
    assert corpus.test[3] == ("Satz 3 & tst2010", "sentence 3 & tst2010")
    assert load_corpus(folder, "en", "de").test[3] == ("sentence 3 & tst2010", "Satz 3 & tst2010")


def test_plain_files_take_precedence(folder: Path):
    for language in ("de", "en"):
        for name in ("valid", "test"):
            (folder / f"{name}.{language}").write_text(f"{name} {language}\n", encoding="utf-8")
    corpus = load_corpus(folder)
    assert corpus.validation == [("valid de", "valid en")]
    assert list(corpus.tests) == ["test", "tst2010", "tst2011", "dev2010", "dev2012"]


def test_segments_are_paired_by_talk_and_number(folder: Path):
    """One side has an extra line and a different order of talks, so pairing line by line would mismatch everything."""
    path = folder / "IWSLT17.TED.tst2010.de-en.en.xml"
    head, first, second = path.read_text(encoding="utf-8").split("<doc")
    tail = "</srcset>\n"
    path.write_text(f"{head}<doc{second.removesuffix(tail)}<url></url>\n<doc{first}{tail}", encoding="utf-8")
    assert load_corpus(folder).test[3] == ("Satz 3 & tst2010", "sentence 3 & tst2010")


def test_a_bare_ampersand_is_text(folder: Path):
    """Published sets contain bare ampersands, even though no XML parser accepts them."""
    write_set(folder, "tst2010", "de", ["R&D", "a &lt; b", "c", "d"])
    assert [german for german, _ in load_corpus(folder).test] == ["R&D", "a < b", "c", "d"]


def test_the_requested_direction_is_preferred(folder: Path):
    for language in ("de", "en"):
        write_set(folder, "tst2010", language, [f"other {language}"] * 4, direction="en-de")
    assert load_corpus(folder).test[0] == ("Satz 0 & tst2010", "sentence 0 & tst2010")
    assert load_corpus(folder, "en", "de").test[0] == ("other en", "other de")


@pytest.mark.parametrize(
    ("old", "new", "language", "message"),
    [
        ("</seg>", "", "de", "line 5: segment 1 of document 535 does not end in </seg>: correct it"),
        ('<seg id="2">', '<seg id="1">', "de", "line 6: segment 1 of document 535 occurs a second time: renumber it"),
        ('<seg id="2">', '<seg id="3">', "de", "line 6: segment 3 of document 535 is not in"),
        ('<seg id="2">  Satz 1 &amp; tst2010  </seg>\n', "", "en", "line 6: segment 2 of document 535 is not in"),
    ],
)
def test_a_faulty_segment_is_named_with_its_line(folder: Path, old, new, language, message, refusal):
    path = folder / "IWSLT17.TED.tst2010.de-en.de.xml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert refusal(folder).startswith(f"{folder}/IWSLT17.TED.tst2010.de-en.{language}.xml, {message}")


def test_empty_and_missing_sets_are_named(folder: Path, refusal):
    paths = [folder / f"IWSLT17.TED.tst2011.de-en.{language}.xml" for language in ("de", "en")]
    for path in paths:
        path.write_text("<doc docid='1'>\n</doc>\n", encoding="utf-8")
    assert refusal(folder) == f"{paths[0]} has no sentences: add some, or give another corpus"
    paths[1].unlink()
    assert refusal(folder).startswith("there is no IWSLT17.TED.tst2011.de-en.en.xml next to")


def test_metadata_is_not_read_as_sentences(folder: Path):
    for language, word in (("de", "Satz"), ("en", "sentence")):
        (folder / f"train.{language}").unlink()
        about = [] if language == "en" else ["<reviewer>somebody</reviewer>"]
        lines = ["<url>http://example.org</url>", "<keywords>a, b</keywords>", *about, "<talkid>1</talkid>"]
        lines += [f"<title>{word} title</title>", f"<description>{word} described</description>", f" {word} <5 0 "]
        (folder / f"train.tags.de-en.{language}").write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert load_corpus(folder).train == [
        ("Satz title", "sentence title"),
        ("Satz described", "sentence described"),
        ("Satz <5 0", "sentence <5 0"),
    ]


def test_the_name_of_a_training_file_may_have_a_suffix(folder: Path, refusal):
    for language in ("de", "en"):
        (folder / f"train.{language}").rename(folder / f"train_small.{language}")
    assert len(load_corpus(folder).train) == 5
    (folder / "train_large.de").write_text("Satz\n", encoding="utf-8")
    assert refusal(folder) == (
        f"{folder} has several files to train on (train_large, train_small): rename the right one to train.de"
    )


def test_the_ted_sample(real_data: Path, monkeypatch):
    """The expected counts are the segment counts published by the campaign itself.

    The corpus is found by its name alone.
    """
    monkeypatch.setenv("TRANSFORMER_LAB_DATA", str(real_data))
    corpus = load_corpus("ted_de_en")
    assert corpus.name == "ted_de_en"
    assert (len(corpus.train), len(corpus.validation)) == (20_000, 888)
    assert {name: len(pairs) for name, pairs in corpus.tests.items()} == {"tst2010": 1568, "tst2012": 1700}
    assert corpus.train[0] == ("Vielen Dank, Chris.", "Thank you so much, Chris.")
    assert corpus.test[0][1].startswith("Several years ago here at TED, Peter Skillman")
    assert not any("<" in sentence[:1] for split in (corpus.train, corpus.test) for pair in split for sentence in pair)
