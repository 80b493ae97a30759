"""The list of a class: who on it has handed in nothing, and who handed in and is not on it."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_lab.classroom.submissions import MEBIBYTE, printable
from transformer_lab.errors import InputError

LARGEST = 16 * MEBIBYTE
COLUMNS_OF_NAMES = (("full name",), ("student",), ("name",), ("first name", "last name"), ("first name", "surname"))
COLUMNS_OF_NUMBERS = ("identifier", "id")  # of Moodle's grading worksheet, and of Canvas's gradebook


@dataclass(frozen=True)
class Person:
    """One line of a list."""

    name: str  # printable, on one line
    number: str = ""  # of Moodle or Canvas

    def __str__(self) -> str:
        return f"{self.name} ({self.number})" if self.number else self.name


@dataclass(frozen=True)
class Attendance:
    """What a list and the gradebook say of each other."""

    absent: tuple[str, ...] = ()  # on the list, and nothing was handed in
    unlisted: tuple[str, ...] = ()  # in the gradebook, and not on the list


def read_roster(path: Path) -> list[Person]:
    """The people in a list: a text with a name a line, or a table (`.csv`) whose heading names its columns.

    Of a table the columns are `Full name`, `Student`, `Name`, or `First name` with `Last name`; and for numbers of a
    course system `Identifier` or `ID`. So Moodle's grading worksheet and Canvas's gradebook are read as they are. Rows
    that have no number where others do are nobody's, such as Canvas's "Points Possible".

    Raises:
        InputError: The file cannot be read, is no such list, or names somebody twice.
    """
    where = printable(str(path), 300)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}: give a text with a name a line, or a table") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start} is not UTF-8: save the list as UTF-8") from None
    if len(content) > LARGEST or "\0" in text:
        raise InputError(f"{where} is no list of names: give a text with a name a line, or a table")
    people = _in_table(text, where) if path.suffix.lower() == ".csv" else _in_lines(text)
    if not people:
        raise InputError(f"{where} names nobody: give a text with a name a line, or a table")
    known: set[str] = set()
    for person in people:
        key = person.number or _letters(person.name)
        if key in known:
            raise InputError(f"{where} has {person} twice: tell them apart, with a number in brackets for example")
        known.add(key)
    return people


def attendance(roster: Sequence[Person], students: Iterable[str]) -> Attendance:
    """Find the people of a list among students as the gradebook calls them: by number, else by name.

    Capitals, accents, blanks and punctuation make no difference, and the family name may come first.
    """
    if not roster:
        return Attendance()
    absent, unlisted = list(roster), [(student, _split(student)) for student in students]
    for of_person, of_student in (
        (lambda person: [_letters(str(person))], lambda student: _letters(str(student))),
        (lambda person: [person.number], lambda student: student.number),
        (lambda person: [_letters(person.name)], lambda student: _letters(student.name)),
        (lambda person: _rotations(person.name), lambda student: _letters(student.name)),
    ):
        called: dict[str, list[tuple[str, Person]]] = {}
        for student in unlisted:
            called.setdefault(of_student(student[1]), []).append(student)
        called.pop("", None)
        for person in tuple(absent):
            some = next((called[key] for key in of_person(person) if called.get(key)), None)
            if some:
                unlisted.remove(some.pop(0))
                absent.remove(person)
    return Attendance(tuple(map(str, absent)), tuple(student for student, _ in unlisted))


def _in_lines(text: str) -> list[Person]:
    return [_split(printable(line)) for line in text.splitlines() if line.strip()]


def _in_table(text: str, where: str) -> list[Person]:
    heading, _, _ = text.partition("\n")
    delimiter = max(",;\t", key=heading.count)
    try:
        # A cell may have lines: Moodle's worksheet holds what students wrote.
        first, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except (csv.Error, ValueError) as error:  # ValueError: there is no line
        raise InputError(f"{where} is no table ({error}): give one with a heading, or a name a line") from None
    columns = {name.strip().casefold(): place for place, name in enumerate(first)}
    names = next((names for names in COLUMNS_OF_NAMES if columns.keys() >= set(names)), None)
    if names is None:
        raise InputError(
            f"{where} has the columns {printable(', '.join(first), 300)}, and none of them is Full name, Student or "
            "Name: name one so, or give a text with a name a line"
        )
    number = next((name for name in COLUMNS_OF_NUMBERS if name in columns), None)
    people = []
    for row in rows:
        cells = {name: row[place].strip() for name, place in columns.items() if place < len(row)}
        name = " ".join(filter(None, (cells.get(name, "") for name in names)))
        digits = re.search(r"\d+$", cells.get(number, "")) if number else None
        if name and number and digits:
            people.append(Person(printable(name), digits[0]))
        elif name and not number:
            people.append(_split(printable(name)))
    return people


def _split(student: str) -> Person:
    """`Ada Lovelace (4711)`."""
    match = re.fullmatch(r"(.+?)\s*\((\d+)\)", student)
    return Person(match[1], match[2]) if match else Person(student)


def _words(name: str) -> list[str]:
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", name) if not unicodedata.combining(sign))
    return re.findall(r"[^\W_]+", plain.casefold())


def _letters(name: str) -> str:
    return "".join(_words(name))


def _rotations(name: str) -> list[str]:
    """`adalovelace`, `lovelaceada`: Canvas writes a name without blanks, family name first."""
    words = _words(name)
    return ["".join(words[place:] + words[:place]) for place in range(len(words))]
