"""Results for other programs: JUnit XML for runners, `results.json` for Gradescope, a zip of pages for Moodle."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any

from transformer_lab.classroom.gradebook import Entry, number
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult
from transformer_lab.files import clean

LONGEST = 20_000  # characters of one report
FEEDBACK = {  # what a student reads where no report was made
    "not attempted": "Not attempted: the cell is as it was handed out.",
    "not checked": "Not checked: it waits for something that failed.",
    "timed out": "Your code did not end within its time. Is there a loop that cannot end?",
    "killed": "Your code was stopped, because it used more than a submission may.",
    "out of memory": "Your code needed more memory than a submission may use.",
    "not gradable": "This could not be graded.",
    "grader error": "The grader failed here. This is not your fault: your instructor will grade it again.",
}


def feedback_text(result: ExerciseResult) -> str:
    """The report of one exercise with what else is said to the student. The instructor's flags are not in it."""
    report = result.report or FEEDBACK.get(result.state, "")
    said = [f"Remark: {remark}" for remark in result.remarks if remark not in " ".join(report.split())]
    text = "\n\n".join([*([report] if report else []), *said])
    return clean(text if len(text) <= LONGEST else text[:LONGEST] + "\n… (shortened)")


def junit_xml(result: SubmissionResult) -> str:
    """One test suite a submission: the cells as nbval ran them, then a case for each exercise with its points.

    The cases of exercises are written from `result.exercises`, which may have been graded anew since nbval ran.
    """
    suites = ElementTree.Element("testsuites", name="transformer-lab")
    suite = ElementTree.SubElement(suites, "testsuite", name=result.notebook or "hand-in")
    properties = {"student": result.student, "digest": result.digest}
    _add_properties(suite, properties | {f"remark {n}": remark for n, remark in enumerate(result.remarks, 1)})
    suite.extend(_cells(result.junit))
    if result.problem:
        case = ElementTree.SubElement(suite, "testcase", classname="hand-in", name="the file can be graded")
        _add_outcome(case, "error", "not gradable", result.problem)
    for exercise in result.exercises:
        classname = result.notebook or "exercises"
        case = ElementTree.SubElement(suite, "testcase", classname=classname, name=exercise.exercise)
        facts = {
            "exercise": exercise.exercise,
            "cell_id": exercise.cell_id,
            "state": exercise.state,
            "points": number(exercise.earned),
            "possible": number(exercise.possible),
        }
        if exercise.misconceptions:
            facts["misconceptions"] = " ".join(exercise.misconceptions)
        _add_properties(case, facts)
        if exercise.state != "passed":
            kind = {"failed": "failure", "not attempted": "skipped", "not checked": "skipped"}
            _add_outcome(case, kind.get(exercise.state, "error"), exercise.state, feedback_text(exercise))
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(list(suite.iter(tag)))))
    suite.set("time", f"{result.seconds:.3f}")
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + clean(ElementTree.tostring(suites, encoding="unicode")) + "\n"


def _cells(junit: str) -> list[ElementTree.Element]:
    """The test cases of nbval in what pytest wrote, those of exercises left out. Text that is no XML has none."""
    try:
        root = ElementTree.fromstring(clean(junit)) if junit and "<!DOCTYPE" not in junit else None
    except ElementTree.ParseError:
        return []
    found = [] if root is None else [deepcopy(case) for case in root.iter("testcase")]
    return [case for case in found if case.find("properties/property[@name='points']") is None]


def _add_properties(element: ElementTree.Element, facts: dict[str, str]) -> None:
    properties = ElementTree.SubElement(element, "properties")
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=value)


def _add_outcome(case: ElementTree.Element, tag: str, message: str, text: str) -> None:
    ElementTree.SubElement(case, tag, message=message).text = text


def gradescope_results(handed_in: Sequence[Entry]) -> str:
    """`results.json` as Gradescope reads it: a test an exercise, with what a student may see.

    A file that could not be graded is a test too, of 0 points, with the reason. Where there are several files, names of
    tests say of which they are.
    """
    tests: list[dict[str, Any]] = []
    said: list[str] = []
    for entry in handed_in:
        result = entry.result
        file = f"{result.notebook or PurePosixPath(entry.path).name}: " if len(handed_in) > 1 else ""
        for exercise in result.exercises:
            name, passed, report = exercise.exercise, exercise.state == "passed", feedback_text(exercise)
            tags = exercise.state, *exercise.misconceptions
            tests.append(_test(file + name, exercise.earned, exercise.possible, passed, report, tags))
        if result.problem and not result.exercises:
            tests.append(_test(f"{file}the file can be graded", 0.0, 0.0, False, result.problem, ("not gradable",)))
        problem = [result.problem] if result.problem and result.exercises else []
        said += [file + line for line in (*problem, *result.remarks)]
    whole = {
        "score": round(sum(entry.result.earned for entry in handed_in), 2),
        "execution_time": round(sum(entry.result.seconds for entry in handed_in), 2),
        "output": clean("\n".join(said)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [{**test, "number": str(place)} for place, test in enumerate(tests, start=1)],
        "extra_data": {
            "files": [{"notebook": clean(entry.notebook), "digest": clean(entry.result.digest)} for entry in handed_in]
        },
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def moodle_feedback(pages: Mapping[str, str], handed_in: Mapping[str, Sequence[Entry]]) -> bytes:
    """The zip in which Moodle takes back a page of feedback for each student, by their numbers in the assignment.

    Args:
        pages: The page of each student, HTML.
        handed_in: What counts of each student. Those whose files Moodle has not named are left out, and so are those
            who share a number, because nothing says whose page it should be.

    Returns:
        The same bytes for the same pages; empty if no student is of Moodle.
    """
    of_moodle = {number: names[0] for number, names in moodle_numbers(handed_in).items() if len(names) == 1}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for participant, student in of_moodle.items():
            # Moodle looks for the number behind the first underscore: the name itself could have one.
            member = zipfile.ZipInfo(f"Student_{participant}_assignfeedback_file_/feedback.html")
            archive.writestr(member, pages[student], zipfile.ZIP_DEFLATED)
    return file.getvalue() if of_moodle else b""


def moodle_numbers(handed_in: Mapping[str, Sequence[Entry]]) -> dict[int, list[str]]:
    """The students who have each number in the assignment: one, unless two names came with the same number."""
    numbers: dict[int, list[str]] = {}
    for student in sorted(handed_in):
        match = re.search(r"\((\d+)\)$", student)
        if match and any(f"_{match[1]}_assignsubmission_" in entry.path for entry in handed_in[student]):
            numbers.setdefault(int(match[1]), []).append(student)
    return numbers


def _test(name: str, earned: float, possible: float, passed: bool, report: str, tags: Sequence[str]) -> dict[str, Any]:
    return {
        "name": clean(name),
        "score": round(earned, 2),
        "max_score": possible,
        "status": "passed" if passed else "failed",
        "output": clean(report),
        "output_format": "text",
        "tags": [clean(tag) for tag in tags],
        "visibility": "visible",
    }
