"""Figures of a recurrent translator: its structure, its attention, and its BLEU score by sentence length."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from transformer_lab.plots.figures import DARK, ORANGE, PALE, axes_in_inches, new_picture, tidy
from transformer_lab.plots.heatmaps import draw_map, label_length, label_with_tokens
from transformer_lab.plots.shapes import draw_arrow, write

LOOKS = [(DARK, "-", "o"), (ORANGE, "--", "s"), ("0.55", ":", "D"), ("black", "-.", "^")]  # color, line, marker
# Each model looks the same in every figure, regardless of which other models are shown and in which order.
LOOK_OF = dict(
    zip(("GRU with attention", "GRU without attention", "GRU, context never used", "Transformer"), LOOKS, strict=True)
)


def draw_recurrent_translator(source: Sequence[str], target: Sequence[str]) -> Figure:
    """Draw a recurrent encoder–decoder with attention (Bahdanau et al. 2015): its states and two decoding steps.

    The step that predicts the second target word is drawn in full, and the step before it is drawn in pale gray.

    Args:
        source: The words of the source sentence, at most six.
        target: The words of the target sentence, at least two.
    """
    text = (
        f"At the bottom, the encoder reads {' '.join(source)} in both directions: each word has a state, and arrows "
        f"connect the states to the right and to the left. At the top, the decoder writes {' '.join(target)}, with one "
        f"state per word. For each word, it reads the previous one: <bos> for the first, {target[0]} for the second. "
        f"The state before {target[1]} is the query, which is compared with all of the encoder's states. The resulting "
        "context is an input to both the next state and the prediction. The initial state comes from the encoder; it "
        "has already served as the query for the first word's context."
    )
    figure = new_picture(text, 9, 4.1)
    axes = figure.subplots()

    def connect(start: tuple[float, float], end: tuple[float, float], **look: Any) -> None:
        draw_arrow(axes, start, end, **{"color": "0.45", "linewidth": 1, "shrinkA": 13, "shrinkB": 13} | look)

    encoder = [(1.6 * i, 0.0) for i in range(len(source))]
    decoder = [(1.6 * i + 0.4, 3.0) for i in range(len(target) + 1)]
    for number, (place, word) in enumerate(zip(encoder, source, strict=True), 1):
        _box(axes, place, f"$h_{number}$", PALE)
        write(axes, place[0], -0.75, word, va="baseline", fontsize=11)
        connect((place[0], -0.6), place, shrinkA=2, shrinkB=11)
    for (left, _), (right, _) in pairwise(encoder):
        connect((left, 0.1), (right, 0.1))
        connect((right, -0.1), (left, -0.1))
    for number, place in enumerate(decoder):
        _box(axes, place, f"$s_{number}$", "white" if number == 0 else "#fdd0a2")
        if number:
            write(axes, place[0], 3.75, target[number - 1], va="baseline", fontsize=11)
            connect(place, (place[0], 3.7), shrinkA=11, shrinkB=2)
            read = ["<bos>", *target][number - 1]
            write(axes, place[0] + 0.1, 2.12, read, fontsize=10, style="italic", zorder=4)
            connect((place[0] + 0.08, 2.28), place, shrinkA=0, shrinkB=11)
    for left, right in pairwise(decoder):
        connect(left, right)
    connect(encoder[0], decoder[0], linestyle=":")
    pale = {"color": "0.75", "linewidth": 0.7}
    first = ((decoder[0][0] + decoder[1][0]) / 2, 1.75)
    _box(axes, first, "context", "white", "0.6")
    for place in encoder:
        connect(place, first, shrinkB=22, **pale)
    connect(decoder[0], first, linestyle="--", shrinkB=16, **pale)
    connect(first, decoder[1], **pale)
    context = ((decoder[1][0] + decoder[2][0]) / 2, 1.75)
    _box(axes, context, "context", PALE)
    for place, width in zip(encoder, [0.7, 3.2, 0.9, 0.6, 0.6, 0.6], strict=False):
        connect(place, context, color=DARK, linewidth=width, shrinkB=22)
    connect(context, decoder[2], color=DARK, linewidth=2)
    connect(context, (decoder[2][0] - 0.22, 3.8), color=DARK, linewidth=2, shrinkB=2)
    connect(decoder[1], context, color=ORANGE, linestyle="--", shrinkB=14)
    axes.text(context[0] - 0.42, 2.6, "query", color=ORANGE, ha="left", fontsize=10)
    for y, name in ((0.0, "encoder"), (3.0, "decoder")):
        write(axes, -0.85, y, name, ha="right", fontsize=11, color="0.3")
    axes.set(xlim=(-2.2, 1.6 * max(len(source), len(target) + 1) - 0.4), ylim=(-1.0, 4.1))
    axes.axis("off")
    return figure


def _box(axes: Any, place: tuple[float, float], text: str, color: str, ink: str = "black") -> None:
    box = {"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "0.4" if ink == "black" else ink}
    write(axes, *place, text, bbox=box, zorder=5, fontsize=11, color=ink)


def draw_additive_attention(attention: nn.Module, keys: Sequence[float], query: float = 0.0) -> Figure:
    """Draw the weights of additive attention with a single feature.

    Curves show the weights for queries from -3 to 3, and bars show the weights for one query.

    Args:
        attention: An `AdditiveAttention(1, 1, …)`.
        keys: The memory: one number per word.
        query: The query whose weights are drawn as bars.
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
        color, line, _ = LOOKS[number % len(LOOKS)]
        left.plot(queries, curves[:, number], line, color=color, label=f"key {key:g}")
    left.axvline(query, color="0.7", linewidth=1)
    left.set(xlabel="query", ylabel="weight", ylim=(0, 1), title="weight of each key by query")
    left.legend(frameon=False, fontsize=9)
    right.bar([f"{key:g}" for key in keys], bars, color=DARK)
    right.set(ylim=(0, 1), xlabel="key", title=f"query {query:g}")
    tidy(left, right)
    return figure


def draw_heat_maps_side_by_side(maps: Mapping[str, Any]) -> Figure:
    """Draw heat maps of additive attention and of a Transformer's last cross-attention side by side.

    Args:
        maps: The result of `heat_maps` in `transformer_lab.electives.recurrent_comparison`.
    """
    queries, keys, written = maps["target_tokens"], maps["source_tokens"], maps["written"]
    cell = min(0.34, 5.2 / len(keys))
    lettering = max(cell, 0.3)  # keeps labels legible in a long map
    panels = {
        "GRU:\nadditive attention": maps["additive"],
        "Transformer: cross-attention,\nlast layer, mean of heads": maps["transformer"][-1],
    }
    # Both maps have the same rows. The input tokens go on the far left, and the tokens to predict go on the far right.
    map_width, map_height = cell * len(keys), cell * len(queries)
    step = max(map_width, 2.3) + 0.35
    left, right = label_length(queries, lettering) + 0.5, label_length(written, lettering) + 0.5
    below, above = label_length(keys, lettering) + 0.45, 0.6
    width, height = left + step + max(map_width + right, 2.3), below + map_height + above
    figure = new_picture("", width, height, layout="none")
    words = []
    for column, (title, weights) in enumerate(panels.items()):
        weights = torch.tensor(weights)
        axes = axes_in_inches(figure, left + column * step, below, map_width, map_height)
        names = "query: token read (English)", "key (German)"
        draw_map(axes, weights.numpy(), [] if column else queries, keys, title, lettering, *names)
        links = [f"{token} to {keys[int(row.argmax())]}" for token, row in zip(written, weights, strict=True)]
        words.append(f"{title.replace(chr(10), ' ')} puts the most weight on these links: {', '.join(links)}")
    asked = figure.axes[1]
    label_with_tokens(asked, "next", written, lettering, color="0.25")
    beyond = len(keys) + (label_length(written, lettering) + 0.15) / cell
    asked.text(beyond, len(queries) / 2, "next token", rotation=90, ha="left", va="center", color="0.25")
    figure.set_label(f"Two heat maps of the same sentence pair. {'. '.join(words)}.")
    return figure


def draw_bleu_by_length(results: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw the BLEU scores of several models by the number of words in the source sentence.

    Args:
        results: Maps the name of each model to its `bleu` and `bleu_by_length`, as returned by `train_and_measure`. Up
            to four other models are allowed in addition to the four models in the comparison.
    """
    scores_in_words = "; ".join(
        f"{name}: {result['bleu']:.1f} on all, "
        + ", ".join(f"{group['bleu']:.1f} on sentences of {group['words']} words" for group in result["bleu_by_length"])
        for name, result in results.items()
    )
    figure = new_picture(f"BLEU by the length of the source sentence. {scores_in_words}.", 8.5, 3.3)
    axes = figure.subplots()
    others = iter(LOOKS)
    for name, result in results.items():
        color, line, mark = LOOK_OF.get(name) or next(others)
        groups = result["bleu_by_length"]
        labels = [f"{group['words']}\n({group['sentences']})" for group in groups]
        axes.plot(labels, [group["bleu"] for group in groups], line, marker=mark, color=color,
                  label=f"{name}: {result['bleu']:.1f} on all")  # fmt: skip
    axes.set(xlabel="words in the German sentence (number of sentences)", ylabel="BLEU", ylim=(0, None))
    tidy(axes, grid="y")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def draw_reach(reaches: Mapping[str, Sequence[float]]) -> Figure:
    """Plot how much of a gradient reaches the words 0, 1, 2, … positions earlier, on a logarithmic scale.

    Args:
        reaches: Maps the name of each model to the size of its gradient at each distance. Up to three models are
            allowed, and at least two distances are needed.
    """
    shares = "; ".join(
        f"{name}: {sizes[1] / sizes[0]:.2g} one position earlier, "
        f"{sizes[-1] / sizes[0]:.2g} {len(sizes) - 1} positions earlier"
        for name, sizes in reaches.items()
    )
    figure = new_picture(
        f"Gradient size by distance, as a fraction of its size at the word itself. {shares}.", 7.5, 3.0
    )
    axes = figure.subplots()
    for (name, sizes), (color, line, mark) in zip(reaches.items(), (LOOKS[0], LOOKS[3], LOOKS[1]), strict=False):
        axes.semilogy([size / sizes[0] for size in sizes], line, marker=mark, color=color, markersize=4, label=name)
    axes.set(xlabel="positions earlier", ylabel="relative gradient")
    tidy(axes)
    axes.legend(frameon=False)
    return figure
