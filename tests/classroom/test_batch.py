"""Without these tests, a broken file or a crash could cost a class its grades, or files could be graded twice."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import zipfile
from collections import deque
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pandas
import pytest

from transformer_lab.authoring.stubs import marked_answer
from transformer_lab.classroom import batch, reports
from transformer_lab.classroom.batch import grade_batch, regrade_exercise
from transformer_lab.classroom.gradebook import TIME_IS_UP
from transformer_lab.classroom.reports import write_reports
from transformer_lab.classroom.resource_limits import STUDENT_SECONDS
from transformer_lab.errors import InputError

pytestmark = pytest.mark.usefixtures("without_charts")
ALL = {"padding_mask": "# passed", "causal_mask": "# passed", "target_mask": "# passed"}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "grades"


@pytest.fixture
def grade(out, course):
    """Return a function that grades a folder with a `MarkReader`."""

    def run(handed_in, reader, **options):
        return grade_batch([handed_in] if handed_in else [], out, reader, course, **options)

    return run


def states(outcome):
    return {
        (entry.student, result.exercise): result.state for entry in outcome.entries for result in entry.result.exercises
    }


def runs(out):
    with sqlite3.connect(out / "gradebook.sqlite") as database:
        return database.execute("SELECT finished IS NOT NULL, seed, only_exercise FROM runs ORDER BY id").fetchall()


def rows_of_results(out):
    with sqlite3.connect(out / "gradebook.sqlite") as database:
        return database.execute("SELECT student FROM results ORDER BY id").fetchall()


# --- one run ---


def test_a_class_is_graded(hand_in, grade, mark_reader, out):
    hand_in("Ada", **ALL)
    folder = hand_in("Bob", padding_mask="# passed", causal_mask="# failed shape_only", target_mask="# timed out")
    hand_in("Bob", "01_attention", softmax="# passed")
    (folder / "Cyd").mkdir()
    (folder / "Cyd" / "03_masks.ipynb").write_text("")
    reader, told = mark_reader(), []
    outcome = grade(folder, reader, advance=lambda done, total: told.append((done, total)))
    assert sorted(reader.graded) == [("Ada", "03_masks"), ("Bob", "01_attention"), ("Bob", "03_masks")]
    assert (outcome.graded, outcome.kept, outcome.warnings) == (4, 0, [])
    assert told == [(done, 4) for done in range(5)]
    assert states(outcome)["Bob", "causal_mask"] == "failed"
    assert [entry.result.problem for entry in outcome.entries if entry.student == "Cyd"] == ["the file is empty"]
    for path in outcome.written:
        assert path.exists()
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == {
        ".grading",
        "gradebook.csv",
        "gradebook.sqlite",
        "summary.html",
        *(f"feedback/{student}.html" for student in ("Ada", "Bob", "Cyd")),
        *(f"junit/{name}.xml" for name in ("Ada.03_masks", "Bob.01_attention", "Bob.03_masks", "Cyd.file 1")),
        *(f"gradescope/03_masks/{student}/results.json" for student in ("Ada", "Bob")),
        "gradescope/01_attention/Bob/results.json",
        "gradescope/file 1/Cyd/results.json",
        *(f"gradescope/{student}.json" for student in ("Ada", "Bob", "Cyd")),
    }
    assert (out / "gradebook.csv").read_bytes().startswith(b"\xef\xbb\xbfstudent,softmax,")
    # Gradescope's autograder copies one file per student. Without it, the student is told that the autograder failed.
    bob, cyd = (json.loads((out / "gradescope" / f"{student}.json").read_text()) for student in ("Bob", "Cyd"))
    assert {"01_attention: softmax", "03_masks: padding_mask"} <= {test["name"] for test in bob["tests"]}
    assert (bob["score"], cyd["score"], cyd["tests"][0]["output"]) == (2, 0, "the file is empty")


def test_moodle_gets_a_page_for_each_student(notebook_with, hand_in, grade, mark_reader, out, tmp_path):
    """Sending 300 pages by hand takes too long. Students whose files do not come from Moodle are left out.

    If two students share a number, only the instructor knows which page belongs to which student.
    """

    def grade_from_moodle(*folders):
        with zipfile.ZipFile(tmp_path / "moodle.zip", "w") as archive:
            for folder in folders:
                archive.writestr(f"{folder}/a.ipynb", notebook_with("03_masks"))
        return grade(tmp_path / "moodle.zip", mark_reader())

    hand_in("Cyd")
    grade(hand_in("Dee (14)"), mark_reader())
    pages = out / "moodle_feedback.zip"
    assert not pages.exists()
    outcome = grade_from_moodle("Ada_May Lovelace_12_assignsubmission_file_", "Bob_13_assignsubmission_file")
    assert pages in outcome.written
    with zipfile.ZipFile(pages) as archive:
        for name, student in zip(archive.namelist(), ["Ada_May Lovelace (12)", "Bob (13)"], strict=True):
            assert name == f"Student_{student[-3:-1]}_assignfeedback_file_/feedback.html"
            assert name.split("_", 4)[1:4] == [student[-3:-1], "assignfeedback", "file"]  # the parts that Moodle reads
            assert f"Feedback for <bdi>{student}</bdi>" in archive.read(name).decode()
    (warning,) = grade_from_moodle("Eve_12_assignsubmission_file_").warnings
    assert "Ada_May Lovelace (12) and Eve (12)" in warning
    grade_from_moodle("Eve_13_assignsubmission_file_")
    assert not pages.exists()  # the earlier zip is deleted


def test_what_has_not_changed_is_not_graded_again(hand_in, grade, mark_reader, out):
    folder = hand_in("Ada", **ALL)
    hand_in("Bob", padding_mask="# passed")
    grade(folder, mark_reader())
    hand_in("Bob", padding_mask="# passed", causal_mask="# passed")
    hand_in("Cyd", **ALL)
    reader = mark_reader()
    outcome = grade(folder, reader)
    assert sorted(reader.graded) == [("Bob", "03_masks"), ("Cyd", "03_masks")]
    assert (outcome.graded, outcome.kept) == (2, 1)
    assert states(outcome)["Bob", "causal_mask"] == "passed"
    before = (out / "gradebook.csv").read_bytes()
    unused = mark_reader()
    assert grade(folder, unused).graded == 0
    assert unused.seeds == []  # a grader takes seconds to start, so none is started if there is nothing to grade
    assert (out / "gradebook.csv").read_bytes() == before


def test_files_that_moved_are_not_graded_again(hand_in, grade, mark_reader, tmp_path):
    folder = hand_in("Ada", **ALL)
    grade(folder, mark_reader())
    moved = folder.rename(tmp_path / "downloaded again")
    reader = mark_reader()
    grade(moved, reader)
    assert reader.graded == []


def test_two_students_with_the_same_file_are_two_rows(hand_in, grade, mark_reader):
    hand_in("Ada", **ALL)
    reader = mark_reader()
    outcome = grade(hand_in("Bob", **ALL), reader)
    assert len(reader.graded) == 2
    assert {entry.student for entry in outcome.entries} == {"Ada", "Bob"}


def test_a_second_file_for_the_same_notebook(hand_in, grade, mark_reader, notebook_with):
    """Two files for the same notebook may be graded at the same time. Their results must not be mixed up."""
    folder = hand_in("Ada", padding_mask="# passed")
    (folder / "Ada" / "second.ipynb").write_text(notebook_with("03_masks", padding_mask="# failed"))
    outcome = grade(folder, mark_reader())
    (entry,) = outcome.entries
    assert (outcome.graded, entry.result.earned) == (2, 1.0)
    assert [Path(path).name for path in (entry.path, *entry.others)] == ["03_masks.ipynb", "second.ipynb"]


def test_students_take_turns_and_have_a_budget(hand_in, grade, mark_reader, out):
    """A hundred notebooks full of sleeping cells would block a run for hours while everyone else waits."""
    names = ["01_attention", "02_multi_head_attention", "03_masks", "04_embeddings", "05_sublayers"]
    for student, some in (("Ada", names[:3]), ("Bob", names[:2]), ("Cyd", names)):
        for name in some:
            folder = hand_in(student, name, causal_mask="# passed")
    (folder / "Cyd" / "last.ipynb").symlink_to("03_masks.ipynb")

    class SlowForCyd(mark_reader):
        def result(self, one, only):
            seconds = STUDENT_SECONDS / 2.5 if one.student == "Cyd" else 1.0
            return replace(super().result(one, only), seconds=seconds)

    reader = SlowForCyd()
    outcome = grade(folder, reader)
    assert [(student, names.index(name)) for student, name in reader.graded] == [
        ("Ada", 0), ("Bob", 0), ("Cyd", 0), ("Ada", 1), ("Bob", 1), ("Cyd", 1), ("Ada", 2), ("Cyd", 2),
    ]  # fmt: skip
    problems = {Path(entry.path).stem: entry.result.problem for entry in outcome.entries if entry.result.problem}
    assert "link" in problems.pop("last")
    assert problems == dict.fromkeys(names[3:], TIME_IS_UP)
    assert (outcome.graded, outcome.refused) == (11, 3)
    (warning,) = outcome.warnings
    assert warning.startswith("time ran out for Cyd: grade again")
    reader = SlowForCyd()
    outcome = grade(folder, reader)
    assert reader.graded == [("Cyd", "04_embeddings"), ("Cyd", "05_sublayers")]
    assert outcome.warnings == []


@pytest.fixture
def parallel_reader(mark_reader):
    """Return a class of graders that take `jobs` files before the first one ends. `seconds` maps notebooks to times."""

    class ParallelReader(mark_reader):
        def __init__(self, jobs, seconds=()):
            super().__init__()
            self.jobs, self.seconds = jobs, dict(seconds)

        def grade(self, assembled, only=None, while_waiting=None):
            remaining = iter(assembled)
            running = deque(islice(remaining, self.jobs))
            while running:
                submission = running.popleft()
                self.graded.append((submission.student, submission.name))
                yield replace(self.result(submission, only), seconds=self.seconds.get(submission.name, 0.0))
                running.extend(islice(remaining, 1))

    return ParallelReader


@pytest.mark.parametrize("jobs", [1, 2, 16])
@pytest.mark.parametrize(("seconds", "count"), [([180.0] * 6, 3), ([100.0, 170.0, 180.0] * 2, 4), ([1.0] * 6, 6)])
def test_a_budget_does_not_depend_on_the_number_of_jobs(hand_in, grade, parallel_reader, course, jobs, seconds, count):
    """With 16 jobs, a single student's files could run for an hour. Quick files are graded, even if they must wait."""
    names = course.names[1:7]
    for name in names:
        folder = hand_in("Ada", name)
    reader = parallel_reader(jobs, zip(names, seconds, strict=True))
    outcome = grade(folder, reader)
    assert reader.graded == [("Ada", name) for name in names[:count]]
    problems = [entry.result.problem for entry in outcome.entries if entry.result.problem]
    assert problems == [TIME_IS_UP] * (6 - count)


def test_a_grader_that_forgets_or_repeats_loses_and_doubles_nothing(hand_in, grade, mark_reader, out):
    for student in ("Ada", "Bob", "Cyd"):
        folder = hand_in(student, **ALL)
    outcome = grade(folder, mark_reader(forgets=["Bob"], twice=True))
    assert states(outcome)["Bob", "padding_mask"] == "grader error"
    assert states(outcome)["Ada", "padding_mask"] == "passed"
    assert sorted(rows_of_results(out)) == [("Ada",), ("Bob",), ("Cyd",)]
    assert "grader failed on 1 submission" in outcome.warnings[0]
    reader = mark_reader()
    assert states(grade(folder, reader))["Bob", "padding_mask"] == "passed"
    assert reader.graded == [("Bob", "03_masks")]


def test_a_bug_in_assembling_does_not_stop_the_others(hand_in, grade, mark_reader, monkeypatch):
    hand_in("Ada", **ALL)
    folder = hand_in("Bob", **ALL)
    assemble = batch.assemble

    def stumble(submission, course):
        if submission.student == "Ada":
            raise ZeroDivisionError("ours")
        return assemble(submission, course)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "assemble", stumble)
        outcome = grade(folder, mark_reader())
    assert "ZeroDivisionError" in outcome.entries[0].result.problem
    assert states(outcome)["Bob", "padding_mask"] == "passed"
    reader = mark_reader()
    grade(folder, reader)
    assert reader.graded == [("Ada", "03_masks")]


def test_near_identical_answers_are_marked_in_every_report(grade, mark_reader, out, tmp_path, course, notebook_of):
    """The instructor must see near-identical answers, but students must not. Other tests check how they are found."""
    name = "02_multi_head_attention"
    answers = {exercise.name: marked_answer(exercise.answer, exercise.blank) for exercise in course.exercises(name)}
    for student in ("Ada", "Bob"):
        sources = {exercise: f"{source}\n# {student}: return 1" for exercise, source in answers.items()}
        path = tmp_path / "handed_in" / student / "notebook.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook_of(name, **sources)))
    outcome = grade(tmp_path / "handed_in", mark_reader())
    marked = [name for entry in outcome.entries for name in entry.similar]
    assert marked
    assert "nearly the same as Bob" in (out / "gradebook.csv").read_text(encoding="utf-8-sig")
    assert "Nearly the same text" in (out / "summary.html").read_text()
    assert "Bob" not in (out / "feedback" / "Ada.html").read_text()


def test_it_warns_without_a_sandbox(hand_in, grade, mark_reader, out):
    outcome = grade(hand_in("Ada", **ALL), mark_reader(sandboxed=False))
    assert "without a sandbox" in outcome.warnings[0]
    assert "without a sandbox" in (out / "summary.html").read_text()


def test_it_says_when_the_package_has_changed_under_its_version(hand_in, grade, mark_reader, monkeypatch):
    """If half a class keeps its old points after a check is corrected, the instructor must be warned."""
    folder = hand_in("Ada", **ALL)
    (folder / "Cyd").mkdir()
    (folder / "Cyd" / "03_masks.ipynb").write_text("")  # can't be regraded, so it isn't counted
    grade(folder, mark_reader())
    monkeypatch.setattr(batch, "source_digest", lambda: "another")
    hand_in("Bob", **ALL)
    (warning,) = grade(folder, mark_reader()).warnings
    assert "1 submission" in warning
    assert "--only" in warning


# --- reports during a run ---


@pytest.fixture
def graded_students(out):
    """Return a function that lists the students in `gradebook.csv`, or None if it has not been written."""

    def students():
        table = out / "gradebook.csv"
        return pandas.read_csv(table)["student"].tolist() if table.exists() else None

    return students


def test_reports_are_written_before_slow_submissions_are_waited_for(hand_in, grade, mark_reader, graded_students, out):
    """One endless loop must not keep the instructor from seeing everyone else's results."""
    for student in ("Ada", "Bob", "Cyd", "Dee"):
        folder = hand_in(student, **ALL)
    seen = []

    class ReaderThatWaits(mark_reader):
        def grade(self, assembled, only=None, while_waiting=None):
            slow, *others = assembled
            while_waiting()
            seen.append(graded_students())
            yield from (self.result(submission, only) for submission in others)
            while_waiting()
            seen.append(graded_students())
            assert "1 submission hasn't been graded yet" in (out / "summary.html").read_text()
            yield self.result(slow, only)

    grade(folder, ReaderThatWaits())
    assert seen == [None, ["Bob", "Cyd", "Dee"]]
    assert graded_students() == ["Ada", "Bob", "Cyd", "Dee"]
    assert "been graded yet" not in (out / "summary.html").read_text()


def test_reports_are_written_when_everyone_has_a_result(hand_in, grade, mark_reader, graded_students):
    """One student's hundred notebooks must not keep the instructor from seeing everyone else's results."""
    hand_in("Ada", **ALL)
    hand_in("Ada", "01_attention")
    folder = hand_in("Bob", **ALL)
    seen = []

    class WatchingReader(mark_reader):
        def result(self, submission, only):
            seen.append(graded_students())
            return super().result(submission, only)

    grade(folder, WatchingReader())
    assert seen == [None, None, ["Ada", "Bob"]]


def test_reports_are_written_only_a_few_times(hand_in, grade, mark_reader, monkeypatch):
    """In a class of 300, writing the reports takes seconds."""
    for number in range(20):
        folder = hand_in(f"s{number}", **ALL)
    written = []

    class ReaderThatWaits(mark_reader):
        def grade(self, assembled, only=None, while_waiting=None):
            for result in super().grade(assembled, only):
                while_waiting()
                yield result

    def count_entries(out, book, course):
        written.append(len(book.entries()))
        return write_reports(out, book, course)

    for module in (batch, reports):
        monkeypatch.setattr(module, "write_reports", count_entries)
    grade(folder, ReaderThatWaits())
    assert len(written) <= 6
    assert (written[0], written[-2], written[-1]) == (1, 19, 20)


def test_a_report_that_cannot_be_written_early_does_not_end_the_run(hand_in, grade, mark_reader, out, tmp_path):
    hand_in("Ada", **ALL)
    folder = hand_in("Ada", "01_attention")
    reader = mark_reader()
    grade(folder, mark_reader())
    hand_in("Bob", **ALL)
    hand_in("Bob", "01_attention")
    (out / "feedback").rename(tmp_path / "feedback")
    (out / "feedback").symlink_to(tmp_path / "feedback")
    with pytest.raises(InputError, match="is a link"):
        grade(folder, reader)
    assert len(reader.graded) == 2


def test_reports_of_an_interrupted_run(hand_in, grade, mark_reader, graded_students, out, tmp_path, course):
    """After Ctrl-C, the reports show what was graded, and --resume yields the gradebook of an uninterrupted run."""
    names = [f"s{number}" for number in range(5)]
    for name in names:
        folder = hand_in(name, **ALL)
    (tmp_path / "class.txt").write_text("\n".join([*names, "Zoë"]), encoding="utf-8")
    options = {"roster": tmp_path / "class.txt"}
    with pytest.raises(KeyboardInterrupt):
        grade(folder, mark_reader(dies_after=0), **options)
    assert graded_students() is None
    with pytest.raises(KeyboardInterrupt):
        grade(folder, mark_reader(dies_after=3), resume=True, **options)
    assert graded_students() == [*names[:3], "Zoë"]  # those who aren't graded yet have submitted something
    assert "2 submissions haven't been graded yet" in (out / "summary.html").read_text()
    grade(None, mark_reader(), resume=True)
    grade_batch([folder], tmp_path / "uninterrupted", mark_reader(), course, **options)
    for name in ("gradebook.csv", "summary.html"):
        assert (out / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()


# --- interrupted runs ---


def test_an_interrupted_run_is_resumed_with_its_paths_and_its_seed(
    hand_in, grade, mark_reader, out, monkeypatch, tmp_path
):
    for number in range(5):
        folder = hand_in(f"s{number}", **ALL)
    first = mark_reader(dies_after=3)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        grade(Path(folder.name), first)
    monkeypatch.chdir("/")
    second = mark_reader()
    outcome = grade(None, second, resume=True)
    assert len(first.graded) == 3
    assert sorted(first.graded + second.graded) == [(f"s{number}", "03_masks") for number in range(5)]
    assert second.seeds == first.seeds
    assert [finished for finished, _, _ in runs(out)] == [1]
    assert len(outcome.entries) == 5


def test_to_resume_with_other_paths_starts_a_new_run(hand_in, grade, mark_reader, tmp_path, out):
    """Otherwise, the next --resume without paths would go back to the folder of the interrupted run."""
    for number in range(3):
        folder = hand_in(f"s{number}", **ALL)
    other_folder = folder.rename(tmp_path / "week_1")
    with pytest.raises(KeyboardInterrupt):
        grade(other_folder, mark_reader(dies_after=1))
    folder = hand_in("Ada", **ALL)
    grade(folder, mark_reader(), resume=True)
    reader = mark_reader()
    hand_in("Bob", **ALL)
    grade(None, reader, resume=True)
    assert reader.graded == [("Bob", "03_masks")]


def test_a_run_that_was_killed_is_resumed(hand_in, grade, out, mark_reader):
    """Even after a power failure, no saved result is lost, and no submission is graded twice."""
    for number in range(4):
        folder = hand_in(f"s{number}", **ALL)
    child = os.fork()  # a fresh copy of this process, because importing the package takes seconds
    if child == 0:
        try:
            grade(folder, mark_reader(dies_after=2, signal=signal.SIGKILL))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(rows_of_results(out)) == 2
    reader = mark_reader()
    outcome = grade(folder, reader, resume=True)
    assert len(reader.graded) == 2
    assert len(outcome.entries) == len(rows_of_results(out)) == 4


def test_the_same_command_again_goes_on_too(hand_in, grade, mark_reader, out):
    for number in range(3):
        folder = hand_in(f"s{number}", **ALL)
    with pytest.raises(KeyboardInterrupt):
        grade(folder, mark_reader(dies_after=2))
    reader = mark_reader()
    grade(folder, reader)
    assert len(reader.graded) == 1
    assert [finished for finished, _, _ in runs(out)] == [0, 1]


def test_to_resume_a_run_that_is_finished_grades_what_is_new(hand_in, grade, mark_reader):
    folder = hand_in("Ada", **ALL)
    first, second = mark_reader(), mark_reader()
    grade(folder, first)
    hand_in("Bob", **ALL)
    grade(None, second, resume=True)
    assert second.graded == [("Bob", "03_masks")]
    assert second.seeds != first.seeds


# --- regrading one exercise ---


@pytest.fixture
def regrade(out, course):
    def run(exercise, reader, answer=True, paths=()):
        shown = []

        def approve(changes):
            shown.extend(changes)
            return answer

        return regrade_exercise(paths, out, exercise, reader, approve, course), shown

    return run


def test_one_exercise_is_regraded_after_showing_the_changes(hand_in, grade, regrade, mark_reader, out):
    hand_in("Ada", padding_mask="# passed", causal_mask="# failed transposed")
    folder = hand_in("Bob", padding_mask="# failed", causal_mask="# passed")
    hand_in("Cyd", "01_attention", softmax="# passed")
    grade(folder, mark_reader())
    before = (out / "gradebook.csv").read_bytes(), (out / "gradebook.sqlite").read_bytes()

    corrected = mark_reader(overrides={"causal_mask": "passed", "padding_mask": "passed"})
    outcome, shown = regrade("causal_mask", corrected, answer=False)
    assert outcome is None
    assert ((out / "gradebook.csv").read_bytes(), (out / "gradebook.sqlite").read_bytes()) == before
    assert sorted(corrected.graded) == [("Ada", "03_masks"), ("Bob", "03_masks")]  # Cyd's notebook lacks this exercise
    assert [(change.student, change.before.state, change.after.state, change.differs) for change in shown] == [
        ("Ada", "failed", "passed", True),
        ("Bob", "passed", "passed", False),
    ]

    outcome, _ = regrade("causal_mask", corrected)
    assert states(outcome)["Ada", "causal_mask"] == "passed"
    assert states(outcome)["Bob", "padding_mask"] == "failed"  # the other exercises are unchanged
    reader = mark_reader()
    assert grade(folder, reader).kept == 3
    assert reader.graded == []


def test_another_maximum_is_a_change(hand_in, grade, regrade, mark_reader):
    """Otherwise, nothing would be written after a change of the points if everyone earns 0."""
    grade(hand_in("Ada", causal_mask="# failed"), mark_reader())

    class ReaderWithNewPoints(mark_reader):
        def read(self, name, source):
            return replace(super().read(name, source), possible=5.0)

    outcome, (change,) = regrade("causal_mask", ReaderWithNewPoints())
    assert change.differs
    assert [result.possible for result in outcome.entries[0].result.exercises] == [1, 5, 1]


def test_a_grader_that_fails_takes_nothing_away(hand_in, grade, regrade, mark_reader):
    grade(hand_in("Ada", **ALL), mark_reader())
    outcome, shown = regrade("causal_mask", mark_reader(forgets=["Ada"]))
    assert shown[0].after.state == "grader error"
    assert states(outcome)["Ada", "causal_mask"] == "passed"


def test_it_warns_of_submissions_that_were_never_graded(hand_in, grade, regrade, mark_reader):
    folder = hand_in("Ada", **ALL)
    grade(folder, mark_reader())
    hand_in("Bob", **ALL)
    outcome, shown = regrade("causal_mask", mark_reader())
    assert [change.student for change in shown] == ["Ada"]
    assert "1 new or changed submission left out" in outcome.warnings[-1]
    assert (outcome.graded, outcome.kept) == (1, 0)


def test_one_exercise_is_regraded_in_all_runs(hand_in, grade, regrade, mark_reader, tmp_path):
    """If only the last run's files were regraded, earlier files could keep points based on a different maximum."""
    first = hand_in("Ada", **ALL).rename(tmp_path / "first")
    grade(first, mark_reader())
    shutil.copytree(first, tmp_path / "in time")
    (tmp_path / "in time" / "Ada").rename(tmp_path / "in time" / "Bob")
    grade(tmp_path / "in time", mark_reader())
    grade(hand_in("Cyd", **ALL).rename(tmp_path / "late"), mark_reader())
    outcome, shown = regrade("causal_mask", mark_reader(overrides={"causal_mask": "failed"}))
    assert [change.student for change in shown] == ["Ada", "Bob", "Cyd"]
    assert {states(outcome)[student, "causal_mask"] for student in ("Ada", "Bob", "Cyd")} == {"failed"}
    shutil.rmtree(tmp_path / "in time")
    outcome, shown = regrade("causal_mask", mark_reader())
    assert [change.student for change in shown] == ["Ada", "Cyd"]
    assert outcome.warnings[-1].startswith("the results of Bob are unchanged, because their files are not where")
    outcome, shown = regrade("causal_mask", mark_reader(), paths=[first])
    assert [change.student for change in shown] == ["Ada"]
    assert "the results of Bob, Cyd are unchanged" in outcome.warnings[-1]


def test_it_warns_of_lost_points(hand_in, grade, mark_reader, tmp_path):
    """Without the warning, grading an old download again would silently replace a student's newer submission."""
    old = hand_in("Ada", padding_mask="# passed", causal_mask="# timed out").rename(tmp_path / "old")
    grade(old, mark_reader())
    assert grade(hand_in("Ada", **ALL).rename(tmp_path / "new"), mark_reader()).warnings == []
    (warning,) = grade(old, mark_reader()).warnings
    assert warning == ("fewer points than before, because the last run's files count: Ada (03_masks, 3 -> 1)")


def test_corrections_outlast_every_run(hand_in, grade, regrade, mark_reader, out):
    """Corrected points would be lost if they had to be entered in `gradebook.csv`, which every run writes anew."""

    def total():
        return pandas.read_csv(out / "gradebook.csv").set_index("student")["total"].to_dict()

    folder = hand_in("Ada", padding_mask="# passed")
    grade(folder, mark_reader())
    path = out / "corrections.csv"
    path.write_text("student,exercise,points,reason\nAda,padding_mask,0,a copy\nAda,total,0.5,\nBob,total,1,\n")
    (warning,) = grade(folder, mark_reader()).warnings
    assert "not in the gradebook: Bob (total)" in warning
    hand_in("Ada", padding_mask="# passed", causal_mask="# failed")
    hand_in("Bob", **ALL)
    assert grade(folder, mark_reader()).warnings == []  # the second file earned as many points as the first one
    assert total() == {"Ada": 0.5, "Bob": 1}
    regrade("causal_mask", mark_reader())
    assert total() == {"Ada": 0.5, "Bob": 1}
    path.write_text("student,points\n")
    reader = mark_reader()
    hand_in("Cyd", **ALL)
    with pytest.raises(InputError, match="needs the headings"):
        grade(folder, reader)
    assert reader.graded == []
    path.unlink()
    grade(folder, reader)
    assert total() == {"Ada": 1, "Bob": 3, "Cyd": 3}


def test_one_exercise_outside_a_sandbox_marks_the_whole(hand_in, grade, regrade, mark_reader):
    folder = hand_in("Ada", **ALL)
    grade(folder, mark_reader())
    outcome, _ = regrade("causal_mask", mark_reader(sandboxed=False))
    assert not outcome.entries[0].sandboxed


# --- invalid arguments ---


@pytest.fixture
def complaint(grade):
    def of(*arguments, **options):
        with pytest.raises(InputError) as raised:
            grade(*arguments, **options)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    return of


def test_nothing_was_handed_in(complaint, mark_reader, tmp_path, out):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "missing" in complaint(tmp_path / "missing", mark_reader())
    assert "no notebooks in" in complaint(empty, mark_reader())
    assert "nothing to grade" in complaint(None, mark_reader())
    assert not out.exists()


def test_an_output_that_cannot_be_used(complaint, hand_in, mark_reader, out):
    folder = hand_in("Ada", **ALL)
    out.write_text("a file")
    assert f"{out} is a file" in complaint(folder, mark_reader())
    out.unlink()
    out.mkdir()
    (out / "holiday.jpg").write_text("")
    assert "contains other files (holiday.jpg)" in complaint(folder, mark_reader())
    assert os.listdir(out) == ["holiday.jpg"]


def test_an_output_among_what_was_handed_in(hand_in, mark_reader, course):
    """If reports were written among the submissions, the next run would treat them as submissions."""
    folder = hand_in("Ada", **ALL)
    with pytest.raises(InputError, match="is inside the submissions"):
        grade_batch([folder], folder / "grades", mark_reader(), course)
    assert os.listdir(folder) == ["Ada"]


def test_a_gradebook_of_another_version(complaint, hand_in, grade, mark_reader, out, monkeypatch):
    folder = hand_in("Ada", **ALL)
    grade(folder, mark_reader())
    monkeypatch.setattr(batch, "version", lambda name: "9.9")
    said = complaint(folder, mark_reader())
    assert "0.1.0" in said
    assert "9.9" in said
    assert "another folder" in said


def test_two_runs_into_one_folder(complaint, hand_in, mark_reader, out):
    folder = hand_in("Ada", **ALL)
    out.mkdir()
    code = (
        "import fcntl, sys\nlock = open(sys.argv[1], 'w')\nfcntl.lockf(lock, fcntl.LOCK_EX)\nprint(flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, out / ".grading"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        said = complaint(folder, mark_reader())
        other.stdin.close()
    assert "another run is writing" in said


def test_to_resume_or_regrade_what_was_never_graded(complaint, mark_reader, regrade, hand_in, grade, out):
    assert "no gradebook" in complaint(None, mark_reader(), resume=True)
    for exercise, says in (("causal_mask", "no gradebook"), ("causal_msk", "did you mean causal_mask")):
        with pytest.raises(InputError, match=says):
            regrade(exercise, mark_reader())
    assert not out.exists()
    grade(hand_in("Ada", **ALL), mark_reader())
    with pytest.raises(InputError, match="none of the 1 submissions"):
        regrade("softmax", mark_reader())
