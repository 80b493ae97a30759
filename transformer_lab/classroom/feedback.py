"""One page of feedback a student: what passed, what was misunderstood and where to read, their code beside it.

All of it that comes from a submission is escaped, shortened, and never run; the instructor's flags are not in it.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.exports import feedback_text
from transformer_lab.classroom.gradebook import Entry, is_graded_again, number
from transformer_lab.classroom.pages import badge, numbered, page, person, safe
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.classroom.writing import clean
from transformer_lab.exercises import diagnosis
from transformer_lab.exercises.registry import exercises
from transformer_lab.exercises.report import prose

ADVICE = (
    "Save the notebook in JupyterLab, open it once more to see that it is whole, "
    "and hand in the file that ends in .ipynb."
)
TITLE = re.compile("[✓✗–] ")
COUNTED = re.compile(r"\d+ checks?: [\w ,]+")
ROW = re.compile(r"  [✓✗–] (passed|failed|not checked) +(\S.*)")


def reading_places(course: Course, name: str) -> dict[str, str]:
    """Where a notebook explains each of its exercises, as HTML: the headings on the way to it, the paper's section."""
    places = {}
    headings: list[str] = []  # since the exercise before
    told: list[str] = []
    title = name
    for cell in course.notebook(name).cells:
        exercise = exercise_of(cell)
        heading = re.match(r"(#+) +(.+)", cell.source) if cell.cell_type == "markdown" else None
        if exercise:
            own = [f"“{prose(text)}”" for text in headings[:-1]][-2:]  # the last one is the exercise's
            told = own or told  # two exercises may share what explains them
            where = f": {' and '.join(told)}" if told else ""
            section = re.search(r"section (\d[\d.]*\d)", exercises()[exercise].answer.__doc__ or "")
            paper = f"; in the paper, section {section[1]}" if section else ""
            places[exercise] = f"notebook {name[:2]}, {prose(title)}{where}{paper}"
            headings = []
        elif heading and len(heading[1]) == 1:
            title = heading[2]
        elif heading and len(heading[1]) == 2 and heading[2] != "What you will build":
            headings.append(heading[2])
    return places


def feedback_page(student: str, entries: Sequence[Entry], places: Mapping[str, str]) -> str:
    """The page of one student.

    Args:
        student: The name, as data.
        entries: What counts of the student's notebooks.
        places: Exercise to where it is explained, as HTML.
    """
    earned = sum(entry.result.earned for entry in entries)
    possible = sum(entry.result.possible for entry in entries)
    body = [
        f"<h1>Feedback for {person(student)}</h1>",
        f'<p class="soft">{number(earned)} of {number(possible)} points in what you handed in</p>',
    ]
    for entry in entries:
        body += _notebook(entry, places)
    return page(f"Feedback for {student}", "\n".join(body))


def _notebook(entry: Entry, places: Mapping[str, str]) -> list[str]:
    result = entry.result
    points = f"{number(result.earned)} of {number(result.possible)} points" if result.exercises else ""
    title = safe(result.notebook) if result.notebook else f"The file {safe(entry.path)}"
    parts = [f'<h2 class="head">{title} <span class="points soft small">{points}</span></h2>']
    if result.problem:
        advice = "" if is_graded_again(result) else f". {ADVICE}"
        parts.append(f'<p class="warning"><b>This file could not be graded:</b> {safe(result.problem)}{advice}</p>')
    said = [*result.remarks]
    if entry.others:
        said.append(
            f"You handed in {len(entry.others) + 1} files for this notebook; the one with the most points counts."
        )
    if said:
        parts.append("<ul>" + "".join(f"<li>{prose(clean(remark))}</li>" for remark in said) + "</ul>")
    return parts + [_exercise(exercise, places.get(exercise.exercise, "")) for exercise in result.exercises]


def _exercise(result: ExerciseResult, place: str) -> str:
    points = f'<span class="points">{number(result.earned)} of {number(result.possible)}</span>'
    head = f'<div class="head"><h3><code>{safe(result.exercise)}</code></h3> {badge(result.state)}{points}</div>'
    written = result.source.strip() and result.state != "not attempted"
    code = f"<h4>Your code</h4>{numbered(result.source)}" if written else ""
    happened, checks, probe = report_html(result)
    if result.state == "passed":
        remarks = "".join(f"<p><b>Remark:</b> {prose(clean(remark))}</p>" for remark in result.remarks)
        closed = f"<details><summary>What was checked, and your code</summary>{checks}{probe}{code}</details>"
        return f"<section>{head}{remarks}{closed}</section>"
    read = f"<p><b>Where to read:</b> {place}.</p>" if place else ""
    sides = f'<div class="sides"><div>{probe}</div><div>{code}</div></div>' if "<pre>" in probe else probe + code
    return f"<section>{head}{happened}{read}{checks}{sides}</section>"


def sentences(exercise: str) -> dict[str, str]:
    """What the student is told about each mistake of an exercise, by its slug."""
    known = exercises().get(exercise)
    return diagnosis.sentences(known) if known else {}


def report_html(result: ExerciseResult) -> tuple[str, str, str]:
    """The plain text of a report as HTML: `(what was misunderstood, the checks, all else)`.

    A text of another form loses nothing: what is not recognised stands there as sentences or as it is.
    """
    happened, checks, rest, counted = [], [], [], ""
    part = rest
    for kind, block in _blocks(feedback_text(result).split("\n")):
        match kind:
            case "heading" if block == "What happened":
                part = happened
            case "heading":
                part = rest
                part.append(f"<h4>{prose(block)}</h4>")
            case "numbers":
                before = (
                    part.pop().removesuffix("</pre>") + "\n\n" if part and part[-1].startswith("<pre>") else "<pre>"
                )
                part.append(f"{before}{escape(textwrap.dedent(block))}</pre>")
            case "prose" if COUNTED.fullmatch(block):
                counted = f'<p class="small">{prose(block)}</p>'
            case "prose":
                part.append(f"<p>{prose(block)}</p>")
            case _:
                checks.append(f"<li>{badge(kind)} {prose(block)}</li>")
    if not happened:
        says = sentences(result.exercise)
        happened = [f"<p>{prose(says[slug])}</p>" for slug in result.misconceptions if slug in says]
    listed = f'{counted}<ul class="checks small">{"".join(checks)}</ul>' if checks else ""
    return "".join(happened), listed, "".join(rest)


def _blocks(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The blocks of a report's text: `heading`, `numbers`, `prose`, and checks by their state."""
    place = int(bool(TITLE.match(lines[0])))  # the page has a title of its own
    while place < len(lines):
        line = lines[place]
        following = lines[place + 1] if place + 1 < len(lines) else ""
        place += 1
        end = place
        if row := ROW.fullmatch(line):
            while end < len(lines) and lines[end].startswith(" " * 8):
                end += 1
            yield row[1], _joined([row[2], *lines[place:end]])
        elif line and following == "-" * len(line):
            end += 1
            yield "heading", line
        elif line.startswith("    ") or (line and following.startswith("    ")):  # a table, with its title
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            yield "numbers", "\n".join([line, *lines[place:end]])
        elif line:
            while end < len(lines) and lines[end].strip():
                end += 1
            yield "prose", _joined([line, *lines[place:end]])
        place = end


def _joined(lines: list[str]) -> str:
    """One sentence of lines that were wrapped, at spaces or after the hyphen of a word."""
    return " ".join(re.sub(r"(?<=\w-)\n *(?=\w)", "", "\n".join(lines)).split())
