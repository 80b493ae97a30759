"""Convert sentences to token IDs and back.

All tokenizers have the same methods and the same IDs for the four special tokens. Only byte-pair encoding supports
BPE-dropout, which splits the same text in different ways.
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
ChineseTokens = Literal["byte_pairs", "characters"]  # frequent groups of characters, or each character on its own


def normalize(sentence: str) -> str:
    """Normalize Unicode to NFC and white space to single spaces, so that strings that look the same become equal.

    Spaces between Chinese characters have no meaning and are removed.

    Raises:
        InputError: The string contains a lone surrogate, so it was decoded with the wrong encoding.
    """
    try:
        sentence.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start + 1} of the sentence is not valid Unicode: give it as UTF-8"
        ) from None
    return without_needless_spaces(unicodedata.normalize("NFC", " ".join(sentence.split())))


class PairTokenizer:
    """The methods of all tokenizers, built on a source side and a target side.

    A side has one vocabulary: `tokens` lists its tokens by ID, `encode(sentences, dropout, seed)` returns IDs, and
    `decode(ids)` returns a sentence. Sides do not handle special tokens: this class adds and removes their IDs.
    """

    kind: str  # as saved in `tokenizer.json`
    pad_id, bos_id, eos_id, unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID

    def __init__(self, source: str, target: str, source_side: "Side", target_side: "Side"):
        self.source, self.target = source, target  # language codes
        self.source_side, self.target_side = source_side, target_side

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary, so that their embeddings can be tied."""
        return self.source_side is self.target_side

    @property
    def source_size(self) -> int:
        return len(self.source_side.tokens)

    @property
    def target_size(self) -> int:
        return len(self.target_side.tokens)

    def encode_source(self, sentence: str) -> list[int]:
        """Return the IDs of a source sentence, followed by eos."""
        return self.encode_sources([sentence])[0]

    def encode_target(self, sentence: str) -> list[int]:
        """Return the IDs of a target sentence, between bos and eos."""
        return self.encode_targets([sentence])[0]

    def encode_sources(self, sentences: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the IDs of source sentences, each followed by eos.

        With byte-pair encoding, `dropout` is the probability of skipping a merge, so that each `seed` splits words
        differently (BPE-dropout, Provilkov et al. 2020).

        Raises:
            InputError: A sentence contains a lone surrogate.
        """
        return [[*ids, EOS_ID] for ids in self.source_side.encode(sentences, dropout, seed)]

    def encode_targets(self, sentences: Sequence[str], dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the IDs of target sentences, each between bos and eos.

        `dropout`, `seed`, and errors are the same as in `encode_sources`.
        """
        return [[BOS_ID, *ids, EOS_ID] for ids in self.target_side.encode(sentences, dropout, seed)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the sentence for these target IDs, without special tokens."""
        return self.target_side.decode([index for index in ids if index > UNK_ID])

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return one readable string per ID. With byte-pair encoding, `▁` marks the start of a word."""
        return [self.source_side.tokens[index].replace(" ", "▁") for index in ids]

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return one readable string per ID. With byte-pair encoding, `▁` marks the start of a word."""
        return [self.target_side.tokens[index].replace(" ", "▁") for index in ids]

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` into the folder."""
        with replacing(Path(folder) / FILE) as unfinished:
            unfinished.write_text(json.dumps(self._state(), ensure_ascii=False), encoding="utf-8")


class BytePairs:
    """Byte-pair encoding (Sennrich et al. 2016) with one vocabulary.

    A word includes the space before it. A character that is not in the alphabet is encoded as its UTF-8 bytes
    (`<0xF0>` ...), so any text decodes to its normalized form, and `<unk>` is never needed. Text never becomes a
    special token: if a sentence contains `<eos>`, that string is treated as five ordinary characters.
    """

    # Letters, digits, and other characters never share a token. This separates punctuation from words, and it keeps
    # merges from forming a special token or a byte token.
    _pieces: ClassVar = {  # keyed by the value of `chinese`
        None: r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+",
        "byte_pairs": r" ?[\p{L}\p{M}&&[^\p{Han}]]+| ?[\p{N}&&[^\p{Han}]]+|\p{Han}+| ?[^\s\p{L}\p{M}\p{N}]+",
        "characters": r" ?[\p{L}\p{M}&&[^\p{Han}]]+| ?[\p{N}&&[^\p{Han}]]+|\p{Han}| ?[^\s\p{L}\p{M}\p{N}]+",
    }
    _bytes = tuple(f"<0x{byte:02X}>" for byte in range(256))

    def __init__(self, tokens: Sequence[str], merges: Sequence[tuple[str, str]], chinese: ChineseTokens | None = None):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

        if tuple(tokens[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError(f"the first tokens are not {SPECIAL_TOKENS}")
        self.tokens = list(tokens)  # in the order of their IDs
        self.merges = [(left, right) for left, right in merges]  # in the order they were learned
        self.chinese = chinese  # None if neither language is Chinese
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._rank = {(self._ids[left], self._ids[right]): rank for rank, (left, right) in enumerate(self.merges)}
        self._joined = [self._ids[left + right] for left, right in self.merges]  # the result of each merge, by rank
        model = models.BPE(self._ids, self.merges, unk_token="<unk>", byte_fallback=True)
        self.library_tokenizer = Tokenizer(model)
        self.library_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(self._pieces[chinese]), "isolated")
        self.library_tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

    @classmethod
    def learn(
        cls, sentences: Iterable[str], languages: tuple[str, str], vocab_size: int, chinese: ChineseTokens
    ) -> Self:
        """Learn at most `vocab_size` tokens, including special tokens and bytes.

        Raises:
            InputError: `vocab_size` is less than 520, or `chinese` has an invalid value.
        """
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        reserved = [*SPECIAL_TOKENS, *cls._bytes]
        if vocab_size < 2 * len(reserved):
            raise InputError(
                f"vocab_size is {vocab_size}, but the special tokens and the 256 bytes need room: "
                f"give {2 * len(reserved)} or more",
                parameter="vocab_size",
            )
        if chinese not in get_args(ChineseTokens):
            raise InputError(f"chinese is {chinese!r}, but must be one of: {', '.join(get_args(ChineseTokens))}")
        kind = chinese if any(map(is_chinese, languages)) else None
        sentences = [_with_first_space(normalize(sentence), kind) for sentence in sentences]
        # If there are too many characters, rare characters get no token, so that half of the vocabulary is left for
        # merges.
        counts = Counter(character for sentence in sentences for character in sentence)
        alphabet = sorted(counts, key=lambda character: (-counts[character], character))[: vocab_size // 2]
        learner = Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.Split(Regex(cls._pieces[kind]), "isolated")
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=reserved,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learner.train_from_iterator(sentences, trainer, length=len(sentences))
        learned = json.loads(learner.to_str())["model"]
        return cls(sorted(learned["vocab"], key=learned["vocab"].get), learned["merges"], kind)

    def encode(self, sentences: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Return the IDs of each sentence, without special tokens."""
        spaced = [_with_first_space(normalize(sentence), self.chinese).rstrip() for sentence in sentences]
        if not dropout:
            return [encoding.ids for encoding in self.library_tokenizer.encode_batch_fast(spaced)]
        # The library's own dropout can't be seeded, so it wouldn't be reproducible.
        sample, known = Random(seed).random, {}
        pieces = self.library_tokenizer.pre_tokenizer.pre_tokenize_str
        return [
            [index for piece, _ in pieces(sentence) for index in self._encode_piece(piece, dropout, sample, known)]
            for sentence in spaced
        ]

    def _encode_piece(
        self,
        piece: str,
        dropout: float,
        sample: Callable[[], float],
        known: dict[tuple[int, ...], list[tuple[int, int]]],
    ) -> tuple[int, ...]:
        """Encode a piece with BPE-dropout (Provilkov et al., algorithm 1).

        In each step, every possible merge is skipped with probability `dropout`. Of the merges that remain, the one
        that was learned first is applied. This is repeated until no merge remains. `known` caches the possible merges,
        because most words occur many times.
        """
        ids = tuple(self._ids[symbol] for character in piece for symbol in self._symbols(character))
        while True:
            if ids not in known:
                known[ids] = sorted(
                    (self._rank[pair], position) for position, pair in enumerate(pairwise(ids)) if pair in self._rank
                )
            for rank, position in known[ids]:
                if sample() >= dropout:  # the remaining merges don't need a random number
                    ids = (*ids[:position], self._joined[rank], *ids[position + 2 :])
                    break
            else:
                return ids

    def _symbols(self, character: str) -> list[str]:
        return [character] if character in self._ids else [self._bytes[byte] for byte in character.encode("utf-8")]

    def decode(self, ids: Sequence[int]) -> str:
        return self.library_tokenizer.decode(ids).strip()


def _with_first_space(sentence: str, chinese: ChineseTokens | None) -> str:
    """Put a space before the first word, as before all others.

    Skip this if the sentence starts with a Chinese character.
    """
    return sentence if chinese and starts_in_chinese(sentence) else " " + sentence


class BpeTokenizer(PairTokenizer):
    """Byte-pair encoding (Sennrich et al. 2016) with one vocabulary for both languages (section 5.1) or one for each.

    With separate vocabularies, the languages share no tokens, so names and numbers have a different vector in each
    language, and the embeddings cannot be tied.

    Chinese has no spaces between words. If one of the languages is Chinese, a token contains either only Chinese
    characters or none at all. It can contain any number of them (`chinese="byte_pairs"`) or exactly one
    (`"characters"`).
    """

    @property
    def kind(self) -> str:
        return "bpe" if self.joint else "separate_bpe"

    @classmethod
    def train(
        cls,
        pairs: Iterable[tuple[str, str]],
        source: str = "de",
        target: str = "en",
        vocab_size: int = 8000,
        chinese: ChineseTokens = "byte_pairs",
        shared_vocabulary: bool = True,
    ) -> Self:
        """Learn one vocabulary for both languages, or one for each, from pairs of sentences.

        A vocabulary has at most `vocab_size` tokens, including special tokens and bytes. `chinese` has an effect only
        if one of the languages is Chinese.

        Raises:
            InputError: `vocab_size` is less than 520, or `chinese` has an invalid value.
        """
        texts = [[text for pair in pairs for text in pair]] if shared_vocabulary else zip(*pairs, strict=True)
        sides = [BytePairs.learn(sentences, (source, target), vocab_size, chinese) for sentences in texts]
        return cls(source, target, sides[0], sides[-1])

    def _state(self) -> dict:
        sides = []
        for side in (self.source_side, self.target_side):
            state = {"kind": "bpe", "source": self.source, "target": self.target}
            state |= {"tokens": side.tokens, "merges": side.merges}
            sides.append(state | ({"chinese": side.chinese} if side.chinese else {}))
        return sides[0] if self.joint else {"kind": self.kind, "source_side": sides[0], "target_side": sides[1]}

    @classmethod
    def _restore(cls, state: dict) -> Self:
        states = [state] if state["kind"] == "bpe" else [state["source_side"], state["target_side"]]
        sides = [BytePairs(side["tokens"], side["merges"], side.get("chinese")) for side in states]
        return cls(states[0]["source"], states[0]["target"], sides[0], sides[-1])


class Words:
    """The words of one language, split by spaCy's rules. Words outside the vocabulary become `<unk>`.

    Decoding places spaces as in the training sentences: for each token, `spacing` holds the probabilities that
    there is no space before it and no space after it.
    """

    def __init__(self, language: str, vocabulary: "Vocab", spacing: Sequence[tuple[float, float]] = ()):
        self.vocabulary = vocabulary
        self.spacing = [(before, after) for before, after in spacing]
        self.tokens = vocabulary.itos
        self._rules = _spacy_rules(language)

    def encode(self, sentences: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Return the IDs of each sentence, without special tokens.

        `dropout` has no effect, because words are never split.
        """
        return [
            # If a sentence contains the text of a special token, encode it as unknown.
            [UNK_ID if word.text in SPECIAL_TOKENS else self.vocabulary[word.text] for word in doc]
            for doc in _split(self._rules, sentences)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Join the words, with spaces where they belong.

        Of two adjacent tokens, the one with the clearer statistics decides whether there is a space between them, but
        punctuation outranks words. Straight quotation marks look the same at both ends, so they alternate between
        opening and closing.
        """
        words = [self.tokens[index] for index in ids]
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

    def counts(self) -> dict[str, int]:
        """Return how often each token occurred in training. The vocabulary can be rebuilt from these counts."""
        return {token: self.vocabulary.freqs[token] for token in self.tokens[len(SPECIAL_TOKENS) :]}


class SpacyTokenizer(PairTokenizer):
    """A word-level tokenizer with spaCy's rules and a separate vocabulary for each language."""

    kind = "spacy"

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], source: str = "de", target: str = "en", min_frequency: int = 2
    ) -> Self:
        """Build the vocabularies from the words that occur at least `min_frequency` times on their side of `pairs`.

        Raises:
            InputError: spaCy has no rules for one of the languages.
        """
        sources, targets = zip(*pairs, strict=True)
        docs = list(_split(_spacy_rules(target), targets))
        source_words = ([word.text for word in doc] for doc in _split(_spacy_rules(source), sources))
        source_vocabulary = build_vocabulary(source_words, min_frequency)
        target_vocabulary = build_vocabulary(([word.text for word in doc] for doc in docs), min_frequency)

        seen_before, seen_after, joined_before, joined_after = Counter(), Counter(), Counter(), Counter()
        for doc in docs:
            for left, right in pairwise(doc):
                seen_after[left.text] += 1
                seen_before[right.text] += 1
                joined_after[left.text] += not left.whitespace_
                joined_before[right.text] += not left.whitespace_
        # Smoothing: two extra occurrences, mostly with a space, keep rare words separate from their neighbors.
        spacing = [
            (
                round((joined_before[token] + 0.5) / (seen_before[token] + 2), 3),
                round((joined_after[token] + 0.5) / (seen_after[token] + 2), 3),
            )
            for token in target_vocabulary.itos
        ]
        return cls(source, target, Words(source, source_vocabulary), Words(target, target_vocabulary, spacing))

    def _state(self) -> dict:
        return {
            "kind": self.kind,
            "source": self.source,
            "target": self.target,
            "source_counts": self.source_side.counts(),
            "target_counts": self.target_side.counts(),
            "spacing": self.target_side.spacing,
        }

    @classmethod
    def _restore(cls, state: dict) -> Self:
        source, target = state["source"], state["target"]
        source_vocabulary, target_vocabulary = (
            build_vocabulary([Counter(state[counts]).elements()]) for counts in ("source_counts", "target_counts")
        )
        target_side = Words(target, target_vocabulary, state["spacing"])
        return cls(source, target, Words(source, source_vocabulary), target_side)


def _spacy_rules(language: str):
    import spacy

    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:
        raise InputError(
            f"spaCy has no rules for the language {language!r}: use the bpe tokenizer", parameter="tokenizer"
        ) from error


def _split(rules, sentences: Iterable[str]) -> Iterator["Doc"]:
    return rules.pipe(normalize(sentence) for sentence in sentences)


Side = BytePairs | Words
Tokenizer = BpeTokenizer | SpacyTokenizer
TOKENIZERS = {"bpe": BpeTokenizer, "separate_bpe": BpeTokenizer, "spacy": SpacyTokenizer}  # keyed by kind


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
    """Train a tokenizer of one of two kinds, `bpe` or `spacy`.

    `bpe` uses `vocab_size`, `shared_vocabulary` (one vocabulary for both languages, or one of that size for each), and
    `chinese`. `spacy` uses `min_frequency` and always has two vocabularies.

    Raises:
        InputError: The kind is neither `bpe` nor `spacy`, or one of its arguments is invalid.
    """
    if kind == "bpe":
        return BpeTokenizer.train(pairs, source, target, vocab_size, chinese, shared_vocabulary)
    if kind == "spacy":
        return SpacyTokenizer.train(pairs, source, target, min_frequency)
    raise InputError(f"no tokenizer {kind!r}: choose bpe or spacy")


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load the tokenizer saved in the folder.

    Raises:
        InputError: `tokenizer.json` is missing, damaged, or from another program, or it needs a library that cannot be
            imported.
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
        raise InputError(f"{path} is damaged or from another program: train the tokenizer again") from error
