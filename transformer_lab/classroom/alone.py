"""One submission by itself, for a pytest that somebody else has started."""

import secrets
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transformer_lab.classroom.assemble import NotGradable, assemble
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.graded import Run, Setting
from transformer_lab.classroom.kernels import ZygoteError, Zygotes
from transformer_lab.classroom.limits import Limits
from transformer_lab.classroom.running import assembled_file, readable_package
from transformer_lab.classroom.sandbox import why_no_sandbox
from transformer_lab.classroom.submissions import collect
from transformer_lab.classroom.temporary_folders import temporary_folder
from transformer_lab.errors import InputError
from transformer_lab.files import on_screen


@contextmanager
def alone(file: str) -> Iterator[tuple[Run, Path]]:
    """What grades the notebook in `file`, and the path of the notebook that was assembled from it.

    Raises:
        InputError: it is no notebook of the course, or no kernel can be started.
    """
    course = Course.find()
    submissions = list(collect([Path(file)]))
    if len(submissions) != 1:
        raise InputError(f"{on_screen(file)}: one notebook is to be given, there are {len(submissions)}")
    try:
        assembled = assemble(submissions[0], course)
    except NotGradable as error:
        raise InputError(f"{on_screen(file)} cannot be graded: {on_screen(str(error))}") from None
    why = why_no_sandbox()
    if why:
        warnings.warn(f"the submission runs without a sandbox: {why}", stacklevel=1)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        zygotes = Zygotes(folder)
        stack.callback(zygotes.close)
        package = readable_package(folder / "p", assembled.name)
        try:
            source = zygotes.notebook("z", package)
        except ZygoteError as error:
            raise InputError(str(error)) from None
        work = folder / "w"
        work.mkdir()
        setting = Setting(source, package, work, not why, Limits(), secrets.randbits(31) + 1)
        run = Run(assembled, course.exercises(assembled.name), setting)
        yield run, assembled_file(run)


def lines(run: Run) -> list[str]:
    """A line for each exercise, and one for all."""
    found = [
        f"{result.exercise:<32} {result.state:<14} {result.earned:g} of {result.possible:g}" for result in run.results
    ]
    earned, possible = (sum(getattr(result, name) for result in run.results) for name in ("earned", "possible"))
    return [
        *found,
        *(f"Remark: {on_screen(remark)}" for remark in run.assembled.remarks),
        f"{earned:g} of {possible:g} points",
    ]
