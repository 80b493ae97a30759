"""`python -m transformer_lab.exercises [NAME ...]`: reports on the answer and on every known mistake, and times."""

import sys
import time

from transformer_lab.exercises.catalogue import mistakes_of
from transformer_lab.exercises.examination import run_check
from transformer_lab.exercises.registry import exercises, find_exercise

taken: dict[str, float] = {}
for name in sys.argv[1:] or exercises():
    exercise = find_exercise(name)
    for label, subject in [
        ("the answer", exercise.answer),
        *((way.label, way.subject) for mistake in mistakes_of(exercise) for way in mistake.ways),
    ]:
        started = time.perf_counter()
        report = run_check(exercise, subject)
        taken[f"{name}, {label}"] = time.perf_counter() - started
        print(f"==== {name}, {label}: named {list(report.misconceptions)}\n{report}\n")

answers = sum(seconds for label, seconds in taken.items() if label.endswith("the answer"))
print(f"All answers together: {answers:.2f} s. The slowest checks:")
for label, seconds in sorted(taken.items(), key=lambda entry: -entry[1])[:5]:
    print(f"  {seconds:.2f} s  {label}")
