"""The results of grading: plain data that can be stored as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from transformer_lab.errors import InputError

if TYPE_CHECKING:
    from transformer_lab.classroom.assemble import Assembled
    from transformer_lab.exercises import Exercise

GRADEBOOK = "gradebook.sqlite"

STATES = (
    "passed",
    "failed",
    "not attempted",
    "not checked",  # something it depends on failed
    "timed out",
    "killed",
    "out of memory",
    "not gradable",  # the file is not a notebook of the course
    "grader error",  # not the student's fault
)


@dataclass(frozen=True)
class ExerciseResult:
    """The result of one exercise for one student."""

    exercise: str
    state: str  # one of `STATES`
    earned: float  # points
    possible: float  # points
    misconceptions: tuple[str, ...] = ()  # slugs, the most important first
    report: str = ""  # plain text; doesn't give away the answer for a hidden input
    flags: tuple[str, ...] = ()  # for the instructor: "line 4 uses `torch.nn.functional.softmax`"
    remarks: tuple[str, ...] = ()  # for the student
    source: str = ""  # the student's cell
    cell_id: str = ""

    @classmethod
    def without_points(cls, exercise: "Exercise", state: str, report: str = "", source: str = "") -> Self:
        """Return a result with 0 points for an exercise."""
        return cls(exercise.name, state, 0.0, exercise.points, report=report, source=source)


@dataclass(frozen=True)
class SubmissionResult:
    """The results of one notebook for one student."""

    student: str
    notebook: str  # "01_attention"; "" if unknown
    digest: str  # depends on the submission and on the package's version
    exercises: tuple[ExerciseResult, ...]
    remarks: tuple[str, ...] = ()  # "`softmax` is defined in 2 cells: the last one counts."
    problem: str = ""  # why nothing could be graded
    seconds: float = 0.0
    junit: str = ""  # JUnit XML of the run

    @property
    def earned(self) -> float:
        return sum(result.earned for result in self.exercises)

    @property
    def possible(self) -> float:
        return sum(result.possible for result in self.exercises)


def without_points(
    assembled: "Assembled", exercises: "list[Exercise]", state: str, report: str = "", seconds: float = 0.0
) -> SubmissionResult:
    """Return the result of a submission whose exercises could not be scored."""
    results = tuple(
        ExerciseResult.without_points(exercise, state, report, assembled.sources.get(exercise.name, ""))
        for exercise in exercises
    )
    return SubmissionResult(
        assembled.student, assembled.name, assembled.digest, results, assembled.remarks, seconds=seconds
    )


def as_json(result: SubmissionResult) -> str:
    """Return the result as one line of ASCII. Characters that UTF-8 cannot encode are escaped."""
    return json.dumps(asdict(result))


def from_json(text: str) -> SubmissionResult:
    """Return the result that was passed to `as_json`."""
    fields = with_tuples(json.loads(text))
    fields["exercises"] = tuple(ExerciseResult(**with_tuples(exercise)) for exercise in fields["exercises"])
    return SubmissionResult(**fields)


def with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass, converting lists to tuples, because JSON turns tuples into lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def require_gradebook(folder: Path, option: str) -> None:
    """Check that a folder has a gradebook. Importing this module is fast, so the command line can do this right away.

    Raises:
        InputError: The folder has no gradebook, so `option` cannot be used.
    """
    if not (folder / GRADEBOOK).exists():
        raise InputError(f"there is no gradebook in {folder}: grade without {option} first")
