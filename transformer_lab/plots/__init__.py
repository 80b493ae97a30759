"""Figures: attention heat maps, training curves, schematics of the model, and explorers with controls."""

from transformer_lab.plots.architecture import draw_architecture
from transformer_lab.plots.attention_explorer import explore, explore_attention
from transformer_lab.plots.attention_schematics import draw_attention_steps, draw_multi_head_steps, draw_word_weights
from transformer_lab.plots.beam_tree import draw_beam, draw_tree, explore_beam
from transformer_lab.plots.byte_pair_explorer import draw_byte_pairs, explore_byte_pairs
from transformer_lab.plots.curves import LiveCurve, compare_trainings, plot_training
from transformer_lab.plots.embedding_plots import (
    draw_encoding,
    draw_hands,
    draw_similarities,
    draw_spread,
    draw_vectors,
)
from transformer_lab.plots.figures import new_picture, save_figure
from transformer_lab.plots.head_explorer import draw_without_heads, explore_heads
from transformer_lab.plots.heatmaps import STACKS, attention_heatmap, draw_attention
from transformer_lab.plots.influence import draw_influence, influence, set_weights
from transformer_lab.plots.lines import draw_lines, name_line
from transformer_lab.plots.mask_explorer import compare_masks, draw_masks, explore_masks
from transformer_lab.plots.model_plots import draw_embedding_scale, draw_parameter_shares
from transformer_lab.plots.next_token_explorer import draw_next_token, explore_next_token
from transformer_lab.plots.position_explorer import draw_positions, explore_positions
from transformer_lab.plots.schematics import (
    draw_cache,
    draw_layer,
    draw_masking,
    draw_next_token_questions,
    draw_ngrams,
    draw_residual_stream,
    draw_token_path,
    draw_training_loop,
)
from transformer_lab.plots.scores_explorer import draw_scores, explore_scores
from transformer_lab.plots.sublayer_plots import draw_bends, draw_growth, draw_norm_runs
from transformer_lab.plots.text_plots import draw_batch, draw_padding, draw_padding_shares, draw_word_frequencies
from transformer_lab.plots.training_explorers import (
    draw_label_smoothing,
    draw_warmup,
    explore_label_smoothing,
    explore_training,
    explore_warmup,
)

__all__ = [
    "STACKS",
    "LiveCurve",
    "attention_heatmap",
    "compare_masks",
    "compare_trainings",
    "draw_architecture",
    "draw_attention",
    "draw_attention_steps",
    "draw_batch",
    "draw_beam",
    "draw_bends",
    "draw_byte_pairs",
    "draw_cache",
    "draw_embedding_scale",
    "draw_encoding",
    "draw_growth",
    "draw_hands",
    "draw_influence",
    "draw_label_smoothing",
    "draw_layer",
    "draw_lines",
    "draw_masking",
    "draw_masks",
    "draw_multi_head_steps",
    "draw_next_token",
    "draw_next_token_questions",
    "draw_ngrams",
    "draw_norm_runs",
    "draw_padding",
    "draw_padding_shares",
    "draw_parameter_shares",
    "draw_positions",
    "draw_residual_stream",
    "draw_scores",
    "draw_similarities",
    "draw_spread",
    "draw_token_path",
    "draw_training_loop",
    "draw_tree",
    "draw_vectors",
    "draw_warmup",
    "draw_without_heads",
    "draw_word_frequencies",
    "draw_word_weights",
    "explore",
    "explore_attention",
    "explore_beam",
    "explore_byte_pairs",
    "explore_heads",
    "explore_label_smoothing",
    "explore_masks",
    "explore_next_token",
    "explore_positions",
    "explore_scores",
    "explore_training",
    "explore_warmup",
    "influence",
    "name_line",
    "new_picture",
    "plot_training",
    "save_figure",
    "set_weights",
]
