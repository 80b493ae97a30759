"""Benchmarks must run at a small size on a machine without a GPU or Multi30k."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transformer_lab.data import load_corpus, train_tokenizer
from transformer_lab.decoding.translator import Translator, load_pretrained
from transformer_lab.errors import InputError
from transformer_lab.model import Transformer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("against", ["default-kernel", "plain-loop"])
def test_training_is_measured_against_a_plainer_one(against, tmp_path):
    result = tmp_path / "result.json"
    options = ["--preset", "tour", "--pairs", "300", "--rounds", "2", "--updates", "1", "--result", str(result)]
    command = [sys.executable, str(ROOT / "benchmarks" / "training.py"), "--against", against, *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert child.returncode == 0, child.stderr
    figures = json.loads(result.read_text(encoding="utf-8"))
    ours, plain = figures["tour"], figures[f"{against.replace('-', '_')}_float32"]
    assert ours > 0
    assert plain > 0
    assert len(figures["ratio_of_each_round"]) == 2
    assert f"ratio {figures['ratio']}" in child.stdout
    assert f"tour {ours:,} tokens/s, {against} {plain:,} tokens/s" in child.stdout


def test_a_distilled_corpus_has_references_and_translations(tiny_corpus, tmp_path):
    """Each source sentence has its reference and the teacher's translation. The held-out sets do not change."""
    output = tmp_path / "distilled"
    script = str(ROOT / "benchmarks" / "distillation.py")
    command = [sys.executable, script, "--corpus", str(tiny_corpus), "--output", str(output), "--beam", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, capture_output=True, check=True, env=environment)
    before, after = load_corpus(tiny_corpus), load_corpus(output)
    sources = [source for source, _ in before.train]
    translated = list(zip(sources, load_pretrained().translate(sources, beam_size=1), strict=True))
    assert after.train == before.train + translated
    assert (after.validation, after.tests) == (before.validation, before.tests)
    again = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert again.returncode == 1
    assert again.stderr.startswith(f"distillation.py: {output} already exists: choose")


def test_teachers_translate_together(import_benchmark, tmp_path):
    """A token's probability is the mean of the members'. With copies of one model, nothing changes."""
    distillation = import_benchmark("distillation")
    torch.manual_seed(1)
    tokenizer = load_pretrained().tokenizer
    config = replace(load_pretrained().model.config, d_model=16, n_heads=2, n_layers=1, d_ff=16)
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        Translator(Transformer(config), tokenizer).save(folder)
    one, other = (Translator.load(folder).model for folder in folders)
    source, tokens = torch.tensor([[5, 6, config.eos_id], [7, config.eos_id, config.pad_id]]), torch.tensor([[1], [1]])
    together = distillation.load_teacher(folders)
    with torch.no_grad():
        decoder = together.model.incremental_decoder(source)
        probabilities = decoder.step(tokens, torch.ones(2, 1, 1, dtype=torch.bool)).softmax(dim=-1)
        expected = torch.stack([model(source, tokens).softmax(dim=-1) for model in (one, other)]).mean(dim=0)
    torch.testing.assert_close(probabilities, expected)

    sentences = ["Ein Hund läuft.", "Zwei Kinder spielen im Schnee."]
    copies = distillation.load_teacher([folders[0], folders[0]])
    assert copies.translate(sentences, beam_size=3) == Translator.load(folders[0]).translate(sentences, beam_size=3)
    assert together.translate(sentences, beam_size=3) != copies.translate(sentences, beam_size=3)

    smaller = train_tokenizer("bpe", [("Ein Hund.", "A dog.")], vocab_size=520)
    config = replace(config, source_vocab=smaller.source_size, target_vocab=smaller.target_size)
    Translator(Transformer(config), smaller).save(folders[1])
    with pytest.raises(InputError, match=r"^\S+other and \S+one have different vocabularies: choose runs"):
        distillation.load_teacher(folders)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["decoding.py", "nothere"], "decoding.py: there is no folder nothere: give the folder of a trained model"),
        (["training.py", "--device", "gpu"], "training.py: this torch cannot compute on gpu here: choose"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments, says):
    script, *options = arguments
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert child.returncode == 1
    assert child.stderr.startswith(says)
    assert child.stderr.count("\n") == 1
