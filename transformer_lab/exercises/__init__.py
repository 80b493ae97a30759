"""The exercises: their definitions (one file per notebook), checks, and reports. See README.md."""

from transformer_lab.exercises.checking import CheckFailed, CheckUsageError, check
from transformer_lab.exercises.examination import run_check
from transformer_lab.exercises.exercise import Exercise, Probe, Property, Remark
from transformer_lab.exercises.hints import hint, solution
from transformer_lab.exercises.progress import progress
from transformer_lab.exercises.registry import exercises, find_exercise, notebooks
from transformer_lab.exercises.report import Report
from transformer_lab.exercises.sampling import InputSampler

__all__ = [
    "CheckFailed",
    "CheckUsageError",
    "Exercise",
    "InputSampler",
    "Probe",
    "Property",
    "Remark",
    "Report",
    "check",
    "exercises",
    "find_exercise",
    "hint",
    "notebooks",
    "progress",
    "run_check",
    "solution",
]
