"""Elective 21: a language model built from PyTorch's own Transformer classes, with training, scoring, and sampling.

In the masks of PyTorch's classes, True means *hidden*, the opposite of this course's masks.
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
    """A decoder-only model that predicts the next token at each position (Radford et al. 2018).

    Without a source, a decoder is an encoder with a causal mask. All parts are PyTorch's own. The positional encoding
    is learned, and by default, layers are pre-norm (Radford et al. 2019).

    Args:
        vocab_size: Number of tokens in the vocabulary.
        d_model: Width of the model.
        n_heads: Number of heads in each attention layer.
        n_layers: Number of layers.
        d_ff: Hidden width of the feed-forward networks.
        max_length: Maximum number of tokens that the model can read at once.
        dropout: The dropout rate. Dropout is applied as in section 5.4, and also to attention weights and inside the
            feed-forward networks.
        norm_first: Whether layers are pre-norm. The paper's layers are post-norm.
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
        for weight in self.encoder.parameters():  # copies of one layer would all start with the same weights
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.02)  # as in GPT; PyTorch's default of 1 learns far more slowly

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits of the token that follows each position.

        Args:
            tokens: `(batch, length)`, integers.
            mask: `(length, length)`, boolean; rows are queries. **True means hidden**, as always in `nn.Transformer`.

        Returns:
            `(batch, length, vocab)`.

        Raises:
            ValueError: The sequence is longer than `max_length`.
        """
        length = tokens.size(1)
        if length > self.max_length:
            raise ValueError(f"sequence of {length} tokens, but max_length is {self.max_length}: give fewer at a time")
        x = self.dropout(self.embedding(tokens) + self.positions.weight[:length])  # (batch, length, d_model)
        return self.output(self.encoder(x, mask=mask))  # (batch, length, vocab)


def next_token_pairs(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Split a long text into windows. The labels of a window are the tokens one position later.

    The windows follow each other without overlap or gap. Leftover tokens that do not fill a window and its labels are
    dropped.

    Args:
        tokens: `(n,)`, integers, the whole text.
        length: Number of tokens in each window.

    Returns:
        `(inputs, labels)`, both `(windows, length)`: `labels[w, i]` is the token after `inputs[w, i]`.

    Raises:
        ValueError: There are fewer than `length + 1` tokens.
    """
    windows = (len(tokens) - 1) // length  # the very last label needs a token, too
    if windows < 1:
        raise ValueError(f"{len(tokens)} tokens are too few for a window of {length} and its labels: shorten `length`")
    used = windows * length
    return tokens[:used].view(windows, length), tokens[1 : used + 1].view(windows, length)


def causal_language_model_loss(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy over all positions, each predicted from the tokens up to that position.

    Args:
        model: Returns logits `(batch, length, vocab)` for `(tokens, mask)`. The mask, `(length, length)`, follows
            PyTorch's convention: True means hidden. The model stays in the mode it is in.
        inputs: `(batch, length)`, integers.
        labels: `(batch, length)`, the token after each of `inputs`.

    Returns:
        A scalar, in nats per token.
    """
    hidden = ~causal_mask(inputs.size(1), inputs.device)[0, 0]  # (length, length): True above the diagonal
    logits = model(inputs, hidden)  # (batch, length, vocab)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def top_k_filter(logits: Tensor, k: int) -> Tensor:
    """Keep the `k` most probable tokens (Fan et al. 2018) and set the logits of all others to −∞.

    Args:
        logits: `(..., vocab)`. Not modified.
        k: Number of tokens to keep. If it is the size of the vocabulary or more, nothing changes. If several logits tie
            for k-th place, you may keep all of them or only as many as make k.

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
    """Keep the nucleus: the smallest set of most probable tokens with a total probability of at least `p`.

    See Holtzman et al. (2020). The token that makes the sum reach `p` is kept, so there is always at least one. The
    logits of all others become −∞.

    Args:
        logits: `(..., vocab)`. Not modified.
        p: A probability above 0. With 1, all tokens are kept, however improbable, even if a rounded sum reaches 1
            before the last token.

    Returns:
        `(..., vocab)`, a new tensor.

    Raises:
        ValueError: `p` is not above 0, or is above 1.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}, but must be above 0 and at most 1")
    if p == 1:  # if one token has almost everything, a rounded sum of 1 would remove the others
        return logits.clone()
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)  # (..., vocab)
    before = probabilities.cumsum(dim=-1) - probabilities  # sum over all more probable tokens
    removed = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p)  # in vocabulary order
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
    """Continue a text by sampling one token at a time: first the temperature, then top-k, then top-p.

    Args:
        model: As in `causal_language_model_loss`. It reads the last `max_length` tokens, where `max_length` is its
            attribute. It runs in evaluation mode and is left in the mode it was in.
        prompt: `(length,)`, integers, at least one: the text so far.
        count: Number of tokens to write, 0 or more.
        temperature: The logits are divided by it. With 0, the most probable token is always taken.
        top_k: The `k` of `top_k_filter`, or None for no filter.
        top_p: The `p` of `top_p_filter`, or None for no filter.
        generator: The source of random numbers, so that the same seed yields the same text. None for PyTorch's own.

    Returns:
        `(count,)`: only the new tokens.

    Raises:
        ValueError: The prompt is empty, or `temperature` is negative.
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
) -> Iterator[dict[str, float]]:
    """Train on batches of whole windows. Each pass through the text starts at a random offset.

    The learning rate rises during the first tenth of the steps and then falls to zero. Gradient norms are clipped at 1.
    Every step sets the model to training mode, so the caller may switch it to evaluation mode between steps.

    Args:
        model: The model to train in place.
        tokens: The text, `(n,)`, integers, on the model's device.
        steps: Number of updates, one batch each.
        batch_size: Number of windows of `model.max_length` tokens in a batch.
        peak_rate: Peak learning rate of Adam.
        loss: `causal_language_model_loss`, or your own version of it.
        pairs: `next_token_pairs`, or your own version of it.

    Yields:
        After each step, a dictionary with `step` (from 1), `loss` (nats per token), and `rate` (the step's learning
            rate).

    Raises:
        ValueError: The text is too short for a window and its labels.
    """
    shuffle = torch.Generator().manual_seed(1)
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
    """A model's score on a whole text, regardless of the model's tokenizer."""

    nats: float  # loss summed over all tokens of the text
    tokens: int
    characters: int

    @property
    def loss(self) -> float:
        """Return the mean loss in nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Return the exponential of the loss. Compare it only between models with the same tokenizer."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_character(self) -> float:
        """Return the loss in bits per character. It can be compared between all models scored on the same text."""
        return self.nats / math.log(2) / self.characters


def score_language_model(
    model: LanguageModel, tokenizer: TextTokenizer, text: str, loss: Loss = causal_language_model_loss
) -> LanguageModelScore:
    """Score a model on a text by predicting every token once, based on the tokens before it in the same window.

    To predict the first token, the model reads a line break. Every character counts, even at the end of the text, so
    models with different tokenizers are scored on the same text.

    Args:
        model: The model to score. It runs in evaluation mode, and then its original mode is restored.
        tokenizer: The model's tokenizer.
        text: The text to predict. It must have at least one character.
        loss: A function that returns a mean over tokens, such as `causal_language_model_loss` or your own version of
            it.

    Raises:
        ValueError: The text is empty.
    """
    if not text:
        raise ValueError("the text is empty: there is nothing to predict")
    tokens = tokenizer.encode("\n" + text).to(next(model.parameters()).device)
    length, count = model.max_length, len(tokens) - 1
    nats = 0.0
    whole = count // length * length  # tokens in full windows; the rest is scored separately
    with evaluation_mode(model):
        if whole:
            for inputs, labels in zip(*(side.split(32) for side in next_token_pairs(tokens, length)), strict=True):
                nats += loss(model, inputs, labels).item() * labels.numel()
        if count > whole:
            nats += loss(model, tokens[None, whole:-1], tokens[None, whole + 1 :]).item() * (count - whole)
    return LanguageModelScore(nats, count, len(text))
