"""Plots of embeddings, positional encodings, and the vectors of a sentence."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from transformer_lab.plots.figures import LIGHT, new_picture, tidy
from transformer_lab.plots.lines import COLORS, STYLES, name_line
from transformer_lab.plots.position_explorer import draw_waves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNED = "PuOr"  # a diverging color map: white is 0


def draw_spread(values: Mapping[str, Tensor], alternative_text: str, title: str) -> "Figure":
    """Draw a histogram for each set of values, one below another, over the same axis."""
    figure = new_picture(alternative_text, 7.6, 0.9 + 0.75 * len(values))
    rows = figure.subplots(len(values), 1, sharex=True)
    for axes, (name, numbers), color in zip(rows, values.items(), COLORS, strict=False):
        axes.hist(numbers.flatten().numpy(), bins=150, range=(-3, 3), density=True, histtype="stepfilled", color=color)
        axes.set_yticks([])
        label = f"{name}\nstandard deviation {numbers.std():.2f}"
        axes.text(0.99, 0.9, label, transform=axes.transAxes, ha="right", va="top", fontsize=9.5, color=color)
        axes.spines[["top", "right", "left"]].set_visible(False)
    rows[0].set_title(title, fontsize=11)
    rows[-1].set_xlabel("value of a feature")
    return figure


def draw_encoding(encoding: Tensor, features: Sequence[int]) -> "Figure":
    """Draw a table of positions `(length, d_model)` as a heat map, and some of its columns as waves."""
    length, d_model = encoding.shape
    figure = new_picture(
        f"On the left, the table of {length} positions and {d_model} features as a heat map: fine stripes on the "
        "left, nearly constant columns on the right. On the right, some of its columns as waves, each longer than "
        "the one before.",
        10.5,
        4,
    )
    left, right = figure.subplots(1, 2)
    image = left.imshow(encoding, cmap=SIGNED, aspect="auto", vmin=-1, vmax=1, interpolation="nearest")
    left.set(xlabel="feature", ylabel="position", title="Each row is a position")
    figure.colorbar(image, ax=left, ticks=(-1, 0, 1))
    draw_waves(right, {f"feature {feature}": encoding[:, feature] for feature in features})
    right.set_title("Each column is a wave")
    return figure


def draw_similarities(encoding: Tensor, positions: Sequence[int]) -> "Figure":
    """Draw the dot products of some positions with all positions of a table `(length, d_model)`."""
    similarity = encoding @ encoding.T  # (position, position)
    figure = new_picture(
        f"Dot products of the encodings of positions {', '.join(map(str, positions))} with all others: equal peaks, "
        "each at its own position, that fall off in the same way on both sides.",
        8,
        3,
    )
    axes = figure.subplots()
    for position, color, style in zip(positions, COLORS, STYLES, strict=False):
        axes.plot(similarity[position], style, color=color, linewidth=1.4)
        peak = similarity[position, position].item()
        name_line(axes, position, peak, f"position {position}", color, ha="center", va="bottom", xytext=(0, 4))
    axes.set(xlabel="position", ylabel="dot product", ylim=(0, 1.15 * similarity.max().item()))
    axes.set_title("Nearby positions are similar, wherever they are", fontsize=11)
    tidy(axes)
    return figure


def draw_hands(encoding: Tensor, position: int, pairs: Sequence[int] = (0, 4, 8, 12)) -> "Figure":
    """Draw some pairs of features of one position as the hands of clocks, with dots for the positions before it."""
    figure = new_picture(
        f"The hands of pairs {', '.join(map(str, pairs))} at position {position}, with a dot for each earlier one: "
        "the later the pair, the less its hand has turned.",
        9,
        2.7,
    )
    for axes, pair in zip(figure.subplots(1, len(pairs)), pairs, strict=True):
        sines, cosines = encoding[: position + 1, 2 * pair], encoding[: position + 1, 2 * pair + 1]
        axes.plot(sines, cosines, ".", color=LIGHT)
        axes.plot([0, sines[-1]], [0, cosines[-1]], color=COLORS[0], linewidth=2.5)
        axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal", xticks=[], yticks=[])
        axes.set(xlabel="sine", ylabel="cosine")
        axes.set_title(f"features {2 * pair} and {2 * pair + 1}", fontsize=10)
    return figure


def draw_vectors(panels: Mapping[str, tuple[Tensor, Sequence[str]]], alternative_text: str) -> "Figure":
    """Draw sets of vectors side by side as heat maps with one color scale.

    Args:
        panels: Maps each title to the vectors `(row, feature)` and the names of the rows.
        alternative_text: As in `new_picture`.
    """
    figure = new_picture(alternative_text, 9.6, 2.8)
    grid = figure.subplots(1, len(panels))
    for axes, (title, (vectors, names)) in zip(grid, panels.items(), strict=True):
        image = axes.imshow(vectors, cmap=SIGNED, vmin=-3, vmax=3, aspect="auto", interpolation="nearest")
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set_xticks(range(0, vectors.size(1), 2))
        axes.set_xlabel("feature")
        axes.set_title(title, fontsize=11)
    figure.colorbar(image, ax=grid)
    return figure
