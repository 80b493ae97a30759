"""A submission as pytest items: one for each cell, which nbval runs in our kernel, and then one for each exercise."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError, find_comment_markers, find_metadata_tags

from transformer_lab.classroom.assemble import Assembled
from transformer_lab.classroom.cells import names_of
from transformer_lab.classroom.kernel_client import Kernel, KernelEnded
from transformer_lab.classroom.messages import clean_text
from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.classroom.scoring import REPORT_CHARACTERS, STATES_OF_ENDS, Score, score
from transformer_lab.exercises.exercise import Exercise

MOST_REMARKS = 10
MOST_KERNELS = 8  # one, and others after cells or exercises that have ended theirs


@dataclass
class KernelSource:
    """What is needed to start the kernels of a submission, and the secret seed of their inputs."""

    package: Path  # the folder of the stubbed package
    folder: Path  # private; everything in it is ours
    sandboxed: bool
    limits: Limits
    seed: int


@dataclass
class CellFailure:
    """How a cell ended that did not run to its end."""

    state: str  # as in `results.STATES`
    reason: str


@dataclass(eq=False)  # pytest keeps its plug-ins in sets
class SubmissionRun:
    """One submission while it is graded: a pytest plug-in."""

    assembled: Assembled
    exercises: list[Exercise]
    source: KernelSource
    results: list[ExerciseResult] = field(default_factory=list)
    failures: dict[int, CellFailure] = field(default_factory=dict)  # by number of the code cell
    kernel_killing_cells: set[int] = field(default_factory=set)  # no other kernel runs them again
    revealed: set[str] = field(default_factory=set)  # exercises whose answers a kernel may see: they are scored
    kernels: int = 0
    kernels_started: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        scored = {exercise.name for exercise in self.exercises}
        self.revealed.update(name for exercise in self.exercises for name in exercise.builds_on if name not in scored)

    @property
    def code(self) -> list[Any]:
        return [cell for cell in self.assembled.notebook.cells if cell.cell_type == "code"]

    def seconds_left(self) -> float:
        return self.began + self.source.limits.submission_seconds - time.monotonic()

    def cell_seconds(self) -> float:
        """For the next cell.

        Raises:
            KernelEnded: nothing is left of the time for the submission.
        """
        left = self.seconds_left()
        if left <= 0:
            raise KernelEnded("time", "the time for the whole notebook was up")
        return min(self.source.limits.cell_seconds, left)

    def kernel_after(self, cells: range) -> Kernel:
        """A new kernel in which these cells have been run, but for those that have ended another one.

        Raises:
            KernelEnded: they end every kernel, or the time is up.
        """
        while self.kernels < MOST_KERNELS:
            self.cell_seconds()
            self.kernels += 1
            source = self.source
            folder = source.folder / f"k{self.kernels}"
            kernel = Kernel(source.package, folder, source.limits, self.seconds_left() + 5.0, source.sandboxed)
            self.kernels_started += 1
            try:
                for number in cells:
                    if number not in self.kernel_killing_cells and not _is_skipped(self.code[number]):
                        kernel.await_reply(kernel.execute_cell_input(self.code[number].source), self.cell_seconds())
                return kernel
            except Exception as error:  # `queue.Empty`: it takes too long this time
                kernel.stop()
                ended = error if isinstance(error, KernelEnded) else KernelEnded("time", "it took too long")
                self.ended(number, ended)
        raise KernelEnded("owner", "too many of its cells have ended the kernel")

    def ended(self, number: int, ended: KernelEnded) -> None:
        """Note that this cell has ended its kernel."""
        self.kernel_killing_cells.add(number)
        self.failures[number] = CellFailure(STATES_OF_ENDS.get(ended.reason, "killed"), str(ended))

    def add(self, exercise: Exercise, score: Score) -> None:
        assembled = self.assembled
        number = self.cell_of(exercise.name)
        failure = self.failures.get(number)
        source = assembled.sources.get(exercise.name, "")
        if score.is_missing and failure is not None:
            score = Score(failure.state, report=f"{score.report} Its cell did not run to the end: {failure.reason}.")
        elif score.is_missing and not source.strip():
            score = Score("not attempted", report=f"`{exercise.name}` has not been written yet.")
        elif score.is_missing and (defined := ", ".join(f"`{name}`" for name in names_of(source).definitions)):
            score = replace(score, report=f"{score.report} Its cell defines {defined}.")
        elif score.state == "not attempted" and _is_imported(exercise.name, source):
            where = "where the answers are taken out when it is graded: write it yourself"
            score = Score("failed", report=f"`{exercise.name}` is imported from the package, {where}.")
        self.results.append(
            ExerciseResult(
                exercise=exercise.name,
                state=score.state,
                earned=score.earned,
                possible=exercise.points,
                misconceptions=score.misconceptions,
                report=score.report,
                flags=assembled.flags.get(exercise.name, ()),
                remarks=score.remarks,
                source=source,
                cell_id="" if number is None else self.code[number].id,
            )
        )

    def remarks(self) -> list[str]:
        """Cells that a student has added and that did not run to the end: what they would define is missing."""
        remarks = []
        for number, failure in sorted(self.failures.items()):
            if dict(self.code[number].metadata.get("transformer_lab", {})) == {"student": True}:
                first = next((line.strip() for line in self.code[number].source.splitlines() if line.strip()), "")
                shown = f"`{clean_text(first, 60)}`" if "`" not in first else "with a backtick in its first line"
                remarks.append(f"The added cell {shown} did not run to the end: {failure.reason}.")
        return remarks[:MOST_REMARKS]

    def cell_of(self, name: str) -> int | None:
        """The number of the code cell that defines the exercise, as far as its text says."""
        last = None
        for number, cell in enumerate(self.code):
            about = cell.metadata.get("transformer_lab", {})
            if about.get("exercise") == name and last is None:
                last = number
            if about.get("student") and name in names_of(cell.source).binds:
                last = number
        return last

    def check_of(self, name: str) -> int | None:
        """The number of the code cell with the exercise's check."""
        for number, cell in enumerate(self.code):
            if cell.metadata.get("transformer_lab", {}).get("check") == name:
                return number
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path, parent: Any) -> Iterator[None]:
        collectors = yield
        return [
            GradedNotebook.from_parent(parent, path=file.path, run=self) if isinstance(file, IPyNbFile) else file
            for file in collectors
        ]


class GradedNotebook(IPyNbFile):
    """The notebook of a submission, and its kernel."""

    def __init__(self, *arguments: Any, run: SubmissionRun, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.run = run
        self.nb = run.assembled.notebook

    def setup(self) -> None:
        self.kernel = self.run.kernel_after(range(0))

    def teardown(self) -> None:
        if self.kernel is not None:
            self.kernel.stop()

    def collect(self) -> Iterator[pytest.Item]:
        for number, cell in enumerate(self.run.code):
            options = defaultdict(bool)
            about = cell.metadata.get("transformer_lab", {})
            if not about.get("student"):  # comments to nbval in a student's cell are ignored
                options.update(find_metadata_tags(cell.metadata))
                options.update(find_comment_markers(cell.source))
            options.setdefault("check", False)
            if _is_skipped(cell):
                continue
            yield GradedCell.from_parent(self, name=f"Cell {number}", cell_num=number, cell=cell, options=options)
        for exercise in self.run.exercises:
            yield GradedExercise.from_parent(self, name=exercise.name, exercise=exercise)

    def alive(self, cells: range) -> Kernel:
        """The kernel, or a new one in which these cells have been run."""
        if not self.kernel.is_alive():
            self.kernel.stop()
            self.kernel = self.run.kernel_after(cells)
        return self.kernel


def write_assembled(run: SubmissionRun) -> Path:
    """Write the assembled notebook for pytest, under a name that is never the student's."""
    path = run.source.folder / f"{run.assembled.name}.ipynb"
    path.write_text(json.dumps(run.assembled.notebook), encoding="ascii")
    return path


def _is_imported(name: str, source: str) -> bool:
    return names_of(source).imports.get(name, "").startswith("transformer_lab.")


def _is_skipped(cell: Any) -> bool:
    return any(tag == "nbval-skip" for tag in cell.metadata.get("tags", ()))


class GradedCell(IPyNbCell):
    """A code cell as nbval runs it; what ends its kernel is noted."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.user_properties.append(("cell_id", self.cell.id))
        for kind in ("exercise", "check"):
            if name := self.cell.metadata.get("transformer_lab", {}).get(kind):
                self.user_properties.append((kind, name))

    def setup(self) -> None:
        self.parent.timed_out = False  # of an earlier cell: no reason to expect that this one fails

    def runtest(self) -> None:
        run, number = self.parent.run, self.cell_num
        try:
            self.parent.alive(range(number))
            self.config.option.nbval_cell_timeout = run.cell_seconds()
        except KernelEnded as ended:
            run.failures.setdefault(number, CellFailure(STATES_OF_ENDS.get(ended.reason, "not checked"), str(ended)))
            self.raise_cell_error(f"Not run: {ended}")
        try:
            super().runtest()
        except KernelEnded as ended:
            run.ended(number, ended)
            self.raise_cell_error(str(ended))
        except NbCellError as error:
            if self.parent.timed_out:
                limit = f"the cell took longer than {self.config.option.nbval_cell_timeout:g} seconds"
                run.failures[number] = CellFailure("timed out", limit)
                if not self.parent.kernel.is_alive():
                    run.kernel_killing_cells.add(number)
            elif (exception := self._exception()) is not None:
                run.failures[number] = CellFailure(
                    "out of memory" if exception.startswith("MemoryError") else "failed", f"`{exception}`"
                )
            raise error from None

    def _exception(self) -> str | None:
        """What the cell raised."""
        for output in self.test_outputs or ():
            if output.output_type == "error":
                text = " ".join(f"{output.ename}: {output.evalue}".split())[:400]
                return re.sub(r"\(\d+\.py, line (\d+)\)", r"(line \1)", text)  # a file's name that says nothing
        return None

    def format_output_compare(self, key: str, left: Any, right: Any) -> None:
        # pytest's own comparison takes time that grows with the cube of a text's lines
        self.comparison_traceback.append(f"{key}: expected {str(left)[:200]!r}, received {str(right)[:200]!r}")

    def repr_failure(self, excinfo: Any) -> str:
        return clean_text(str(super().repr_failure(excinfo)), REPORT_CHARACTERS)


class _NotPassed(Exception):  # noqa: N818 (it is the finding)
    pass


class GradedExercise(pytest.Item):
    """One exercise: the student's object is scored."""

    def __init__(self, *arguments: Any, exercise: Exercise, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.exercise = exercise

    def runtest(self) -> None:
        score_now = self._score()
        if score_now.state not in ("passed", "not attempted"):
            earlier = self._score_where_checked()
            if earlier is not None and earlier.earned > score_now.earned:
                score_now = earlier
        run = self.parent.run
        run.revealed.add(self.exercise.name)
        run.add(self.exercise, score_now)
        result = run.results[-1]
        self.user_properties += [
            ("exercise", result.exercise),
            ("cell_id", result.cell_id),
            ("state", result.state),
            ("points", f"{result.earned:g}"),
            ("possible", f"{result.possible:g}"),
        ]
        if result.misconceptions:
            self.user_properties.append(("misconceptions", " ".join(result.misconceptions)))
        if result.state != "passed":
            raise _NotPassed(result.report)

    def _score(self) -> Score:
        run = self.parent.run
        try:
            kernel = self.parent.alive(range(len(run.code)))
        except KernelEnded as ended:
            failure = run.failures.get(run.cell_of(self.exercise.name))
            state = failure.state if failure else STATES_OF_ENDS.get(ended.reason, "not checked")
            reason = failure.reason if failure else ended
            return Score(state, report=f"`{self.exercise.name}` was not scored: {reason}.")
        if run.seconds_left() <= 0:
            return Score("timed out", report="The time for the whole notebook was up before this could be scored.")
        return self._score_in(kernel)

    def _score_in(self, kernel: Kernel) -> Score:
        run = self.parent.run
        seconds = min(run.source.limits.exercise_seconds, run.seconds_left())
        try:
            source = run.assembled.sources.get(self.exercise.name, "")
            return score(kernel, self.exercise, run.source.seed, run.revealed, seconds, source)
        except Exception as error:
            return Score(
                "grader error", report=f"The grader failed ({type(error).__name__}): this is no fault of yours."
            )

    def _score_where_checked(self) -> Score | None:
        """The score before a later cell gave the name another meaning: `from torch.nn.functional import softmax`.

        Its check was green, and nobody sees there that an import takes away what an earlier cell has defined.
        """
        run, exercise = self.parent.run, self.exercise
        number = run.check_of(exercise.name)
        names = {exercise.name, *(name for name in exercise.builds_on if run.check_of(name) is not None)}
        later = [names_of(cell.source) for cell in run.code[number + 1 :]] if number is not None else []
        changed = {name for cell in later for name in (names if cell.stars else names & cell.binds)}
        if not changed or run.seconds_left() <= 0:
            return None
        try:
            kernel = run.kernel_after(range(number))
        except Exception:  # its cells end every kernel, or there is no other: the first score stands
            return None
        try:
            earlier = self._score_in(kernel)
        finally:
            kernel.stop()
        meaning = ", ".join(f"`{name}`" for name in sorted(changed))
        remark = f"A later cell gives {meaning} another meaning. What counts is what the check in the notebook saw."
        return replace(earlier, remarks=(*earlier.remarks, remark))

    def repr_failure(self, excinfo: Any) -> str:
        if isinstance(excinfo.value, _NotPassed):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.exercise.name
