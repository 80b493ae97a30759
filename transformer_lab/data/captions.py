"""The `captions` corpus: 50,000 synthetic picture captions in German and English.

With this corpus, the course does not need to download anything.

The captions are about people, animals, clothes, places, and actions, like those of Multi30k (Elliott et al. 2016). They
come from a grammar (`tools/captions`) with everything that makes German hard: three genders, three ways to inflect an
adjective, verbs in second position in main clauses and at the end of subordinate clauses, separable verb prefixes, and
contractions of prepositions and articles. Every sentence has exactly one translation, so a small model can learn the
whole language in a minute. Unlike a corpus of real captions, this corpus also has the true word alignment of every
pair.

`captions.tsv.xz` has one pair per line: the German sentence, the English sentence, and the alignment.
"""

import lzma
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from transformer_lab.errors import InputError

FILE = Path(__file__).with_name("captions.tsv.xz")


@dataclass(frozen=True)
class Caption:
    """A German sentence, its English translation, and their word alignment.

    `links` is the alignment as written in the file. "0-0 1-2" links German word 0 to English word 0, and German word 1
    to English word 2. A contracted preposition is linked to the preposition and the article. Each part of a separable
    verb is linked to every part of the English verb. A compound is linked to all of its English words. Punctuation is
    linked to punctuation. The only tokens without a link are commas that the other language does not use.
    """

    german: str
    english: str
    links: str

    @property
    def german_tokens(self) -> tuple[str, ...]:
        """The words and punctuation marks, split as in spaCy's rule-based tokenizer."""
        return _tokens(self.german)

    @property
    def english_tokens(self) -> tuple[str, ...]:
        return _tokens(self.english)

    @cached_property
    def alignment(self) -> tuple[tuple[int, int], ...]:
        """The links as `(German index, English index)`, sorted."""
        pairs = (link.split("-") for link in self.links.split())
        return tuple((int(german), int(english)) for german, english in pairs)


def _tokens(sentence: str) -> tuple[str, ...]:
    return tuple(sentence.replace(",", " ,").replace(".", " .").split())


def caption_lines() -> list[str]:
    """Return the lines of the file.

    Each line has the German sentence, the English sentence, and the links, separated by tabs.

    Raises:
        InputError: The file is missing or damaged.
    """
    try:
        return lzma.decompress(FILE.read_bytes()).decode().splitlines()
    except (OSError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", error)
        raise InputError(f"{FILE} cannot be read ({reason}): install transformer-lab again") from None


def load_captions() -> list[Caption]:
    """Return all captions, in file order: first those for testing. No German or English sentence occurs twice.

    Raises:
        InputError: For the same reasons as in `caption_lines`.
    """
    return [Caption(*line.split("\t")) for line in caption_lines()]
