"""Compare recurrent translators with a Transformer on the same tokens, updates, and scores."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_lab.data import Corpus
from transformer_lab.decoding import Translator
from transformer_lab.electives.recurrent import FixedContext, NoContext, additive_weights, with_attention, with_context
from transformer_lab.evaluation import score_translations
from transformer_lab.model import Transformer, TransformerConfig
from transformer_lab.training import Preset, find_preset, read_metrics, train

BuildModel = Callable[[TransformerConfig], nn.Module]

ATTENTION, FIXED, UNUSED, TRANSFORMER = (
    "GRU with attention",
    "GRU without attention",
    "GRU, context never used",
    "Transformer",
)
LENGTHS = (8, 11, 14, 18)  # words of the source: up to 8, 9 to 11, and so on


@dataclass(frozen=True)
class Contender:
    """A model in the comparison: how to build it and how to train it."""

    name: str
    preset: Preset
    build_model: BuildModel


def full_preset(epochs: int) -> Preset:
    """The Transformer of the full comparison: the laptop preset with half of its layers, in float32.

    The recurrent models have no bfloat16 here, so nobody has. And all are trained with Adam.
    """
    return replace(
        find_preset("laptop"), name="side by side", n_layers=2, epochs=epochs, precision="float32",
        optimizer="adam", peak_rate=3e-3, weight_decay=0.0, validate_every=epochs, average=1, beam_size=1,
    )  # fmt: skip


def contenders(
    preset: Preset, d_model: int, peak_rate: float, attention: BuildModel = with_attention,
    transformer: BuildModel = Transformer,
) -> list[Contender]:  # fmt: skip
    """Three recurrent translators and a Transformer, with the same tokens, batches and number of updates.

    Args:
        preset: of the Transformer. The recurrent models differ from it in what follows, and have one layer.
        d_model: width of the recurrent models, such that the number of parameters is about the Transformer's.
        peak_rate: of the recurrent models' learning rate.
        attention: makes the recurrent translator with attention; the other two are the same with another context.
        transformer: makes the Transformer.
    """
    recurrent = replace(preset, d_model=d_model, n_layers=1, peak_rate=peak_rate, attention="explicit")
    return [
        Contender(ATTENTION, recurrent, attention),
        Contender(FIXED, recurrent, with_context(FixedContext, attention)),
        Contender(UNUSED, recurrent, with_context(NoContext, attention)),
        Contender(TRANSFORMER, preset, transformer),
    ]


def train_and_measure(
    contender: Contender,
    folder: Path,
    corpus: Corpus,
    training_sentences: int,
    data_dir: str | Path | None = None,
    quiet: bool = True,
    on_log: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Translator, dict[str, Any]]:
    """Train a contender with the course's trainer, and score what it translates greedily.

    Args:
        contender: what to train.
        folder: a new folder for the run.
        corpus: the one that the preset names; its first test set is translated.
        training_sentences: so many training pairs are translated too, to see what a score on them is worth.
        data_dir: where the corpus lies, as in `train`.
        quiet: nothing is printed.
        on_log: as in `train`.

    Returns:
        The trained model with its tokenizer, and what was measured, ready for a JSON file.

    Raises:
        InputError: as `train`.
    """
    with redirect_stderr(StringIO() if quiet else sys.stderr):
        record = train(contender.preset, folder, data_dir, build_model=contender.build_model, on_log=on_log)
    translator = Translator.load(folder, contender.build_model)
    metrics = read_metrics(folder / "metrics.jsonl")
    epochs = [line for line in metrics if line["kind"] == "epoch"]
    seconds = [seconds_in_training(metrics, epoch["epoch"]) for epoch in epochs]
    sources, references = map(list, zip(*corpus.test, strict=True))
    translations = translator.translate(sources, beam_size=1)
    scores = score_translations(translations, references)
    seen_sources, seen_references = map(list, zip(*corpus.train[:training_sentences], strict=True))
    seen = score_translations(translator.translate(seen_sources, beam_size=1), seen_references)
    return translator, {
        "parameters": record["result"]["parameters"],
        "updates": record["result"]["steps"],
        "seconds_per_epoch": round(sum(seconds) / len(seconds), 2),
        "validation_loss": [round(epoch["validation_loss"], 4) for epoch in epochs],
        "bleu": round(scores.bleu, 2),
        "signature": scores.signatures["bleu"],
        "bleu_by_length": bleu_by_length(sources, translations, references),
        "bleu_on_training_sentences": round(seen.bleu, 2),
        "examples": list(zip(sources[:5], translations[:5], references[:5], strict=True)),
    }


def recorded_comparison() -> dict[str, Any] | None:
    """What `benchmarks/recurrent.py` has written into this copy of the course, or nothing if it was never run."""
    path = Path(__file__).resolve().parents[2] / "results" / "recurrent.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def seconds_in_training(metrics: Sequence[dict[str, Any]], epoch: int) -> float:
    """The time of an epoch's updates, without validation and saving: from its first to its last, and one more."""
    times = [line["seconds"] for line in metrics if line["kind"] == "step" and line["epoch"] == epoch]
    if len(times) < 2:
        return times[-1]
    return (times[-1] - times[0]) * len(times) / (len(times) - 1)


def bleu_by_length(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], limits: Sequence[int] = LENGTHS
) -> list[dict[str, Any]]:
    """The BLEU of the short sentences, of longer ones, and so on.

    Args:
        sources: decide, by their number of words, to which group a sentence belongs.
        translations: one for each source.
        references: one for each source.
        limits: the most words of each group, ascending; the last group has no limit.

    Returns:
        For each group that has a sentence: `words` (such as "9-11"), `sentences`, `bleu`.
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
            scores = score_translations([translations[i] for i in chosen], [references[i] for i in chosen])
            groups.append({"words": words, "sentences": len(chosen), "bleu": round(scores.bleu, 2)})
        lower = (limit or 0) + 1
    return groups


def heat_maps(recurrent: Translator, transformer: Translator, source: str, target: str) -> dict[str, Any]:
    """What both look at while they read the same target: lists of rows, one for each token that is asked for.

    Args:
        recurrent: a translator with an `AdditiveAttention`.
        transformer: a translator with the same tokenizer.
        source: a sentence.
        target: its translation, of any origin.

    Returns:
        `source_tokens`, `target_tokens` (those that are read, `<bos>` first) and `written` (those that are asked for);
        `additive`, `(target, source)`; `transformer`, for each layer the mean of its heads, `(target, source)`.
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
