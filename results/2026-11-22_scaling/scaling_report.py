"""Plot the figures from `benchmarks/scaling.py`, and write the README that explains them and adds a plan for GPUs.

    python results/2026-11-22_scaling/scaling_report.py [FOLDER]

Without a folder, it rewrites the README and the picture next to this file. It does not measure anything. The
assumptions behind the GPU plan are listed in this file and in the README.
"""

import json
import math
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from transformer_lab.model import TransformerConfig, count_parameters
from transformer_lab.plots.figures import new_picture, save_figure
from transformer_lab.presets import find_preset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLANNED = (1, 2, 4, 8)  # processes

# Assumptions about a GPU. `--gpu-step` replaces the computing time with a measured one.
SUSTAINED_FLOPS = 100e12  # per second, in matrix products of a large batch: a third of an A100's peak in bfloat16
MEMORY_BYTES = 1.5e12  # per second, A100
LINKS = {"NVLink": 200e9, "PCIe 4.0 x16": 20e9}  # bytes per second available to an all-reduce
RING_STEP_SECONDS = 10e-6  # the delay of one message to the next GPU
BYTES_OF_WHOLE_PART = 28  # per parameter: Adam reads weight, gradient, and two moments, writes three; Muon has one
BYTES_OF_COPIES = 16  # per parameter: gradients are read and written once into the message and once out of it


@dataclass(frozen=True)
class StepCost:
    """The time of an update in seconds when a ring of n processes sums the gradients.

    T(n) = whole + divided / n + [n > 1] (copies + 2 (n - 1) ring_step + 2 (n - 1) / n · message / bandwidth)

    Args:
        divided: the work divided among the processes: the forward and backward passes over the sentences.
        whole: the work that every process repeats in full: clipping, and the optimizer step on all weights.
        copies: copying the gradients into the message and out of it.
        message: size of all gradients in bytes.
        bandwidth: bytes per second from each process to the next.
        ring_step: the delay of each of the 2 (n - 1) messages that a process sends.
    """

    divided: float
    whole: float
    copies: float
    message: int
    bandwidth: float
    ring_step: float

    def exchange(self, n: int) -> float:
        if n == 1:
            return 0.0
        sent = 2 * (n - 1) / n * self.message
        return self.copies + 2 * (n - 1) * self.ring_step + sent / self.bandwidth

    def seconds(self, n: int) -> float:
        return self.whole + self.divided / n + self.exchange(n)

    def speed_up(self, n: int) -> float:
        return self.seconds(1) / self.seconds(n)


def fit(x: Sequence[float], y: Sequence[float], degree: int) -> np.ndarray:
    """Return the polynomial with the smallest relative error, as coefficients in ascending order."""
    return np.polynomial.polynomial.polyfit(x, y, degree, w=1 / np.asarray(y))


def measured_cost(processes: Mapping[str, Any]) -> StepCost:
    """Return the measured cost of `laptop`. In a ring of two, each process sends as many bytes as the message has."""
    messages = processes["all_reduce"]
    delay, by_byte = fit([row["bytes"] for row in messages], [row["seconds"] for row in messages], 1)
    message = 4 * processes["model_parameters"]
    (all_reduce,) = (row["seconds"] for row in messages if row["bytes"] == message)
    return StepCost(
        divided=processes["seconds_an_update"]["one_process"] - processes["whole_part_seconds"],
        whole=processes["whole_part_seconds"],
        copies=max(0.0, processes["sum_gradients_seconds"] - all_reduce),
        message=message,
        bandwidth=1 / by_byte,
        ring_step=max(0.0, delay / 2),
    )


def planned_cost(preset: str, bandwidth: float, training: Mapping[str, Any], steps: Mapping[str, float]) -> StepCost:
    """Estimate a preset's cost on GPUs from counted matrix products and our assumptions, or from a measured step."""
    fields = find_preset(preset)
    sizes = {name: getattr(fields, name) for name in ("d_model", "n_heads", "n_layers", "d_ff", "norm_first", "tie")}
    parameters = count_parameters(TransformerConfig(fields.vocab_size, fields.vocab_size, **sizes))
    whole = parameters * BYTES_OF_WHOLE_PART / MEMORY_BYTES
    whole += training["flops_of_the_optimizers_of_presets"][preset] / SUSTAINED_FLOPS
    computed = training["flops_an_update_of_presets"][preset] / SUSTAINED_FLOPS
    return StepCost(
        divided=steps[preset] - whole if preset in steps else computed,
        whole=whole,
        copies=parameters * BYTES_OF_COPIES / MEMORY_BYTES,
        message=4 * parameters,
        bandwidth=bandwidth,
        ring_step=RING_STEP_SECONDS,
    )


def exponent(points: Sequence[Mapping[str, float]], above: int) -> float | None:
    """Return p such that the time grows as length^p from the first length of at least `above` to the last length."""
    chosen = [point for point in points if point["length"] >= above]
    if len(chosen) < 2:
        return None
    first, last = chosen[0], chosen[-1]
    return math.log(last["seconds"] / first["seconds"]) / math.log(last["length"] / first["length"])


# The picture


def draw_speed(axes: "Axes", figures: Mapping[str, Any], look: Callable[[int], dict[str, Any]]) -> None:
    processes = figures["processes"]
    cost = measured_cost(processes)
    axes.plot(PLANNED, PLANNED, color="0.6", linestyle=":", label="linear speed-up")
    model = [cost.speed_up(n) for n in PLANNED]
    axes.plot(PLANNED, model, label="laptop, cost model", **look(0) | {"marker": None})
    measured = [1, processes["speed_up_of_two_processes"]]
    axes.plot([1, 2], measured, label="laptop, measured", **look(0) | {"linestyle": "none"})
    if "training" in figures:
        plans = [(preset, link) for preset in ("paper", "gpu") for link in LINKS]
        for index, (preset, link) in enumerate(plans, 1):
            plan = planned_cost(preset, LINKS[link], figures["training"], figures.get("gpu_step_seconds", {}))
            speeds = [plan.speed_up(n) for n in PLANNED]
            axes.plot(PLANNED, speeds, label=f"{preset} on GPUs, {link}, estimated", **look(index))
    axes.set(title="Updates, compared with one process", xlabel="processes or GPUs", xticks=PLANNED, ylabel="speed-up")


def draw_all_reduce(axes: "Axes", figures: Mapping[str, Any], look: Callable[[int], dict[str, Any]]) -> None:
    messages = figures["processes"]["all_reduce"]
    megabytes = [row["bytes"] / 1e6 for row in messages]
    delay, by_byte = fit([row["bytes"] for row in messages], [row["seconds"] for row in messages], 1)
    axes.plot(
        megabytes, [1000 * row["seconds"] for row in messages], label="measured", **look(0) | {"linestyle": "none"}
    )
    line = [1000 * (delay + by_byte * row["bytes"]) for row in messages]
    axes.plot(
        megabytes,
        line,
        label=f"{1000 * delay:.2f} ms + bytes / {1e-9 / by_byte:.2f} GB/s",
        **look(1) | {"marker": None},
    )
    axes.set(title="All-reduce between two processes", xlabel="megabytes", ylabel="ms", xscale="log", yscale="log")


def draw_epochs(axes: "Axes", figures: Mapping[str, Any], look: Callable[[int], dict[str, Any]]) -> None:
    rows = figures["training"]["by_pairs"]
    pairs = [row["pairs"] / 1000 for row in rows]
    axes.plot(pairs, [row["seconds_an_epoch"] for row in rows], label="time per update × updates", **look(0))
    whole = figures["training"]["whole_epoch"]
    if whole:
        axes.plot(
            [whole["pairs"] / 1000],
            [whole["seconds"]],
            label="one full epoch, measured",
            **look(1) | {"linestyle": "none", "markersize": 9, "fillstyle": "none"},
        )
    axes.set(title="One epoch of laptop", xlabel="thousands of pairs", ylabel="seconds")
    axes.set_ylim(bottom=0)


def draw_sizes(axes: "Axes", figures: Mapping[str, Any], look: Callable[[int], dict[str, Any]]) -> None:
    rows = figures["training"]["by_size"]
    teraflops = [row["flops_an_update"] / 1e12 for row in rows]
    axes.plot(teraflops, [row["seconds_an_update"] for row in rows], label="measured", **look(0))
    for row, x in zip(rows, teraflops, strict=True):
        axes.annotate(
            f"{row['parameters'] / 1e6:.1f} M",
            (x, row["seconds_an_update"]),
            textcoords="offset points",
            xytext=(8, -12),
            ha="left",
        )
    axes.set(title="One update, by model size", xlabel="10¹² operations in matrix products", ylabel="seconds")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1.25 * teraflops[-1])  # room for the labels


def draw_total(axes: "Axes", figures: Mapping[str, Any], look: Callable[[int], dict[str, Any]]) -> None:
    for index, (name, points) in enumerate(figures["decoding"]["decoders"].items()):
        lengths, seconds = [point["length"] for point in points], [point["seconds"] for point in points]
        axes.plot(lengths, seconds, label=name, **look(index))
    axes.set(title="One sentence", xlabel="tokens", ylabel="seconds", xscale="log", yscale="log")


def draw_tokens(axes: "Axes", figures: Mapping[str, Any], look: Callable[[int], dict[str, Any]]) -> None:
    for index, (name, points) in enumerate(figures["decoding"]["decoders"].items()):
        milliseconds = [1000 * point["seconds"] / point["length"] for point in points]
        axes.plot([point["length"] for point in points], milliseconds, label=name, **look(index))
    axes.set(title="One token", xlabel="tokens in the sentence", ylabel="ms")
    axes.set_ylim(bottom=0)


PANELS = {
    "processes": (draw_speed, draw_all_reduce),
    "training": (draw_epochs, draw_sizes),
    "decoding": (draw_total, draw_tokens),
}


def draw(figures: Mapping[str, Any], path: Path) -> str:
    """Draw two panels for each measurement, and return the alt text."""
    import seaborn as sns

    parts = [part for part in PANELS if part in figures]
    words = {
        "processes": "updates per second by number of processes, and all-reduce time by message size",
        "training": "seconds per epoch by number of sentence pairs, and seconds per update by model size",
        "decoding": "seconds to translate a sentence, and milliseconds per token, by sentence length",
    }
    text = f"The cost of scaling: {'; '.join(words[part] for part in parts)}. The README has the figures."
    colours = sns.color_palette("colorblind", 6)

    def look(index: int) -> dict[str, Any]:
        """Return the style of a line, distinguishable without color too."""
        line, mark = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))[index], "os^Dv"[index]
        return {"color": colours[index], "linestyle": line, "marker": mark, "markersize": 5, "linewidth": 1.5}

    with sns.axes_style("whitegrid"), sns.plotting_context("notebook", font_scale=0.8):
        figure = new_picture(text, 5 * len(parts), 8)
        grid = figure.subplots(2, len(parts), squeeze=False)
        for column, part in zip(grid.T, parts, strict=True):
            for axes, panel in zip(column, PANELS[part], strict=True):
                panel(axes, figures, look)
                axes.legend(fontsize=8)
                sns.despine(ax=axes)
        save_figure(figure, path)
    return text


# The README


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def wrapped(text: str) -> str:
    """Return the Markdown with its paragraphs wrapped again, because the figures in them change the line lengths."""
    blocks = text.split("\n\n")
    kept = ("#", "|", "-", "!", "    ")
    return "\n\n".join(
        block if block.startswith(kept) else textwrap.fill(block, 120, break_long_words=False, break_on_hyphens=False)
        for block in blocks
    )


def machine_of(part: Mapping[str, Any]) -> str:
    machine = part["machine"]
    return (
        f"Measured on {machine['date']} with `{part['command']}`, in {part['seconds_to_measure']:.0f} s, on "
        f"{machine['cores']} cores ({machine['processor']}); {machine['system']}, torch {machine['torch']}, "
        f"commit `{machine['commit']}`.\n"
    )


def about_processes(processes: Mapping[str, Any]) -> str:
    cost, seconds = measured_cost(processes), processes["seconds_an_update"]
    each = processes["speed_up_of_each_round"]
    model, measured = cost.seconds(2), seconds["two_processes"]
    speeds = [
        ("one process, one thread", f"{1 / seconds['one_process']:.2f}", "1"),
        (
            "two processes under `torchrun`, one thread each",
            f"{1 / seconds['two_processes']:.2f}",
            f"{processes['speed_up_of_two_processes']:.2f} (from {min(each):.2f} to {max(each):.2f})",
        ),
        (
            "one process, two threads",
            f"{1 / seconds['one_process_two_threads']:.2f}",
            f"{processes['speed_up_of_two_threads']:.2f}",
        ),
    ]
    messages = [
        (f"{row['parameters']:,}", f"{row['bytes'] / 1e6:.1f}", f"{1000 * row['seconds']:.2f}")
        for row in processes["all_reduce"]
    ]
    plan = [(n, f"{1000 * cost.seconds(n):.0f}", f"{cost.speed_up(n):.2f}") for n in PLANNED]
    return f"""## Two processes

This is the `laptop` preset ({processes["model_parameters"]:,} parameters) in {processes["precision"]}, all on one
machine, with gradients summed by {processes["backend"]}. The three configurations take turns on the same batches, in
{processes["rounds"]} rounds of {processes["updates_a_round"]} updates. The figures and the ratios are medians over the
rounds.

{table(("configuration", "updates per second", "speed-up"), speeds)}
An update consists of {1000 * cost.divided:.0f} ms of work divided among the processes, {1000 * cost.whole:.1f} ms of
clipping and optimizer work that every process repeats in full, and {1000 * cost.copies:.1f} ms of copying the
gradients into and out of a single message. The all-reduce between two processes takes:

{table(("parameters", "megabytes", "ms"), messages)}
The straight line that fits these times with the smallest relative error is {2000 * cost.ring_step:.2f} ms plus the
number of bytes divided by {cost.bandwidth / 1e9:.2f} GB/s. In a ring of n processes, each process sends 2 (n - 1)
messages, and an update takes

    T(n) = whole + divided / n + copies + 2 (n - 1) delay + 2 (n - 1) / n · bytes / bandwidth

For two processes, this formula predicts {1000 * model:.0f} ms per update. The measured time is
{1000 * measured:.0f} ms, {measured / model:.2f} times as long. For more processes, each with its own core and an
equally fast link, the formula predicts:

{table(("processes", "ms per update", "speed-up"), plan)}
{machine_of(processes)}"""


def about_training(training: Mapping[str, Any]) -> str:
    by_pairs, by_size, whole = training["by_pairs"], training["by_size"], training["whole_epoch"]
    pairs = [
        (
            f"{row['pairs']:,}",
            f"{row['target_tokens']:,}",
            row["updates_an_epoch"],
            f"{1000 * row['seconds_an_update']:.0f}",
            f"{row['seconds_an_epoch']:.1f}",
            f"{1e6 * row['seconds_an_epoch'] / row['target_tokens']:.1f}",
        )
        for row in by_pairs
    ]
    sizes = [
        (
            row["model"],
            f"{row['d_model']}, {row['d_ff']}",
            f"{row['parameters']:,}",
            f"{row['flops_an_update'] / 1e12:.3f}",
            f"{1000 * row['seconds_an_update']:.0f}",
            f"{row['flops_an_update'] / row['seconds_an_update'] / 1e9:.0f}",
            f"{row['seconds_an_epoch']:.1f}",
        )
        for row in by_size
    ]
    first, last = by_pairs[0], by_pairs[-1]
    batch = training["mean_batch"]
    check = (
        f"We also measured one whole epoch of {whole['pairs']:,} pairs: it took {whole['seconds']:.1f} s, "
        f"{whole['seconds'] / first['seconds_an_epoch']:.2f} times the estimate in the table.\n"
        if whole
        else ""
    )
    columns = (
        *("model", "d_model, d_ff", "parameters", "10¹² operations"),
        *("ms per update", "10⁹ operations per s", "s per epoch"),
    )
    return f"""## Training, by number of pairs and by model size

Each time per update is the mean of {last["measured_updates"]} updates in {training["precision"]}, with
{training["machine"]["threads"]} threads; the configurations take turns. The time per epoch is an estimate: the time per
update multiplied by the number of updates, without validation. All models share a single vocabulary, built from all
the pairs.

{table(("pairs", "target tokens", "updates per epoch", "ms per update", "s per epoch", "µs per target token"), pairs)}
With {last["pairs"] / first["pairs"]:.2f} times as many pairs and
{last["target_tokens"] / first["target_tokens"]:.2f} times as many tokens, an epoch takes
{last["seconds_an_epoch"] / first["seconds_an_epoch"]:.2f} times as long.
{check}
The next table shows the preset's model at half, normal, and double width, on {last["pairs"]:,} pairs. The
operation count is exact for all matrix products in one update on an average batch: {batch["sentences"]} pairs, with
{batch["length"]} tokens each.

{table(columns, sizes)}
{machine_of(training)}"""


def about_decoding(decoding: Mapping[str, Any]) -> str:
    rows, sentences = [], []
    for name, points in decoding["decoders"].items():
        rows += [
            (name, point["length"], f"{point['seconds']:.3f}", f"{1000 * point['seconds'] / point['length']:.2f}")
            for point in points
        ]
        longest = points[-1]["length"]
        above = 100 if longest > 100 else 20
        power = exponent(points, above)
        if power is None or len(points) < 4:
            continue
        polynomial = ""
        if "without" not in name:
            constant, linear, quadratic = fit(
                [point["length"] for point in points], [point["seconds"] for point in points], 2
            )
            share = quadratic * longest**2 / (constant + linear * longest + quadratic * longest**2)
            polynomial = (
                f"{1000 * constant:.1f} ms {1000 * linear:+.2f} ms · n {1e6 * quadratic:+.2f} µs · n², "
                f"where the last term is {100 * share:.0f}% of the total at {longest} tokens; "
            )
        sentences.append(f"- {name}: {polynomial}from {above} to {longest} tokens, the time grows as n^{power:.2f}")
    fits = "\n".join(["Results (the polynomials minimize relative error):\n", *sentences, ""]) if sentences else ""
    return f"""## Decoding, by length

A randomly initialized model the size of the `laptop` preset ({decoding["model"]["parameters"]:,} parameters)
translates one sentence of n tokens into n tokens; it isn't allowed to stop early. The figures are medians over
{decoding["rounds"]} rounds, with {decoding["machine"]["threads"]} threads. With the cache, each new token passes
through the layers once and attends to every token before it, which adds a term in n and a term in n². Without the
cache, all tokens pass through the layers again for each new one, which adds terms in n² and n³. In beam search with the
cache, the hypotheses share one cache, which contains the tokens of all of them, so the term in n² is multiplied by
the square of the beam size.

{table(("decoder", "tokens", "seconds", "ms per token"), rows)}
{fits}
{machine_of(decoding)}"""


def about_gpus(training: Mapping[str, Any], steps: Mapping[str, float]) -> str:
    sections = []
    for preset in ("gpu", "paper"):
        rows = []
        for link, bandwidth in LINKS.items():
            cost = planned_cost(preset, bandwidth, training, steps)
            rows += [
                (
                    link,
                    n,
                    f"{1000 * cost.seconds(n):.2f}",
                    f"{1000 * cost.exchange(n):.2f}",
                    f"{cost.speed_up(n):.2f}",
                    f"{100 * cost.speed_up(n) / n:.0f}%",
                )
                for n in PLANNED
            ]
        step = (
            f"{1000 * steps[preset]:.1f} ms per update, as measured on one GPU"
            if preset in steps
            else f"{training['flops_an_update_of_presets'][preset] / 1e12:.2f} × 10¹² operations per update (counted)"
        )
        if of_optimizer := training["flops_of_the_optimizers_of_presets"][preset]:
            step += f". Every GPU performs the full optimizer step: {of_optimizer / 1e12:.2f} × 10¹² operations"
        head = ("link", "GPUs", "ms per update", "ms to sum gradients", "speed-up", "efficiency")
        sections.append(f"`{preset}`: {cost.message / 4e6:.1f} million parameters and {step}.\n\n{table(head, rows)}")
    links = " or ".join(f"{bandwidth / 1e9:.0f} GB/s over {link}" for link, bandwidth in LINKS.items())
    tables = "\n".join(sections)
    return f"""## Estimates for four and eight GPUs

These estimates use the same formula for T(n). The parameters and the operations were counted. Everything else
is an assumption:

- {SUSTAINED_FLOPS / 1e12:.0f} × 10¹² operations per second in matrix products, which is a third of an A100's peak in
  bfloat16 (if you've measured a preset's update on a GPU, pass its time as `--gpu-step PRESET=SECONDS` instead);
- {MEMORY_BYTES / 1e12:.1f} × 10¹² bytes per second from memory, with {BYTES_OF_WHOLE_PART} bytes per parameter for the
  optimizer and {BYTES_OF_COPIES} for copying the gradients;
- for the all-reduce, {links}, plus {1e6 * RING_STEP_SECONDS:.0f} µs for each of its 2 (n - 1) messages;
- no overlap between computing and communicating: `WorkerGroup.sum_gradients` starts when the last gradient is ready.

{tables}
The estimates leave out two things. Every GPU has to launch the many hundreds of kernels in an update (`launches.json`),
no matter how small its share of the batch is, and small matrix products don't keep a GPU busy. So the estimates are a
best case: the smaller each GPU's share is, the further the real figures will fall short of them. If you train on
several GPUs, raise `max_tokens`.
"""


def write_report(figures: Mapping[str, Any], folder: Path) -> str:
    """Write `scaling.png` and `README.md` into the folder.

    Args:
        figures: measurements from `scaling.py`: any of `processes`, `training`, and `decoding`, and
            `gpu_step_seconds` for each preset, if they were given.
        folder: an existing folder.

    Returns:
        The text of the README.
    """
    text = draw(figures, folder / "scaling.png")
    sections = [
        f"# {folder.name.replace('_', ': ')}\n\n"
        "The figures come from `benchmarks/scaling.py`; `scaling_report.py` wrote this page from `figures.json`.\n\n"
        f"![{text}](scaling.png)\n"
    ]
    if "processes" in figures:
        sections.append(about_processes(figures["processes"]))
    if "training" in figures:
        sections.append(about_training(figures["training"]))
        sections.append(about_gpus(figures["training"], figures.get("gpu_step_seconds", {})))
    if "decoding" in figures:
        sections.append(about_decoding(figures["decoding"]))
    readme = wrapped("\n".join(sections)) + "\n"
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return readme


if __name__ == "__main__":
    report_folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parent
    print(write_report(json.loads((report_folder / "figures.json").read_text(encoding="utf-8")), report_folder))
