"""Correct answers to notebook 21 in different styles."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def pairs_by_unfold(tokens, length):
    if tokens.numel() < length + 1:
        raise ValueError("too short")
    windows = tokens.unfold(0, length + 1, length)  # each window begins with the previous one's last label
    return windows[:, :-1], windows[:, 1:]


def pairs_by_lists(tokens, length):
    inputs, labels = [], []
    for start in range(0, len(tokens) - length, length):
        inputs.append(tokens[start : start + length])
        labels.append(tokens[start + 1 : start + length + 1])
    if not inputs:
        raise ValueError(f"{len(tokens)} tokens")
    return torch.stack(inputs), torch.stack(labels)


def pairs_by_index(tokens, length):
    starts = torch.arange(0, max(len(tokens) - length, 0), length)
    if len(starts) == 0:
        raise ValueError("no window")
    places = starts[:, None] + torch.arange(length)
    return tokens[places], tokens[places + 1]


def loss_with_torchs_mask(model, inputs, labels):
    hidden = nn.Transformer.generate_square_subsequent_mask(inputs.size(1), device=inputs.device)
    return F.cross_entropy(model(inputs, hidden).transpose(1, 2), labels)


def loss_with_triu(model, inputs, labels):
    length = inputs.shape[1]
    logits = model(inputs, mask=torch.ones(length, length, dtype=torch.bool).triu(1))
    logs = logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1))
    return -logs.mean()


def loss_by_positions(model, inputs, labels):
    places = torch.arange(inputs.size(1))
    logits = model(inputs, places[None, :] > places[:, None])
    criterion = nn.CrossEntropyLoss()
    return torch.stack([criterion(logits[:, place], labels[:, place]) for place in places]).mean()


def top_k_by_threshold(logits, k):
    if k < 1:
        raise ValueError(k)
    if k >= logits.shape[-1]:
        return logits.clone()
    return torch.where(logits < logits.topk(k).values[..., -1, None], float("-inf"), logits)


def top_k_by_scatter(logits, k):
    if k <= 0:
        raise ValueError("k")
    values, places = logits.topk(min(logits.size(-1), k))
    return torch.full_like(logits, -torch.inf).scatter(-1, places, values)


def top_k_by_ranks(logits, k):
    if k < 1:
        raise ValueError("k must be positive")
    ranks = logits.argsort(dim=-1, descending=True).argsort(dim=-1)
    return logits + torch.where(ranks < k, 0.0, -math.inf)


def top_p_shifted(logits, p):
    if p <= 0 or p > 1:
        raise ValueError(p)
    if p == 1:
        return torch.empty_like(logits).copy_(logits)
    ordered, order = torch.sort(logits, descending=True)
    over = ordered.softmax(-1).cumsum(-1) >= p
    over[..., 1:] = over[..., :-1].clone()
    over[..., 0] = False
    return logits.masked_fill(over.scatter(-1, order, over), float("-inf"))


def top_p_ascending(logits, p):
    if not 0 < p <= 1:
        raise ValueError(p)
    probabilities, order = logits.softmax(-1).sort(dim=-1)
    gone = probabilities.cumsum(-1) <= 1 - p
    gone[..., -1] = False
    result = logits.clone()
    return result.scatter(-1, order, torch.where(gone, -math.inf, logits.gather(-1, order)))


def top_p_by_loops(logits, p):
    if p <= 0 or p > 1:
        raise ValueError(p)
    result = torch.full_like(logits, -math.inf) if p < 1 else 1 * logits
    for source, target in zip(logits.view(-1, logits.size(-1)), result.view(-1, logits.size(-1)), strict=True):
        total = 0.0
        for token in sorted(range(len(source)), key=lambda token: -source[token].item()):
            if total >= p:
                break
            target[token] = source[token]
            total += source.softmax(0)[token].item()
    return result


def filtered(logits, temperature, top_k, top_p):
    logits = logits / temperature
    if top_k:
        logits = top_k_by_scatter(logits, top_k)
    return top_p_shifted(logits, top_p) if top_p else logits


def refuse(prompt, temperature):
    if not len(prompt) or temperature < 0:
        raise ValueError("a prompt, and a temperature of 0 or more")


@torch.no_grad()
def sample_by_inverse(model, prompt, count, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Compare a uniform random number with cumulative probabilities, and keep the tokens in a list."""
    refuse(prompt, temperature)
    mode = model.training
    model.train(False)
    text = prompt.tolist()
    for _ in range(count):
        seen = torch.tensor(text[-model.max_length :])
        hidden = torch.ones(len(seen), len(seen)).triu(1).bool()
        logits = model(seen.unsqueeze(0), hidden)[0][-1]
        if temperature == 0:
            text.append(int(logits.argmax()))
        else:
            sums = filtered(logits, temperature, top_k, top_p).softmax(0).cumsum(0)
            drawn = torch.rand((), generator=generator) * sums[-1]
            text.append(min(int(torch.searchsorted(sums, drawn, right=True)), len(sums) - 1))
    model.train(mode)
    return torch.tensor(text[len(prompt) :])


def sample_by_gumbel(model, prompt, count, temperature=1.0, top_k=None, top_p=None, generator=None):
    """Add Gumbel noise to the logits and take the argmax. The result is a sample from the softmax distribution."""
    refuse(prompt, temperature)
    was, written = model.training, prompt.clone()
    model.eval()
    with torch.inference_mode():
        for _ in range(count):
            seen = written[max(0, len(written) - model.max_length) :]
            mask = torch.full((len(seen), len(seen)), -math.inf).triu(1)
            scores = model(seen[None], mask)[:, -1]
            if temperature > 0:
                noise = -torch.log(-torch.log(torch.rand(scores.shape, generator=generator)))
                scores = filtered(scores, temperature, top_k, top_p) + noise
            written = torch.cat([written, scores.argmax(dim=-1)])
    model.train(was)
    return written[len(prompt) :].clone()


def sample_recursively(model, prompt, count, temperature=1.0, top_k=None, top_p=None, generator=None):
    refuse(prompt, temperature)
    if count == 0:
        return prompt[:0]
    was = model.training
    model.eval()
    seen = prompt[-model.max_length :]
    with torch.no_grad():
        logits = model(seen[None], torch.triu(torch.ones(len(seen), len(seen), dtype=torch.bool), diagonal=1))[0, -1]
    model.train(was)
    if temperature == 0:
        token = logits.topk(1).indices
    else:
        token = filtered(logits, temperature, top_k, top_p).softmax(-1).multinomial(1, generator=generator)
    rest = sample_recursively(model, torch.cat([prompt, token]), count - 1, temperature, top_k, top_p, generator)
    return torch.cat([token, rest])


VARIANTS = {
    "next_token_pairs": [pairs_by_unfold, pairs_by_lists, pairs_by_index],
    "causal_language_model_loss": [loss_with_torchs_mask, loss_with_triu, loss_by_positions],
    "top_k_filter": [top_k_by_threshold, top_k_by_scatter, top_k_by_ranks],
    "top_p_filter": [top_p_shifted, top_p_ascending, top_p_by_loops],
    "sample": [sample_by_inverse, sample_by_gumbel, sample_recursively],
}
