"""Write the reports next to `gradebook.sqlite`: the table, the pages, and the files for other programs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformer_lab.classroom.course import Course
from transformer_lab.classroom.exports import gradescope_results, junit_xml, moodle_feedback
from transformer_lab.classroom.feedback import feedback_page, reading_places
from transformer_lab.classroom.gradebook import Entry, Gradebook, as_csv, by_student
from transformer_lab.classroom.integrity import similar
from transformer_lab.classroom.roster import Attendance, attendance
from transformer_lab.classroom.summary import summary_page
from transformer_lab.files import file_names, write_file


def write_reports(out: Path, book: Gradebook, course: Course) -> tuple[list[Entry], Attendance, list[Path]]:
    """Write reports about the results that count, replacing each file atomically.

        gradebook.csv                                     one row per student
        summary.html                                      for the instructor
        feedback/STUDENT.html                             a feedback page per student
        moodle_feedback.zip                               these pages for upload, if the files came from Moodle
        junit/STUDENT.NOTEBOOK.xml                        what ran, and the points earned
        gradescope/NOTEBOOK/STUDENT/results.json          for Gradescope, if each notebook is an assignment
        gradescope/STUDENT.json                           for Gradescope, if all notebooks are one assignment

    Returns:
        The entries with similar answers marked, the comparison with the roster, and the paths that were written.
    """
    entries = with_similar(book.entries())
    students = by_student(entries)
    present = attendance(book.roster(), students)
    names = file_names(entry.student for entry in entries)
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
    write_file(out / "summary.html", summary_page(entries, names, present))
    written = ["gradebook.csv", "summary.html", "feedback", "junit", "gradescope", "gradebook.sqlite"]
    if for_moodle := moodle_feedback(pages, students):
        write_file(out / "moodle_feedback.zip", for_moodle)
        written.insert(3, "moodle_feedback.zip")
    else:
        (out / "moodle_feedback.zip").unlink(missing_ok=True)  # from an earlier run
    return entries, present, [out / name for name in written]


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
