"""Compare recurrent translators with a Transformer, with the same tokens, number of updates, and scores."""

import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_lab.data import Corpus, load_corpus
from transformer_lab.decoding import Translator
from transformer_lab.electives.recurrent import FixedContext, NoContext, additive_weights, with_attention, with_context
from transformer_lab.errors import InputError
from transformer_lab.evaluation import cased_bleu, score_translations
from transformer_lab.model import Transformer, TransformerConfig
from transformer_lab.shipped import shipped
from transformer_lab.training import Preset, find_preset, read_metrics, train

BuildModel = Callable[[TransformerConfig], nn.Module]

ATTENTION, FIXED, UNUSED, TRANSFORMER = (
    "GRU with attention",
    "GRU without attention",
    "GRU, context never used",
    "Transformer",
)
LENGTHS = (8, 11, 14, 18)  # source words: up to 8, 9 to 11, and so on
THINGS = (
    "Ball/ball Brot/bread Buch/book Eimer/bucket Fahrrad/bicycle Fisch/fish Gabel/fork Glas/glass Hammer/hammer "
    "Hemd/shirt Hose/pants Hund/dog Hut/hat Jacke/jacket Karte/map Katze/cat Kerze/candle Kissen/pillow "
    "Koffer/suitcase Korb/basket Lampe/lamp Löffel/spoon Messer/knife Pfanne/pan Rucksack/backpack Schal/scarf "
    "Schlüssel/key Schuh/shoe Seife/soap Seil/rope"
)


@dataclass(frozen=True)
class Contender:
    """One of the models in the comparison: how to build it and how to train it."""

    name: str
    preset: Preset
    build_model: BuildModel


def full_preset(epochs: int) -> Preset:
    """Return the preset of the Transformer in the full comparison: the laptop preset with half its layers, in float32.

    The recurrent models can't use bfloat16 here, so no model does. All of them are trained with Adam.
    """
    return replace(
        find_preset("laptop"), name="side by side", n_layers=2, epochs=epochs, precision="float32",
        optimizer="adam", peak_rate=3e-3, weight_decay=0.0, validate_every=epochs, average=1, beam_size=1,
    )  # fmt: skip


def contenders(
    preset: Preset, d_model: int, peak_rate: float, attention: BuildModel = with_attention,
    transformer: BuildModel = Transformer,
) -> list[Contender]:  # fmt: skip
    """Return three recurrent translators and a Transformer with the same tokens, batches, and number of updates.

    Args:
        preset: The Transformer's preset. The recurrent models use it with one layer and with the next two arguments.
        d_model: Width of the recurrent models. Choose it so that they have about as many parameters as the Transformer.
        peak_rate: Peak learning rate of the recurrent models.
        attention: Builds the recurrent translator with attention; the other two differ from it only in the context.
        transformer: Builds the Transformer.
    """
    recurrent = replace(preset, d_model=d_model, n_layers=1, peak_rate=peak_rate, attention="explicit")
    return [
        Contender(ATTENTION, recurrent, attention),
        Contender(FIXED, recurrent, with_context(FixedContext, attention)),
        Contender(UNUSED, recurrent, with_context(NoContext, attention)),
        Contender(TRANSFORMER, preset, transformer),
    ]


def write_packing_lists(folder: Path, train: int, validation: int = 100, test: int = 200) -> None:
    """Write a small corpus in which no word can be guessed from the others: random lists of 3 to 20 different things.

    The folder must not exist. `train`, `validation`, and `test` are numbers of sentence pairs.
    """
    folder.mkdir()
    things = [thing.split("/") for thing in THINGS.split()]
    shuffle = random.Random(1)
    for name, count in (("train", train), ("val", validation), ("test", test)):
        lists = [shuffle.sample(things, shuffle.randint(3, 20)) for _ in range(count)]
        for side, language in enumerate(("de", "en")):
            lines = "".join(" ".join(thing[side] for thing in one) + "\n" for one in lists)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")


def choose_comparison(
    scratch: Path, epochs: int, attention: BuildModel, transformer: BuildModel
) -> tuple[Corpus, list[Contender]]:
    """Return a corpus and its four contenders: Multi30k, or packing lists if it's missing or the preset is `tiny`.

    The packing lists are written into the folder `scratch`; `epochs` is the number of epochs on Multi30k.
    """
    if os.environ.get("TRANSFORMER_LAB_PRESET") != "tiny":
        try:
            return load_corpus("multi30k"), contenders(full_preset(epochs), 192, 2e-3, attention, transformer)
        except InputError as error:
            print(f"{error}\n\nThat's why these are tiny models trained on packing lists.\n")
    folder = scratch / "lists"
    write_packing_lists(folder, train=2500)
    tiny = replace(
        find_preset("tour"), corpus=str(folder), vocab_size=640, d_model=64, n_layers=1, d_ff=128, epochs=8,
        max_tokens=512, warmup_steps=30, peak_rate=0.01, precision="float32", validate_every=8,
    )  # fmt: skip
    return load_corpus(folder), contenders(tiny, 64, 0.01, attention, transformer)


def train_and_measure(
    contender: Contender,
    folder: Path,
    corpus: Corpus,
    training_sentences: int,
    data_dir: str | Path | None = None,
    quiet: bool = True,
) -> tuple[Translator, dict[str, Any]]:
    """Train a contender with the course's trainer, and score its greedy translations of the first test set.

    Args:
        contender: The model to train.
        folder: A new folder for the run.
        corpus: The corpus that the preset names.
        training_sentences: Also score this many training pairs, to show what a score on training data is worth.
        data_dir: As in `train`.
        quiet: Print nothing.

    Returns:
        The trained model with its tokenizer, and the measurements, ready for a JSON file.
    """
    with redirect_stderr(StringIO() if quiet else sys.stderr):
        record = train(contender.preset, folder, data_dir, build_model=contender.build_model)
    translator = Translator.load(folder, contender.build_model)
    metrics = read_metrics(folder / "metrics.jsonl")
    epochs = [line for line in metrics if line["kind"] == "epoch"]
    seconds = [seconds_in_training(metrics, epoch["epoch"]) for epoch in epochs]
    sources, references = map(list, zip(*corpus.test, strict=True))
    translations = translator.translate(sources, beam_size=1)
    scores = score_translations(translations, references)
    seen_sources, seen_references = map(list, zip(*corpus.train[:training_sentences], strict=True))
    seen = cased_bleu(translator.translate(seen_sources, beam_size=1), seen_references)
    return translator, {
        "parameters": record["result"]["parameters"],
        "updates": record["result"]["steps"],
        "seconds_per_epoch": round(sum(seconds) / len(seconds), 2),
        "validation_loss": [round(epoch["validation_loss"], 4) for epoch in epochs],
        "bleu": round(scores.bleu, 2),
        "signature": scores.signatures["bleu"],
        "bleu_by_length": bleu_by_length(sources, translations, references),
        "bleu_on_training_sentences": round(seen, 2),
        "examples": list(zip(sources[:5], translations[:5], references[:5], strict=True)),
    }


def recorded_comparison() -> dict[str, Any] | None:
    """Return what `benchmarks/recurrent.py` recorded in this copy of the course, or None if there is no record."""
    path = shipped("results") / "recurrent.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def seconds_in_training(metrics: Sequence[dict[str, Any]], epoch: int) -> float:
    """Return the time that an epoch's updates took, without validation and saving.

    It is the time from the first update to the last, plus the average time of one update.
    """
    times = [line["seconds"] for line in metrics if line["kind"] == "step" and line["epoch"] == epoch]
    if len(times) < 2:
        return times[-1]
    return (times[-1] - times[0]) * len(times) / (len(times) - 1)


def bleu_by_length(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], limits: Sequence[int] = LENGTHS
) -> list[dict[str, Any]]:
    """Score sentences in groups, by the number of words in their source.

    Args:
        limits: The maximum number of words in each group, ascending; the last group has no limit.

    Returns:
        A dictionary for each group that isn't empty: `words` (such as "9-11"), `sentences`, `bleu`.
    """
    groups = []
    lower = 1
    for limit in (*limits, None):
        words = f"{lower}-{limit}" if limit else f"{lower}+"
        chosen = [
            index
            for index, source in enumerate(sources)
            if lower <= len(source.split()) and (limit is None or len(source.split()) <= limit)
        ]
        if chosen:
            bleu = cased_bleu([translations[i] for i in chosen], [references[i] for i in chosen])
            groups.append({"words": words, "sentences": len(chosen), "bleu": round(bleu, 2)})
        lower = (limit or 0) + 1
    return groups


def heat_maps(recurrent: Translator, transformer: Translator, source: str, target: str) -> dict[str, Any]:
    """Return the attention weights of both models, which share a tokenizer, while they read the same target.

    Returns:
        `source_tokens`, `target_tokens` (the tokens that are read, `<bos>` first), and `written` (the tokens to
        predict); `additive`, `(target, source)`; `transformer`, the mean over the heads of each layer,
        `(target, source)`.
    """
    tokenizer = recurrent.tokenizer
    ids, read = tokenizer.encode_source(source), tokenizer.encode_target(target)
    additive = additive_weights(recurrent.model, torch.tensor([ids]), torch.tensor([read[:-1]]))[0]
    recorded, source_tokens, target_tokens = transformer.attention(source, target)
    layers = [weights[0].mean(dim=0) for name, weights in recorded.items() if name.endswith("cross_attention")]
    return {
        "source": source,
        "target": target,
        "source_tokens": source_tokens,
        "target_tokens": target_tokens,
        "written": tokenizer.target_tokens(read)[1:],
        "additive": rounded(additive),
        "transformer": [rounded(weights) for weights in layers],
    }


def rounded(weights: torch.Tensor) -> list[list[float]]:
    return [[round(weight, 3) for weight in row] for row in weights.tolist()]
