"""Grade a single submission in a pytest session that is already running."""

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_lab.classroom.assemble import NotGradable, assemble
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.kernel_client import preload
from transformer_lab.classroom.pytest_items import SubmissionRun
from transformer_lab.classroom.resource_limits import Limits
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.classroom.stubbed_package import write_stubbed_package
from transformer_lab.classroom.submissions import collect
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.errors import InputError
from transformer_lab.files import on_screen


@contextmanager
def single_submission(file: str) -> Iterator[tuple[SubmissionRun, Path]]:
    """Yield the plug-in that grades the notebook in `file`, and the path of the notebook assembled from it.

    Raises:
        InputError: The file is not one of the course's notebooks.
    """
    course = Course.find()
    submissions = list(collect([Path(file)]))
    if len(submissions) != 1:
        raise InputError(f"{on_screen(file)}: expected one notebook, found {len(submissions)}")
    try:
        assembled = assemble(submissions[0], course)
    except NotGradable as error:
        raise InputError(f"{on_screen(file)} cannot be graded: {on_screen(str(error))}") from None
    why = why_no_sandbox()
    if why:
        warnings.warn(f"the submission runs without a sandbox: {why}", stacklevel=1)
    with temporary_folder() as folder:
        preload()
        write_stubbed_package(folder / "p", [assembled.name])
        work = folder / "w"
        work.mkdir()
        exercises, seed = course.exercises(assembled.name), secrets.randbits(62) + 1
        run = SubmissionRun(assembled, exercises, folder / "p", work, not why, Limits(), seed)
        yield run, run.written_notebook()


def summary_lines(run: SubmissionRun) -> list[str]:
    """Return a line for each exercise and remark, and one for the total."""
    earned = sum(result.earned for result in run.results)
    possible = sum(result.possible for result in run.results)
    return [
        *(f"{score.exercise:<32} {score.state:<14} {score.earned:g} of {score.possible:g}" for score in run.results),
        *(f"Remark: {on_screen(remark)}" for remark in run.assembled.remarks),
        f"{earned:g} of {possible:g} points",
    ]
