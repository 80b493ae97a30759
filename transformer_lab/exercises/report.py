"""Reports of checks, as plain text and as HTML. Both are identical on every machine."""

import html
import itertools
import textwrap
from collections import Counter
from dataclasses import dataclass

from transformer_lab.plural import plural

SIGNS = {"passed": "✓", "failed": "✗", "not checked": "–", "not attempted": "–"}
WIDTH = 80  # characters in a line of text; longer rows of numbers end in an ellipsis


@dataclass(frozen=True)
class CheckResult:
    """One row of a report."""

    name: str
    state: str  # "passed", "failed" or "not checked"
    says: str = ""


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


Rows = list[tuple[str, list[str]]]  # a label and the cells of each row


@dataclass(frozen=True)
class Table:
    """A table of numbers with a title."""

    title: str
    rows: Rows


@dataclass(frozen=True)
class SideBySide:
    """A table that shows the expected numbers next to the student's numbers."""

    title: str
    expected: Rows
    received: Rows


@dataclass(frozen=True)
class Shapes:
    """Two shapes, drawn as boxes, with each axis given as `(name, size)`."""

    title: str
    expected: list[tuple[str, str]]
    received: list[tuple[str, str]]


Block = str | Heading | Code | Table | SideBySide | Shapes


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a check. `str(report)` is the same, byte for byte, on every machine."""

    exercise: str
    state: str  # "passed", "failed" or "not attempted"
    score: float = 0.0  # 0 to 1
    out_of: float = 0.0  # the exercise's points
    checks: tuple[CheckResult, ...] = ()
    misconceptions: tuple[str, ...] = ()  # slugs, best first
    blocks: tuple[Block, ...] = ()  # the explanation, shown above the rows
    remarks: tuple[str, ...] = ()
    next_step: str = ""  # shown after the title if the check passed: where the part was saved, and what to do next

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    @property
    def points(self) -> float:
        """Points earned."""
        return round(self.score * self.out_of, 2)

    @property
    def title(self) -> str:
        """The number of checks passed, and the next step if all of them passed."""
        if self.state == "not attempted":
            return f"{self.exercise}: not attempted"
        passing = sum(check.state == "passed" for check in self.checks)
        counts = f"{passing} of {plural(len(self.checks), 'check')} passed"
        if not self.passed:
            return f"{self.exercise}: not right yet, {counts}"
        return f"{self.exercise}: {counts}{self.next_step and f'. {self.next_step}'}"

    @property
    def summary(self) -> str:
        """The number of checks with each outcome: "10 checks: 7 passed, 3 failed"."""
        states = Counter(check.state for check in self.checks)
        outcomes = ", ".join(f"{states[state]} {state}" for state in SIGNS if states[state])
        return f"{plural(len(self.checks), 'check')}: {outcomes}"

    def __str__(self) -> str:
        lines = [f"{SIGNS[self.state]} {self.title}"]
        for block in self.blocks:
            lines += ["", *_block_as_text(block)]
        if self.checks and not self.passed:
            lines += ["", self.summary, ""]
            width = max(len(check.state) for check in self.checks)
            for check in self.checks:
                says = f": {check.says}" if check.says else ""
                first, *rest = textwrap.wrap(check.name + says, WIDTH - width - 6, break_long_words=False)
                lines.append(f"  {SIGNS[check.state]} {check.state:<{width}}  {first}")
                lines += [" " * (width + 6) + line for line in rest]
        for remark in self.remarks:
            lines += ["", *_wrapped(f"Remark: {remark}")]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [
            '<div class="transformer-lab-report" style="max-width:60em;padding:4px 12px;'
            f'border-left:4px solid {_COLORS[self.state]}">',
            f'<h4 style="margin:4px 0;font-size:1.1em">{SIGNS[self.state]} {prose(self.title)}</h4>',
            *map(_block_as_html, self.blocks),
        ]
        if self.checks:
            rows = "".join(
                f'<tr><td style="{_CELL};white-space:nowrap">{SIGNS[check.state]} {check.state}</td>'
                f'<td style="{_CELL}">{prose(check.name)}</td><td style="{_CELL}">{prose(check.says)}</td></tr>'
                for check in self.checks
            )
            titles = ("result", "check", "what happened")
            head = "".join(f'<th scope="col" style="{_CELL}">{title}</th>' for title in titles)
            table = f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
            parts.append(
                f'<details style="margin:8px 0"><summary>{self.summary}</summary>{_scrolling(table)}</details>'
            )
        parts += [f"<p><b>Remark:</b> {prose(remark)}</p>" for remark in self.remarks]
        return "".join(parts) + "</div>"


def prose(text: str) -> str:
    """Return the text escaped for HTML, with text between backticks marked up as code."""
    pieces = html.escape(text).split("`")
    if len(pieces) % 2 == 0:  # an unmatched backtick
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))


def _block_as_text(block: Block) -> list[str]:
    match block:
        case Heading(text):
            return [text, "-" * len(text)]
        case Code(text):
            return _indented(text.splitlines())
        case Table(title, rows):
            return [*_wrapped(title), *_indented(_aligned(rows))]
        case SideBySide(title, expected, received):
            left, right = ["expected", *_aligned(expected)], ["got", *_aligned(received)]
            width = max(map(len, left))
            if width + max(map(len, right)) + 8 > WIDTH:
                return [*_wrapped(title), *_indented([*left, "", *right])]
            lines = itertools.zip_longest(left, right, fillvalue="")
            return [*_wrapped(title), *(f"    {wanted:<{width}}    {got}" for wanted, got in lines)]
        case Shapes(title, expected, received):
            boxes = [f"expected  {_boxes(expected)}", f"got       {_boxes(received)}"]
            return [*_wrapped(title), *_indented(boxes)]
        case str():
            return _wrapped(block)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False)


def _indented(lines: list[str]) -> list[str]:
    """Indent the lines, and truncate any that are too long."""
    indented = [f"    {line}" for line in lines]
    return [line if len(line) <= WIDTH else line[: WIDTH - 2].rstrip() + " …" for line in indented]


def _boxes(axes: list[tuple[str, str]]) -> str:
    return f"[ {' | '.join(f'{name} {size}'.strip() for name, size in axes)} ]" if axes else "[ ] (a single number)"


def _aligned(rows: Rows) -> list[str]:
    """Return one line of text per row, with left-aligned labels and right-aligned columns."""
    label_width = max((len(label) for label, _ in rows), default=0)
    columns = itertools.zip_longest(*(cells for _, cells in rows), fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    return [
        (f"{label:<{label_width}}  " if label_width else "")
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        for label, cells in rows
    ]


_TABLE = "border-collapse:collapse"
_CELL = "padding:2px 10px;text-align:left;vertical-align:top;border-bottom:1px solid rgba(127,127,127,.3)"
_NUMBER = "padding:1px 8px;text-align:right;font-family:monospace"
_BOX = "border:1px solid currentColor;padding:2px 10px;text-align:center"
_COLORS = {"passed": "#2e8b57", "failed": "#d9534f", "not attempted": "#8a8a8a"}  # always shown with a sign and a word


def _block_as_html(block: Block) -> str:
    match block:
        case Heading(text):
            return f'<h5 style="margin:12px 0 4px">{prose(text)}</h5>'
        case Code(text):
            return f'<pre style="margin:4px 0 4px 1em;overflow-x:auto">{html.escape(text)}</pre>'
        case str():
            return f'<p style="margin:6px 0">{prose(block)}</p>'
        case Table(_, rows):
            content = _scrolling(_table_of_numbers(rows))
        case SideBySide(_, expected, received):
            sides = "".join(
                f'<td style="padding:0 24px 0 0;vertical-align:top;text-align:left"><b>{label}</b>'
                f"{_table_of_numbers(rows)}</td>"
                for label, rows in (("expected", expected), ("got", received))
            )
            content = _scrolling(f'<table role="presentation"><tr>{sides}</tr></table>')
        case Shapes(_, expected, received):
            rows = "".join(
                f'<tr><th scope="row" style="padding:2px 10px;text-align:left">{label}</th>{_boxes_as_html(axes)}</tr>'
                for label, axes in (("expected", expected), ("got", received))
            )
            content = f'<table style="border-collapse:separate;border-spacing:3px">{rows}</table>'
    return f'<p style="margin:8px 0 2px">{prose(block.title)}</p>{content}'


def _scrolling(table: str) -> str:
    return f'<div style="overflow-x:auto">{table}</div>'


def _boxes_as_html(axes: list[tuple[str, str]]) -> str:
    return "".join(
        f'<td style="{_BOX}">{html.escape(name)} <b>{html.escape(size)}</b></td>'
        for name, size in axes or [("a single number", "")]
    )


def _table_of_numbers(rows: Rows) -> str:
    lines = []
    for label, cells in rows:
        head = f'<th scope="row" style="{_NUMBER};font-weight:normal;opacity:.7">{html.escape(label)}</th>'
        numbers = "".join(f'<td style="{_NUMBER}">{html.escape(cell)}</td>' for cell in cells)
        lines.append(f"<tr>{head if label else ''}{numbers}</tr>")
    return f'<table style="{_TABLE}">{"".join(lines)}</table>'
