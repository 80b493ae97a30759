"""The search tree must be the one that beam search explores."""

from transformer_lab.decoding import beam_search
from transformer_lab.decoding.search_tree import search_tree

PAD, BOS, EOS = 0, 1, 2


def test_its_best_is_what_beam_search_returns(table_model, sharpened_model, random_sources):
    for seed in range(4):
        source = random_sources(seed, batch=1)
        for model in (table_model(seed, eos_bonus=seed % 3), sharpened_model(seed)):
            for beam_size in (1, 3):
                tree = search_tree(model, source, beam_size, 8)
                for alpha in (0.0, 0.6, 2.0):
                    tokens = [tree.nodes[place].token for place in tree.path(tree.best(alpha))]
                    translation = [token for token in tokens if token not in (PAD, BOS, EOS)]
                    assert [translation] == beam_search(model, source, beam_size, alpha, 8)


def test_scores_add_up_and_beams_are_full(table_model, random_sources):
    """A finished hypothesis stays in the beam and has no children."""
    model = table_model(3, eos_bonus=1.0)
    tree = search_tree(model, random_sources(3, batch=1), 3, 6)
    assert [len(beam) for beam in tree.beams] == [1] + [3] * (len(tree.beams) - 1)
    for place, node in enumerate(tree.nodes[1:], 1):
        assert tree.nodes[node.parent].length == node.length - 1
        assert node.score < tree.nodes[node.parent].score
        assert not tree.finished(node.parent)
        assert len(tree.path(place)) == node.length
    assert any(tree.finished(place) and place in tree.beams[-2] for place in tree.beams[-1])
