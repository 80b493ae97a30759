"""Without these tests, a test runner or Gradescope could reject the results, or students could see the flags."""

import io
import json
import xml.etree.ElementTree as ElementTree
import zipfile
from dataclasses import replace

import pytest

from transformer_lab.classroom.exports import (
    MAX_CHARACTERS,
    feedback_text,
    gradescope_results,
    junit_xml,
    moodle_feedback,
    moodle_numbers,
)
from transformer_lab.classroom.gradebook import Entry
from transformer_lab.classroom.results import STATES, ExerciseResult, SubmissionResult

UNSAFE = "\x00\x1b\x7f\x85\x9b\ud800\ufffe\u202a\u202e\u2066\u2069"
HOSTILE = f"{UNSAFE}]]><script>alert(1)</script>&\"'"


@pytest.fixture
def handed_in(entry):
    return entry(
        "Ada",
        remarks=["a cell stands twice"],
        padding_mask="passed",
        causal_mask={"state": "failed", "earned": 0.5, "misconceptions": ("a", "b"), "report": "it differs"},
        target_mask="not attempted",
    )


@pytest.fixture
def result(handed_in):
    return handed_in.result


def test_junit_says_what_ran_and_what_was_earned(result):
    """A test runner lists and counts failed cases. Points and cells are stored as properties.

    The older result for `padding_mask` in nbval's XML must not appear next to the new result.
    """
    (suite,) = ElementTree.fromstring(junit_xml(result).encode())
    assert [suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped")] == [
        "03_masks", "4", "1", "0", "1"
    ]  # fmt: skip
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["Cell 0", "padding_mask", "causal_mask", "target_mask"]
    facts = {one.get("name"): one.get("value") for one in cases[2].iter("property")}
    assert facts == {
        "exercise": "causal_mask", "cell_id": "", "state": "failed", "points": "0.5", "possible": "1",
        "misconceptions": "a b",
    }  # fmt: skip
    assert cases[2].find("failure").text == "it differs"
    assert cases[3].find("skipped").get("message") == "not attempted"


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_its_words_in_every_format(entry, state):
    found = entry("Ada", padding_mask=state)
    assert "padding_mask" in junit_xml(found.result)
    assert json.loads(gradescope_results([found]))["tests"][0]["tags"] == [state]
    assert state in ("passed", "failed") or feedback_text(found.result.exercises[0])


def test_a_file_that_could_not_be_read(entry):
    """If no reason were given, the student would think that the autograder is broken."""
    found = entry("Ada", "", problem="the file is empty")
    assert ElementTree.fromstring(junit_xml(found.result)).find("testsuite/testcase/error").text == "the file is empty"
    given = json.loads(gradescope_results([found]))
    (test,) = given["tests"]
    assert (given["score"], given["output"]) == (0, "")
    assert (test["name"], test["score"], test["status"]) == ("the file can be graded", 0, "failed")
    assert test["output"] == "the file is empty"


def test_all_files_of_a_student_are_one_result_for_gradescope(entry, handed_in):
    """Gradescope reads one results file per submission, regardless of how many notebooks were submitted."""
    attention = entry("Ada", "01_attention", softmax="passed", remarks=["a cell is missing"])
    lost = entry("Ada", "", path="handed_in/Ada/notes.ipynb", problem="the file is empty")
    given = json.loads(gradescope_results([lost, attention, handed_in]))
    assert [[test[key] for key in ("number", "name", "score", "max_score", "status")] for test in given["tests"]] == [
        ["1", "notes.ipynb: the file can be graded", 0, 0, "failed"],
        ["2", "01_attention: softmax", 1, 1, "passed"],
        ["3", "03_masks: padding_mask", 1, 1, "passed"],
        ["4", "03_masks: causal_mask", 0.5, 1, "failed"],
        ["5", "03_masks: target_mask", 0, 1, "failed"],
    ]
    assert [test["output"] for test in given["tests"]][:4] == ["the file is empty", "", "", "it differs"]
    assert given["score"] == 2.5
    assert given["execution_time"] == 4.5
    assert given["output"] == "01_attention: a cell is missing\n03_masks: a cell stands twice"


def test_text_of_a_student_stays_text():
    """A lone surrogate or control character makes a whole XML file unreadable. Many JSON parsers reject such text, too.

    Text with a direction override is not displayed in the order in which it is stored.
    """
    exercise = ExerciseResult(
        HOSTILE, "failed", 0.0, 1.0, (HOSTILE,), HOSTILE, (HOSTILE,), (HOSTILE,), HOSTILE, HOSTILE
    )
    hostile = SubmissionResult(HOSTILE, HOSTILE, HOSTILE, (exercise,), (HOSTILE,), HOSTILE, junit=HOSTILE)
    xml = junit_xml(replace(hostile, junit='<x><testcase name="&#x9b;&#x202e;"/></x>'))
    root = ElementTree.fromstring(xml.encode("utf-8"))
    assert [element.tag for element in root.iter() if "script" in element.tag] == []
    assert "<script>alert(1)</script>" in root.find("testsuite/testcase/failure").text
    read, unread = Entry(hostile, HOSTILE, True, ""), Entry(replace(hostile, exercises=()), HOSTILE, True, "")
    text = gradescope_results([read, unread])
    text.encode("utf-8")
    assert "<script>" in json.loads(text)["tests"][0]["output"]
    assert set(UNSAFE).isdisjoint(xml + text + json.loads(text)["tests"][0]["output"])


@pytest.mark.parametrize(
    "junit", ["", "<testsuites>", "no xml", '<!DOCTYPE x [<!ENTITY a "aaaa">]><x><testcase name="&a;"/></x>', "\ud800"]
)
def test_a_damaged_junit_costs_its_cells_alone(result, junit):
    """The XML cannot be trusted, because the process that writes it runs next to a student's kernel."""
    root = ElementTree.fromstring(junit_xml(replace(result, junit=junit)))
    assert len(root.findall("testsuite/testcase")) == 3


def test_of_two_names_with_one_number_neither_gets_the_others_page(entry):
    """If two names share a number, Moodle either gives both pages to one student or replaces one page."""
    paths = {
        "Ada (4711)": "moodle.zip: Ada_4711_assignsubmission_file_/a.ipynb",
        "Eve (4711)": "moodle.zip: Eve_4711_assignsubmission_file_/a.ipynb",
        "Ben (12)": "moodle.zip: Ben_12_assignsubmission_file_/a.ipynb",
        "Cy (13)": "handed_in/Cy (13)/a.ipynb",
    }
    handed_in = {student: [entry(student, path=path)] for student, path in paths.items()}
    pages = {student: f"page of {student}" for student in paths}
    with zipfile.ZipFile(io.BytesIO(moodle_feedback(pages, handed_in))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "Student_12_assignfeedback_file_/feedback.html": b"page of Ben (12)"
        }
    assert moodle_numbers(handed_in) == {4711: ["Ada (4711)", "Eve (4711)"], 12: ["Ben (12)"]}


def test_a_report_without_end_is_shortened(entry):
    found = entry("Ada", padding_mask={"state": "failed", "report": "x" * 10_000_000}).result
    assert MAX_CHARACTERS < len(junit_xml(found)) < MAX_CHARACTERS + 3000
