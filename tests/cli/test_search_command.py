"""Test the command `search`: its output, how it resumes, and its error messages."""

import json
import shutil
from unittest.mock import Mock

import pytest

SMALL = ["--vocab-size", 540, "--d-model", 8, "--d-ff", 8, "--n-layers", 1, "--epochs", 1, "--max-tokens", 200]


@pytest.fixture
def search(lab, corpus_folder, tmp_path):
    """Run a search in `tmp_path / "search"`: `search("--trials", 2)` takes a second or two."""

    def run(*options):
        return lab("search", "--corpus", corpus_folder, *SMALL, "--output", tmp_path / "search", *options)

    return run


def test_search_prints_its_results_and_resumes(search, tmp_path):
    """If you run the same command with more trials, it runs the missing trials and keeps the others."""
    first = search("--trials", 1, "--finalists", 0)
    assert first.status == 0
    assert first.stdout.startswith("1 trials: 1 complete\n")
    whole = search("--trials", 4, "--finalists", 1, "--seeds", 1)
    assert whole.status == 0
    steps = ["trial 1", "trial 2", "trial 3", "finalist 0", "Next"]
    assert [line.split(":")[0] for line in whole.stderr.splitlines()] == steps
    assert whole.stdout.startswith("4 trials: 4 complete\nrank correlation with BLEU over 4 of them")
    assert "chosen for" in whole.stdout
    for name, rows in (("trials", 4), ("finalists", 1)):
        table = (tmp_path / "search" / f"{name}.csv").read_text()
        assert len(table.splitlines()) == rows + 1
        assert str(tmp_path / "search" / f"{name}.csv") in whole.stdout
    record = json.loads((tmp_path / "search" / "search.json").read_text())
    assert "--trials 4" in record["environment"]["command"]
    assert "sampler was random, now tpe" in search("--trials", 4, "--sampler", "tpe").complaint


def test_an_interrupted_search_says_how_to_resume(search, monkeypatch):
    monkeypatch.setattr("transformer_lab.electives.search.train", Mock(side_effect=KeyboardInterrupt))
    stopped = search("--trials", 2)
    assert stopped.status == 130
    (line,) = stopped.stderr.splitlines()
    assert "finished work is kept; continue with: transformer-lab search --corpus" in line


def test_languages_that_the_corpus_does_not_have(search, tmp_path):
    """The error is raised before anything is written that would block the corrected command."""
    assert "no train.fr" in search("--source", "fr").complaint
    assert not (tmp_path / "search" / "search.json").exists()


def test_an_output_folder_that_is_not_a_search(search, tmp_path, model_folder):
    shutil.copytree(model_folder, tmp_path / "search")
    assert "something other than a search" in search().complaint


def test_captions_are_german_and_english(lab, tmp_path):
    assert "its languages are de and en" in lab("search", "--source", "fr", "--output", tmp_path / "s").complaint
