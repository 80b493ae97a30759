"""Test attempts by people who saw only the notebooks. Correct ones pass, and reports name the mistakes in wrong ones.

The report must name exactly the expected slugs, because any other would be a false accusation. If an attempt expects
no slug, its report describes the symptom instead.
"""

import pytest
from attempt_files import read_attempts

from transformer_lab.exercises import exercises, run_check
from transformer_lab.exercises.diagnosis import sentences

ATTEMPTS = list(read_attempts())
NAMES = list(dict.fromkeys(attempt.exercise for attempt in ATTEMPTS))


@pytest.mark.parametrize("name", NAMES)
def test_attempts(name):
    problems = []
    for attempt in ATTEMPTS:
        if attempt.exercise != name:
            continue
        report = run_check(exercises()[name], attempt.subject())
        where = f"{attempt.file}, line {attempt.line}, {attempt.label}"
        if report.passed != attempt.is_right:
            problems.append(f"{where}: {report.title}")
        elif set(report.misconceptions) != set(attempt.named):
            expected = ", ".join(attempt.named) or "nothing"
            problems.append(f"{where}: names {', '.join(report.misconceptions) or 'nothing'}, expected {expected}")
    assert not problems, "\n".join(problems)


def test_every_exercise_has_right_and_wrong_ones():
    for name in exercises():
        own = [attempt for attempt in ATTEMPTS if attempt.exercise == name]
        assert sum(attempt.is_right for attempt in own) >= 2, name
        assert sum(not attempt.is_right for attempt in own) >= 5, name


def test_expected_slugs_exist():
    for attempt in ATTEMPTS:
        assert set(attempt.named) <= sentences(exercises()[attempt.exercise]).keys(), attempt.label
