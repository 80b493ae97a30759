"""Test that every corpus format is read correctly and that every error is reported with its file and line."""

import gzip
import random
from pathlib import Path

import pytest

from transformer_lab.data import Corpus, find_multi30k, load_corpus
from transformer_lab.data.captions import load_captions
from transformer_lab.data.corpora import letters_and_digits, related_pairs
from transformer_lab.errors import InputError


def write(path: Path, lines: list[str] | bytes) -> Path:
    content = lines if isinstance(lines, bytes) else "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, number in (("train", 3), ("val", 2), ("test", 1)):
        write(tmp_path / f"{split}.de", [f"{split} Satz {index}" for index in range(number)])
        write(tmp_path / f"{split}.en", [f"{split} sentence {index}" for index in range(number)])
    return tmp_path


# --- folders ---


def test_a_folder_has_three_splits(folder: Path):
    corpus = load_corpus(str(folder))
    assert (corpus.name, corpus.source, corpus.target) == (folder.name, "de", "en")
    assert corpus.train == [(f"train Satz {index}", f"train sentence {index}") for index in range(3)]
    assert len(corpus.validation) == 2
    assert list(corpus.tests) == ["test"]
    assert corpus.test == corpus.tests["test"] == [("test Satz 0", "test sentence 0")]
    assert load_corpus(folder, "en", "de").train[0] == ("train sentence 0", "train Satz 0")


@pytest.mark.parametrize("name", ["val", "valid", "validation", "dev"])
def test_usual_names_and_gzip(folder: Path, name: str):
    for language in ("de", "en"):
        content = (folder / f"val.{language}").read_bytes()
        (folder / f"val.{language}").unlink()
        write(folder / f"{name}.{language}.gz", content)
    assert len(load_corpus(folder).validation) == 2


def test_every_test_set_has_its_name(folder: Path):
    for name in ("test_2017_flickr", "test2018"):
        for language in ("de", "en"):
            write(folder / f"{name}.{language}.gz", [name])
    write(folder / "._test.de", b"\x00\x05\x16\x07\xff")  # macOS leaves such files in archives
    assert list(load_corpus(folder).tests) == ["test", "test2018", "test_2017_flickr"]


def test_only_a_newline_ends_a_line(folder: Path):
    """`str.splitlines` also splits at other characters, which would shift every pair after the first such line."""
    odd = ["a\u2028b", "c\u0085d\x0ce", "f\x1cg"]
    write(folder / "train.de", odd)
    assert load_corpus(folder).train == [
        ("a b", "train sentence 0"),
        ("c d e", "train sentence 1"),
        ("f g", "train sentence 2"),
    ]


def test_white_space_and_unicode_are_normalized(folder: Path):
    """Real files have no-break spaces, Windows line endings, BOMs, decomposed umlauts, and no final newline."""
    write(folder / "train.de", "\ufeffein\u00a0 Hund \r\n\tzwei\r\nMa\u0308dchen".encode())
    assert [source for source, _ in load_corpus(folder).train] == ["ein Hund", "zwei", "M\u00e4dchen"]


def test_pairs_with_a_blank_side_are_left_out_and_counted(folder: Path, caplog):
    write(folder / "train.de", ["eins", " \u00a0", "drei", ""])
    write(folder / "train.en", ["one", "two", "three", "four"])
    assert load_corpus(folder).train == [("eins", "one"), ("drei", "three")]
    [message] = caplog.messages
    assert message == f"{folder / 'train.de'}: skipped 2 pairs with an empty side, the first on line 2"


def test_unequal_files_are_named_with_both_counts(folder: Path, refusal):
    write(folder / "train.en", ["one", "two"])
    assert refusal(folder).startswith(f"{folder / 'train.de'} has 3 lines but {folder / 'train.en'} has 2")


LINES = gzip.compress("".join(f"Satz {number}\n" for number in range(1000)).encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.de", b"gut\nauch gut\nM\xe4dchen\n", ", line 3: not valid UTF-8"),
        ("train.de.gz", gzip.compress(b"gut\nauch gut\nM\xe4dchen\n", mtime=0), ", line 3: not valid UTF-8"),
        ("train.de", b"gut\nda\0neben\ngut\n", ", line 2: a NUL byte"),
        ("train.de.gz", LINES[: len(LINES) // 2], " cannot be read"),
        ("train.de.gz", b"not gzip", " cannot be read"),
        ("train.de.gz", LINES[:40] + b"xxxx" + LINES[44:], " cannot be read"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, content: bytes, message: str, refusal):
    (folder / "train.de").unlink()
    (folder / name).write_bytes(content)
    assert refusal(folder).startswith(f"{folder / name}{message}")


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\n"])
def test_an_empty_corpus_is_named(folder: Path, content: bytes, refusal):
    for language in ("de", "en"):
        write(folder / f"train.{language}", content)
    assert refusal(folder) == f"{folder / 'train.de'} has no sentences: add some, or give another corpus"


@pytest.mark.parametrize("missing", ["train.de", "train.en", "val.de", "val.en", "test.de", "test.en"])
def test_a_missing_file_is_named(folder: Path, missing: str, refusal):
    (folder / missing).unlink()
    assert refusal(folder).startswith(f"{folder} has no {missing} or {missing}.gz")


def test_an_unknown_corpus_or_language_is_named(tmp_path: Path, refusal):
    assert refusal("multi40k") == "no corpus 'multi40k': give captions, multi30k, or an existing folder or table"
    assert "choose two different languages" in refusal(tmp_path, "de", "de")
    assert "its languages are de, en and fr" in refusal("multi30k", "de", "zh")
    assert "its languages are de and en" in refusal("captions", "de", "fr")


# --- tables ---

TABLE = [(f"Satz {number}", f"sentence {number}") for number in range(100)]


def everything(corpus: Corpus) -> list[tuple[str, str]]:
    return sorted(corpus.train + corpus.validation + corpus.test)


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.txt", "pairs.tsv.gz"])
def test_a_table_with_tabs(tmp_path: Path, name: str):
    """ManyThings.org's files have a byte-order mark, attributions in a third column, and unescaped quotation marks."""
    lines = [f'{german}\t{english} "\tCC-BY 2.0\r' for german, english in TABLE]
    path = write(tmp_path / name, b"\xef\xbb\xbf" + "\n".join(lines).encode())
    corpus = load_corpus(path)
    assert corpus.name == "pairs"
    assert everything(corpus) == sorted((german, f'{english} "') for german, english in TABLE)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (90, 5, 5)


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.csv.gz", "PAIRS.CSV"])
def test_a_table_with_commas_and_quotes(tmp_path: Path, name: str):
    lines = [f'"{german}, ja","say ""{english}""",extra' for german, english in TABLE]
    corpus = load_corpus(write(tmp_path / name, lines))
    assert everything(corpus) == sorted((f"{german}, ja", f'say "{english}"') for german, english in TABLE)


@pytest.mark.parametrize(
    "header", ["de\ten", "en\tde", "DE\tEN\tsource", "English words/sentences\tGerman words", "english\tGerman"]
)
def test_a_header_names_the_columns(tmp_path: Path, header: str):
    swapped = header.lower().startswith("en")
    lines = [header] + ["\t".join(pair[::-1] if swapped else pair) for pair in TABLE]
    assert everything(load_corpus(write(tmp_path / "pairs.tsv", lines))) == sorted(TABLE)


def test_no_sentence_is_in_two_sets(tmp_path: Path):
    """A sentence must not be in the training set with one translation and in a test set with another."""
    generator = random.Random(0)
    pairs = [(f"Satz {generator.randint(0, 600)}", f"sentence {generator.randint(0, 600)}") for _ in range(300)]
    corpus = load_corpus(write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in pairs]))
    assert everything(corpus) == sorted(pairs)
    splits = [
        {sentence for pair in split for sentence in pair} for split in (corpus.train, corpus.validation, corpus.test)
    ]
    assert len(set.union(*splits)) == sum(map(len, splits))


def test_the_split_does_not_depend_on_the_order_of_lines(tmp_path: Path):
    """Two people who train on the same table must get comparable scores."""
    pairs = [(f"Satz {number // 2}", f"sentence {number}") for number in range(100)]
    first = load_corpus(write(tmp_path / "a.tsv", ["\t".join(pair) for pair in pairs]))
    second = load_corpus(write(tmp_path / "b.tsv", ["\t".join(pair) for pair in reversed(pairs)]))
    for split in ("train", "validation", "test"):
        assert sorted(getattr(first, split)) == sorted(getattr(second, split))


def test_faulty_tables_are_named_to_the_line(tmp_path: Path, caplog, refusal):
    tsv, table = tmp_path / "pairs.tsv", tmp_path / "pairs.csv"
    write(tsv, ["a\tb", "", "only one"])
    assert refusal(tsv) == f"{tsv}, line 3: one column, but two are expected, with a tab between them"
    write(table, ["a,b", "only one"])
    assert refusal(table) == f"{table}, line 2: one column, but two are expected, with a comma between them"
    write(table, ["a,b", '"never closed,b'])
    assert refusal(table).startswith(f"{table}, line 2: not valid CSV")
    for content in ([], ["", " "], ["de\ten"]):
        write(tsv, content)
        assert refusal(tsv) == f"{tsv} has no sentences: add some, or give another corpus"
    write(tsv, [f"ja\tyes {number}" for number in range(50)])
    assert refusal(tsv).startswith(f"{tsv} cannot be split into train, validation and test, because too few of its 50")
    write(tsv, [*("\t".join(pair) for pair in TABLE), "", "\tonly English"])
    assert everything(load_corpus(tsv)) == sorted(TABLE)
    assert caplog.messages == [f"{tsv}: skipped 1 pairs with an empty side, the first on line 102"]


def test_a_large_table_gives_a_thousand_for_each_set(tmp_path: Path):
    lines = [f"Satz {number}\tsentence {number}" for number in range(20_500)]
    corpus = load_corpus(write(tmp_path / "pairs.tsv", lines))
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (18_500, 1_000, 1_000)


def test_sentences_that_differ_only_in_punctuation_or_case_are_related():
    pairs = [("Warte!", "Wait!"), ("warte", "Hold on."), ("Hallo", "wait."), ("…", "…"), ("!", "?"), ("Ja", "Yes")]
    assert related_pairs(pairs) == [[0, 1, 2], [3], [4], [5]]


def test_attributions_say_that_english_comes_first(tmp_path: Path, refusal):
    """If the columns were used in order, a Chinese-English model would be trained from English to Chinese."""
    lines = [f"sentence {n}\t句子{n}\tCC-BY 2.0 (France) Attribution: tatoeba.org #{n} (CK)" for n in range(100)]
    path = write(tmp_path / "cmn.txt", lines)
    assert ("sentence 5", "句子5") in everything(load_corpus(path, "en", "zh"))
    assert ("句子5", "sentence 5") in everything(load_corpus(path, "zh", "en"))
    assert "de to zh is not in it" in refusal(path, "de", "zh")


@pytest.mark.parametrize("header", ["id,de,en", "de,fr", "Russian,German,English"])
def test_a_header_with_other_columns_is_not_a_pair_of_sentences(tmp_path: Path, header: str, refusal):
    """A German-English model must not be trained to translate numbers to German, or German to French."""
    path = write(tmp_path / "pairs.csv", [header] + [f"{n},Satz {n},sentence {n}" for n in range(100)])
    columns = header.replace(",", ", ")
    assert f"line 1: the columns are {columns}, but you asked for de to en: put these" in refusal(path)


def test_columns_after_the_sentences_are_ignored(tmp_path: Path):
    path = write(tmp_path / "pairs.tsv", [f"Satz {n}\tsentence {n}\tde\ten" for n in range(100)])
    assert everything(load_corpus(path)) == sorted(TABLE)


def test_a_table_is_also_looked_for_in_the_data_folder(tmp_path: Path, monkeypatch, refusal):
    write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in TABLE])
    assert len(load_corpus("pairs.tsv", data_dir=tmp_path).train) == 90
    monkeypatch.setenv("TRANSFORMER_LAB_DATA", str(tmp_path))
    assert len(load_corpus("pairs.tsv").train) == 90
    assert refusal("other.tsv").startswith("no corpus 'other.tsv'")


# --- captions, Multi30k, and Tatoeba ---


def test_captions_go_both_ways():
    """Every caption is in one set, and the first thousand are for testing."""
    german_first, english_first = load_corpus("captions"), load_corpus("captions", "en", "de")
    captions = [(caption.german, caption.english) for caption in load_captions()]
    assert german_first.test + german_first.validation + german_first.train == captions
    assert (len(german_first.test), len(german_first.validation)) == (1000, 1000)
    for split in ("train", "validation", "test"):
        assert [pair[::-1] for pair in getattr(english_first, split)] == getattr(german_first, split)


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "fr"), ("fr", "de")])
def test_multi30k_in_every_direction(real_data: Path, source: str, target: str, caplog):
    """The expected counts are the published ones.

    If there is no warning, every file has the SHA-256 listed in the code.
    """
    corpus = load_corpus("multi30k", source, target, data_dir=real_data)
    assert (len(corpus.train), len(corpus.validation)) == (29_000, 1_014)
    sizes = {name: len(pairs) for name, pairs in corpus.tests.items()}
    assert sizes == {"test_2016_flickr": 1000, "test_2017_flickr": 1000, "test_2017_mscoco": 461}
    assert corpus.test is corpus.tests["test_2016_flickr"]
    assert not caplog.messages
    first = {
        "de": "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
        "en": "Two young, White males are outside near many bushes.",
        "fr": "Deux jeunes hommes blancs sont dehors près de buissons.",
    }
    assert corpus.train[0] == (first[source], first[target])


def test_multi30k_is_found_by_folder_parent_or_environment(real_data: Path, monkeypatch):
    monkeypatch.delenv("TRANSFORMER_LAB_DATA", raising=False)
    expected = real_data / "multi30k"
    assert find_multi30k(real_data) == find_multi30k(str(expected)) == expected
    monkeypatch.setenv("TRANSFORMER_LAB_DATA", str(real_data))
    assert find_multi30k() == expected
    assert len(load_corpus("multi30k").test) == 1000


def test_data_dir_takes_precedence_over_the_environment(real_data: Path, tmp_path: Path, monkeypatch):
    """If the given folder lacks the files, silently using another copy could produce different scores."""
    monkeypatch.setenv("TRANSFORMER_LAB_DATA", str(real_data))
    with pytest.raises(InputError, match=f"no Multi30k in {tmp_path}: expected train.de.gz there"):
        load_corpus("multi30k", data_dir=tmp_path)


def test_another_version_of_multi30k_is_used_with_a_warning(real_data: Path, tmp_path: Path, caplog):
    """Some copies have different lines in val.de. They can be used, but their scores are not comparable."""
    for file in (real_data / "multi30k").glob("*.*.gz"):
        if file.name != "val.de.gz":
            (tmp_path / file.name).symlink_to(file)
    write(tmp_path / "val.de.gz", [f"Satz {number}" for number in range(1014)])
    assert load_corpus("multi30k", data_dir=tmp_path).validation[7][0] == "Satz 7"
    assert caplog.messages == [
        f"{tmp_path / 'val.de.gz'} is not the published file: scores can't be compared with others"
    ]


def test_english_chinese_from_manythings(real_data: Path):
    """No sentence of the 2,000 held-out pairs is in the training set, not even with different punctuation."""
    corpus = load_corpus("tatoeba_en_zh/cmn.txt.gz", "en", "zh", data_dir=real_data)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (27_155, 1_000, 1_000)
    assert ("Hi.", "嗨。") in everything(corpus)
    for side in (0, 1):
        trained, held_out = (
            {letters_and_digits(pair[side]) for pair in pairs}
            for pairs in (corpus.train, corpus.test + corpus.validation)
        )
        assert not trained & held_out
    reverse = load_corpus(real_data / "tatoeba_en_zh" / "cmn.txt.gz", "zh", "en")
    assert sorted(pair[::-1] for pair in reverse.test) == sorted(corpus.test)
