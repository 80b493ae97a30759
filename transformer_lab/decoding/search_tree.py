"""A beam search that forgets nothing: what it tried, what it kept, and what it dropped."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lab.decoding.beam import length_penalty
from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.model import Transformer
from transformer_lab.reimplementations import reimplements


@dataclass(frozen=True)
class Node:
    """A hypothesis: that of its parent and one token more."""

    parent: int  # its place in the tree's `nodes`; -1 for the root
    token: int
    score: float  # the log-probability of all its tokens together
    length: int  # how many tokens it has, without bos


@dataclass(frozen=True)
class SearchTree:
    """All hypotheses of one search. The first node is the empty one, whose token is bos.

    `beams[t]` has the places of those that were in the beam after t steps, best first.
    """

    nodes: list[Node]
    beams: list[list[int]]
    eos_id: int

    def finished(self, place: int) -> bool:
        return self.nodes[place].token == self.eos_id

    def path(self, place: int) -> list[int]:
        """The places from the first token of a hypothesis to its last."""
        path = []
        while place > 0:
            path.append(place)
            place = self.nodes[place].parent
        return path[::-1]

    def normalized_score(self, place: int, alpha: float) -> float:
        """The log-probability divided by the length penalty: what decides in the end."""
        return self.nodes[place].score / length_penalty(self.nodes[place].length, alpha)

    def best(self, alpha: float) -> int:
        """The place of the hypothesis that `beam_search` returns."""
        return max(self.beams[-1], key=lambda place: self.normalized_score(place, alpha))


@reimplements("beam_search")
def search_tree(model: Transformer, source: Tensor, beam_size: int, max_length: int) -> SearchTree:
    """The search of `beam_search` for one sentence, `(1, source)`; alpha has no part in it until the end."""
    bos, eos = model.config.bos_id, model.config.eos_id
    nodes, beams = [Node(-1, bos, 0.0, 0)], [[0]]
    tree = SearchTree(nodes, beams, eos)
    with evaluation_mode(model):
        memory, source_mask = model.encode(source)  # (1, source, d_model), (1, 1, 1, source)
        for length in range(1, max_length + 1):
            unfinished = [place for place in beams[-1] if not tree.finished(place)]
            if not unfinished:
                break
            prefixes = [[bos, *(nodes[place].token for place in tree.path(end))] for end in unfinished]
            n = len(unfinished)
            target = torch.tensor(prefixes, device=source.device)  # (n, length)
            logits = model.decode(target, memory.expand(n, -1, -1), source_mask.expand(n, -1, -1, -1))[:, -1]
            best = logits.double().log_softmax(dim=-1).topk(min(beam_size, logits.size(-1)))  # (n, children)
            candidates = [place for place in beams[-1] if tree.finished(place)]
            log_probabilities, next_tokens = best.values.tolist(), best.indices.tolist()
            for parent, tokens, scores in zip(unfinished, next_tokens, log_probabilities, strict=True):
                for token, log_probability in zip(tokens, scores, strict=True):
                    candidates.append(len(nodes))
                    nodes.append(Node(parent, token, nodes[parent].score + log_probability, length))
            beams.append(sorted(candidates, key=lambda place: nodes[place].score, reverse=True)[:beam_size])
    return tree
