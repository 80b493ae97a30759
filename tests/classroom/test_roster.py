"""Without these, a teacher would tell somebody who has handed in that nothing came, or miss who is missing."""

import csv
import io
import sqlite3

import pytest

from transformer_lab.classroom.batch import grade_batch
from transformer_lab.classroom.gradebook import Gradebook
from transformer_lab.classroom.roster import Attendance, Person, attendance, read_roster
from transformer_lab.errors import InputError

ALL = {"padding_mask": "# passed", "causal_mask": "# passed", "target_mask": "# passed"}

MOODLE = """Identifier,"Full name","Email address",Status,Grade,"Online text"
"Participant 4711","Ada Lovelace",ada@example.org,"Submitted for grading",,"a text
with ""two"" lines, and a comma"
"Participant 4712","Dee Müller",dee@example.org,"No submission",,
"""
CANVAS = """Student,ID,SIS User ID,Section,Masks (12)
    Points Possible,,,,9.00
"Lovelace, Ada",4711,s1,A,
"Müller, Dee",4712,s2,A,
"""
PEOPLE = [Person("Ada Lovelace", "4711"), Person("Dee Müller", "4712")]


@pytest.mark.parametrize(
    ("name", "text", "people"),
    [
        ("class.txt", "Ada Lovelace\n\n  Dee  Müller \n", [Person("Ada Lovelace"), Person("Dee Müller")]),
        ("class", "\ufeffAda Lovelace (4711)\r\nDee Müller (4712)", PEOPLE),
        ("worksheet.csv", MOODLE, PEOPLE),
        ("Canvas.CSV", CANVAS, [Person("Lovelace, Ada", "4711"), Person("Müller, Dee", "4712")]),
        ("excel.csv", "\ufeffNr;Last name;First name\r\n1;Lovelace;Ada\r\n", [Person("Ada Lovelace")]),
        ("gradebook.csv", "student,total\nAda (4711),2\n'=Dee,0\n", [Person("Ada", "4711"), Person("'=Dee")]),
    ],
)
def test_a_list_is_read_as_it_is(tmp_path, name, text, people):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert read_roster(tmp_path / name) == people


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("class.txt", b"", "names nobody"),
        ("class.csv", b"", "is no table"),
        ("class.csv", b"Student,ID\n", "names nobody"),
        ("class.csv", b"id;mail\n1;ada@example.org\n", "has the columns id, mail, and none of them is Full name"),
        ("class.txt", b"Ada\xff", "byte 3 is not UTF-8"),
        ("class.txt", b"Ada\0", "is no list of names"),
        ("class.txt", b"x" * (16 * 2**20 + 1), "is no list of names"),
        ("class.txt", b"Ada May\nBob\nada  may\n", "has ada may twice"),
        ("class.txt", b"Ada (1)\nBob (1)\n", "has Bob (1) twice"),
        ("class.csv", b'name\n"' + b"x" * 200_000, "is no table (field larger than field limit"),
    ],
)
def test_what_is_no_list_is_one_line(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_roster(path)
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_list_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(InputError, match=r"(No such file|Is a directory).*: give a text with a name a line"):
            read_roster(path)


@pytest.mark.parametrize(
    ("person", "student"),
    [
        (Person("Ada Lovelace"), "Ada Lovelace"),
        (Person("Ada Lovelace"), "ada_lovelace"),
        (Person("Lovelace, Ada"), "Ada Lovelace"),
        (Person("Ada King Lovelace"), "lovelaceadaking"),
        (Person("Zoë Müller-Ortiz"), "zoe muller ortiz"),
        (Person("李 小龙"), "李小龙"),
        (Person("Ada Lovelace"), "Ada Lovelace (4711)"),
        (Person("Ada", "4711"), "A. Lovelace (4711)"),
        (Person("Ada Lovelace", "4711"), "Ada Lovelace"),
    ],
)
def test_a_person_is_found(person, student):
    other = Person("Bob")
    assert attendance([other, person], [student]) == Attendance(absent=("Bob",))


@pytest.mark.parametrize(("person", "student"), [("Ada", "Ada May"), ("Ann", "Anna"), ("!!", "??"), ("Ada", "Bob")])
def test_another_person_is_not(person, student):
    assert attendance([Person(person)], [student]) == Attendance((person,), (student,))


def test_one_hand_in_is_one_persons():
    """The exact name goes before a similar one, and the number before a name."""
    assert attendance([Person("Ali Hassan"), Person("Hassan Ali")], ["Hassan Ali"]).absent == ("Ali Hassan",)
    two = [Person("Ada", "1"), Person("Ada", "2")]
    assert attendance(two, ["Ada (2)"]) == Attendance(absent=("Ada (1)",))
    assert attendance([Person("Ada")], ["Ada", "Ada (2)"]) == Attendance(unlisted=("Ada (2)",))
    assert attendance([Person("Bob", "2"), Person("Ada")], ["Ada (2)", "Bob (2)", "Ada"]).absent == ()


def test_without_a_list_nobody_is_missing():
    assert attendance([], ["Ada"]) == Attendance()


@pytest.mark.usefixtures("without_charts")
def test_who_is_missing_stands_everywhere(hand_in, mark_reader, course, tmp_path):
    """Also after later runs, which need not be given the list again."""
    handed_in, out, roster = hand_in("ada_lovelace", **ALL), tmp_path / "grades", tmp_path / "class.txt"
    hand_in("Mallory", **ALL)
    roster.write_text("Dee <b>Müller</b>\nAda Lovelace\n=Bob (12)\n", encoding="utf-8")

    def grade(**options):
        outcome = grade_batch([handed_in], out, mark_reader(), course, **options)
        table = (out / "gradebook.csv").read_text(encoding="utf-8-sig")
        return outcome, list(csv.DictReader(io.StringIO(table)))

    outcome, table = grade()
    assert (outcome.warnings, len(table)) == ([], 2)
    assert "on the list" not in (out / "summary.html").read_text()
    for options in ({"roster": roster}, {}, {"resume": True}):
        outcome, table = grade(**options)
        assert outcome.warnings == [
            "handed in nothing: 2 of the 3 students on the list: Dee <b>Müller<_b>, =Bob (12)",
            "not on the list of the class: 1 student: Mallory",
        ]
        assert [(row["student"], row["total"], row["states"]) for row in table] == [
            ("'=Bob (12)", "0", "handed in nothing"),
            ("ada_lovelace", "3", ""),
            ("Dee <b>Müller<_b>", "0", "handed in nothing"),
            ("Mallory", "3", ""),
        ]
        assert [row["causal_mask"] for row in table] == ["", "1", "", "1"]
        assert {row["possible"] for row in table} == {"3"}
        page = (out / "summary.html").read_text()
        assert "Dee &lt;b&gt;Müller&lt;_b&gt;" in page
        assert "<b>Müller" not in page
        assert sorted(path.stem for path in (out / "feedback").iterdir()) == ["Mallory", "ada_lovelace"]
    roster.write_text("Mallory\nada lovelace\n")
    assert grade(roster=roster)[0].warnings == []


@pytest.mark.usefixtures("without_charts")
def test_a_list_that_cannot_be_read_stops_before_anything(hand_in, mark_reader, course, tmp_path):
    reader = mark_reader()
    with pytest.raises(InputError, match="No such file"):
        grade_batch([hand_in("Ada", **ALL)], tmp_path / "grades", reader, course, roster=tmp_path / "none")
    assert reader.graded == []
    assert not (tmp_path / "grades").exists()


def test_a_gradebook_of_before_has_no_list(tmp_path):
    path = tmp_path / "gradebook.sqlite"
    Gradebook(path)
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE roster")
    assert Gradebook(path).roster() == []
