"""Correct answers to notebook 20 in different styles."""

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.electives.recurrent import AttentionDecoder
from transformer_lab.model import TokenEmbedding


class AdditiveWithFill(nn.Module):
    """Set hidden scores to -1e9, as most tutorials do, and repeat queries instead of broadcasting them."""

    def __init__(self, d_query, d_memory, d_attention):
        super().__init__()
        self.v = nn.Linear(d_attention, 1, bias=False)
        self.w_k = nn.Linear(d_memory, d_attention, bias=False)
        self.w_q = nn.Linear(d_query, d_attention)

    def project(self, memory):
        return self.w_k(memory)

    def forward(self, query, memory, mask=None, keys=None):
        keys = self.project(memory) if keys is None else keys
        q = self.w_q(query).unsqueeze(2).repeat(1, 1, memory.size(1), 1)
        k = keys.unsqueeze(1).repeat(1, query.size(1), 1, 1)
        scores = self.v(torch.tanh(q + k))[..., 0]
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, memory), weights


class AdditiveByQuery(nn.Module):
    """Handle one query at a time, with the exponentials written out."""

    def __init__(self, *sizes):
        super().__init__()
        self.w_q, self.w_k = nn.Linear(sizes[0], sizes[2]), nn.Linear(sizes[1], sizes[2], bias=False)
        self.v = nn.Linear(sizes[2], 1, bias=False)

    def project(self, memory):
        return self.w_k(memory)

    def forward(self, query, memory, mask=None, keys=None):
        keys = self.w_k(memory) if keys is None else keys
        rows = []
        for number in range(query.size(1)):
            scores = self.v((self.w_q(query[:, number : number + 1]) + keys).tanh())[:, :, 0]
            exponentials = (scores - scores.max(dim=-1, keepdim=True).values).exp()
            if mask is not None:
                exponentials = exponentials * mask[:, min(number, mask.size(1) - 1)]
            rows.append(exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-30))
        weights = torch.stack(rows, dim=1)
        return torch.einsum("bqk,bkd->bqd", weights, memory), weights


class AdditiveByEinsum(nn.Module):
    def __init__(self, d_query, d_memory, d_attention):
        super().__init__()
        self.w_q = nn.Linear(d_query, d_attention, bias=True)
        self.w_k = nn.Linear(d_memory, d_attention, bias=False)
        self.v = nn.Linear(d_attention, 1, False)

    def project(self, memory):
        return self.w_k(memory)

    def forward(self, query, memory, mask=None, keys=None):
        if keys is None:
            keys = memory.matmul(self.w_k.weight.T)
        features = torch.tanh(self.w_q(query)[..., None, :] + keys[..., None, :, :])
        scores = torch.einsum("bqkd,d->bqk", features, self.v.weight[0])
        if mask is not None:
            scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
        weights = scores.log_softmax(-1).exp()
        return weights.matmul(memory), weights


class EncoderSorted(nn.Module):
    """Sort the sentences by length manually, and restore their order afterward."""

    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__()
        if d_model % 2 == 1:
            raise ValueError("odd")
        between = dropout if n_layers > 1 else 0
        self.gru = nn.GRU(d_model, d_model // 2, n_layers, batch_first=True, bidirectional=True, dropout=between)
        self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)
        self.pad, self.p = pad_id, dropout

    def forward(self, source):
        lengths = source.ne(self.pad).sum(1)
        lengths, order = lengths.sort(descending=True)
        x = F.dropout(self.embedding(source[order]), self.p, self.training)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.tolist(), batch_first=True)
        states = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], True, 0.0, source.shape[1])[0]
        return F.dropout(states[order.argsort()], self.p, self.training)


class EncoderPackedTimeFirst(nn.Module):
    """Pack with time as the first axis, and do not check for an odd width. Once packed, the sequences are the same."""

    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__()
        self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)
        sizes = d_model, d_model // 2, n_layers
        self.gru = nn.GRU(*sizes, bidirectional=True, batch_first=True, dropout=dropout)  # torch warns about dropout
        self.drop, self.pad_id = nn.Dropout(dropout), pad_id

    def forward(self, source):
        mask = source != self.pad_id
        x = self.drop(self.embedding(source.T))
        packed = nn.utils.rnn.pack_padded_sequence(x, mask.sum(-1).to("cpu"), enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], total_length=source.size(1))
        return self.drop(states.transpose(0, 1)) * mask[..., None]


class EncoderOneByOne(nn.Module):
    """Encode each sentence alone, truncated to its length. This is slow but needs no packing."""

    def __init__(self, vocab_size, d_model, n_layers=1, dropout=0.0, pad_id=0):
        super().__init__()
        half, rest = divmod(d_model, 2)
        if rest:
            raise ValueError(f"{d_model} has no half")
        self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)
        self.gru = nn.GRU(d_model, half, n_layers, True, True, dropout * (n_layers > 1), True)
        self.dropout, self.pad_id = nn.Dropout(dropout), pad_id

    def forward(self, source):
        states = []
        for sentence in source:
            words = sentence[sentence != self.pad_id]
            one = self.gru(self.dropout(self.embedding(words[None])))[0][0]
            states.append(F.pad(one, (0, 0, 0, len(sentence) - len(words))))
        return self.dropout(torch.stack(states))


class DecoderWithoutKeys(AttentionDecoder):
    """Let the attention compute the keys, and give it a query of shape `(batch, 1, features)`."""

    def step(self, token, state, memory, mask=None, keys=None):
        embedded = self.dropout(self.embedding(token))
        context = self.attention(state.unsqueeze(1), memory, mask)[0][:, 0, :]
        new_state = self.cell(torch.cat((embedded, context), 1), state)
        return self.dropout(torch.tanh(self.w_o(torch.cat((new_state, context, embedded), 1)))), new_state

    def forward(self, target, memory, mask=None):
        state = self.first_state(memory)
        outputs = torch.zeros(target.shape[0], target.shape[1], state.shape[1], dtype=state.dtype)
        for i in range(target.shape[1]):
            outputs[:, i], state = self.step(target[:, i], state, memory, mask)
        return outputs


class DecoderByRecursion(AttentionDecoder):
    def step(self, token, state, memory, mask=None, keys=None):
        x = self.dropout(self.embedding(token[:, None]))
        context, _ = self.attention(state[:, None], memory, mask=mask, keys=keys)
        state = self.cell(torch.cat([x, context], -1).squeeze(1), state)
        shown = torch.cat([state[:, None], context, x], -1)
        return self.dropout(self.w_o(shown).tanh()).squeeze(1), state

    def forward(self, target, memory, mask=None):
        def rest(position, state):
            if position == target.size(1):
                return []
            output, state = self.step(target[:, position], state, memory, mask)
            return [output[:, None], *rest(position + 1, state)]

        return torch.cat(rest(0, self.first_state(memory)), dim=1)


class DecoderByMatrices(AttentionDecoder):
    """Split the weights of `w_o` and of the cell, and look up all embeddings at once."""

    def cell_by_hand(self, x, state):
        gates_x = F.linear(x, self.cell.weight_ih, self.cell.bias_ih).chunk(3, -1)
        gates_h = F.linear(state, self.cell.weight_hh, self.cell.bias_hh).chunk(3, -1)
        reset, update = (torch.sigmoid(a + b) for a, b in list(zip(gates_x, gates_h, strict=True))[:2])
        new = torch.tanh(gates_x[2] + reset * gates_h[2])
        return (1 - update) * new + update * state

    def with_embedding(self, x, state, memory, mask):
        context = self.attention(state[:, None], memory, mask)[0].sum(1)
        state = self.cell_by_hand(torch.cat([x, context], -1), state)
        of_state, of_context, of_x = self.w_o.weight.chunk(3, dim=1)
        output = state @ of_state.T + context @ of_context.T + x @ of_x.T + self.w_o.bias
        return self.dropout(output.tanh()), state

    def step(self, token, state, memory, mask=None, keys=None):
        return self.with_embedding(self.dropout(self.embedding(token)), state, memory, mask)

    def forward(self, target, memory, mask=None):
        embedded, state, outputs = self.dropout(self.embedding(target)), self.first_state(memory), []
        for x in embedded.transpose(0, 1):
            output, state = self.with_embedding(x, state, memory, mask)
            outputs.append(output)
        return torch.stack(outputs).transpose(0, 1)


def decode_by_lists(model, source, max_length):
    """Decode each sentence alone, with the loop condition written out."""
    was_training, config, translations = model.training, model.config, []
    model.eval()
    with torch.no_grad():
        for sentence in source:
            memory, source_mask = model.encode(sentence[None])
            state, token, tokens = model.decoder.first_state(memory), config.bos_id, []
            while len(tokens) < max_length and config.eos_id not in tokens:
                output, state = model.decoder.step(torch.tensor([token]), state, memory, source_mask[:, 0])
                token = int(model.output(output)[0].argmax())
                tokens.append(token)
            translations.append([t for t in tokens if t not in (config.pad_id, config.bos_id, config.eos_id)])
    model.train(was_training)
    return translations


def decode_until_each_has_ended(model, source, max_length):
    """Keep the tokens after eos at first, and cut them off at the end."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        memory, mask = model.encode(source)
        keys = model.decoder.attention.project(memory)
        state = model.decoder.first_state(memory)
        token = torch.tensor([model.config.bos_id] * len(source))
        rows = [[] for _ in source]
        while len(rows[0]) < max_length and not all(model.config.eos_id in row for row in rows):
            output, state = model.decoder.step(token, state, memory, mask.squeeze(1), keys)
            token = model.output(output).softmax(-1).max(-1).indices
            for row, one in zip(rows, token.tolist(), strict=True):
                row.append(one)
    model.train(was_training)
    cut = [row[: row.index(model.config.eos_id)] if model.config.eos_id in row else row for row in rows]
    return [[one for one in row if one not in (model.config.pad_id, model.config.bos_id)] for row in cut]


@torch.no_grad()
def decode_with_padding(model, source, max_length):
    """Feed padding to a sentence that has ended, and record padding as its output."""
    config, was_training = model.config, model.training
    model.eval()
    memory, mask = model.encode(source)
    state, token = model.decoder.first_state(memory), source.new_full((len(source),), config.bos_id)
    tokens, finished = [], torch.zeros(len(source), dtype=torch.bool)
    for _ in range(max_length):
        output, state = model.decoder.step(token, state, memory, mask[:, 0])
        best = model.output(output).max(dim=-1).indices
        token = torch.where(finished, config.pad_id, best)
        finished = finished | (token == config.eos_id)
        tokens.append(token)
        if bool(finished.all()):
            break
    model.train(was_training)
    specials = {config.pad_id, config.bos_id, config.eos_id}
    return [[one for one in row if one not in specials] for row in torch.stack(tokens, 1).tolist()]


VARIANTS = {
    "AdditiveAttention": [AdditiveWithFill, AdditiveByQuery, AdditiveByEinsum],
    "RecurrentEncoder": [EncoderSorted, EncoderPackedTimeFirst, EncoderOneByOne],
    "AttentionDecoder": [DecoderWithoutKeys, DecoderByRecursion, DecoderByMatrices],
    "recurrent_greedy_decode": [decode_by_lists, decode_until_each_has_ended, decode_with_padding],
}
