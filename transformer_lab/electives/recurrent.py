"""Elective 20: a recurrent encoder–decoder with and without additive attention (Bahdanau et al. 2015).

Like the Transformer, the translator has `config`, `encode`, `decode`, and `forward(source, target)`, so both work with
the same trainer, tokenizers, decoding functions, and metrics.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lab.decoding.greedy import evaluation_mode, translated_tokens
from transformer_lab.model import TokenEmbedding, TransformerConfig, initialize_parameters, padding_mask


class AdditiveAttention(nn.Module):
    """Additive attention (Bahdanau et al. 2015, section 3.1 and appendix A.1.2): a small network scores each pair.

        score = v · tanh(W_q query + W_k key)

    The weights are the softmax of the scores over the keys. The context is the weighted sum of the memory, not of the
    keys.
    """

    def __init__(self, d_query: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        self.w_q = nn.Linear(d_query, d_attention)
        self.w_k = nn.Linear(d_memory, d_attention, bias=False)  # one bias in the sum is enough
        self.v = nn.Linear(d_attention, 1, bias=False)

    def project(self, memory: Tensor) -> Tensor:
        """Return the keys, `(batch, key, d_attention)`. A decoder computes them only once."""
        return self.w_k(memory)

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the weights of the memory for each query, and the weighted sum of the memory.

        Args:
            query: `(batch, query, d_query)`. A decoder passes one state at a time.
            memory: `(batch, key, d_memory)`.
            mask: Boolean, broadcasts to `(batch, query, key)`; True means "may attend". A query that is not allowed
                to attend to anything gets weights of zero.
            keys: The result of `project(memory)`, if the caller has it already.

        Returns:
            `(context, weights)` with shapes `(batch, query, d_memory)` and `(batch, query, key)`.
        """
        if keys is None:
            keys = self.project(memory)
        sums = self.w_q(query)[:, :, None] + keys[:, None]  # (batch, query, key, d_attention)
        scores = self.v(sums.tanh()).squeeze(-1)  # (batch, query, key)
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        return weights @ memory, weights  # (batch, query, d_memory)


class FixedContext(nn.Module):
    """A context without attention: the same summary of the sentence for every query (Cho et al. 2014, section 2.2).

    Use it in place of an `AdditiveAttention`. The summary consists of the final states of the encoder's two directions:
    the forward state at the last word and the backward state at the first word.
    """

    def project(self, memory: Tensor) -> Tensor:
        """Return the memory unchanged, because no keys are needed."""
        return memory

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """Do the same as `AdditiveAttention.forward`, but return None in place of the weights.

        If there is a mask, it has shape `(batch, 1, key)`.
        """
        half = memory.size(-1) // 2
        last = torch.full_like(memory[:, 0, 0], memory.size(1) - 1, dtype=torch.long)  # (batch,)
        if mask is not None:
            last = mask[:, 0].sum(dim=1) - 1  # (batch,)
        rows = torch.arange(len(memory), device=memory.device)
        summary = torch.cat([memory[rows, last, :half], memory[:, 0, half:]], dim=-1)  # (batch, d_memory)
        return summary[:, None].expand(-1, query.size(1), -1), None


class NoContext(nn.Module):
    """A context of zeros, as if the decoder never used its context."""

    def project(self, memory: Tensor) -> Tensor:
        """Return the memory unchanged, because no keys are needed."""
        return memory

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """Return a context of zeros, `(batch, query, d_memory)`, and None in place of the weights."""
        return torch.zeros_like(memory[:, :1]).expand(-1, query.size(1), -1), None


class RecurrentEncoder(nn.Module):
    """A GRU that reads the sentence in both directions (Bahdanau et al. 2015, section 3.2).

    Raises:
        ValueError: `d_model` is odd. Each direction gets half of it.
    """

    def __init__(self, vocab_size: int, d_model: int, n_layers: int = 1, dropout: float = 0.0, pad_id: int = 0) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"d_model is {d_model}, but must be even: each direction gets half of it")
        self.pad_id = pad_id
        self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)
        between = dropout if n_layers > 1 else 0.0  # torch's GRU drops between its layers
        self.gru = nn.GRU(d_model, d_model // 2, n_layers, batch_first=True, dropout=between, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor) -> Tensor:
        """Encode a batch. A word's states do not depend on how much padding follows its sentence.

        The batch may be padded beyond its longest sentence; the memory is then as long as the batch. Dropout is applied
        to the embeddings and to the memory.

        Args:
            source: `(batch, source)`, integers, padded on the right. Every sentence has at least one token.

        Returns:
            The memory, `(batch, source, d_model)`: for each word, the forward state, which has read everything from the
            first word to this one, followed by the backward state, which has read everything from the last word to this
            one. Padded positions are zero.
        """
        lengths = (source != self.pad_id).sum(dim=1)  # (batch,)
        x = self.dropout(self.embedding(source))  # (batch, source, d_model)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = self.gru(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=source.size(1))
        return self.dropout(memory)  # (batch, source, d_model)


class AttentionDecoder(nn.Module):
    """A GRU that attends to the memory before every word (Bahdanau et al. 2015, section 3.1 and appendix A.2.2).

    Where this class applies a tanh to the new state, the paper applies a maxout to the state from before the step.
    """

    def __init__(self, vocab_size: int, d_model: int, dropout: float = 0.0, pad_id: int = 0) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)
        self.w_s = nn.Linear(d_model // 2, d_model)
        self.attention = AdditiveAttention(d_model, d_model, d_model)
        self.cell = nn.GRUCell(2 * d_model, d_model)
        self.w_o = nn.Linear(3 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def first_state(self, memory: Tensor) -> Tensor:
        """Return the initial state, `(batch, d_model)`, computed from the backward state of the first source word."""
        backward = memory[:, 0, memory.size(-1) // 2 :]  # (batch, d_model / 2): has read the whole sentence
        return self.w_s(backward).tanh()

    def step(
        self, token: Tensor, state: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Read one token of each sentence.

        The state from before the step is the query. The cell computes the new state from the token's embedding and the
        context, concatenated in this order. `w_o` gets the new state, the context, and the embedding, in this order,
        and is followed by a tanh. Dropout is applied to the embedding and to the output, but not to the state that is
        passed on.

        Args:
            token: `(batch,)`, integers.
            state: `(batch, d_model)`.
            memory: `(batch, source, d_model)`.
            mask: Boolean, `(batch, 1, source)`; True means "may attend".
            keys: The result of `attention.project(memory)`, if the caller has it already.

        Returns:
            `(output, state)`, both `(batch, d_model)`: the input of the output layer, and the state for the next step.
        """
        x = self.dropout(self.embedding(token))  # (batch, d_model)
        context, _ = self.attention(state[:, None], memory, mask, keys)
        context = context.squeeze(1)  # (batch, d_model)
        state = self.cell(torch.cat([x, context], dim=-1), state)
        output = self.w_o(torch.cat([state, context, x], dim=-1)).tanh()
        return self.dropout(output), state

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Read a batch of whole targets, one position at a time (teacher forcing).

        Args:
            target: `(batch, target)`, integers.
            memory: `(batch, source, d_model)`.
            mask: Boolean, `(batch, 1, source)`; True means "may attend".

        Returns:
            `(batch, target, d_model)`: at each position, the vector that the output layer predicts from.
        """
        keys = self.attention.project(memory)
        state, outputs = self.first_state(memory), []
        for token in target.unbind(dim=1):
            output, state = self.step(token, state, memory, mask, keys)
            outputs.append(output)
        return torch.stack(outputs, dim=1)


class RecurrentTranslator(nn.Module):
    """An encoder, a decoder, and an output layer. Trainers and decoding functions can use it like a `Transformer`.

    Args:
        config: The configuration. Only `d_model`, the vocabulary sizes, `tie`, and the token IDs are used.
        encoder: The encoder, such as a `RecurrentEncoder`.
        decoder: The decoder, such as an `AttentionDecoder`.

    Raises:
        ValueError: `tie` is True, but the vocabularies have different sizes.
    """

    def __init__(self, config: TransformerConfig, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = encoder, decoder
        self.output = nn.Linear(config.d_model, config.target_vocab)
        if config.tie:
            if config.source_vocab != config.target_vocab:
                raise ValueError(
                    f"tied embeddings need one vocabulary, but source_vocab is {config.source_vocab} "
                    f"and target_vocab {config.target_vocab}"
                )
            encoder.embedding.embedding.weight = decoder.embedding.embedding.weight
            self.output.weight = decoder.embedding.embedding.weight
        initialize_parameters(self)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode a source, `(batch, source)`, integers.

        Returns:
            `(memory, source_mask)` with shapes `(batch, source, d_model)` and `(batch, 1, 1, source)`.
        """
        return self.encoder(source), padding_mask(source, self.config.pad_id)

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Return logits, `(batch, target, vocab)`, for the token after each position of `target`, `(batch, target)`."""
        return self.output(self.decoder(target, memory, source_mask[:, 0]))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Map a source, `(batch, source)`, and a target, `(batch, target)`, to logits, `(batch, target, vocab)`.

        The caller has to shift the target.
        """
        return self.decode(target, *self.encode(source))

    def incremental_decoder(self, source: Tensor) -> "IncrementalRecurrentDecoder":
        """Return the step-by-step decoder that the decoding functions use, for a source of shape `(batch, source)`."""
        return IncrementalRecurrentDecoder(self, source)


class IncrementalRecurrentDecoder:
    """The decoder of a `RecurrentTranslator`, run one step at a time with several hypotheses per source sentence.

    It has the same methods as `transformer_lab.decoding.incremental.IncrementalDecoder`, but its only cache is the
    state.

    Args:
        model: The model to run.
        source: `(sentences, source)`, integers.
    """

    def __init__(self, model: RecurrentTranslator, source: Tensor) -> None:
        self.decoder = model.decoder
        self.memory, source_mask = model.encode(source)  # (sentences, source, d_model)
        self.mask = source_mask[:, 0]  # (sentences, 1, source)
        self.keys = self.decoder.attention.project(self.memory)
        self.states = self.decoder.first_state(self.memory)[:, None]  # (sentences, hypotheses, d_model)

    def step(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Read the next token of each hypothesis and return the input of the output layer.

        Args:
            tokens: `(sentences, hypotheses)`, integers.
            mask: A mask over earlier tokens. It is ignored because the state covers all of these tokens.

        Returns:
            `(sentences, hypotheses, d_model)`.
        """
        n = tokens.size(1)
        memory, source_mask, keys = (x.repeat_interleave(n, dim=0) for x in (self.memory, self.mask, self.keys))
        output, states = self.decoder.step(tokens.flatten(), self.states.flatten(0, 1), memory, source_mask, keys)
        self.states = states.unflatten(0, tokens.shape)
        return output.unflatten(0, tokens.shape)

    def reorder(self, parents: Tensor) -> None:
        """Continue hypothesis i of each sentence from `parents[:, i]`, where `parents` is `(sentences, hypotheses)`."""
        self.states = self.states.gather(1, parents[:, :, None].expand(-1, -1, self.states.size(-1)))

    def select(self, sentences: Tensor) -> None:
        """Keep only the sentences with these indices, `(sentences,)`, integers."""
        self.memory, self.mask = self.memory[sentences], self.mask[sentences]
        self.keys, self.states = self.keys[sentences], self.states[sentences]


def recurrent_greedy_decode(model: RecurrentTranslator, source: Tensor, max_length: int) -> list[list[int]]:
    """Translate a batch greedily: always take the most probable token.

    The model reads each token once, because its state keeps track of the earlier ones. Decoding stops when every
    sentence has its eos.

    Args:
        model: A `RecurrentTranslator` in any mode. It runs in evaluation mode and is left in the mode it was in.
        source: `(batch, source)`, integers, padded on the right.
        max_length: Maximum number of tokens to generate per sentence, counting eos but not bos.

    Returns:
        A list of tokens for each sentence, without bos, eos, and pad.
    """
    config = model.config
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        keys = model.decoder.attention.project(memory)  # only once, because they never change
        state = model.decoder.first_state(memory)  # (batch, d_model)
        token = torch.full_like(source[:, 0], config.bos_id)  # (batch,)
        generated = source[:, :0]  # (batch, 0)
        for _ in range(max_length):
            output, state = model.decoder.step(token, state, memory, source_mask[:, 0], keys)
            token = model.output(output).argmax(dim=-1)  # (batch,)
            generated = torch.cat([generated, token[:, None]], dim=1)
            if (generated == config.eos_id).any(dim=1).all():
                break
    return [translated_tokens(row, config) for row in generated.tolist()]


def with_attention(config: TransformerConfig) -> RecurrentTranslator:
    """Build the translator of Bahdanau et al. (2015) with the sizes in `config`. Use it as `build_model` in `train`."""
    encoder = RecurrentEncoder(config.source_vocab, config.d_model, config.n_layers, config.dropout, config.pad_id)
    decoder = AttentionDecoder(config.target_vocab, config.d_model, config.dropout, config.pad_id)
    return RecurrentTranslator(config, encoder, decoder)


def with_context(
    context: Callable[[], nn.Module], build_model: Callable[[TransformerConfig], RecurrentTranslator] = with_attention
) -> Callable[[TransformerConfig], RecurrentTranslator]:
    """Return a `build_model` function that replaces a model's attention with `context()`, such as `FixedContext()`."""

    def build(config: TransformerConfig) -> RecurrentTranslator:
        model = build_model(config)
        model.decoder.attention = context()
        return model

    return build


def additive_weights(model: RecurrentTranslator, source: Tensor, target: Tensor) -> Tensor:
    """Return the attention weights, `(batch, target, source)`, of a decoder as it reads a target.

    Args:
        model: A model with an `AdditiveAttention`. It runs in evaluation mode, and then its original mode is restored.
        source: `(batch, source)`, integers.
        target: `(batch, target)`, integers, starting with bos.

    Returns:
        A tensor on the CPU.
    """
    rows: list[Tensor] = []
    hook = model.decoder.attention.register_forward_hook(lambda module, inputs, output: rows.append(output[1].cpu()))
    try:
        with evaluation_mode(model):
            model(source, target)
    finally:
        hook.remove()
    return torch.cat(rows, dim=1)
