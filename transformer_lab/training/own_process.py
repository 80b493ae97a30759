"""Train in a separate process, so that you can keep using the notebook."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_lab.errors import InputError
from transformer_lab.presets import Preset
from transformer_lab.training.records import read_metrics

CHILD = """
import json, sys
from pathlib import Path

channel, sys.stdout = sys.stdout, sys.stderr  # nothing but records may go through the channel
from transformer_lab.errors import InputError
from transformer_lab.mine import Transformer
from transformer_lab.presets import Preset
from transformer_lab.training import train

def send(record):
    print(json.dumps(record), file=channel, flush=True)
    if not sys.stdin.readline():  # the notebook has stopped this run, or is gone
        raise KeyboardInterrupt

fields, folder, resume = json.loads(sys.stdin.readline())
try:
    result = train(Preset(**fields), Path(folder), resume=resume, build_model=Transformer, on_log=send)
except InputError as error:
    result = {"input_error": str(error)}
print(json.dumps({"kind": "result", "result": result}), file=channel, flush=True)
"""


def train_in_own_process(
    preset: Preset, output: str | Path, on_log: Callable[[dict[str, Any]], None], resume: bool = False
) -> dict[str, Any]:
    """Train with the parts you have built, as `train` does, but in a separate process.

    After each record, the process waits until `on_log` returns, so `on_log` can pause it. With `resume`, `on_log` first
    gets the records of the epochs that are already finished. The arguments and the result are the same as for `train`.

    Raises:
        InputError: `train` raised this error, or the process failed. If the process failed, the message contains the
            last 8 lines of its output.
    """
    if resume:
        records = read_metrics(Path(output) / "metrics.jsonl")
        finished = max((record["epoch"] for record in records if record["kind"] == "epoch"), default=0)
        for record in records:  # skip the steps of an interrupted epoch, because they will be repeated
            if record.get("epoch", finished + 1) <= finished:
                on_log(record)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
            encoding="utf-8",
        )

        def send(line: str) -> None:
            with suppress(BrokenPipeError):  # the process has ended, and so will the loop below
                os.write(process.stdin.fileno(), f"{line}\n".encode())  # closing a buffer would raise the error again

        with process:  # on exit, closes the channel to end the process, and waits for it to end
            send(json.dumps([asdict(preset), str(output), resume]))
            for line in process.stdout:
                record = json.loads(line)
                if record["kind"] == "result":
                    if "input_error" in record["result"]:
                        raise InputError(record["result"]["input_error"])
                    return record["result"]
                on_log(record)
                send("")
        errors.seek(0)
        raise InputError("the training process ended early:\n" + "".join(errors.readlines()[-8:]))
