"""`python -m transformer_lab.exercises [NAME ...]`: print and time the reports on all answers and known mistakes."""

import sys
import time

from transformer_lab.exercises.catalogue import mistakes_of
from transformer_lab.exercises.examination import run_check
from transformer_lab.exercises.registry import exercises, find_exercise

seconds: dict[tuple[str, str], float] = {}
for name in sys.argv[1:] or exercises():
    exercise = find_exercise(name)
    ways = [(way.label, way.subject) for mistake in mistakes_of(exercise) for way in mistake.ways]
    for label, subject in [("the answer", exercise.answer), *ways]:
        start = time.perf_counter()
        report = run_check(exercise, subject)
        seconds[name, label] = time.perf_counter() - start
        print(f"==== {name}, {label}: named {list(report.misconceptions)}\n{report}\n")

total = sum(took for (_, label), took in seconds.items() if label == "the answer")
print(f"All answers together: {total:.2f} s. The slowest checks:")
for (name, label), took in sorted(seconds.items(), key=lambda entry: -entry[1])[:5]:
    print(f"  {took:.2f} s  {name}, {label}")
