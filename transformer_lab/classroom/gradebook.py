"""The gradebook: every result of every run in `gradebook.sqlite`, and those that count in `gradebook.csv`."""

import csv
import hashlib
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from transformer_lab.classroom.resource_limits import STUDENT_SECONDS
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult, as_json, from_json
from transformer_lab.classroom.roster import NOT_ASKED, Attendance, Person
from transformer_lab.errors import InputError
from transformer_lab.exercises.registry import exercises
from transformer_lab.files import clean

APPLICATION_ID = 0x54_4C_47_42  # "TLGB", in the file's head: another program's database is not taken for ours
SCHEMA_VERSION = 1
TABLES = """
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    finished TEXT,                  -- NULL while it runs, or where it was interrupted
    version TEXT NOT NULL,          -- of the package
    sources TEXT NOT NULL,          -- digest of the package's own text
    seed TEXT NOT NULL,             -- secret: what the hidden inputs were drawn from
    sandboxed INTEGER,              -- NULL where nothing was run
    only_exercise TEXT NOT NULL,    -- the one that was graded anew, or empty
    paths TEXT NOT NULL             -- JSON: what was given to grade
);
CREATE TABLE IF NOT EXISTS handed_in (
    run INTEGER NOT NULL REFERENCES runs (id),
    place INTEGER NOT NULL,
    student TEXT NOT NULL,
    digest TEXT NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (run, place)
);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    graded TEXT NOT NULL,
    student TEXT NOT NULL,
    digest TEXT NOT NULL,           -- of the submission and of the package's version
    notebook TEXT NOT NULL,
    final INTEGER NOT NULL,         -- 0 where the grader itself failed: it is graded again
    result TEXT NOT NULL            -- JSON
);
CREATE INDEX IF NOT EXISTS results_of ON results (student, digest);
CREATE VIEW IF NOT EXISTS marks AS
    SELECT run, graded, student, notebook,
           json_extract(exercise.value, '$.exercise') AS exercise, json_extract(exercise.value, '$.state') AS state,
           json_extract(exercise.value, '$.earned') AS earned, json_extract(exercise.value, '$.possible') AS possible
    FROM results, json_each(result, '$.exercises') AS exercise;
CREATE TABLE IF NOT EXISTS roster (
    place INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    number TEXT NOT NULL            -- from Moodle or Canvas, or empty
);
"""  # gradebooks of earlier versions have no roster
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
"""  # an unreadable file stands for itself (its name is its path), and only as long as it is submitted

FORMULA = "=+-@\t\r\n＝＋－＠"  # what a spreadsheet takes for the beginning of one
NAMED = 5  # students with nearly the same answer, before the rest is counted
UNGUARDED = "graded without a sandbox"
ABSENT = "submitted nothing"
TIME_IS_UP = (
    f"the time for this student was up: all files of one student together get {STUDENT_SECONDS / 60:g} minutes in a "
    "run, and what is left is graded in the next run"
)


@dataclass(frozen=True)
class Run:
    """One run of the grader, as it began."""

    id: int
    finished: str | None
    version: str
    sources: str
    seed: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """The result that counts for one notebook of one student."""

    result: SubmissionResult
    path: str
    sandboxed: bool
    sources: str  # digest of the package that graded it
    others: tuple[str, ...] = ()  # paths of other files for the same notebook
    similar: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # exercise to students who answered alike

    @property
    def student(self) -> str:
        return self.result.student

    @property
    def notebook(self) -> str:
        return self.result.notebook

    def flags(self, exercise: ExerciseResult) -> tuple[str, ...]:
        """Return what the instructor should look at."""
        others = self.similar.get(exercise.exercise, ())
        if not others:
            return exercise.flags
        more = f" and {len(others) - NAMED} others" if len(others) > NAMED else ""
        return *exercise.flags, f"nearly the same as {', '.join(others[:NAMED])}{more}"


class Gradebook:
    """`gradebook.sqlite` of one folder.

    Each method is one transaction on its own connection, because processes are forked between them and must not share
    a connection.

    Raises:
        InputError: The file is not a gradebook, is damaged or of a newer version, or cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_symlink():
            raise InputError(f"{path} is a link: remove it, or choose another folder for the grades")
        with self._connection() as database:
            application, version, tables = database.execute(
                "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
                "FROM pragma_application_id, pragma_user_version"
            ).fetchone()
            if tables == application == version == 0:
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif application != APPLICATION_ID:
                raise InputError(f"{path} is another program's database: choose another folder for the grades")
            elif version != SCHEMA_VERSION:
                raise InputError(
                    f"{path} has format {version}, and this version of transformer-lab knows {SCHEMA_VERSION}: "
                    "update it, or choose another folder for the grades"
                )
            elif database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise self._damaged()
            for statement in TABLES.split(";\n"):
                database.execute(statement)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self.path, isolation_level=None, timeout=20)
            try:
                database.execute("BEGIN IMMEDIATE")
                yield database
                database.execute("COMMIT")
            finally:
                database.close()  # what was not committed is rolled back
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                reason, advice = str(error), "what was graded before is as it was"
            else:
                reason, advice = f"no gradebook, or a damaged one: {error}", "remove it, or choose another folder"
            raise InputError(f"{self.path}: {reason}; {advice}") from None

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        with self._connection() as database:
            return database.execute(statement, values).fetchall()

    def _replace(self, delete: str, values: Sequence[Any], insert: str, rows: Sequence[tuple]) -> None:
        with self._connection() as database:
            database.execute(delete, values)
            database.executemany(insert, rows)

    def begin(self, version: str, sources: str, seed: int, paths: Sequence[str], only: str = "") -> Run:
        """Record that a run begins."""
        insert = "INSERT INTO runs (started, version, sources, seed, only_exercise, paths) VALUES (?, ?, ?, ?, ?, ?)"
        with self._connection() as database:
            values = (_now(), version, sources, str(seed), only, json.dumps(list(paths)))
            row = database.execute(insert, values).lastrowid
        return Run(row, None, version, sources, seed, tuple(paths))

    def hand_in(self, run: Run, submissions: Sequence[tuple[str, str, str]]) -> None:
        """Record the submissions of a run, as `(student, digest, path)`, in place of those recorded before."""
        rows = [(run.id, place, *map(clean, submission)) for place, submission in enumerate(submissions)]
        self._replace(
            "DELETE FROM handed_in WHERE run = ?", (run.id,), "INSERT INTO handed_in VALUES (?, ?, ?, ?, ?)", rows
        )

    def save(self, run: Run, result: SubmissionResult) -> None:
        """Write one result to the disk, so that it survives whatever happens next."""
        student, notebook, final = clean(result.student), clean(result.notebook), not is_graded_again(result)
        self._query(
            "INSERT INTO results (run, graded, student, digest, notebook, final, result) VALUES (?,?,?,?,?,?,?)",
            (run.id, _now(), student, result.digest, notebook, final, as_json(result)),
        )

    def finish(self, run: Run) -> None:
        """Record that a run is done."""
        self._query("UPDATE runs SET finished = ? WHERE id = ?", (_now(), run.id))

    def note_sandbox(self, run: Run, sandboxed: bool) -> None:
        """Record whether students' code is kept in a sandbox; once it was not, that stays recorded."""
        change = "UPDATE runs SET sandboxed = min(?, coalesce(sandboxed, 1)) WHERE id = ?"
        self._query(change, (int(sandboxed), run.id))

    def note_roster(self, roster: Sequence[Person]) -> None:
        """Store the roster in place of an earlier one."""
        rows = [(place, clean(person.name), person.number) for place, person in enumerate(roster)]
        self._replace("DELETE FROM roster", (), "INSERT INTO roster VALUES (?, ?, ?)", rows)

    def roster(self) -> list[Person]:
        """Return the roster, which is empty if none was given."""
        return [Person(*row) for row in self._query("SELECT name, number FROM roster ORDER BY place")]

    def last_run(self) -> Run | None:
        """Return the last run, ignoring those of a single exercise."""
        rows = self._query(
            "SELECT id, finished, version, sources, seed, paths FROM runs "
            "WHERE only_exercise = '' ORDER BY id DESC LIMIT 1"
        )
        return Run(*rows[0][:4], int(rows[0][4]), tuple(json.loads(rows[0][5]))) if rows else None

    def kept(self) -> dict[tuple[str, str], SubmissionResult]:
        """Return the last result of each `(student, digest)`, except where the grader itself failed."""
        rows = self._query(
            "SELECT student, digest, result FROM results WHERE id IN "
            "(SELECT max(id) FROM results GROUP BY student, digest) AND final"
        )
        return {(student, digest): self._read(text) for student, digest, text in rows}

    def paths_of_runs(self) -> list[tuple[str, ...]]:
        """Return the distinct paths that runs were given, newest first, ignoring runs of a single exercise."""
        rows = self._query("SELECT paths FROM runs WHERE only_exercise = '' ORDER BY id DESC")
        return list(dict.fromkeys(tuple(json.loads(paths)) for (paths,) in rows))

    def entries(self) -> list[Entry]:
        """Return the results that count, by student and notebook.

        For each notebook of a student, that is the result of the last run that saw one; if that run saw several files,
        the one with the most points. A file that could not be read counts only as long as it is submitted.
        """
        entries = []
        for files in self._of_last_runs():
            best = max(reversed(files), key=lambda entry: entry.result.earned)
            entries.append(replace(best, others=tuple(entry.path for entry in files if entry is not best)))
        return sorted(entries, key=lambda entry: (entry.student.casefold(), entry.student, entry.notebook))

    def that_may_count(self) -> dict[tuple[str, str], SubmissionResult]:
        """Return, by student and digest, the results that count and those of other files for the same notebook."""
        results = [entry.result for files in self._of_last_runs() for entry in files]
        return {(result.student, result.digest): result for result in results}

    def _of_last_runs(self) -> list[list[Entry]]:
        groups = groupby(self._query(COUNTING), key=itemgetter(0, 1))  # by student and notebook
        return [
            [Entry(self._read(text), path, sandboxed != 0, sources) for _, _, path, text, sandboxed, sources in files]
            for _, files in groups
        ]

    def _read(self, text: str) -> SubmissionResult:
        try:
            return from_json(text)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._damaged() from None

    def _damaged(self) -> InputError:
        return InputError(f"{self.path} is damaged: remove it, or choose another folder, and grade again")


def source_digest() -> str:
    """Return the digest of the package's own text, which may change without its version."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def failed_itself(result: SubmissionResult) -> bool:
    """Return whether the grader, and not the student, is to blame for a part of the result."""
    states = [exercise.state for exercise in result.exercises]
    return "grader error" in states or result.problem.startswith("the grader ")


def is_graded_again(result: SubmissionResult) -> bool:
    """Whether the next run grades it once more: the grader failed, or the student's time was up before it was run."""
    return failed_itself(result) or result.problem == TIME_IS_UP


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def columns(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the points of all exercises in the submitted notebooks, in the order of the course."""
    points = {exercise.exercise: exercise.possible for entry in entries for exercise in entry.result.exercises}
    return {name: points[name] for name in dict.fromkeys([*exercises(), *points]) if name in points}


def by_student(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each student."""
    students: dict[str, list[Entry]] = {}
    for entry in entries:
        students.setdefault(entry.student, []).append(entry)
    return students


def as_csv(entries: Sequence[Entry], attendance: Attendance = NOT_ASKED) -> str:
    """Return a table with a row per student, and a row of 0 points for each person who is absent.

    An exercise is empty if its notebook was not submitted. The numbers of a course system have a column if there are
    any. If a result was made without a sandbox, the heading of the last column says so, and its cells say for whom: the
    heading remains the first line, so that spreadsheets and pandas can read the table.
    """
    points = columns(entries)
    head = ["student", *["number"] * bool(attendance.numbers), *points]
    head += ["total", "possible", "states", "flags", "remarks"]
    warning = f"WARNING: {UNGUARDED}"
    if not all(entry.sandboxed for entry in entries):
        head.append(warning)
    text = io.StringIO()
    table = csv.DictWriter(text, head, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    students = dict.fromkeys(attendance.absent, ()) | by_student(entries)
    for student, submitted in sorted(students.items(), key=lambda item: (item[0].casefold(), item[0])):
        results = {result.exercise: result for entry in submitted for result in entry.result.exercises}
        states = _states([results[name] for name in points if name in results]) if submitted else ABSENT
        flags = "; ".join(f"{name}: {flag}" for entry in submitted for name, flag in all_flags(entry))
        row = {name: number(result.earned) for name, result in results.items()} | {
            "student": cell(student),
            "number": attendance.numbers.get(student, ""),
            "total": number(sum(result.earned for result in results.values())),
            "possible": number(sum(points.values())),
            "states": cell(states),
            "flags": cell(flags),
            "remarks": cell("; ".join(remark for entry in submitted for remark in remarks(entry))),
            warning: "" if all(entry.sandboxed for entry in submitted) else UNGUARDED,
        }
        table.writerow(row)
    return text.getvalue()


def all_flags(entry: Entry) -> list[tuple[str, str]]:
    """Return what the instructor should look at in a notebook, as `(exercise, flag)`."""
    return [(result.exercise, flag) for result in entry.result.exercises for flag in entry.flags(result)]


def remarks(entry: Entry) -> list[str]:
    """Return the remarks about a file as a whole."""
    problem = [f"{entry.path}: {entry.result.problem}"] if entry.result.problem else []
    count = len(entry.others) + 1
    several = [f"{count} files for {entry.notebook}: {entry.path} counts"] if entry.others else []
    return [*problem, *entry.result.remarks, *several]


def _states(results: Sequence[ExerciseResult]) -> str:
    """Return the states that points do not show: `not attempted: softmax, causal_mask; timed out: target_mask`."""
    named: dict[str, list[str]] = {}
    for result in results:
        if result.state not in ("passed", "failed"):
            named.setdefault(result.state, []).append(result.exercise)
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in named.items())


def number(points: float) -> str:
    """Format points: `2`, `1.5`, `0.33`."""
    return f"{round(points, 2):.10g}"


def cell(text: str) -> str:
    """Return `text` as one line that no spreadsheet takes for a formula."""
    line = " ".join(clean(text).split())
    return f"'{line}" if line.startswith(tuple(FORMULA)) else line
