"""Fixtures: a corpus and a preset, both so small that a whole run takes about a second."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from transformer_lab.presets import PRESETS

NOUNS = {"Hund": "dog", "Vogel": "bird", "Mann": "man", "Ball": "ball", "Baum": "tree", "Stein": "stone"}
VERBS = {"sieht": "sees", "sucht": "seeks", "malt": "paints", "trägt": "carries"}
ENDINGS = {".": ".", " heute.": " today.", " am frühen Morgen.": " in the early morning."}


BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def import_benchmark():
    """Return a function that imports a script from `benchmarks/`. The scripts import each other by name."""

    def load(name):
        sys.path.insert(0, str(BENCHMARKS))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(BENCHMARKS))

    return load


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory):
    """Return a folder of 432 German-English pairs of different lengths. The training set contains 336 of them."""
    pairs = [
        (f"Der {subject} {verb} den {thing}{ending}", f"The {NOUNS[subject]} {VERBS[verb]} the {NOUNS[thing]}{english}")
        for thing in NOUNS
        for ending, english in ENDINGS.items()
        for verb in VERBS
        for subject in NOUNS
    ]
    splits = {
        "val": [pair for index, pair in enumerate(pairs) if index % 9 == 0],
        "test": [pair for index, pair in enumerate(pairs) if index % 9 == 4],
        "train": [pair for index, pair in enumerate(pairs) if index % 9 not in (0, 4)],
    }
    for split in ("val", "test"):
        splits[split].append(("Der große Vogel sieht den Fuß.", "The big bird sees the foot."))
    folder = tmp_path_factory.mktemp("corpus")
    for split, chosen in splits.items():
        for language, side in (("de", 0), ("en", 1)):
            (folder / f"{split}.{language}").write_text("".join(pair[side] + "\n" for pair in chosen), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_preset(tiny_corpus):
    return replace(
        PRESETS["tour"],
        name="tiny",
        corpus=str(tiny_corpus),
        vocab_size=600,
        dropout=0.1,  # so that a run uses random numbers, which a resumed run has to reproduce
        d_model=64,
        n_heads=2,
        n_layers=1,
        d_ff=64,
        max_length=40,
        epochs=3,
        max_tokens=150,
        warmup_steps=10,
        peak_rate=0.005,
        average=2,
        beam_size=2,
    )
