"""Pictures of a recurrent translator: how its parts hang together, what it looks at, how it fares with length."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from transformer_lab.plots.figures import new_picture
from transformer_lab.plots.heatmaps import attention_heatmap, label_with_next_tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK, MIDDLE, ORANGE = "#08519c", "#6baed6", "#d95f02"
LOOKS = [(DARK, "-", "o"), (ORANGE, "--", "s"), ("0.55", ":", "D"), ("black", "-.", "^")]  # colour, line, mark


def draw_recurrent_translator(source: Sequence[str], target: Sequence[str]) -> "Figure":
    """The encoder's states, the decoder's, and the attention between them at one step.

    Args:
        source: a few words.
        target: a few words; the attention is that of the second.
    """
    text = (
        f"Below, the encoder reads {' '.join(source)} in both directions: a state above each word, with arrows to the "
        f"right and to the left. Above, the decoder writes {' '.join(target)}, a state for each word. The state before "
        f"{target[1]} asks all states of the encoder, and the context that it gets goes into the next state."
    )
    figure = new_picture(text, 9, 3.9)
    axes = figure.subplots()
    arrow = {"arrowstyle": "-|>", "color": "0.45", "shrinkA": 13, "shrinkB": 13}
    encoder = [(1.6 * i, 0.0) for i in range(len(source))]
    decoder = [(1.6 * i + 0.4, 3.0) for i in range(len(target) + 1)]
    for number, (place, word) in enumerate(zip(encoder, source, strict=True), 1):
        _box(axes, place, f"$h_{number}$", "#deebf7")
        axes.text(place[0], -0.75, word, ha="center", fontsize=11)
        axes.annotate("", place, (place[0], -0.6), arrowprops={"arrowstyle": "-|>", "color": "0.45", "shrinkB": 11})
    for left, right in pairwise(encoder):
        axes.annotate("", (right[0], 0.1), (left[0], 0.1), arrowprops=arrow)
        axes.annotate("", (left[0], -0.1), (right[0], -0.1), arrowprops=arrow)
    for number, place in enumerate(decoder):
        _box(axes, place, f"$s_{number}$", "white" if number == 0 else "#fdd0a2")
        if number:
            axes.text(place[0], 3.75, target[number - 1], ha="center", fontsize=11)
            axes.annotate("", (place[0], 3.7), place, arrowprops={"arrowstyle": "-|>", "color": "0.45", "shrinkA": 11})
    for left, right in pairwise(decoder):
        axes.annotate("", right, left, arrowprops=arrow)
    axes.annotate("", decoder[0], encoder[0], arrowprops=arrow | {"linestyle": ":"})
    context = ((decoder[1][0] + decoder[2][0]) / 2, 1.9)
    _box(axes, context, "context", "#deebf7")
    for place, width in zip(encoder, [0.7, 3.2, 0.9, 0.6, 0.6, 0.6], strict=False):
        axes.annotate("", context, place, arrowprops=arrow | {"color": DARK, "linewidth": width, "shrinkB": 22})
    axes.annotate("", decoder[2], context, arrowprops=arrow | {"color": DARK, "linewidth": 2})
    axes.annotate("", context, decoder[1], arrowprops=arrow | {"color": ORANGE, "linestyle": "--", "shrinkB": 18})
    axes.text(context[0] - 0.75, 2.45, "asks", color=ORANGE, ha="right", fontsize=10)
    axes.text(-0.85, 0.0, "encoder", ha="right", va="center", fontsize=11, color="0.3")
    axes.text(-0.85, 3.0, "decoder", ha="right", va="center", fontsize=11, color="0.3")
    axes.set(xlim=(-2.2, 1.6 * max(len(source), len(target) + 1) - 0.4), ylim=(-1.0, 4.1))
    axes.axis("off")
    return figure


def _box(axes: Any, place: tuple[float, float], text: str, colour: str) -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": "0.4"}
    axes.text(*place, text, ha="center", va="center", bbox=box, zorder=5, fontsize=11)


def draw_additive_attention(attention: nn.Module, keys: Sequence[float], query: float = 0.0) -> "Figure":
    """The weights of some keys of one feature each, for every query from -3 to 3, and for one of them as bars.

    Args:
        attention: an `AdditiveAttention(1, 1, …)`, whose weights decide.
        keys: a number for each word of the memory.
        query: the one that is shown as bars.
    """
    queries = torch.linspace(-3, 3, 121)
    memory = torch.tensor(keys, dtype=torch.float32)[None, :, None]
    with torch.no_grad():
        curves = attention(queries[None, :, None], memory)[1][0]  # (queries, keys)
        bars = attention(torch.tensor([[[query]]], dtype=torch.float32), memory)[1][0, 0]
    shares = ", ".join(f"{weight:.2f} for the key {key:g}" for weight, key in zip(bars.tolist(), keys, strict=True))
    figure = new_picture(f"With the query {query:g}, the weights are {shares}.", 8.5, 2.9)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    for number, key in enumerate(keys):
        colour, line, _ = LOOKS[number % len(LOOKS)]
        left.plot(queries, curves[:, number], line, color=colour, label=f"key {key:g}")
    left.axvline(query, color="0.7", linewidth=1)
    left.set(xlabel="query", ylabel="weight", ylim=(0, 1), title="the weight of each key, as the query moves")
    left.legend(frameon=False, fontsize=9)
    right.bar([f"{key:g}" for key in keys], bars, color=DARK)
    right.set(ylim=(0, 1), xlabel="key", title=f"query {query:g}")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_heat_maps_side_by_side(maps: Mapping[str, Any], layer: int = -1) -> "Figure":
    """The additive attention's map beside the Transformer's, on the same tokens.

    Args:
        maps: what `heat_maps` of `transformer_lab.electives.recurrent_comparison` gives.
        layer: of the Transformer; negative numbers count from the last.
    """
    queries, keys, written = maps["target_tokens"], maps["source_tokens"], maps["written"]
    cell = min(0.34, 4.6 / len(keys))
    width, height = 2 * cell * len(keys) + 3.4, cell * len(queries) + 1.9
    figure = new_picture("", max(width, 7.0), height)
    layers = len(maps["transformer"])
    panels = {
        "GRU: additive attention": maps["additive"],
        f"Transformer: cross-attention,\nlayer {layer % layers}, mean of heads": maps["transformer"][layer],
    }
    words = []
    for axes, (title, weights) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        weights = torch.tensor(weights)
        attention_heatmap(weights, queries, keys, title, axes)
        axes.set(xlabel="key (German)", ylabel="query: token read (English)")
        label_with_next_tokens(axes, [*queries[:1], *written], cell)
        links = [f"{token} to {keys[int(row.argmax())]}" for token, row in zip(written, weights, strict=True)]
        words.append(f"{title.splitlines()[0]} goes most from {', '.join(links)}")
    figure.set_label(f"Two heat maps of the same sentence pair. {'. '.join(words)}.")
    return figure


def draw_bleu_by_length(results: Mapping[str, Mapping[str, Any]]) -> "Figure":
    """BLEU of several models, all sentences and by the number of words of the source.

    Args:
        results: name of a model to what `train_and_measure` gives: `bleu` and `bleu_by_length`.
    """
    said = "; ".join(
        f"{name}: {result['bleu']:.1f} on all, "
        + ", ".join(f"{group['bleu']:.1f} on {group['words']} words" for group in result["bleu_by_length"])
        for name, result in results.items()
    )
    figure = new_picture(f"BLEU by the length of the source. {said}.", 8.5, 3.3)
    axes = figure.subplots()
    for (name, result), (colour, line, mark) in zip(results.items(), LOOKS, strict=False):
        groups = result["bleu_by_length"]
        labels = [f"{group['words']}\n({group['sentences']})" for group in groups]
        axes.plot(labels, [group["bleu"] for group in groups], line, marker=mark, color=colour,
                  label=f"{name}: {result['bleu']:.1f} on all")  # fmt: skip
    axes.set(xlabel="words of the German sentence (number of sentences)", ylabel="BLEU", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.92")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def draw_reach(reaches: Mapping[str, Sequence[float]]) -> "Figure":
    """How much of a gradient arrives so many words away, on a logarithmic scale.

    Args:
        reaches: name of a model to the size of the gradient at the distances 0, 1, 2, ….
    """
    said = "; ".join(f"{name}: {sizes[1] / sizes[0]:.2g} after one word, {sizes[-1] / sizes[0]:.2g} after "
                     f"{len(sizes) - 1}" for name, sizes in reaches.items())  # fmt: skip
    figure = new_picture(f"What is left of a gradient, as a share of that at the word itself. {said}.", 7.5, 3.0)
    axes = figure.subplots()
    for (name, sizes), (colour, line, mark) in zip(reaches.items(), (LOOKS[0], LOOKS[3], LOOKS[1]), strict=False):
        axes.semilogy([size / sizes[0] for size in sizes], line, marker=mark, color=colour, markersize=4, label=name)
    axes.set(xlabel="words between", ylabel="gradient that arrives")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
