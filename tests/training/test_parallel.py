import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest
import torch

from transformer_lab.decoding.translator import Translator
from transformer_lab.errors import InputError
from transformer_lab.training import PRESETS, read_metrics, train
from transformer_lab.training.distributed import choose_device, join_workers


@pytest.mark.parametrize(
    ("name", "device"), [(None, "cuda:3"), ("cuda", "cuda:3"), ("cuda:1", "cuda:1"), ("cpu", "cpu")]
)
def test_each_process_has_a_gpu_of_its_own(monkeypatch, name, device):
    """If every process put its model on the first GPU, they would share that GPU's memory and leave the others idle."""
    chosen = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    assert choose_device(name) == torch.device(device)
    assert [str(one) for one in chosen] == [device] * (device != "cpu")


@pytest.mark.parametrize("name", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_one_line(name, tmp_path):
    """The device is checked before a folder is created, so that no half-finished run blocks the next one."""
    message = f"^this torch cannot compute on {name} here: choose another device, such as cpu$"
    with pytest.raises(InputError, match=message):
        train("tour", tmp_path / "run", device=name)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["meta", "mps"])
def test_a_device_without_all_that_is_computed_is_refused(name):
    """Apple's GPUs have no float64, so the first translation after an epoch of training would end in a traceback."""
    with pytest.raises(InputError, match=f"^this course computes on cpu or cuda, not on {name}: choose one of them$"):
        choose_device(name)


def test_several_processes_without_torchrun_are_one_line(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="WORLD_SIZE is 2, but RANK is not set: use torchrun, or unset WORLD_SIZE"):
        join_workers(torch.device("cpu"))


def test_two_processes_train_like_one(tiny_preset, tmp_path):
    """Averaging gradients instead of weighting them by tokens, or a different global batch, would change the curve.

    BPE dropout that differs between processes would change it as well, because they would build different batches.
    """
    spelling = {"bpe_dropout": 0.1, "consistency": 5.0}
    preset = replace(tiny_preset, name="tour", dropout=0.0, precision="float32", epochs=2, accumulation=2, **spelling)
    options = [
        f"--{field.name.replace('_', '-')}={getattr(preset, field.name)}"
        for field in fields(preset)
        if getattr(preset, field.name) != getattr(PRESETS["tour"], field.name)
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "transformer_lab.cli", "train", "tour", "--output", str(tmp_path / "two"), *options]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert len(child.stdout.splitlines()) == 1  # only one process prints
    train(preset, tmp_path / "one")
    one, two = (
        [record for record in read_metrics(tmp_path / name / "metrics.jsonl") if record["kind"] == "step"]
        for name in ("one", "two")
    )
    assert [record["step"] for record in two] == [record["step"] for record in one]
    # float32 sums in a different order; the difference grows from step to step
    assert [record["loss"] for record in two] == [pytest.approx(record["loss"], abs=1e-4) for record in one]
    assert json.loads((tmp_path / "two" / "training.json").read_text())["environment"]["processes"] == 2
    assert Translator.load(tmp_path / "two").translate(["Der Hund sieht den Ball."])
