"""A two-minute preview of the course: train a model, translate, score the translations, and plot attention."""

from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_lab.data import load_corpus
from transformer_lab.decoding.translator import Translator
from transformer_lab.evaluation import Scores, score_translations
from transformer_lab.plots import LiveCurve, draw_attention, save_figure
from transformer_lab.training import find_preset, train

# Word for word: "On the street plays a little boy". The heat map shows how attention reorders the words.
HEAT_MAP_SENTENCE = "Auf der Straße spielt ein kleiner Junge mit einem roten Ball."


@dataclass(frozen=True)
class Tour:
    """The results of a tour."""

    examples: list[tuple[str, str, str]]  # from the test set: German, the model's English, and the reference
    scores: Scores  # for the whole test set
    heat_map: Path


def tour(output: Path) -> Tour:
    """Train the preset `tour` on picture captions, translate the test set, score it, and draw a heat map.

    Args:
        output: Folder for the model and `attention.png`. If it contains an interrupted tour, the tour is resumed.
            If it contains a finished tour, nothing is retrained.

    Raises:
        InputError: The folder cannot be written to, or contains a different training run.
    """
    preset = find_preset("tour")
    train(preset, output, resume=(output / "training.json").exists())
    translator = Translator.load(output)
    test = load_corpus(preset.corpus).test
    sources, references = [source for source, _ in test], [reference for _, reference in test]
    translations = translator.translate(sources, beam_size=preset.beam_size, alpha=preset.alpha)
    heat_map = output / "attention.png"
    save_figure(draw_attention(translator, HEAT_MAP_SENTENCE), heat_map)
    examples = list(zip(sources, translations, references, strict=True))[:4]
    return Tour(examples, score_translations(translations, references), heat_map)


def train_small_model() -> Translator:
    """Train a model on 24,000 synthetic captions for the tour notebook, plotting its loss live. No files are kept."""
    print("Training takes one to two minutes on two cores. The curve appears after a few seconds.")
    preset = replace(find_preset("tour"), train_limit=24_000, max_tokens=1024)
    with TemporaryDirectory() as folder, redirect_stderr(StringIO()):  # the loss curve replaces the progress bar
        train(preset, folder, on_log=LiveCurve(seconds=3))
        return Translator.load(folder)
