"""Measure how long a reader waits before anything happens: imports, the help text, and the first translation.

    python benchmarks/import_time.py [--rounds 10]

The goals: `import transformer_lab` takes at most 0.3 s longer than `import torch`, and the included model translates a
sentence within 3 s. Every figure is a median over separate processes. The measurements alternate, so that any other
load on the machine affects them all. Prints the figures and writes them to `results/import_time.json`.
"""

import argparse
import statistics
import subprocess
import sys

from machine import RESULTS, run_script, timed, write_result

from transformer_lab.decoding.translator import PRETRAINED

SENTENCE = "Ein kleiner Junge spielt draußen mit einem Ball."
PROCESSES = {
    "import torch": ["-c", "import torch"],
    "import transformer_lab": ["-c", "import transformer_lab"],
    "import torch, transformer_lab": ["-c", "import torch, transformer_lab"],
    "import transformer_lab.model": ["-c", "import transformer_lab.model"],
    "import transformer_lab.training": ["-c", "import transformer_lab.training"],
    "transformer-lab --help": ["-m", "transformer_lab", "--help"],
    "transformer-lab translate": ["-m", "transformer_lab", "translate", SENTENCE],
}


def run_python(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds

    processes = dict(PROCESSES)
    if not PRETRAINED.is_dir():
        print(f"no model in {PRETRAINED}: skipping the translation")
        del processes["transformer-lab translate"]
    for arguments in processes.values():  # a warm-up, because the first start reads files from disk
        run_python(arguments)
    measured = {name: [] for name in processes}
    for _ in range(rounds):
        for name, arguments in processes.items():
            measured[name].append(timed(run_python, arguments)[0])
    median = {name: round(statistics.median(seconds), 3) for name, seconds in measured.items()}
    beyond_torch = round(median["import torch, transformer_lab"] - median["import torch"], 3)
    result = {
        "what": "seconds from the start of a process to its end",
        "goal": {"import transformer_lab beyond import torch": 0.3, "transformer-lab translate": 3.0},
        "import transformer_lab beyond import torch": beyond_torch,
        "median": median,
        "all": {name: [round(value, 3) for value in seconds] for name, seconds in measured.items()},
    }
    write_result(RESULTS / "import_time.json", result)
    for name, seconds in median.items():
        print(f"{name:<32}{seconds:7.3f} s")
    print(f"import transformer_lab adds {beyond_torch:.3f} s to import torch")


if __name__ == "__main__":
    run_script(main)
