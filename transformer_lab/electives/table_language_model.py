"""A language model without weights to learn: what it says is written in a table. Small enough to follow by hand."""

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
