"""The catalogue of mistakes: `mistakes/NN_*.md`, one file per notebook.

    ## MultiHeadAttention

    ### one_projection
    `self.w_k(key)` → `self.w_q(key)`

    Queries and keys go through the same projection `w_q`, so …

A `##` heading names the exercise and a `###` heading the mistake: its slug, which gradebooks use. Then come the edits
that turn the answer into the mistake, and then the text that the student reads.

- `` `fragment` → `replacement` `` replaces a piece of the answer's source (docstrings and comments don't count, and
  white space between tokens is free). The fragment has to occur exactly once, or as often as `` ×3 `` at the end says.
- `` `fragment` → nothing `` deletes it. Several such lines are applied together.
- A line that begins with `or` starts another way to make the same mistake.
- A ```` ```diff ```` block changes several lines: `-` lines are replaced by `+` lines.
- A ```` ```python ```` block is a whole function or class, for what no edit can express. There, `answer` is the right
  one.
- `only if the code has` `` `pattern` `` and `not if the code has` `` `pattern` `` test a regular expression on the
  student's source. An entry with such a rule isn't named when the source is unknown.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transformer_lab.exercises.edits import Edit, EditError, Wrong, bare_source, replacements
from transformer_lab.exercises.exercise import Exercise

FOLDER = Path(__file__).parent / "mistakes"
_EDIT = re.compile(r"(?P<other>or )?`(?P<old>[^`]+)` → (?:`(?P<new>[^`]*)`|nothing)(?: ×(?P<times>\d+))?")
_RULE = re.compile(r"(?P<kind>only|not) if the code has `(?P<pattern>[^`]+)`")


class CatalogueError(ValueError):
    """An entry of the catalogue is wrong: the message gives the file, the line and the heading."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """One known mistake: the wrong versions that it leads to, and what to tell the student."""

    slug: str
    says: str
    ways: tuple[Wrong, ...]  # different edits that make the same mistake
    only_if: tuple[str, ...] = ()  # patterns that the student's source must have
    not_if: tuple[str, ...] = ()  # and must not have

    def is_possible(self, source: str | None) -> bool:
        """Whether the student's source, without comments, lets this be the mistake."""
        if source is None:
            return not self.only_if and not self.not_if
        return all(re.search(pattern, source) for pattern in self.only_if) and not any(
            re.search(pattern, source) for pattern in self.not_if
        )


@dataclass
class Entry:
    """One `###` section as it stands in the file."""

    exercise: str
    slug: str
    file: str
    line: int
    ways: list[list[tuple[int, str, str, int]]] = field(default_factory=lambda: [[]])  # (line, old, new, times)
    whole: list[tuple[int, str]] = field(default_factory=list)  # (line, source)
    only_if: list[str] = field(default_factory=list)
    not_if: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def error(self, says: str, line: int | None = None) -> CatalogueError:
        """The error to raise about this entry."""
        return CatalogueError(f"{self.file}, line {line or self.line}, `{self.exercise}` / `{self.slug}`: {says}")


@functools.cache
def mistakes_of(exercise: Exercise) -> list[Mistake]:
    """Return the known mistakes of an exercise, in the order of the catalogue.

    Raises:
        CatalogueError: an entry is malformed or doesn't fit the answer.
    """
    entries = [entry for entry in _all_entries() if entry.exercise == exercise.name]
    return [_mistake(exercise, entry) for entry in entries]


@functools.cache
def _all_entries() -> list[Entry]:
    return [entry for path in sorted(FOLDER.glob("*.md")) for entry in read(path)]


def read(path: Path) -> list[Entry]:
    """Read the entries of one file.

    Raises:
        CatalogueError: the file isn't written as this module's docstring says.
    """
    entries: list[Entry] = []
    exercise = ""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    for number, line in lines:
        if line.startswith("## "):
            exercise = line[3:].strip().strip("`")
        elif line.startswith("### "):
            slug = line[4:].strip()
            entry = Entry(exercise, slug, path.name, number)
            if not exercise:
                raise entry.error("this entry comes before the first `##` heading, which names an exercise")
            if not re.fullmatch(r"[a-z0-9_]+", slug):
                raise entry.error("a slug has only lowercase letters, digits and underscores")
            if any((other.exercise, other.slug) == (exercise, slug) for other in entries):
                raise entry.error("slug used twice")
            entries.append(entry)
        elif entries and line.strip():
            _add(entries[-1], number, line.strip(), lines)
    return entries


def _add(entry: Entry, number: int, line: str, lines: Iterator[tuple[int, str]]) -> None:
    if entry.text or not line.startswith(("```", "`", "or", "only if the code has", "not if the code has")):
        entry.text.append(line)
    elif line.startswith("```"):
        block = []
        for _, inside in lines:
            if inside.startswith("```"):
                break
            block.append(inside)
        else:
            raise entry.error("the code block has no end", number)
        if line == "```diff":
            entry.ways[-1].append((number, *_sides(entry, number, block), 1))
        elif line == "```python":
            entry.whole.append((number, "\n".join(block) + "\n"))
        else:
            raise entry.error(f"a code block starts with ```diff or ```python, not with {line}", number)
    elif line == "or":
        entry.ways.append([])
    elif found := _EDIT.fullmatch(line):
        if found["other"]:
            entry.ways.append([])
        entry.ways[-1].append((number, found["old"], found["new"] or "", int(found["times"] or 1)))
    elif found := _RULE.fullmatch(line):
        (entry.only_if if found["kind"] == "only" else entry.not_if).append(found["pattern"])
    elif line.startswith("`") and "→" in line:
        raise entry.error("an edit reads `fragment` → `replacement`, or → nothing, and perhaps ×2 at its end", number)
    else:
        entry.text.append(line)


def _sides(entry: Entry, number: int, block: list[str]) -> tuple[str, str]:
    """Return what a diff block takes out and what it puts there."""
    if any(line[:1] not in ("", " ", "+", "-") for line in block):
        raise entry.error("each line of a diff starts with `-`, `+` or a space", number)
    old = [line[1:] for line in block if line[:1] != "+" and line.strip()]
    new = [line[1:] for line in block if line[:1] != "-" and line.strip()]
    if not old:
        raise entry.error("a diff needs a line with `-` or a space, to say where it applies", number)
    margin = len(old[0]) - len(old[0].lstrip())
    if any(line[:margin].strip() for line in new):
        raise entry.error("no line of a diff may be indented less than its first one", number)
    return "\n".join(line[margin:] for line in old), "\n".join(line[margin:] for line in new)


def _mistake(exercise: Exercise, entry: Entry) -> Mistake:
    source = bare_source(exercise.answer)
    ways = []
    for way in filter(None, entry.ways):
        edits: list[Edit] = []
        for number, old, new, times in way:
            try:
                edits += replacements(source, old, new, times)
            except EditError as error:
                where = "" if "times" in str(error) or "once" in str(error) else f" in the body of `{exercise.name}`"
                raise entry.error(f"{error}{where}: `{old}`", number) from None
        if any(one.overlaps(other) for index, one in enumerate(edits) for other in edits[:index]):
            raise entry.error("two of its edits overlap", way[0][0])
        ways.append(Wrong(exercise, edits, label=entry.slug))
    for number, whole in entry.whole:
        if not re.search(rf"^(def|class) {exercise.name}\b", whole, re.MULTILINE):
            raise entry.error(f"the code block does not define `{exercise.name}`", number)
        ways.append(Wrong(exercise, source=whole, label=entry.slug))
    for pattern in [*entry.only_if, *entry.not_if]:
        try:
            re.compile(pattern)
        except re.error as error:
            raise entry.error(f"`{pattern}` is not a regular expression: {error}") from None
    if not ways:
        raise entry.error("there is no edit: write `fragment` → `replacement`")
    if not entry.text:
        raise entry.error("there is no text for the student")
    return Mistake(entry.slug, " ".join(entry.text), tuple(ways), tuple(entry.only_if), tuple(entry.not_if))
