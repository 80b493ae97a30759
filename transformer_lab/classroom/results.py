"""The results of grading: plain data, written and read as JSON."""

import json
from dataclasses import asdict, dataclass

STATES = (
    "passed",
    "failed",
    "not attempted",
    "not checked",  # it depends on something that failed
    "timed out",
    "killed",
    "out of memory",
    "not gradable",  # the file cannot be read as a notebook of the course
    "grader error",  # ours, not the student's
)


@dataclass(frozen=True)
class ExerciseResult:
    """One exercise of one student."""

    exercise: str
    state: str  # one of `STATES`
    earned: float  # points
    possible: float  # points
    misconceptions: tuple[str, ...] = ()  # slugs, best first
    report: str = ""  # the plain text of the report, with no hidden input's answer in it
    flags: tuple[str, ...] = ()  # for the instructor's review: "line 4 calls `torch.nn.functional.softmax`"
    remarks: tuple[str, ...] = ()  # for the student
    source: str = ""  # the student's cell
    cell_id: str = ""


@dataclass(frozen=True)
class SubmissionResult:
    """One notebook of one student."""

    student: str
    notebook: str  # "01_attention"; "" where it is not known
    digest: str  # of the submission and of the version of the package
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


def as_json(result: SubmissionResult) -> str:
    """Return the result as one line of ASCII: what no UTF-8 file may hold is escaped."""
    return json.dumps(asdict(result))


def from_json(text: str) -> SubmissionResult:
    """Return the result that `as_json` wrote."""
    fields = json.loads(text)
    exercises = tuple(
        ExerciseResult(**{name: tuple(value) if isinstance(value, list) else value for name, value in exercise.items()})
        for exercise in fields.pop("exercises")
    )
    return SubmissionResult(**fields | {"exercises": exercises, "remarks": tuple(fields["remarks"])})
