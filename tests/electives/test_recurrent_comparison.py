"""The comparison must be fair, its scores by length must cover all sentences, and its figures must have alt text."""

import torch

from transformer_lab.electives.recurrent import AdditiveAttention, FixedContext, with_context
from transformer_lab.electives.recurrent_comparison import (
    ATTENTION,
    FIXED,
    TRANSFORMER,
    UNUSED,
    bleu_by_length,
    contenders,
    full_preset,
    seconds_in_training,
)
from transformer_lab.model import TransformerConfig
from transformer_lab.plots.recurrent_plots import (
    draw_additive_attention,
    draw_bleu_by_length,
    draw_heat_maps_side_by_side,
    draw_reach,
    draw_recurrent_translator,
)


def test_the_four_models_differ_only_in_what_is_compared():
    """All four models have the same tokens, batches, and updates, and nearly equal parameter counts (within 10%)."""
    lined_up = {one.name: one for one in contenders(full_preset(3), 192, 2e-3)}
    assert list(lined_up) == [ATTENTION, FIXED, UNUSED, TRANSFORMER]
    own = {"d_model", "n_layers", "peak_rate", "attention"}
    presets = [{k: v for k, v in vars(one.preset).items() if k not in own} for one in lined_up.values()]
    assert all(preset == presets[0] for preset in presets)
    sizes = []
    for one in lined_up.values():
        p = one.preset
        config = TransformerConfig(4000, 4000, p.d_model, p.n_heads, p.n_layers, p.d_ff, norm_first=True, tie=True)
        sizes.append(sum(parameter.numel() for parameter in one.build_model(config).parameters()))
    assert max(sizes) < 1.1 * min(sizes)


def test_a_context_replaces_only_the_attention():
    config = TransformerConfig(20, 20, d_model=8)
    model = with_context(FixedContext)(config)
    assert isinstance(model.decoder.attention, FixedContext)
    assert not list(model.decoder.attention.parameters())


def test_every_sentence_is_in_one_group():
    sources = ["a", "a b c", "a b c d e", "a b c d e f g h i"]
    references = ["the dog runs home now", "two men are on a boat", "it is a red car", "a child eats an apple"]
    groups = bleu_by_length(sources, references, references, limits=(1, 5))
    assert [(group["words"], group["sentences"]) for group in groups] == [("1-1", 1), ("2-5", 2), ("6+", 1)]
    assert all(group["bleu"] > 99.9 for group in groups)
    worse = bleu_by_length(sources, [*references[:3], "something else was said here"], references, limits=(1, 5))
    assert worse[-1]["bleu"] < 20
    assert worse[:-1] == groups[:-1]


def test_seconds_are_those_of_the_updates():
    """The time between epochs does not count, because it is spent on validation and saving."""
    lines = [{"kind": "step", "epoch": 1, "seconds": s} for s in (1.0, 2.0, 3.0)]
    lines += [{"kind": "step", "epoch": 2, "seconds": s} for s in (10.0, 11.0, 12.0)]
    assert seconds_in_training(lines, 2) == 3.0


def test_pictures_say_what_they_show():
    assert "The state before dog is the query" in draw_recurrent_translator(["Ein", "Hund"], ["a", "dog"]).get_label()
    attention = AdditiveAttention(1, 1, 1)
    assert "0.50 for the key 1" in draw_additive_attention(attention, [1.0, 1.0], 0.5).get_label()
    maps = {
        "source_tokens": ["Ein", "Hund"], "target_tokens": ["<bos>", "a"], "written": ["a", "dog"],
        "additive": [[0.9, 0.1], [0.2, 0.8]], "transformer": [torch.eye(2).tolist(), [[0.4, 0.6], [0.5, 0.5]]],
    }  # fmt: skip
    figure = draw_heat_maps_side_by_side(maps)
    assert "additive attention puts the most weight on these links: a to Ein, dog to Hund" in figure.get_label()
    assert figure.axes[1].get_title().endswith("last layer, mean of heads")
    for side, tokens in ((0, ["<bos>", "a"]), (1, ["a", "dog"])):  # inputs on the far left, labels on the far right
        own = [text.get_text() for text in figure.axes[side].texts if text.get_gid() in ("query", "next")]
        assert own == tokens
    results = {"one": {"bleu": 30.0, "bleu_by_length": [{"words": "1-8", "sentences": 3, "bleu": 31.0}]}}
    assert "one: 30.0 on all, 31.0 on sentences of 1-8 words" in draw_bleu_by_length(results).get_label()
    assert "0.5 one position earlier, 0.25 2 positions earlier" in draw_reach({"GRU": [4.0, 2.0, 1.0]}).get_label()


def test_a_model_looks_the_same_in_every_order():
    names = [one.name for one in contenders(full_preset(1), 192, 2e-3)]
    groups = [{"words": words, "sentences": 3, "bleu": 31.0} for words in ("1-8", "9+")]

    def looks(order):
        lines = draw_bleu_by_length({name: {"bleu": 30.0, "bleu_by_length": groups} for name in order}).axes[0].lines
        seen = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines]
        return dict(zip(order, seen, strict=True))

    assert looks(names) == looks(names[::-1])
    assert len(set(looks(names).values())) == 4
    assert len(set(looks(["one", "two"]).values())) == 2
