"""Word vocabularies, built from the training sentences only."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchtext.vocab import Vocab

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)


def build_vocabulary(sentences: Iterable[list[str]], min_frequency: int = 1) -> "Vocab":
    """Return a vocabulary: first the special tokens, then the tokens of the sentences, most frequent first.

    A token that occurs fewer than `min_frequency` times has no ID of its own: `vocabulary[token]` is the ID of `<unk>`.
    """
    from torchtext.vocab import Vocab

    counts = Counter(token for sentence in sentences for token in sentence)
    return Vocab(counts, min_freq=min_frequency, specials=list(SPECIAL_TOKENS))
