"""Training runs that take about a second: they learn, survive interruptions, and report what is wrong."""

import ctypes
import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch

from transformer_lab.data import load_corpus
from transformer_lab.decoding.translator import Translator
from transformer_lab.electives.search import is_out_of_memory
from transformer_lab.errors import InputError
from transformer_lab.model import Transformer
from transformer_lab.presets import PRESETS
from transformer_lab.training import read_metrics, records, train
from transformer_lab.training.checkpoints import load_tensors, save_tensors
from transformer_lab.training.distributed import WorkerGroup
from transformer_lab.training.trainer import TrainingRun


@pytest.fixture(scope="session")
def finished_run(tiny_preset, tmp_path_factory):
    """Return the folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(tiny_preset, folder)
    return folder


def metrics_of(folder, kind):
    return [record for record in read_metrics(folder / "metrics.jsonl") if record["kind"] == kind]


def steps_of(folder):
    return [(record["step"], record["loss"]) for record in metrics_of(folder, "step")]


def digest(path):
    """Return a hash for comparing files. Comparing the bytes directly would make pytest's diff take hours."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def assert_same_run(folder, finished_run):
    """Assert that the weights are identical bit for bit and that the record has no gaps or repetitions."""
    assert digest(folder / "weights.safetensors") == digest(finished_run / "weights.safetensors")
    assert steps_of(folder) == steps_of(finished_run)


def test_a_run_learns_and_leaves_a_model_that_translates(finished_run, tiny_preset):
    """Later commands work with a run's folder. The record in it must suffice to repeat the run."""
    losses = [loss for _, loss in steps_of(finished_run)]
    assert losses[-1] < losses[0] - 1.5  # in nats; it starts near 6, the logarithm of the vocabulary size
    assert Translator.load(finished_run).translate(["Der Hund sieht den Ball."])[0].startswith("The")
    record = json.loads((finished_run / "training.json").read_text(encoding="utf-8"))
    assert record["configuration"]["preset"] == json.loads(json.dumps(asdict(tiny_preset)))
    assert record["configuration"]["train_pairs"] == 336
    assert record["environment"]["versions"]["torch"] == torch.__version__
    result = record["result"]
    assert result["validation_bleu"] == max(result["validation_bleu_of_candidates"].values())
    assert result["validation_bleu"] > 20  # about 50; knowing only the most common sentence gives 10


def test_metrics_are_json_lines_that_a_plot_can_rely_on(finished_run, tiny_preset):
    lines = (finished_run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps, epochs = metrics_of(finished_run, "step"), metrics_of(finished_run, "epoch")
    assert len(lines) == len(steps) + len(epochs) + 1
    assert json.loads(lines[-1])["kind"] == "end"
    assert [record["step"] for record in steps] == list(range(1, len(steps) + 1))
    assert set(steps[0]) == {
        "kind", "step", "epoch", "loss", "rate", "gradient_norm", "tokens_per_second", "seconds",
    }  # fmt: skip
    assert [record["epoch"] for record in epochs] == list(range(1, tiny_preset.epochs + 1))
    assert set(epochs[0]) == {
        "kind", "epoch", "step", "train_loss", "validation_loss", "validation_perplexity", "validation_bleu", "seconds",
        "tokens_per_second", "peak_memory_mib",
    }  # fmt: skip
    assert steps[-1]["rate"] == 0.0  # the linear schedule ends at zero for any number of batches
    assert max(record["rate"] for record in steps) == tiny_preset.peak_rate


def test_fields_that_differ_from_the_named_preset_are_recorded(tiny_preset):
    preset = replace(PRESETS["tour"], **{**asdict(tiny_preset), "name": "tour", "epochs": 2})
    overridden = records.environment(preset, torch.device("cpu"), torch.float32, 1)["overridden"]
    assert overridden["epochs"] == 2
    assert "clip_norm" not in overridden


def test_the_tokenizer_has_seen_the_training_pairs_alone(finished_run):
    """Including validation or test sentences would inflate the scores. Only those sentences contain the letter ß."""
    assert "ß" not in (finished_run / "tokenizer.json").read_text(encoding="utf-8")


CHILD = """
import json, os, signal, sys
from transformer_lab.training import trainer
from transformer_lab.presets import Preset

preset = Preset(**json.loads(sys.argv[1]))
where = sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def on_log(record):
    if where == "in the middle of epoch 2" and record["kind"] == "step" and record["epoch"] == 2:
        die()

if where == "between the two files of epoch 2":
    save = trainer.save_training_state
    trainer.save_training_state = lambda path, model, optimizer, facts: (
        die() if facts["epoch"] == 2 else save(path, model, optimizer, facts)
    )
trainer.train(preset, sys.argv[2], on_log=on_log)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no kill -9")
@pytest.mark.parametrize("where", ["in the middle of epoch 2", "between the two files of epoch 2"])
def test_a_killed_run_that_is_resumed_equals_the_uninterrupted(where, tiny_preset, finished_run, tmp_path):
    """If Adam's moments, the step, the order, or the random states were not restored, the weights would differ."""
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", CHILD, json.dumps(asdict(tiny_preset)), str(folder), where]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert load_tensors(folder / "checkpoints" / "latest.safetensors")[1]["epoch"] == 1
    train(tiny_preset, folder, resume=True)
    assert_same_run(folder, finished_run)


def interrupt_at(step):
    """Return an `on_log` that interrupts the run, as Ctrl-C does, when it records this step."""

    def interrupt(record):
        if record["kind"] == "step" and record["step"] == step:
            raise KeyboardInterrupt

    return interrupt


def test_an_interrupt_before_the_first_checkpoint_loses_no_more_than_that(tiny_preset, finished_run, tmp_path):
    """After Ctrl-C in the first epoch, the folder must be accepted but not treated as if it had a checkpoint."""
    with pytest.raises(KeyboardInterrupt):
        train(tiny_preset, tmp_path / "run", on_log=interrupt_at(2))
    with open(tmp_path / "run" / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"kind": "st')  # a truncated line
    (tmp_path / "run" / "checkpoints").rmdir()  # it is empty, and some programs don't copy empty folders
    train(tiny_preset, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", finished_run)


def test_a_finished_run_can_be_resumed_to_no_effect(tiny_preset, finished_run, tmp_path):
    """A cluster may restart a finished job. The job must not fail or continue training."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    (folder / "weights.safetensors").unlink()
    train(tiny_preset, folder, resume=True)
    assert_same_run(folder, finished_run)


def test_a_finished_run_without_its_checkpoints_stays_as_it_is(tiny_preset, finished_run, tmp_path):
    """Checkpoints are large and often deleted. A finished run must not train again and overwrite its results."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    for gone in (folder / "checkpoints" / "latest.safetensors", folder / "checkpoints"):
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        assert train(tiny_preset, folder, resume=True) == json.loads(before["training.json"])
        with pytest.raises(InputError, match="epochs was 3, now 9"):
            train(replace(tiny_preset, epochs=9), folder, resume=True)
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    (folder / "weights.safetensors").unlink()
    with pytest.raises(InputError, match="without weights and checkpoints: train in another folder"):
        train(tiny_preset, folder, resume=True)
    assert not (folder / "checkpoints").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "training.json is damaged (no object)"),
        ("{}", "training.json is damaged (no configuration)"),
        ('{"configuration": {"preset": null}}', "training.json is damaged (no configuration)"),
        ("[" * 100_000, "training.json is damaged (maximum recursion depth"),
    ],
)
def test_a_damaged_record_is_one_line(tiny_preset, finished_run, tmp_path, text, says):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    (folder / "training.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(says)):
        train(tiny_preset, folder, resume=True)


@pytest.mark.parametrize("facts", [{}, [], {"epoch": "1"}, None])
def test_a_checkpoint_that_does_not_say_how_far_the_run_came(tiny_preset, finished_run, tmp_path, facts):
    """If such a checkpoint were accepted, the run would start from trained weights but count its epochs from zero."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    tensors, known = load_tensors(folder / "checkpoints" / "latest.safetensors")
    save_tensors(folder / "checkpoints" / "latest.safetensors", tensors, known | facts if facts else facts)
    with pytest.raises(InputError, match="does not say how far the run got"):
        train(tiny_preset, folder, resume=True)


@pytest.mark.parametrize("line", ["5", "[]", '{"step": "x"}', "\udcff"])
def test_metrics_end_at_the_first_damaged_line(finished_run, tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    whole = (finished_run / "metrics.jsonl").read_text(encoding="utf-8")
    path.write_text(f"{whole}{line}\n{whole}", encoding="utf-8", errors="surrogateescape")
    assert read_metrics(path) == read_metrics(finished_run / "metrics.jsonl")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "metrics.jsonl"])
def test_files_of_something_else_are_not_replaced(tiny_preset, tmp_path, name):
    """`--output .` could point to a folder with other work in it."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"already holds a {name} from something else: give a new folder with"):
        train(tiny_preset, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_a_model_too_large_for_the_memory_is_one_line(tiny_preset, tmp_path):
    def too_large(_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.\nmore")

    message = r"^the model does not fit into memory \(.* 9 bytes\.\): make it smaller$"
    with pytest.raises(InputError, match=message) as error:
        train(tiny_preset, tmp_path / "run", build_model=too_large)
    assert is_out_of_memory(error.value)  # a search continues after such a trial

    def broken(_):
        raise RuntimeError("mat1 and mat2")

    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        train(tiny_preset, tmp_path / "run", build_model=broken)


def test_a_run_does_not_go_on_with_other_validation_pairs(tiny_preset, finished_run, tiny_corpus, tmp_path):
    """Validation pairs decide which weights are kept. If they changed, epochs could not be compared with each other."""
    corpus = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    lines = (corpus / "val.en").read_text(encoding="utf-8").splitlines(keepends=True)
    (corpus / "val.en").write_text("".join(reversed(lines)), encoding="utf-8")
    folder = shutil.copytree(finished_run, tmp_path / "run")
    record = records.read_json(folder / "training.json")
    moved = replace(tiny_preset, corpus=str(corpus))
    record["configuration"]["preset"]["corpus"] = moved.corpus
    records.write_json(folder / "training.json", record)
    with pytest.raises(InputError, match=r"another configuration \(validation_sha256 was \w+, now \w+\): give"):
        train(moved, folder, resume=True)
    del record["configuration"]["validation_sha256"]  # a run from before this was recorded
    records.write_json(folder / "training.json", record)
    train(moved, folder, resume=True)


def test_a_run_that_ends_in_its_warm_up_says_so(tiny_preset, tmp_path, capsys):
    """The `paper` preset on 29,000 pairs is such a run: its learning rate never reaches the peak."""
    schedule = {"schedule": "paper", "warmup_steps": 4000, "epochs": 1}
    train(replace(tiny_preset, **schedule), tmp_path / "run")
    updates = steps_of(tmp_path / "run")[-1][0]
    said = f"the run ends after {updates} updates, during its warm-up of 4,000: use more epochs or fewer warmup_steps"
    assert said in capsys.readouterr().err
    train(replace(tiny_preset, **schedule | {"warmup_steps": updates}), tmp_path / "enough")
    assert "warm-up" not in capsys.readouterr().err


def test_resuming_with_another_configuration_names_what_differs(tiny_preset, finished_run):
    """A run that used two configurations must not be recorded as having used one."""
    other = replace(tiny_preset, epochs=7, dropout=0.3)
    with pytest.raises(InputError, match=r"dropout was 0\.1, now 0\.3; epochs was 3, now 7"):
        train(other, finished_run, resume=True)
    with pytest.raises(InputError, match="source was de, now en; target was en, now de"):
        train(tiny_preset, finished_run, resume=True, source="en", target="de")


def test_a_wrong_folder_is_refused_before_the_corpus_is_loaded(tiny_preset, finished_run, tmp_path):
    """Loading the corpus may require a download. A mistyped folder must be reported before that, not minutes later."""
    nowhere = replace(tiny_preset, corpus=str(tmp_path / "no corpus"))
    before = digest(finished_run / "weights.safetensors")
    with pytest.raises(InputError, match=r"already holds a training run .*--resume.*--output"):
        train(nowhere, finished_run)
    assert digest(finished_run / "weights.safetensors") == before
    with pytest.raises(InputError, match="holds no training run to resume"):
        train(nowhere, tmp_path / "nothing", resume=True)
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/run \(Not a directory\)"):
        train(nowhere, tmp_path / "file" / "run")


def test_only_one_process_trains_in_a_folder(tiny_preset, finished_run, tmp_path):
    """Two processes would delete each other's checkpoints."""
    refused = []

    def train_again(record):
        if record["kind"] == "step" and record["step"] in (1, 30):
            for resume in (False, True):
                with pytest.raises(InputError, match="run is in use by another training process: wait for it, or stop"):
                    train(tiny_preset, tmp_path / "run", resume=resume)
                refused.append(resume)

    train(tiny_preset, tmp_path / "run", on_log=train_again)
    assert refused == [False, True] * 2
    assert_same_run(tmp_path / "run", finished_run)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {path.name for path in finished_run.iterdir()}
    assert not list(finished_run.glob("*.lock"))


class SoftCapped(Transformer):
    """A model whose logits don't come straight from its output layer."""

    def decode(self, target, memory, source_mask):
        return super().decode(target, memory, source_mask).tanh()


def test_what_a_model_does_to_its_logits_is_trained_with(tiny_preset, tmp_path, capsys):
    """The faster copy of the model would ignore the cap, and the loss would fall below that of the model itself."""
    for fast in (False, True):
        preset = replace(tiny_preset, epochs=1, fast=fast)
        train(preset, tmp_path / str(fast), build_model=SoftCapped)
        assert ("the model trains more slowly" in capsys.readouterr().err) == fast
    assert steps_of(tmp_path / "True") == steps_of(tmp_path / "False")


class WithSavedTable(Transformer):
    """A model written in a common way: the table of positions is a buffer in the state dict."""

    def __init__(self, config):
        super().__init__(config)
        self.positional_encoding.register_buffer("table", torch.zeros(3, 3))


def test_a_readers_model_trains_and_is_found_again(tiny_preset, tmp_path):
    """The package's model must load the reader's weights, whether or not they include the table of positions."""
    train(replace(tiny_preset, epochs=2), tmp_path / "run", build_model=WithSavedTable)
    theirs = Translator.load(tmp_path / "run", WithSavedTable)
    assert type(theirs.model) is WithSavedTable
    sentences = ["Der Hund sieht den Ball."]
    assert theirs.translate(sentences) == Translator.load(tmp_path / "run").translate(sentences)


class Diverging(Transformer):
    """A model that returns NaN starting with its 30th training batch."""

    calls = 0

    def encode(self, source):
        memory, source_mask = super().encode(source)
        self.calls += self.training and len(source) > 1  # the check of the output layer has one sentence
        return memory * (float("nan") if self.calls >= 30 else 1.0), source_mask


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_last_good_checkpoint(
    tiny_preset, finished_run, tmp_path
):
    """The message gives the step and the pairs, which help find the cause. Saving NaNs would make the run worthless."""
    folder = tmp_path / "run"
    message = (
        r"^the loss is nan at step 30 \(epoch 2\), in the batch with the training pairs \d+, .*: "
        r"train in a new folder with a lower `peak_rate`, or look at these pairs\Z"
    )
    with pytest.raises(InputError, match=message):
        train(tiny_preset, folder, build_model=Diverging)
    with pytest.raises(InputError, match="with a lower `learning_rate_scale`, or look"):
        train(replace(tiny_preset, schedule="paper"), tmp_path / "of the paper", build_model=Diverging)
    assert [step for step, _ in steps_of(folder)] == list(range(1, 30))
    train(tiny_preset, folder, resume=True)
    assert_same_run(folder, finished_run)


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(tiny_preset, finished_run, tmp_path):
    """The run must stop with a one-line message and be able to continue once there is space again."""
    resource = pytest.importorskip("resource", reason="this system cannot limit the size of files")
    folder = tmp_path / "run"
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_disk(record):
        if record["epoch"] == 2:
            limit = 30_000  # less than the weights, more than the log
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))

    try:
        with pytest.raises(InputError, match=r"^cannot write .*epoch_002\.safetensors \(File too large.*\Z"):
            train(tiny_preset, folder, on_log=fill_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    files = {path.name for path in (folder / "checkpoints").iterdir()}
    assert files == {"latest.safetensors", "epoch_001.safetensors"}  # no partial file is left
    train(tiny_preset, folder, resume=True)
    assert_same_run(folder, finished_run)


def test_a_refused_run_leaves_nothing_and_long_pairs_are_left_out(tiny_preset, tmp_path, capsys):
    """The model would fail on long pairs in the middle of an epoch. A corrected command can use the same folder."""
    for change, says in (
        ({"max_length": 2}, "none of the 336 training pairs has 2 tokens or fewer on both sides: raise max_length"),
        ({"max_tokens": 5}, "tokens, but a batch holds only 5: raise max_tokens"),
        ({"n_heads": 3}, "^`d_model` 64 is not divisible by `n_heads` 3$"),
    ):
        with pytest.raises(InputError, match=says):
            train(replace(tiny_preset, **change), tmp_path)
    result = train(replace(tiny_preset, max_length=10, epochs=1), tmp_path)["result"]
    assert result["left_out_training_pairs"] == 114  # the pairs with "am frühen Morgen"
    assert 0 < result["left_out_validation_pairs"] < 60
    assert f"{result['left_out_validation_pairs']} of " in capsys.readouterr().err


@pytest.fixture(scope="session")
def respelling_preset(tiny_preset):
    """Return a preset with the two options that use random numbers, which a resumed run must reproduce."""
    return replace(tiny_preset, consistency=5.0, bpe_dropout=0.2, epochs=2, accumulation=2)


@pytest.mark.parametrize("fast", [True, False])
def test_consistency_and_bpe_dropout_survive_an_interruption_bit_for_bit(fast, respelling_preset, tmp_path):
    """BPE dropout that used the library's own generator, or counted calls, would not be the same after resuming."""
    preset = replace(respelling_preset, fast=fast)
    train(preset, tmp_path / "whole")
    steps, epochs = steps_of(tmp_path / "whole"), metrics_of(tmp_path / "whole", "epoch")
    with pytest.raises(KeyboardInterrupt):
        train(preset, tmp_path / "cut", on_log=interrupt_at(epochs[0]["step"] + 1))  # the first step of epoch 2
    train(preset, tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    assert steps[-1][1] < steps[0][1] - 0.5  # the loss falls, too


def run_without_training(preset, folder):
    """Return a run that is set up but has not started its first epoch."""
    corpus = load_corpus(preset.corpus)
    (folder / "checkpoints").mkdir(parents=True)
    return TrainingRun(preset, corpus, folder, False, Transformer, None, torch.device("cpu"), WorkerGroup())


@pytest.mark.parametrize("accumulation", [1, 2])
def test_steps_that_are_read_late_are_recorded_as_if_at_once(accumulation, tiny_preset, tmp_path):
    """On a GPU, a step's result is read while the next step runs. No step may be lost, repeated, or counted in another
    epoch."""
    preset = replace(tiny_preset, epochs=2, accumulation=accumulation)
    epochs = {}
    for unread in (0, 1, 3):
        run = run_without_training(preset, tmp_path / str(unread))
        run.unread_steps = unread
        run.train_epoch(1)
        run.train_epoch(2)
        epochs[unread] = [record["train_loss"] for record in metrics_of(run.output, "epoch")]
        assert steps_of(run.output) == steps_of(tmp_path / "0")
        assert digest(run.weights_of_epoch(2)) == digest(tmp_path / "0" / "checkpoints" / "epoch_002.safetensors")
    assert epochs[1] == epochs[3] == epochs[0]
    assert len(epochs[0]) == 2


def test_a_loss_that_is_not_finite_is_named_by_its_own_step_when_it_is_read_late(tiny_preset, tmp_path):
    run = run_without_training(tiny_preset, tmp_path / "run")
    run.unread_steps = 1
    with torch.no_grad():
        run.model.output.bias.fill_(float("nan"))
        run.fast.sync_weights()
    before = [parameter.detach().clone() for parameter in run.model.parameters()]
    with pytest.raises(InputError, match=r"the loss is nan at step 1 \(epoch 1\), "):
        run.train_epoch(1)
    assert run.progress.step == 2  # the step that was being computed
    torch.testing.assert_close(before, list(run.model.parameters()), rtol=0, atol=0, equal_nan=True)
    assert not steps_of(run.output)


def test_only_training_pairs_are_tokenized_anew_in_each_epoch(respelling_preset, tmp_path):
    """If validation or test sentences were retokenized, the scores would be for a different task."""
    run = run_without_training(respelling_preset, tmp_path / "both")
    sources, targets = run.train_pairs.sources, run.train_pairs.targets
    first, second = run.encode_epoch(1), run.encode_epoch(2)
    assert run.encode_epoch(1) == first
    for epoch in (first, second):
        for spelled, usual in zip(epoch, (sources, targets), strict=True):
            assert sum(one != other for one, other in zip(spelled, usual, strict=True)) / len(usual) > 0.3
            assert [run.tokenizer.decode(ids) for ids in spelled] == [run.tokenizer.decode(ids) for ids in usual]
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert run.train_pairs.sources is sources  # epochs do not build on each other
    validation = run.validation_pairs
    assert validation.sources == run.tokenizer.encode_sources([source for source, _ in validation.pairs])

    run.preset = replace(respelling_preset, bpe_dropout_on="source")
    assert run.encode_epoch(1) == (first[0], targets)
    run.preset = replace(respelling_preset, bpe_dropout_on="target")
    assert run.encode_epoch(1) == (sources, first[1])
    run.preset = replace(respelling_preset, bpe_dropout=0.0)
    assert run.encode_epoch(1) == (sources, targets)


def test_pairs_whose_new_tokens_would_be_too_long_keep_the_old_ones(respelling_preset, tmp_path):
    """When split into characters, most sentences exceed the model's limit. They must be kept with their old tokens."""
    run = run_without_training(replace(respelling_preset, bpe_dropout=1.0, max_length=30), tmp_path / "run")
    spelled = list(zip(*run.encode_epoch(1), strict=True))
    usual = list(zip(run.train_pairs.sources, run.train_pairs.targets, strict=True))
    in_characters = [(len(source) + 2, len(target) + 3) for source, target in run.train_pairs.pairs]  # space, bos, eos
    assert {max(lengths) <= 30 for lengths in in_characters} == {True, False}
    for new, old, lengths in zip(spelled, usual, in_characters, strict=True):
        assert (len(new[0]), len(new[1])) == (lengths if max(lengths) <= 30 else (len(old[0]), len(old[1])))


@pytest.fixture(scope="session")
def run_on_both_directions(respelling_preset, tmp_path_factory):
    """Return the preset and the folder of a run whose first epoch has both directions."""
    preset = replace(respelling_preset, both_directions=1, epochs=3, accumulation=1)
    folder = tmp_path_factory.mktemp("runs") / "both"
    train(preset, folder)
    return preset, folder


def test_the_first_epochs_have_each_pair_in_both_directions(run_on_both_directions, tmp_path):
    preset, _ = run_on_both_directions
    run = run_without_training(replace(preset, bpe_dropout=0.0), tmp_path / "run")
    sources, targets = run.encode_epoch(1)
    assert len(sources) == 2 * len(run.train_pairs.pairs)
    assert run.encode_epoch(2) == (run.train_pairs.sources, run.train_pairs.targets)
    (german, english), half = run.train_pairs.pairs[7], len(sources) // 2
    read, written = run.tokenizer.encode_sources, run.tokenizer.encode_targets
    assert [sources[7], targets[7]] == [*read([german]), *written([english])]
    assert [sources[half + 7], targets[half + 7]] == [*read([english]), *written([german])]


def test_the_learning_rate_falls_to_zero_twice(run_on_both_directions):
    """The second time, the weights to be averaged are only those of the epochs that translate in one direction."""
    _, folder = run_on_both_directions
    rates = [
        [record["rate"] for record in metrics_of(folder, "step") if record["epoch"] == epoch] for epoch in (1, 2, 3)
    ]
    assert len(rates[0]) == pytest.approx(2 * len(rates[1]), abs=2)
    assert rates[0][-1] == rates[2][-1] == 0.0
    assert min(rates[1]) > 0.0
    assert max(rates[0]) == pytest.approx(max(rates[1]))
    result = json.loads((folder / "training.json").read_text(encoding="utf-8"))["result"]
    assert "average of epochs 2 to 3" in result["validation_bleu_of_candidates"]


def test_consistency_training_starts_after_both_directions(run_on_both_directions, tmp_path):
    preset, folder = run_on_both_directions
    first_losses = dict(steps_of(folder))
    run = run_without_training(replace(preset, consistency=0.0), tmp_path / "run")
    run.train_epoch(1)
    assert run.progress.step > 5
    assert steps_of(run.output) == list(first_losses.items())[: run.progress.step]


def test_a_run_on_both_directions_survives_an_interruption_bit_for_bit(run_on_both_directions, tmp_path):
    """The learning rate of the second half depends on how many updates the first half had."""
    preset, folder = run_on_both_directions
    epochs = metrics_of(folder, "epoch")
    with pytest.raises(KeyboardInterrupt):
        train(preset, tmp_path / "cut", on_log=interrupt_at(epochs[1]["step"] + 1))  # the first step of epoch 3
    train(preset, tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "cut", folder)


def test_a_checkpoint_from_before_there_were_both_directions_can_be_resumed(tiny_preset, finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    tensors, facts = load_tensors(folder / "checkpoints" / "latest.safetensors")
    del facts["earlier_steps"]
    save_tensors(folder / "checkpoints" / "latest.safetensors", tensors, facts)
    train(tiny_preset, folder, resume=True)
    assert_same_run(folder, finished_run)


def test_a_run_from_before_a_field_existed_can_be_resumed(tiny_preset, finished_run, tmp_path):
    """The run was trained with the new field's default. Only a different value changes the configuration."""
    folder = shutil.copytree(finished_run, tmp_path / "run")
    record = records.read_json(folder / "training.json")
    del record["configuration"]["preset"]["consistency"]
    records.write_json(folder / "training.json", record)
    train(tiny_preset, folder, resume=True)
    with pytest.raises(InputError, match=r"\(consistency was 0\.0, now 2\.0\)"):
        train(replace(tiny_preset, consistency=2.0), folder, resume=True)


BARE_SERVER = """
import json, sys
for name in ("spacy", "torchtext", "pooch", "platformdirs", "matplotlib", "seaborn", "pandas", "ipywidgets", "psutil"):
    sys.modules[name] = None  # an import of it fails
from transformer_lab.training import Preset, train
train(Preset(**json.loads(sys.argv[1])), sys.argv[2])
"""


def test_a_bare_server_can_train(tiny_preset, tmp_path):
    """A GPU server has torch, tokenizers, sacrebleu, safetensors, and tqdm, but not the packages for notebooks."""
    preset = json.dumps(asdict(tiny_preset) | {"epochs": 1})
    command = [sys.executable, "-c", BARE_SERVER, preset, str(tmp_path / "run")]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert "epoch 1: loss" in child.stderr
    assert child.stdout == ""


def test_the_commit_of_another_projects_repository_is_not_recorded(monkeypatch, tmp_path):
    """The package may be installed in an environment inside someone else's repository."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=theirs"], check=True)
    installed = tmp_path / "lib" / "transformer_lab" / "training" / "records.py"
    installed.parent.mkdir(parents=True)
    monkeypatch.setattr(records, "__file__", str(installed))
    assert records.commit() is None
    monkeypatch.setattr(records, "__file__", str(tmp_path / "transformer_lab" / "training" / "records.py"))
    assert len(records.commit()) >= 40


def test_a_model_that_cannot_be_compiled_is_one_line(tiny_preset, tmp_path, monkeypatch):
    def no_compiler(graph, inputs):
        raise RuntimeError("No working C++ compiler found")

    compiling = torch.nn.Module.compile
    monkeypatch.setattr(Transformer, "compile", lambda model, **options: compiling(model, backend=no_compiler))
    with pytest.raises(InputError, match=r"^cannot compile the model .*No working C\+\+.*: set `compiled` to false$"):
        train(replace(tiny_preset, fast=False, compiled=True), tmp_path)


def test_an_error_of_the_model_itself_is_not_called_one_of_compiling(tiny_preset, tmp_path):
    class Broken(Transformer):
        def forward(self, source, target):
            raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match=r"^shapes do not fit$"):
        train(replace(tiny_preset, fast=False), tmp_path, build_model=Broken)


def test_an_update_reuses_the_memory_of_the_one_before():
    """A block of memory from the system costs a page fault per page. At the end, the system gets all blocks back."""
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("this C library has no mallopt")
    code = """
import ctypes, resource, torch
from transformer_lab.training.trainer import reusing_freed_memory
def update():
    blocks = [torch.ones(mib * 2**18) for mib in (30, 10, 20)]
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    update()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20
update()
plain = faults()
ctypes.CDLL(None).malloc_trim(0)  # glibc sometimes keeps a block by chance
start = resident()
with reusing_freed_memory():
    for _ in range(3):  # until the blocks have their places
        update()
    reused, inside = faults(), resident()
print(plain, reused, inside - start, resident() - start)
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plain, reused, kept, left = map(int, child.stdout.split())
    assert plain > 10_000
    assert reused < plain / 10
    assert kept > 50 > left
