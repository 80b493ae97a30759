"""Heat maps, curves and pictures: what the model looks at, how its training went, what it is made of."""

from transformer_lab.plots.architecture import draw_architecture
from transformer_lab.plots.curves import LiveCurve, plot_training
from transformer_lab.plots.explorers import explore_attention
from transformer_lab.plots.figures import new_picture, save_figure
from transformer_lab.plots.heatmaps import STACKS, attention_heatmap, draw_attention

__all__ = [
    "STACKS",
    "LiveCurve",
    "attention_heatmap",
    "draw_architecture",
    "draw_attention",
    "explore_attention",
    "new_picture",
    "plot_training",
    "save_figure",
]
