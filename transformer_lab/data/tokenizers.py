"""From sentences to token ids and back.

Both tokenizers have the same methods, and the same ids for the four special tokens.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from transformer_lab.errors import InputError

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)


def normalize(sentence: str) -> str:
    """One spelling for what looks the same: Unicode NFC, and one plain space for white space of any kind."""
    return unicodedata.normalize("NFC", " ".join(sentence.split()))


class BpeTokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) with one vocabulary for both languages, as in section 5.1.

    A word carries its leading space, shown as `▁`. A character that is not in the alphabet is spelled in its UTF-8
    bytes (`<0xF0>` ...), so that every text comes back as it was, and `<unk>` is never needed. The special tokens have
    ids but no spelling: `<eos>` typed in a sentence is five ordinary characters.
    """

    kind = "bpe"
    joint = True
    pad_id, bos_id, eos_id, unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID

    # Letters, digits and other signs never share a token. That keeps punctuation off the words, and no merge can ever
    # spell a special token or a byte.
    _pieces = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+"
    _bytes = tuple(f"<0x{byte:02X}>" for byte in range(256))

    def __init__(self, tokens: Sequence[str], merges: Sequence[tuple[str, str]]):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

        self.tokens = list(tokens)  # token of each id
        self.merges = [tuple(pair) for pair in merges]
        ids = {token: index for index, token in enumerate(self.tokens)}
        self._tokenizer = Tokenizer(models.BPE(ids, self.merges, unk_token="<unk>", byte_fallback=True))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(self._pieces), "isolated")
        self._tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], source: str = "de", target: str = "en", vocab_size: int = 8000
    ) -> Self:
        """Learns one vocabulary from both sides: at most `vocab_size` tokens, specials and bytes included."""
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        sentences = [" " + normalize(sentence) for pair in pairs for sentence in pair]
        reserved = [*SPECIAL_TOKENS, *cls._bytes]
        if vocab_size < 2 * len(reserved):
            raise InputError(
                f"vocab_size {vocab_size} is too small: the specials and the 256 bytes need room, "
                f"choose {2 * len(reserved)} or more"
            )
        # Rare characters go without a token of their own when they would fill more than half of the vocabulary.
        counts = Counter(character for sentence in sentences for character in sentence)
        alphabet = sorted(counts, key=lambda character: (-counts[character], character))[: vocab_size // 2]
        learner = Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.Split(Regex(cls._pieces), "isolated")
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=reserved,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learner.train_from_iterator(sentences, trainer, length=len(sentences))
        learned = json.loads(learner.to_str())["model"]
        return cls(sorted(learned["vocab"], key=learned["vocab"].get), [tuple(pair) for pair in learned["merges"]])

    @property
    def source_size(self) -> int:
        return len(self.tokens)

    @property
    def target_size(self) -> int:
        return len(self.tokens)

    def encode_source(self, sentence: str) -> list[int]:
        """Ids of a source sentence, eos at the end."""
        return self.encode_sources([sentence])[0]

    def encode_target(self, sentence: str) -> list[int]:
        """Ids of a target sentence between bos and eos."""
        return self.encode_targets([sentence])[0]

    def encode_sources(self, sentences: Sequence[str], dropout: float = 0.0) -> list[list[int]]:
        """Ids of many source sentences.

        With `dropout`, each merge is left out with that probability, and the same sentence is spelled differently
        every time (BPE-dropout, Provilkov et al. 2020).
        """
        return [[*ids, EOS_ID] for ids in self._encode(sentences, dropout)]

    def encode_targets(self, sentences: Sequence[str], dropout: float = 0.0) -> list[list[int]]:
        """Ids of many target sentences; `dropout` as in `encode_sources`."""
        return [[BOS_ID, *ids, EOS_ID] for ids in self._encode(sentences, dropout)]

    def _encode(self, sentences: Sequence[str], dropout: float) -> list[list[int]]:
        self._tokenizer.model.dropout = dropout or None
        encodings = self._tokenizer.encode_batch_fast([(" " + normalize(sentence)).rstrip() for sentence in sentences])
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The sentence that the ids spell; special tokens are left out."""
        return self._tokenizer.decode([index for index in ids if index > UNK_ID]).strip()

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """One readable string for each id; `▁` marks the start of a word."""
        return [self.tokens[index].replace(" ", "▁") for index in ids]

    target_tokens = source_tokens  # one vocabulary for both

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json` into the folder."""
        state = {"kind": self.kind, "tokens": self.tokens, "merges": self.merges}
        (Path(folder) / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
