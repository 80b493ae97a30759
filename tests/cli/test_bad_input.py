"""Bad input causes a one-line error on stderr and exit status 1, without a traceback, and no existing file is lost."""

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from transformer_lab.training import PRESETS
from transformer_lab.training.records import Metrics

# --- sentences ---


@pytest.mark.parametrize(
    ("sentence", "says"),
    [
        ("", "1"),
        ("  \t ", "1"),
        ("Hund " * 10_000, "10001"),
        ("🐕 🎉", "translates de to en"),
        ("مرحبا بالعالم.", "translates de to en"),
        ("Ein \udce4lterer Hund.", "UTF-8"),  # how Python decodes an argument byte that isn't valid UTF-8
    ],
    ids=["empty", "spaces", "10,000 words", "emoji", "Arabic", "not UTF-8"],
)
def test_a_sentence_that_cannot_be_translated(lab, model_folder, sentence, says):
    assert says in lab("translate", "--model", model_folder, sentence).complaint
    assert says in lab("heatmap", "--model", model_folder, sentence).complaint


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"", "no sentence"),
        (b"\n", "no sentence"),
        (b"Der Hund.\n\nDer Mann.\n", "2"),
        ("Der Hund.\nمرحبا".encode(), "sentence 2 is foreign"),
        (b"Der Hund.\nDer\0Mann.\n", "sentence 2 has a NUL"),
        (b"Der Hund.\nDer B\xe4r.\n", "sentence 2 is not valid"),
    ],
    ids=["nothing", "a blank line", "a blank line between", "Arabic", "NUL", "not UTF-8"],
)
def test_lines_that_cannot_be_translated(lab, model_folder, stdin, says):
    """The error gives the line number, and no translation is printed before it."""
    assert says in lab("translate", "--model", model_folder, stdin=stdin).complaint


def test_a_byte_order_mark_is_not_translated(lab, model_folder):
    """Some editors write a byte-order mark, which used to change the translation of the first sentence."""
    plain = lab("translate", "--model", model_folder, stdin=b"Der Hund sieht den Ball.\n")
    marked = lab("translate", "--model", model_folder, stdin="Der Hund sieht den Ball.\n".encode("utf-8-sig"))
    assert marked.status == 0
    assert marked.stdout == plain.stdout


@pytest.mark.parametrize("beam", ["0", "1001", "99999999999999999999"])
def test_a_beam_size_out_of_range(lab, model_folder, beam):
    """A beam of 100,000 used to exhaust memory, which could kill a training run on the same machine."""
    complaint = lab("translate", "--model", model_folder, "--beam", beam, "Der Hund sieht den Ball.").complaint
    assert complaint == f"transformer-lab: --beam must be a whole number from 1 to 1000; got '{beam}'"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("redirected", "says"),
    [
        (">/dev/full", "cannot write the output (No space left on device): make room, or send it elsewhere"),
        ("<&-", "no sentence: give one in quotation marks, or lines on stdin"),
        ("0>/dev/null", "no sentence: give one in quotation marks, or lines on stdin"),
    ],
)
def test_streams_that_are_full_or_closed(model_folder, redirected, says):
    """A cron job or a service may run without stdin or stdout."""
    command = shlex.join([sys.executable, "-m", "transformer_lab", "translate", "--model", str(model_folder)])
    sentence = "'Der Hund sieht den Ball.'" if redirected.startswith(">") else ""
    command = f"{command} {sentence} {redirected}"
    child = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert child.stderr == f"transformer-lab: {says}\n"
    assert child.returncode == 1


def test_output_closed_by_the_shell(model_folder):
    command = shlex.join([sys.executable, "-m", "transformer_lab", "translate", "--model", str(model_folder)])
    silent = subprocess.run(["sh", "-c", f"{command} 'Der Hund sieht den Ball.' >&-"], capture_output=True, check=False)
    assert (silent.returncode, silent.stderr) == (0, b"")


# --- corpora ---


def test_an_error_names_the_split_and_the_number_of_a_sentence(lab, model_folder, broken_corpus):
    """The sentence number differs from the line number, because an empty line before it was skipped."""
    for language in ("de", "en"):
        path = broken_corpus / f"test_2016_tiny.{language}"
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(f"{line}\n" for line in [lines[0], "", "Hund " * 100, *lines[1:]]), encoding="utf-8")
    scored = lab("evaluate", "--model", model_folder, "--corpus", broken_corpus)
    assert "corpus, test: sentence 2 has 101 tokens, but this model reads at most 40" in scored.complaint


@pytest.fixture
def broken_corpus(corpus_folder, tmp_path):
    """Return a copy of the corpus that a test can damage."""
    return shutil.copytree(corpus_folder, tmp_path / "corpus")


def train_on(lab, train_tiny, corpus, tmp_path):
    complaint = lab(*train_tiny, "--corpus", corpus, "--output", tmp_path / "run").complaint
    assert not (tmp_path / "run" / "training.json").exists()
    return complaint


def test_a_corpus_that_is_not_utf8(lab, train_tiny, broken_corpus, tmp_path):
    lines = (broken_corpus / "train.de").read_bytes().split(b"\n")
    lines[6] = "Der Bär.".encode("latin-1")
    (broken_corpus / "train.de").write_bytes(b"\n".join(lines))
    assert "train.de, line 7: not valid UTF-8" in train_on(lab, train_tiny, broken_corpus, tmp_path)


def test_a_corpus_with_a_nul_byte(lab, train_tiny, broken_corpus, tmp_path):
    (broken_corpus / "val.en").write_bytes((broken_corpus / "val.en").read_bytes().replace(b"The", b"T\0e", 1))
    assert "val.en, line 1: a NUL byte" in train_on(lab, train_tiny, broken_corpus, tmp_path)


def test_files_of_unequal_length(lab, train_tiny, broken_corpus, tmp_path):
    with open(broken_corpus / "train.en", "a", encoding="utf-8") as file:
        file.write("One more.\n")
    complaint = train_on(lab, train_tiny, broken_corpus, tmp_path)
    assert "train.de has 112 lines" in complaint
    assert "train.en has 113" in complaint


def test_an_empty_corpus(lab, train_tiny, broken_corpus, tmp_path):
    for language in ("de", "en"):
        (broken_corpus / f"train.{language}").write_bytes(b"")
    assert "train.de has no sentences" in train_on(lab, train_tiny, broken_corpus, tmp_path)


def test_a_missing_corpus(lab, train_tiny, tmp_path):
    assert "captions, multi30k" in train_on(lab, train_tiny, "multi31k", tmp_path)
    assert "no train.de" in train_on(lab, train_tiny, tmp_path, tmp_path)


def test_a_missing_split(lab, model_folder, corpus_folder):
    complaint = lab("evaluate", "--model", model_folder, "--corpus", corpus_folder, "--split", "test_2099").complaint
    assert "test_2016_tiny, validation" in complaint


# --- presets ---


def test_an_unknown_preset(lab):
    complaint = lab("train", "desktop").complaint
    assert "'desktop'" in complaint
    assert ", ".join(PRESETS) in complaint


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("--epochs", "many", "a whole number"),
        ("--epochs", "0", "--epochs must be 1 or more; got 0"),
        ("--peak-rate", "nan", "finite"),
        ("--dropout", "-0.1", "at least 0 and less than 1"),
        ("--tie", "perhaps", "true or false"),
        ("--schedule", "cosine", "linear, paper"),
        ("--d-model", "30", "30"),
        ("--vocab-size", "100", "520"),
    ],
)
def test_a_field_with_an_invalid_value(lab, corpus_folder, tmp_path, field, value, says):
    options = ["--n-heads", 4, "--corpus", corpus_folder, "--output", tmp_path / "run"]
    complaint = lab("train", "tour", *options, field, value).complaint
    assert says in complaint
    assert field in complaint or field[2:].replace("-", "_") in complaint


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--corpus", "captions", "--split", "none"], "--split"),  # the message contains both values
        (["--corpus", "captions", "--source", "fr"], "--source"),
        (["--corpus", "captions", "--target", "fr"], "--target"),
        (["--d-model", "33", "--n-heads", "1"], "--d-model"),
        (["--device", "cuda:99"], "--device"),
        (["--vocab-size", "100"], "--vocab-size"),
        (["--output", "file"], "--output"),
        (["--output", "file/run"], "--output"),
    ],
)
def test_a_package_error_names_the_option(lab, tmp_path, monkeypatch, options, named):
    """The package knows no command-line options. Its errors name a parameter or a path, which identifies the option."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    command = ["evaluate"] if "--split" in options else ["train", "tour"]
    assert named in lab(*command, *options).complaint


def test_an_error_names_the_option_before_anything_is_trained(lab, tmp_path):
    refused = lab("train", "tour", "--max-tokens", "0", "--output", tmp_path / "run")
    assert refused.complaint.startswith("transformer-lab: --max-tokens ")


# --- models ---


@pytest.fixture
def broken_model(model_folder, tmp_path):
    """Return a copy of the model that a test can damage."""
    return shutil.copytree(model_folder, tmp_path / "model")


def translate_with(lab, model):
    return lab("translate", "--model", model, "Der Hund sieht den Ball.").complaint


def test_a_truncated_checkpoint(lab, broken_model):
    for file in ("weights.safetensors", "tokenizer.json", "config.json"):
        (broken_model / file).write_bytes((broken_model / file).read_bytes()[:-100])
        assert file in translate_with(lab, broken_model)


def test_a_checkpoint_of_another_configuration(lab, broken_model):
    config = json.loads((broken_model / "config.json").read_text(encoding="utf-8"))
    (broken_model / "config.json").write_text(json.dumps(config | {"d_ff": 64}), encoding="utf-8")
    complaint = translate_with(lab, broken_model)
    assert "32" in complaint
    assert "64" in complaint
    (broken_model / "config.json").write_text(json.dumps(config | {"n_layers": 2}), encoding="utf-8")
    assert "layers.1" in translate_with(lab, broken_model)


def test_weights_in_a_pickle(lab, broken_model):
    """A pickle can run any program, so it must not be opened even if it is named like a safe format."""
    pickled = b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00exitq\x01\x85q\x02Rq\x03."
    (broken_model / "weights.safetensors").write_bytes(pickled)
    assert "weights.safetensors" in translate_with(lab, broken_model)


def test_weights_that_do_not_match_the_model(lab, broken_model):
    weights = load_file(broken_model / "weights.safetensors")
    save_file({f"module.{name}": tensor for name, tensor in weights.items()}, broken_model / "weights.safetensors")
    assert "weights.safetensors" in translate_with(lab, broken_model)


def test_a_missing_model(lab, tmp_path):
    assert str(tmp_path / "nothing") in translate_with(lab, tmp_path / "nothing")
    assert str(tmp_path) in translate_with(lab, tmp_path)


# --- runs ---


def test_a_folder_that_holds_a_run_is_not_overwritten(lab, train_tiny, model_folder):
    before = (model_folder / "weights.safetensors").read_bytes()
    complaint = lab(*train_tiny, "--output", model_folder).complaint
    assert "--resume" in complaint
    assert (model_folder / "weights.safetensors").read_bytes() == before


def test_a_run_is_not_resumed_with_another_configuration(lab, train_tiny, model_folder, tmp_path):
    complaint = lab(*train_tiny, "--resume", "--d-ff", 64, "--output", model_folder).complaint
    assert "d_ff was 32, now 64" in complaint
    assert "no training run" in lab(*train_tiny, "--resume", "--output", tmp_path / "nothing").complaint


def test_a_truncated_training_state(lab, train_tiny, broken_model):
    state = broken_model / "checkpoints" / "latest.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    complaint = lab(*train_tiny, "--output", broken_model, "--resume").complaint
    assert str(state) in complaint


# --- paths that are not writable ---


def test_an_output_path_that_is_not_writable(lab, train_tiny, model_folder, corpus_folder, tmp_path):
    """Try a path below a file, which not even root can create, because the tests may run as root."""
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "run"
    assert str(below) in lab(*train_tiny, "--output", below).complaint
    sentence = "Der Hund sieht den Ball."
    assert str(below) in lab("heatmap", sentence, "--model", model_folder, "--out", below / "map.png").complaint
    scored = lab("evaluate", "--model", model_folder, "--corpus", corpus_folder, "--output", below / "file.txt")
    assert scored.status == 1
    assert not scored.stdout  # fails before translating for minutes
    assert scored.stderr.count("\n") == 1


def test_invalid_heatmap_options(lab, model_folder, tmp_path):
    sentence = "Der Hund sieht den Ball."
    assert ".png or .svg" in lab("heatmap", sentence, "--model", model_folder, "--out", tmp_path / "map.pdf").complaint
    for option, value, says in (
        ("--html", "map.png", "--html must end in .html"),
        ("--layer", 9, "--layer must be from -1 to 0 for this model; got 9"),
        ("--head", -3, "--head must be from -2 to 1 for this model; got -3"),
        ("--stack", "middle", "one of cross, encoder, decoder"),
    ):
        complaint = lab("heatmap", sentence, "--model", model_folder, option, value).complaint
        assert says in complaint
        assert option in complaint


# --- exports ---


def test_an_export_with_bad_arguments(lab, model_folder, tmp_path, monkeypatch):
    """A failed export writes nothing and, above all, overwrites nothing."""
    complaint = lab("export", model_folder, "--format", "onnx", "--out", tmp_path / "new").complaint
    assert "--format must be one of ctranslate2, page; got 'onnx'" in complaint
    assert "nothing" in lab("export", tmp_path / "nothing", "--out", tmp_path / "new").complaint
    assert "already exists" in lab("export", model_folder, "--out", model_folder).complaint
    page = lab("export", model_folder, "--format", "page", "--out", tmp_path / "new")
    assert "--output must end in .html" in page.complaint
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    assert "pip install" in lab("export", model_folder, "--out", tmp_path / "new").complaint
    assert list(tmp_path.iterdir()) == []


def test_an_export_below_a_file(lab, model_folder, tmp_path):
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: it is the extra `export`")
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in lab("export", model_folder, "--out", tmp_path / "file" / "new").complaint


# --- interruptions ---


@pytest.fixture
def interrupted(lab, train_tiny, tmp_path, monkeypatch):
    """Return the outcome of pressing Ctrl-C in the second epoch of the run that produced `model_folder`."""
    write = Metrics.write

    def write_and_press_ctrl_c(metrics, **record):
        write(metrics, **record)
        if record["kind"] == "step" and record["epoch"] == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "write", write_and_press_ctrl_c)
        return lab(*train_tiny, "--output", tmp_path / "run")


def test_ctrl_c_suggests_a_command_that_resumes_the_run(lab, interrupted, model_folder, tmp_path):
    assert interrupted.status == 130
    assert "Traceback" not in interrupted.stderr
    told = interrupted.stderr.splitlines()[-1]
    assert told.startswith("transformer-lab: interrupted; ")
    command = shlex.split(told[told.index(": transformer-lab train") + 2 :])
    assert lab(*command[1:]).status == 0
    assert same_weights(tmp_path / "run", model_folder)


def test_ctrl_c_before_the_first_checkpoint(lab, train_tiny, tmp_path, monkeypatch):
    """Without a checkpoint, a suggested command with --resume would be rejected."""
    monkeypatch.setattr("transformer_lab.training.trainer.train_tokenizer", lambda *_, **__: signal.raise_signal(2))
    stopped = lab(*train_tiny, "--output", tmp_path / "run")
    assert stopped.status == 130
    assert stopped.stderr == "transformer-lab: interrupted; nothing was trained yet\n"


def test_a_full_disk_while_saving_loses_nothing(lab, train_tiny, interrupted, model_folder, tmp_path):
    """The last checkpoint is kept; once there is space again, resuming gives the same model as an uninterrupted run."""
    latest = tmp_path / "run" / "checkpoints" / "latest.safetensors"
    before = latest.read_bytes()
    resume = [*train_tiny, "--output", tmp_path / "run", "--resume"]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))  # the maximum file size
    try:
        stopped = lab(*resume)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(latest) in stopped.complaint
    assert latest.read_bytes() == before
    assert not list(latest.parent.glob("*.part"))
    assert lab(*resume).status == 0
    assert same_weights(tmp_path / "run", model_folder)


def same_weights(one, other):
    return (one / "weights.safetensors").read_bytes() == (other / "weights.safetensors").read_bytes()


def test_a_closed_pipe_is_not_an_error(model_folder):
    """`transformer-lab translate < file | head -1` must end without an error message."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "transformer_lab", "translate", "--model", str(model_folder), "Der Hund."]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""


# --- open ---


def test_open_without_the_notebooks(lab, tmp_path, monkeypatch):
    monkeypatch.setattr("transformer_lab.doctor.TOUR_NOTEBOOK", tmp_path / "00_tour.ipynb")
    assert "00_tour.ipynb" in lab("open").complaint


def test_open_without_jupyterlab(lab, monkeypatch, tmp_path):
    monkeypatch.setattr("transformer_lab.my_course.folder_for", lambda notebooks: tmp_path / "my_course")
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", None)
    assert "requirements.txt" in lab("open", "--no-browser").complaint
