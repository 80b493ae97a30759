"""The gradebook: every result of every run in `gradebook.sqlite`, and what counts of it in `gradebook.csv`."""

import csv
import hashlib
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from transformer_lab.classroom.limits import STUDENT_SECONDS
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult, as_json, from_json
from transformer_lab.classroom.roster import NOT_ASKED, Attendance, Person
from transformer_lab.classroom.writing import clean
from transformer_lab.errors import InputError
from transformer_lab.exercises.registry import exercises

APPLICATION_ID = 0x54_4C_47_42  # "TLGB", in the file's head: another program's database is not taken for ours
SCHEMA_VERSION = 1
TABLES = """
CREATE TABLE runs (
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
CREATE TABLE handed_in (
    run INTEGER NOT NULL REFERENCES runs (id),
    place INTEGER NOT NULL,
    student TEXT NOT NULL,
    digest TEXT NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (run, place)
);
CREATE TABLE results (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    graded TEXT NOT NULL,
    student TEXT NOT NULL,
    digest TEXT NOT NULL,           -- of what was handed in and of the package's version
    notebook TEXT NOT NULL,
    final INTEGER NOT NULL,         -- 0 where the grader itself failed: it is graded again
    result TEXT NOT NULL            -- JSON
);
CREATE INDEX results_of ON results (student, digest);
CREATE VIEW marks AS
    SELECT run, graded, student, notebook,
           json_extract(exercise.value, '$.exercise') AS exercise, json_extract(exercise.value, '$.state') AS state,
           json_extract(exercise.value, '$.earned') AS earned, json_extract(exercise.value, '$.possible') AS possible
    FROM results, json_each(result, '$.exercises') AS exercise;
"""

ROSTER = """
CREATE TABLE IF NOT EXISTS roster (
    place INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    number TEXT NOT NULL            -- of Moodle or Canvas, or empty
)
"""  # for itself: gradebooks of before have none

FORMULA = "=+-@\t\r\n＝＋－＠"  # what a spreadsheet takes for the beginning of one
NAMED = 5  # of those whose answers are nearly the same
UNGUARDED = "graded without a sandbox"
ABSENT = "handed in nothing"
TIME_IS_UP = (
    f"the time for this student was up: all files of one student together get {STUDENT_SECONDS / 60:g} minutes in a "
    "run, and what is left is graded in the next run"
)


@dataclass(frozen=True)
class Run:
    """One run of the grader, as it was begun."""

    id: int
    started: str
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
    others: tuple[str, ...] = ()  # paths of others that were handed in for the same notebook
    similar: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # exercise: whose answers are nearly the same

    @property
    def student(self) -> str:
        return self.result.student

    @property
    def notebook(self) -> str:
        return self.result.notebook

    def flags(self, exercise: ExerciseResult) -> tuple[str, ...]:
        """What the instructor should look at."""
        others = self.similar.get(exercise.exercise, ())
        if not others:
            return exercise.flags
        more = f" and {len(others) - NAMED} others" if len(others) > NAMED else ""
        return *exercise.flags, f"nearly the same as {', '.join(others[:NAMED])}{more}"


class Gradebook:
    """`gradebook.sqlite` of one folder. Each method is one transaction, on a connection of its own: processes are
    forked between them, and a connection must not live in two.

    Raises:
        InputError: The file is no gradebook, or a damaged one, or one of a newer version of the package; or it cannot
            be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_symlink():
            raise InputError(f"{path} is a link: remove it, or choose another folder for the grades")
        with self._connection() as database:
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables == application == version == 0:
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                for statement in TABLES.split(";\n"):
                    database.execute(statement)
            elif application != APPLICATION_ID:
                raise InputError(f"{path} is another program's database: choose another folder for the grades")
            elif version != SCHEMA_VERSION:
                raise InputError(
                    f"{path} has format {version}, and this version of transformer-lab knows {SCHEMA_VERSION}: "
                    "update it, or choose another folder for the grades"
                )
            elif database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise InputError(f"{path} is damaged: remove it, or choose another folder, and grade again")
            database.execute(ROSTER)

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

    def begin(self, version: str, sources: str, seed: int, paths: Sequence[str], only: str = "") -> Run:
        """Note that a run begins."""
        started = _now()
        with self._connection() as database:
            values = (started, version, sources, str(seed), only, json.dumps(list(paths)))
            cursor = database.execute(
                "INSERT INTO runs (started, version, sources, seed, only_exercise, paths) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
        return Run(cursor.lastrowid, started, None, version, sources, seed, tuple(paths))

    def hand_in(self, run: Run, submissions: Sequence[tuple[str, str, str]]) -> None:
        """Note what a run is about, as `(student, digest, path)`; a run that is resumed is told anew."""
        with self._connection() as database:
            database.execute("DELETE FROM handed_in WHERE run = ?", (run.id,))
            rows = [(run.id, place, *map(clean, submission)) for place, submission in enumerate(submissions)]
            database.executemany("INSERT INTO handed_in VALUES (?, ?, ?, ?, ?)", rows)

    def save(self, run: Run, result: SubmissionResult) -> None:
        """Keep one result: after this it is on the disk, whatever happens."""
        final = not is_graded_again(result)
        with self._connection() as database:
            student, notebook = clean(result.student), clean(result.notebook)
            values = (run.id, _now(), student, result.digest, notebook, final, as_json(result))
            database.execute(
                "INSERT INTO results (run, graded, student, digest, notebook, final, result) VALUES (?,?,?,?,?,?,?)",
                values,
            )

    def finish(self, run: Run) -> None:
        """Note that a run is done."""
        with self._connection() as database:
            database.execute("UPDATE runs SET finished = ? WHERE id = ?", (_now(), run.id))

    def note_sandbox(self, run: Run, sandboxed: bool) -> None:
        """Note whether students' code is kept in a sandbox; once it was not, that stays noted."""
        with self._connection() as database:
            change = "UPDATE runs SET sandboxed = min(?, coalesce(sandboxed, 1)) WHERE id = ?"
            database.execute(change, (int(sandboxed), run.id))

    def note_roster(self, roster: Sequence[Person]) -> None:
        """Keep the list of the class, in place of an earlier one."""
        with self._connection() as database:
            database.execute("DELETE FROM roster")
            rows = [(place, clean(person.name), person.number) for place, person in enumerate(roster)]
            database.executemany("INSERT INTO roster VALUES (?, ?, ?)", rows)

    def roster(self) -> list[Person]:
        """The list of the class; empty if none was given."""
        with self._connection() as database:
            return [Person(*row) for row in database.execute("SELECT name, number FROM roster ORDER BY place")]

    def last_run(self) -> Run | None:
        """The last run, those of a single exercise aside."""
        with self._connection() as database:
            row = database.execute(
                "SELECT id, started, finished, version, sources, seed, paths FROM runs "
                "WHERE only_exercise = '' ORDER BY id DESC LIMIT 1"
            ).fetchone()
        return Run(*row[:5], int(row[5]), tuple(json.loads(row[6]))) if row else None

    def kept(self) -> dict[tuple[str, str], SubmissionResult]:
        """The last result of each `(student, digest)`, those where the grader itself failed left out."""
        with self._connection() as database:
            rows = database.execute(
                "SELECT student, digest, result FROM results WHERE id IN "
                "(SELECT max(id) FROM results GROUP BY student, digest) AND final"
            ).fetchall()
        return {(student, digest): self._read(text) for student, digest, text in rows}

    def paths_of_runs(self) -> list[tuple[str, ...]]:
        """What each run was given, those of a single exercise aside; the newest first, and each once."""
        with self._connection() as database:
            rows = database.execute("SELECT paths FROM runs WHERE only_exercise = '' ORDER BY id DESC").fetchall()
        return list(dict.fromkeys(tuple(json.loads(paths)) for (paths,) in rows))

    def entries(self) -> list[Entry]:
        """What counts, by student and notebook.

        Of each notebook of a student it is the result of the last run that saw one; of several files in that run, the
        one with the most points. A file that could not be read counts only as long as it is handed in.
        """
        entries = []
        for now in self._of_last_runs():
            best = max(reversed(now), key=lambda entry: entry.result.earned)
            others = tuple(entry.path for entry in now if entry is not best)
            entries.append(Entry(best.result, best.path, best.sandboxed, best.sources, others))
        return sorted(entries, key=lambda entry: (entry.student.casefold(), entry.student, entry.notebook))

    def that_may_count(self) -> dict[tuple[str, str], SubmissionResult]:
        """By student and digest, the results that count, and those of other files for the same notebook."""
        found = [entry.result for now in self._of_last_runs() for entry in now]
        return {(result.student, result.digest): result for result in found}

    def _of_last_runs(self) -> list[list[Entry]]:
        """For each notebook of each student, what the last run that saw one was given."""
        with self._connection() as database:
            rows = database.execute(
                "SELECT handed_in.run, handed_in.path, results.student, results.result, runs.sandboxed, runs.sources "
                "FROM handed_in JOIN results ON results.id = (SELECT max(id) FROM results AS made "
                "WHERE made.student = handed_in.student AND made.digest = handed_in.digest) "
                "JOIN runs ON runs.id = results.run ORDER BY handed_in.run, handed_in.place"
            ).fetchall()
        last_seen: dict[str, int] = {}
        candidates: dict[tuple[str, str], list[tuple[int, Entry]]] = {}
        for run, path, student, text, sandboxed, sources in rows:
            last_seen[student] = run
            entry = Entry(self._read(text), path, sandboxed != 0, sources)
            key = student, entry.notebook or path  # each unreadable file stands for itself
            candidates.setdefault(key, []).append((run, entry))
        of_last_runs = []
        for (student, _), seen in candidates.items():
            last = max(run for run, _ in seen)
            now = [entry for run, entry in seen if run == last]
            if now[0].notebook or last == last_seen[student]:
                of_last_runs.append(now)
        return of_last_runs

    def _read(self, text: str) -> SubmissionResult:
        try:
            return from_json(text)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{self.path} is damaged: remove it, or choose another folder, and grade again") from None


def source_digest() -> str:
    """Digest of the package's own text, which may change without its version."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def failed_itself(result: SubmissionResult) -> bool:
    """Whether the grader, and not the student, is to blame for a part of the result."""
    states = [exercise.state for exercise in result.exercises]
    return "grader error" in states or result.problem.startswith("the grader ")


def is_graded_again(result: SubmissionResult) -> bool:
    """Whether the next run grades it once more: the grader failed, or the student's time was up before it was run."""
    return failed_itself(result) or result.problem == TIME_IS_UP


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def columns(entries: Sequence[Entry]) -> dict[str, float]:
    """The exercises of all notebooks that were handed in, in the order of the course, with their points."""
    found = {exercise.exercise: exercise.possible for entry in entries for exercise in entry.result.exercises}
    order = list(exercises())
    return {name: found[name] for name in sorted(found, key=lambda name: order.index(name) if name in order else 999)}


def by_student(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries of each student."""
    students: dict[str, list[Entry]] = {}
    for entry in entries:
        students.setdefault(entry.student, []).append(entry)
    return students


def as_csv(entries: Sequence[Entry], attendance: Attendance = NOT_ASKED) -> str:
    """A row a student, and one of 0 points for each who is absent. An exercise whose notebook was not handed in is
    empty. Where somebody has a number of a course system, a column has the numbers.

    Where a result was made without a sandbox, the head of the last column says so, and its cells say for whom: the
    head stays the first line, so that spreadsheets and pandas read the file as the table that it is.
    """
    points = columns(entries)
    unguarded = not all(entry.sandboxed for entry in entries)
    warning = [f"WARNING: {UNGUARDED}"] if unguarded else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = attendance.numbers
    head = ["student", "number"] if numbers else ["student"]
    head += [*points, "total", "possible", "states", "flags", "remarks", *warning]
    writer.writerow(map(cell, head))
    students = dict.fromkeys(attendance.absent, ()) | by_student(entries)
    for student, handed_in in sorted(students.items(), key=lambda item: (item[0].casefold(), item[0])):
        results = {result.exercise: result for entry in handed_in for result in entry.result.exercises}
        earned = sum(result.earned for result in results.values())
        row = [number(results[name].earned) if name in results else "" for name in points]
        guarded = all(entry.sandboxed for entry in handed_in)
        writer.writerow(
            [
                cell(student),
                *([numbers.get(student, "")] if numbers else []),
                *row,
                number(earned),
                number(sum(points.values())),
                cell(_states([results[name] for name in points if name in results]) if handed_in else ABSENT),
                cell("; ".join(f"{name}: {flag}" for entry in handed_in for name, flag in all_flags(entry))),
                cell("; ".join(remark for entry in handed_in for remark in remarks(entry))),
                *(["" if guarded else UNGUARDED] if warning else []),
            ]
        )
    return text.getvalue()


def all_flags(entry: Entry) -> list[tuple[str, str]]:
    """What the instructor should look at in a notebook: `(exercise, flag)`."""
    return [(result.exercise, flag) for result in entry.result.exercises for flag in entry.flags(result)]


def remarks(entry: Entry) -> list[str]:
    """What is to be said of a file as a whole."""
    problem = [f"{entry.path}: {entry.result.problem}"] if entry.result.problem else []
    count = len(entry.others) + 1
    several = [f"{count} files for {entry.notebook}: {entry.path} counts"] if entry.others else []
    return [*problem, *entry.result.remarks, *several]


def _states(results: Sequence[ExerciseResult]) -> str:
    """What points do not tell: `not attempted: softmax, causal_mask; timed out: target_mask`."""
    named: dict[str, list[str]] = {}
    for result in results:
        if result.state not in ("passed", "failed"):
            named.setdefault(result.state, []).append(result.exercise)
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in named.items())


def number(points: float) -> str:
    """Points as they are written: `2`, `1.5`, `0.33`."""
    return f"{round(points, 2):.10g}"


def cell(text: str) -> str:
    """`text` as one line that no spreadsheet takes for a formula."""
    line = " ".join(clean(text).split())
    return f"'{line}" if line.startswith(tuple(FORMULA)) else line
