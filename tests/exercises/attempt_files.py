"""Student attempts, stored as data in `attempts/NN_topic.md`.

`##` is the exercise, `###` says what is wrong with the code (or starts with `Right:`), and the line `named:` lists the
slugs that the report should name. The code runs with the notebook's own imports and the earlier exercises.
"""

import ast
import functools
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_lab.exercises import exercises
from transformer_lab.exercises.registry import notebook_of

FOLDER = Path(__file__).parent / "attempts"
COURSE = Path(__file__).parents[2] / "course"


@dataclass(frozen=True)
class Attempt:
    """The code that one student wrote for one exercise."""

    exercise: str
    label: str
    named: tuple[str, ...]
    source: str
    file: str
    line: int

    @property
    def is_right(self) -> bool:
        return self.label.startswith("Right:")

    def subject(self) -> Any:
        """Run the code as if it were in its notebook and return the function or class."""
        names = dict(_names_in_notebook(notebook_of(self.exercise)))
        names |= {name: other.answer for name, other in exercises().items() if name != self.exercise}
        names["__name__"] = "__main__"
        file = f"<{self.file}:{self.line}>"
        linecache.cache[file] = len(self.source), None, self.source.splitlines(keepends=True), file
        exec(compile(self.source, file, "exec"), names)
        return names[self.exercise]


@functools.cache
def _names_in_notebook(number: str) -> dict[str, Any]:
    """Return the names that a notebook's imports bind, with their values."""
    (path,) = COURSE.glob(f"{number}_*.md")
    cells = re.findall(
        r"^```\{code-cell\}[^\n]*\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    names: dict[str, Any] = {}
    for cell in cells:
        try:
            statements = ast.parse(cell).body
        except SyntaxError:  # cell options or a magic command
            statements = ast.parse("\n".join(line for line in cell.splitlines() if line[:1] not in (":", "%"))).body
        for statement in statements:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                exec(compile(ast.Module([statement], []), str(path), "exec"), names)
    return names


def read_attempts(folder: Path = FOLDER) -> Iterator[Attempt]:
    """Yield the attempts of all files in a folder."""
    for path in sorted(folder.glob("[0-9]*.md")):
        exercise = label = ""
        named: tuple[str, ...] = ()
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for number, line in lines:
            if line.startswith("## "):
                exercise = line[3:].strip()
            elif line.startswith("### "):
                label, named = line[4:].strip(), ()
            elif line.startswith("named:"):
                named = tuple(slug.strip(" `") for slug in line[6:].split(",") if slug.strip())
            elif line.startswith("```"):
                block = []
                for _, inside in lines:
                    if inside.startswith("```"):
                        break
                    block.append(inside)
                yield Attempt(exercise, label, named, "\n".join(block) + "\n", path.name, number)
