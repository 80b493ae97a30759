"""Functions shared by all benchmark scripts: they describe the machine and report input errors."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

from transformer_lab.errors import InputError
from transformer_lab.training.records import commit


def run_script(main: Callable[[], object]) -> None:
    """Run a script, and print an input error as one line instead of a traceback."""
    try:
        main()
    except InputError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


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
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    if platform.system() == "Darwin":
        asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return asked.stdout.strip()
    return platform.processor() or platform.machine()
