"""Records of a training run: its configuration and result in `training.json`, and its history in `metrics.jsonl`.

Every line of `metrics.jsonl` is a JSON object with a `kind`:

- `step`, one per update: `step` and `epoch` (from 1), `loss` (against the smoothed labels, in nats per token; with
  consistency training, it includes the disagreement of the two passes), `rate`, `gradient_norm` (before clipping),
  `tokens_per_second` (target tokens, since the start of the epoch), `seconds` (since the start of the run).
- `epoch`: `epoch`, `step`, `train_loss` (the mean over the epoch's tokens), `validation_loss` (without label
  smoothing), `validation_perplexity`, `validation_bleu` (greedy decoding; null if the epoch is not scored), `seconds`,
  `tokens_per_second` (excluding validation), `peak_memory_mib`.
- `end`: `chosen` (which weights were saved), `validation_bleu` (with the preset's beam), `seconds`.
"""

import hashlib
import json
import math
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from transformer_lab.data.corpora import Corpus, Pairs
from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing
from transformer_lab.presets import PRESETS, Preset


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` to a JSON file, replacing it atomically.

    Raises:
        InputError: The file cannot be written.
    """
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Return the content that `write_json` wrote.

    Raises:
        InputError: The file cannot be read, or its content is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("no object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): start this run again in another folder") from None
    return content


def configuration(preset: Preset, corpus: Corpus) -> dict[str, Any]:
    """Return everything that determines what a run computes and which weights it saves.

    A run can be resumed only with the same configuration.
    """
    train_pairs = corpus.train[: preset.train_limit]
    return {
        "preset": asdict(preset) | {"betas": list(preset.betas)},  # as read back from JSON
        "source": corpus.source,
        "target": corpus.target,
        "train_pairs": len(train_pairs),
        "train_sha256": sha256_of(train_pairs),
        "validation_sha256": sha256_of(corpus.validation),
    }


def sha256_of(pairs: Pairs) -> str:
    return hashlib.sha256("".join(f"{source}\t{target}\n" for source, target in pairs).encode()).hexdigest()


def environment(preset: Preset, device: torch.device, precision: torch.dtype, processes: int) -> dict[str, Any]:
    """Describe where and how a run was started, to help reproduce it. Rounding may differ on another machine."""
    standard = PRESETS.get(preset.name)
    return {
        "overridden": {
            field: value for field, value in asdict(preset).items() if standard and value != getattr(standard, field)
        },
        **software("tokenizers", "sacrebleu", "safetensors"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "precision": str(precision).removeprefix("torch."),
        "processes": processes,
    }


def software(*packages: str) -> dict[str, Any]:
    """Return the running command, the commit, the number of threads, and the versions of Python and the packages."""
    return {
        "command": command_line(),
        "commit": commit(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__}  # including its build: +cu130
        | {name: installed(name) for name in ("transformer-lab", *packages)},
        "threads": torch.get_num_threads(),
    }


def differing_values(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the differences as text, such as "epochs was 3, now 5; seed was 1, now 2"."""
    return "; ".join(
        f"{name} was {earlier.get(name)}, now {value}" for name, value in now.items() if earlier.get(name) != value
    )


def command_line() -> str:
    """Return the command that started this process, as a user would type it."""
    program = Path(sys.argv[0]).name
    return shlex.join(["transformer-lab" if program in ("__main__.py", "cli.py") else program, *sys.argv[1:]])


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # this package may be running from its source tree
        return None


def commit() -> str | None:
    """Return the commit of the running source tree. If the tree was changed, add `-dirty`.

    Outside a repository, return None.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # the package is installed, perhaps inside the repository of another project
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def peak_memory_mib(device: torch.device) -> float:
    """Return this process's peak memory in MiB: GPU memory if it trains on a GPU; otherwise, main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, KiB elsewhere
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


class Metrics:
    """The file `metrics.jsonl`, with one record per line. Each record is also passed to `on_log`.

    A resumed run writes the records after `last_step` again, so the old records are dropped first.
    """

    def __init__(self, path: Path, last_step: int, on_log: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path = path
        self.on_log = on_log
        earlier_records = [record for record in read_metrics(path) if record.get("step", math.inf) <= last_step]
        with replacing(path) as unfinished:
            unfinished.write_text("".join(json.dumps(record) + "\n" for record in earlier_records), encoding="utf-8")

    def write(self, **record: Any) -> None:
        """Append a record. Numbers that JSON cannot represent, such as an infinite perplexity, become null."""
        for name, value in record.items():
            if isinstance(value, float):
                record[name] = float(f"{value:.7g}") if math.isfinite(value) else None
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self.on_log:
            self.on_log(record)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Return the records in `metrics.jsonl` up to the first incomplete line.

    If there is no file, return an empty list.
    """
    records = []
    if Path(path).exists():
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                break
            if not (isinstance(record, dict) and isinstance(record.get("step", 0), int)):
                break
            records.append(record)
    return records
