"""When a notebook trains in another process, the run is the same. It can pause and stop, and it reports its errors."""

from dataclasses import replace

import psutil
import pytest

from transformer_lab.errors import InputError
from transformer_lab.training import read_metrics, train, train_in_own_process


def test_the_run_is_the_one_that_train_makes(tiny_preset, tmp_path):
    """A different seed, a different number of threads, or a lost preset field would show in the losses."""
    preset, records = replace(tiny_preset, epochs=1, average=1), []
    result = train_in_own_process(preset, tmp_path / "beside", records.append)
    here = train(preset, tmp_path / "here")
    assert records == read_metrics(tmp_path / "beside" / "metrics.jsonl")
    losses = [[one["loss"] for one in read_metrics(tmp_path / name / "metrics.jsonl") if one["kind"] == "step"]
              for name in ("beside", "here")]  # fmt: skip
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert result["result"]["steps"] == here["result"]["steps"]


def test_stopping_keeps_what_is_finished_and_resuming_goes_on(tiny_preset, tmp_path):
    preset, seen = replace(tiny_preset, epochs=2, average=1), []

    def stop_in_epoch_2(record):
        seen.append(record)
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_in_own_process(preset, tmp_path / "run", stop_in_epoch_2)
    again = []
    train_in_own_process(preset, tmp_path / "run", again.append, resume=True)
    first = [record for record in seen if record["epoch"] == 1]
    assert again[: len(first)] == first  # a plot that is opened later shows the whole curve
    steps = [record["step"] for record in again if record["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert again[-1]["kind"] == "end"


def test_a_process_that_is_killed_during_on_log_is_one_line(tiny_preset, tmp_path):
    """The system may do this if memory runs out. The notebook notices when it asks for the next record."""

    def kill(record):
        (child,) = psutil.Process().children()
        child.kill()
        child.wait()

    with pytest.raises(InputError, match=r"^the training process ended early:\n"):
        train_in_own_process(tiny_preset, tmp_path / "run", kill)


def test_an_error_arrives(tiny_preset, tmp_path):
    with pytest.raises(InputError, match="no corpus"):
        train_in_own_process(replace(tiny_preset, corpus="nowhere"), tmp_path / "run", print)
