"""Figures: attention heat maps, training curves, schematics of the model, and explorers with controls.

Each name is imported only when it is first used, because importing matplotlib and ipywidgets takes a second.
"""

from importlib import import_module
from typing import Any

MODULES = {
    "architecture": ("draw_architecture",),
    "attention_explorer": ("explore", "explore_attention"),
    "attention_schematics": ("draw_attention_steps", "draw_multi_head_steps", "draw_word_weights"),
    "beam_tree": ("draw_beam", "draw_tree", "explore_beam"),
    "byte_pair_explorer": ("draw_byte_pairs", "explore_byte_pairs"),
    "curves": ("LiveCurve", "compare_runs", "plot_training"),
    "figures": ("new_picture", "save_figure"),
    "head_explorer": ("draw_without_heads", "explore_heads"),
    "heatmaps": ("STACKS", "attention_heatmap", "draw_attention"),
    "lines": ("draw_lines", "name_line"),
    "mask_explorer": ("compare_masks", "draw_masks", "explore_masks"),
    "model_plots": (
        "draw_bends", "draw_embedding_scale", "draw_encoding", "draw_growth", "draw_hands", "draw_influence",
        "draw_norm_runs", "draw_parameter_shares", "draw_similarities", "draw_spread", "draw_vectors", "influence",
        "set_weights",
    ),
    "next_token_explorer": ("draw_next_token", "explore_next_token"),
    "position_explorer": ("draw_positions", "explore_positions"),
    "schematics": (
        "draw_cache", "draw_layer", "draw_masking", "draw_next_token_questions", "draw_ngrams", "draw_residual_stream",
        "draw_token_path", "draw_training_loop",
    ),
    "scores_explorer": ("draw_scores", "explore_scores"),
    "text_plots": ("draw_batch", "draw_padding", "draw_padding_shares", "draw_word_frequencies"),
    "training_explorers": ("draw_label_smoothing", "draw_warmup", "explore_label_smoothing", "explore_warmup"),
    "training_watch": ("explore_training",),
}  # fmt: skip
MODULE_OF = {name: module for module, names in MODULES.items() for name in names}

__all__ = list(MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
