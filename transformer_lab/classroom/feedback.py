"""Write each student's feedback page: what passed, what went wrong, where to read about it, and the student's code.

All text from a submission is escaped and shortened. The instructor's flags are left out.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.exports import feedback_text
from transformer_lab.classroom.gradebook import Entry, is_graded_again
from transformer_lab.classroom.page_templates import render
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.exercises import diagnosis
from transformer_lab.exercises.registry import exercises

COUNTED = re.compile(r"\d+ checks?: [\w ,]+")
ROW = re.compile(r"  [✓✗–] (passed|failed|not checked) +(\S.*)", re.DOTALL)


def reading_places(course: Course, name: str) -> dict[str, str]:
    """Return where each exercise of a notebook is explained: in the section right before it, and in the paper."""
    places = {}
    title = name
    sections: list[str] = []  # since the previous exercise
    explained: list[str] = []
    for cell in course.notebook(name).cells:
        exercise = exercise_of(cell)
        heading = re.match(r"(##?) +(.+)", cell.source) if cell.cell_type == "markdown" else None
        if exercise:
            # The last section is the exercise's own.
            before = [section for section in sections[:-1] if section != "What you will build"]
            explained = before or explained  # two exercises in a row may share an explanation
            nearest = before[-1:] or explained[-2:]
            where = f": {' and '.join(f'“{section}”' for section in nearest)}" if nearest else ""
            section = re.search(r"section (\d[\d.]*\d)", exercises()[exercise].answer.__doc__ or "")
            paper = f"; in the paper, section {section[1]}" if section else ""
            places[exercise] = f"notebook {name[:2]}, {title}{where}{paper}"
            sections = []
        elif heading and heading[1] == "#":
            title = heading[2]
        elif heading:
            sections.append(heading[2])
    return places


def feedback_page(student: str, entries: Sequence[Entry], places: Mapping[str, str]) -> str:
    """Return a student's page about the results that count. `places` is the result of `reading_places`."""
    functions = {"is_graded_again": is_graded_again, "parts_of_report": parts_of_report}
    return render("feedback.html", student=student, entries=entries, places=places, **functions)


def sentences(exercise: str) -> dict[str, str]:
    """Return the explanation of each known mistake in an exercise, keyed by the mistake's slug."""
    known = exercises().get(exercise)
    return diagnosis.sentences(known) if known else {}


def parts_of_report(result: ExerciseResult) -> dict[str, list[tuple[str, str]]]:
    """Split a report into what happened, the number of checks, the checks, and the rest, as blocks of `(kind, text)`.

    Blocks of an unknown kind become prose, so nothing is lost.
    """
    parts: dict[str, list[tuple[str, str]]] = {"happened": [], "counted": [], "checks": [], "rest": []}
    part = parts["rest"]
    for kind, text in _blocks(feedback_text(result)):
        if (kind, text) == ("heading", "What happened"):
            part = parts["happened"]
            continue
        if kind == "heading":
            part = parts["rest"]
        if kind == "numbers" and part and part[-1][0] == "numbers":  # continues a code listing
            part[-1] = kind, f"{part[-1][1]}\n\n{text}"
        elif kind == "numbers":
            part.append((kind, textwrap.dedent(text)))
        elif kind in ("passed", "failed", "not checked"):
            parts["checks"].append((kind, text))
        else:
            (parts["counted"] if COUNTED.fullmatch(text) else part).append((kind, text))
    if not parts["happened"]:
        known = sentences(result.exercise)
        parts["happened"] = [("prose", known[slug]) for slug in result.misconceptions if slug in known]
    return parts


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a report as `(kind, text)`: "heading", "numbers", "prose", or the state of a check."""
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
    """Join lines that were wrapped at a space or after a hyphen."""
    return " ".join(re.sub(r"(?<=\w-)\n *(?=\w)", "", text).split())
