import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from transformer_lab.errors import InputError
from transformer_lab.presets import PRESETS, RANGES, Preset, find_preset, override, reject_unused_option


def test_the_presets_are_found_by_name():
    """Users choose from these names, and `paper` must stay the paper's base model (table 3, sections 5.3 and 5.4)."""
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
    """If a field's type could not be parsed from text, the field could not be set on the command line."""
    for preset in PRESETS.values():
        texts = {field.name: str(getattr(preset, field.name)).strip("()") for field in fields(preset)}
        assert override(PRESETS["tour"], texts) == preset


def test_override_gives_values_of_the_right_type():
    """`bool("false")` is True, and a number left as a string would fail much later, inside the model."""
    texts = {"epochs": " 3", "tie": "False", "train_limit": "200", "betas": "0.8, 0.9", "peak_rate": "1e-4"}
    preset = override(PRESETS["laptop"], texts)
    assert (preset.epochs, preset.tie, preset.train_limit, preset.betas) == (3, False, 200, (0.8, 0.9))
    assert preset.peak_rate == 1e-4
    assert PRESETS["laptop"].epochs != 3


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("epochs", "3.5", "`epochs` must be a whole number; got '3.5'"),
        ("epochs", "0", "`epochs` must be 1 or more; got 0"),
        ("dropout", "a lot", "`dropout` must be a number; got 'a lot'"),
        ("dropout", "1", "`dropout` must be at least 0 and less than 1; got 1.0"),
        ("seed", "1000000000000", "`seed` must be at least 0 and less than 4294967296; got 1000000000000"),
        ("peak_rate", "nan", "`peak_rate` must be a finite number; got nan"),
        ("peak_rate", "0", "`peak_rate` must be greater than 0; got 0.0"),
        ("clip_norm", "-1", "`clip_norm` must be 0 or more; got -1.0"),
        ("tie", "maybe", "`tie` must be true or false; got 'maybe'"),
        ("train_limit", "all", "`train_limit` must be a whole number or none; got 'all'"),
        ("train_limit", "0", "`train_limit` must be 1 or more, or none for all pairs; got 0"),
        ("betas", "0.9", "`betas` must be two numbers separated by a comma; got '0.9'"),
        ("betas", "0.9,1", "`betas` must both be at least 0 and less than 1; got 0.9,1.0"),
        ("beam_size", "1001", "`beam_size` must be from 1 to 1000; got 1001"),
        ("d_model", "99999999999", "`d_model` must be less than 2147483648; got 99999999999"),
        ("schedule", "cosine", "`schedule` must be one of linear, paper; got 'cosine'"),
        ("consistency", "-5", "`consistency` must be 0 or more; got -5.0"),
        ("bpe_dropout", "1.1", "`bpe_dropout` must be from 0 to 1; got 1.1"),
        ("bpe_dropout_on", "validation", "`bpe_dropout_on` must be one of both, source, target; got 'validation'"),
        ("tokenizer", "spacy", "set `tie` to false, or `tokenizer` to bpe"),
        ("shared_vocabulary", "false", "`tie` needs one vocabulary for both languages: set `tie` to false, or `shared"),
        ("learning_rate", "1", "a preset has no field 'learning_rate': the fields are name, corpus,"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_could(field, text, message):
    """These values come straight from the command line. Each needs a one-line error that says what is valid."""
    with pytest.raises(InputError, match=message) as error:
        override(PRESETS["laptop"], {field: text})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 2.5, "`epochs` must be a whole number; got 2.5"),
        ("epochs", True, "`epochs` must be a whole number; got True"),
        ("dropout", "0.1", "`dropout` must be a number; got '0.1'"),
        ("dropout", None, "`dropout` must be a number; got None"),
        ("tie", 1, "`tie` must be true or false; got 1"),
        ("betas", 0.9, "`betas` must be two numbers separated by a comma; got 0.9"),
        ("betas", (0.9, 0.98, 0.99), "`betas` must be two numbers separated by a comma; got .*0.99"),
        ("betas", (0.9, math.nan), "`betas` must both be at least 0 and less than 1; got 0.9,nan"),
        ("train_limit", "all", "`train_limit` must be a whole number or none; got 'all'"),
        ("corpus", None, "`corpus` must be text; got None"),
        ("precision", 16, "`precision` must be one of auto, bf16, float32; got 16"),
    ],
)
def test_a_value_of_another_type_is_refused_from_python_too(field, value, message):
    """The error must be raised at once, not as a TypeError somewhere in the trainer after the corpus has been read."""
    with pytest.raises(InputError, match=message):
        replace(PRESETS["laptop"], **{field: value})


def test_every_number_has_a_range():
    """A value such as -5 would be accepted, and the run would fail later or learn nothing."""
    numbers = {field.name for field in fields(Preset) if type(field.default) in (int, float)}
    assert numbers <= {name for names, _, _ in RANGES for name in names}


def test_a_whole_number_is_a_number():
    assert replace(PRESETS["laptop"], dropout=0, peak_rate=1).dropout == 0


def test_bpe_dropout_is_refused_where_there_are_no_byte_pairs():
    with pytest.raises(InputError, match="`tokenizer` is spacy: set `bpe_dropout` to 0, or `tokenizer` to bpe"):
        override(PRESETS["laptop"], {"tokenizer": "spacy", "tie": "false", "bpe_dropout": "0.1"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"both_directions": "15"}, "`both_directions` must be less than `epochs`, 15, which includes them; got 15"),
        ({"both_directions": "-1"}, "`both_directions` must be 0 or more; got -1"),
        ({"both_directions": "4", "shared_vocabulary": "false", "tie": "false"}, "needs one vocabulary for both"),
        ({"both_directions": "4", "tokenizer": "spacy", "tie": "false"}, "needs one vocabulary for both languages"),
    ],
)
def test_both_directions_need_epochs_of_their_own_and_one_vocabulary(values, message):
    with pytest.raises(InputError, match=message):
        override(PRESETS["laptop"], values)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("paper", {"peak_rate": "1e-4"}, "`peak_rate` has no effect with `schedule` paper: set `learning_rate_scale`"),
        ("laptop", {"learning_rate_scale": "0.5"}, "`learning_rate_scale` has no effect with `schedule` linear"),
    ],
)
def test_a_field_that_changes_nothing_is_refused(name, values, message):
    """If an option has no effect, a reader could mistake random variation for its effect."""
    with pytest.raises(InputError, match=message):
        reject_unused_option(PRESETS[name], override(PRESETS[name], values))
    other = {"schedule": "linear" if name == "paper" else "paper"}
    reject_unused_option(PRESETS[name], override(PRESETS[name], values | other))


def test_the_included_model_carries_its_record():
    """Notebook 13 shows how the model was trained, even if the package is installed without the `results` folder."""
    from transformer_lab.decoding.translator import PRETRAINED

    results = Path(__file__).resolve().parents[2] / "results"
    for name in ("metrics.jsonl", "training.json"):
        shipped = (PRETRAINED / name).read_bytes()
        assert shipped in [path.read_bytes() for path in results.glob(f"**/{name}")], f"no recorded run has this {name}"
    record, config = (json.loads((PRETRAINED / name).read_text()) for name in ("training.json", "config.json"))
    preset = record["configuration"]["preset"]
    assert {name: preset[name] for name in config.keys() & preset.keys()} == {
        name: config[name] for name in config.keys() & preset.keys()
    }
