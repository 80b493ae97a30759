"""Compare a GRU with attention, a GRU without it, and a Transformer of the same size, trained equally long.

    python benchmarks/recurrent.py [--data-dir FOLDER] [--minutes 20] [--epochs N] [--output results/recurrent.json]
    python benchmarks/recurrent.py --only-times    time an epoch again, after a run on a busy machine

By default, the number of epochs is chosen so that all training runs together take about `--minutes` minutes on this
machine. The script estimates that time from a few updates before it trains. All models see the same tokens in the same
number of updates. The course's trainer trains every model in float32, and each model translates the 2016 test sentences
greedily. Writes BLEU, BLEU by sentence length, BLEU on a thousand training sentences, training time per epoch, and the
heat maps of two sentence pairs. For a quick trial, use `--corpus captions`, which takes only seconds.
"""

import argparse
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from machine import RESULTS, describe_machine, run_script, timed, write_result

from transformer_lab.data import Corpus, load_corpus
from transformer_lab.data.batches import Batch, bucketed_batches
from transformer_lab.data.tokenizers import train_tokenizer
from transformer_lab.electives.recurrent_comparison import (
    ATTENTION,
    TRANSFORMER,
    Contender,
    contenders,
    full_preset,
    heat_maps,
    train_and_measure,
)
from transformer_lab.training.distributed import WorkerGroup
from transformer_lab.training.fast_gradients import FastGradients
from transformer_lab.training.records import read_json, write_json
from transformer_lab.training.steps import build_optimizer, update_weights
from transformer_lab.training.trainer import encode_pairs, new_model

SHOWN = (0, 7)  # test pairs whose heat maps are saved
BESIDES = 1.25  # validation, saving, and translating, on top of the updates


def seconds_of_an_epoch(contender: Contender, corpus: Corpus, updates: int = 12) -> float:
    """Estimate the time of an epoch's updates from some of its batches."""
    preset = contender.preset
    pairs = corpus.train[: preset.train_limit]
    tokenizer = train_tokenizer(preset.tokenizer, pairs, vocab_size=preset.vocab_size)
    encoded = encode_pairs(tokenizer, pairs, "training", preset)
    shuffle = torch.Generator().manual_seed(0)
    batches = bucketed_batches(encoded.sources, encoded.targets, preset.max_tokens, tokenizer.pad_id, shuffle)
    model = new_model(preset, tokenizer, contender.build_model)
    optimizer, fast = build_optimizer(model, preset), FastGradients(model, torch.float32)

    def update(batch: Batch) -> None:
        update_weights(model, [batch], optimizer, preset, torch.float32, WorkerGroup(), fast)

    for batch in batches[:2]:  # a warm-up
        update(batch)
    return statistics.mean(timed(update, batch)[0] for batch in batches[:updates]) * len(batches)


def renew_times(path: Path, models: list[Contender], corpus: Corpus, rounds: int = 3) -> None:
    """Update a record with new timings of an epoch's updates, alternating between the models."""
    record = read_json(path)
    measured: dict[str, list[float]] = {contender.name: [] for contender in models}
    for _ in range(rounds):
        for contender in models:
            measured[contender.name].append(seconds_of_an_epoch(contender, corpus))
    for name, seconds in measured.items():
        record["models"][name]["seconds_per_epoch"] = round(statistics.median(seconds), 1)
        print(f"{name:24} {record['models'][name]['seconds_per_epoch']:6.1f} s per epoch", flush=True)
    record["times"] = {"command": "python benchmarks/recurrent.py --only-times", "machine": describe_machine()}
    write_json(path, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--corpus", default="multi30k")
    parser.add_argument("--minutes", type=float, default=20, help="total time of all training runs")
    parser.add_argument("--epochs", type=int, help="epochs for each model, instead of --minutes")
    parser.add_argument("--train-limit", type=int, help="use only this many training pairs, from the start")
    parser.add_argument("--width", type=int, default=192, help="d_model of the recurrent models")
    parser.add_argument("--peak-rate", type=float, default=2e-3, help="learning rate of the recurrent models")
    parser.add_argument("--output", type=Path, default=RESULTS / "recurrent.json")
    parser.add_argument("--only-times", action="store_true", help="replace the record's times with new ones")
    arguments = parser.parse_args()

    corpus = load_corpus(arguments.corpus, data_dir=arguments.data_dir)

    def lined_up(epochs: int) -> list[Contender]:
        preset = replace(full_preset(epochs), corpus=arguments.corpus, train_limit=arguments.train_limit)
        return contenders(preset, arguments.width, arguments.peak_rate)

    if arguments.only_times:
        renew_times(arguments.output, lined_up(1), corpus)
        return
    epochs = arguments.epochs
    if epochs is None:
        seconds = {contender.name: seconds_of_an_epoch(contender, corpus) for contender in lined_up(1)}
        epochs = max(1, int(60 * arguments.minutes / (BESIDES * sum(seconds.values()))))
        print(f"one epoch of all models takes about {sum(seconds.values()):.0f} s: {epochs} epochs", flush=True)
    results, translators = {}, {}
    with TemporaryDirectory() as scratch:
        for number, contender in enumerate(lined_up(epochs)):
            name, folder = contender.name, Path(scratch, str(number))
            translators[name], results[name] = train_and_measure(
                contender, folder, corpus, 1000, arguments.data_dir, quiet=False
            )
            one = results[name]
            print(
                f"{name:24} {one['parameters']:>9,} parameters, {one['seconds_per_epoch']:6.1f} s per epoch, "
                f"BLEU {one['bleu']:5.2f} on test, {one['bleu_on_training_sentences']:5.2f} on training sentences",
                flush=True,
            )
    maps = [heat_maps(translators[ATTENTION], translators[TRANSFORMER], *corpus.test[index]) for index in SHOWN]
    last = lined_up(epochs)
    command = "python benchmarks/recurrent.py " + (
        f"--epochs {arguments.epochs}" if arguments.epochs else f"--minutes {arguments.minutes:g}"
    )
    result = {
        "what": "three recurrent translators and a Transformer of about the same size, trained on the same tokens and "
        "updates; float32, greedy, test sentences from 2016",
        "command": command,
        "corpus": arguments.corpus,
        "epochs": epochs,
        "models": results,
        "heat_maps": maps,
        "preset_of_the_transformer": asdict(last[-1].preset),
        "preset_of_the_recurrent_models": asdict(last[0].preset),
    }
    write_result(arguments.output, result)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    run_script(main)
