"""Correct answers to notebook 08 in different styles."""

import math
from collections import Counter
from dataclasses import asdict, replace

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab.model import (
    Decoder,
    Encoder,
    PositionalEncoding,
    TokenEmbedding,
    causal_mask,
    initialize_parameters,
    padding_mask,
    target_mask,
    tie_embeddings,
)


@torch.no_grad()
def filled_by_hand(model):
    """Sample normal numbers with Xavier's standard deviation, without calling `nn.init`."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    shared = {id(table.weight) for table in tables}
    for module in model.modules():
        if type(module) is nn.Linear:
            if id(module.weight) not in shared:
                module.weight.normal_(0, math.sqrt(2 / sum(module.weight.shape)))
            if module.bias is not None:
                module.bias.fill_(0)
    for table in tables:
        table.weight.copy_(torch.randn(table.weight.shape) / math.sqrt(table.weight.shape[1]))
        if table.padding_idx is not None:
            table.weight[table.padding_idx] = 0


def filled_by_apply(model):
    def matrices(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            nn.init.constant_(module.bias, 0) if module.bias is not None else None

    def tables(module):
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, mean=0, std=1 / module.embedding_dim**0.5)
            module._fill_padding_idx_with_zero()

    model.apply(matrices).apply(tables)


def filled_by_name(model):
    for module in reversed(list(model.modules())):
        match module:
            case nn.Linear(weight=weight, bias=bias):
                bound = math.sqrt(6 / (weight.size(0) + weight.size(1)))
                weight.data.uniform_(-bound, bound)
                if bias is not None:
                    bias.data.zero_()
    for module in model.modules():
        match module:
            case nn.Embedding(weight=weight, padding_idx=pad):
                weight.data = torch.normal(0.0, weight.size(-1) ** -0.5, weight.shape)
                if pad is not None:
                    weight.data[pad].zero_()


def tied_to_source(model):
    tables = [model.source_embedding.embedding, model.target_embedding.embedding]
    if tables[0].weight.shape != tables[1].weight.shape:
        raise ValueError(f"vocabularies of {tables[0].num_embeddings} and {tables[1].num_embeddings} cannot be tied")
    for part in (tables[1], model.output):
        part.weight = tables[0].weight


def tied_to_output(model):
    if len({len(e.embedding.weight) for e in (model.source_embedding, model.target_embedding)}) > 1:
        raise ValueError("one vocabulary is needed")
    model.source_embedding.embedding.weight = model.target_embedding.embedding.weight = model.output.weight


def tied_to_a_new_parameter(model):
    if model.config.source_vocab != model.config.target_vocab:
        raise ValueError(f"{model.config.source_vocab} is not {model.config.target_vocab}")
    weight = nn.Parameter(torch.randn(model.config.target_vocab, model.config.d_model))
    for part in (model.source_embedding.embedding, model.target_embedding.embedding, model.output):
        del part.weight
        part.register_parameter("weight", weight)


def tied_by_module(model):
    """Share one embedding object between both sides, so that its weight is shared as well."""
    source, target = model.source_embedding.embedding, model.target_embedding.embedding
    if source.weight.size() != target.weight.size():
        raise ValueError("sizes differ")
    model.target_embedding = model.source_embedding
    model.output.weight = model.source_embedding.embedding.weight


class TransformerInSteps(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.output = nn.Linear(config.d_model, config.target_vocab)
        self.decoder = Decoder(config.n_layers, config.d_model, config.n_heads, config.d_ff, config.dropout,
                               config.norm_first)  # fmt: skip
        self.encoder = Encoder(config.n_layers, config.d_model, config.n_heads, config.d_ff, config.dropout,
                               config.norm_first)  # fmt: skip
        self.positional_encoding = PositionalEncoding(config.d_model, config.dropout, config.max_length)
        self.target_embedding = TokenEmbedding(config.target_vocab, config.d_model, config.pad_id)
        self.source_embedding = TokenEmbedding(config.source_vocab, config.d_model, config.pad_id)
        self.config = config
        initialize_parameters(self)
        if config.tie:
            tie_embeddings(self)

    def encode(self, source):
        mask = padding_mask(source, self.config.pad_id)
        embedded = self.source_embedding(source)
        embedded = self.positional_encoding(embedded)
        return self.encoder(embedded, mask), mask

    def decode(self, target, memory, source_mask):
        mask = target_mask(target, self.config.pad_id)
        embedded = self.positional_encoding(self.target_embedding(target))
        return self.output(self.decoder(embedded, memory, source_mask, mask))

    def forward(self, source, target):
        memory, mask = self.encode(source)
        return self.decode(target, memory, mask)


class TransformerWithCausalMaskOnly(TransformerInSteps):
    """Use only a causal mask, which hides padding from real words because padding is on the right."""

    def decode(self, target, memory, source_mask):
        x = self.positional_encoding(self.target_embedding(target))
        hidden = self.decoder(x, memory, source_mask=source_mask, target_mask=causal_mask(target.size(1)))
        return F.linear(hidden, self.output.weight, self.output.bias)


class TransformerWithOwnTable(nn.Module):
    """Use a single embedding table if the weights are tied."""

    def __init__(self, config):
        super().__init__()
        self.config = replace(config)
        if config.tie and config.source_vocab != config.target_vocab:
            raise ValueError(f"{config.source_vocab} source words and {config.target_vocab} target words")
        embedding = TokenEmbedding(config.source_vocab, config.d_model, pad_id=config.pad_id)
        self.source_embedding = embedding
        other = TokenEmbedding(config.target_vocab, config.d_model, pad_id=config.pad_id)
        self.target_embedding = embedding if config.tie else other
        names = ("n_layers", "d_model", "n_heads", "d_ff", "dropout", "norm_first")
        self.encoder, self.decoder = (Stack(**{n: asdict(config)[n] for n in names}) for Stack in (Encoder, Decoder))
        self.positional_encoding = PositionalEncoding(config.d_model, config.dropout, max_length=config.max_length)
        self.output = nn.Linear(config.d_model, config.target_vocab)
        if config.tie:
            self.output.weight = embedding.embedding.weight
        initialize_parameters(self)

    def embed(self, table, tokens):
        return self.positional_encoding(table(tokens)), tokens.ne(self.config.pad_id)[:, None, None]

    def encode(self, source):
        x, mask = self.embed(self.source_embedding, source)
        return self.encoder(x, mask), mask

    def decode(self, target, memory, source_mask):
        x, mask = self.embed(self.target_embedding, target)
        length = target.size(1)
        past = torch.arange(length)[:, None] >= torch.arange(length)
        return self.output(self.decoder(x, memory, source_mask, mask.logical_and(past)))

    def forward(self, source, target):
        return self.decode(target, *self.encode(source))


def linear(inputs, outputs):
    return (inputs + 1) * outputs


def counted_by_layers(config):
    """Add up the parameters layer by layer."""
    d, total = config.d_model, 0
    for attentions in (1, 2):  # encoder and decoder layers
        for _ in range(config.n_layers):
            total += attentions * 4 * linear(d, d) + linear(d, config.d_ff) + linear(config.d_ff, d)
            total += (attentions + 1) * 2 * d
        total += 2 * d if config.norm_first else 0
    if config.tie:
        return total + linear(d, config.target_vocab)
    return total + linear(d, config.target_vocab) + d * (config.source_vocab + config.target_vocab)


def counted_by_shapes(config):
    d, f, n = config.d_model, config.d_ff, config.n_layers
    shapes = Counter()
    shapes[d, d] += 3 * n * 4
    shapes[d, f] += 2 * 2 * n
    shapes[1, d] += 3 * n * 4 + 2 * n + 2 * 5 * n + 4 * config.norm_first
    shapes[1, f] += 2 * n
    shapes[config.target_vocab, d] += 1 if config.tie else 2
    shapes[config.source_vocab, d] += 0 if config.tie else 1
    shapes[1, config.target_vocab] += 1
    return sum(math.prod(shape) * count for shape, count in shapes.items())


def counted_in_one_line(c):
    tables = c.target_vocab if c.tie else c.source_vocab + 2 * c.target_vocab
    return (
        c.n_layers * (12 * c.d_model**2 + 4 * c.d_model * c.d_ff + 2 * c.d_ff + 24 * c.d_model)
        + 4 * c.d_model * int(c.norm_first)
        + tables * c.d_model
        + c.target_vocab
    )


VARIANTS = {
    "initialize_parameters": [filled_by_hand, filled_by_apply, filled_by_name],
    "tie_embeddings": [tied_to_source, tied_to_output, tied_to_a_new_parameter, tied_by_module],
    "Transformer": [TransformerInSteps, TransformerWithCausalMaskOnly, TransformerWithOwnTable],
    "count_parameters": [counted_by_layers, counted_by_shapes, counted_in_one_line],
}
