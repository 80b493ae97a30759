"""Read a class roster, and compare it with the submissions to find people who are missing from one or the other."""

import io
import re
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from transformer_lab.classroom.submissions import MEBIBYTE, printable
from transformer_lab.errors import InputError

LARGEST = 16 * MEBIBYTE
EXPECTED = "give a text file with one name per line, or a table with headings"

# Headings used by course systems and people, in lowercase.
FULL_NAME = ("full name", "vollständiger name", "nombre completo", "nom complet", "student", "name")
FIRST_NAME = ("first name", "firstname", "given name", "vorname", "nombre", "prénom")
LAST_NAME = ("last name", "lastname", "surname", "family name", "nachname", "familienname", "apellido(s)", "nom")
NUMBER = ("identifier", "id", "identificador", "identifiant")  # "identifier" is Moodle's, "id" is Canvas's
NOT_STUDENTS = ("Points Possible", "Student, Test", "Test Student")  # rows that Canvas adds

LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"})
GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


@dataclass(frozen=True)
class Person:
    """A person on the roster, or a student in the gradebook."""

    name: str  # printable, on one line
    number: str = ""  # from Moodle or Canvas

    def __str__(self) -> str:
        return f"{self.name} ({self.number})" if self.number else self.name


@dataclass(frozen=True)
class Attendance:
    """The differences between the roster and the gradebook."""

    listed: int = 0  # people on the roster
    absent: tuple[str, ...] = ()  # on the roster but submitted nothing
    unlisted: tuple[str, ...] = ()  # in the gradebook but not on the roster
    namesakes: tuple[str, ...] = ()  # absent people who may be the same person as a student with that name
    doubtful: tuple[str, ...] = ()  # matched by number even though the name differs
    numbers: Mapping[str, str] = field(default_factory=dict)  # the numbers of students and absent people, by name

    @property
    def is_of_others(self) -> bool:
        """Whether this seems to be another class's roster: most people are absent, and most students are not listed."""
        present = self.listed - len(self.absent)
        return len(self.absent) > present and len(self.unlisted) > present


NO_ROSTER = Attendance()


def read_roster(path: Path) -> list[Person]:
    """Read a roster from a text file with one name per line, or from a table with headings in its first line.

    A table needs a column of full names, or two columns of first and last names. It may also have a column with the
    numbers from a course system. Moodle's grading worksheet and Canvas's gradebook can be read as they are.

    Raises:
        InputError: The file cannot be read, is not a roster, or lists a person twice.
    """
    where = printable(str(path), 300)
    text = re.sub(r"^\s*\n", "", _read_text(path, where))
    people = _people(text, where, must_be_table=path.suffix.lower() == ".csv")
    if not people:
        raise InputError(f"{where} contains no names: {EXPECTED}")
    keys = [person.number or "".join(_words(person.name)) for person in people]
    counts = Counter(keys)
    for person, key in zip(people, keys, strict=True):
        if not any(map(str.isalpha, person.name)):
            raise InputError(f"{where} lists {person.name}, which is not a name: {EXPECTED}")
        if counts[key] > 1:
            raise InputError(f"{where} lists {person} twice: tell two people apart by a number in parentheses")
    return people


def attendance(roster: Sequence[Person], students: Collection[str]) -> Attendance:
    """Match people on a roster to students: first by number and name, then by name, and finally by number alone.

    Case, accents, spaces, and punctuation are ignored, and the family name may come first. The students' names are
    those in the gradebook. If the roster is empty, all students count as listed.
    """
    unlisted, absent = _as_people(students), list(roster)
    numbers = {student: person.number for student, person in unlisted.items() if person.number}
    if not roster:
        return Attendance(numbers=numbers)
    doubtful, matched_names = [], set()
    for rule in _keys(roster[0]):
        by_key = defaultdict(list)
        for student, person in unlisted.items():
            for key in _keys(person)[rule]:
                by_key[key].append(student)
        for person in tuple(absent):
            matching = (student for key in _keys(person)[rule] for student in by_key[key])
            student = next((student for student in matching if student in unlisted), None)
            if student is None:
                continue
            absent.remove(person)
            del unlisted[student]
            if person.number:
                numbers[student] = person.number
            if rule in ("name", "spelling"):
                matched_names.update(_keys(person)["name"])
            elif rule == "number":
                doubtful.append(f"{student} is {person.name} on the roster")
    return Attendance(
        listed=len(roster),
        absent=tuple(map(str, absent)),
        unlisted=tuple(unlisted),
        namesakes=tuple(str(person) for person in absent if matched_names.intersection(_keys(person)["name"])),
        doubtful=tuple(doubtful),
        numbers=numbers | {str(person): person.number for person in absent if person.number},
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_text(path: Path, where: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}: {EXPECTED}") from None
    if content.startswith(b"PK\x03\x04"):
        raise InputError(f"{where} is a spreadsheet, not a table in text form: save it as CSV (UTF-8)")
    try:
        text = content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: byte {error.start} is not UTF-8: save the roster as UTF-8") from None
    if len(content) > LARGEST or "\0" in text:
        raise InputError(f"{where} is not a list of names: {EXPECTED}")
    return text


def _people(text: str, where: str, must_be_table: bool) -> list[Person]:
    excel = re.match(r"sep=(.)(\r?\n|$)", text)
    text = text[excel.end() :] if excel else text
    first, *rest = text.splitlines() or [""]
    delimiter = excel[1] if excel else max("\t;,", key=first.count)
    heading = [cell.strip().strip('"').casefold() for cell in first.split(delimiter)]
    known = not {*FULL_NAME, *FIRST_NAME, *LAST_NAME, *NUMBER}.isdisjoint(heading)
    if len(heading) > 1 and (known or must_be_table or delimiter != ","):
        return _table(text, where, delimiter)
    lines = [line.strip().strip('"') for line in (rest if known else [first, *rest]) if line.strip()]
    # A line may be `3. Ada Lovelace (4711) <ada@example.org>`.
    return [_split(printable(re.sub(r"^\d+[.)]\s+|\s*<[^<>]*@[^<>]*>\s*$", "", line))) for line in lines]


def _table(text: str, where: str, delimiter: str) -> list[Person]:
    """Read a table whose cells may span several lines, because Moodle's worksheet contains text written by students."""
    import pandas

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # more cells than headings
            options = {"sep": delimiter, "dtype": str, "keep_default_na": False, "index_col": False}
            table = pandas.read_csv(io.StringIO(text, newline=""), **options)
    except (ValueError, pandas.errors.ParserWarning) as error:
        reason = printable(str(error), 200)
        raise InputError(f"{where} is not a table ({reason}): put names with commas in quotes") from None
    table.columns = columns = [heading.strip().casefold() for heading in table.columns]
    first, last, full, number = (
        next((heading for heading in headings if heading in columns), None)
        for headings in (FIRST_NAME, (*LAST_NAME, "name"), FULL_NAME, NUMBER)
    )
    name_columns = [first, last] if first and last else [full] if full else []
    if not name_columns and not number:
        raise InputError(
            f"{where} has the columns {printable(', '.join(columns), 300)}, but needs one called Full name, Student, "
            "or Name, or two called First name and Last name: rename them, or give a text file with one name per line"
        )
    people = []
    rows = [{heading: cell.strip() for heading, cell in row.items()} for row in table.to_dict("records")]
    for row, digits in zip(rows, _numbers([row.get(number, "") for row in rows]), strict=True):
        name = " ".join(filter(None, (row[column] for column in name_columns)))
        if "\n" in name:
            raise InputError(f"{where} has a name that spans several lines: {printable(name)}")
        if not name_columns and digits:
            name = re.sub(r"\W*\d+$", "", row[number]) or "Participant"  # submitted anonymously
        if name and name not in NOT_STUDENTS:
            people.append(Person(printable(name), digits) if digits else _split(printable(name)))
    return people


def _numbers(cells: Sequence[str]) -> list[str]:
    """Return the digits of `4711`, of pandas' `4711.0`, or of `Participant 4711` if all cells share the prefix.

    Anything else, such as a user name, becomes an empty string.
    """
    matches = [re.fullmatch(r"(\D*)(\d+)(\.0)?", cell) for cell in cells]
    same_prefix = len({match[1] for match in matches if match}) == 1
    return [match[2] if match and same_prefix else "" for match in matches]


def _split(student: str) -> Person:
    """Split `Ada Lovelace (4711)` into name and number."""
    match = re.fullmatch(r"(.+?)\s*\((\d{1,18})\)", student)
    return Person(match[1], match[2]) if match else Person(student)


# --- matching --------------------------------------------------------------------------------------------------------


def _as_people(students: Collection[str]) -> dict[str, Person]:
    """Separate names from numbers. A `(2)` that the grader added to tell namesakes apart is not a number."""
    people = {student: _split(student) for student in students}
    namesakes = Counter(person.name.casefold() for person in people.values())
    without_number = {student.casefold() for student in students}
    for student, person in people.items():
        name = person.name.casefold()
        if person.number and name in without_number and int(person.number) <= namesakes[name]:
            people[student] = Person(person.name)
    return people


@cache
def _keys(person: Person) -> dict[str, list[str]]:
    """Return the keys that identify a person under each rule, with the strictest rule first.

    The keys of Ada Lovelace are `adalovelace` and, in Canvas's order, `lovelaceada`. Müller can also be `mueller`.
    """
    words = _words(person.name)
    spelled = [words, _words(person.name.casefold().translate(GERMAN))]
    rotations = ["".join(names[start:] + names[:start]) for names in spelled for start in range(len(names))]
    numbers = [person.number] if person.number else []
    both = [f"{number} {name}" for number in numbers for name in [*words, *rotations]]
    return {"number and name": both, "name": rotations[:1], "spelling": rotations, "number": numbers}


def _words(name: str) -> list[str]:
    """Return the words in lowercase, without Latin, Greek, or Cyrillic accents. Other scripts keep their marks."""
    plain = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", name.casefold().translate(LETTERS)))
    return "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in plain).split()
