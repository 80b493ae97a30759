"""The gradebook: all results of all runs in `gradebook.sqlite`, and the results that count in `gradebook.csv`."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

from transformer_lab.classroom.resource_limits import STUDENT_SECONDS
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult, as_json, from_json
from transformer_lab.classroom.roster import NO_ROSTER, Attendance, Person
from transformer_lab.errors import InputError
from transformer_lab.exercises.registry import exercises
from transformer_lab.files import clean
from transformer_lab.plural import plural

APPLICATION_ID = 0x54_4C_47_42  # "TLGB", which distinguishes the file from other programs' databases
SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("schema.sql")
COUNTING = """
WITH seen AS (
    SELECT results.id, handed_in.run, place, path, coalesce(nullif(notebook, ''), path) AS name,
           max(handed_in.run) OVER (PARTITION BY handed_in.student, coalesce(nullif(notebook, ''), path)) AS last,
           max(handed_in.run) OVER (PARTITION BY handed_in.student) AS last_of_student
    FROM handed_in JOIN results ON results.id = (
        SELECT max(id) FROM results WHERE student = handed_in.student AND digest = handed_in.digest)
)
SELECT student, name, path, result, sandboxed, sources
FROM seen JOIN results USING (id) JOIN runs ON runs.id = results.run
WHERE seen.run = last AND (notebook != '' OR last = last_of_student) ORDER BY student, name, place
"""  # an unreadable file is identified by its path, and counts only while it is still submitted

FORMULA_STARTS = "=+-@\t\r\n＝＋－＠"
MOST_NAMES = 5  # how many students with similar answers to list; the rest are only counted
UNGUARDED = "graded without a sandbox"
ABSENT = "submitted nothing"
TIME_IS_UP = (
    f"this student's time ran out: all of a student's files together get {STUDENT_SECONDS / 60:g} minutes per run, and "
    "the next run grades the rest"
)


@dataclass(frozen=True)
class GradingRun:
    """A run of the grader, as recorded when it started."""

    id: int
    finished: str | None
    version: str
    sources: str
    seed: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """The result that counts for one student's notebook."""

    result: SubmissionResult
    path: str
    sandboxed: bool
    sources: str  # digest of the package that graded it
    others: tuple[str, ...] = ()  # paths of other files for the same notebook
    similar: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # students with similar answers, per exercise
    adjustment: float = 0.0  # points that a correction of the student's total adds

    @property
    def student(self) -> str:
        return self.result.student

    @property
    def notebook(self) -> str:
        return self.result.notebook

    @property
    def file(self) -> str:
        """The file's name, without the instructor's folders."""
        return PurePosixPath(self.path).name

    @property
    def earned(self) -> float:
        return self.result.earned + self.adjustment

    def flags(self, exercise: ExerciseResult) -> tuple[str, ...]:
        """Return all the reasons why the instructor should look at the exercise."""
        similar = self.similar.get(exercise.exercise, ())
        if not similar:
            return exercise.flags
        more = f" and {plural(len(similar) - MOST_NAMES, 'other')}" if len(similar) > MOST_NAMES else ""
        return *exercise.flags, f"nearly the same as {', '.join(similar[:MOST_NAMES])}{more}"


class Gradebook:
    """The database `gradebook.sqlite`.

    Every method opens its own connection and runs one transaction, because a connection must not be shared with
    processes that are forked between two calls.

    Raises:
        InputError: The file is not a gradebook, is damaged, comes from a newer version, or cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_symlink():
            raise InputError(f"{path} is a link: remove it, or choose another folder for the grades")
        with self._transaction() as database:
            application, version, tables = database.execute(
                "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
                "FROM pragma_application_id, pragma_user_version"
            ).fetchone()
            if tables == application == version == 0:
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif application != APPLICATION_ID:
                raise InputError(f"{path} belongs to another program: choose another folder for the grades")
            elif version != SCHEMA_VERSION:
                raise InputError(
                    f"{path} has format {version}, but this version of transformer-lab reads format {SCHEMA_VERSION}: "
                    "update transformer-lab, or choose another folder for the grades"
                )
            elif database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise self._damaged()
            for statement in SCHEMA.read_text(encoding="utf-8").split(";\n"):  # `executescript` would commit
                database.execute(statement)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a connection. When it closes, a transaction that was not committed is rolled back."""
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=20)) as database:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise InputError(f"{self.path}: {error}; the results saved before are intact") from None
        except sqlite3.DatabaseError as error:
            reason = f"not a gradebook, or damaged ({error})"
            raise InputError(f"{self.path}: {reason}: remove it, or choose another folder") from None

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        with self._transaction() as database:
            return database.execute(statement, values).fetchall()

    def begin(self, version: str, sources: str, seed: int, paths: Sequence[str], only: str = "") -> GradingRun:
        insert = "INSERT INTO runs (started, version, sources, seed, only_exercise, paths) VALUES (?, ?, ?, ?, ?, ?)"
        with self._transaction() as database:
            values = (_now(), version, sources, str(seed), only, json.dumps(list(paths)))
            run_id = database.execute(insert, values).lastrowid
        return GradingRun(run_id, None, version, sources, seed, tuple(paths))

    def record_submissions(self, run: GradingRun, submissions: Sequence[tuple[str, str, str]]) -> None:
        """Record a run's submissions as `(student, digest, path)`, replacing any recorded earlier in the same run."""
        rows = [(run.id, place, *map(clean, submission)) for place, submission in enumerate(submissions)]
        with self._transaction() as database:
            database.execute("DELETE FROM handed_in WHERE run = ?", (run.id,))
            database.executemany("INSERT INTO handed_in VALUES (?, ?, ?, ?, ?)", rows)

    def save(self, run: GradingRun, result: SubmissionResult) -> None:
        """Commit one result to disk, so that it survives a crash."""
        student, notebook, final = clean(result.student), clean(result.notebook), not is_graded_again(result)
        self._query(
            "INSERT INTO results (run, graded, student, digest, notebook, final, result) VALUES (?,?,?,?,?,?,?)",
            (run.id, _now(), student, result.digest, notebook, final, as_json(result)),
        )

    def finish(self, run: GradingRun) -> None:
        self._query("UPDATE runs SET finished = ? WHERE id = ?", (_now(), run.id))

    def record_sandbox(self, run: GradingRun, sandboxed: bool) -> None:
        """Record whether a run uses a sandbox. A run that has ever lacked a sandbox stays marked."""
        change = "UPDATE runs SET sandboxed = min(?, coalesce(sandboxed, 1)) WHERE id = ?"
        self._query(change, (int(sandboxed), run.id))

    def save_roster(self, roster: Sequence[Person]) -> None:
        """Store the roster, replacing any earlier one."""
        rows = [(place, clean(person.name), person.number) for place, person in enumerate(roster)]
        with self._transaction() as database:
            database.execute("DELETE FROM roster")
            database.executemany("INSERT INTO roster VALUES (?, ?, ?)", rows)

    def roster(self) -> list[Person]:
        """Return the roster. If there is none, the list is empty."""
        return [Person(*row) for row in self._query("SELECT name, number FROM roster ORDER BY place")]

    def last_run(self) -> GradingRun | None:
        """Return the last run, ignoring runs that regraded a single exercise."""
        rows = self._query(
            "SELECT id, finished, version, sources, seed, paths FROM runs "
            "WHERE only_exercise = '' ORDER BY id DESC LIMIT 1"
        )
        return GradingRun(*rows[0][:4], int(rows[0][4]), tuple(json.loads(rows[0][5]))) if rows else None

    def final_results(self) -> dict[tuple[str, str], SubmissionResult]:
        """Return the last result for each `(student, digest)`, excluding submissions that must be graded again."""
        rows = self._query(
            "SELECT student, digest, result FROM results WHERE id IN "
            "(SELECT max(id) FROM results GROUP BY student, digest) AND final"
        )
        return {(student, digest): self._read(text) for student, digest, text in rows}

    def ungraded(self) -> list[str]:
        """Return the student of each submission in the last run that has no result yet. See `last_run`."""
        rows = self._query(
            "SELECT student FROM handed_in JOIN runs ON runs.id = run WHERE finished IS NULL "
            "AND run = (SELECT max(id) FROM runs WHERE only_exercise = '') "
            "AND (student, digest) NOT IN (SELECT student, digest FROM results) ORDER BY place"
        )
        return [student for (student,) in rows]

    def paths_of_runs(self) -> list[tuple[str, ...]]:
        """Return the distinct lists of paths given to runs, newest first, ignoring runs that regraded one exercise."""
        rows = self._query("SELECT paths FROM runs WHERE only_exercise = '' ORDER BY id DESC")
        return list(dict.fromkeys(tuple(json.loads(paths)) for (paths,) in rows))

    def entries(self) -> list[Entry]:
        """Return the results that count, sorted by student and notebook.

        Only the last run in which a student submitted a notebook counts. If there were several files for it, the one
        with the most points counts. A file that could not be read counts only while it is still submitted.
        """
        entries = []
        for files in self._files_of_last_runs():
            best = max(reversed(files), key=lambda entry: entry.result.earned)
            entries.append(replace(best, others=tuple(entry.path for entry in files if entry is not best)))
        return sorted(entries, key=lambda entry: (entry.student.casefold(), entry.student, entry.notebook))

    def results_of_last_runs(self) -> dict[tuple[str, str], SubmissionResult]:
        """Return the results that count and the results for other files of the same notebooks.

        They are keyed by `(student, digest)`.
        """
        results = [entry.result for files in self._files_of_last_runs() for entry in files]
        return {(result.student, result.digest): result for result in results}

    def _files_of_last_runs(self) -> list[list[Entry]]:
        by_notebook = groupby(self._query(COUNTING), key=itemgetter(0, 1))
        return [
            [Entry(self._read(text), path, sandboxed != 0, sources) for _, _, path, text, sandboxed, sources in files]
            for _, files in by_notebook
        ]

    def _read(self, text: str) -> SubmissionResult:
        try:
            return from_json(text)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._damaged() from None

    def _damaged(self) -> InputError:
        return InputError(f"{self.path} is damaged: remove it or choose another folder, and grade again")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def source_digest() -> str:
    """Return a digest of the package's source code, which can change while its version stays the same."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def grader_failed(result: SubmissionResult) -> bool:
    """Return whether part of the result is missing because of an error in the grader, not the student's code."""
    states = [exercise.state for exercise in result.exercises]
    return "grader error" in states or result.problem.startswith("the grader ")


def is_graded_again(result: SubmissionResult) -> bool:
    """Return whether the next run regrades the submission because the grader failed or the student ran out of time."""
    return grader_failed(result) or result.problem == TIME_IS_UP


def columns(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the maximum points for each exercise in the submitted notebooks, in course order."""
    points = {exercise.exercise: exercise.possible for entry in entries for exercise in entry.result.exercises}
    return {name: points[name] for name in dict.fromkeys([*exercises(), *points]) if name in points}


def by_student(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    students: dict[str, list[Entry]] = {}
    for entry in entries:
        students.setdefault(entry.student, []).append(entry)
    return students


def as_csv(entries: Sequence[Entry], attendance: Attendance = NO_ROSTER) -> str:
    """Return a table with one row per student, including a row with 0 points for each absent person.

    The cells of a notebook that was not submitted are empty. If any result was obtained without a sandbox, the last
    column has a warning as its heading, and its cells show which students are affected. The warning does not have its
    own line, because spreadsheets and pandas expect the headings on the first line.
    """
    import pandas

    points = columns(entries)
    warning = f"WARNING: {UNGUARDED}"
    heading = ["student", *["number"] * bool(attendance.numbers), *points]
    heading += ["total", "possible", "states", "flags", "remarks"]
    heading += [warning] * any(not entry.sandboxed for entry in entries)
    students = dict.fromkeys(attendance.absent, ()) | by_student(entries)
    rows = []
    for student, submitted in sorted(students.items(), key=lambda item: (item[0].casefold(), item[0])):
        results = {result.exercise: result for entry in submitted for result in entry.result.exercises}
        flags = [
            f"{result.exercise}: {flag}"
            for entry in submitted
            for result in entry.result.exercises
            for flag in entry.flags(result)
        ]
        rows.append(
            {name: format_points(result.earned) for name, result in results.items()}
            | {
                "student": cell(student),
                "number": attendance.numbers.get(student, ""),
                "total": format_points(sum(entry.earned for entry in submitted)),
                "possible": format_points(sum(points.values())),
                "states": cell(_states(submitted, list(points)) if submitted else ABSENT),
                "flags": cell("; ".join(flags)),
                "remarks": cell("; ".join(remark for entry in submitted for remark in remarks(entry))),
                warning: "" if all(entry.sandboxed for entry in submitted) else UNGUARDED,
            }
        )
    return pandas.DataFrame(rows, columns=heading).to_csv(index=False, lineterminator="\n")


def _states(submitted: Sequence[Entry], order: Sequence[str]) -> str:
    """Return the states that points cannot express: `not attempted: softmax, causal_mask; not gradable: notes.ipynb`.

    The exercises are listed in the given order.
    """
    names_by_state: dict[str, list[str]] = {}
    results = [result for entry in submitted for result in entry.result.exercises]
    for result in sorted(results, key=lambda result: order.index(result.exercise)):
        if result.state not in ("passed", "failed"):
            names_by_state.setdefault(result.state, []).append(result.exercise)
    for entry in submitted:
        if entry.result.problem and not entry.result.exercises:
            names_by_state.setdefault("not gradable", []).append(entry.file)
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in names_by_state.items())


def remarks(entry: Entry) -> list[str]:
    """Return the remarks about a file as a whole."""
    problem = [f"{entry.path}: {entry.result.problem}"] if entry.result.problem else []
    several = [f"{len(entry.others) + 1} files for {entry.notebook}: {entry.path} counts"] if entry.others else []
    return [*problem, *entry.result.remarks, *several]


def format_points(points: float) -> str:
    """Format points: `2`, `1.5`, `0.33`."""
    return f"{round(points, 2):.10g}"


def cell(text: str) -> str:
    """Return `text` as a single line that spreadsheets do not evaluate as a formula."""
    line = " ".join(clean(text).split())
    return f"'{line}" if line.startswith(tuple(FORMULA_STARTS)) else line
