"""Measure the cost of training with more processes, pairs, and parameters, and of decoding longer sentences.

    python benchmarks/scaling.py [--only processes training decoding] [--data-dir FOLDER] [--output FOLDER]

There are three measurements, and each can be run separately:

- `processes`: torchrun starts two processes with one thread each. They run updates of the `laptop` preset in three
  ways: one process alone, both together, and one with two threads. The three alternate, so that any other load on the
  machine affects them all. Then the parts of an update are timed: the work that every process repeats in full, and the
  all-reduce, for several message sizes.
- `training`: the mean time of an update for 3,000, 10,000, and 29,000 pairs and for models of three sizes. The time of
  an epoch is estimated as that time multiplied by the number of updates; one epoch of 3,000 pairs is timed in full to
  check the estimate.
- `decoding`: one sentence of 10 to 500 tokens is translated into the same number of tokens, greedily and with a beam of
  4. This is measured with the cache, and for up to 100 tokens also without it.

The figures are written to `results/DATE_scaling/figures.json`, where a repeated measurement replaces the earlier one.
`results/2026-11-22_scaling/scaling_report.py FOLDER` plots them and writes the README, with estimates for four and
eight GPUs. For a quick look, use `--rounds 1 --updates 1 --lengths 10 20 50 --no-whole-epoch`.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from machine import RESULTS, describe_machine, run_script, timed
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from training import AsTrained, update_with

from transformer_lab.data import load_corpus
from transformer_lab.data.batches import Batch, bucketed_batches
from transformer_lab.data.tokenizers import Tokenizer, load_tokenizer, train_tokenizer
from transformer_lab.decoding import (
    DEFAULT_ALPHA,
    beam_search,
    cached_beam_search,
    cached_greedy_decode,
    greedy_decode,
)
from transformer_lab.model import Transformer, TransformerConfig, count_parameters
from transformer_lab.presets import Preset, find_preset
from transformer_lab.training.distributed import WorkerGroup, join_workers
from transformer_lab.training.muon import orthogonalize
from transformer_lab.training.steps import build_optimizer
from transformer_lab.training.trainer import encode_pairs

CPU = torch.device("cpu")
PAIRS = (3_000, 10_000, 29_000)
BEAM_SIZE = 4


def fill_gradients(training: AsTrained) -> None:
    """Fill the gradients as a backward pass does, because `Muon.step` removes the gradients of matrices."""
    for parameter in training.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-6)


def whole_part(training: AsTrained) -> None:
    """Run the part of an update that every process repeats in full, regardless of the number of processes."""
    nn.utils.clip_grad_norm_(training.model.parameters(), training.preset.clip_norm)
    training.optimizer.step()
    if training.fast:
        training.fast.sync_weights()


def laptop_batches(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], preset: Preset) -> list[Batch]:
    """Return the batches of one epoch, in random order."""
    encoded = encode_pairs(tokenizer, pairs, "training", preset)
    shuffle = torch.Generator().manual_seed(0)
    return bucketed_batches(encoded.sources, encoded.targets, preset.max_tokens, tokenizer.pad_id, shuffle)


# Processes


def measure_processes(folder: Path, data_dir: Path | None, rounds: int, updates: int) -> dict[str, Any]:
    """Run `work_under_torchrun` in two processes; the first one writes the figures to a file."""
    figures = folder / "processes.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    command += ["--worker", str(figures), "--rounds", str(rounds), "--updates", str(updates)]
    command += ["--data-dir", str(data_dir)] if data_dir else []
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return json.loads(figures.read_text(encoding="utf-8"))


def work_under_torchrun(figures: Path, data_dir: Path | None, rounds: int, updates: int) -> None:
    """Do the work of one of the two processes. While the first one works alone, the other waits without using its core.
    """
    both = join_workers(CPU)
    preset = find_preset("laptop")
    pairs = load_corpus(preset.corpus, data_dir=data_dir).train[: PAIRS[0]]
    tokenizer = load_tokenizer(figures.parent)
    batches = laptop_batches(tokenizer, pairs, preset)
    together, alone = (AsTrained(preset, tokenizer, CPU, workers) for workers in (both, WorkerGroup()))

    def seconds_of(training: AsTrained, threads: int, chosen: list[Batch]) -> float:
        """Return the seconds per update. The barriers make this the time of the slower process."""
        torch.set_num_threads(threads)
        both.wait_for_all()
        start = time.perf_counter()
        if training is together or both.first:
            update_with(training, chosen)
        both.wait_for_all()
        torch.set_num_threads(1)
        return (time.perf_counter() - start) / len(chosen)

    contenders = {
        "one_process": (alone, 1),
        "two_processes": (together, 1),
        "one_process_two_threads": (alone, 2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for training, threads in contenders.values():  # a warm-up, which compiles kernels and allocates memory
        seconds_of(training, threads, batches[:2])
    for number in range(rounds):
        chosen = [batches[(number * updates + index) % len(batches)] for index in range(updates)]
        for name, (training, threads) in contenders.items():
            seconds[name].append(seconds_of(training, threads, chosen))
        if both.first:
            shown = ", ".join(f"{name} {1 / times[-1]:.2f}" for name, times in seconds.items())
            print(f"round {number + 1}, updates per second: {shown}", flush=True)

    def seconds_together(work: Callable[..., Any], *arguments: Any) -> float:
        both.wait_for_all()
        return timed(work, *arguments)[0]

    whole, exchange = [], []
    for _ in range(5 * rounds):
        fill_gradients(together)
        whole.append(seconds_together(whole_part, together))
        fill_gradients(together)
        exchange.append(seconds_together(both.sum_gradients, together.model.parameters(), torch.zeros(1)))
    sizes = {name: parameters_of(preset, tokenizer.source_size) for name, preset in model_sizes().items()}
    sizes |= {preset.name: parameters_of(preset, preset.vocab_size) for preset in planned_presets()}
    all_reduce = []
    for parameters in sorted({100_000, *sizes.values()}):
        message = torch.zeros(parameters)
        times = [seconds_together(dist.all_reduce, message) for _ in range(2 + 2 * rounds)][2:]
        all_reduce.append({"parameters": parameters, "bytes": 4 * parameters, "seconds": statistics.median(times)})
    if both.first:
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        ratios, threads = (
            [one / two for one, two in zip(seconds["one_process"], seconds[name], strict=True)]
            for name in ("two_processes", "one_process_two_threads")
        )
        found = {
            "seconds_an_update": medians,
            "seconds_an_update_of_each_round": seconds,
            "speed_up_of_two_processes": statistics.median(ratios),
            "speed_up_of_each_round": ratios,
            "speed_up_of_two_threads": statistics.median(threads),
            "whole_part_seconds": statistics.median(whole),
            "sum_gradients_seconds": statistics.median(exchange),
            "all_reduce": all_reduce,
            "model_parameters": parameters_of(preset, tokenizer.source_size),
            "updates_a_round": updates,
            "rounds": rounds,
            "precision": str(together.precision).removeprefix("torch."),
            "backend": dist.get_backend(),
            "machine": describe_machine(),
        }
        figures.write_text(json.dumps(found), encoding="utf-8")
    both.leave()


# Training


def model_sizes() -> dict[str, Preset]:
    """Return the `laptop` preset at half, normal, and double width."""
    laptop = find_preset("laptop")
    return {
        "half as wide": replace(laptop, d_model=laptop.d_model // 2, d_ff=laptop.d_ff // 2),
        "laptop": laptop,
        "twice as wide": replace(laptop, d_model=laptop.d_model * 2, d_ff=laptop.d_ff * 2),
    }


def planned_presets() -> list[Preset]:
    """Return the presets for which training on several GPUs is estimated."""
    return [find_preset("gpu"), find_preset("paper")]


def config_of(preset: Preset, vocabulary: int) -> TransformerConfig:
    sizes = ("d_model", "n_heads", "n_layers", "d_ff", "norm_first", "tie", "max_length")
    return TransformerConfig(vocabulary, vocabulary, **{size: getattr(preset, size) for size in sizes})


def parameters_of(preset: Preset, vocabulary: int) -> int:
    return count_parameters(config_of(preset, vocabulary))


def flops_of(preset: Preset, vocabulary: int, sentences: int, length: int) -> int:
    """Count the FLOPs of one update's matrix products, forward and backward, on meta tensors."""
    with torch.device("meta"):
        model = Transformer(config_of(preset, vocabulary))
        tokens = torch.zeros(sentences, length, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            model(tokens, tokens).sum().backward()
    return counter.get_total_flops()


def measure_training(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], rounds: int, updates: int, whole_epoch: bool
) -> dict[str, Any]:
    laptop = find_preset("laptop")
    epochs = {number: laptop_batches(tokenizer, pairs[:number], laptop) for number in PAIRS}
    trainings = {name: AsTrained(preset, tokenizer, CPU) for name, preset in model_sizes().items()}
    measured = {("laptop", number): [] for number in PAIRS} | {(name, PAIRS[-1]): [] for name in trainings}
    for training in trainings.values():
        update_with(training, epochs[PAIRS[0]][:2])
    for number in range(rounds):
        for (name, n_pairs), seconds in measured.items():
            batches = epochs[n_pairs]
            for index in range(number * updates, (number + 1) * updates):
                seconds.append(timed(trainings[name].update, batches[index % len(batches)])[0])
        print(f"round {number + 1} of {rounds}: {updates} updates of each size", flush=True)

    def row(name: str, n_pairs: int) -> dict[str, Any]:
        seconds = statistics.mean(measured[name, n_pairs])
        n_updates = len(epochs[n_pairs])
        return {
            "pairs": n_pairs,
            "target_tokens": sum(batch.target_tokens for batch in epochs[n_pairs]),
            "updates_an_epoch": n_updates,
            "seconds_an_update": seconds,
            "seconds_an_epoch": seconds * n_updates,
            "measured_updates": len(measured[name, n_pairs]),
        }

    sentences = round(statistics.mean(len(batch.indices) for batch in epochs[PAIRS[-1]]))
    length = round(statistics.mean(batch.target.size(1) for batch in epochs[PAIRS[-1]]))
    found = {
        "by_pairs": [row("laptop", number) for number in PAIRS],
        "by_size": [
            {
                "model": name,
                "d_model": preset.d_model,
                "d_ff": preset.d_ff,
                "parameters": parameters_of(preset, tokenizer.source_size),
                "flops_an_update": flops_of(preset, tokenizer.source_size, sentences, length),
                **row(name, PAIRS[-1]),
            }
            for name, preset in model_sizes().items()
        ],
        "mean_batch": {"sentences": sentences, "length": length},
        "flops_an_update_of_presets": {
            preset.name: passes_of(preset) * flops_of(preset, preset.vocab_size, preset.max_tokens // length, length)
            for preset in planned_presets()
        },
        "flops_of_the_optimizers_of_presets": {
            preset.name: flops_of_optimizer(preset, preset.vocab_size) for preset in planned_presets()
        },
        "whole_epoch": None,
        "precision": str(trainings["laptop"].precision).removeprefix("torch."),
        "preset": asdict(laptop),
        "machine": describe_machine(),
    }
    if whole_epoch:
        seconds, _ = timed(update_with, trainings["laptop"], epochs[PAIRS[0]])
        found["whole_epoch"] = {"pairs": PAIRS[0], "seconds": seconds}
    return found


def passes_of(preset: Preset) -> int:
    """Return how often an update passes `max_tokens` tokens through the model: twice with consistency training."""
    return preset.accumulation * (2 if preset.consistency else 1)


def flops_of_optimizer(preset: Preset, vocabulary: int) -> int:
    """Count the FLOPs of a Muon step's matrix products, which every process repeats in full. Adam has none."""
    if preset.optimizer != "muon":
        return 0
    optimizer = build_optimizer(Transformer(config_of(preset, vocabulary)), preset)
    by_shape = Counter(parameter.shape for parameter in optimizer.param_groups[1]["params"])
    with FlopCounterMode(display=False) as counter:
        for shape, count in by_shape.items():
            orthogonalize(torch.zeros(count, *shape, device="meta"))
    return counter.get_total_flops()


# Decoding


class NeverEnds(nn.Module):
    """An output layer that never ends a sentence, so that the caller controls the length of the translation."""

    def __init__(self, output: nn.Module, eos_id: int) -> None:
        super().__init__()
        self.output, self.eos_id = output, eos_id

    def forward(self, x: Tensor) -> Tensor:
        logits = self.output(x)
        logits[..., self.eos_id] = -torch.inf
        return logits


def measure_decoding(vocabulary: int, lengths: Sequence[int], longest_uncached: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(1)
    laptop = replace(find_preset("laptop"), max_length=max(lengths))
    model = Transformer(config_of(laptop, vocabulary)).eval()
    model.output = NeverEnds(model.output, model.config.eos_id)

    def beam(decode: Callable[..., list[list[int]]]) -> Callable[[Tensor, int], Any]:
        return lambda source, length: decode(model, source, BEAM_SIZE, DEFAULT_ALPHA, length)

    decoders: dict[str, Callable[[Tensor, int], Any]] = {
        "greedy, cached": partial(cached_greedy_decode, model),
        f"beam {BEAM_SIZE}, cached": beam(cached_beam_search),
        "greedy, without a cache": partial(greedy_decode, model),
        f"beam {BEAM_SIZE}, without a cache": beam(beam_search),
    }
    sources = {length: torch.randint(3, vocabulary, (1, length)) for length in lengths}
    seconds: dict[str, dict[int, list[float]]] = {
        name: {length: [] for length in lengths if "without" not in name or length <= longest_uncached}
        for name in decoders
    }
    for decode in decoders.values():
        decode(sources[min(lengths)], min(lengths))
    for number in range(rounds):
        for name, by_length in seconds.items():
            for length, times in by_length.items():
                times.append(timed(decoders[name], sources[length], length)[0])
        print(f"round {number + 1} of {rounds}: sentences of {', '.join(map(str, lengths))} tokens", flush=True)
    return {
        "decoders": {
            name: [{"length": length, "seconds": statistics.median(times)} for length, times in by_length.items()]
            for name, by_length in seconds.items()
        },
        "rounds": rounds,
        "model": {"parameters": count_parameters(model.config), **asdict(model.config)},
        "machine": describe_machine(),
    }


def command_of(arguments: argparse.Namespace, part: str) -> str:
    """Return the command that repeats this measurement, omitting folders that exist only on this machine."""
    options = ["--only", part, "--rounds", arguments.rounds]
    if part == "decoding":
        options += ["--lengths", *arguments.lengths, "--longest-uncached", arguments.longest_uncached]
    else:
        options += ["--updates", arguments.updates]
    if part != "processes":
        options += ["--threads", arguments.threads]
    return shlex.join(["python", "benchmarks/scaling.py", *map(str, options)])


def gpu_step(text: str) -> tuple[str, float]:
    """Parse `paper=0.12`: a preset, and the seconds per update measured on a single GPU."""
    preset, seconds = text.split("=")
    return find_preset(preset).name, float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("processes", "training", "decoding")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="run only these measurements")
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--output", type=Path, default=RESULTS / f"{date.today().isoformat()}_scaling")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6, help="updates of each contender per round")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 20, 50, 100, 200, 300, 400, 500])
    parser.add_argument("--longest-uncached", type=int, default=100, help="longest sentence without a cache, in tokens")
    parser.add_argument("--no-whole-epoch", action="store_true", help="skip the full epoch, for a quick look")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="for training and decoding")
    parser.add_argument(
        "--gpu-step",
        type=gpu_step,
        action="append",
        default=[],
        metavar="PRESET=SECONDS",
        help="seconds per update measured on one GPU, for the estimates",
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)  # set when torchrun starts this script
    arguments = parser.parse_args()
    if arguments.worker:
        work_under_torchrun(arguments.worker, arguments.data_dir, arguments.rounds, arguments.updates)
        return
    torch.set_num_threads(arguments.threads)

    laptop = find_preset("laptop")
    pairs = load_corpus(laptop.corpus, data_dir=arguments.data_dir).train
    tokenizer = train_tokenizer(laptop.tokenizer, pairs, vocab_size=laptop.vocab_size)
    record = arguments.output / "figures.json"
    figures = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    for part in arguments.only:
        print(f"{part}:", flush=True)
        start = time.perf_counter()
        if part == "processes":
            with tempfile.TemporaryDirectory() as folder:
                tokenizer.save(Path(folder))
                figures[part] = measure_processes(Path(folder), arguments.data_dir, arguments.rounds, arguments.updates)
        elif part == "training":
            figures[part] = measure_training(
                tokenizer, pairs, arguments.rounds, arguments.updates, not arguments.no_whole_epoch
            )
        else:
            figures[part] = measure_decoding(
                laptop.vocab_size, arguments.lengths, arguments.longest_uncached, arguments.rounds
            )
        figures[part]["seconds_to_measure"] = round(time.perf_counter() - start, 1)
        figures[part]["command"] = command_of(arguments, part)
    figures["gpu_step_seconds"] = figures.get("gpu_step_seconds", {}) | dict(arguments.gpu_step)
    arguments.output.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {record}")


if __name__ == "__main__":
    run_script(main)
