"""A model without weights: its probabilities come from a table, so you can follow a search by hand."""

import math
from typing import Any, NoReturn

import torch
from torch import Tensor

from transformer_lab.model import TransformerConfig
from transformer_lab.reimplementations import reimplements

UNLIKELY = 1e-9  # approximate probability of a token that is not in the table; the exact values differ, to avoid ties
HOW_TO_DECODE = "decoders call `model.encode` once and `model.decode` in each step"


class TableModel:
    """A model for trying out decoders. It has only `config`, `training`, `encode`, `decode`, `eval`, and `train`.

    Its logits are the logarithms of the table's probabilities plus an offset, which is larger the less certain the next
    token is. A real model's logits are not log-probabilities, either. In training mode, when a real model would use
    dropout, the least likely token gets the highest logit. The model records how it was used in `sentences_encoded`,
    `times_decoded`, `with_gradients`, and `saw_padding`.

    Args:
        table: Maps the first token of a source to a dictionary of prefixes, where `"3 4"` means tokens 3 and 4 after
            bos. Each prefix maps to the probabilities of the next token: `{5: 0.7, 2: 0.3}`.
        default: The probabilities after a prefix that is not in the table. If None, the sentence ends there. After eos,
            the most probable token is always meaningless.
        training: Whether the model starts in training mode.
        target_vocab: Size of the target vocabulary.
        pad_id, bos_id, eos_id: The same as in `TransformerConfig`.

    Raises:
        TypeError: The model is called like a function.
        AttributeError: The caller uses an attribute that a decoder does not need.
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
        self.unlikely = [math.log(UNLIKELY / (2 + token)) for token in range(target_vocab)]
        self.training = training
        self.sentences_encoded = self.times_decoded = 0
        self.with_gradients = False  # whether it ever ran outside `torch.no_grad()`
        self.saw_padding = False  # whether `decode` ever got a mask that leaves source padding visible

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        raise TypeError(HOW_TO_DECODE)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "forward":
            raise AttributeError(HOW_TO_DECODE)
        parts = "`config`, `encode`, `decode`, `training`, `eval`, and `train`"
        raise AttributeError(f"no `{name}` here: a decoder needs only {parts}")

    def eval(self) -> "TableModel":
        return self.train(False)

    def train(self, mode: bool = True) -> "TableModel":
        self.training = mode
        return self

    @reimplements("padding_mask")
    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode `(batch, source)`. Return the memory, `(batch, source, 1)`, and the mask, `(batch, 1, 1, source)`."""
        self.with_gradients |= torch.is_grad_enabled()
        self.sentences_encoded += len(source)
        return source[:, :, None].to(torch.get_default_dtype()), (source != self.config.pad_id)[:, None, None]

    @reimplements("padding_mask")
    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Return the logits, `(batch, target, target_vocab)`, for a target, `(batch, target)`, that starts with bos."""
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
        """Return the logits of the next token after `tokens`, for a source that starts with `word`."""
        bos, eos, nonsense = self.config.bos_id, self.config.eos_id, self.config.target_vocab - 1
        prefix = " ".join(map(str, tokens[1:]))
        if tokens[0] != bos:
            chances = {eos: 1.0}  # the table has only prefixes that start with bos
        elif eos in tokens:
            chances = {nonsense if nonsense != eos else eos - 1: 0.9, eos: 0.1}
        else:
            chances = self.table[word].get(prefix, self.default)
        logits = list(self.unlikely)
        for token, chance in chances.items():
            logits[token] = math.log(chance)
        sign, level = -1 if self.training else 1, -2 * math.log(max(chances.values()))
        return [sign * logit + level for logit in logits]
