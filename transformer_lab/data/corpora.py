"""Sentence pairs for training, validation, and testing: included, downloaded, or your own."""

import csv
import gc
import gzip
import hashlib
import html
import io
import logging
import os
import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from transformer_lab.data.tokenizers import normalize
from transformer_lab.errors import InputError
from transformer_lab.reimplementations import reimplements

Pairs = list[tuple[str, str]]

MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
MULTI30K_SHA256 = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_flickr.fr.gz": "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496",
    "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    "test_2017_mscoco.fr.gz": "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0",
}

VALIDATION_NAMES = ("val", "valid", "validation", "dev")
CAMPAIGN_SET = re.compile(r".+\.((?:dev|tst)\w*)\.(\w+-\w+)\.(\w+)\.xml")  # IWSLT17.TED.tst2010.en-de.de.xml
HELD_OUT = 1000  # size of the validation set and of the test set; each has at most 5% of a table
LANGUAGE_NAMES = {"de": "german", "en": "english", "es": "spanish", "fr": "french", "it": "italian", "zh": "chinese"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextCorpus:
    """Running text in one language, split into two parts. Lines end in `\\n`, and Unicode is normalized to NFC."""

    name: str
    train: str
    validation: str


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs `(source, target)`, with whitespace collapsed to single spaces and Unicode normalized to NFC."""

    name: str
    source: str  # language codes
    target: str
    train: Pairs
    validation: Pairs
    tests: dict[str, Pairs]  # by name, such as "test_2016_flickr"

    @property
    def test(self) -> Pairs:
        """The first test set."""
        return next(iter(self.tests.values()))

    def split(self, name: str | None) -> Pairs:
        """Return the test set with this name, or the validation set if the name is `validation`.

        The default is the first test set.

        Raises:
            InputError: There is no such split. The message lists all splits.
        """
        splits = {**self.tests, "validation": self.validation}
        if name is not None and name not in splits:
            raise InputError(f"{self.name} has no split {name!r}: choose {', '.join(splits)}", parameter="split")
        return splits[name] if name else self.test


def load_corpus(
    name_or_folder: str | Path, source: str = "de", target: str = "en", data_dir: str | Path | None = None
) -> Corpus:
    """Read a corpus for translation from `source` to `target`.

    - `captions`: German and English picture captions that come with the package; nothing is downloaded.
    - `multi30k`: German, English, and French picture captions (Elliott et al. 2016). They are read from `data_dir` if
      it is given, or from the folder in the environment variable `TRANSFORMER_LAB_DATA` if it is set. Either one can be
      the `multi30k` folder or its parent. Otherwise, the captions are downloaded once to the user's cache and read from
      there.
    - a folder with `train.de` and `train.en`, `val.*` (or `valid`, `validation`, `dev`), and `test*.*`. Files can be
      plain text or `.gz`. The name of a training file may have a suffix (`train_small`). Files from an IWSLT campaign
      of TED talks work, too: `train.tags.de-en.*` and sets such as `IWSLT17.TED.tst2010.en-de.de.xml`. In the training
      files, titles and descriptions are read as sentences, and other metadata is skipped. The first `dev` set is used
      for validation, and all other sets are used for testing.
    - a table with one sentence pair per line: `.csv`, or tab-separated with any other extension. By default, the first
      column is the source. A header line (`de` and `en`, or `German words` and `English words`) can show the opposite
      order. ManyThings.org attributions in the third column show that English comes first. Other columns are ignored.
      The validation and test sets have 1,000 pairs each, or 5% of a small table. No sentence is in two sets, even with
      different punctuation or capitalization.

    If a folder or table is not found as given, it is looked up in `data_dir` or `TRANSFORMER_LAB_DATA`.

    Pairs with an empty side are skipped, and a warning says how many.

    Raises:
        InputError: The corpus does not exist or cannot be read. The message names the file, the line, and a remedy.
    """
    if source == target:
        raise InputError(f"source and target language are both {source!r}: choose two different languages")
    if name_or_folder == "captions":
        return _load_captions(source, target)
    if name_or_folder == "multi30k":
        return _load_folder("multi30k", _multi30k_folder(source, target, data_dir), source, target)
    path = Path(name_or_folder)
    named = data_dir or os.environ.get("TRANSFORMER_LAB_DATA")
    if not path.exists() and named and (Path(named) / path).exists():
        path = Path(named) / path
    if path.is_dir():
        return _load_folder(path.resolve().name, path, source, target)
    if path.is_file():
        return _load_table(path, source, target)
    raise InputError(f"no corpus {str(name_or_folder)!r}: give captions, multi30k, or an existing folder or table")


def _check_languages(corpus: str, source: str, target: str, languages: Sequence[str]) -> None:
    if not {source, target} <= set(languages):
        raise InputError(
            f"{corpus} has no {source} to {target}: its languages are {', '.join(languages[:-1])} and {languages[-1]}",
            parameter="target" if source in languages else "source",
        )


def _load_captions(source: str, target: str) -> Corpus:
    _check_languages("captions", source, target, ("de", "en"))

    from transformer_lab.data.captions import caption_lines

    # Building 50,000 `Caption`s would take as long as reading the file, and so would garbage collection, which looks
    # through all of torch's objects each time.
    lines = caption_lines()
    collects_garbage = gc.isenabled()
    gc.disable()
    rows = (line.split("\t") for line in lines)
    pairs = [(german, english) if source == "de" else (english, german) for german, english, _ in rows]
    if collects_garbage:
        gc.enable()
    return Corpus(
        "captions",
        source,
        target,
        train=pairs[2 * HELD_OUT :],
        validation=pairs[HELD_OUT : 2 * HELD_OUT],
        tests={"test": pairs[:HELD_OUT]},
    )


# --- running text for a language model ---

SHORTEST_TEXT = 2000  # characters


def load_text(name_or_file: str | Path) -> TextCorpus:
    """Read running text and split it into a training part and a validation part.

    - `captions`: the English sentences of `load_corpus("captions")`, one per line. No sentence is in both parts.
    - a text file in UTF-8, plain or `.gz`: the last tenth is the validation part. It starts at the beginning of a line
      if there is one nearby.

    Raises:
        InputError: The file does not exist, cannot be read, is empty, is not UTF-8, or has fewer than 2,000
            characters. The message names the file and a remedy.
    """
    if name_or_file == "captions":
        corpus = _load_captions("en", "de")
        train, validation = (
            "".join(f"{english}\n" for english, _ in part) for part in (corpus.train, corpus.validation)
        )
        return TextCorpus("captions", train, validation)
    path = Path(name_or_file)
    if path.is_dir():
        raise InputError(f"{path} is a folder: give one text file, or captions")
    if not path.exists():
        raise InputError(f"no text file {str(name_or_file)!r}: give captions, or an existing file")
    read = _read_text(path).replace("\r\n", "\n").replace("\r", "\n")
    text = unicodedata.normalize("NFC", read).strip("\n") + "\n"
    if not text.strip():
        raise InputError(f"{path} is empty: give a file with some text in it")
    if len(text) < SHORTEST_TEXT:
        count = len(text) - (not read.endswith("\n"))  # the last line break may have been added above
        raise InputError(
            f"{path} has {count:,} characters, too few to learn from: give at least {SHORTEST_TEXT:,}, preferably "
            "100,000"
        )
    cut = len(text) * 9 // 10
    cut = text.find("\n", cut, len(text) * 19 // 20) + 1 or cut  # no line break nearby: split at nine tenths
    return TextCorpus(path.name.split(".")[0], text[:cut], text[cut:])


# --- a folder with one file for each split and language ---


def _load_folder(name: str, folder: Path, source: str, target: str) -> Corpus:
    present = {path.name.removesuffix(".gz") for path in folder.iterdir()}

    def splits_named(prefix: str) -> list[str]:
        return sorted(
            file.removesuffix(f".{source}")
            for file in present
            if file.startswith(prefix) and file.endswith(f".{source}")
        )

    training = splits_named("train")
    if len(training) > 1 and "train" not in training:
        raise InputError(
            f"{folder} has several files to train on ({', '.join(training)}): rename the right one to train.{source}"
        )
    train = _read_parallel(folder, training[0] if len(training) == 1 else "train", source, target)

    campaign = {
        split: _read_campaign_set(folder, *files)
        for split, files in sorted(_campaign_sets(present, source, target).items())
    }
    validation = next((split for split in VALIDATION_NAMES if f"{split}.{source}" in present), None)
    development = next((split for split in campaign if split.startswith("dev")), None)
    if validation is None and development:
        validation_pairs = campaign.pop(development)
    else:
        validation_pairs = _read_parallel(folder, validation or "val", source, target)

    # Put test sets first, then the remaining development sets. If there are no test sets, the error asks for `test`.
    plain = splits_named("test") or ([] if campaign else ["test"])
    tests = {split: _read_parallel(folder, split, source, target) for split in plain}
    tests |= sorted(campaign.items(), key=lambda item: item[0].startswith("dev"))
    return Corpus(name, source, target, train, validation_pairs, tests)


def _read_parallel(folder: Path, split: str, source: str, target: str) -> Pairs:
    source_path, target_path = (_plain_or_gzipped(folder, f"{split}.{language}") for language in (source, target))
    read = _read_tagged_lines if split.startswith("train.tags") else _read_lines
    source_lines, target_lines = read(source_path), read(target_path)
    if len(source_lines) != len(target_lines):
        raise InputError(
            f"{source_path} has {len(source_lines)} lines but {target_path} has {len(target_lines)}: "
            "line n of one must translate line n of the other"
        )
    return _without_blanks(enumerate(zip(source_lines, target_lines, strict=True), start=1), source_path)


def _plain_or_gzipped(folder: Path, file: str) -> Path:
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            return path
    raise InputError(
        f"{folder} has no {file} or {file}.gz: a corpus folder needs train, val and test in both languages"
    )


def _campaign_sets(present: set[str], source: str, target: str) -> dict[str, tuple[str, str]]:
    """Return the source and target XML files of each set, keyed by the set's name, such as `tst2010`."""
    files: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)  # keyed by set and direction, then by language
    for file in sorted(present):
        if (match := CAMPAIGN_SET.fullmatch(file)) and match[3] in (source, target):
            files[match[1], match[2]][match[3]] = file
    sets = {}
    for (split, direction), of_language in files.items():
        for language in (source, target):
            # If a set exists in both directions, prefer the requested one.
            if language not in of_language and (split, "-".join(reversed(direction.split("-")))) not in files:
                missing = f"{Path(next(iter(of_language.values()))).with_suffix('').stem}.{language}.xml"
                raise InputError(f"there is no {missing} next to {next(iter(of_language.values()))}: add it")
        if len(of_language) == 2 and (split not in sets or direction == f"{source}-{target}"):
            sets[split] = (of_language[source], of_language[target])
    return sets


def _read_campaign_set(folder: Path, source_file: str, target_file: str) -> Pairs:
    source_path, target_path = (_plain_or_gzipped(folder, file) for file in (source_file, target_file))
    sources, targets = _read_segments(source_path), _read_segments(target_path)
    sides = (sources, source_path), (targets, target_path)
    for (segments, path), (other_segments, other_path) in permutations(sides):
        if lacking := next((name for name in segments if name not in other_segments), None):
            raise InputError(
                f"{path}, line {segments[lacking][0]}: {lacking} is not in {other_path}: "
                "both files need the same segments"
            )
    return _without_blanks([(line, (text, targets[name][1])) for name, (line, text) in sources.items()], source_path)


def _read_segments(path: Path) -> dict[str, tuple[int, str]]:
    """Return the line number and the text of each `<seg>`, keyed by document and segment number.

    The files are not parsed as XML, because some of them contain unescaped ampersands.
    """
    text = _read_text(path)
    segments: dict[str, tuple[int, str]] = {}
    document = ""
    for tag in re.finditer(r"<doc\b([^>]*)>|<seg\b([^>]*)>(?:([^<]*)(</seg>)?)", text, re.IGNORECASE):
        line = text.count("\n", 0, tag.start()) + 1
        if tag[1] is not None:
            document = _attribute(tag[1], "docid")
            continue
        name = f"segment {_attribute(tag[2], 'id')} of document {document}"
        if tag[4] is None:
            raise InputError(f"{path}, line {line}: {name} does not end in </seg>: correct it")
        if name in segments:
            raise InputError(f"{path}, line {line}: {name} occurs a second time: renumber it")
        segments[name] = (line, normalize(html.unescape(tag[3])))
    return segments


def _attribute(attributes: str, name: str) -> str:
    match = re.search(rf"\b{name}\s*=\s*[\"']([^\"']*)", attributes, re.IGNORECASE)
    return match[1] if match else ""


def _read_tagged_lines(path: Path) -> list[str]:
    """Return the sentences of a campaign's training file, including each talk's title and description."""
    sentences = []
    for line in _read_lines(path):
        tag = re.match(r"<(/?\w+)[^>]*>", line)
        if tag is None:
            sentences.append(line)
        elif tag[1].lower() in ("title", "description"):
            sentences.append(normalize(re.sub(r"</?\w+>", " ", line)))
    return sentences


def _read_lines(path: Path) -> list[str]:
    # Split only at "\n": str.splitlines would also split at characters inside sentences, such as U+2028 and U+0085.
    text = _read_text(path)
    return [normalize(line) for line in text.removesuffix("\n").split("\n")] if text else []


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise InputError(f"{path} cannot be read: {error}") from error
    content = content.removeprefix(b"\xef\xbb\xbf")  # the byte-order mark that some programs write
    before_nul, nul, _ = content.partition(b"\0")
    if nul:
        raise InputError(
            f"{path}, line {_line_after(before_nul)}: a NUL byte, which text never contains: save the file as UTF-8"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = _line_after(content[: error.start])
        raise InputError(f"{path}, line {line}: not valid UTF-8: save the file as UTF-8") from error


def _line_after(content: bytes) -> int:
    return content.count(b"\n") + 1


def _without_blanks(numbered: Iterable[tuple[int, tuple[str, str]]], path: Path) -> Pairs:
    numbered = list(numbered)
    kept = [pair for _, pair in numbered if all(pair)]
    blank = [line for line, pair in numbered if not all(pair)]
    if not kept:
        raise InputError(f"{path} has no sentences: add some, or give another corpus")
    if blank:
        log.warning("%s: skipped %d pairs with an empty side, the first on line %d", path, len(blank), blank[0])
    return kept


# --- a table with both languages ---


def _load_table(path: Path, source: str, target: str) -> Corpus:
    rows = _read_rows(path)
    swapped = False
    if rows:
        first = rows[0][1]
        # If the first line names the two languages, it is a header that shows which column is which.
        swapped = _names(first[0], target) and _names(first[1], source)
        if swapped or (_names(first[0], source) and _names(first[1], target)):
            rows = rows[1:]
        elif any(map(_is_a_language, first[:2])) and sum(map(_is_a_language, first)) > 1:
            raise InputError(
                f"{path}, line {rows[0][0]}: the columns are {', '.join(first)}, but you asked for {source} to "
                f"{target}: put these two first, or ask for the two that are there"
            )
        elif len(first) > 2 and "tatoeba.org" in first[2]:
            if "en" not in (source, target):
                raise InputError(
                    f"{path} is a table of ManyThings.org, with English and another language: "
                    f"{source} to {target} is not in it"
                )
            swapped = target == "en"
    columns = (1, 0) if swapped else (0, 1)
    pairs = _without_blanks([(line, tuple(normalize(row[column]) for column in columns)) for line, row in rows], path)
    train, validation, test = _split(pairs, path)
    return Corpus(path.name.split(".")[0], source, target, train, validation, {"test": test})


def _names(cell: str, language: str) -> bool:
    """Return whether a cell in the first line is a language's code or starts with its English name."""
    cell = cell.strip().lower()
    return cell == language.lower() or cell.startswith(LANGUAGE_NAMES.get(language.lower(), "\n"))


def _is_a_language(cell: str) -> bool:
    """Return whether a cell contains just the code or the English name of a language. Few sentences look like that."""
    return cell.strip().lower() in (*LANGUAGE_NAMES, *LANGUAGE_NAMES.values())


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the line number and the cells of every line that is not empty."""
    text = _read_text(path)
    if path.name.lower().removesuffix(".gz").endswith(".csv"):
        separator = "comma"
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error}): correct it") from error
    else:
        separator = "tab"
        rows = [(line, content.split("\t")) for line, content in enumerate(text.split("\n"), start=1)]
    rows = [(line, row) for line, row in rows if any(cell.strip() for cell in row)]
    for line, row in rows:
        if len(row) < 2:
            raise InputError(f"{path}, line {line}: one column, but two are expected, with a {separator} between them")
    return rows


def _split(pairs: Pairs, path: Path) -> tuple[Pairs, Pairs, Pairs]:
    """Split pairs into training, validation, and test pairs.

    The split does not depend on the order of the pairs or on the direction of translation.
    """

    def in_any_direction(group: list[int]) -> bytes:
        return hashlib.sha256(min("\t".join(sorted(pairs[index])) for index in group).encode()).digest()

    related = sorted(related_pairs(pairs), key=in_any_direction)
    room = min(HELD_OUT, max(1, len(pairs) // 20))  # pairs in each of validation and test
    train, validation, test = [], [], []
    for group in related:
        if len(test) + len(group) <= room:
            test += group
        elif len(validation) + len(group) <= room:
            validation += group
        else:
            train += group
    if not (train and validation and test):
        raise InputError(
            f"{path} cannot be split into train, validation and test, because too few of its {len(pairs)} "
            "pairs are unrelated: give more pairs, or a folder with a file for each of the three"
        )
    return tuple([pairs[index] for index in sorted(split)] for split in (train, validation, test))


@reimplements("split_without_leakage")
def related_pairs(pairs: Pairs) -> list[list[int]]:
    """Return the indices of the pairs, grouped so that no sentence in either language occurs in two groups.

    Sentences with the same `letters_and_digits` count as the same sentence.
    """
    parent: dict[str, str] = {}  # union-find: sentences that must stay together share a root

    def root(sentence: str) -> str:
        parent.setdefault(sentence, sentence)
        while parent[sentence] != sentence:
            parent[sentence] = sentence = parent[parent[sentence]]
        return sentence

    bare = [(letters_and_digits(source), letters_and_digits(target)) for source, target in pairs]
    for source, target in bare:
        parent[root(source)] = root(target)
    groups = defaultdict(list)
    for index, (source, _) in enumerate(bare):
        groups[root(source)].append(index)
    return list(groups.values())


def letters_and_digits(sentence: str) -> str:
    """Return a sentence without capitalization, punctuation, and spaces.

    If nothing would be left, return the sentence unchanged.
    """
    return "".join(character for character in sentence.casefold() if character.isalnum()) or sentence


# --- Multi30k ---


def cache_folder() -> Path:
    """Return the user's cache folder for this package's downloads."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("transformer-lab"))


def find_multi30k(data_dir: str | Path | None = None) -> Path | None:
    """Return the folder that contains Multi30k on this machine. If there is none, return None.

    `load_corpus` lists the folders that can contain it.
    """
    named = data_dir or os.environ.get("TRANSFORMER_LAB_DATA")
    folders = [Path(named), Path(named) / "multi30k"] if named else [cache_folder() / "multi30k"]
    return next((folder for folder in folders if any(folder.glob("train.*"))), None)


def _multi30k_folder(source: str, target: str, data_dir: str | Path | None) -> Path:
    _check_languages("multi30k", source, target, ("de", "en", "fr"))
    files = [file for file in MULTI30K_SHA256 if file.split(".")[1] in (source, target)]
    named = data_dir or os.environ.get("TRANSFORMER_LAB_DATA")
    if not named:
        try:
            return _download_multi30k(files)
        except ModuleNotFoundError as error:  # a minimal installation
            raise InputError(
                f"multi30k cannot be downloaded without {error.name}: install it, or give the folder of a copy "
                "as data_dir or in TRANSFORMER_LAB_DATA"
            ) from error
    folder = find_multi30k(data_dir)
    if folder is None:
        raise InputError(f"no Multi30k in {named}: expected train.{source}.gz there or in its subfolder multi30k")
    for path in (folder / file for file in files):
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != MULTI30K_SHA256[path.name]:
            log.warning("%s is not the published file: scores can't be compared with others", path)
    return folder


def _download_multi30k(files: list[str]) -> Path:
    """Download any files that are damaged or missing from the cache folder, and return the folder."""
    import pooch

    folder = cache_folder() / "multi30k"
    for file in files:
        url = MULTI30K_URL + file
        alternative = f"put {file} into {folder} yourself, or use the corpus captions, which needs no download"
        try:
            # Download a file only if the hash of the existing file differs. Replace that file once the new one is
            # complete.
            pooch.retrieve(url, known_hash=MULTI30K_SHA256[file], fname=file, path=folder)
        except ValueError as error:
            raise InputError(
                f"{url} is damaged (its SHA-256 differs) and was deleted: try again, {alternative}"
            ) from error
        except OSError as error:  # errors of the requests library are OSErrors
            reason = error.strerror or type(error).__name__
            raise InputError(f"{url} cannot be downloaded ({reason}): try again, {alternative}") from error
    return folder
