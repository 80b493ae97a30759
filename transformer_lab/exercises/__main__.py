"""`python -m transformer_lab.exercises [NAME ...]`: reports on the answer and on every misconception."""

import sys
import time

from transformer_lab.exercises.registry import exercises, find_exercise
from transformer_lab.exercises.running import run_check

for name in sys.argv[1:] or exercises():
    exercise = find_exercise(name)
    for label, subject in [("the answer", exercise.answer), *((m.slug, m.wrong) for m in exercise.misconceptions)]:
        started = time.perf_counter()
        report = run_check(exercise, subject)
        print(f"==== {name}, {label}: named {list(report.misconceptions)}, {time.perf_counter() - started:.2f} s")
        print(f"{report}\n")
