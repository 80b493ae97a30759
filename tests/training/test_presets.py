import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from transformer_lab.errors import InputError
from transformer_lab.presets import PRESETS, find_preset, override, reject_unused_option


def test_the_presets_are_found_by_name():
    """The command offers these names; `paper` must stay the paper's base model (table 3, sections 5.3 and 5.4)."""
    assert list(PRESETS) == ["tour", "laptop", "gpu", "gpu-sprint", "paper"]
    paper = find_preset("paper")
    assert (paper.n_layers, paper.d_model, paper.n_heads, paper.d_ff, paper.dropout) == (6, 512, 8, 2048, 0.1)
    assert (paper.schedule, paper.warmup_steps, paper.label_smoothing) == ("paper", 4000, 0.1)
    assert (paper.betas, paper.eps, paper.norm_first) == ((0.9, 0.98), 1e-9, False)


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(
        InputError, match="unknown preset 'laptpo': the presets are tour, laptop, gpu, gpu-sprint, paper"
    ):
        find_preset("laptpo")


def test_every_field_can_be_replaced_by_its_own_text():
    """A field whose type cannot be read from text could not be set on the command line at all."""
    for preset in PRESETS.values():
        texts = {field.name: str(getattr(preset, field.name)).strip("()") for field in fields(preset)}
        assert override(PRESETS["tour"], texts) == preset


def test_override_gives_values_of_the_right_type():
    """`bool("false")` is True, and a number kept as text fails far away, in the middle of a model."""
    texts = {"epochs": " 3", "tie": "False", "train_limit": "200", "betas": "0.8, 0.9", "peak_rate": "1e-4"}
    preset = override(PRESETS["laptop"], texts)
    assert (preset.epochs, preset.tie, preset.train_limit, preset.betas) == (3, False, 200, (0.8, 0.9))
    assert preset.peak_rate == 1e-4
    assert PRESETS["laptop"].epochs != 3


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("epochs", "3.5", "epochs is '3.5', but must be a whole number"),
        ("epochs", "0", "epochs is 0, but must be at least 1"),
        ("dropout", "a lot", "dropout is 'a lot', but must be a number"),
        ("dropout", "1", "dropout is 1.0, but must be at least 0 and less than 1"),
        ("seed", "1000000000000", "seed is 1000000000000, but must be at least 0 and less than 4294967296"),
        ("peak_rate", "nan", "peak_rate is nan, but must be a finite number"),
        ("peak_rate", "0", "peak_rate is 0.0, but must be greater than 0"),
        ("clip_norm", "-1", "clip_norm is -1.0, but must be at least 0"),
        ("tie", "maybe", "tie is 'maybe', but must be true or false"),
        ("train_limit", "all", "train_limit is 'all', but must be a whole number or none"),
        ("train_limit", "0", "train_limit is 0, but must be at least 1"),
        ("betas", "0.9", "betas is '0.9', but must be two numbers with a comma between them"),
        ("betas", "0.9,1", r"betas are \(0.9, 1.0\), but each must be"),
        ("beam_size", "1001", "beam_size is 1001, but must be at least 1, and at most 1000"),
        ("d_model", "99999999999", "d_model is 99999999999, but must be at least 1, and below 2147483648"),
        ("schedule", "cosine", "schedule is 'cosine', but must be one of: linear, paper"),
        ("consistency", "-5", "consistency is -5.0, but must be at least 0"),
        ("bpe_dropout", "1.1", "bpe_dropout is 1.1, but must be from 0 to 1"),
        ("bpe_dropout_on", "validation", "bpe_dropout_on is 'validation', but must be one of: both, source, target"),
        ("tokenizer", "spacy", "set tie to false, or tokenizer to bpe"),
        ("learning_rate", "1", "a preset has no field 'learning_rate': the fields are name, corpus,"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_could(field, text, message):
    """These come straight from the command line: each must be one line that says what to write instead."""
    with pytest.raises(InputError, match=message) as error:
        override(PRESETS["laptop"], {field: text})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 2.5, "epochs is 2.5, but must be a whole number"),
        ("epochs", True, "epochs is True, but must be a whole number"),
        ("dropout", "0.1", "dropout is '0.1', but must be a number"),
        ("dropout", None, "dropout is None, but must be a number"),
        ("tie", 1, "tie is 1, but must be true or false"),
        ("betas", 0.9, "betas is 0.9, but must be two numbers with a comma between them"),
        ("betas", (0.9, 0.98, 0.99), "betas is .*, but must be two numbers"),
        ("betas", (0.9, math.nan), "betas are .*, but each must be at least 0"),
        ("train_limit", "all", "train_limit is 'all', but must be a whole number or none"),
        ("corpus", None, "corpus is None, but must be a text"),
        ("precision", 16, "precision is 16, but must be one of: auto, bf16, float32"),
    ],
)
def test_a_value_of_another_type_is_refused_from_python_too(field, value, message):
    """Otherwise it would be a TypeError from somewhere in the trainer, after the corpus was read."""
    with pytest.raises(InputError, match=message):
        replace(PRESETS["laptop"], **{field: value})


def test_a_whole_number_is_a_number():
    assert replace(PRESETS["laptop"], dropout=0, peak_rate=1).dropout == 0


def test_bpe_dropout_is_refused_where_there_are_no_byte_pairs():
    with pytest.raises(InputError, match="the tokenizer spacy has none: set bpe_dropout to 0, or tokenizer to bpe"):
        override(PRESETS["laptop"], {"tokenizer": "spacy", "tie": "false", "bpe_dropout": "0.1"})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("paper", {"peak_rate": "1e-4"}, "peak_rate does nothing in the schedule paper: set learning_rate_scale, or"),
        ("laptop", {"learning_rate_scale": "0.5"}, "learning_rate_scale does nothing in the schedule linear: set peak"),
    ],
)
def test_a_field_that_changes_nothing_is_refused(name, values, message):
    """Whoever turns a knob that is not connected believes to have seen its effect."""
    with pytest.raises(InputError, match=message):
        reject_unused_option(PRESETS[name], override(PRESETS[name], values))
    other = {"schedule": "linear" if name == "paper" else "paper"}
    reject_unused_option(PRESETS[name], override(PRESETS[name], values | other))


def test_the_included_model_carries_its_record():
    """Notebook 13 shows how the model was trained, also where the package is installed without the folder `results`."""
    from transformer_lab.decoding.translator import PRETRAINED

    results = Path(__file__).resolve().parents[2] / "results"
    for name in ("metrics.jsonl", "training.json"):
        shipped = (PRETRAINED / name).read_bytes()
        assert shipped in [path.read_bytes() for path in results.glob(f"**/{name}")], f"{name} is of no recorded run"
    record, config = (json.loads((PRETRAINED / name).read_text()) for name in ("training.json", "config.json"))
    preset = record["configuration"]["preset"]
    assert {name: preset[name] for name in config.keys() & preset.keys()} == {
        name: config[name] for name in config.keys() & preset.keys()
    }
