"""Read the hints and the catalog of mistakes. Each notebook has its own file, `mistakes/NN_*.md`.

    ## MultiHeadAttention

    1. Call `split_heads` after the projections, …

    ### one_projection
    `self.w_k(key)` → `self.w_q(key)`

    Queries and keys go through the same projection `w_q`, so …

A `##` heading names the exercise, and the numbered paragraphs below it are its hints. Each `###` heading is the slug of
a mistake, and gradebooks show this slug. The heading is followed by the edits that introduce the mistake into the
answer and by the text for the student.

- `` `fragment` → `replacement` `` replaces a piece of the answer's source, which excludes docstrings and comments.
  Whitespace between tokens does not matter. The fragment must occur exactly once. With a suffix such as `` ×3 ``, it
  must occur that many times.
- `` `fragment` → nothing `` deletes it. Several such lines are applied together.
- A line that begins with `or` starts a different set of edits that makes the same mistake.
- A ```` ```diff ```` block changes several lines: `-` lines are replaced by `+` lines.
- A ```` ```python ```` block is a whole function or class, for mistakes that cannot be written as edits. It can refer
  to the correct version as `answer`.
- `only if the code has` `` `pattern` `` and `not if the code has` `` `pattern` `` search the student's source for a
  regular expression. If the source is unknown, an entry with such a rule is never reported.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transformer_lab.exercises.edits import NOT_FOUND, Edit, EditError, Wrong, bare_source, replacements
from transformer_lab.exercises.exercise import Exercise

FOLDER = Path(__file__).parent / "mistakes"
_EDIT = re.compile(r"(?P<other>or )?`(?P<old>[^`]+)` → (?:`(?P<new>[^`]*)`|nothing)(?: ×(?P<times>\d+))?")
_RULE = re.compile(r"(?P<kind>only|not) if the code has `(?P<pattern>[^`]+)`")


class CatalogueError(ValueError):
    """Raised if a catalog entry is invalid. The message names the file, the line, and the entry."""


@dataclass(frozen=True, eq=False)
class Mistake:
    """A known mistake: the wrong versions of the answer that contain it, and the text for the student."""

    slug: str
    says: str
    ways: tuple[Wrong, ...]  # alternative edits that make the same mistake
    only_if: tuple[str, ...] = ()  # regular expressions, all of which must match the student's source
    not_if: tuple[str, ...] = ()  # regular expressions, none of which may match the student's source

    def is_possible(self, source: str | None) -> bool:
        """Return whether the rules allow this mistake, given the student's source without comments."""
        if source is None:
            return not self.only_if and not self.not_if
        required = all(re.search(pattern, source) for pattern in self.only_if)
        return required and not any(re.search(pattern, source) for pattern in self.not_if)


@dataclass
class Entry:
    """One `###` section of a file."""

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
        return CatalogueError(f"{self.file}, line {line or self.line}, `{self.exercise}` / `{self.slug}`: {says}")


@functools.cache
def mistakes_of(exercise: Exercise) -> list[Mistake]:
    """Return the known mistakes of an exercise, in catalog order.

    Raises:
        CatalogueError: An entry is malformed or does not fit the answer.
    """
    return [_mistake(exercise, entry) for entry in _all_entries() if entry.exercise == exercise.name]


@functools.cache
def hints_of(exercise: Exercise) -> list[str]:
    """Return the hints for an exercise, which range from a nudge to nearly the full answer."""
    heading = re.compile(rf"^## {exercise.name}$(.*?)^##", re.MULTILINE | re.DOTALL)
    [section] = [match[1] for path in FOLDER.glob("*.md") if (match := heading.search(path.read_text("utf-8")))]
    return [" ".join(hint.split()) for hint in re.split(r"^\d\. ", section, flags=re.MULTILINE)[1:]]


@functools.cache
def _all_entries() -> list[Entry]:
    return [entry for path in sorted(FOLDER.glob("*.md")) for entry in read(path)]


def read(path: Path) -> list[Entry]:
    """Read the entries of one file.

    Raises:
        CatalogueError: The file does not have the format described in this module's docstring.
    """
    entries: list[Entry] = []
    exercise, in_hints = "", True
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    for number, line in lines:
        if line.startswith("## "):
            exercise, in_hints = line[3:].strip(), True
        elif line.startswith("### "):
            in_hints = False
            entry = Entry(exercise, line[4:].strip(), path.name, number)
            if not exercise:
                raise entry.error("this entry comes before the first `##` heading, which names an exercise")
            if not re.fullmatch(r"[a-z0-9_]+", entry.slug):
                raise entry.error("a slug has only lowercase letters, digits and underscores")
            if (exercise, entry.slug) in [(earlier.exercise, earlier.slug) for earlier in entries]:
                raise entry.error("slug used twice")
            entries.append(entry)
        elif line.strip() and not in_hints:
            _add(entries[-1], number, line.strip(), lines)
    return entries


def _add(entry: Entry, number: int, line: str, lines: Iterator[tuple[int, str]]) -> None:
    """Add a line to an entry. If the line starts a code block, also add the rest of the block."""
    if entry.text:
        entry.text.append(line)
    elif line.startswith("```"):
        block = []
        for _, block_line in lines:
            if block_line.startswith("```"):
                break
            block.append(block_line)
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
    elif edit := _EDIT.fullmatch(line):
        if edit["other"]:
            entry.ways.append([])
        entry.ways[-1].append((number, edit["old"], edit["new"] or "", int(edit["times"] or 1)))
    elif rule := _RULE.fullmatch(line):
        (entry.only_if if rule["kind"] == "only" else entry.not_if).append(rule["pattern"])
    elif re.match(r"(or )?`[^`]+` *(→|->)", line):
        raise entry.error("an edit is `fragment` → `replacement` or `fragment` → nothing, with an optional ×2", number)
    else:
        entry.text.append(line)


def _sides(entry: Entry, number: int, block: list[str]) -> tuple[str, str]:
    """Return the text that a diff block removes and the text that replaces it."""
    if any(line[:1] not in ("", " ", "+", "-") for line in block):
        raise entry.error("each line of a diff starts with `-`, `+` or a space", number)
    old = [line[1:] for line in block if line[:1] != "+" and line.strip()]
    new = [line[1:] for line in block if line[:1] != "-" and line.strip()]
    if not old:
        raise entry.error("a diff needs a line with `-` or a space, to show where it applies", number)
    margin = len(old[0]) - len(old[0].lstrip())
    if any(line[:margin].strip() for line in new):
        raise entry.error("no line of a diff may be indented less than its first line", number)
    return "\n".join(line[margin:] for line in old), "\n".join(line[margin:] for line in new)


def _mistake(exercise: Exercise, entry: Entry) -> Mistake:
    """Apply an entry to the answer.

    Raises:
        CatalogueError: The entry does not fit the answer or is incomplete.
    """
    ways = [_edited(exercise, entry, way) for way in entry.ways if way]
    for number, source in entry.whole:
        if not re.search(rf"^(def|class) {exercise.name}\b", source, re.MULTILINE):
            raise entry.error(f"the code block does not define `{exercise.name}`", number)
        ways.append(Wrong(exercise, source=source, label=entry.slug))
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


def _edited(exercise: Exercise, entry: Entry, way: list[tuple[int, str, str, int]]) -> Wrong:
    edits: list[Edit] = []
    for number, old, new, times in way:
        try:
            edits += replacements(bare_source(exercise.answer), old, new, times)
        except EditError as error:
            where = f" in the body of `{exercise.name}`" if str(error) == NOT_FOUND else ""
            raise entry.error(f"{error}{where}: `{old}`", number) from None
    if any(edit.overlaps(other) for edit, other in itertools.combinations(edits, 2)):
        raise entry.error("two of its edits overlap", way[0][0])
    return Wrong(exercise, edits, label=entry.slug)
