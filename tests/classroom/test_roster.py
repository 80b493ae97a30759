"""Without these tests, a student who submitted could be reported as absent, or an absent student might be missed."""

import csv
import io
import re
import sqlite3
import zipfile
from pathlib import Path

import pandas
import pytest

from transformer_lab.classroom.batch import grade_batch
from transformer_lab.classroom.gradebook import Gradebook
from transformer_lab.classroom.roster import NO_ROSTER, Attendance, Person, attendance, read_roster
from transformer_lab.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
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
"Student, Test",9911,,A,
"""
PEOPLE = [Person("Ada Lovelace", "4711"), Person("Dee Müller", "4712")]
NAMES = [Person("Ada Lovelace"), Person("Dee Müller")]
TWO_ADAS = [Person("Ada", "901"), Person("Ada", "902")]
FAMILY_FIRST = [Person("Lovelace, Ada"), Person("Müller, Dee")]


@pytest.mark.parametrize(
    ("name", "text", "people"),
    [
        ("class.txt", "Ada Lovelace\n\n  Dee  Müller \n", NAMES),
        ("class", "\ufeffAda Lovelace (4711)\r\nDee Müller (4712)", PEOPLE),
        ("class.txt", "Lovelace, Ada\nMüller, Dee\n", FAMILY_FIRST),
        ("class.txt", "\n\nName\nAda Lovelace\nDee Müller\n", NAMES),
        ("class.txt", "1. Ada Lovelace\n2. Dee Müller <dee@example.org>\n", NAMES),
        ("worksheet.csv", MOODLE, PEOPLE),
        ("german.csv", MOODLE.replace("Identifier", "ID").replace("Participant ", "Teilnehmer/in"), None),
        ("german.csv", "ID;Vollständiger Name\nTeilnehmer/in4711;Ada Lovelace\nTeilnehmer/in4712;Dee Müller\n", PEOPLE),
        ("blind.csv", "Identifier,Status\nParticipant 4711,\n", [Person("Participant", "4711")]),
        ("Canvas.CSV", CANVAS, [Person("Lovelace, Ada", "4711"), Person("Müller, Dee", "4712")]),
        ("canvas.csv", "LastName,FirstName,ID\nPoints Possible,,\nLovelace,Ada,4711\nMüller,Dee,4712\n", PEOPLE),
        ("pandas.csv", "Student,ID\nAda Lovelace,4711.0\nDee Müller,4712.0\n", PEOPLE),
        ("excel.csv", "\ufeffsep=;\r\nNr;Name;Vorname\r\n1;Lovelace;Ada\r\n2;Müller;Dee\r\n", NAMES),
        ("excel.txt", "First name\tLast name\r\nAda\tLovelace\r\nDee\tMüller\r\n", NAMES),
        ("unicode.txt", "Name\tMail\r\nAda Lovelace\ta\r\nDee Müller\td\r\n", NAMES),  # Excel's name for UTF-16
        ("one.csv", "Student\nLovelace, Ada\n\nMüller, Dee\n", FAMILY_FIRST),
        ("open.csv", "Name;Mail;\nAda Lovelace;a;\nDee Müller\n", NAMES),
        ("guests.csv", "Name,ID\nAda Lovelace,4711\nDee Müller,\n", [PEOPLE[0], NAMES[1]]),
        ("logins.csv", "Name,ID\nAda Lovelace,ada1\nDee Müller,dee1\n", NAMES),
        ("years.csv", "Name,ID\nAda Lovelace,2021-01\nDee Müller,2022-01\n", NAMES),
        ("gradebook.csv", "student,total\nAda (4711),2\n'=Dee,0\n", [Person("Ada", "4711"), Person("'=Dee")]),
    ],
)
def test_a_list_is_read_as_it_is(tmp_path, name, text, people):
    encoding = "utf-16" if name == "unicode.txt" else "utf-8"
    (tmp_path / name).write_text(text, encoding=encoding, newline="")
    assert read_roster(tmp_path / name) == (PEOPLE if people is None else people)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("class.txt", b"", "contains no names"),
        ("class.csv", b"\n", "contains no names"),
        ("class.csv", b"Student,ID\n", "contains no names"),
        ("class.csv", b"nr;mail\n1;ada@example.org\n", "has the columns nr, mail, but needs one called Full name"),
        ("class.csv", b'Name,ID\nLovelace, Ada,1\n"Mu, Dee",2\n', "is not a table (Length of header or names"),
        ("class.csv", b"Name,ID\nAda,1\nLovelace, Ada,2\n", "is not a table (Error tokenizing data"),
        ("class.csv", b"Student,Mail\n300101,a\n", "lists 300101, which is not a name"),
        ("class.csv", b'Name,Mail\n"Ada,a\nBob,b\n', "is not a table (Error tokenizing data"),
        ("class.csv", b'Name,Mail\n"Ada\nBob",b\n', "has a name that spans several lines: Ada Bob"),
        ("class.xlsx", b"PK\x03\x04...", "is a spreadsheet"),
        ("class.txt", b"Ada\xff", "byte 3 is not UTF-8"),
        ("class.txt", b"\xff\xfeA", "is not UTF-8"),
        ("class.txt", b"Ada\0", "is not a list of names"),
        ("class.txt", b"x" * (16 * 2**20 + 1), "is not a list of names"),
        ("class.txt", b"Ada May\nBob\nada  may\n", "lists Ada May twice"),
        ("class.txt", b"Ada (1)\nBob (1)\n", "lists Ada (1) twice"),
        ("class.csv", b'name,mail\n"' + b"x" * 200_000, "is not a table (Error tokenizing data"),
    ],
)
def test_a_file_that_is_not_a_roster_is_refused_in_one_line(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_roster(path)
    assert str(error.value).startswith(str(path))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_roster_that_does_not_exist(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(
            InputError, match=r"(No such file|Is a directory).*: give a text file with one name per line"
        ):
            read_roster(path)


@pytest.mark.parametrize(
    ("person", "student"),
    [
        (Person("Ada Lovelace"), "Ada Lovelace"),
        (Person("Ada Lovelace"), "ada_lovelace"),
        (Person("Lovelace, Ada"), "Ada Lovelace"),
        (Person("Ada King Lovelace"), "lovelaceadaking"),
        (Person("Zoë Müller-Ortiz"), "zoe muller ortiz"),
        (Person("Jürgen Weiß"), "juergen_weiss"),
        (Person("Łukasz Søren Đức"), "lukasz soren duc"),
        (Person("李 小龙"), "李小龙"),
        (Person("Ada Lovelace"), "Ada Lovelace (4711)"),
        (Person("Lovelace, Ada", "4711"), "lovelaceada (4711)"),
        (Person("Ada Lovelace", "4711"), "Ada Lovelace"),
    ],
)
def test_a_person_is_found(person, student):
    found = attendance([Person("Bob"), person], [student])
    assert (found.absent, found.unlisted, found.doubtful) == (("Bob",), (), ())


@pytest.mark.parametrize(
    ("roster", "students", "expected"),
    [
        *(
            ([Person(person)], [student], {"absent": (person,), "unlisted": (student,)})
            for person, student in [
                ("Ada", "Ada May"), ("Ann", "Anna"), ("Ada", "Bob"), ("रमा कुमार", "राम कुमार"), ("がとう", "かとう"),
            ]
        ),
        # a submission belongs to one person, and the exact name takes precedence over a similar one
        ([Person("Ali Hassan"), Person("Hassan Ali")], ["Hassan Ali"], {"absent": ("Ali Hassan",)}),
        # if two people share a name, the number tells them apart, unless it belongs to another assignment
        (TWO_ADAS, ["Ada (902)"], {"absent": ("Ada (901)",)}),
        (TWO_ADAS, ["Ada (1002)"], {"absent": ("Ada (902)",), "namesakes": ("Ada (902)",)}),
        # the grader itself numbered the second Ada, so this number isn't Carla's
        (
            [Person("Ben", "1"), Person("Carla", "2"), Person("Ada", "3")],
            ["Ada", "Ada (2)", "Ben"],
            {
                "absent": ("Carla (2)",),
                "unlisted": ("Ada (2)",),
                "numbers": {"Ada": "3", "Ben": "1", "Carla (2)": "2"},
            },
        ),
        ([], ["Ada", "Ada (4711)"], {"numbers": {"Ada (4711)": "4711"}}),
        # names take precedence over numbers: the roster may be from another course that uses the same numbers
        ([Person("Ada", "4712"), Person("Bob", "4713")], ["Ada (4711)", "Bob (4712)"], {}),
        ([Person("Ada", "4711")], ["Augusta (4711)"], {"doubtful": ("Augusta (4711) is Ada on the roster",)}),
    ],
)  # fmt: skip
def test_who_is_who(roster, students, expected):
    """Each field that a case does not list must be empty.

    The exception is `numbers`, which is ignored if a case does not list it.
    """
    found = vars(attendance(roster, students)) | {"listed": 0}
    numbers = {} if "numbers" in expected else {"numbers": {}}
    assert found | numbers == vars(NO_ROSTER) | expected


def test_the_list_of_another_class_is_noticed():
    class_a, class_b = ["Ada", "Bob", "Cyd"], ["Eve", "Flo", "Gus"]
    assert attendance([Person(name) for name in class_a], class_b).is_of_others
    assert not attendance([Person(name) for name in class_a], ["Ada", "Bob", "Eve"]).is_of_others
    assert not attendance([Person(name) for name in class_a], ["Ada"]).is_of_others  # few have submitted so far


def test_without_a_list_nobody_is_missing():
    assert attendance([], ["Ada"]) == NO_ROSTER == Attendance()


@pytest.mark.usefixtures("without_charts")
def test_absent_students_are_in_every_report(hand_in, mark_reader, course, tmp_path):
    """Later runs also report absent students, even if the roster is not passed again."""
    handed_in, out, roster = hand_in("ada_lovelace", **ALL), tmp_path / "grades", tmp_path / "class.txt"
    hand_in("Mallory", **ALL)
    roster.write_text("<b>Müller, Dee</b>\nAda Lovelace\n=Bob (12)\n", encoding="utf-8")

    def grade(**options):
        outcome = grade_batch([handed_in], out, mark_reader(), course, **options)
        table = (out / "gradebook.csv").read_text(encoding="utf-8-sig")
        return outcome, list(csv.DictReader(io.StringIO(table)))

    outcome, table = grade()
    assert (outcome.warnings, len(table)) == ([], 2)
    assert "number" not in table[0]
    assert "on the roster" not in (out / "summary.html").read_text()
    for options in ({"roster": roster}, {}, {"resume": True}):
        outcome, table = grade(**options)
        assert outcome.warnings == [
            "submitted nothing: 2 of the 3 students on the roster: <b>Müller, Dee<_b>; =Bob (12)",
            "not on the roster: 1 student: Mallory",
        ]
        assert [(row["student"], row["number"], row["total"], row["states"]) for row in table] == [
            ("<b>Müller, Dee<_b>", "", "0", "submitted nothing"),
            ("'=Bob (12)", "12", "0", "submitted nothing"),
            ("ada_lovelace", "", "3", ""),
            ("Mallory", "", "3", ""),
        ]
        assert [row["causal_mask"] for row in table] == ["", "", "1", "1"]
        assert {row["possible"] for row in table} == {"3"}
        page = (out / "summary.html").read_text()
        assert "&lt;b&gt;Müller, Dee&lt;_b&gt;" in page
        assert "<b>Müller" not in page
        assert "not on the roster" in page
        assert sorted(path.stem for path in (out / "feedback").iterdir()) == ["Mallory", "ada_lovelace"]
    roster.write_text("Mallory\nada lovelace\n")
    assert grade(roster=roster)[0].warnings == []
    roster.write_text("Xenia\nYves\nZoë\n", encoding="utf-8")
    assert grade(roster=roster)[0].warnings[-1].startswith("hardly anyone on the roster was found: is it the roster")


@pytest.mark.usefixtures("without_charts")
def test_marks_go_back_into_the_course_systems_table(hand_in, notebook_with, mark_reader, course, tmp_path):
    """Run the code from CLASSROOM.md. Students who submitted by e-mail are included, and old marks are kept."""
    moodle = tmp_path / "moodle.zip"
    with zipfile.ZipFile(moodle, "w") as archive:
        archive.writestr("Ada Lovelace_4711_assignsubmission_file_/a.ipynb", notebook_with("03_masks", **ALL))
    by_mail = hand_in("Dee Müller", causal_mask="# passed")
    hand_in("Guest", **ALL)
    rows = ["Identifier,Full name,Grade", "Participant 4711,Ada Lovelace,", "Participant 4712,Dee Müller,"]
    rows += ["Participant 4713,Bob Noyce,", "Participant 4714,Left Before,7.50"]
    (tmp_path / "worksheet.csv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "class.csv").write_text("\n".join([*rows[:4], ",Somebody Else,"]), encoding="utf-8")
    grade_batch([moodle, by_mail], tmp_path / "grades", mark_reader(), course, roster=tmp_path / "class.csv")
    (code,) = re.findall(r"```python\n(import pandas.*?)```", (ROOT / "CLASSROOM.md").read_text(encoding="utf-8"), re.S)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        exec(code, {})
    sheet = pandas.read_csv(tmp_path / "upload.csv", dtype=str)
    assert sheet["Grade"].astype(float).tolist() == [3, 1, 0, 7.5]
    assert sheet["Identifier"].tolist() == [row.split(",")[0] for row in rows[1:]]


def test_a_gradebook_of_before_has_no_list(tmp_path):
    path = tmp_path / "gradebook.sqlite"
    Gradebook(path)
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE roster")
    assert Gradebook(path).roster() == []
