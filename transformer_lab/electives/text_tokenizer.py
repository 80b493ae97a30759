"""A lossless tokenizer for running text: characters or byte pairs, including spaces and line breaks."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Self

import torch
from torch import Tensor

from transformer_lab.errors import InputError


class TextTokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) of text, including whitespace. Without merges, tokens are characters.

    A character that was rare or missing in the training text is encoded as its UTF-8 bytes (such as `<0xF0>`). There is
    no "unknown" token, so every character counts toward the loss, and models with different tokenizers can be compared.
    A word includes the space before it. A line break is always a separate token.

    Args:
        tokens: The token for each ID.
        merges: Pairs of tokens to merge, in the order they were learned.
    """

    # Words, numbers, and punctuation, each with the space before it; line breaks; other whitespace. Nothing is lost.
    _pieces = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\n|[^\S\n]+(?= \S)|[^\S\n]+"
    _bytes = tuple(f"<0x{byte:02X}>" for byte in range(256))

    def __init__(self, tokens: Sequence[str], merges: Sequence[tuple[str, str]] = ()) -> None:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

        self.tokens = list(tokens)  # the token for each ID
        self.merges = [(left, right) for left, right in merges]
        ids = {token: index for index, token in enumerate(self.tokens)}
        self._tokenizer = Tokenizer(models.BPE(ids, self.merges, byte_fallback=True))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(self._pieces), "isolated")
        self._tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

    @classmethod
    def train(cls, text: str, n_merges: int = 0, rare: int = 3) -> Self:
        """Learn the characters of a text and up to `n_merges` merges.

        Args:
            text: The training text. It must not include text that is used for scoring.
            n_merges: Maximum number of merges. With 0, every token is a character.
            rare: Characters that occur less often than this are encoded as bytes.

        Raises:
            InputError: `n_merges` is negative.
        """
        import json

        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        if n_merges < 0:
            raise InputError(f"n_merges is {n_merges}, but must be 0, for characters, or more")
        counts = Counter(text)
        alphabet = sorted(character for character, count in counts.items() if count >= rare or character == "\n")
        if "\n" not in counts:
            alphabet = ["\n", *alphabet]  # a model reads a line break before the first token of a text
        if not n_merges:
            return cls([*cls._bytes, *alphabet])
        learner = Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.Split(Regex(cls._pieces), "isolated")
        trainer = trainers.BpeTrainer(
            vocab_size=len(cls._bytes) + len(alphabet) + n_merges,
            special_tokens=list(cls._bytes),
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learner.train_from_iterator(text.splitlines(keepends=True), trainer)
        learned = json.loads(learner.to_str())["model"]
        return cls(sorted(learned["vocab"], key=learned["vocab"].get), learned["merges"])

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Tensor:
        """Return the token IDs of a text, `(n,)`, integers."""
        # Encode line by line, because the library is slow on very long strings. No piece crosses a line break.
        lines = [line + "\n" for line in text.split("\n")]
        lines[-1] = lines[-1][:-1]
        encoded = self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        return torch.tensor(list(chain.from_iterable(line.ids for line in encoded)), dtype=torch.int64)

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """Return the text for token IDs, `(n,)`. Bytes that are not valid UTF-8 become `�`."""
        return self._tokenizer.decode([int(index) for index in ids], skip_special_tokens=False)

    def names(self, ids: Tensor | Sequence[int]) -> list[str]:
        """Return a readable string for each token ID, with `▁` for a space and `⏎` for a line break."""
        return [self.tokens[int(index)].replace(" ", "▁").replace("\n", "⏎") for index in ids]
