"""The shares in the bar chart must match a real model."""

import pytest

from transformer_lab.model import Transformer, TransformerConfig
from transformer_lab.plots.model_plots import draw_parameter_shares, parameter_shares

KINDS = {"attention": "attention", "feed_forward": "feed-forward", "norm": "norms"}


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"tie": True}])
def test_shares_are_those_of_the_built_model(options):
    """If a norm were counted as attention, the figure would be wrong even though the total is right."""
    config = TransformerConfig(11, 11, d_model=8, n_heads=2, n_layers=3, d_ff=20, **options)
    counted = dict.fromkeys([*KINDS.values(), "embeddings and output"], 0)
    for name, parameter in Transformer(config).named_parameters():
        kind = next((kind for part, kind in KINDS.items() if part in name), "embeddings and output")
        counted[kind] += parameter.numel()
    assert parameter_shares(config) == counted


def test_a_bar_for_each_model():
    figure = draw_parameter_shares({"base": TransformerConfig(100, 100), "small": TransformerConfig(100, 100, d_ff=64)})
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["base", "small"]
    assert len(axes.patches) == 8
