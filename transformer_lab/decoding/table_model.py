"""A model without weights: what it says is written in a table, so that you can follow a search with a pencil."""

import math

import torch
from torch import Tensor

from transformer_lab.model import TransformerConfig

UNLIKELY = 1e-9  # about the probability of a token that the table does not name; no two are equal


class TableModel:
    """Stands for a `Transformer` where one is decoded: it has `config`, `encode`, `decode`, `eval`, `train`, no more.

    Its logits are the logarithms of the probabilities in the table plus a number that grows with the prefix, because
    those of a real model are no log-probabilities either. In training mode, where a real model drops
    out, it takes the least likely token for the likeliest. It notes how it was used.

    Args:
        table: the first token of a source to its prefixes, `"3 4"` for the tokens 3 and 4 after bos; each prefix to
            the probabilities of the next token, `{5: 0.7, 2: 0.3}`.
        default: the probabilities after all other prefixes, or None: there a sentence ends. After eos comes nonsense.
        training: the mode it is in.
        target_vocab: how many tokens there are.
        pad_id, bos_id, eos_id: as in `TransformerConfig`.
    """

    def __init__(
        self,
        table: dict[int, dict[str, dict[int, float]]],
        default: dict[int, float] | None = None,
        training: bool = False,
        target_vocab: int = 8,
        pad_id: int = 0,
        bos_id: int = 1,
        eos_id: int = 2,
    ) -> None:
        self.config = TransformerConfig(10, target_vocab, pad_id=pad_id, bos_id=bos_id, eos_id=eos_id)
        self.table = table
        self.default = {eos_id: 1.0} if default is None else default
        self.training = training
        self.sentences_encoded = self.times_decoded = 0
        self.with_gradients = False  # whether it was ever asked outside of `torch.no_grad()`
        self.saw_padding = False  # whether `decode` was ever given a mask that lets padding of the source be seen

    def eval(self) -> "TableModel":
        return self.train(False)

    def train(self, mode: bool = True) -> "TableModel":
        self.training = mode
        return self

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """`(batch, source)` to `(batch, source, 1)` and the mask `(batch, 1, 1, source)`."""
        self.with_gradients |= torch.is_grad_enabled()
        self.sentences_encoded += len(source)
        return source[:, :, None].to(torch.get_default_dtype()), (source != self.config.pad_id)[:, None, None]

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """`(batch, target)`, bos first, to logits `(batch, target, target_vocab)`."""
        self.with_gradients |= torch.is_grad_enabled()
        self.times_decoded += 1
        padding = (memory[..., 0] == self.config.pad_id)[:, None, None]  # (batch, 1, 1, source)
        self.saw_padding |= bool((padding if source_mask is None else padding & source_mask).any())
        first_words = memory.expand(len(target), -1, -1)[:, 0, 0].int().tolist()
        rows = [
            [self.logits(word, tokens[: end + 1]) for end in range(len(tokens))]
            for word, tokens in zip(first_words, target.tolist(), strict=True)
        ]
        return torch.tensor(rows)  # (batch, target, target_vocab)

    def logits(self, word: int, tokens: list[int]) -> list[float]:
        bos, eos, nonsense = self.config.bos_id, self.config.eos_id, self.config.target_vocab - 1
        prefix = " ".join(map(str, tokens[1:]))
        if tokens[0] != bos:
            chances = {eos: 1.0}  # it has learnt to begin with bos, and with nothing else
        elif eos in tokens:
            chances = {nonsense if nonsense != eos else eos - 1: 0.9, eos: 0.1}
        else:
            chances = self.table[word].get(prefix, self.default)
        sign = -1 if self.training else 1
        return [
            sign * math.log(chances.get(token, UNLIKELY / (2 + token))) + 1.5 * len(tokens)
            for token in range(self.config.target_vocab)
        ]
