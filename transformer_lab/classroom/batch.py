"""A whole class: what was handed in is graded, one result after the other is kept, and the reports are written."""

import fcntl
import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from transformer_lab.classroom.assemble import Assembled, NotGradable, assemble
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.exports import moodle_numbers
from transformer_lab.classroom.gradebook import (
    ABSENT,
    TIME_IS_UP,
    UNGUARDED,
    Entry,
    Gradebook,
    Run,
    by_student,
    failed_itself,
    source_digest,
)
from transformer_lab.classroom.reports import write_reports
from transformer_lab.classroom.resource_limits import STUDENT_SECONDS
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.classroom.roster import Attendance, read_roster
from transformer_lab.classroom.submissions import Submission, collect, printable
from transformer_lab.errors import InputError
from transformer_lab.exercises.registry import find_exercise
from transformer_lab.files import writing
from transformer_lab.plural import plural

PACKAGE = "transformer-lab"
GRADER_ERROR = "grader error"


class Grading(Protocol):
    """What grades: `grader.Grader` on this machine, `cluster.ClusterGrader` on several."""

    sandboxed: bool

    def grade(self, assembled: Iterable[Assembled], only: str | None = None) -> Iterator[SubmissionResult]: ...


OpenGrader = Callable[[int, Course], AbstractContextManager[Grading]]  # from the secret seed of a run


@dataclass(frozen=True)
class Change:
    """What grading one exercise anew gave."""

    student: str
    notebook: str
    before: ExerciseResult
    after: ExerciseResult

    @property
    def differs(self) -> bool:
        def mark(result: ExerciseResult) -> tuple:
            return result.state, round(result.earned, 6), result.misconceptions

        return mark(self.before) != mark(self.after)


@dataclass(frozen=True)
class BatchResult:
    """What a run came to."""

    entries: list[Entry]  # what counts now, of this run and of those before
    graded: int  # submissions of this run
    kept: int  # submissions that had been graded before, and are as they were
    written: list[Path]
    warnings: list[str]
    changes: tuple[Change, ...] = ()  # of a run of one exercise
    refused: int = 0  # of the submissions of this run, what could not be graded


def grader_for(jobs: int | None, require_sandbox: bool, cluster: str | None) -> OpenGrader:
    """How to open the grader that was asked for. Nothing is started yet."""
    if cluster:
        from transformer_lab.classroom.cluster import ClusterGrader

        return lambda seed, course: ClusterGrader(cluster, require_sandbox, seed)
    return partial(_local_grader, jobs, require_sandbox)


def _local_grader(
    jobs: int | None, require_sandbox: bool, seed: int, course: Course
) -> AbstractContextManager[Grading]:
    from transformer_lab.classroom.grader import Grader

    return Grader(jobs=jobs, require_sandbox=require_sandbox, seed=seed, course=course)


def grade_batch(
    paths: Sequence[Path],
    out: Path,
    open_grader: OpenGrader,
    course: Course | None = None,
    resume: bool = False,
    roster: Path | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> BatchResult:
    """Grade what was handed in and write the gradebook and all reports into `out`.

    What was graded before, by this version of the package, and has not changed is not graded again.

    Args:
        paths: Files, folders and zips; with `resume` they may be left out.
        out: A new folder, or one that holds a gradebook.
        open_grader: As `grader_for` gives it.
        course: Where the canonical notebooks come from; without, the checkout of the package.
        resume: Go on with the last run: with its paths, and with its secret seed where it was interrupted.
        roster: A list of the class, as `read_roster` reads it; without, the one of an earlier run into `out`.
        advance: Is told how many submissions are done, of how many.

    Raises:
        InputError: There is nothing to grade, `out` cannot be used, or the grader cannot be started.
    """
    course = course or Course.find()
    people = read_roster(roster) if roster else None
    if resume:
        _must_hold_gradebook(out, "--resume")
    submissions = _collect(paths) if paths or not resume else []
    with _opened(out, paths) as (out, book):
        last = _last_run(book, out)
        if resume and not paths:
            paths = [Path(path) for path in last.paths] if last else []
            submissions = _collect(paths)
        if resume and last and last.finished is None:
            run = last
        else:
            run = book.begin(version(PACKAGE), source_digest(), secrets.randbits(62), list(map(os.path.abspath, paths)))
        if people is not None:
            book.note_roster(people)
        before = {(entry.student, entry.notebook): entry for entry in book.entries()}
        digests = [digest_of(submission, run.version) for submission in submissions]
        of_submission = list(zip(submissions, digests, strict=True))
        book.hand_in(run, [(submission.student, digest, submission.path) for submission, digest in of_submission])
        done = book.kept()
        todo = {(s.student, digest): s for s, digest in of_submission if (s.student, digest) not in done}
        advance(0, len(todo))
        refused = 0
        if todo:
            readable = any(not submission.problem for submission in todo.values())
            with open_grader(run.seed, course) if readable else nullcontext() as grader:
                if readable:
                    book.note_sandbox(run, grader.sandboxed)
                for count, result in enumerate(_grade_all(todo, grader, course), start=1):
                    book.save(run, result)
                    refused += bool(result.problem)
                    advance(count, len(todo))
                if readable:
                    book.note_sandbox(run, grader.sandboxed)  # a machine may have joined that has none
        book.finish(run)
        entries, found, written = write_reports(out, book, course)
        warnings = [*_warnings(entries, run), *_less_than_before(entries, before), *_about_the_list(found)]
        return BatchResult(entries, len(todo), len(submissions) - len(todo), written, warnings, refused=refused)


def regrade_exercise(
    paths: Sequence[Path],
    out: Path,
    exercise: str,
    open_grader: OpenGrader,
    approve: Callable[[list[Change]], bool],
    course: Course | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> BatchResult | None:
    """Grade one exercise anew in all that was graded before, and keep the results if `approve` says so.

    Args:
        paths: Files, folders and zips; where none is given, those of all runs, as far as they are still there.
        out: The folder of the gradebook.
        exercise: Its name.
        open_grader: As `grader_for` gives it.
        approve: Is shown what was found, before anything is written.
        course: As in `grade_batch`.
        advance: As in `grade_batch`.

    Returns:
        The outcome; None where it was not approved, and nothing was written.

    Raises:
        InputError: As `grade_batch`, or there is no such exercise, or nobody handed it in.
    """
    find_exercise(exercise)
    course = course or Course.find()
    _must_hold_gradebook(out, "--only")
    with _opened(out, paths) as (out, book):
        _last_run(book, out)
        # Each run apart: in which of them two students of one name met decides what they are called.
        of_runs = [paths] if paths else [[Path(path) for path in given] for given in book.paths_of_runs()]
        submissions = [one for given in of_runs for one in collect(given if paths else filter(Path.exists, given))]
        done = {
            key: result
            for key, result in book.that_may_count().items()
            if any(one.exercise == exercise for one in result.exercises)
        }
        keys = [(submission.student, digest_of(submission, version(PACKAGE))) for submission in submissions]
        todo = {key: submission for key, submission in zip(keys, submissions, strict=True) if key in done}
        if not todo:
            raise InputError(f"none of the {len(submissions)} submissions was graded with the exercise `{exercise}`")
        advance(0, len(todo))
        changes, merged = [], []
        seed = secrets.randbits(62)
        with open_grader(seed, course) as grader:
            for count, result in enumerate(_grade_all(todo, grader, course, exercise), start=1):
                before = done[result.student, result.digest]
                old = next(old for old in before.exercises if old.exercise == exercise)
                new = [new for new in result.exercises if new.exercise == exercise]
                after = new[0] if new else replace(old, state=GRADER_ERROR, earned=0.0, report=result.problem)
                changes.append(Change(before.student, before.notebook, old, after))
                exercises = tuple(after if each is old else each for each in before.exercises)
                merged.append(replace(before, exercises=exercises))
                advance(count, len(todo))
            guarded = grader.sandboxed
        changes.sort(key=lambda change: (change.student.casefold(), change.student, change.notebook))
        if not approve(changes):
            return None
        guarded_before = all(entry.sandboxed for entry in book.entries())
        run = book.begin(version(PACKAGE), source_digest(), seed, list(map(os.path.abspath, paths)), only=exercise)
        book.note_sandbox(run, guarded and guarded_before)
        for result in merged:
            if not failed_itself(result):
                book.save(run, result)
        book.finish(run)
        entries, _, written = write_reports(out, book, course)
        warnings = _warnings(entries, run)
        if new := set(keys) - book.kept().keys():
            warnings.append(f"left out, because new or changed: {plural(len(new), 'submission')}; grade without --only")
        if missed := sorted({done[key].student for key in done.keys() - todo.keys()}):
            warnings.append(
                f"the answers of {_shortened(missed)} are as they were, because their files are "
                + ("not in the paths given" if paths else "not where they were")
            )
        return BatchResult(entries, len(todo), len(set(keys) - todo.keys()), written, warnings, tuple(changes))


def digest_of(submission: Submission, package_version: str) -> str:
    """What tells whether a submission has to be graded again: its content, and the version of the package."""
    parts = [package_version.encode(), submission.problem.encode(errors="surrogatepass"), submission.content]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


@contextmanager
def _opened(out: Path, paths: Sequence[Path]) -> Iterator[tuple[Path, Gradebook]]:
    """The folder, without links, and its gradebook; no other run writes there meanwhile."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: give a folder for the grades")
    out = out.resolve()
    for path in paths:
        if path.is_dir() and out.is_relative_to(path.resolve()):
            raise InputError(f"{out} lies in what was handed in: choose another folder for the grades")
    if out.is_dir() and not (out / "gradebook.sqlite").exists():
        strangers = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith("."))
        if strangers:
            raise InputError(f"{out} holds other files ({strangers[0]}) and no gradebook: choose a new folder")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / ".grading", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a forked worker does not inherit it
        except OSError:
            raise InputError(f"another run is writing into {out}: wait for it, or choose another folder") from None
        yield out, Gradebook(out / "gradebook.sqlite")
    finally:
        os.close(lock)


def _last_run(book: Gradebook, out: Path) -> Run | None:
    last = book.last_run()
    if last and last.version != version(PACKAGE):
        raise InputError(
            f"{out} was graded by transformer-lab {last.version}, and this is {version(PACKAGE)}: "
            "choose another folder, so that all are graded alike"
        )
    return last


def _must_hold_gradebook(out: Path, option: str) -> None:
    if not (out / "gradebook.sqlite").exists():
        raise InputError(f"{out} holds no gradebook: grade into it without {option} first")


def _collect(paths: Sequence[Path]) -> list[Submission]:
    submissions = collect(paths)
    if not submissions:
        where = f"no notebooks in {', '.join(map(str, paths))}" if paths else "nothing to grade"
        raise InputError(f"{where}: give files, folders or zips with what was handed in")
    return submissions


def _grade_all(
    todo: dict[tuple[str, str], Submission], grader: Grading | None, course: Course, only: str | None = None
) -> Iterator[SubmissionResult]:
    """A result for each submission, whatever happens to one of them.

    Students take turns, the first file of each and then the second, so that nobody waits for all files of another.
    """
    files: Counter[str] = Counter()
    turns = {}
    for student, digest in todo:
        files[student] += 1
        turns[student, digest] = files[student]
    pending = {key: todo[key] for key in sorted(todo, key=turns.__getitem__)}
    spent: Counter[str] = Counter()  # seconds of each student
    while pending:
        pending = yield from _grade_one_each(pending, grader, course, only, spent)


def _grade_one_each(
    pending: dict[tuple[str, str], Submission],
    grader: Grading | None,
    course: Course,
    only: str | None,
    spent: Counter[str],
) -> Generator[SubmissionResult, None, dict[tuple[str, str], Submission]]:
    """The same for the first file of each student for each notebook, by which results are known. Returns the others."""
    later: dict[tuple[str, str], Submission] = {}
    waiting: dict[tuple[str, str], str] = {}  # digests of what the grader has
    seen: set[tuple[str, str]] = set()
    unassembled: list[SubmissionResult] = []

    def assembled() -> Iterator[Assembled]:
        for (student, digest), submission in pending.items():
            if spent[student] >= STUDENT_SECONDS and not submission.problem:
                unassembled.append(SubmissionResult(student, "", digest, (), problem=TIME_IS_UP))
                continue
            began = time.monotonic()
            try:
                try:
                    built = assemble(submission, course)
                finally:
                    spent[student] += time.monotonic() - began
            except NotGradable as reason:
                unassembled.append(SubmissionResult(student, "", digest, (), problem=str(reason)))
            except Exception as error:  # ours: it must not stop the others
                problem = f"the grader could not assemble it ({type(error).__name__}: {error})"
                unassembled.append(SubmissionResult(student, "", digest, (), problem=problem))
            else:
                if (student, built.name) in seen:
                    later[student, digest] = submission
                else:
                    seen.add((student, built.name))
                    waiting[student, built.name] = digest
                    yield built

    stream = assembled()
    for result in grader.grade(stream, only) if grader else ():
        spent[result.student] += result.seconds
        digest = waiting.pop((result.student, result.notebook), None)
        if digest is not None:  # otherwise it has had its result
            yield replace(result, digest=digest)
        while unassembled:
            yield unassembled.pop()
    for _ in stream:  # what the grader did not ask for
        pass
    yield from unassembled
    for (student, name), digest in waiting.items():
        yield _lost(student, name, digest, course)
    return later


def _lost(student: str, name: str, digest: str, course: Course) -> SubmissionResult:
    """A submission that the grader gave no result for: nobody's points are lost, it is graded again next time."""
    exercises = tuple(
        ExerciseResult(exercise.name, GRADER_ERROR, 0.0, exercise.points) for exercise in course.exercises(name)
    )
    return SubmissionResult(student, name, digest, exercises)


def _warnings(entries: Sequence[Entry], run: Run) -> list[str]:
    unguarded = sum(not entry.sandboxed for entry in entries)
    failed = sum(failed_itself(entry.result) for entry in entries)
    older = sum(entry.sources != run.sources for entry in entries)
    late = sorted({entry.student for entry in entries if entry.result.problem == TIME_IS_UP})
    shared = [" and ".join(names) for names in moodle_numbers(by_student(entries)).values() if len(names) > 1]
    return [
        *([f"{plural(unguarded, 'submission')} {UNGUARDED}: their code ran with your rights"] if unguarded else []),
        *(
            [f"the grader failed on {plural(failed, 'submission')}: grade again, nothing else is repeated"]
            * bool(failed)
        ),
        *(
            [
                f"the package has changed since {plural(older, 'submission')} were graded, and they keep their points: "
                "--only EXERCISE grades one exercise anew, another --out folder grades all"
            ]
            if older
            else []
        ),
        *([f"the time was up for {_shortened(late)}: grade again, and their other files are run"] * bool(late)),
        *(
            [
                "several names have the same Moodle number, so moodle_feedback.zip has no page for them: "
                + _shortened(shared, between="; ")
            ]
            * bool(shared)
        ),
    ]


def _less_than_before(entries: Sequence[Entry], before: dict[tuple[str, str], Entry]) -> list[str]:
    """Who has fewer points for a notebook because another file was handed in, or an older one graded once more."""
    lower = [
        f"{entry.student} ({entry.notebook}, {earlier.result.earned:g} -> {entry.result.earned:g})"
        for entry in entries
        if (earlier := before.get((entry.student, entry.notebook)))
        and earlier.result.digest != entry.result.digest
        and entry.result.earned < earlier.result.earned
    ]
    if not lower:
        return []
    return [f"fewer points than before, because the files of the last run count: {_shortened(lower)}"]


def _about_the_list(found: Attendance) -> list[str]:
    absent = [f"{person} or a namesake" if person in found.namesakes else person for person in found.absent]
    named = (
        (f"{ABSENT}: {len(absent)} of the {plural(found.listed, 'student')} on the list", absent),
        (f"not on the list of the class: {plural(len(found.unlisted), 'student')}", found.unlisted),
        ("found by the number, but not by the name", found.doubtful),
    )
    said = [f"{what}: {_shortened(students, between='; ')}" for what, students in named if students]
    of_others = ["hardly anybody on the list was found: is it the list of this class, and of this assignment?"]
    return said + of_others * found.is_of_others


def _shortened(names: Sequence[str], most: int = 10, between: str = ", ") -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(printable(name, 200) for name in names[:most]) + more
