"""Correct answers to notebook 11 in different styles."""

import heapq
import math

import torch
from torch import nn

# --- greedy_decode ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def greedy_one_by_one(model, source, max_length):
    """Decode each sentence by itself, with lists."""
    was_training = model.training
    model.eval()
    translations = []
    for sentence in source:
        memory, mask = model.encode(sentence.unsqueeze(0))
        written = [model.config.bos_id]
        while len(written) <= max_length and written[-1] != model.config.eos_id:
            written.append(int(torch.argmax(model.decode(torch.tensor([written]), memory, mask)[0, -1])))
        outside = {model.config.pad_id, model.config.bos_id, model.config.eos_id}
        translations.append([token for token in written if token not in outside])
    model.train(was_training)
    return translations


def greedy_with_pads_after_eos(model, source, max_length):
    """Fill finished rows with eos, and apply a softmax, which does not change the most likely token."""
    config, before = model.config, model.training
    model.eval()
    with torch.inference_mode():
        memory, mask = model.encode(source)
        done = torch.zeros(len(source), dtype=torch.bool)
        rows = torch.empty(len(source), 0, dtype=torch.long)
        for _ in range(max_length):
            fed = torch.cat([torch.full((len(source), 1), config.bos_id), rows], dim=1)
            new = model.decode(fed, memory, mask)[:, -1, :].softmax(-1).max(-1).indices
            new = torch.where(done, config.eos_id, new)
            rows = torch.cat([rows, new[:, None]], dim=1)
            done = done | (new == config.eos_id)
            if bool(done.all()):
                break
    model.train(before)
    found = []
    for row in rows:
        kept = row[: int((row == config.eos_id).int().argmax())] if config.eos_id in row else row
        found.append(kept[(kept != config.pad_id) & (kept != config.bos_id)].tolist())
    return found


def greedy_that_drops_the_finished(model, source, max_length):
    config = model.config
    mode = model.training
    model.eval()
    found = {}
    with torch.no_grad():
        memory, mask = model.encode(source)
        going = list(range(len(source)))
        written = {row: [config.bos_id] for row in going}
        for _ in range(max_length):
            if not going:
                break
            target = torch.tensor([written[row] for row in going])
            tokens = model.decode(target, memory[going], mask[going])[:, -1].topk(1).indices.flatten().tolist()
            for row, token in zip(list(going), tokens, strict=True):
                written[row].append(token)
                if token == config.eos_id:
                    going.remove(row)
        for row, tokens in written.items():
            found[row] = [t for t in tokens if t != config.eos_id and t != config.pad_id and t != config.bos_id]
    model.train(mode)
    return [found[row] for row in range(len(source))]


# --- length_penalty ---------------------------------------------------------------------------------------------------


def penalty_by_two_powers(length, alpha):
    return (5 + length) ** alpha / (5 + 1) ** alpha


def penalty_by_exponential(length, alpha):
    return math.exp(alpha * math.log((5 + length) / 6))


def penalty_of_torch(length, alpha):
    return torch.tensor((5.0 + length) / 6).pow(alpha).item()


# --- beam_search ------------------------------------------------------------------------------------------------------


class Hypothesis:
    def __init__(self, tokens, score, finished):
        self.tokens, self.score, self.finished = tokens, score, finished

    def worth(self, alpha):
        return self.score / (((5 + len(self.tokens)) / 6) ** alpha)


@torch.no_grad()
def beam_of_objects(model, source, beam_size, alpha, max_length):
    """Extend one hypothesis at a time with every token, and select the best with a heap."""
    mode, config = model.training, model.config
    model.eval()
    answers = []
    for row in range(source.size(0)):
        memory, mask = model.encode(source[row : row + 1])
        beam = [Hypothesis([], 0.0, False)]
        for _ in range(max_length):
            candidates = []
            for one in beam:
                if one.finished:
                    candidates.append(one)
                    continue
                logits = model.decode(torch.tensor([[config.bos_id] + one.tokens]), memory, mask)[0, -1]  # noqa: RUF005
                for token, gain in enumerate(torch.log_softmax(logits.double(), 0).tolist()):
                    candidates.append(Hypothesis(one.tokens + [token], one.score + gain, token == config.eos_id))  # noqa: RUF005
            beam = heapq.nlargest(beam_size, candidates, key=lambda one: one.score)
            if all(one.finished for one in beam):
                break
        best = max(beam, key=lambda one: one.worth(alpha)).tokens
        answers.append([token for token in best if token not in (config.pad_id, config.bos_id, config.eos_id)])
    model.train(mode)
    return answers


def beam_of_tensors(model, source, beam_size, alpha, max_length):
    """Use only tensors. A finished row has one child: an extra eos that costs nothing and is not counted."""
    config, before = model.config, model.training
    model.eval()
    answers = []
    with torch.no_grad():
        for sentence in source:
            memory, mask = model.encode(sentence[None])
            rows = torch.full((1, 1), config.bos_id)
            scores, lengths = torch.zeros(1, dtype=torch.float64), torch.zeros(1)
            for _ in range(max_length):
                n = len(rows)
                finished = (rows[:, 1:] == config.eos_id).any(1)
                if finished.all():
                    break
                gains = model.decode(rows, memory.repeat(n, 1, 1), mask.repeat(n, 1, 1, 1))[:, -1].double()
                gains = gains - gains.logsumexp(-1, keepdim=True)
                gains[finished] = -math.inf
                gains[finished, config.eos_id] = 0.0
                flat = (scores[:, None] + gains).flatten()
                scores, places = flat.topk(min(beam_size, int(flat.isfinite().sum())))
                parents, tokens = places // gains.size(1), places % gains.size(1)
                lengths = lengths[parents] + (~finished[parents])
                rows = torch.cat([rows[parents], tokens[:, None]], dim=1)
            best = rows[(scores / ((5 + lengths) / 6).pow(alpha)).argmax(), 1:].tolist()
            best = best[: best.index(config.eos_id)] if config.eos_id in best else best
            answers.append([t for t in best if t != config.pad_id and t != config.bos_id])
    model.train(before)
    return answers


def beam_by_recursion(model, source, beam_size, alpha, max_length):
    config, mode = model.config, model.training

    def grow(beam, steps, memory, mask):
        if steps == 0 or all(tokens[-1] == config.eos_id for _, tokens in beam):
            return beam
        children = [one for one in beam if one[1][-1] == config.eos_id]
        for score, tokens in beam:
            if tokens[-1] != config.eos_id:
                values = model.decode(torch.tensor([tokens]), memory, mask)[0, -1].log_softmax(-1)
                children += [(score + value, (*tokens, token)) for token, value in enumerate(values.tolist())]
        return grow(sorted(children, reverse=True)[:beam_size], steps - 1, memory, mask)

    model.eval()
    with torch.no_grad():
        answers = []
        for sentence in source.split(1):
            beam = grow([(0.0, (config.bos_id,))], max_length, *model.encode(sentence))
            _, tokens = max(beam, key=lambda one: one[0] * (6 / (4 + len(one[1]))) ** alpha)
            answers.append([t for t in tokens if t not in {config.bos_id, config.eos_id, config.pad_id}])
    model.train(mode)
    return answers


# --- CachedAttention --------------------------------------------------------------------------------------------------


class CacheByConcatenation:
    def __init__(self, attention, n_heads):
        self.attention, self.h = attention, n_heads
        self.k = self.v = None

    def heads(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def step(self, x, mask=None):
        a = self.attention
        k, v = self.heads(a.w_k(x)), self.heads(a.w_v(x))
        self.k = k if self.k is None else torch.cat((self.k, k), dim=-2)
        self.v = v if self.v is None else torch.cat((self.v, v), dim=-2)
        out = nn.functional.scaled_dot_product_attention(self.heads(a.w_q(x)), self.k, self.v, attn_mask=mask)
        return a.w_o(out.transpose(1, 2).flatten(2))

    def reorder(self, indices):
        self.k, self.v = self.k.index_select(0, indices), self.v.index_select(0, indices)


class CacheInOneTensor:
    """Store keys and values in one tensor, not split into heads, and use an additive mask."""

    def __init__(self, attention, heads):
        self.attention, self.heads, self.memory = attention, heads, torch.empty(0)

    def step(self, new, mask=None):
        one = torch.stack([self.attention.w_k(new), self.attention.w_v(new)])
        self.memory = torch.cat([self.memory, one], dim=2) if self.memory.numel() else one
        batch, steps, width = new.shape
        q = self.attention.w_q(new).view(batch, steps, self.heads, -1)
        k, v = (kept.view(batch, -1, self.heads, width // self.heads) for kept in self.memory)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / (width // self.heads) ** 0.5
        if mask is not None:
            scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -1e30)
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return self.attention.w_o(mixed.reshape(batch, steps, width))

    def reorder(self, indices):
        self.memory = self.memory[:, indices]


class CacheWithRoom(nn.Module):
    """Reserve room for a fixed number of tokens, and compute one head at a time."""

    ROOM = 16

    def __init__(self, attention, n_heads):
        super().__init__()
        self.attention, self.n_heads, self.used, self.kept = attention, n_heads, 0, {}

    def step(self, x, mask=None):
        batch, new, d_model = x.shape
        d_k = d_model // self.n_heads
        for name in ("w_k", "w_v"):
            room = self.kept.setdefault(name, torch.zeros(batch, self.ROOM, d_model))
            self.kept[name] = room.clone()
            self.kept[name][:, self.used : self.used + new] = getattr(self.attention, name)(x)
        self.used += new
        query, heads = self.attention.w_q(x), []
        for head in range(self.n_heads):
            part = slice(head * d_k, (head + 1) * d_k)
            keys, values = (self.kept[name][:, : self.used, part] for name in ("w_k", "w_v"))
            scores = torch.bmm(query[..., part], keys.transpose(1, 2)) * d_k**-0.5
            if mask is not None:
                scores = torch.where(mask[:, 0], scores, torch.tensor(-math.inf))
            heads.append(scores.softmax(-1) @ values)
        return self.attention.w_o(torch.cat(heads, dim=-1))

    def reorder(self, indices):
        self.kept = {name: torch.stack([kept[i] for i in indices.tolist()]) for name, kept in self.kept.items()}


VARIANTS = {
    "greedy_decode": [greedy_one_by_one, greedy_with_pads_after_eos, greedy_that_drops_the_finished],
    "length_penalty": [penalty_by_two_powers, penalty_by_exponential, penalty_of_torch],
    "beam_search": [beam_of_objects, beam_of_tensors, beam_by_recursion],
    "CachedAttention": [CacheByConcatenation, CacheInOneTensor, CacheWithRoom],
}
