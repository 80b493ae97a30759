"""Plots of the model and its parts: embeddings, sublayers, and layers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from transformer_lab.model import TransformerConfig, count_parameters
from transformer_lab.plots.figures import DARK, INK, LIGHT, MIDDLE, RUST, new_picture, tidy
from transformer_lab.plots.lines import COLORS, STYLES, name_line
from transformer_lab.plots.position_explorer import draw_waves
from transformer_lab.plots.shapes import write

SIGNED = "PuOr"  # a diverging color map with white at 0
POST, PRE = RUST, DARK
PART_COLORS = {"attention": DARK, "feed-forward": MIDDLE, "norms": INK, "embeddings and output": "#d9d9d9"}


def draw_spread(values: Mapping[str, Tensor], alternative_text: str, title: str) -> Figure:
    """Draw one histogram per set of values, stacked vertically, on a shared x-axis from -3 to 3.

    Args:
        values: Maps the name of each set to its values, a tensor of any shape. Two to four sets are allowed.
        alternative_text: The same as in `new_picture`.
        title: The title above the first histogram.
    """
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


def draw_encoding(encoding: Tensor, features: Sequence[int]) -> Figure:
    """Draw a table of positional encodings (section 3.5) as a heat map, and some of its columns as waves.

    Args:
        encoding: `(length, d_model)`.
        features: Indices of the columns to draw as waves.
    """
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


def draw_similarities(encoding: Tensor, positions: Sequence[int]) -> Figure:
    """For each of a few positions, draw the dot product of its encoding with the encoding of every position.

    Args:
        encoding: Positional encodings, `(length, d_model)`.
        positions: Up to four positions, counted from 0.
    """
    similarity = encoding @ encoding.T  # (position, position)
    figure = new_picture(
        f"Dot products of the encodings of positions {', '.join(map(str, positions))} with all others. The curves "
        "have equal peaks, each at its own position, and fall off in the same way on both sides.",
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


def draw_hands(encoding: Tensor, position: int) -> Figure:
    """Draw four pairs of features of one position as clock hands, with dots for positions 0 to `position`.

    Args:
        encoding: Positional encodings, `(length, d_model)`, with sines and cosines alternating as in section 3.5.
        position: The position to draw, counted from 0.
    """
    pairs = (0, 4, 8, 12)  # pair `i` consists of features `2 * i` and `2 * i + 1`
    figure = new_picture(
        f"The hands of pairs {', '.join(map(str, pairs))} at position {position}, and a dot for each earlier position: "
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


def draw_vectors(panels: Mapping[str, tuple[Tensor, Sequence[str]]], alternative_text: str) -> Figure:
    """Draw sets of vectors side by side as heat maps with the same color scale, from -3 to 3.

    Args:
        panels: Maps each title to a set of vectors, `(row, feature)`, and the names of its rows.
        alternative_text: The same as in `new_picture`.
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


def draw_bends(x: Tensor, bent: Tensor, straight: Tensor, bends: Sequence[float]) -> Figure:
    """Draw a feed-forward network (section 3.3) as a function of a single number, with and without its ReLU.

    Args:
        x: The inputs, `(length,)`, in ascending order.
        bent: The outputs with the ReLU, `(length,)`.
        straight: The outputs without the ReLU, `(length,)`.
        bends: The inputs at which a hidden unit switches on or off.
    """
    figure = new_picture(
        "A feed-forward network as a function of one number: straight pieces, with a bend wherever a hidden unit "
        "switches on or off. Without the ReLU it's a straight line.",
        8,
        3,
    )
    axes = figure.subplots()
    for bend in bends:
        axes.axvline(bend, color="0.85", linewidth=1, zorder=0)
    axes.plot(x, bent, color=PRE, linewidth=2)
    axes.plot(x, straight, "--", color="0.35")
    name_line(axes, x[-1].item(), bent[-1].item(), "with ReLU", PRE)
    name_line(axes, x[-1].item(), straight[-1].item(), "without ReLU", "0.35")
    axes.set(xlabel="x (gray lines: a hidden unit switches on or off)", ylabel="FFN(x)")
    axes.margins(x=0)
    axes.set_title("The ReLU makes the bends", fontsize=11)
    tidy(axes)
    return figure


def draw_norm_runs(runs: Mapping[tuple[str, str], tuple[Sequence[float], Sequence[float]]], guessing: float) -> Figure:
    """Draw the losses of four training runs, and the gradient norm of each sublayer in the last step.

    Args:
        runs: Maps pairs of names, such as `("post-norm", "no warm-up")`, to two lists: the loss at each step, in nats,
            and the gradient norm of each sublayer, from bottom to top. The first name is "post-norm" or "pre-norm", and
            the second is "no warm-up" or any other name.
        guessing: The loss, in nats, of a model that guesses.
    """
    figure = new_picture(
        "The left and middle panels show the loss. Post-norm without warm-up gets stuck not far below the loss you'd "
        "get by guessing, while the other three runs fall to nearly 0. The right panel shows the gradient norms by "
        "depth in the last step. For post-norm without warm-up, they shrink by orders of magnitude from top to bottom; "
        "for the others, they're similar everywhere.",
        11,
        3.5,
    )
    post, pre, gradients = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    for (order, warmup), (losses, norms) in runs.items():
        axes, color = (post, POST) if order == "post-norm" else (pre, PRE)
        style = "-" if warmup == "no warm-up" else "--"
        axes.plot(range(1, len(losses) + 1), losses, style, color=color)
        if order == "post-norm":
            beside = {"va": "top", "xytext": (0, -6)} if style == "-" else {"va": "bottom", "xytext": (0, 8)}
            name_line(post, len(losses), min(losses[-20:]), warmup, color, ha="right", **beside)
        gradients.plot(range(1, len(norms) + 1), norms, style, color=color, marker="o", markersize=3)
        if order == "post-norm":
            name_line(gradients, len(norms), norms[-1], f"{order},\n{warmup}", color, fontsize=9)
    name_line(gradients, len(norms), norms[-1], "pre-norm, both", PRE, fontsize=9)
    names = [f"{look}: {warmup}" for look, (_, warmup) in zip(("solid", "dashed"), runs, strict=False)]
    pre.text(0.97, 0.55, "\n".join(names), transform=pre.transAxes, ha="right", va="center", color=PRE, fontsize=9.5)
    for axes, title in ((post, "Loss, post-norm"), (pre, "Loss, pre-norm")):
        axes.axhline(guessing, color="0.6", linewidth=1, linestyle=":")
        name_line(axes, len(losses), guessing, "guessing", "0.35", ha="right", va="bottom", xytext=(0, 3), fontsize=9)
        axes.set(xlabel="step", ylabel="loss (nats)", ylim=(0, 4.2))
        axes.set_title(title, fontsize=11)
    gradients.set(xlabel="sublayer, from bottom to top", ylabel="gradient norm", yscale="log", xticks=(1, 6, 12, 18))
    gradients.set_title("Gradient of w_2, last step", fontsize=11)
    tidy(post, pre, gradients)
    return figure


def draw_growth(post: Sequence[float], pre: Sequence[float], after_last_norm: float) -> Figure:
    """Draw the root mean square of the features by depth, in post-norm and in pre-norm order.

    Args:
        post: The values for post-norm: before the first layer, then after each layer.
        pre: The values for pre-norm, at the same depths.
        after_last_norm: The value for pre-norm after the last norm.
    """
    figure = new_picture(
        f"Root mean square of the features by depth in {len(pre) - 1} layers. With post-norm, it stays at 1. With "
        "pre-norm, it grows with every layer, roughly as the square root of 1 + n, and the last norm brings it back to "
        "1.",
        7.6,
        3.2,
    )
    axes = figure.subplots()
    n = len(pre) - 1
    axes.plot([(1 + layer) ** 0.5 for layer in range(n + 1)], ":", color="0.35")
    middle = 0.55 * n
    look = {"ha": "right", "va": "bottom", "xytext": (-2, 5)}
    name_line(axes, middle, (1 + middle) ** 0.5, "$\\sqrt{1 + n}$", "0.35", **look)
    for values, marker, color in ((post, "o-", POST), (pre, "s-", PRE)):
        axes.plot(values, marker, color=color, markersize=5)
    name_line(axes, n, pre[-1], "pre-norm", PRE)
    name_line(axes, middle, post[-1], "post-norm", POST, va="top", xytext=(0, -8))
    axes.plot([n, n + 0.5], [pre[-1], after_last_norm], "--", color=PRE, linewidth=1)
    axes.plot(n + 0.5, after_last_norm, "D", color=PRE)
    name_line(axes, n + 0.5, after_last_norm, "pre-norm, after the last norm", PRE, xytext=(7, -6))
    axes.set(xlabel="layers passed, n", ylabel="root mean square", ylim=(0, None))
    tidy(axes)
    return figure


def draw_embedding_scale(words: Mapping[str, Tensor], positions: Tensor) -> Figure:
    """Draw a histogram of embeddings for each way of initializing them, over a histogram of the positional encodings.

    Args:
        words: Maps the name of each initialization to embeddings multiplied by √d_model, `(…, d_model)`.
        positions: Positional encodings, `(length, d_model)`.
    """
    deviations = {name: entries.std().item() for name, entries in words.items()}
    listed = ", ".join(f"{deviation:.2f} for {name}" for name, deviation in deviations.items())
    figure = new_picture(
        "Histograms of the entries of scaled word embeddings, drawn over a histogram of the positional encodings. The "
        f"standard deviation of the encodings is {positions.std():.2f}; those of the embeddings are {listed}.",
        9.5,
        2.9,
    )
    panels = figure.subplots(1, len(words), sharey=True)
    edges = torch.linspace(-4, 4, 81)
    for axes, (name, entries) in zip(panels, words.items(), strict=True):
        for values, look in (
            (positions.flatten(), {"color": "0.75", "label": "positions"}),
            (entries.flatten(), {"histtype": "step", "linewidth": 1.6, "color": DARK, "label": "words"}),
        ):
            density = torch.full_like(values, 1 / (values.numel() * (edges[1] - edges[0]).item()))
            axes.hist(values, edges.tolist(), weights=density, **look)
        axes.set(title=f"{name}: {deviations[name]:.2f}", xlabel="entry", ylim=(0, 2.5))
    panels[0].set_ylabel("density")
    panels[0].legend(frameon=False)
    return figure


def parameter_shares(config: TransformerConfig) -> dict[str, int]:
    """Return the number of parameters in each kind of part. The numbers add up to `count_parameters(config)`."""
    d_model, d_ff, layers = config.d_model, config.d_ff, config.n_layers
    norms = 5 * layers + 2 * config.norm_first
    shares = {
        "attention": 3 * layers * 4 * (d_model**2 + d_model),
        "feed-forward": 2 * layers * (2 * d_model * d_ff + d_ff + d_model),
        "norms": norms * 2 * d_model,
    }
    return shares | {"embeddings and output": count_parameters(config) - sum(shares.values())}


def draw_parameter_shares(configs: Mapping[str, TransformerConfig]) -> Figure:
    """Draw each model's parameters, in millions, as a bar divided by kind of part (see `parameter_shares`)."""
    shares = {name: parameter_shares(config) for name, config in configs.items()}
    listed = "; ".join(
        f"{name}: " + ", ".join(f"{part} {count / 1e6:.1f}" for part, count in parts.items())
        for name, parts in shares.items()
    )
    figure = new_picture(
        f"Stacked bars of the parameters of each model, in millions. {listed}.", 8, 1.2 + 0.7 * len(configs)
    )
    axes = figure.subplots()
    left = np.zeros(len(shares))
    for part, color in PART_COLORS.items():
        millions = np.array([parts[part] / 1e6 for parts in shares.values()])
        bars = axes.barh(list(shares), millions, left=left, color=color, edgecolor="white", label=part)
        numbers = [f"{number:.0f}" if number > 3 else "" for number in millions]
        axes.bar_label(bars, numbers, label_type="center", color="white" if color == DARK else "black")
        left += millions
    axes.set(xlabel="million parameters")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.3))
    return figure


def set_weights(module: nn.Module, seed: int = 0, gain: float = 1.0) -> None:
    """Initialize matrices with Xavier initialization, and biases of linear layers between -0.15 and 0.15.

    Both distributions are uniform. Xavier initialization is from Glorot and Bengio 2010. Parameters are initialized in
    alphabetical order, so the order in which a module creates its attributes does not matter.

    Args:
        module: Modified in place. The parameters of its norms are left unchanged.
        seed: Seed of the random numbers.
        gain: A factor for the matrices.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(module.named_parameters()):
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter, gain, generator)
        elif name.endswith("bias") and "norm" not in name:
            nn.init.uniform_(parameter, -0.15, 0.15, generator)


def influence(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return how much each position of `function(x)` depends on each position of `x`.

    Args:
        function: Maps `(1, input, d_model)` to `(1, result, d_model)`.
        x: `(1, input, d_model)`.

    Returns:
        `(result, input)`: the norm of the derivatives (the square root of the sum of their squares), with each row
        scaled to sum to 1.
    """
    derivatives = torch.autograd.functional.jacobian(lambda x: function(x)[0], x)[:, :, 0]  # (result, d, input, d)
    sizes = derivatives.square().sum(dim=(1, 3)).sqrt()  # (result, input)
    return sizes / sizes.sum(dim=1, keepdim=True)


def draw_influence(panels: Sequence[tuple[str, Tensor, Sequence[str], Sequence[str]]], alternative_text: str) -> Figure:
    """Draw tables of `influence` side by side.

    Args:
        panels: One tuple per table: its title, its values with shape `(result, input)`, its row names, and its column
            names.
        alternative_text: The same as in `new_picture`.
    """
    figure = new_picture(alternative_text, 4.4 * len(panels), 3.7)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, values, rows, columns) in zip(grid, panels, strict=True):
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1)
        for row in range(len(rows)):
            for column in range(len(columns)):
                share = values[row, column].item()
                color = "white" if share > 0.5 else "black"
                write(axes, column, row, f"{share:.2f}" if share else "0", fontsize=8, color=color)
        axes.set_xticks(range(len(columns)), columns, rotation=90)
        axes.set_yticks(range(len(rows)), rows)
        axes.set(xlabel="depends on", ylabel="result")
        axes.set_title(title, fontsize=11)
    return figure
