"""Measure how long `transformer-lab tour` takes when a reader runs it, and how good its model is.

    python benchmarks/tour.py [--keep FOLDER]

The goals on two CPU cores: 100 seconds for the whole command, and 90 BLEU on the `captions` test set. Prints both
figures and writes them to `results/tour.json`.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from machine import RESULTS, run_script, timed, write_result

from transformer_lab.training import find_preset, read_metrics


def run_tour(output: Path) -> str:
    """Return what the command prints."""
    command = [sys.executable, "-m", "transformer_lab", "tour", "--output", str(output)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="new folder in which to keep the trained model")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        output = arguments.keep or Path(temporary) / "tour"
        seconds, printed = timed(run_tour, output)
        records = read_metrics(output / "metrics.jsonl")
        training = json.loads((output / "training.json").read_text(encoding="utf-8"))
    print(printed)
    bleu, signature = re.search(r"^BLEU, cased +([\d.]+) +(.+)$", printed, re.MULTILINE).groups()
    result = {
        "what": "transformer-lab tour: seconds for the whole command, and sacreBLEU on the captions test set",
        "goal": {"seconds": 100, "bleu": 90},
        "seconds": round(seconds, 1),
        "seconds_of_training": records[-1]["seconds"],
        "bleu": float(bleu),
        "signature": signature,
        "training": training["result"],
        "preset": asdict(find_preset("tour")),
    }
    write_result(RESULTS / "tour.json", result)
    print(f"{seconds:.1f} s for the whole command, BLEU {bleu}")


if __name__ == "__main__":
    run_script(main)
