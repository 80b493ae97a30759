"""Reports of checks, as plain text and HTML, identical on every machine."""

import html
import textwrap
from dataclasses import dataclass

from transformer_lab.plural import plural

SIGNS = {"passed": "✓", "failed": "✗", "not checked": "–"}
WIDTH = 80  # of a line of text; longer rows of numbers are cut with an ellipsis


@dataclass(frozen=True)
class CheckResult:
    """One row of a report."""

    name: str
    state: str  # "passed", "failed" or "not checked"
    says: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of numbers with a title: `rows` of `(label, cells)`."""

    title: str
    rows: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class SideBySide:
    """The expected value next to the actual one."""

    title: str
    expected: Grid
    received: Grid


@dataclass(frozen=True)
class Shapes:
    """Two shapes drawn as boxes: axes as `(name, size)`."""

    title: str
    expected: list[tuple[str, str]]
    received: list[tuple[str, str]]


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


Block = str | Heading | Code | Grid | SideBySide | Shapes


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a check. `str(report)` is the same, byte for byte, on every machine."""

    exercise: str
    state: str  # "passed", "failed" or "not attempted"
    score: float = 0.0  # 0 to 1
    out_of: float = 0.0  # the exercise's points
    checks: tuple[CheckResult, ...] = ()
    misconceptions: tuple[str, ...] = ()  # slugs, best first
    blocks: tuple[Block, ...] = ()  # what to show below the rows
    remarks: tuple[str, ...] = ()
    next_step: str = ""  # after the title of a report that passed: where the part was saved, and what comes next

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    @property
    def points(self) -> float:
        """Points earned."""
        return round(self.score * self.out_of, 2)

    @property
    def title(self) -> str:
        """One-line summary: how many checks passed, and the next step if all did."""
        if self.state == "not attempted":
            return f"{self.exercise}: not attempted"
        passing = sum(check.state == "passed" for check in self.checks)
        counts = f"{passing} of {plural(len(self.checks), 'check')} passed"
        if not self.passed:
            return f"{self.exercise}: not right yet, {counts}"
        return f"{self.exercise}: {counts}{self.next_step and f'. {self.next_step}'}"

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html(self)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def _text(report: Report) -> str:
    lines = [f"{SIGNS.get(report.state, SIGNS['not checked'])} {report.title}"]
    for block in report.blocks:
        lines += ["", *_text_block(block)]
    if report.checks and not report.passed:
        lines += ["", counted(report.checks), ""]
        width = max(len(check.state) for check in report.checks)
        for check in report.checks:
            says = f": {check.says}" if check.says else ""
            first, *rest = textwrap.wrap(check.name + says, WIDTH - width - 6, break_long_words=False)
            lines.append(f"  {SIGNS[check.state]} {check.state:<{width}}  {first}")
            lines += [" " * (width + 6) + line for line in rest]
    for remark in report.remarks:
        lines += ["", *_wrapped(f"Remark: {remark}")]
    return "\n".join(line.rstrip() for line in lines)


def counted(checks: tuple[CheckResult, ...]) -> str:
    """Return how many checks there are, and how they went: "10 checks: 7 passed, 3 failed"."""
    states = {state: sum(check.state == state for check in checks) for state in SIGNS}
    outcomes = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    return f"{plural(len(checks), 'check')}: {outcomes}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 2].rstrip() + " …"


def _text_block(block: Block) -> list[str]:
    match block:
        case Heading(text):
            return [text, "-" * len(text)]
        case Code(text):
            return [_cut(f"    {line}") for line in text.splitlines()]
        case Grid(title, rows):
            return [*_wrapped(title), *(_cut(f"    {line}") for line in _columns(rows))]
        case SideBySide(title, expected, received):
            left = [expected.title, *_columns(expected.rows)]
            right = [received.title, *_columns(received.rows)]
            left, right = ([*side, *[""] * (len(other) - len(side))] for side, other in ((left, right), (right, left)))
            width = max(map(len, left))
            if width + max(map(len, right)) + 8 > WIDTH:
                return [*_wrapped(title), *(_cut(f"    {line}") for line in [*left, "", *right])]
            return [
                *_wrapped(title),
                *(f"    {one:<{width}}    {other}" for one, other in zip(left, right, strict=True)),
            ]
        case Shapes(title, expected, received):
            drawn = [("expected", expected), ("got     ", received)]
            return [*_wrapped(title), *(_cut(f"    {label}  {_boxes(axes)}") for label, axes in drawn)]
        case str():
            return _wrapped(block)


def _boxes(axes: list[tuple[str, str]]) -> str:
    return f"[ {' | '.join(f'{name} {size}'.strip() for name, size in axes)} ]" if axes else "[ ] (a single number)"


def _columns(rows: list[tuple[str, list[str]]]) -> list[str]:
    labels = max((len(label) for label, _ in rows), default=0)
    columns = max((len(cells) for _, cells in rows), default=0)
    widths = [max(len(cells[c]) for _, cells in rows if c < len(cells)) for c in range(columns)]
    return [
        (f"{label:<{labels}}  " if labels else "")
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        for label, cells in rows
    ]


_CELL = "padding:2px 10px;text-align:left;vertical-align:top;border-bottom:1px solid rgba(127,127,127,.3)"
_NUMBER = "padding:1px 8px;text-align:right;font-family:monospace"
_BOX = "border:1px solid currentColor;padding:2px 10px;text-align:center"
_COLORS = {"passed": "#2e8b57", "failed": "#d9534f", "not attempted": "#8a8a8a"}  # beside a sign and a word


def _html(report: Report) -> str:
    sign = SIGNS.get(report.state, SIGNS["not checked"])
    parts = [
        '<div class="transformer-lab-report" style="max-width:60em;padding:4px 12px;'
        f'border-left:4px solid {_COLORS[report.state]}">',
        f'<h4 style="margin:4px 0;font-size:1.1em">{sign} {prose(report.title)}</h4>',
    ]
    parts += [_html_block(block) for block in report.blocks]
    if report.checks:
        rows = "".join(
            f'<tr><td style="{_CELL};white-space:nowrap">{SIGNS[check.state]} {check.state}</td>'
            f'<td style="{_CELL}">{prose(check.name)}</td><td style="{_CELL}">{prose(check.says)}</td></tr>'
            for check in report.checks
        )
        titles = ("result", "check", "what was seen")
        head = "".join(f'<th scope="col" style="{_CELL}">{title}</th>' for title in titles)
        parts.append(
            f'<details style="margin:8px 0"><summary>{counted(report.checks)}</summary><div style="overflow-x:auto">'
            f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
            "</div></details>"
        )
    parts += [f"<p><b>Remark:</b> {prose(remark)}</p>" for remark in report.remarks]
    return "".join(parts) + "</div>"


def prose(text: str) -> str:
    """Return escaped text, with text between backticks as code."""
    pieces = html.escape(text).split("`")
    if len(pieces) % 2 == 0:  # a backtick without its partner
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))


def _html_block(block: Block) -> str:
    match block:
        case Heading(text):
            return f'<h5 style="margin:12px 0 4px">{prose(text)}</h5>'
        case Code(text):
            return f'<pre style="margin:4px 0 4px 1em;overflow-x:auto">{html.escape(text)}</pre>'
        case Grid(title, _):
            return f'<p style="margin:8px 0 2px">{prose(title)}</p>{_scrolling(_html_table(block))}'
        case SideBySide(title, expected, received):
            sides = "".join(
                f'<td style="padding:0 24px 0 0;vertical-align:top;text-align:left"><b>{prose(side.title)}</b>'
                f"{_html_table(side)}</td>"
                for side in (expected, received)
            )
            table = f'<table role="presentation"><tr>{sides}</tr></table>'
            return f'<p style="margin:8px 0 2px">{prose(title)}</p>{_scrolling(table)}'
        case Shapes(title, expected, received):
            rows = "".join(
                f'<tr><th scope="row" style="padding:2px 10px;text-align:left">{label}</th>'
                + "".join(
                    f'<td style="{_BOX}">{html.escape(name)} <b>{html.escape(size)}</b></td>'
                    for name, size in axes or [("a single number", "")]
                )
                + "</tr>"
                for label, axes in (("expected", expected), ("got", received))
            )
            return (
                f'<p style="margin:8px 0 2px">{prose(title)}</p>'
                f'<table style="border-collapse:separate;border-spacing:3px">{rows}</table>'
            )
        case str():
            return f'<p style="margin:6px 0">{prose(block)}</p>'


def _scrolling(table: str) -> str:
    return f'<div style="overflow-x:auto">{table}</div>'


def _html_table(grid: Grid) -> str:
    rows = "".join(
        "<tr>"
        + (
            f'<th scope="row" style="{_NUMBER};font-weight:normal;opacity:.7">{html.escape(label)}</th>'
            if label
            else ""
        )
        + "".join(f'<td style="{_NUMBER}">{html.escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for label, cells in grid.rows
    )
    return f'<table style="border-collapse:collapse">{rows}</table>'
