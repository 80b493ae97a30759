"""Elective 21: a language model from PyTorch's own Transformer classes. It is trained, measured, and then writes.

Masks of PyTorch's classes say the opposite of this course's: there, True *hides*.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.model import causal_mask
from transformer_lab.training import linear_rate


class LanguageModel(nn.Module):
    """Predicts the next token at every position (Radford et al. 2018): a decoder without a source is an encoder that
    may not look ahead. All classes are PyTorch's own; positions are learnt, and norms come first (Radford et al. 2019).

    Args:
        vocab_size: how many tokens there are.
        d_model: width of the model.
        n_heads: of each attention.
        n_layers: of the stack.
        d_ff: width inside the feed-forward networks.
        max_length: the most tokens it can read at once.
        dropout: as in section 5.4, and on attention weights and hidden layers as well.
        norm_first: pre-norm; the paper has post-norm.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 128,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int = 512,
        max_length: int = 128,
        dropout: float = 0.0,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(d_model, n_heads, d_ff, dropout, batch_first=True, norm_first=norm_first)
        last_norm = nn.LayerNorm(d_model) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, n_layers, last_norm, enable_nested_tensor=False)
        self.output = nn.Linear(d_model, vocab_size)
        for weight in self.encoder.parameters():  # nn.TransformerEncoder copies the layer: all begin with its values
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.02)  # as Radford et al.; torch's own 1.0 learns far more slowly

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """The logits of the token that follows each position.

        Args:
            tokens: `(batch, length)`, integers.
            mask: `(length, length)`, boolean, rows are queries: **True hides**, as everywhere in `nn.Transformer`.

        Returns:
            `(batch, length, vocab)`.

        Raises:
            ValueError: the sequence is longer than `max_length`.
        """
        length = tokens.size(1)
        if length > self.max_length:
            raise ValueError(f"sequence of {length} tokens, but max_length is {self.max_length}: give fewer at a time")
        x = self.dropout(self.embedding(tokens) + self.positions.weight[:length])  # (batch, length, d_model)
        return self.output(self.encoder(x, mask=mask))  # (batch, length, vocab)


def next_token_pairs(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Cut a long text into windows, each with its labels: the tokens that follow, one place further.

    The windows stand one behind the other. A rest that does not fill a window with its labels is left out.

    Args:
        tokens: `(n,)`, integers, the whole text in a row.
        length: of each window.

    Returns:
        `(inputs, labels)`, both `(windows, length)`: `labels[w, i]` is the token after `inputs[w, i]`.

    Raises:
        ValueError: there are fewer than `length + 1` tokens.
    """
    windows = (len(tokens) - 1) // length  # the last label of all needs a token too
    if windows < 1:
        raise ValueError(f"{len(tokens)} tokens are too few for a window of {length} and its labels: shorten `length`")
    used = windows * length
    return tokens[:used].view(windows, length), tokens[1 : used + 1].view(windows, length)


def causal_language_model_loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of all predictions: one at every position, each from what stands before it.

    Args:
        model: gives logits `(batch, length, vocab)` for `(tokens, mask)`. Its mask `(length, length)` is PyTorch's:
            True hides. Its mode is left as it is.
        inputs: `(batch, length)`, integers.
        labels: `(batch, length)`, the token after each of `inputs`.

    Returns:
        A scalar, in nats a token.
    """
    hidden = ~causal_mask(inputs.size(1), inputs.device)[0, 0]  # (length, length): True above the diagonal
    logits = model(inputs, hidden)  # (batch, length, vocab)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def top_k_filter(logits: Tensor, k: int) -> Tensor:
    """Keep the `k` likeliest tokens (Fan et al. 2018): the logits of all others become minus infinity.

    Args:
        logits: `(..., vocab)`; they stay as they are.
        k: how many; from the vocabulary's size on nothing changes. Where several logits equal the k-th greatest, all of
            these may stay, or only as many as make k.

    Returns:
        `(..., vocab)`, a new tensor.

    Raises:
        ValueError: `k` is below 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}, but at least one token must be left to choose from")
    best = logits.topk(min(k, logits.size(-1)), dim=-1).indices  # (..., k)
    removed = torch.ones_like(logits, dtype=torch.bool).scatter(-1, best, False)  # (..., vocab)
    return logits.masked_fill(removed, -math.inf)


def top_p_filter(logits: Tensor, p: float) -> Tensor:
    """Keep the nucleus (Holtzman et al. 2020): the fewest tokens, likeliest first, that have `p` together.

    The token with which the sum reaches `p` is kept, so that there is always one. The logits of all others become
    minus infinity.

    Args:
        logits: `(..., vocab)`; they stay as they are.
        p: a probability, above 0. With 1 all are kept, however unlikely: a rounded sum can be 1 long before the end.

    Returns:
        `(..., vocab)`, a new tensor.

    Raises:
        ValueError: `p` is not above 0, or is above 1.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}, but must be above 0 and at most 1")
    if p == 1:  # where one token has nearly everything, the sum is rounded to 1 and the others would go
        return logits.clone()
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)  # (..., vocab)
    before = probabilities.cumsum(dim=-1) - probabilities  # what all likelier tokens have together
    removed = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p)  # in the tokens' own order
    return logits.masked_fill(removed, -math.inf)


def sample(
    model: nn.Module,
    prompt: Tensor,
    count: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Write on, one drawn token at a time. First the temperature, then top-k, then top-p.

    Args:
        model: as in `causal_language_model_loss`, with `max_length`; it reads the last `max_length` tokens. It is put
            into evaluation mode, and left in the mode it was in.
        prompt: `(length,)`, integers, at least one: what has been written so far.
        count: how many tokens to write; 0 writes none.
        temperature: the logits are divided by it. 0 takes the likeliest token every time.
        top_k: of `top_k_filter`; None leaves it out.
        top_p: of `top_p_filter`; None leaves it out.
        generator: draws, so that the same seed writes the same text; torch's own if None.

    Returns:
        `(count,)`: the new tokens alone.

    Raises:
        ValueError: the prompt is empty, or `temperature` is negative.
    """
    if len(prompt) == 0:
        raise ValueError("the prompt is empty, but the first token needs one before it: give a line break, for example")
    if temperature < 0:
        raise ValueError(f"temperature is {temperature}, but must not be negative")
    written = prompt
    with evaluation_mode(model):
        for _ in range(count):
            seen = written[-model.max_length :]
            hidden = ~causal_mask(len(seen), seen.device)[0, 0]
            logits = model(seen[None], hidden)[0, -1]  # (vocab,)
            if temperature == 0:
                token = logits.argmax(keepdim=True)  # (1,)
            else:
                logits = logits / temperature
                if top_k is not None:
                    logits = top_k_filter(logits, top_k)
                if top_p is not None:
                    logits = top_p_filter(logits, top_p)
                token = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)  # (1,)
            written = torch.cat([written, token])
    return written[len(prompt) :]


Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def train_language_model(
    model: LanguageModel,
    tokens: Tensor,
    steps: int,
    batch_size: int = 32,
    peak_rate: float = 3e-3,
    loss: Loss = causal_language_model_loss,
    pairs: Callable[[Tensor, int], tuple[Tensor, Tensor]] = next_token_pairs,
    seed: int = 1,
) -> Iterator[dict[str, float]]:
    """Train for `steps` batches of whole windows. Each time through the text, the windows begin elsewhere.

    The rate climbs for a tenth of the steps and falls to zero; gradients are clipped at 1. The model is in training
    mode at every step; between two of them it may be used.

    Args:
        model: is trained in place.
        tokens: `(n,)`, the text, on the model's device.
        steps: how many updates.
        batch_size: windows of `model.max_length` tokens in a batch.
        peak_rate: of Adam.
        loss: of `(model, inputs, labels)`.
        pairs: of `(tokens, length)`.
        seed: of the order of the windows.

    Yields:
        After each step `{"step": from 1, "loss": in nats, "rate": of that step}`.

    Raises:
        ValueError: the text is shorter than a window and its labels.
    """
    shuffle = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    step = 0
    while step < steps:
        spare = max(0, min(model.max_length, len(tokens) - model.max_length - 1))
        start = int(torch.randint(spare + 1, (), generator=shuffle))
        inputs, labels = pairs(tokens[start:], model.max_length)
        for chosen in torch.randperm(len(inputs), generator=shuffle).split(batch_size):
            step += 1
            rate = linear_rate(step, peak_rate, max(1, steps // 10), steps + 1)
            optimizer.param_groups[0]["lr"] = rate
            model.train()
            optimizer.zero_grad()
            value = loss(model, inputs[chosen], labels[chosen])
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield {"step": step, "loss": value.item(), "rate": rate}
            if step == steps:
                return


@dataclass(frozen=True)
class LanguageModelScore:
    """The score of a language model on a text."""

    nats: float  # total for the text: the sum of the negative log-probabilities
    tokens: int
    characters: int

    @property
    def loss(self) -> float:
        """Mean loss, in nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Exponential of the loss. Comparable only between models with the same tokens."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_character(self) -> float:
        """Compressed size of the text under the model. Comparable between all models, whatever their tokens."""
        return self.nats / math.log(2) / self.characters


def score_language_model(
    model: LanguageModel, tokenizer: TextTokenizer, text: str, loss: Loss = causal_language_model_loss
) -> LanguageModelScore:
    """Predict every token of `text` once, from those before it in its window; before the first stands a line break.

    No character is left out, not even at the end, so that two models with different tokens are measured on the same.

    Args:
        model: predicts in evaluation mode, without gradients, and is left in the mode it was in.
        tokenizer: the model's.
        text: at least one character.
        loss: of `(model, inputs, labels)`, a mean.

    Raises:
        ValueError: the text is empty.
    """
    if not text:
        raise ValueError("the text is empty: there is nothing to predict")
    tokens = tokenizer.encode("\n" + text).to(model.output.weight.device)
    length, count = model.max_length, len(tokens) - 1
    nats = 0.0
    whole = count // length * length  # what fills windows; the rest is a window of its own
    with evaluation_mode(model):
        if whole:
            for inputs, labels in zip(*(side.split(32) for side in next_token_pairs(tokens, length)), strict=True):
                nats += loss(model, inputs, labels).item() * labels.numel()
        if count > whole:
            nats += loss(model, tokens[None, whole:-1], tokens[None, whole + 1 :]).item() * (count - whole)
    return LanguageModelScore(nats, count, len(text))
