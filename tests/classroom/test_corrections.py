"""Without these tests, a run could undo the instructor's corrections, or give a correction to the wrong student."""

import re
from pathlib import Path

import pytest

from transformer_lab.classroom.corrections import (
    HEADING,
    Correction,
    read_corrections,
    with_corrections,
    without_effect,
)
from transformer_lab.classroom.exports import gradescope_results
from transformer_lab.classroom.feedback import feedback_page
from transformer_lab.classroom.gradebook import as_csv
from transformer_lab.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    "typed": "student,exercise,points,reason\nZoë,softmax,1.5,\n\nBob,total,-2,late\n",
    "typed with spaces": 'student, exercise, points, reason\nZoë, softmax, 1.5, ""\nBob, total, -2, late\n',
    "a German spreadsheet": "\ufeffstudent;exercise;points;reason;by\r\nZoë;softmax;1,5;;me\r\n"
    "Bob;total;-2;late;\r\n;;;;\r\n",
}


@pytest.fixture
def read(tmp_path):
    def of(content: bytes):
        (tmp_path / "corrections.csv").write_bytes(content)
        return read_corrections(tmp_path)

    return of


def test_the_example_in_the_guide_is_a_table(read):
    (table,) = re.findall(r"```text\n(student,.*?)```", (ROOT / "CLASSROOM.md").read_text(encoding="utf-8"), re.DOTALL)
    assert [(one.student, one.exercise, one.points) for one in read(table.encode())] == [
        ("Ada Lovelace", "causal_mask", 1), ("Ben Doe (4711)", "total", 2)
    ]  # fmt: skip


def test_without_a_file_there_are_no_corrections(tmp_path):
    assert read_corrections(tmp_path) == []


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_read_as_people_write_it(read, table):
    expected = [Correction("Zoë", "softmax", 1.5, ""), Correction("Bob", "total", -2.0, "late")]
    assert read(TABLES[table].encode()) == expected


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (b"Ada,softmax,two,late", "line 2 has 'two' for points"),
        (b"Ada,softmax", "line 2 has '' for points"),
        (b"Ada,softmax,nan,late", "line 2 has 'nan' for points"),
        (b"Ada,softmax,1,late, but excused", "line 2 has too many cells"),
        (b"Ada,softmax,1,\xff", "save it as CSV"),
        (b"Ada,softmax,1,", "needs the headings student,exercise,points,reason in its first line"),
    ],
)
def test_a_mistake_in_a_table_is_reported(read, rows, says):
    """A line that is left out or read differently from what was meant would change a grade without a word."""
    with pytest.raises(InputError, match=says):
        read(rows if "headings" in says else ",".join(HEADING).encode() + b"\n" + rows)


def test_points_are_corrected_wherever_they_are_shown(entry):
    """A total replaces the sum of the corrected exercises, no matter in which order the lines are."""
    entries = [
        entry("Ada", "01_attention", softmax="passed"),
        entry("Ada", padding_mask="failed", causal_mask="passed"),
        entry("Bob", padding_mask="passed"),
        entry("Cyd", "", problem="the file is empty"),
    ]
    corrections = [
        Correction("Ada", "total", 1.5, "a day late"),
        Correction("Ada", "padding_mask", 1, "a typo"),
        Correction("Cyd", "total", 1, "on paper"),
        Correction("Dan", "padding_mask", 1, ""),
        Correction("Bob", "softmax", 1, ""),
    ]
    corrected = with_corrections(entries, corrections)
    assert [one.student for one in corrected] == ["Ada", "Ada", "Bob", "Cyd"]
    assert [one.result.earned for one in corrected] == [1, 2, 1, 0]
    assert [one.earned for one in corrected] == [-0.5, 2, 1, 1]
    assert without_effect(corrections, entries) == ["Dan (padding_mask)", "Bob (softmax)"]
    assert corrected[2] is entries[2]
    table = as_csv(corrected).splitlines()
    reasons = (
        "`total` was corrected by hand from 3 to 1.5 points: a day late",
        "`padding_mask` was corrected by hand from 0 to 1 points: a typo",
    )
    assert table[1] == f"Ada,1,1,1,1.5,3,,,{'; '.join(reasons)}"
    assert table[3].startswith("Cyd,,,,1,3,not gradable: ada.ipynb,,")
    page = feedback_page("Ada", corrected[:2], {})
    assert "1.5 of 3 points for what you submitted" in page
    assert "1 of 1 points" in page  # of notebook 01, as the total belongs to no notebook
    for text in (page, gradescope_results(corrected[:2])):
        assert "corrected by hand from 3 to 1.5 points: a day late" in text
        assert "corrected by hand from 0 to 1 points: a typo" in text
    assert '"score": 1.5' in gradescope_results(corrected[:2])
