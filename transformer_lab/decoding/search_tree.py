"""Record a beam search with all of its hypotheses, including those that dropped out of the beam."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lab.decoding.beam import length_penalty
from transformer_lab.decoding.incremental import cached_beam_search
from transformer_lab.model import Transformer


@dataclass(frozen=True)
class Node:
    """A hypothesis: its parent's tokens plus one more."""

    parent: int  # index into the tree's `nodes`; -1 for the root
    token: int
    score: float  # total log-probability of all its tokens
    length: int  # number of tokens, without bos


@dataclass(frozen=True)
class SearchTree:
    """All hypotheses of one search. The first node is the empty hypothesis, whose token is bos.

    `beams[t]` holds the indices of the nodes in the beam after t steps, best first.
    """

    nodes: list[Node]
    beams: list[list[int]]
    eos_id: int

    def finished(self, node: int) -> bool:
        return self.nodes[node].token == self.eos_id

    def path(self, node: int) -> list[int]:
        """Return the node indices of a hypothesis, from its first token to its last."""
        path = []
        while node > 0:
            path.append(node)
            node = self.nodes[node].parent
        return path[::-1]

    def normalized_score(self, node: int, alpha: float) -> float:
        """Return the log-probability divided by the length penalty. The search chooses the highest of these scores."""
        return self.nodes[node].score / length_penalty(self.nodes[node].length, alpha)

    def best(self, alpha: float) -> int:
        """Return the index of the hypothesis that `beam_search` would return."""
        return max(self.beams[-1], key=lambda node: self.normalized_score(node, alpha))


def search_tree(model: Transformer, source: Tensor, beam_size: int, max_length: int) -> SearchTree:
    """Record how `cached_beam_search` translates one sentence, `(1, source)`.

    The tree does not depend on alpha.
    """
    nodes, beams = [Node(-1, model.config.bos_id, 0.0, 0)], [[0]]
    tree = SearchTree(nodes, beams, model.config.eos_id)

    def add_step(tokens: Tensor, scores: Tensor, chosen: Tensor) -> None:
        candidates = []  # node indices; a finished hypothesis continues only as itself
        for parent, next_tokens, next_scores in zip(beams[-1], tokens[0].tolist(), scores[0].tolist(), strict=False):
            for token, score in zip(next_tokens, next_scores, strict=True):
                candidates.append(parent if tree.finished(parent) else len(nodes))
                if not tree.finished(parent):
                    nodes.append(Node(parent, token, score, len(beams)))
        survivors = chosen[0][scores[0].flatten()[chosen[0]] > -torch.inf]
        beams.append([candidates[index] for index in survivors.tolist()])

    cached_beam_search(model, source, beam_size, 0.0, max_length, add_step)
    return tree
