"""All that a run leaves beside `gradebook.sqlite`: the table, the pages, and the files for other programs."""

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
    """Write what counts now, each file in one step.

        gradebook.csv                                     a row a student
        summary.html                                      for the instructor
        feedback/STUDENT.html                             a page for each student
        moodle_feedback.zip                               the same pages, if Moodle has named the files: to upload there
        junit/STUDENT.NOTEBOOK.xml                        what ran and what was earned
        gradescope/NOTEBOOK/STUDENT/results.json          as Gradescope reads it, where a notebook is an assignment
        gradescope/STUDENT.json                           the same of all that a student handed in

    Returns:
        What counts, with the answers that are nearly the same marked; what the list of the class says; where to look.
    """
    entries = with_similar(book.entries())
    students = by_student(entries)
    found = attendance(book.roster(), students)
    names = file_names(entry.student for entry in entries)
    gradebook = as_csv(entries, found)
    write_file(out / "gradebook.csv", gradebook, encoding="utf-8-sig")  # Excel takes it for Latin-1 otherwise
    graded = {entry.notebook for entry in entries} & set(course.names)
    places = {name: where for notebook in graded for name, where in reading_places(course, notebook).items()}
    pages = {student: feedback_page(student, handed_in, places) for student, handed_in in students.items()}
    for student, handed_in in students.items():
        write_file(out / "feedback" / f"{names[student]}.html", pages[student])
        write_file(out / "gradescope" / f"{names[student]}.json", gradescope_results(handed_in))
        for number, entry in enumerate(handed_in, start=1):
            notebook = entry.notebook or f"file {number}"
            write_file(out / "junit" / f"{names[student]}.{notebook}.xml", junit_xml(entry.result))
            results = out / "gradescope" / notebook / names[student] / "results.json"
            write_file(results, gradescope_results([entry]))
    write_file(out / "summary.html", summary_page(entries, names, found))
    written = ["gradebook.csv", "summary.html", "feedback", "junit", "gradescope", "gradebook.sqlite"]
    if for_moodle := moodle_feedback(pages, students):
        write_file(out / "moodle_feedback.zip", for_moodle)
        written.insert(3, "moodle_feedback.zip")
    else:
        (out / "moodle_feedback.zip").unlink(missing_ok=True)  # of an earlier run, before two names had one number
    return entries, found, [out / name for name in written]


def with_similar(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with the names of those whose answers to an exercise are nearly the same."""
    answers = [
        (entry.student, result.exercise, result.source)
        for entry in entries
        for result in entry.result.exercises
        if result.source and result.state != "not attempted"
    ]
    others: dict[tuple[str, str], tuple[str, ...]] = {}
    for group in similar(answers):
        for student in group.students:
            others[student, group.exercise] = tuple(name for name in group.students if name != student)
    return [
        replace(
            entry,
            similar={
                result.exercise: others[entry.student, result.exercise]
                for result in entry.result.exercises
                if (entry.student, result.exercise) in others
            },
        )
        for entry in entries
    ]
