"""Bad input causes a one-line error on stderr and exit status 1. No traceback is shown, and no existing file is
lost."""

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
        ("Der Hund.\nمرحبا".encode(), "sentence 2 can't be read by this model"),
        (b"Der Hund.\nDer\0Mann.\n", "sentence 2 has a NUL"),
        (b"Der Hund.\nDer B\xe4r.\n", "sentence 2 is not valid"),
    ],
    ids=["nothing", "a blank line", "a blank line between", "Arabic", "NUL", "not UTF-8"],
)
def test_lines_that_cannot_be_translated(lab, model_folder, stdin, says):
    """The error gives the line number, and no translation is printed before it."""
    assert says in lab("translate", "--model", model_folder, stdin=stdin).complaint


def test_a_byte_order_mark_is_not_translated(lab, model_folder):
    """Some editors write a byte-order mark. It used to change the translation of the first sentence."""
    plain = lab("translate", "--model", model_folder, stdin=b"Der Hund sieht den Ball.\n")
    marked = lab("translate", "--model", model_folder, stdin="Der Hund sieht den Ball.\n".encode("utf-8-sig"))
    assert marked.status == 0
    assert marked.stdout == plain.stdout


NO_SENTENCE = "transformer-lab: no sentence: give one in quotation marks, or lines on stdin\n"
FULL = "transformer-lab: cannot write the output (No space left on device): make room, or send it elsewhere\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("redirected", "status", "says"),
    [
        ("'Der Hund.' >/dev/full", 1, FULL),
        ("'Der Hund.' >&-", 0, ""),
        ("<&-", 1, NO_SENTENCE),
        ("0>/dev/null", 1, NO_SENTENCE),
    ],
)
def test_streams_that_are_full_or_closed(model_folder, redirected, status, says):
    """A cron job or a service may run without stdin or stdout."""
    command = shlex.join([sys.executable, "-m", "transformer_lab", "translate", "--model", str(model_folder)])
    child = subprocess.run(["sh", "-c", f"{command} {redirected}"], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stderr) == (status, says)


# --- corpora ---


def test_an_error_names_the_split_and_the_number_of_a_sentence(lab, model_folder, broken_corpus):
    """The sentence number differs from the line number, because an earlier empty line was skipped."""
    for language in ("de", "en"):
        path = broken_corpus / f"test_2016_tiny.{language}"
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(f"{line}\n" for line in [lines[0], "", "Hund " * 100, *lines[1:]]), encoding="utf-8")
    scored = lab("evaluate", "--model", model_folder, "--corpus", broken_corpus)
    assert scored.complaint == (
        "corpus, test_2016_tiny: sentence 2 has 101 tokens, but this model reads at most 40: split it into shorter "
        "sentences, or train with a larger max_length"
    )


@pytest.fixture
def broken_corpus(corpus_folder, tmp_path):
    """Return a copy of the corpus that a test can damage."""
    return shutil.copytree(corpus_folder, tmp_path / "corpus")


@pytest.mark.parametrize(
    ("files", "damage", "says"),
    [
        ("train.de", lambda text: text.removesuffix(b"\n") + b"\xe4\n", "train.de, line 112: not valid UTF-8"),
        ("val.en", lambda text: text.replace(b"The", b"T\0e", 1), "val.en, line 1: a NUL byte"),
        ("train.en", lambda text: text + b"One more.\n", "train.de has 112 lines but train.en has 113"),
        ("train.*", lambda text: b"", "train.de has no sentences"),
    ],
    ids=["not UTF-8", "NUL", "unequal length", "empty"],
)
def test_a_damaged_corpus(lab, train_tiny, broken_corpus, tmp_path, files, damage, says):
    for path in broken_corpus.glob(files):
        path.write_bytes(damage(path.read_bytes()))
    complaint = lab(*train_tiny, "--corpus", broken_corpus, "--output", tmp_path / "run").complaint
    assert says in complaint.replace(f"{broken_corpus}{os.sep}", "")
    assert not (tmp_path / "run" / "training.json").exists()


def test_a_missing_corpus(lab, train_tiny, tmp_path):
    assert "no train.de" in lab(*train_tiny, "--corpus", tmp_path, "--output", tmp_path / "run").complaint
    assert not (tmp_path / "run" / "training.json").exists()


def test_a_missing_split(lab, model_folder, corpus_folder):
    complaint = lab("evaluate", "--model", model_folder, "--corpus", corpus_folder, "--split", "test_2099").complaint
    assert "test_2016_tiny, validation" in complaint


# --- options ---


SLIPS = {
    "translate Hund --model nowhere": "--model must be an existing folder; got 'nowhere'",
    # a beam of 100,000 used to exhaust memory, which could kill a training run on the same machine
    "translate Hund --beam 0": "--beam must be a whole number from 1 to 1000; got '0'",
    "translate Hund --beam 1001": "--beam must be a whole number from 1 to 1000; got '1001'",
    "translate Hund --alpha nan": "--alpha must be a finite number; got 'nan'",
    "evaluate --corpus nowhere": "--corpus must be captions, multi30k, or an existing folder or table; got 'nowhere'",
    "evaluate --data-dir nowhere": "--data-dir must be an existing folder; got 'nowhere'",
    "evaluate --output .": "--output must be a file; '.' is a folder",
    "evaluate --output file/a.txt": "--output cannot be 'file/a.txt': file is a file, not a folder",
    "heatmap Hund --stack middle": "--stack must be one of cross, encoder, decoder; got 'middle'",
    "heatmap Hund --layer last": "--layer must be a whole number; got 'last'",
    "heatmap Hund --model MODEL --layer 9": "--layer must be from -1 to 0 for this model; got 9",
    "heatmap Hund --model MODEL --head -3": "--head must be from -2 to 1 for this model; got -3",
    "heatmap Hund --output map.pdf": "--output must end in .png or .svg; got 'map.pdf'",
    "heatmap Hund --output file/a.png": "--output cannot be 'file/a.png': file is a file, not a folder",
    "heatmap Hund --html map.png": "--html must end in .html or .htm; got 'map.png'",
    "export --format onnx": "--format must be one of ctranslate2, page; got 'onnx'",
    "export nowhere": "there is no folder nowhere: MODEL must be the folder of a trained model",
    "export --output folder": "--output must be a new folder; folder already exists",
    "export --format page --output page.txt": "--output must end in .html for a page; got 'page.txt'",
    "train desktop": f"unknown preset 'desktop': the presets are {', '.join(PRESETS)}",
    "train tour --epochs many": "--epochs must be a whole number; got 'many'",
    "train tour --epochs 0": "--epochs must be 1 or more; got 0",
    "train tour --peak-rate nan": "--peak-rate must be a finite number; got nan",
    "train tour --dropout -0.1": "--dropout must be at least 0 and less than 1; got -0.1",
    "train tour --tie perhaps": "--tie must be true or false; got 'perhaps'",
    "train tour --tie true --tokenizer spacy": (
        "--tie needs one vocabulary for both languages, but --tokenizer is spacy, which makes two: set --tie to false, "
        "or --tokenizer to bpe"
    ),
    "train tour --schedule cosine": "--schedule must be one of linear, paper; got 'cosine'",
    "train paper --peak-rate 1e-4": (
        "--peak-rate has no effect with --schedule paper: set --learning-rate-scale, or change --schedule"
    ),
    "train tour --target de": "--source and --target must be two different languages; got 'de' twice",
    "train tour --device tpu": "--device must be cpu, cuda, or a numbered GPU such as cuda:1; got 'tpu'",
    "train tour --corpus nowhere": "--corpus must be captions, multi30k, or an existing folder or table; got 'nowhere'",
    "train tour --output file": "--output cannot be 'file': file is a file, not a folder",
    "train tour --output file/run": "--output cannot be 'file/run': file is a file, not a folder",
    "search --trials 0": "--trials must be a whole number, 1 or more; got '0'",
    "search --seeds 0": "--seeds must be a whole number, 1 or more; got '0'",
    "search --workers 0": "--workers must be a whole number from 1 to 64; got '0'",
    "search --workers 1000000": "--workers must be a whole number from 1 to 64; got '1000000'",
    "search --sampler grid": "--sampler must be one of random, tpe; got 'grid'",
    "search --dropout 0.1": "--dropout cannot be given to a search, because the search chooses it: leave it out",
    "search --n-heads 4": "--n-heads cannot be given to a search, because the search chooses it: leave it out",
    "search --validate-every 2": (
        "--validate-every cannot be given to a search, because trials are compared after every epoch: leave it out"
    ),
    "search --schedule paper": "--schedule must be linear in a search, which varies --peak-rate; leave it out",
    "search --preset desktop": f"unknown preset 'desktop': the presets are {', '.join(PRESETS)} (--preset)",
    "search --d-model x": "--d-model must be a whole number; got 'x'",
    "search --corpus nowhere": "--corpus must be captions, multi30k, or an existing folder or table; got 'nowhere'",
    "release": 'Which notebook? For example "transformer-lab release 03", or --all',
    "grade": 'nothing to grade: give files, folders, or zips, such as "transformer-lab grade submissions/"',
    "grade nowhere": "nowhere: No such file or directory: give files, folders, or zips",
    "grade folder --jobs 0": "--jobs must be a whole number, 1 or more; got '0'",
    "grade folder --cluster host": "--cluster must be an address such as tcp://host:8786; got 'host'",
    "grade folder --roster nowhere": "--roster must be an existing file; got 'nowhere'",
    "grade folder --output file": "--output cannot be 'file': file is a file, not a folder",
    "grade folder --yes": "--yes needs --only, which asks before it keeps changes: leave out --yes",
    "grade --resume --output new": "there is no gradebook in new: grade without --resume first",
    "grade --only causal_mask --output new": "there is no gradebook in new: grade without --only first",
    "grade --only causal_mask --roster file": (
        "--roster cannot be combined with --only: to grade everything, leave out --only"
    ),
}


@pytest.mark.parametrize("arguments", SLIPS)
def test_a_slip_is_reported_before_torch_is_imported(lab, model_folder, monkeypatch, tmp_path, arguments):
    """Importing torch takes seconds, but a typo should be reported at once, before anything has been written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for module in ("torch", "transformer_lab.data", "transformer_lab.decoding", "transformer_lab.training"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it raises ImportError
    outcome = lab(*(model_folder if word == "MODEL" else word for word in arguments.split()))
    assert (outcome.complaint, outcome.stderr.count("\n")) == (SLIPS[arguments], 1)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--corpus", "captions", "--split", "none"], "--split"),  # the message contains both values
        (["--corpus", "captions", "--source", "fr"], "--source"),
        (["--corpus", "captions", "--target", "fr"], "--target"),
        (["--d-model", "33", "--n-heads", "1"], "--d-model"),
        (["--d-model", "30", "--n-heads", "4"], "--d-model 30 is not divisible by --n-heads 4"),
        (["--device", "cuda:99"], "--device"),
        (["--vocab-size", "100"], "give 520 or more (--vocab-size)"),
    ],
)
def test_a_package_error_names_the_option(lab, tmp_path, monkeypatch, options, named):
    """The package knows nothing about options. Its errors name a parameter or path, and the command adds the option."""
    monkeypatch.chdir(tmp_path)
    command = ["evaluate"] if "--split" in options else ["train", "tour"]
    assert named in lab(*command, *options).complaint


# --- models ---


@pytest.fixture
def broken_model(model_folder, tmp_path):
    """Return a copy of the model that a test can damage."""
    return shutil.copytree(model_folder, tmp_path / "model")


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def rename_weights(path):
    save_file({f"module.{name}": tensor for name, tensor in load_file(path).items()}, path)


def put_a_pickle(path):
    """A pickle can run any program, so it must not be opened even if it is named like a safe format."""
    path.write_bytes(b"\x80\x02cos\nsystem\nq\x00X\x04\x00\x00\x00exitq\x01\x85q\x02Rq\x03.")


def change(**fields):
    def damage(path):
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")

    return damage


@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        ("weights.safetensors", truncate, ["weights.safetensors"]),
        ("tokenizer.json", truncate, ["tokenizer.json"]),
        ("config.json", truncate, ["config.json"]),
        ("config.json", change(d_ff=64), ["32", "64"]),
        ("config.json", change(n_layers=2), ["layers.1"]),
        ("weights.safetensors", put_a_pickle, ["weights.safetensors"]),
        ("weights.safetensors", rename_weights, ["weights.safetensors"]),
    ],
)
def test_a_damaged_model(lab, broken_model, file, damage, says):
    damage(broken_model / file)
    complaint = lab("translate", "--model", broken_model, "Der Hund sieht den Ball.").complaint
    assert all(each in complaint for each in says)


def test_a_folder_without_a_model(lab, tmp_path):
    assert str(tmp_path) in lab("translate", "--model", tmp_path, "Der Hund sieht den Ball.").complaint


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


# --- exports ---


def test_an_export_without_its_package(lab, model_folder, tmp_path, monkeypatch):
    """A failed export writes nothing."""
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
    """The last checkpoint is kept. Once there is space again, resuming gives the same model as an uninterrupted run."""
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
