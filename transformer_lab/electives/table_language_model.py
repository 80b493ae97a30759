"""Language models with known outputs. They need no training and are small enough to follow by hand."""

import torch
from torch import Tensor, nn


class TableLanguageModel(nn.Module):
    """A replacement for a `LanguageModel` whose logits come from a table.

    In training mode, each row of the table is reversed, which reveals a missing `eval()`.

    Args:
        table: `(vocab, vocab)`; row `t` holds the logits of the token after `t`.
        max_length: Maximum number of tokens in a call.
    """

    def __init__(self, table: Tensor, max_length: int = 8) -> None:
        super().__init__()
        self.table = nn.Parameter(table)
        self.max_length = max_length
        self.with_gradients = False  # whether any call was made with gradients enabled

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map tokens, `(batch, length)`, to logits, `(batch, length, vocab)`. The mask is ignored.

        Raises:
            ValueError: The sequence is longer than `max_length`.
        """
        if tokens.size(1) > self.max_length:
            raise ValueError(f"sequence of {tokens.size(1)} tokens, but max_length is {self.max_length}")
        self.with_gradients |= torch.is_grad_enabled()
        logits = self.table[tokens]  # (batch, length, vocab)
        return logits.flip(-1) if self.training else logits


class CountingLanguageModel(nn.Module):
    """A replacement for a trained two-layer model. Its logits depend on all visible tokens and their positions.

    Each layer adds up numbers over the positions that the mask does not hide. A mask that hides too much or too little,
    or a token that is missing or in the wrong position, produces different text.

    Args:
        vocab_size: Number of tokens.
        max_length: Maximum number of tokens in a call.
    """

    def __init__(self, vocab_size: int, max_length: int) -> None:
        super().__init__()
        self.vocab_size, self.max_length = vocab_size, max_length

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map tokens, `(batch, length)`, to logits, `(batch, length, vocab)`.

        `mask` is the same as in `LanguageModel.forward`.

        Raises:
            ValueError: The sequence is longer than `max_length`.
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
