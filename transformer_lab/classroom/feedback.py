"""One feedback page per student: what passed, what was misunderstood and where to read, with the student's code.

Everything that comes from a submission is escaped, shortened, and never run. The instructor's flags are left out.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.exports import feedback_text
from transformer_lab.classroom.gradebook import Entry, is_graded_again
from transformer_lab.classroom.pages import render
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.exercises import diagnosis
from transformer_lab.exercises.registry import exercises

COUNTED = re.compile(r"\d+ checks?: [\w ,]+")
ROW = re.compile(r"  [✓✗–] (passed|failed|not checked) +(\S.*)", re.DOTALL)


def reading_places(course: Course, name: str) -> dict[str, str]:
    """Return where a notebook explains each of its exercises: the headings before it, and the paper's section."""
    places = {}
    headings: list[str] = []  # since the previous exercise
    explained: list[str] = []
    title = name
    for cell in course.notebook(name).cells:
        exercise = exercise_of(cell)
        heading = re.match(r"(#+) +(.+)", cell.source) if cell.cell_type == "markdown" else None
        if exercise:
            own = [f"“{text}”" for text in headings[:-1]][-2:]  # the last heading is the exercise's
            explained = own or explained  # two exercises may share an explanation
            where = f": {' and '.join(explained)}" if explained else ""
            section = re.search(r"section (\d[\d.]*\d)", exercises()[exercise].answer.__doc__ or "")
            paper = f"; in the paper, section {section[1]}" if section else ""
            places[exercise] = f"notebook {name[:2]}, {title}{where}{paper}"
            headings = []
        elif heading and len(heading[1]) == 1:
            title = heading[2]
        elif heading and len(heading[1]) == 2 and heading[2] != "What you will build":
            headings.append(heading[2])
    return places


def feedback_page(student: str, entries: Sequence[Entry], places: Mapping[str, str]) -> str:
    """Return the page of one student.

    Args:
        student: The name, as data.
        entries: The results that count for the student's notebooks.
        places: Exercise to where it is explained.
    """
    functions = {"is_graded_again": is_graded_again, "parts_of_report": parts_of_report}
    return render("feedback.html", student=student, entries=entries, places=places, **functions)


def sentences(exercise: str) -> dict[str, str]:
    """Return what the student is told about each mistake of an exercise, by its slug."""
    known = exercises().get(exercise)
    return diagnosis.sentences(known) if known else {}


def parts_of_report(result: ExerciseResult) -> dict[str, list[tuple[str, str]]]:
    """Split the plain text of a report into what happened, the checks, and the rest, as blocks of `(kind, text)`.

    Nothing is lost if the text has another form: a block that is not recognized is prose.
    """
    parts: dict[str, list[tuple[str, str]]] = {"happened": [], "counted": [], "checks": [], "rest": []}
    part = parts["rest"]
    for kind, text in _blocks(feedback_text(result)):
        if (kind, text) == ("heading", "What happened"):
            part = parts["happened"]
            continue
        if kind == "heading":
            part = parts["rest"]
        if kind == "numbers" and part and part[-1][0] == "numbers":  # one listing
            part[-1] = kind, f"{part[-1][1]}\n\n{text}"
        elif kind == "numbers":
            part.append((kind, textwrap.dedent(text)))
        elif kind in ("passed", "failed", "not checked"):
            parts["checks"].append((kind, text))
        else:
            (parts["counted"] if COUNTED.fullmatch(text) else part).append((kind, text))
    if not parts["happened"]:
        says = sentences(result.exercise)
        parts["happened"] = [("prose", says[slug]) for slug in result.misconceptions if slug in says]
    return parts


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a report: `heading`, `numbers`, `prose`, and checks by their state."""
    if text.startswith(("✓ ", "✗ ", "– ")):
        text = text.partition("\n")[2]  # the page has its own title
    for block in re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")):
        lines = block.split("\n")
        rows = [ROW.fullmatch(row) for row in re.split(r"\n(?=  [✓✗–] )", block)]
        if all(rows):
            yield from ((row[1], _joined(row[2])) for row in rows)
        elif lines[1:] == ["-" * len(lines[0])]:
            yield "heading", lines[0]
        elif any(line.startswith("    ") for line in lines):  # a table, with its title
            yield "numbers", block
        elif block.strip():
            yield "prose", _joined(block)


def _joined(text: str) -> str:
    """Join lines that were wrapped, at spaces or after a hyphen within a word."""
    return " ".join(re.sub(r"(?<=\w-)\n *(?=\w)", "", text).split())
