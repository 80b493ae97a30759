"""Language models without weights to learn: what they say is known. Small enough to follow by hand."""

import torch
from torch import Tensor, nn


class TableLanguageModel(nn.Module):
    """Stands in for a `LanguageModel` where its behaviour has to be known beforehand.

    In training mode it says the rows of the table from right to left: whoever forgets `eval()` sees it.

    Args:
        table: `(vocab, vocab)`: row `t` holds the logits of what follows token `t`.
        max_length: the most tokens it reads at once.
    """

    def __init__(self, table: Tensor, max_length: int = 8) -> None:
        super().__init__()
        self.table = nn.Parameter(table)
        self.max_length = max_length
        self.with_gradients = False  # whether a call was made with gradients switched on

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """`(batch, length)` to logits `(batch, length, vocab)`.

        Raises:
            ValueError: the sequence is longer than `max_length`.
        """
        if tokens.size(1) > self.max_length:
            raise ValueError(f"sequence of {tokens.size(1)} tokens, but max_length is {self.max_length}")
        self.with_gradients |= torch.is_grad_enabled()
        logits = self.table[tokens]  # (batch, length, vocab)
        return logits.flip(-1) if self.training else logits


class CountingLanguageModel(nn.Module):
    """Stands in for a trained model of two layers: what it says depends on every token that it may see, and where.

    Each layer adds up numbers over what the mask lets a position see. A mask that hides too much or too little, a token
    left out or at another place: each leads to another text.

    Args:
        vocab_size: how many tokens there are.
        max_length: the most tokens it reads at once.
    """

    def __init__(self, vocab_size: int, max_length: int) -> None:
        super().__init__()
        self.vocab_size, self.max_length = vocab_size, max_length

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """`(batch, length)` to logits `(batch, length, vocab)`; `mask` as in `LanguageModel`.

        Raises:
            ValueError: the sequence is longer than `max_length`.
        """
        length = tokens.size(1)
        if length > self.max_length:
            raise ValueError(f"sequence of {length} tokens, but max_length is {self.max_length}")
        hidden = torch.zeros(length, length, dtype=torch.bool) if mask is None else mask
        visible = (~hidden if hidden.dtype == torch.bool else hidden == 0).long()  # (query, key)
        places = torch.arange(1, length + 1)
        state = tokens + 1  # (batch, length)
        for prime in (97, 89):
            state = (state * places) @ visible.T % prime  # (batch, length)
        logits = 4.0 * nn.functional.one_hot(state % self.vocab_size, self.vocab_size)
        return (logits.flip(-1) if self.training else logits).to(torch.get_default_dtype())
