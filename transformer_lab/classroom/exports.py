"""Export results for other programs: JUnit XML, `results.json` for Gradescope, and a zip of pages for Moodle."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_lab.classroom.gradebook import Entry, format_points
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.files import clean

MAX_CHARACTERS = 20_000  # in each report
FEEDBACK = {  # shown to a student if there is no report
    "not attempted": "Not attempted: the cell is the same as in the released notebook.",
    "not checked": "Not checked: it depends on something that failed.",
    "timed out": "Your code did not finish in time. Is there a loop that never ends?",
    "killed": "Your code was stopped because it exceeded the limits for a submission.",
    "out of memory": "Your code needed more memory than a submission may use.",
    "not gradable": "This could not be graded.",
    "grader error": "The grader failed here. This is not your fault: your instructor will grade it again.",
}


def feedback_text(result: ExerciseResult) -> str:
    """Return an exercise's report and the remarks for the student, excluding the instructor's flags."""
    report = result.report or FEEDBACK.get(result.state, "")
    remarks = [f"Remark: {remark}" for remark in result.remarks if remark not in " ".join(report.split())]
    text = "\n\n".join(filter(None, [report, *remarks]))
    return clean(text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "\n… (shortened)")


def junit_xml(result: SubmissionResult) -> str:
    """Return a JUnit test suite with one case for each cell that nbval ran and one for each exercise and its points.

    The exercises come from `result.exercises`, because some may have been regraded since nbval ran.
    """
    suites = ElementTree.Element("testsuites", name="transformer-lab")
    suite = ElementTree.SubElement(suites, "testsuite", name=result.notebook or "submission")
    properties = {"student": result.student, "digest": result.digest}
    _add_properties(suite, properties | {f"remark {n}": remark for n, remark in enumerate(result.remarks, 1)})
    suite.extend(_cell_cases(result.junit))
    if result.problem:
        case = ElementTree.SubElement(suite, "testcase", classname="submission", name="the file can be graded")
        ElementTree.SubElement(case, "error", message="not gradable").text = result.problem
    for exercise in result.exercises:
        _add_exercise(suite, result.notebook or "exercises", exercise)
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(list(suite.iter(tag)))))
    suite.set("time", f"{result.seconds:.3f}")
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + clean(ElementTree.tostring(suites, encoding="unicode")) + "\n"


def _cell_cases(junit: str) -> list[ElementTree.Element]:
    """Return nbval's test cases, excluding those for exercises. If pytest wrote invalid XML, the list is empty."""
    if not junit or "<!DOCTYPE" in junit:
        return []
    try:
        cases = ElementTree.fromstring(clean(junit)).iter("testcase")
    except ElementTree.ParseError:
        return []
    return [case for case in cases if case.find("properties/property[@name='points']") is None]


def _add_exercise(suite: ElementTree.Element, classname: str, exercise: ExerciseResult) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=exercise.exercise)
    _add_properties(case, junit_properties(exercise))
    if exercise.state != "passed":
        tags = {"failed": "failure", "not attempted": "skipped", "not checked": "skipped"}
        tag = tags.get(exercise.state, "error")
        ElementTree.SubElement(case, tag, message=exercise.state).text = feedback_text(exercise)


def junit_properties(result: ExerciseResult) -> dict[str, str]:
    """Return the properties of an exercise's test case."""
    properties = {
        "exercise": result.exercise,
        "cell_id": result.cell_id,
        "state": result.state,
        "points": format_points(result.earned),
        "possible": format_points(result.possible),
    }
    return properties | ({"misconceptions": " ".join(result.misconceptions)} if result.misconceptions else {})


def _add_properties(element: ElementTree.Element, values: dict[str, str]) -> None:
    properties = ElementTree.SubElement(element, "properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=value)


def gradescope_results(submitted: Sequence[Entry]) -> str:
    """Return `results.json` for Gradescope: one test per exercise, showing only what the student may see.

    A file that could not be graded becomes a test with 0 points that states the reason. If there are several files,
    each test's name starts with the name of its notebook.
    """
    tests: list[dict[str, Any]] = []
    output: list[str] = []
    for entry in submitted:
        result = entry.result
        file = f"{result.notebook or entry.file}: " if len(submitted) > 1 else ""
        remarks = list(result.remarks)
        for exercise in result.exercises:
            tests.append(_test(file + exercise.exercise, exercise, feedback_text(exercise)))
        if result.problem and not result.exercises:
            ungraded = ExerciseResult("", "not gradable", 0.0, 0.0)
            tests.append(_test(f"{file}the file can be graded", ungraded, result.problem))
        elif result.problem:
            remarks.insert(0, result.problem)
        output += [file + remark for remark in remarks]
    files = [{"notebook": clean(entry.notebook), "digest": clean(entry.result.digest)} for entry in submitted]
    results = {
        "score": round(sum(entry.earned for entry in submitted), 2),
        "execution_time": round(sum(entry.result.seconds for entry in submitted), 2),
        "output": clean("\n".join(output)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [{**test, "number": str(index)} for index, test in enumerate(tests, start=1)],
        "extra_data": {"files": files},
    }
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def _test(name: str, result: ExerciseResult, output: str) -> dict[str, Any]:
    return {
        "name": clean(name),
        "score": round(result.earned, 2),
        "max_score": result.possible,
        "status": "passed" if result.state == "passed" else "failed",
        "output": clean(output),
        "output_format": "text",
        "tags": [clean(tag) for tag in (result.state, *result.misconceptions)],
        "visibility": "visible",
    }


def moodle_feedback(pages: Mapping[str, str], submitted: Mapping[str, Sequence[Entry]]) -> bytes:
    """Return a zip of feedback pages for Moodle to import. It identifies students by their Moodle numbers.

    Args:
        pages: Maps each student to their feedback page, as HTML.
        submitted: Maps each student to their entries that count. Students whose files do not come from Moodle are left
            out. Students who share a number are also left out, because the number does not identify one student.

    Returns:
        The zip's bytes. The same pages always yield the same bytes. If all students are left out, the result is empty.
    """
    students = {number: names[0] for number, names in moodle_numbers(submitted).items() if len(names) == 1}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for participant, student in students.items():
            # Moodle reads the number after the first underscore, so a name, which may contain one, can't come first.
            member = zipfile.ZipInfo(f"Student_{participant}_assignfeedback_file_/feedback.html")
            archive.writestr(member, pages[student], zipfile.ZIP_DEFLATED)
    return file.getvalue() if students else b""


def moodle_numbers(submitted: Mapping[str, Sequence[Entry]]) -> dict[int, list[str]]:
    """Return the students who have each Moodle number. Normally, each number belongs to only one student."""
    numbers: dict[int, list[str]] = {}
    for student in sorted(submitted):
        match = re.search(r"\((\d+)\)$", student)
        if match and any(f"_{match[1]}_assignsubmission_" in entry.path for entry in submitted[student]):
            numbers.setdefault(int(match[1]), []).append(student)
    return numbers
