"""Functions shared by all benchmark scripts: they measure times, write results, and report input errors."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

from transformer_lab.errors import InputError
from transformer_lab.training.records import commit, write_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def run_script(main: Callable[[], object]) -> None:
    """Run a script, and print an input error as one line instead of a traceback."""
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


def timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Return the number of seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = work(*arguments, **options)
    return time.perf_counter() - start, result


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a benchmark's result to a JSON file, with a description of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**result, "machine": describe_machine()})


def describe_machine() -> dict[str, Any]:
    """Return the processor, cores, threads, versions, date, and commit for a benchmark's JSON file."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "commit": commit(),
    }


def processor() -> str:
    """Return the processor's name as reported by the system."""
    information = Path("/proc/cpuinfo")
    if information.exists() and (name := re.search(r"^model name\s*: (.*)", information.read_text(), re.MULTILINE)):
        return name[1]
    if platform.system() == "Darwin":
        asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return asked.stdout.strip()
    return platform.processor() or platform.machine()
