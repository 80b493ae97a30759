"""Write the reports next to `gradebook.sqlite`: the table, the pages, and the files for other programs."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from transformer_lab.classroom.corrections import read_corrections, with_corrections
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.exports import gradescope_results, junit_xml, moodle_feedback
from transformer_lab.classroom.feedback import feedback_page, reading_places
from transformer_lab.classroom.gradebook import Entry, Gradebook, as_csv, by_student
from transformer_lab.classroom.integrity import similar
from transformer_lab.classroom.results import SubmissionResult
from transformer_lab.classroom.roster import Attendance, attendance
from transformer_lab.classroom.summary import summary_page
from transformer_lab.errors import InputError
from transformer_lab.files import file_names, write_file


def write_reports(out: Path, book: Gradebook, course: Course) -> tuple[list[Entry], Attendance, list[Path]]:
    """Write reports about the results that count so far, replacing each file atomically.

        gradebook.csv                                     one row per student
        summary.html                                      for the instructor
        feedback/STUDENT.html                             a feedback page per student
        moodle_feedback.zip                               these pages for upload, if the files came from Moodle
        junit/STUDENT.NOTEBOOK.xml                        what ran, and the points earned
        gradescope/NOTEBOOK/STUDENT/results.json          for Gradescope, if each notebook is an assignment
        gradescope/STUDENT.json                           for Gradescope, if all notebooks are one assignment

    Returns:
        The entries with similar answers marked and points corrected, the comparison with the roster, and the paths that
        were written.
    """
    entries = with_corrections(with_similar(book.entries()), read_corrections(out))
    students = by_student(entries)
    ungraded = book.ungraded()
    everyone = list(dict.fromkeys([*students, *ungraded]))  # if the run isn't finished, the others aren't absent
    present = attendance(book.roster(), everyone)
    names = file_names(everyone)
    write_file(out / "gradebook.csv", as_csv(entries, present), encoding="utf-8-sig")  # Excel needs the byte-order mark
    graded = {entry.notebook for entry in entries} & set(course.names)
    places = {name: where for notebook in graded for name, where in reading_places(course, notebook).items()}
    pages = {student: feedback_page(student, submitted, places) for student, submitted in students.items()}
    for student, submitted in students.items():
        name = names[student]
        write_file(out / "feedback" / f"{name}.html", pages[student])
        write_file(out / "gradescope" / f"{name}.json", gradescope_results(submitted))
        for number, entry in enumerate(submitted, start=1):
            notebook = entry.notebook or f"file {number}"
            write_file(out / "junit" / f"{name}.{notebook}.xml", junit_xml(entry.result))
            write_file(out / "gradescope" / notebook / name / "results.json", gradescope_results([entry]))
    write_file(out / "summary.html", summary_page(entries, names, present, len(ungraded)))
    written = ["gradebook.csv", "summary.html", "feedback", "junit", "gradescope", "gradebook.sqlite"]
    if for_moodle := moodle_feedback(pages, students):
        write_file(out / "moodle_feedback.zip", for_moodle)
        written.insert(3, "moodle_feedback.zip")
    else:
        (out / "moodle_feedback.zip").unlink(missing_ok=True)  # from an earlier run
    return entries, present, [out / name for name in written]


class EarlyReports:
    """Reports about the results so far, so that slow submissions do not keep the instructor from seeing the others.

    They are written when every student has a result, while the grader waits for slow submissions, and after Ctrl-C.
    Writing takes seconds in a large class. So while the grader waits, they are written only if at most half as many
    results are missing as last time. That happens only a few times per run, the last time when one result is missing.

    Args:
        out: The folder for the reports.
        book: The gradebook in which each result is saved before it is added here.
        course: The course notebooks.
        todo: The student and the digest of each submission in the run.
    """

    def __init__(self, out: Path, book: Gradebook, course: Course, todo: Collection[tuple[str, str]]) -> None:
        self._out, self._book, self._course = out, book, course
        self._students = {student for student, _ in todo}  # those without a result
        self._missing = len(todo)
        self._most_missing = self._missing - 1  # to be worth writing while the grader waits

    def add(self, result: SubmissionResult) -> None:
        """Count a result, and write the reports if it is the first one of the last student."""
        self._missing -= 1
        if result.student in self._students:
            self._students.remove(result.student)
            if self._missing and not self._students:
                self.write()

    def write_while_waiting(self) -> None:
        if self._missing <= self._most_missing:
            self.write()

    def write(self) -> None:
        """Write the reports if there are any results. Errors are ignored, since the last reports will raise them."""
        self._most_missing = self._missing // 2
        with suppress(InputError):
            if self._book.entries():
                write_reports(self._out, self._book, self._course)


def with_similar(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries, adding the names of students who gave nearly the same answers."""
    answers = [
        (entry.student, result.exercise, result.source)
        for entry in entries
        for result in entry.result.exercises
        if result.source and result.state != "not attempted"
    ]
    others: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)  # maps each student and exercise to names
    for exercise, students in similar(answers):
        for student in students:
            others[student][exercise] = tuple(name for name in students if name != student)
    return [replace(entry, similar=others[entry.student]) for entry in entries]
