"""The list of a class: who on it has handed in nothing, and who handed in and is not on it."""

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer_lab.classroom.submissions import MEBIBYTE, printable
from transformer_lab.errors import InputError

LARGEST = 16 * MEBIBYTE

# Headings as course systems and people write them, in lower case.
FULL_NAME = ("full name", "vollständiger name", "nombre completo", "nom complet", "student", "name")
FIRST_NAME = ("first name", "firstname", "given name", "vorname", "nombre", "prénom")
LAST_NAME = ("last name", "lastname", "surname", "family name", "nachname", "familienname", "apellido(s)", "nom")
NUMBER = ("identifier", "id", "identificador", "identifiant")  # of Moodle's grading worksheet; of Canvas's gradebook
TEST_STUDENTS = ("Student, Test", "Test Student")  # of Canvas, in whose place a teacher sees the course

LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"})
GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


@dataclass(frozen=True)
class Person:
    """One line of a list, or a student."""

    name: str  # printable, on one line
    number: str = ""  # of Moodle or Canvas

    def __str__(self) -> str:
        return f"{self.name} ({self.number})" if self.number else self.name


@dataclass(frozen=True)
class Attendance:
    """What a list and the gradebook say of each other."""

    listed: int = 0  # how many the list has
    absent: tuple[str, ...] = ()  # on the list, and nothing was handed in
    unlisted: tuple[str, ...] = ()  # in the gradebook, and not on the list
    namesakes: tuple[str, ...] = ()  # of the absent ones: somebody of this name was found, and it may be the other
    doubtful: tuple[str, ...] = ()  # found by their number, but called otherwise
    numbers: Mapping[str, str] = field(default_factory=dict)  # of students, and of those who are absent

    @property
    def is_of_others(self) -> bool:
        """Whether hardly anybody on the list was found, and most of those who handed in are not on it."""
        found = self.listed - len(self.absent)
        return len(self.absent) > found and len(self.unlisted) > found


NOT_ASKED = Attendance()


def read_roster(path: Path) -> list[Person]:
    """The people in a list: a text with a name a line, or a table whose first line names its columns.

    Of a table these count: a full name, or first and last name, and the number of a course system, under the headings
    above. So Moodle's grading worksheet and Canvas's gradebook are read as they are.

    Raises:
        InputError: The file cannot be read, is no such list, or names somebody twice.
    """
    where = printable(str(path), 300)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}: give a text with a name a line, or a table") from None
    if content.startswith(b"PK\x03\x04"):
        raise InputError(f"{where} is a workbook, such as Excel's: save it as CSV (UTF-8)")
    try:
        is_utf_16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = content.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start} is not UTF-8: save the list as UTF-8") from None
    if len(content) > LARGEST or "\0" in text:
        raise InputError(f"{where} is no list of names: give a text with a name a line, or a table")
    people = _people(re.sub(r"^\s*\n", "", text), where, must_be_table=path.suffix.lower() == ".csv")
    if not people:
        raise InputError(f"{where} names nobody: give a text with a name a line, or a table")
    for person in people:
        if not any(map(str.isalpha, person.name)):
            raise InputError(f"{where} has {person.name}, which is no name: give a text with a name a line, or a table")
    keys = Counter(person.number or "".join(_words(person.name)) for person in people)
    for person in people:
        if keys[person.number or "".join(_words(person.name))] > 1:
            raise InputError(f"{where} has {person} twice: tell them apart, with a number in brackets for example")
    return people


def attendance(roster: Sequence[Person], students: Collection[str]) -> Attendance:
    """Find the people of a list among the students: by number and name, else by name, else by number alone.

    Capitals, accents, blanks and punctuation make no difference, and the family name may come first.

    Args:
        roster: The list; where it is empty, nobody is asked for.
        students: As the gradebook calls them.
    """
    unlisted, absent = _as_people(students), list(roster)
    numbers = {student: known.number for student, known in unlisted.items() if known.number}
    if not roster:
        return Attendance(numbers=numbers)
    doubtful, named = [], set()
    for rule in (_number_and_name, _name, _spellings, _number):
        of_key: dict[str, list[str]] = {}
        for student, known in unlisted.items():
            for key in rule(known):
                of_key.setdefault(key, []).append(student)
        for person in tuple(absent):
            student = next((one for key in rule(person) for one in of_key.get(key, ()) if one in unlisted), None)
            if student is None:
                continue
            absent.remove(person)
            del unlisted[student]
            if person.number:
                numbers[student] = person.number
            if rule in (_name, _spellings):
                named.update(_name(person))
            elif rule is _number:
                doubtful.append(f"{student} is {person.name} on the list")
    numbers |= {str(person): person.number for person in absent if person.number}
    return Attendance(
        listed=len(roster),
        absent=tuple(map(str, absent)),
        unlisted=tuple(unlisted),
        namesakes=tuple(str(person) for person in absent if named.intersection(_name(person))),
        doubtful=tuple(doubtful),
        numbers=numbers,
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def _people(text: str, where: str, must_be_table: bool) -> list[Person]:
    lines = text.splitlines()
    delimiter = None
    if lines and (match := re.fullmatch(r"sep=(.)", lines[0])):  # for Excel
        delimiter, text = match[1], text.partition("\n")[2]
        lines = lines[1:]
    first = lines[0] if lines else ""
    delimiter = delimiter or max("\t;,", key=first.count)
    heading = [cell.strip().strip('"').casefold() for cell in first.split(delimiter)]
    known = any(cell in {*FULL_NAME, *FIRST_NAME, *LAST_NAME, *NUMBER} for cell in heading)
    if len(heading) == 1:
        return [_of_line(line) for line in lines[known:] if line.strip()]
    if known or must_be_table or delimiter != ",":
        return _in_table(text, where, delimiter)
    return [_of_line(line) for line in lines if line.strip()]


def _of_line(line: str) -> Person:
    """`3. Ada Lovelace (4711) <ada@example.org>`."""
    line = line.strip().strip('"')
    return _split(printable(re.sub(r"^\d+[.)]\s+|\s*<[^<>]*@[^<>]*>\s*$", "", line)))


def _in_table(text: str, where: str, delimiter: str) -> list[Person]:
    try:
        # A cell may have lines: Moodle's worksheet holds what students wrote.
        first, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise InputError(f"{where} is no table ({error}): give one with a heading, or a name a line") from None
    places = {name.strip().casefold(): place for place, name in enumerate(first)}
    found = {
        kind: next((places[name] for name in names if name in places), None)
        for kind, names in (("first", FIRST_NAME), ("last", LAST_NAME), ("full", FULL_NAME), ("number", NUMBER))
    }
    if found["first"] is not None and found["last"] is not None:
        of_name = [found["first"], found["last"]]
    elif found["first"] is not None and "name" in places:
        of_name = [found["first"], places["name"]]
    else:
        of_name = [found["full"]] if found["full"] is not None else []
    if not of_name and found["number"] is None:
        raise InputError(
            f"{where} has the columns {printable(', '.join(first), 300)}, and none of them is Full name, Student or "
            "Name, nor First name with Last name: name one so, or give a text with a name a line"
        )
    for number, row in enumerate(rows, start=2):
        if any(row[len(first) :]):
            raise InputError(f"{where}: row {number} has more cells than the heading: put names with commas in quotes")
    rows = [[cell.strip() for cell in row] + [""] * len(first) for row in rows]
    cells = [row[found["number"]] if found["number"] is not None else "" for row in rows]
    people = []
    for row, number in zip(rows, _numbers(cells), strict=True):
        name = " ".join(filter(None, (row[place] for place in of_name)))
        if "\n" in name:
            raise InputError(f"{where} has a name of several lines: {printable(name)}")
        if not of_name and number:
            name = re.sub(r"\W*\d+$", "", row[found["number"]]) or "Participant"  # handed in without names
        if name and name != "Points Possible" and name not in TEST_STUDENTS:  # rows of Canvas
            people.append(Person(printable(name), number) if number else _split(printable(name)))
    return people


def _numbers(cells: Sequence[str]) -> list[str]:
    """`4711`, of pandas `4711.0`, or in all rows `Participant 4711`; what else stands under such a heading is none."""
    matches = [re.fullmatch(r"(\D*)(\d+)(\.0)?", cell) for cell in cells]
    if len({match[1] for match in matches if match}) != 1:
        return [""] * len(cells)
    return [match[2] if match else "" for match in matches]


def _split(student: str) -> Person:
    """`Ada Lovelace (4711)`."""
    match = re.fullmatch(r"(.+?)\s*\((\d{1,18})\)", student)
    return Person(match[1], match[2]) if match else Person(student)


# --- finding: what a person and a student have in common -------------------------------------------------------------


def _as_people(students: Collection[str]) -> dict[str, Person]:
    """Students with the number of a course system apart. A `(2)` that the grader itself gave to a namesake is none."""
    people = {student: _split(student) for student in students}
    namesakes = Counter(person.name.casefold() for person in people.values())
    bare = {student.casefold() for student in students}

    def has_number_of_grader(person: Person) -> bool:
        name = person.name.casefold()
        return bool(person.number) and name in bare and int(person.number) <= namesakes[name]

    return {
        student: Person(person.name) if has_number_of_grader(person) else person for student, person in people.items()
    }


def _number_and_name(person: Person) -> list[str]:
    alike = dict.fromkeys([*_words(person.name), *_spellings(person)])
    return [f"{person.number} {name}" for name in alike] if person.number else []


def _name(person: Person) -> list[str]:
    return list(filter(None, ["".join(_words(person.name))]))


def _spellings(person: Person) -> list[str]:
    """`adalovelace`, `lovelaceada`: Canvas leaves out blanks, family name first. And `mueller` for Müller."""
    spelled = [_words(person.name), _words(person.name.casefold().translate(GERMAN))]
    rotations = ["".join(words[place:] + words[:place]) for words in spelled for place in range(len(words))]
    return list(dict.fromkeys(rotations))


def _number(person: Person) -> list[str]:
    return [person.number] if person.number else []


def _words(name: str) -> list[str]:
    """In small letters without the accents of Latin, Greek and Cyrillic; marks of other scripts are letters."""
    plain = unicodedata.normalize("NFKD", name.casefold().translate(LETTERS))
    kept = (sign for sign in plain if not "\u0300" <= sign <= "\u036f")
    return "".join(sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in kept).split()
