"""The frame of the HTML that grading writes: one file a page, no script, nothing from the network, light and dark."""

import base64
import hashlib
import html

from transformer_lab.classroom.writing import clean

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --panel: #f3f5f8; --line: #d0d7de;
  --link: #0b57a4; --good: #0b6b34; --bad: #b3261e; --warn: #8a4b00; --none: #57606a; --warning: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a2abb5; --paper: #14171b; --panel: #1e2329;
  --line: #3a424c; --link: #7cb7ff; --good: #5fd08a; --bad: #ff8a80; --warn: #ffb95c; --none: #a2abb5;
  --warning: #3a2e12; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 84rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1.1rem; margin: 1.2rem 0 .3rem; }
.head h3 { margin: 0; }
h4 { font-size: 1rem; margin: 1rem 0 .3rem; }
p { margin: .4rem 0; max-width: 62rem; }
a { color: var(--link); }
.soft { color: var(--soft); }
.small { font-size: .875rem; }
.warning { background: var(--warning); border-left: 4px solid var(--warn); padding: .5rem .8rem; margin: .8rem 0; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: .92em; background: var(--panel); padding: 0 .25em; border-radius: 3px; }
pre { margin: .3rem 0; padding: .6rem .7rem; background: var(--panel); border-radius: 5px; overflow-x: auto;
  font-size: .82rem; line-height: 1.45; overflow-wrap: normal; }
section { border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem 1rem; margin: .9rem 0; }
.head { display: flex; flex-wrap: wrap; gap: .3rem .9rem; align-items: baseline; }
.points { margin-left: auto; font-variant-numeric: tabular-nums; }
.state { font-weight: 600; white-space: nowrap; }
.passed { color: var(--good); } .failed { color: var(--bad); }
.stopped { color: var(--warn); } .none { color: var(--none); }
.sides > div { min-width: 0; }
@media (min-width: 60rem) { .sides { display: grid; grid-template-columns: 3fr 2fr; gap: 0 1.2rem; } }
.checks { list-style: none; padding: 0; columns: 30rem; column-gap: 1.6rem; }
.checks li { break-inside: avoid; padding: .1rem 0; }
.lines { counter-reset: line; white-space: pre; }
.lines span { display: block; min-height: 1.45em; }
.lines span::before { counter-increment: line; content: counter(line); display: inline-block; width: 1.8em;
  margin-right: .9em; text-align: right; color: var(--soft); }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td > code { white-space: nowrap; }
.wide { overflow-x: auto; }
.grid th, .grid td { padding: .15rem .5rem; }
.grid th, .grid td { text-align: center; }
.grid th:first-child, .grid td:first-child { text-align: left; white-space: nowrap; }
details { margin: .4rem 0; }
summary { cursor: pointer; }
figure { margin: 1rem 0; }
img { max-width: 100%; height: auto; }
ul { padding-left: 1.3rem; margin: .3rem 0; }
"""

STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"

SIGNS = {"passed": ("✓", "passed"), "failed": ("✗", "failed"), "not attempted": ("○", "none"), "": ("", "none")}
STOPPED = "!", "stopped"  # timed out, killed, out of memory, a grader's error


def page(title: str, body: str) -> str:
    """A whole HTML file. `body` is HTML; `title` is text."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{clean(body)}\n</body>\n</html>\n"
    )


def safe(text: str) -> str:
    """`text` as it stands in HTML, in an attribute too."""
    return html.escape(clean(text), quote=True)


def person(name: str) -> str:
    """A student's name: letters that turn the writing do not turn what stands around it."""
    return f"<bdi>{safe(name)}</bdi>"


def badge(state: str) -> str:
    """A state as sign and word; its colour says nothing that they do not say."""
    sign, kind = SIGNS.get(state, SIGNS["not attempted"] if state == "not checked" else STOPPED)
    return f'<span class="state {kind}">{sign} {safe(state)}</span>'


def numbered(source: str, most: int = 300) -> str:
    """Code with numbers of lines. Of more than `most` lines, or of very long ones, the rest is left out."""
    lines = clean(source).splitlines()
    shown = [line if len(line) <= 500 else line[:500] + " …" for line in lines[:most]]
    more = [f"… {len(lines) - most} more lines"] if len(lines) > most else []
    return f'<pre class="lines">{"".join(f"<span>{html.escape(line)}</span>" for line in [*shown, *more])}</pre>'


def table(head: list[str], rows: list[list[str]], kind: str = "") -> str:
    """A table of cells that are HTML; in columns whose title starts with `#`, numbers."""
    numeric = [title.startswith("#") for title in head]

    def cells(row: list[str], tag: str, scope: str = "") -> str:
        classes = [' class="number"' if is_number else "" for is_number in numeric]
        return "".join(f"<{tag}{scope}{kind}>{cell}</{tag}>" for cell, kind in zip(row, classes, strict=True))

    titles = cells([title.removeprefix("#") for title in head], "th", ' scope="col"')
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    name = f' class="{kind}"' if kind else ""
    return f'<div class="wide"><table{name}><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
