"""Measure how long a failing check takes to report the mistake, and how long it takes to check correct answers.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/diagnosis.py [EXERCISE ...]

For each exercise, this script checks wrong answers that require the full search, on one core. It combines every known
mistake with each generic variant that is compatible with it, and takes a random sample with a fixed seed. The first
call in a process also loads the catalog and compiles every mistake, so each exercise runs in its own process. Prints
the time of the first call, the time of the slowest call, and the median time, and writes them to
`results/diagnosis.json`.
"""

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
from contextlib import suppress
from typing import Any

import torch
from machine import RESULTS, run_script, timed, write_result

SAMPLE = 12  # wrong answers per exercise


def compiled(wrong: Any) -> Any:
    """Return the function or class that a wrong version defines. If it defines none or fails to run, return None."""
    with suppress(Exception):
        return wrong.subject


def measure(name: str) -> dict[str, float]:
    """Return how many seconds it takes to check an exercise's wrong answers, and how many to check its right one."""
    from transformer_lab.exercises import exercises, run_check
    from transformer_lab.exercises.catalogue import mistakes_of
    from transformer_lab.exercises.edits import joined
    from transformer_lab.exercises.variants import variants_of

    torch.set_num_threads(1)
    exercise = exercises()[name]
    right, _ = timed(run_check, exercise, exercise.answer)
    pairs = [
        (way, variant.wrong)
        for mistake in mistakes_of(exercise)
        for way in mistake.ways
        for variant in variants_of(exercise)
        if way.edits
    ]
    random.Random(0).shuffle(pairs)
    both = itertools.starmap(joined, pairs)
    subjects = itertools.islice(filter(None, map(compiled, both)), SAMPLE)
    seconds = [timed(run_check, exercise, subject)[0] for subject in subjects]
    return {
        "right answer": right,
        "first": seconds[0],
        "median": statistics.median(seconds),
        "slowest": max(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exercises", nargs="*")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    from transformer_lab.exercises import exercises

    found = {}
    print(f"{'seconds':32} {'right':>7} {'first':>7} {'median':>7} {'slowest':>7}")
    for name in arguments.exercises or exercises():
        command = [sys.executable, __file__, "--one", name]
        found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{name:32} " + " ".join(f"{seconds:7.2f}" for seconds in found[name].values()), flush=True)
    total = {
        "all right answers": sum(one["right answer"] for one in found.values()),
        "slowest first call": max(one["first"] for one in found.values()),
        "median of medians": statistics.median(one["median"] for one in found.values()),
        "slowest": max(one["slowest"] for one in found.values()),
    }
    print(", ".join(f"{what}: {seconds:.2f} s" for what, seconds in total.items()))
    if not arguments.exercises:
        write_result(RESULTS / "diagnosis.json", {"total": total, "exercises": found})


if __name__ == "__main__":
    run_script(main)
