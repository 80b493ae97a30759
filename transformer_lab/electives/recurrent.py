"""What attention replaced: a recurrent encoder–decoder, with additive attention (Bahdanau et al. 2015) and without.

Its translator has `config`, `encode`, `decode` and `forward(source, target)` as the Transformer has, so the same
trainer, tokenizers, decoders and scores serve both.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lab.decoding.greedy import evaluation_mode, translated_tokens
from transformer_lab.model import TokenEmbedding, TransformerConfig, initialize_parameters, padding_mask


class AdditiveAttention(nn.Module):
    """Bahdanau et al. (2015), section 3.1 and appendix A.1.2: a small network scores every pair of query and key.

        score = v · tanh(W_q query + W_k key)

    The weights are the softmax of the scores over the keys, and the context is the weighted sum of the memory itself.
    """

    def __init__(self, d_query: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        self.w_q = nn.Linear(d_query, d_attention)
        self.w_k = nn.Linear(d_memory, d_attention, bias=False)  # one bias in the sum is enough
        self.v = nn.Linear(d_attention, 1, bias=False)

    def project(self, memory: Tensor) -> Tensor:
        """The keys, `(batch, key, d_attention)`: they are the same for every query, so a decoder computes them once."""
        return self.w_k(memory)

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Look for what the query asks for in the memory.

        Args:
            query: `(batch, query, d_query)`; a decoder asks with one state at a time.
            memory: `(batch, key, d_memory)`.
            mask: boolean, broadcasts to `(batch, query, key)`; True means "may attend". A query that may attend to
                nothing gets zero weights.
            keys: what `project(memory)` gives, if it is at hand already.

        Returns:
            `(context, weights)` of shapes `(batch, query, d_memory)` and `(batch, query, key)`.
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
    """No attention: whatever is asked, the context is the same summary of the sentence (Cho et al. 2014, section 2.2).

    It stands in the place of an `AdditiveAttention`. The summary is what the two directions of the encoder have at
    their ends: the forward state of the last word, the backward state of the first.
    """

    def project(self, memory: Tensor) -> Tensor:
        return memory

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """As `AdditiveAttention.forward`, with a mask of `(batch, 1, key)`; there are no weights."""
        half = memory.size(-1) // 2
        last = torch.full_like(memory[:, 0, 0], memory.size(1) - 1, dtype=torch.long)  # (batch,)
        if mask is not None:
            last = mask[:, 0].sum(dim=1) - 1  # (batch,)
        rows = torch.arange(len(memory), device=memory.device)
        summary = torch.cat([memory[rows, last, :half], memory[:, 0, half:]], dim=-1)  # (batch, d_memory)
        return summary[:, None].expand(-1, query.size(1), -1), None


class NoContext(nn.Module):
    """The mistake of a context that is computed and never used: what arrives in the decoder is zero."""

    def project(self, memory: Tensor) -> Tensor:
        return memory

    def forward(
        self, query: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """As `AdditiveAttention.forward`; there are no weights."""
        return torch.zeros_like(memory[:, :1]).expand(-1, query.size(1), -1), None


class RecurrentEncoder(nn.Module):
    """A GRU that reads the sentence in both directions (Bahdanau et al. 2015, section 3.2).

    Raises:
        ValueError: `d_model` is odd: each direction has half of it.
    """

    def __init__(self, vocab_size: int, d_model: int, n_layers: int = 1, dropout: float = 0.0, pad_id: int = 0) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"d_model is {d_model}, but must be even: each direction has half of it")
        self.pad_id = pad_id
        self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)
        between = dropout if n_layers > 1 else 0.0  # torch's GRU drops between its layers
        self.gru = nn.GRU(d_model, d_model // 2, n_layers, batch_first=True, dropout=between, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor) -> Tensor:
        """Read a batch. What comes out at a word does not depend on how far the sentence was padded.

        The batch may be padded further than its longest sentence; the memory is as long as the batch all the same.
        Dropout acts on the embeddings and on the memory.

        Args:
            source: `(batch, source)`, integers, padded on the right; every sentence has a token.

        Returns:
            The memory, `(batch, source, d_model)`: of each word the forward state, which has read from the first word
            to this one, and beside it the backward state, which has read from the last. Where padding is, zeros.
        """
        lengths = (source != self.pad_id).sum(dim=1)  # (batch,)
        x = self.dropout(self.embedding(source))  # (batch, source, d_model)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = self.gru(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=source.size(1))
        return self.dropout(memory)  # (batch, source, d_model)


class AttentionDecoder(nn.Module):
    """A GRU that asks the memory before every word (Bahdanau et al. 2015, section 3.1 and appendix A.2.2).

    In front of the output layer the paper has a maxout of the state before the step; here it is a tanh, of the new one.
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
        """The state before the first word, `(batch, d_model)`, from the backward state of the first source word."""
        backward = memory[:, 0, memory.size(-1) // 2 :]  # (batch, d_model / 2): it has read the whole sentence
        return self.w_s(backward).tanh()

    def step(
        self, token: Tensor, state: Tensor, memory: Tensor, mask: Tensor | None = None, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Read one token of each sentence.

        The state from before it asks the memory; the cell makes the next state of the token's embedding and the
        context, side by side; `w_o` sees the new state, the context and the embedding, in this order, and a tanh
        follows. Dropout acts on the embedding and on the output, not on the state that is carried on.

        Args:
            token: `(batch,)`, integers.
            state: `(batch, d_model)`.
            memory: `(batch, source, d_model)`.
            mask: boolean, `(batch, 1, source)`; True means "may attend".
            keys: what `attention.project(memory)` gives, if it is at hand already.

        Returns:
            `(output, state)`, both `(batch, d_model)`: what the output layer takes, and the state for the next step.
        """
        x = self.dropout(self.embedding(token))  # (batch, d_model)
        context, _ = self.attention(state[:, None], memory, mask, keys)
        context = context.squeeze(1)  # (batch, d_model)
        state = self.cell(torch.cat([x, context], dim=-1), state)
        output = self.w_o(torch.cat([state, context, x], dim=-1)).tanh()
        return self.dropout(output), state

    def forward(self, target: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Read a whole batch of targets, one position after the other.

        Args:
            target: `(batch, target)`, integers.
            memory: `(batch, source, d_model)`.
            mask: boolean, `(batch, 1, source)`; True means "may attend".

        Returns:
            `(batch, target, d_model)`: at each position what says which token follows.
        """
        keys = self.attention.project(memory)
        state, outputs = self.first_state(memory), []
        for token in target.unbind(dim=1):
            output, state = self.step(token, state, memory, mask, keys)
            outputs.append(output)
        return torch.stack(outputs, dim=1)


class RecurrentTranslator(nn.Module):
    """Encoder and decoder with an output layer: to trainers and decoders what a `Transformer` is.

    Of the configuration it takes `d_model`, `target_vocab`, `tie` and the ids; the parts were built with the others.

    Raises:
        ValueError: `tie` is asked for with vocabularies of different sizes.
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
        """`(batch, source)` to `(memory, source_mask)`: `(batch, source, d_model)`, `(batch, 1, 1, source)`."""
        return self.encoder(source), padding_mask(source, self.config.pad_id)

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """`(batch, target)` to the logits of the token that follows each position, `(batch, target, vocab)`."""
        return self.output(self.decoder(target, memory, source_mask[:, 0]))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """`(batch, source)` and `(batch, target)` to `(batch, target, vocab)`. The caller shifts the target."""
        return self.decode(target, *self.encode(source))

    def incremental_decoder(self, source: Tensor) -> "IncrementalRecurrentDecoder":
        """What the package's decoders go forward with: no cache, because the state is all that there is to keep."""
        return IncrementalRecurrentDecoder(self, source)


class IncrementalRecurrentDecoder:
    """The decoder of a `RecurrentTranslator` one step at a time, for several hypotheses of each source sentence.

    It has the methods of `transformer_lab.decoding.incremental.IncrementalDecoder`.
    """

    def __init__(self, model: RecurrentTranslator, source: Tensor) -> None:
        self.decoder = model.decoder
        self.memory, source_mask = model.encode(source)  # (sentences, source, d_model)
        self.mask = source_mask[:, 0]  # (sentences, 1, source)
        self.keys = self.decoder.attention.project(self.memory)
        self.states = self.decoder.first_state(self.memory)[:, None]  # (sentences, hypotheses, d_model)

    def step(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Feed the next token of each hypothesis, and get what the output layer takes.

        Args:
            tokens: `(sentences, hypotheses)`, integers.
            mask: over earlier tokens. It has nothing to hide here: they are in the state.

        Returns:
            `(sentences, hypotheses, d_model)`.
        """
        n = tokens.size(1)
        memory, source_mask, keys = (x.repeat_interleave(n, dim=0) for x in (self.memory, self.mask, self.keys))
        output, states = self.decoder.step(tokens.flatten(), self.states.flatten(0, 1), memory, source_mask, keys)
        self.states = states.unflatten(0, tokens.shape)
        return output.unflatten(0, tokens.shape)

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis i of each sentence go on from the state of `parents[:, i]`, `(sentences, hypotheses)`."""
        self.states = self.states.gather(1, parents[:, :, None].expand(-1, -1, self.states.size(-1)))

    def select(self, sentences: Tensor) -> None:
        """Go on with these sentences alone, `(sentences,)` integers."""
        self.memory, self.mask = self.memory[sentences], self.mask[sentences]
        self.keys, self.states = self.keys[sentences], self.states[sentences]


def recurrent_greedy_decode(model: RecurrentTranslator, source: Tensor, max_length: int) -> list[list[int]]:
    """Translate a batch, the likeliest token every time, and feed each token once: the state remembers the others.

    It ends when every sentence has its eos.

    Args:
        model: a `RecurrentTranslator`, in any mode; it is left in that mode.
        source: `(batch, source)`, integers, padded on the right.
        max_length: generate at most so many tokens a sentence. Bos does not count, eos does.

    Returns:
        One list of tokens a sentence, without bos, eos and pad.
    """
    config = model.config
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)
        keys = model.decoder.attention.project(memory)  # once: they are the same at every step
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
    """The translator of Bahdanau et al. (2015) in the sizes of `config`: `train(..., build_model=with_attention)`."""
    encoder = RecurrentEncoder(config.source_vocab, config.d_model, config.n_layers, config.dropout, config.pad_id)
    decoder = AttentionDecoder(config.target_vocab, config.d_model, config.dropout, config.pad_id)
    return RecurrentTranslator(config, encoder, decoder)


def with_context(
    context: Callable[[], nn.Module], build_model: Callable[[TransformerConfig], RecurrentTranslator] = with_attention
) -> Callable[[TransformerConfig], RecurrentTranslator]:
    """A `build_model` that puts another module, `FixedContext` for example, in the place of the attention."""

    def build(config: TransformerConfig) -> RecurrentTranslator:
        model = build_model(config)
        model.decoder.attention = context()
        return model

    return build


def additive_weights(model: RecurrentTranslator, source: Tensor, target: Tensor) -> Tensor:
    """What the decoder looks at while it reads `target`: weights `(batch, target, source)`, on the CPU.

    Args:
        model: with an `AdditiveAttention`; it is used in evaluation mode and left in the mode it was in.
        source: `(batch, source)`, integers.
        target: `(batch, target)`, integers, bos first.
    """
    rows: list[Tensor] = []
    hook = model.decoder.attention.register_forward_hook(lambda module, inputs, output: rows.append(output[1].cpu()))
    try:
        with evaluation_mode(model):
            model(source, target)
    finally:
        hook.remove()
    return torch.cat(rows, dim=1)
