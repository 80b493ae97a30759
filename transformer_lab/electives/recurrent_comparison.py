"""Compare recurrent translators with a Transformer, using the same tokens, number of updates, and metrics."""

import json
import os
import random
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from statistics import mean
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
LENGTHS = (8, 11, 14, 18)  # groups by number of source words: up to 8, 9 to 11, …
THINGS = (
    "Ball/ball Brot/bread Buch/book Eimer/bucket Fahrrad/bicycle Fisch/fish Gabel/fork Glas/glass Hammer/hammer "
    "Hemd/shirt Hose/pants Hund/dog Hut/hat Jacke/jacket Karte/map Katze/cat Kerze/candle Kissen/pillow "
    "Koffer/suitcase Korb/basket Lampe/lamp Löffel/spoon Messer/knife Pfanne/pan Rucksack/backpack Schal/scarf "
    "Schlüssel/key Schuh/shoe Seife/soap Seil/rope"
)


@dataclass(frozen=True)
class Contender:
    """A model in the comparison: how to build it and how to train it."""

    name: str
    preset: Preset
    build_model: BuildModel


def full_preset(epochs: int) -> Preset:
    """Return the Transformer's preset in the full comparison: the `laptop` preset with half as many layers, in float32.

    The recurrent models cannot use bfloat16 here, so all models use float32. All models are trained with Adam.
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
        preset: The Transformer's preset. The recurrent models use the same preset, but with one layer, the width
            `d_model`, and the peak learning rate `peak_rate`.
        d_model: Width of the recurrent models, chosen so that they have about as many parameters as the Transformer.
        peak_rate: Peak learning rate of the recurrent models.
        attention: A function that builds the recurrent translator with attention. The other two recurrent translators
            differ from it only in the context.
        transformer: A function that builds the Transformer.
    """
    recurrent = replace(preset, d_model=d_model, n_layers=1, peak_rate=peak_rate, attention="explicit")
    return [
        Contender(ATTENTION, recurrent, attention),
        Contender(FIXED, recurrent, with_context(FixedContext, attention)),
        Contender(UNUSED, recurrent, with_context(NoContext, attention)),
        Contender(TRANSFORMER, preset, transformer),
    ]


def write_packing_lists(folder: Path) -> None:
    """Write a corpus in which no word can be guessed from the others: random lists of 3 to 20 different things."""
    folder.mkdir()
    things = [thing.split("/") for thing in THINGS.split()]
    shuffle = random.Random(1)
    for name, count in (("train", 2500), ("val", 100), ("test", 200)):
        lists = [shuffle.sample(things, shuffle.randint(3, 20)) for _ in range(count)]
        for side, language in enumerate(("de", "en")):
            lines = "".join(" ".join(thing[side] for thing in one) + "\n" for one in lists)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")


def choose_comparison(
    scratch: Path, epochs: int, attention: BuildModel, transformer: BuildModel
) -> tuple[Corpus, list[Contender]]:
    """Return a corpus and its four contenders.

    The corpus is Multi30k. If Multi30k is missing or the preset is `tiny`, the corpus consists of packing lists.

    Args:
        scratch: The folder in which to create the packing lists.
        epochs: Number of epochs on Multi30k.
        attention: The same as in `contenders`.
        transformer: The same as in `contenders`.
    """
    if os.environ.get("TRANSFORMER_LAB_PRESET") != "tiny":
        try:
            return load_corpus("multi30k"), contenders(full_preset(epochs), 192, 2e-3, attention, transformer)
        except InputError as error:
            print(f"{error}\n\nThat's why these are tiny models trained on packing lists.\n")
    folder = scratch / "lists"
    write_packing_lists(folder)
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
        corpus: The corpus that is named in the preset.
        training_sentences: Number of training pairs to score as well, to show how misleading such a score is.
        data_dir: The same as in `train`.
        quiet: Whether to hide the trainer's output.

    Returns:
        The trained model with its tokenizer, and the measurements, which can be written to a JSON file.
    """
    with redirect_stderr(StringIO() if quiet else sys.stderr):
        record = train(contender.preset, folder, data_dir, build_model=contender.build_model)
    translator = Translator.load(folder, contender.build_model)
    metrics = read_metrics(folder / "metrics.jsonl")
    epochs = [line for line in metrics if line["kind"] == "epoch"]
    seconds = mean(seconds_in_training(metrics, epoch["epoch"]) for epoch in epochs)
    sources, references = map(list, zip(*corpus.test, strict=True))
    translations = translator.translate(sources, beam_size=1)
    scores = score_translations(translations, references)
    seen_sources, seen_references = map(list, zip(*corpus.train[:training_sentences], strict=True))
    seen = cased_bleu(translator.translate(seen_sources, beam_size=1), seen_references)
    return translator, {
        "parameters": record["result"]["parameters"],
        "updates": record["result"]["steps"],
        "seconds_per_epoch": round(seconds, 2),
        "validation_loss": [round(epoch["validation_loss"], 4) for epoch in epochs],
        "bleu": round(scores.bleu, 2),
        "signature": scores.signatures["bleu"],
        "bleu_by_length": bleu_by_length(sources, translations, references),
        "bleu_on_training_sentences": round(seen, 2),
        "examples": list(zip(sources[:5], translations[:5], references[:5], strict=True)),
    }


def recorded_comparison() -> dict[str, Any] | None:
    """Return the results of `benchmarks/recurrent.py` in this copy of the course. If there are none, return None."""
    path = shipped("results") / "recurrent.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def seconds_in_training(metrics: Sequence[dict[str, Any]], epoch: int) -> float:
    """Return the time in seconds that an epoch's updates took, excluding validation and saving.

    This is the time from the end of the first update to the end of the last, plus the mean time per update.
    """
    times = [line["seconds"] for line in metrics if line["kind"] == "step" and line["epoch"] == epoch]
    if len(times) < 2:
        return times[-1]
    return (times[-1] - times[0]) * len(times) / (len(times) - 1)


def bleu_by_length(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], limits: Sequence[int] = LENGTHS
) -> list[dict[str, Any]]:
    """Compute BLEU for groups of sentences whose sources have similar lengths, in words.

    Args:
        sources: The source sentences.
        translations: The model's translations, in the same order.
        references: The reference translations, in the same order.
        limits: The maximum number of words in each group, in ascending order. One more group has no maximum.

    Returns:
        For each nonempty group, a dictionary with `words` (such as "9-11"), `sentences` (their number), and `bleu` (0
        to 100).
    """
    lowest = [1, *(limit + 1 for limit in limits)]
    names = [f"{low}-{high}" for low, high in zip(lowest, limits, strict=False)] + [f"{lowest[-1]}+"]
    groups: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    for source, translation, reference in zip(sources, translations, references, strict=True):
        groups[names[bisect_left(limits, len(source.split()))]].append((translation, reference))
    return [
        {"words": name, "sentences": len(pairs), "bleu": round(cased_bleu(*zip(*pairs, strict=True)), 2)}
        for name, pairs in groups.items()
        if pairs
    ]


def heat_maps(recurrent: Translator, transformer: Translator, source: str, target: str) -> dict[str, Any]:
    """Return the attention weights of two models with the same tokenizer as they read the same target.

    Args:
        recurrent: A recurrent translator with attention.
        transformer: A translator with a Transformer and the same tokenizer.
        source: A sentence in the source language.
        target: Its translation.

    Returns:
        A dictionary with these keys:

        - `source` and `target`, the sentences, and `source_tokens`;
        - `target_tokens`, the tokens that are read, starting with `<bos>`, and `written`, the tokens to predict;
        - `additive`, the weights of the recurrent translator, `(target, source)`;
        - `transformer`, the cross-attention weights of each layer, averaged over the heads, `(target, source)`.
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
        "additive": additive.double().round(decimals=3).tolist(),
        "transformer": [weights.double().round(decimals=3).tolist() for weights in layers],
    }
