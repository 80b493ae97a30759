"""Fixtures: a corpus of a few captions, and a model that the command trained on it."""

import sys
from pathlib import Path

import pytest

from transformer_lab.cli import main

TINY = {
    "vocab_size": "600",
    "d_model": "16",
    "n_heads": "2",
    "n_layers": "1",
    "d_ff": "32",
    "max_length": "40",
    "epochs": "4",
    "max_tokens": "120",
    "warmup_steps": "10",
    "peak_rate": "0.02",
}

NOUNS = {"Hund": "dog", "Vogel": "bird", "Mann": "man", "Ball": "ball", "Baum": "tree", "Stein": "stone"}
VERBS = {"sieht": "sees", "sucht": "seeks", "malt": "paints", "trägt": "carries"}


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory) -> Path:
    """Return a folder with 144 German-English pairs: 112 for training, 16 for validation, and 16 for testing."""
    pairs = [
        (f"Der {subject} {verb} den {thing}.", f"The {NOUNS[subject]} {VERBS[verb]} the {NOUNS[thing]}.")
        for thing in NOUNS
        for verb in VERBS
        for subject in NOUNS
    ]
    splits = {"val": pairs[::9], "test_2016_tiny": pairs[4::9]}
    splits["train"] = [pair for pair in pairs if pair not in splits["val"] + splits["test_2016_tiny"]]
    folder = tmp_path_factory.mktemp("corpus")
    for split, chosen in splits.items():
        for language, side in (("de", 0), ("en", 1)):
            (folder / f"{split}.{language}").write_text("".join(pair[side] + "\n" for pair in chosen), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_fields(corpus_folder) -> dict[str, str]:
    """Return field values for the `tour` preset that make a run take about a second."""
    return TINY | {"corpus": str(corpus_folder)}


@pytest.fixture(scope="session")
def train_tiny(tiny_fields) -> list[str]:
    """Return the command-line arguments for a run with these values, excluding the output folder."""
    options = [word for name, text in tiny_fields.items() for word in (f"--{name.replace('_', '-')}", text)]
    return ["train", "tour", *options]


@pytest.fixture(scope="session")
def model_folder(train_tiny, tmp_path_factory) -> Path:
    """Return a run folder written by `transformer-lab train`."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["transformer-lab", *train_tiny, "--output", str(folder)])
        with pytest.raises(SystemExit) as exit_:
            main()
    assert exit_.value.code in (0, None)
    return folder
