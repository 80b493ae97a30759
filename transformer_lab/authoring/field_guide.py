"""Turn the catalog of mistakes into a web page that shows an explanation and a diff for each entry."""

import difflib
import html
from collections.abc import Iterator, Mapping
from typing import Any

from transformer_lab.exercises.catalogue import Mistake, mistakes_of
from transformer_lab.exercises.edits import bare_source
from transformer_lab.exercises.registry import exercises
from transformer_lab.exercises.report import prose


def number_of_mistakes() -> int:
    return sum(len(mistakes_of(exercise)) for exercise in exercises().values())


def field_guide(notebooks: Mapping[str, list[Any]], titles: Mapping[str, str]) -> str:
    """Return all entries, grouped by notebook and exercise, as Markdown with collapsible HTML.

    Args:
        notebooks: Maps the stem of each notebook's file name to its exercises.
        titles: Maps the same stems to the notebooks' titles.
    """
    return "\n\n".join(part for name in notebooks for part in _notebook_parts(name, notebooks[name], titles[name]))


def _notebook_parts(name: str, exercises: list[Any], title: str) -> Iterator[str]:
    if any(map(mistakes_of, exercises)):
        yield f"## {name[:2]} {title}"
    for exercise in exercises:
        if entries := mistakes_of(exercise):
            yield f"### `{exercise.name}`"
            yield "\n".join(_entry(exercise, mistake) for mistake in entries)


def _entry(exercise: Any, mistake: Mistake) -> str:
    """Return a collapsed entry. It contains no blank lines, because a blank line would end the HTML block."""
    name = mistake.slug.replace("_", " ").capitalize()
    gist = mistake.says.split(". ")[0].removesuffix(".")
    return (
        f'<details class="lab-bug" id="{exercise.name}-{mistake.slug}">'
        f"<summary><b>{html.escape(name)}</b> <span>{prose(gist)}</span></summary>"
        f"<p>{prose(mistake.says)}</p>"
        f'<pre class="lab-diff">{_diff(bare_source(exercise.answer), mistake.ways[0].source)}</pre></details>'
    )


def _diff(right: str, wrong: str) -> str:
    """Return the differing lines as `<del>` and `<ins>`, with two lines of context."""
    marked = []
    for line in list(difflib.unified_diff(right.splitlines(), wrong.splitlines(), n=2, lineterm=""))[2:]:
        if line.startswith("@@"):
            marked.append("<i>…</i>" if marked else "")
            continue
        tag = {"-": "del", "+": "ins"}.get(line[0])
        text = html.escape(line) or " "
        marked.append(f"<{tag}>{text}</{tag}>" if tag else f"<span>{text}</span>")
    return "\n".join(marked).strip("\n")
