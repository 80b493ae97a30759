"""A submission as pytest items: one for each cell, run by nbval in our own kernel, followed by one for each exercise.

nbval runs a cell, collects its outputs, and compares them with those in the notebook. By default, it would start its
own kernel, fail every cell that follows a timeout or a dead kernel, and obey nbval markers in a student's cell. Here,
the kernel is in a sandbox, and all cells share the submission's time limit. If a cell kills the kernel, the next cell
gets a new kernel in which the other cells have been rerun. That way, a cell can lose only its own points (see the
attacks called "os._exit in the cell" and "a loop that swallows interrupts").
"""

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

from transformer_lab.classroom.assemble import Assembled, is_skipped, role_of
from transformer_lab.classroom.exports import junit_properties
from transformer_lab.classroom.kernel_client import Kernel, KernelEnded
from transformer_lab.classroom.messages import clean_text
from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.classroom.scoring import REPORT_CHARACTERS, STATES_OF_ENDS, CellFailure, score
from transformer_lab.exercises.cells import names_of
from transformer_lab.exercises.exercise import Exercise

MOST_REMARKS = 10
MOST_KERNELS = 8  # the first one, plus replacements for kernels that a cell or an exercise has killed


@dataclass(eq=False)  # hashable, because pytest keeps its plug-ins in sets
class SubmissionRun:
    """A submission being graded, as a pytest plug-in."""

    assembled: Assembled
    exercises: list[Exercise]
    package: Path  # the folder of the stubbed package
    folder: Path  # private to the grader
    sandboxed: bool
    limits: Limits
    seed: int  # secret seed of the inputs
    results: list[ExerciseResult] = field(default_factory=list)
    failures: dict[int, CellFailure] = field(default_factory=dict)  # keyed by the index of the code cell
    kernel_killing_cells: set[int] = field(default_factory=set)  # these are not run in later kernels
    revealed: set[str] = field(default_factory=set)  # exercises already scored, whose answers a kernel may see
    kernels: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        to_score = {exercise.name for exercise in self.exercises}
        self.revealed.update(name for exercise in self.exercises for name in exercise.builds_on if name not in to_score)
        self.code = [cell for cell in self.assembled.notebook.cells if cell.cell_type == "code"]

    def written_notebook(self) -> Path:
        """Write the assembled notebook for pytest, under a name that the student did not choose."""
        path = self.folder / f"{self.assembled.name}.ipynb"
        path.write_text(json.dumps(self.assembled.notebook), encoding="ascii")
        return path

    def seconds_left(self) -> float:
        return self.began + self.limits.submission_seconds - time.monotonic()

    def cell_seconds(self) -> float:
        """Return how long the next cell may take.

        Raises:
            KernelEnded: The time for the submission is up.
        """
        left = self.seconds_left()
        if left <= 0:
            raise KernelEnded("time", "the notebook reached its time limit")
        return min(self.limits.cell_seconds, left)

    def kernel_after(self, cells: range) -> Kernel:
        """Return a new kernel that has run these cells, skipping any that killed an earlier kernel.

        Raises:
            KernelEnded: The cells kill every new kernel, or the time is up.
        """
        while self.kernels < MOST_KERNELS:
            self.cell_seconds()
            self.kernels += 1
            folder = self.folder / f"k{self.kernels}"
            kernel = Kernel(self.package, folder, self.limits, self.seconds_left() + 5.0, self.sandboxed)
            try:
                for index in cells:
                    if index not in self.kernel_killing_cells and not is_skipped(self.code[index]):
                        kernel.await_reply(kernel.execute_cell_input(self.code[index].source), self.cell_seconds())
                return kernel
            except Exception as error:  # `queue.Empty` if the cell takes too long this time
                kernel.stop()
                ended = error if isinstance(error, KernelEnded) else KernelEnded("time", "it took too long")
                self.add_kernel_killer(index, ended)
        raise KernelEnded("owner", "too many of its cells stopped the kernel")

    def add_kernel_killer(self, index: int, ended: KernelEnded) -> None:
        self.kernel_killing_cells.add(index)
        self.failures[index] = CellFailure(STATES_OF_ENDS.get(ended.reason, "killed"), str(ended))

    def remarks(self) -> list[str]:
        """Return a remark about each added cell that failed, because the names that it should define may be missing."""
        remarks = []
        for index, failure in sorted(self.failures.items()):
            if role_of(self.code[index]) == {"student": True}:
                first = next((line.strip() for line in self.code[index].source.splitlines() if line.strip()), "")
                shown = f"`{clean_text(first, 60)}`" if "`" not in first else "with a backtick in its first line"
                remarks.append(f"The added cell {shown} did not run to the end: {failure.reason}.")
        return remarks[:MOST_REMARKS]

    def cell_of(self, name: str) -> int | None:
        """Return the index of the code cell whose text defines the exercise."""
        defining = None
        for index, cell in enumerate(self.code):
            if role_of(cell).get("exercise") == name and defining is None:
                defining = index
            if role_of(cell).get("student") and name in names_of(cell.source).binds:
                defining = index
        return defining

    def check_of(self, name: str) -> int | None:
        """Return the index of the code cell with the exercise's check."""
        return next((index for index, cell in enumerate(self.code) if role_of(cell).get("check") == name), None)

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path, parent: Any) -> Iterator[None]:
        collectors = yield
        return [
            GradedNotebook.from_parent(parent, path=file.path, run=self) if isinstance(file, IPyNbFile) else file
            for file in collectors
        ]


class GradedNotebook(IPyNbFile):
    """A submission's notebook and its kernel."""

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
        for index, cell in enumerate(self.run.code):
            if is_skipped(cell):
                continue
            options = defaultdict(bool, check=False)
            if not role_of(cell).get("student"):  # "nbval's markers": those in a student's cell have no effect
                options.update(find_metadata_tags(cell.metadata))
                options.update(find_comment_markers(cell.source))
            yield GradedCell.from_parent(self, name=f"Cell {index}", cell_num=index, cell=cell, options=options)
        for exercise in self.run.exercises:
            yield GradedExercise.from_parent(self, name=exercise.name, exercise=exercise)

    def living_kernel(self, cells: range) -> Kernel:
        """Return the current kernel. If it has ended, return a new one that has run these cells."""
        if not self.kernel.is_alive():
            self.kernel.stop()
            self.kernel = self.run.kernel_after(cells)
        return self.kernel


def _not_checked(ended: KernelEnded) -> CellFailure:
    """Return the failure of a cell or exercise for which there is no kernel."""
    return CellFailure(STATES_OF_ENDS.get(ended.reason, "not checked"), str(ended))


class GradedCell(IPyNbCell):
    """A code cell that nbval runs and that records its failures."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.user_properties.append(("cell_id", self.cell.id))
        for kind in ("exercise", "check"):
            if name := role_of(self.cell).get(kind):
                self.user_properties.append((kind, name))

    def setup(self) -> None:
        self.parent.timed_out = False  # nbval would expect all cells after a timeout to fail

    def runtest(self) -> None:
        run, index = self.parent.run, self.cell_num
        try:
            self.parent.living_kernel(range(index))
            self.config.option.nbval_cell_timeout = run.cell_seconds()
        except KernelEnded as ended:
            run.failures.setdefault(index, _not_checked(ended))
            self.raise_cell_error(f"Not run: {ended}")
        try:
            super().runtest()
        except KernelEnded as ended:
            run.add_kernel_killer(index, ended)
            self.raise_cell_error(str(ended))
        except NbCellError as error:
            if self.parent.timed_out:
                limit = f"the cell took longer than {self.config.option.nbval_cell_timeout:g} seconds"
                run.failures[index] = CellFailure("timed out", limit)
                if not self.parent.kernel.is_alive():
                    run.kernel_killing_cells.add(index)
            elif exception := self._exception():
                state = "out of memory" if exception.startswith("MemoryError") else "failed"
                run.failures[index] = CellFailure(state, f"`{exception}`")
            raise error from None

    def _exception(self) -> str:
        """Return the exception that the cell raised. If there was none, return ""."""
        for output in self.test_outputs or ():
            if output.output_type == "error":
                text = " ".join(f"{output.ename}: {output.evalue}".split())[:400]
                return re.sub(r"\(\d+\.py, line (\d+)\)", r"(line \1)", text)  # without the meaningless file name
        return ""

    def format_output_compare(self, key: str, left: Any, right: Any) -> None:
        # pytest's own comparison would take time proportional to the cube of the number of lines.
        self.comparison_traceback.append(f"{key}: expected {str(left)[:200]!r}, received {str(right)[:200]!r}")

    def repr_failure(self, excinfo: Any) -> str:
        return clean_text(str(super().repr_failure(excinfo)), REPORT_CHARACTERS)


class GradedExercise(pytest.Item):
    """An exercise, scored by observing the student's object."""

    def __init__(self, *arguments: Any, exercise: Exercise, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.exercise = exercise
        self.source = self.parent.run.assembled.sources.get(exercise.name, "")

    def runtest(self) -> None:
        run = self.parent.run
        final = self._score()
        if final.state not in ("passed", "not attempted"):
            checked = self._score_where_checked()
            if checked is not None and checked.earned > final.earned:
                final = checked
        run.revealed.add(self.name)
        index = run.cell_of(self.name)
        result = replace(
            final,
            flags=run.assembled.flags.get(self.name, ()),
            source=self.source,
            cell_id="" if index is None else run.code[index].id,
        )
        run.results.append(result)
        self.user_properties += junit_properties(result).items()
        if result.state != "passed":
            pytest.fail(result.report, pytrace=False)

    def _score(self) -> ExerciseResult:
        run = self.parent.run
        try:
            kernel = self.parent.living_kernel(range(len(run.code)))
        except KernelEnded as ended:
            state, reason = run.failures.get(run.cell_of(self.name)) or _not_checked(ended)
            return ExerciseResult.without_points(self.exercise, state, f"`{self.name}` was not scored: {reason}.")
        if run.seconds_left() <= 0:
            report = "The notebook reached its time limit before this could be scored."
            return ExerciseResult.without_points(self.exercise, "timed out", report)
        return self._score_in(kernel)

    def _score_in(self, kernel: Kernel) -> ExerciseResult:
        run = self.parent.run
        seconds = min(run.limits.exercise_seconds, run.seconds_left())
        failure = run.failures.get(run.cell_of(self.name))
        try:
            return score(kernel, self.exercise, run.seed, run.revealed, seconds, self.source, failure)
        except Exception as error:
            report = f"The grader failed ({type(error).__name__}). This isn't your fault."
            return ExerciseResult.without_points(self.exercise, "grader error", report)

    def _score_where_checked(self) -> ExerciseResult | None:
        """Score the exercise right after its check if a later cell redefines one of the names involved.

        A later `from torch.nn.functional import softmax` replaces the student's function, but the student would not
        notice, because the check has passed.
        """
        run, exercise = self.parent.run, self.exercise
        index = run.check_of(exercise.name)
        names = {exercise.name, *(name for name in exercise.builds_on if run.check_of(name) is not None)}
        later = [names_of(cell.source) for cell in run.code[index + 1 :]] if index is not None else []
        redefined = {name for cell in later for name in (names if "*" in cell.imports else names & cell.binds)}
        if not redefined or run.seconds_left() <= 0:
            return None
        try:
            kernel = run.kernel_after(range(index))
        except Exception:  # the cells kill every kernel, or none can be started
            return None
        try:
            checked = self._score_in(kernel)
        finally:
            kernel.stop()
        meanings = ", ".join(f"`{name}`" for name in sorted(redefined))
        remark = f"A later cell redefines {meanings}. The version that counts is the one that the notebook's check saw."
        return replace(checked, remarks=(*checked.remarks, remark))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.exercise.name
