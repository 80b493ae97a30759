"""Without these tests, grades could get lost, another file could be overwritten, or a cell could act as a formula."""

import csv
import io
import os
import re
import sqlite3

import pandas
import pytest

from transformer_lab.classroom.gradebook import Gradebook, as_csv, cell
from transformer_lab.classroom.results import ExerciseResult, SubmissionResult, as_json, from_json
from transformer_lab.errors import InputError


@pytest.fixture
def book(tmp_path):
    return Gradebook(tmp_path / "gradebook.sqlite")


def result(student, digest, earned=1.0, notebook="03_masks", state="passed", problem=""):
    exercises = (ExerciseResult("padding_mask", state, earned, 1.0),) if notebook else ()
    return SubmissionResult(student, notebook, digest, exercises, problem=problem)


def run(book, *results, paths=None):
    """Record a complete run with these results."""
    begun = book.begin("1.0", "sources", 7, ["handed_in"])
    submitted = [(r.student, r.digest, path) for r, path in zip(results, paths or "abcdef", strict=False)]
    book.record_submissions(begun, submitted)
    for found in results:
        book.save(begun, found)
    book.finish(begun)
    return begun


# --- gradebook.sqlite ---


def test_a_result_is_kept_as_it_was(book):
    """Students' notebooks may contain text that UTF-8 cannot encode. Such text must not stop the batch."""
    exercise = ExerciseResult("softmax", "failed", 0.5, 1.0, ("a", "b"), "report", ("flag",), ("\ud800",), "x\0", "id")
    whole = SubmissionResult("Zoë \udc80", "01_attention", "d", (exercise,), ("remark",), "", 1.25, "<xml/>")
    assert from_json(as_json(whole)) == whole
    book.save(book.begin("1.0", "s", 1, []), whole)
    assert book.final_results() == {("Zoë �", "d"): whole}


def test_the_last_run_of_a_notebook_counts(book):
    run(book, result("Ada", "v1", 0.0), result("Bob", "b1"))
    run(book, result("Ada", "v2", 0.5))
    run(book, result("Ada", "w1", 1.0, notebook="01_attention"))
    counts = {(entry.student, entry.notebook): entry.result.digest for entry in book.entries()}
    assert counts == {("Ada", "01_attention"): "w1", ("Ada", "03_masks"): "v2", ("Bob", "03_masks"): "b1"}


def test_of_two_files_of_one_run_the_better_counts(book):
    run(book, result("Ada", "v1", 0.5), result("Ada", "v2", 1.0), paths=["bad.ipynb", "good.ipynb"])
    (entry,) = book.entries()
    assert (entry.path, entry.others) == ("good.ipynb", ("bad.ipynb",))


def test_an_unreadable_file_is_forgotten_when_it_is_handed_in_again(book):
    run(book, result("Ada", "v1", notebook="", problem="empty"), result("Bob", "b1", notebook="", problem="empty"))
    run(book, result("Ada", "v2", 1.0))
    assert [(entry.student, entry.result.problem) for entry in book.entries()] == [("Ada", ""), ("Bob", "empty")]


def test_where_the_grader_failed_it_has_to_grade_again(book):
    run(
        book,
        result("Ada", "v1", 0.0, state="grader error"),
        result("Bob", "b1", notebook="", problem="the grader stopped: it says no more"),
        result("Cyd", "c1", notebook="", problem="the file is empty"),
    )
    assert set(book.final_results()) == {("Cyd", "c1")}
    assert len(book.entries()) == 3


def test_what_was_graded_outside_a_sandbox_stays_marked(book):
    begun = run(book, result("Ada", "v1"))
    book.record_sandbox(begun, False)
    book.record_sandbox(begun, True)
    later = run(book, result("Bob", "b1"))
    book.record_sandbox(later, True)
    assert {entry.student: entry.sandboxed for entry in book.entries()} == {"Ada": False, "Bob": True}


def test_the_database_answers_plain_questions(book):
    """An instructor who knows SQL can query the database without this package."""
    run(book, result("Ada", "v1", 0.5, state="failed"))
    with sqlite3.connect(book.path) as database:
        assert database.execute("SELECT student, exercise, state, earned, possible FROM marks").fetchall() == [
            ("Ada", "padding_mask", "failed", 0.5, 1.0)
        ]


@pytest.mark.parametrize("kind", ["text", "another program's", "newer", "damaged", "damaged result", "link", "folder"])
def test_another_file_is_refused_in_one_line_and_unchanged(tmp_path, kind):
    path = tmp_path / "gradebook.sqlite"
    if kind == "text":
        path.write_text("student,points\n" * 100)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        Gradebook(tmp_path / "target.sqlite")
        path.symlink_to("target.sqlite")
    elif kind == "another program's":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE songs (name)")
    else:
        book = Gradebook(path)
        run(book, *(result(f"student {number}", "d", problem="x" * 9000) for number in range(4)))
        if kind == "damaged":
            content = bytearray(path.read_bytes())
            content[4096:12288] = os.urandom(8192)
            path.write_bytes(content)
        else:
            with sqlite3.connect(path) as database:
                newer = kind == "newer"
                database.execute("PRAGMA user_version = 99" if newer else "UPDATE results SET result = '{\"x\": 1}'")
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(InputError) as raised:
        Gradebook(path).entries()
    assert "\n" not in str(raised.value)
    assert "gradebook.sqlite" in str(raised.value)
    assert before == (path.read_bytes() if path.is_file() else None)


# --- gradebook.csv ---


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_table(entry):
    entries = [
        entry("Ada", padding_mask="passed", causal_mask={"state": "failed", "earned": 1 / 3}, target_mask="timed out"),
        entry("Bob", "01_attention", softmax={"state": "passed", "flags": ("line 4 uses `torch.softmax`",)}),
        entry("Cyd", "", path="class/cyd.ipynb", problem="the file is empty"),
    ]
    first, second, third = rows(as_csv(entries))
    names = ["student", "softmax", "padding_mask", "causal_mask", "target_mask"]  # in course order
    assert list(first) == [*names, "total", "possible", "states", "flags", "remarks"]
    assert [first[name] for name in names] == ["Ada", "", "1", "0.33", "0"]
    assert (first["total"], first["possible"], first["states"]) == ("1.33", "4", "timed out: target_mask")
    assert second["flags"] == "softmax: line 4 uses `torch.softmax`"
    assert (second["padding_mask"], third["total"]) == ("", "0")
    assert (third["states"], third["remarks"]) == ("not gradable: cyd.ipynb", "class/cyd.ipynb: the file is empty")


HOSTILE = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "\x00=1", '"=1"', "a\n=b", "=cmd|' /C calc'!A0",
]  # fmt: skip


def test_no_cell_is_a_formula(entry):
    """If a student's name looks like a formula, a spreadsheet would evaluate it."""
    flags = {"state": "failed", "flags": ("=HYPERLINK(1)",)}
    entries = [entry(name, path=name, remarks=[name], padding_mask=flags, problem=name) for name in HOSTILE]
    text = as_csv(entries)
    for row in csv.reader(io.StringIO(text)):
        for value in row:
            assert not value.lstrip(" \t\r\n\0\ufeff").startswith(("=", "+", "-", "@", "＝")), value
            assert "\n" not in value
    assert len(rows(text)) == len(HOSTILE)
    assert cell("Ada - Bob = friends") == "Ada - Bob = friends"


def test_the_warning_is_a_heading(entry, tmp_path):
    """If the warning were a line above the headings, a spreadsheet would read every column as text."""
    entries = [entry("Ada", sandboxed=False, padding_mask="passed"), entry("Zoë", padding_mask="passed")]
    path = tmp_path / "gradebook.csv"
    path.write_text(as_csv(entries), encoding="utf-8-sig")
    table = pandas.read_csv(path)
    assert list(table["student"]) == ["Ada", "Zoë"]
    assert list(table["padding_mask"]) == [1, 1]
    warning = table.columns[-1]
    assert re.match("WARNING: .*without a sandbox", warning)
    assert table[warning].notna().tolist() == [True, False]
    assert "WARNING" not in as_csv(entries[1:])


def test_a_crowd_of_similar_answers_does_not_fill_the_table(entry):
    """If each of 300 similar answers named all the others, the table would grow quadratically."""
    from dataclasses import replace

    alike = replace(entry("Ada", padding_mask="passed"), similar={"padding_mask": tuple(f"s{n}" for n in range(300))})
    (row,) = rows(as_csv([alike]))
    assert row["flags"] == "padding_mask: nearly the same as s0, s1, s2, s3, s4 and 295 others"
