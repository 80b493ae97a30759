"""Plots that illustrate how text is batched: word frequencies, padded batches, and the share of padding."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from transformer_lab.plots.figures import PALE, new_picture, tidy
from transformer_lab.plots.lines import COLORS, STYLES
from transformer_lab.plots.shapes import add_cell

LOOKS = list(zip(COLORS, STYLES, "osD^", strict=True))  # color, line, marker


def draw_batch(tokens: Sequence[Sequence[str]], ids: Sequence[Sequence[int]], title: str) -> Figure:
    """Draw a batch as a table with one row per sentence. Each cell shows a token and its ID; padding is gray.

    Args:
        tokens: The tokens of each sentence, without padding.
        ids: The IDs of the batch, `(batch, length)`, including padding.
        title: The title of the table.
    """
    rows, columns = len(ids), max(map(len, ids))
    figure = new_picture(
        f"{title}: a table with {rows} rows, one per sentence, and {columns} columns. Each cell has a token and "
        "its ID; shorter rows end in gray cells, which are padding.",
        min(11, 0.85 * columns),
        0.65 * rows + 0.35,
    )
    axes = figure.subplots()
    for row, (sentence, token_ids) in enumerate(zip(tokens, ids, strict=True)):
        for column, token_id in enumerate(token_ids):
            real = column < len(sentence)
            label, fill = (sentence[column], PALE) if real else ("<pad>", "0.8")
            shape, look = {"width": 0.96, "height": 0.92, "edge": "none"}, {"fontsize": 8.5, "parse_math": False}
            add_cell(axes, column, row, f"{label}\n{token_id}", fill, **shape, **look)
    axes.set(xlim=(0, columns), ylim=(rows, 0), title=title)
    axes.axis("off")
    return figure


def draw_word_frequencies(counts: Mapping[str, Sequence[int]], title: str = "") -> Figure:
    """Plot word counts against rank on logarithmic axes, one line per language.

    Args:
        counts: Maps the name of each language to its word counts, in descending order. Up to four languages are
            allowed.
        title: The title of the figure.
    """
    figure = new_picture(
        "Lines that fall from the upper left to the lower right on logarithmic axes: how often each word occurs, "
        "plotted against its rank. A few words occur thousands of times, but most occur fewer than a hundred times.",
        8,
        3.3,
    )
    axes = figure.subplots()
    for (language, occurrences), (color, line, _) in zip(counts.items(), LOOKS, strict=False):
        label = f"{language}: {len(occurrences):,} words"
        axes.loglog(range(1, len(occurrences) + 1), occurrences, line, color=color, linewidth=2, label=label)
    axes.set(xlabel="rank of the word", ylabel="occurrences", title=title)
    axes.legend(frameon=False)
    tidy(axes)
    return figure


def draw_padding(batches: Mapping[str, Sequence[int]]) -> Figure:
    """Draw batches side by side, one row per sentence. Dark cells are tokens, and pale cells are padding.

    Args:
        batches: Maps the title of each batch to the lengths of its sentences, in tokens.
    """
    figure = new_picture(
        "Batches with one row per sentence and one cell per position: dark cells are tokens, and pale ones are "
        "padding. " + "; ".join(f"{name}: {_share(lengths):.0%} padding" for name, lengths in batches.items()),
        4.5 * len(batches),
        3.4,
    )
    for axes, (name, lengths) in zip(
        figure.subplots(1, len(batches), sharex=True, sharey=True), batches.items(), strict=True
    ):
        longest = max(lengths)
        is_token = [[position < length for position in range(longest)] for length in lengths]
        axes.pcolormesh(is_token, cmap="Blues", vmin=-0.15, vmax=1.2, edgecolors="white", linewidth=0.6)
        title = f"{name}: {len(lengths)} × {longest}, {_share(lengths):.0%} padding"
        axes.set(title=title, xlabel="position", ylabel="sentence")
    axes.invert_yaxis()
    return figure


def _share(lengths: Sequence[int]) -> float:
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def draw_padding_shares(sizes: Sequence[int], shares: Mapping[str, Sequence[float]]) -> Figure:
    """Plot the share of padding against batch size, one line per way of batching.

    Args:
        sizes: Batch sizes, each a maximum number of tokens, in ascending order.
        shares: Maps the name of each way of batching to its share of padding (0 to 1) for each size. Up to four ways of
            batching are allowed.
    """
    figure = new_picture(
        f"Share of padding for batches of {sizes[0]} to {sizes[-1]} tokens. "
        + "; ".join(f"{name}: from {values[0]:.1%} to {values[-1]:.1%}" for name, values in shares.items()),
        8,
        3.2,
    )
    axes = figure.subplots()
    for (name, values), (color, line, marker) in zip(shares.items(), LOOKS, strict=False):
        axes.plot(sizes, [100 * value for value in values], line, marker=marker, color=color, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, sizes)
    axes.set(xlabel="max_tokens", ylabel="padding (% of all cells)", ylim=(-2, 65))
    axes.legend(frameon=False)
    tidy(axes)
    return figure
