"""From sentences to token ids and back.

All tokenizers have the same methods, and the same ids for the four special tokens. Only those of byte pairs can spell a
text in several ways (BPE-dropout).
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

from transformer_lab.data.chinese import is_chinese, starts_in_chinese, without_needless_spaces
from transformer_lab.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID, build_vocabulary
from transformer_lab.errors import InputError
from transformer_lab.files import replacing

if TYPE_CHECKING:
    from spacy.tokens import Doc
    from torchtext.vocab import Vocab

FILE = "tokenizer.json"
ChineseTokens = Literal["byte_pairs", "characters"]  # of several characters where they are frequent, or of one each


def normalize(sentence: str) -> str:
    """One spelling for what looks the same: Unicode NFC, and one plain space for white space of any kind.

    Between two Chinese characters a space means nothing, and is taken out.

    Raises:
        InputError: the string holds a lone surrogate, which no UTF-8 text can: it was decoded wrongly.
    """
    try:
        sentence.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start + 1} of the sentence is not valid Unicode: give it as UTF-8"
        ) from None
    return without_needless_spaces(unicodedata.normalize("NFC", " ".join(sentence.split())))


class PairTokenizer:
    """What all tokenizers have in common: the ids of the special tokens, and single sentences."""

    pad_id, bos_id, eos_id, unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID

    def encode_source(self, sentence: str) -> list[int]:
        """Return the ids of a source sentence, eos at the end."""
        return self.encode_sources([sentence])[0]

    def encode_target(self, sentence: str) -> list[int]:
        """Return the ids of a target sentence between bos and eos."""
        return self.encode_targets([sentence])[0]


class BpeTokenizer(PairTokenizer):
    """Byte-pair encoding (Sennrich et al. 2016) with one vocabulary for both languages, as in section 5.1.

    A word carries its leading space, shown as `▁`. A character that is not in the alphabet is spelled in its UTF-8
    bytes (`<0xF0>` ...), so that every text comes back as `normalize` made it, and `<unk>` is never needed. The special
    tokens have ids but no spelling: `<eos>` typed in a sentence is five ordinary characters.

    Chinese has no words to cut at. Where one of the languages is Chinese, a token holds Chinese characters alone, or
    none: as many of them as were merged (`chinese="byte_pairs"`), or always one (`"characters"`). No space comes
    before them.
    """

    kind = "bpe"
    joint = True

    # Letters, digits and other signs never share a token. That keeps punctuation off the words, and no merge can ever
    # spell a special token or a byte.
    _pieces: ClassVar = {  # by `chinese`
        None: r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+",
        "byte_pairs": r" ?[\p{L}\p{M}&&[^\p{Han}]]+| ?[\p{N}&&[^\p{Han}]]+|\p{Han}+| ?[^\s\p{L}\p{M}\p{N}]+",
        "characters": r" ?[\p{L}\p{M}&&[^\p{Han}]]+| ?[\p{N}&&[^\p{Han}]]+|\p{Han}| ?[^\s\p{L}\p{M}\p{N}]+",
    }
    _bytes = tuple(f"<0x{byte:02X}>" for byte in range(256))

    def __init__(
        self,
        source: str,
        target: str,
        tokens: Sequence[str],
        merges: Sequence[tuple[str, str]],
        chinese: ChineseTokens | None = None,  # None: neither language is Chinese
    ):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

        self.chinese = chinese
        self.source, self.target = source, target  # language codes
        self.tokens = list(tokens)  # the token of each id
        self.merges = [(left, right) for left, right in merges]
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._rank = {(self._ids[left], self._ids[right]): rank for rank, (left, right) in enumerate(self.merges)}
        self._joined = [self._ids[left + right] for left, right in self.merges]  # what the merge of each rank gives
        model = models.BPE(self._ids, self.merges, unk_token="<unk>", byte_fallback=True)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(self._pieces[chinese]), "isolated")
        self._tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

    @classmethod
    def train(
        cls,
        pairs: Iterable[tuple[str, str]],
        source: str = "de",
        target: str = "en",
        vocab_size: int = 8000,
        chinese: ChineseTokens = "byte_pairs",
    ) -> Self:
        """Learns one vocabulary from both sides: at most `vocab_size` tokens, specials and bytes included.

        `chinese` is heeded where one of the languages is Chinese.
        """
        return cls._learn([sentence for pair in pairs for sentence in pair], source, target, vocab_size, chinese)

    @classmethod
    def _learn(
        cls, sentences: Iterable[str], source: str, target: str, vocab_size: int, chinese: ChineseTokens | None
    ) -> Self:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        reserved = [*SPECIAL_TOKENS, *cls._bytes]
        if vocab_size < 2 * len(reserved):
            raise InputError(
                f"vocab_size is {vocab_size}, but the specials and the 256 bytes need room: "
                f"give {2 * len(reserved)} or more",
                parameter="vocab_size",
            )
        if chinese not in get_args(ChineseTokens):
            raise InputError(f"chinese is {chinese!r}, but must be one of: {', '.join(get_args(ChineseTokens))}")
        if not (is_chinese(source) or is_chinese(target)):
            chinese = None
        sentences = [cls._with_first_space(normalize(sentence), chinese) for sentence in sentences]
        # Rare characters go without a token of their own when they would fill more than half of the vocabulary.
        counts = Counter(character for sentence in sentences for character in sentence)
        alphabet = sorted(counts, key=lambda character: (-counts[character], character))[: vocab_size // 2]
        learner = Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.Split(Regex(cls._pieces[chinese]), "isolated")
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=reserved,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learner.train_from_iterator(sentences, trainer, length=len(sentences))
        learned = json.loads(learner.to_str())["model"]
        tokens = sorted(learned["vocab"], key=learned["vocab"].get)
        return cls(source, target, tokens, learned["merges"], chinese)

    @staticmethod
    def _with_first_space(sentence: str, chinese: ChineseTokens | None) -> str:
        """The sentence with a space before its first word, as before all others."""
        return sentence if chinese and starts_in_chinese(sentence) else " " + sentence

    @property
    def source_size(self) -> int:
        return len(self.tokens)

    @property
    def target_size(self) -> int:
        return len(self.tokens)

    def encode_sources(self, sentences: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Ids of many source sentences.

        With `dropout`, each merge is left out with that probability, so that a sentence is spelled differently with
        every `seed` (BPE-dropout, Provilkov et al. 2020).
        """
        return [[*ids, EOS_ID] for ids in self._encode(sentences, dropout, seed)]

    def encode_targets(self, sentences: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the IDs of target sentences; `dropout` and `seed` as in `encode_sources`."""
        return [[BOS_ID, *ids, EOS_ID] for ids in self._encode(sentences, dropout, seed)]

    def _encode(self, sentences: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        spaced = [self._with_first_space(normalize(sentence), self.chinese).rstrip() for sentence in sentences]
        if dropout:
            # The library's own dropout cannot be seeded, but a run must be reproducible.
            draw, known = Random(seed).random, {}
            pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str
            return [
                [index for piece, _ in pieces(sentence) for index in self._spell(piece, dropout, draw, known)]
                for sentence in spaced
            ]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(spaced)]

    def _spell(
        self, piece: str, dropout: float, draw: Callable[[], float], known: dict[tuple[int, ...], list[tuple[int, int]]]
    ) -> tuple[int, ...]:
        """Encode a piece with BPE dropout (Provilkov et al., algorithm 1).

        Every step skips each possible merge with probability `dropout` and applies the remaining merge that was learned
        first, until none remains. `known` caches the possible merges, because most words occur many times.
        """
        ids = self._smallest(piece)
        while True:
            if ids not in known:
                known[ids] = sorted(
                    (self._rank[pair], place) for place, pair in enumerate(pairwise(ids)) if pair in self._rank
                )
            for rank, place in known[ids]:
                if draw() >= dropout:  # later merges need no random number
                    ids = (*ids[:place], self._joined[rank], *ids[place + 2 :])
                    break
            else:
                return ids

    def _smallest(self, piece: str) -> tuple[int, ...]:
        """Return the IDs of the characters of a piece, with characters outside the alphabet as bytes."""
        ids: list[int] = []
        for character in piece:
            if character in self._ids:
                ids.append(self._ids[character])
            else:
                ids += [self._ids[self._bytes[byte]] for byte in character.encode("utf-8")]
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the sentence for these IDs, without special tokens."""
        return self._tokenizer.decode([index for index in ids if index > UNK_ID]).strip()

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return one readable string per ID; `▁` marks the start of a word."""
        return [self.tokens[index].replace(" ", "▁") for index in ids]

    target_tokens = source_tokens  # one vocabulary for both

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into the folder."""
        _write(Path(folder) / FILE, self._state())

    def _state(self) -> dict:
        state = {
            "kind": self.kind,
            "source": self.source,
            "target": self.target,
            "tokens": self.tokens,
            "merges": self.merges,
        }
        if self.chinese:
            state["chinese"] = self.chinese
        return state

    @classmethod
    def _restore(cls, state: dict) -> Self:
        if tuple(state["tokens"][: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError(f"the first tokens are not {SPECIAL_TOKENS}")
        return cls(state["source"], state["target"], state["tokens"], state["merges"], state.get("chinese"))


class SeparateBpeTokenizer(PairTokenizer):
    """Byte-pair encoding with a separate vocabulary for each language.

    It consists of two `BpeTokenizer`s, each trained on one side of the pairs. The languages share no tokens, so names
    and numbers have a vector in each language, and the embeddings cannot be tied.
    """

    kind = "separate_bpe"
    joint = False

    def __init__(self, source_side: BpeTokenizer, target_side: BpeTokenizer):
        self.source_side, self.target_side = source_side, target_side
        self.source, self.target = source_side.source, source_side.target  # language codes

    @classmethod
    def train(
        cls,
        pairs: Iterable[tuple[str, str]],
        source: str = "de",
        target: str = "en",
        vocab_size: int = 8000,
        chinese: ChineseTokens = "byte_pairs",
    ) -> Self:
        """Learn a vocabulary of at most `vocab_size` tokens from each side, including special tokens and bytes."""
        sides = zip(*pairs, strict=True)
        return cls(*(BpeTokenizer._learn(sentences, source, target, vocab_size, chinese) for sentences in sides))

    @property
    def source_size(self) -> int:
        return len(self.source_side.tokens)

    @property
    def target_size(self) -> int:
        return len(self.target_side.tokens)

    def encode_sources(self, sentences: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the IDs of source sentences; `dropout` and `seed` as in `BpeTokenizer.encode_sources`."""
        return self.source_side.encode_sources(sentences, dropout, seed)

    def encode_targets(self, sentences: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the IDs of target sentences; `dropout` and `seed` as in `BpeTokenizer.encode_sources`."""
        return self.target_side.encode_targets(sentences, dropout, seed)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the sentence for these target IDs, without special tokens."""
        return self.target_side.decode(ids)

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return one readable string per ID; `▁` marks the start of a word."""
        return self.source_side.source_tokens(ids)

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return one readable string per ID; `▁` marks the start of a word."""
        return self.target_side.target_tokens(ids)

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into the folder."""
        state = {
            "kind": self.kind,
            "source_side": self.source_side._state(),
            "target_side": self.target_side._state(),
        }
        _write(Path(folder) / FILE, state)

    @classmethod
    def _restore(cls, state: dict) -> Self:
        return cls(*(BpeTokenizer._restore(state[side]) for side in ("source_side", "target_side")))


class SpacyTokenizer(PairTokenizer):
    """Word-level tokenizer with spaCy's rules and a separate vocabulary for each language.

    Words outside the vocabulary become `<unk>` and cannot be restored. Decoding learns from the training sentences
    where the spaces go: for each target token, `spacing` holds the probabilities that there is no space before it and
    no space after it.
    """

    kind = "spacy"
    joint = False

    def __init__(
        self,
        source: str,
        target: str,
        source_vocabulary: "Vocab",
        target_vocabulary: "Vocab",
        spacing: Sequence[tuple[float, float]],
    ):
        self.source, self.target = source, target  # language codes
        self.source_vocabulary = source_vocabulary
        self.target_vocabulary = target_vocabulary
        self.spacing = [(before, after) for before, after in spacing]
        self._cut_source, self._cut_target = _spacy_rules(source), _spacy_rules(target)

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], source: str = "de", target: str = "en", min_frequency: int = 2
    ) -> Self:
        """Build the vocabularies from the words that occur at least `min_frequency` times on their side of `pairs`."""
        pairs = list(pairs)
        sources = [[word.text for word in doc] for doc in _cut(_spacy_rules(source), [pair[0] for pair in pairs])]
        targets = list(_cut(_spacy_rules(target), [pair[1] for pair in pairs]))
        source_vocabulary = build_vocabulary(sources, min_frequency)
        target_vocabulary = build_vocabulary([[word.text for word in doc] for doc in targets], min_frequency)

        seen_before, seen_after, joined_before, joined_after = Counter(), Counter(), Counter(), Counter()
        for doc in targets:
            for left, right in pairwise(doc):
                seen_after[left.text] += 1
                seen_before[right.text] += 1
                joined_after[left.text] += not left.whitespace_
                joined_before[right.text] += not left.whitespace_
        # Smoothing: two extra occurrences, mostly with a space, keep a rare word separate from its neighbors.
        spacing = [
            (
                round((joined_before[token] + 0.5) / (seen_before[token] + 2), 3),
                round((joined_after[token] + 0.5) / (seen_after[token] + 2), 3),
            )
            for token in target_vocabulary.itos
        ]
        return cls(source, target, source_vocabulary, target_vocabulary, spacing)

    @property
    def source_size(self) -> int:
        return len(self.source_vocabulary)

    @property
    def target_size(self) -> int:
        return len(self.target_vocabulary)

    def encode_sources(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the IDs of source sentences, with eos."""
        return [[*_number(doc, self.source_vocabulary), EOS_ID] for doc in _cut(self._cut_source, sentences)]

    def encode_targets(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the IDs of target sentences, with bos and eos."""
        return [[BOS_ID, *_number(doc, self.target_vocabulary), EOS_ID] for doc in _cut(self._cut_target, sentences)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the sentence for these IDs, without special tokens.

        Whether there is a space between two tokens depends on the token with the more decisive statistics, where
        punctuation outranks words. Straight quotation marks look alike on both ends, so they open and close in turn.
        """
        ids = [index for index in ids if index > UNK_ID]
        words = self.target_tokens(ids)
        sentence = "".join(words[:1])
        quoting = words[:1] == ['"']
        for (left, right), (left_id, right_id) in zip(pairwise(words), pairwise(ids), strict=True):
            if right == '"':
                joined = quoting
                quoting = not quoting
            elif left == '"':
                joined = quoting or self.spacing[right_id][0] > 0.5
            else:
                opinions = [(left, self.spacing[left_id][1]), (right, self.spacing[right_id][0])]
                _, likely = max(opinions, key=lambda opinion: (not opinion[0].isalnum(), abs(opinion[1] - 0.5)))
                joined = likely > 0.5
            sentence += right if joined else " " + right
        return sentence

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the word for each ID."""
        return [self.source_vocabulary.itos[index] for index in ids]

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the word for each ID."""
        return [self.target_vocabulary.itos[index] for index in ids]

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into the folder."""
        state = {
            "kind": self.kind,
            "source": self.source,
            "target": self.target,
            "source_counts": _kept(self.source_vocabulary),
            "target_counts": _kept(self.target_vocabulary),
            "spacing": self.spacing,
        }
        _write(Path(folder) / FILE, state)

    @classmethod
    def _restore(cls, state: dict) -> Self:
        source_vocabulary, target_vocabulary = (
            build_vocabulary([Counter(state[counts]).elements()]) for counts in ("source_counts", "target_counts")
        )
        return cls(state["source"], state["target"], source_vocabulary, target_vocabulary, state["spacing"])


def _spacy_rules(language: str):
    import spacy

    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:
        raise InputError(
            f"spaCy has no rules for the language {language!r}: use the bpe tokenizer", parameter="tokenizer"
        ) from error


def _cut(rules, sentences: Iterable[str]) -> Iterator["Doc"]:
    return rules.pipe(normalize(sentence) for sentence in sentences)


def _number(doc: "Doc", vocabulary: "Vocab") -> list[int]:
    # A special token typed by a user must not become the real one: encode it as unknown.
    return [UNK_ID if word.text in SPECIAL_TOKENS else vocabulary[word.text] for word in doc]


def _kept(vocabulary: "Vocab") -> dict[str, int]:
    return {token: vocabulary.freqs[token] for token in vocabulary.itos[len(SPECIAL_TOKENS) :]}


def _write(path: Path, state: dict) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")


Tokenizer = BpeTokenizer | SeparateBpeTokenizer | SpacyTokenizer
TOKENIZERS = {kind.kind: kind for kind in (BpeTokenizer, SeparateBpeTokenizer, SpacyTokenizer)}


def train_tokenizer(
    kind: str,
    pairs: Iterable[tuple[str, str]],
    source: str = "de",
    target: str = "en",
    vocab_size: int = 8000,
    min_frequency: int = 2,
    shared_vocabulary: bool = True,
    chinese: ChineseTokens = "byte_pairs",
) -> Tokenizer:
    """Train a tokenizer of the kind `bpe` or `spacy`.

    `bpe` uses `vocab_size`, `shared_vocabulary` (one vocabulary for both languages, or one of that size for each), and
    `chinese`. `spacy` uses `min_frequency` and always has two vocabularies.

    Raises:
        InputError: The kind is neither `bpe` nor `spacy`.
    """
    if kind == "bpe":
        bpe = BpeTokenizer if shared_vocabulary else SeparateBpeTokenizer
        return bpe.train(pairs, source, target, vocab_size, chinese)
    if kind == "spacy":
        return SpacyTokenizer.train(pairs, source, target, min_frequency)
    raise InputError(f"no tokenizer {kind!r}: choose bpe or spacy")


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load the tokenizer that was saved in the folder.

    Raises:
        InputError: `tokenizer.json` is missing, damaged, or from another program, or a library is not installed.
    """
    path = Path(folder) / FILE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return TOKENIZERS[state["kind"]]._restore(state)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give the folder of a trained model") from error
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{path} needs a library that cannot be imported here ({error}): install it") from error
    except Exception as error:  # the tokenizers library raises a plain Exception for a bad vocabulary
        raise InputError(f"{path} is damaged or of another program: train the tokenizer again") from error
