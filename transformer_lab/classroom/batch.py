"""Grade a whole class: collect the submissions, save each result as it arrives, and write the reports."""

import fcntl
import hashlib
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path
from typing import Protocol

from transformer_lab.classroom.assemble import Assembled, NotGradable, assemble
from transformer_lab.classroom.corrections import CORRECTIONS, read_corrections, without_effect
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.exports import moodle_numbers
from transformer_lab.classroom.gradebook import (
    ABSENT,
    TIME_IS_UP,
    UNGUARDED,
    Entry,
    Gradebook,
    GradingRun,
    by_student,
    grader_failed,
    source_digest,
)
from transformer_lab.classroom.reports import EarlyReports, write_reports
from transformer_lab.classroom.resource_limits import STUDENT_SECONDS, Limits
from transformer_lab.classroom.results import (
    GRADEBOOK,
    ExerciseResult,
    SubmissionResult,
    require_gradebook,
    without_points,
)
from transformer_lab.classroom.roster import Attendance, read_roster
from transformer_lab.classroom.submissions import Submission, collect, printable
from transformer_lab.errors import InputError
from transformer_lab.exercises.registry import find_exercise
from transformer_lab.files import writing
from transformer_lab.plural import plural

PACKAGE = "transformer-lab"

Key = tuple[str, str]  # student and digest of a submission


class Grading(Protocol):
    """A grader: `grader.Grader` on this machine, or `cluster.ClusterGrader` on a cluster."""

    sandboxed: bool

    def grade(
        self, assembled: Iterable[Assembled], only: str | None = None, while_waiting: Callable[[], None] = ...
    ) -> Iterator[SubmissionResult]: ...


OpenGrader = Callable[[int, Course], AbstractContextManager[Grading]]  # takes a run's secret seed and opens a grader


@dataclass(frozen=True)
class Change:
    """An exercise before and after it was regraded."""

    student: str
    notebook: str
    before: ExerciseResult
    after: ExerciseResult

    @property
    def differs(self) -> bool:
        def outcome(result: ExerciseResult) -> tuple:
            return result.state, round(result.earned, 6), result.possible, result.misconceptions

        return outcome(self.before) != outcome(self.after)


@dataclass(frozen=True)
class BatchResult:
    """The outcome of a run."""

    entries: list[Entry]  # all results that count, from this run or earlier ones
    graded: int  # submissions graded in this run
    kept: int  # submissions that were graded in earlier runs
    written: list[Path]
    warnings: list[str]
    refused: int = 0  # submissions in this run that could not be graded


def grader_for(jobs: int | None, require_sandbox: bool, cluster: str | None) -> OpenGrader:
    """Return a function that opens a grader. If `cluster` is an address, the grader runs on the cluster there."""

    def open_grader(seed: int, course: Course) -> AbstractContextManager[Grading]:
        if cluster:
            from transformer_lab.classroom.cluster import cluster_grader

            return cluster_grader(cluster, require_sandbox, seed)
        from transformer_lab.classroom.grader import Grader

        return Grader(jobs=jobs, require_sandbox=require_sandbox, seed=seed, course=course)

    return open_grader


def grade_batch(
    paths: Sequence[Path],
    out: Path,
    open_grader: OpenGrader,
    course: Course | None = None,
    resume: bool = False,
    roster: Path | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> BatchResult:
    """Grade submissions, and write the gradebook and all reports into `out`. See `EarlyReports` for when.

    Submissions already graded by this version of the package are graded again only if they have changed.

    Args:
        paths: Files, folders, and zips. Can be empty if `resume` is True.
        out: A new folder, or one that contains a gradebook.
        open_grader: See `grader_for`.
        course: The course notebooks; by default, those in the checkout.
        resume: Continue the last run with the same paths. If that run was interrupted, also reuse its secret seed. If
            other paths are given, start a new run with them.
        roster: A file for `read_roster`; by default, the roster of an earlier run is reused.
        advance: Called with the number of submissions done and the total number.

    Raises:
        InputError: There is nothing to grade, `out` cannot be used, or the grader cannot be started.
    """
    course = course or Course.find()
    people = read_roster(roster) if roster else None
    if resume:
        require_gradebook(out, "--resume")
    submissions = _collect(paths) if paths or not resume else []
    with _opened(out, paths) as (out, book):
        last = _last_run(book, out)
        if resume and not paths:
            paths = [Path(path) for path in last.paths] if last else []
            submissions = _collect(paths)
        continues = resume and last and last.finished is None and last.paths == _absolute(paths)
        run = last if continues else _begin(book, secrets.randbits(62), paths)
        if people is not None:
            book.save_roster(people)
        before = {(entry.student, entry.notebook): entry for entry in book.entries()}
        keys = _keys(submissions, run.version)
        book.record_submissions(run, [(*key, submission.path) for key, submission in keys])
        done = book.final_results()
        todo = {key: submission for key, submission in keys if key not in done}
        advance(0, len(todo))
        refused = 0
        readable = any(not submission.problem for submission in todo.values())
        early = EarlyReports(out, book, course, todo)
        try:
            with open_grader(run.seed, course) if readable else nullcontext() as grader:
                if grader:
                    book.record_sandbox(run, grader.sandboxed)
                results = _grade_all(todo, grader, course, while_waiting=early.write_while_waiting)
                for count, result in enumerate(results, start=1):
                    book.save(run, result)
                    refused += bool(result.problem)
                    advance(count, len(todo))
                    early.add(result)
                if grader:
                    book.record_sandbox(run, grader.sandboxed)  # a machine without one may have joined the cluster
        except KeyboardInterrupt:
            early.write()
            raise
        book.finish(run)
        entries, present, written = write_reports(out, book, course)
        warnings = [*_warnings(entries, run, out), *_lost_points(book.entries(), before), *_roster_warnings(present)]
        return BatchResult(entries, len(todo), len(submissions) - len(todo), written, warnings, refused)


def regrade_exercise(
    paths: Sequence[Path],
    out: Path,
    exercise: str,
    open_grader: OpenGrader,
    approve: Callable[[list[Change]], bool],
    course: Course | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> BatchResult | None:
    """Regrade one exercise in all previously graded submissions.

    `approve` is called with all changes before anything is written. If it returns False, nothing is written and the
    result is None. By default, `paths` are all paths from earlier runs that still exist. See `grade_batch` for the
    other arguments.

    Raises:
        InputError: Raised for the same reasons as in `grade_batch`. Also raised if the exercise does not exist, or if
            no graded submission includes it.
    """
    find_exercise(exercise)
    course = course or Course.find()
    require_gradebook(out, "--only")
    with _opened(out, paths) as (out, book):
        _last_run(book, out)
        # Each run is collected separately, because the names given to namesakes depend on who else is in the run.
        runs = [paths] if paths else [filter(Path.exists, map(Path, given)) for given in book.paths_of_runs()]
        submissions = [submission for given in runs for submission in collect(list(given))]
        before = {
            key: result
            for key, result in book.results_of_last_runs().items()
            if any(graded.exercise == exercise for graded in result.exercises)
        }
        keys = dict(_keys(submissions, version(PACKAGE)))
        todo = {key: submission for key, submission in keys.items() if key in before}
        if not todo:
            raise InputError(
                f"none of the {len(keys)} submissions was graded with the exercise `{exercise}`",
                parameter="exercise",
            )
        advance(0, len(todo))
        regraded = []
        seed = secrets.randbits(62)
        with open_grader(seed, course) as grader:
            for count, result in enumerate(_grade_all(todo, grader, course, exercise), start=1):
                regraded.append(_with_regraded(before[result.student, result.digest], result, exercise))
                advance(count, len(todo))
            sandboxed = grader.sandboxed
        changes = [change for change, _ in regraded]
        if not approve(sorted(changes, key=lambda c: (c.student.casefold(), c.student, c.notebook))):
            return None
        sandboxed_before = all(entry.sandboxed for entry in book.entries())
        run = _begin(book, seed, paths, only=exercise)
        book.record_sandbox(run, sandboxed and sandboxed_before)
        for _, result in regraded:
            if not grader_failed(result):
                book.save(run, result)
        book.finish(run)
        entries, _, written = write_reports(out, book, course)
        warnings = _warnings(entries, run, out)
        graded = book.final_results().keys()
        if new := keys.keys() - graded:
            warnings.append(
                f"{plural(len(new), 'new or changed submission')} left out: grade without --only to include them"
            )
        if missing := sorted({result.student for key, result in before.items() if key not in todo}):
            where = "in the given paths" if paths else "where they were"
            warnings.append(f"the results of {_shortened(missing)} are unchanged, because their files are not {where}")
        return BatchResult(entries, len(todo), len(keys.keys() & graded - todo.keys()), written, warnings)


def _with_regraded(whole: SubmissionResult, regraded: SubmissionResult, name: str) -> tuple[Change, SubmissionResult]:
    """Return how an exercise changed, and a copy of `whole` with the new result of that exercise."""
    old = next(exercise for exercise in whole.exercises if exercise.exercise == name)
    failed = replace(old, state="grader error", earned=0.0, report=regraded.problem)
    new = next((exercise for exercise in regraded.exercises if exercise.exercise == name), failed)
    exercises = tuple(new if exercise is old else exercise for exercise in whole.exercises)
    return Change(whole.student, whole.notebook, old, new), replace(whole, exercises=exercises)


def _begin(book: Gradebook, seed: int, paths: Sequence[Path], only: str = "") -> GradingRun:
    return book.begin(version(PACKAGE), source_digest(), seed, _absolute(paths), only)


def _absolute(paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(map(os.path.abspath, paths))


def _keys(submissions: Sequence[Submission], package_version: str) -> list[tuple[Key, Submission]]:
    """Pair each submission with its student and digest. The digest depends on the content and the version."""

    def digest(submission: Submission) -> str:
        parts = [package_version.encode(), submission.problem.encode(errors="surrogatepass"), submission.content]
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()

    return [((submission.student, digest(submission)), submission) for submission in submissions]


@contextmanager
def _opened(out: Path, paths: Sequence[Path]) -> Iterator[tuple[Path, Gradebook]]:
    """Yield the folder (with links resolved) and its gradebook. Other runs are locked out in the meantime."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose a folder for the grades")
    out = out.resolve()
    for path in paths:
        if path.is_dir() and out.is_relative_to(path.resolve()):
            raise InputError(f"{out} is inside the submissions: choose another folder for the grades")
    if out.is_dir() and not (out / GRADEBOOK).exists():
        strangers = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith("."))
        if strangers:
            raise InputError(f"{out} contains other files ({strangers[0]}) but no gradebook: choose a new folder")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / ".grading", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(lock, "rb"):  # closing the file releases the lock
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a forked worker does not inherit this kind of lock
        except OSError:
            raise InputError(f"another run is writing to {out}: wait for it, or choose another folder") from None
        read_corrections(out)  # reports a mistake in them before anything is graded
        yield out, Gradebook(out / GRADEBOOK)


def _last_run(book: Gradebook, out: Path) -> GradingRun | None:
    last = book.last_run()
    if last and last.version != version(PACKAGE):
        raise InputError(
            f"{out} was graded by transformer-lab {last.version}, but this is {version(PACKAGE)}: "
            "choose another folder, so that everyone is graded by the same version"
        )
    return last


def _collect(paths: Sequence[Path]) -> list[Submission]:
    submissions = collect(paths)
    if not submissions:
        where = f"no notebooks in {', '.join(map(str, paths))}" if paths else "nothing to grade"
        raise InputError(f"{where}: give files, folders, or zips with submissions")
    return submissions


# --- grading ---------------------------------------------------------------------------------------------------------


def _grade_all(
    todo: dict[Key, Submission],
    grader: Grading | None,
    course: Course,
    only: str | None = None,
    while_waiting: Callable[[], None] = lambda: None,
) -> Iterator[SubmissionResult]:
    """Yield a result for each submission, even if some of them crash the grader.

    Students take turns: everyone's first file is started before anyone's second file. That way, a student with many
    files does not delay the others. A file waits as long as its student's running files could still use up all of
    the student's time. Otherwise, more parallel jobs would mean more time for a student.
    """
    waiting = _in_turn(todo)
    seconds_spent: Counter[str] = Counter()  # per student
    refused: list[SubmissionResult] = []
    running: dict[Key, Assembled] = {}

    def may_start(key: Key) -> bool:
        count = sum(student == key[0] for student, _ in running)
        return not count or seconds_spent[key[0]] + count * Limits.submission_seconds < STUDENT_SECONDS

    def assembled() -> Iterator[Assembled]:
        while key := next(filter(may_start, waiting), None):
            waiting.remove(key)
            (student, digest), submission, began = key, todo[key], time.monotonic()
            is_late = seconds_spent[student] >= STUDENT_SECONDS and not submission.problem
            notebook = TIME_IS_UP if is_late else _assembled(submission, course)
            seconds_spent[student] += time.monotonic() - began
            if isinstance(notebook, str):
                refused.append(SubmissionResult(student, "", digest, (), problem=notebook))
            else:
                running[key] = replace(notebook, digest=digest)
                yield running[key]

    while waiting:  # repeat if every remaining file had to wait until its student's running files finished
        notebooks = assembled()
        for result in grader.grade(notebooks, only, while_waiting) if grader else ():
            seconds_spent[result.student] += result.seconds
            if running.pop((result.student, result.digest), None):
                yield result
            while refused:
                yield refused.pop()
        for _ in notebooks:  # assemble the submissions that the grader did not ask for
            pass
        while refused:
            yield refused.pop()
        while running:  # the grader lost these, so the next run grades them again
            _, notebook = running.popitem()
            yield without_points(notebook, course.exercises(notebook.name), "grader error")


def _in_turn(keys: Iterable[Key]) -> list[Key]:
    """Return everyone's first file, then everyone's second file, and so on."""
    files: defaultdict[str, list[Key]] = defaultdict(list)  # per student
    for key in keys:
        files[key[0]].append(key)
    return list(filter(None, chain.from_iterable(zip_longest(*files.values()))))


def _assembled(submission: Submission, course: Course) -> Assembled | str:
    """Return the assembled notebook. If the submission cannot be assembled, return the reason instead."""
    try:
        return assemble(submission, course)
    except NotGradable as reason:
        return str(reason)
    except Exception as error:  # a bug in the grader must not stop the other submissions
        return f"the grader could not assemble it ({type(error).__name__}: {error})"


# --- warnings --------------------------------------------------------------------------------------------------------


def _warnings(entries: Sequence[Entry], run: GradingRun, out: Path) -> list[str]:
    unguarded = sum(not entry.sandboxed for entry in entries)
    failed = sum(grader_failed(entry.result) for entry in entries)
    older = sum(entry.sources != run.sources for entry in entries if entry.result.exercises)
    late = sorted({entry.student for entry in entries if entry.result.problem == TIME_IS_UP})
    shared = [" and ".join(names) for names in moodle_numbers(by_student(entries)).values() if len(names) > 1]
    lost = without_effect(read_corrections(out), entries)
    warnings = (
        (unguarded, f"{plural(unguarded, 'submission')} {UNGUARDED}: the code ran with your permissions"),
        (failed, f"the grader failed on {plural(failed, 'submission')}: grade again; nothing else is repeated"),
        (
            older,
            f"{plural(older, 'submission')} graded before the package changed: the points stay as they are; "
            "--only EXERCISE regrades one exercise, and a new --output folder regrades everything",
        ),
        (late, f"time ran out for {_shortened(late)}: grade again to run their other files"),
        (
            shared,
            "moodle_feedback.zip has no page for students who share a Moodle number: "
            + _shortened(shared, separator="; "),
        ),
        (lost, f"{CORRECTIONS} corrects results that are not in the gradebook: {_shortened(lost, separator='; ')}"),
    )
    return [text for applies, text in warnings if applies]


def _lost_points(entries: Sequence[Entry], before: dict[tuple[str, str], Entry]) -> list[str]:
    """Return a warning about students who lost points because they submitted a different file this time."""
    lower = [
        f"{entry.student} ({entry.notebook}, {earlier.result.earned:g} -> {entry.result.earned:g})"
        for entry in entries
        if (earlier := before.get((entry.student, entry.notebook)))
        and earlier.result.digest != entry.result.digest
        and entry.result.earned < earlier.result.earned
    ]
    return [f"fewer points than before, because the last run's files count: {_shortened(lower)}"] if lower else []


def _roster_warnings(present: Attendance) -> list[str]:
    absent = [f"{person} or a namesake" if person in present.namesakes else person for person in present.absent]
    groups = (
        (f"{ABSENT}: {len(absent)} of the {plural(present.listed, 'student')} on the roster", absent),
        (f"not on the roster: {plural(len(present.unlisted), 'student')}", present.unlisted),
        ("matched by number, even though the name differs", present.doubtful),
    )
    warnings = [f"{title}: {_shortened(people, separator='; ')}" for title, people in groups if people]
    if present.is_of_others:
        warnings.append("hardly anyone on the roster was found: is it the roster of this class and this assignment?")
    return warnings


def _shortened(names: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(printable(name, 200) for name in names[:most]) + more
