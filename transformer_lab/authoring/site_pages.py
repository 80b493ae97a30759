"""Notebooks and Markdown files as pages of the website."""

import base64
import hashlib
import html
import io
import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lab.authoring.stubs import BEGIN, END
from transformer_lab.plural import plural

STATIC = Path("static")  # in the sources; `_static/` in the finished site
LIVE = {"explore_scores": "plane", "explore_positions": "positions", "explore_masks": "masks"}  # see site.js
PLOTTING = re.compile(r"\bnew_picture\(|\.subplots\(|\baxes\.\w+\(|\bplt\.")
NOTE = "This page shows the finished notebook, with every answer folded. In JupyterLab, you write the answers yourself."
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_DIAGRAM = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)  # GitHub draws it; here it would take megabytes of JavaScript
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s#]*)(?:#[^()\s]*)?\)")
_CALL_OUT = re.compile(r"<div[^>]*>\n\n\*\*Exercise: [^\n]*\n\n(?P<task>.*?)\s*\*\*Stuck\?.*?</div>", re.DOTALL)
_IMAGE = re.compile(r'<img\b(?P<before>[^>]*)\bsrc="data:image/png;base64,(?P<data>[^"]+)"(?P<after>[^>]*)>')


class Sources:
    """The folder that is written. A file that stays the same isn't touched, so only changed pages are built."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.written: set[Path] = set()

    def write(self, relative: str | Path, content: str | bytes) -> None:
        """Write a file below the folder."""
        path = self.out / relative
        data = content.encode() if isinstance(content, str) else content
        self.written.add(path)
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def write_picture(self, data: bytes) -> str:
        """Write a PNG under a name made from its content, and return its address on the site."""
        name = f"pictures/{hashlib.sha256(data).hexdigest()[:16]}.png"
        self.write(STATIC / name, data)
        return f"_static/{name}"

    def remove_the_rest(self) -> None:
        """Remove what is left of an earlier run."""
        for path in sorted(self.out.rglob("*"), reverse=True):
            if path.is_file() and "_build" not in path.relative_to(self.out).parts and path not in self.written:
                path.unlink()
                if path.suffix in (".md", ".ipynb"):  # its page must go as well
                    shutil.rmtree(self.out / "_build", ignore_errors=True)


def notebook_page(
    name: str, solution: NotebookNode, notebook: NotebookNode, exercises: Iterable[Any], sources: Sources
) -> NotebookNode:
    """Return a solution as a page to read, with exercises as stubs and their hints and answers folded.

    Args:
        name: Such as `01_attention`.
        solution: Executed.
        notebook: What students open.
        exercises: Those of this notebook.
        sources: Where its pictures are written.
    """
    stubs = {cell.id: cell.source for cell in notebook.cells}
    by_cell = {f"exercise-{exercise.name}": exercise for exercise in exercises}
    page = nbformat.v4.new_notebook(metadata=solution.metadata)
    for cell in solution.cells:
        if cell.cell_type == "markdown":
            source = cell.source if page.cells else _with_buttons(cell.source, name)
            page.cells.append(nbformat.v4.new_markdown_cell(source, id=cell.id))
        elif cell.id in by_cell:
            above = page.cells[-1]
            task = _CALL_OUT.search(above.source)
            above.source = _CALL_OUT.sub("", above.source)
            source = _exercise(by_cell[cell.id], task["task"] if task else "", stubs[cell.id], cell.source)
            page.cells.append(nbformat.v4.new_markdown_cell(source, id=cell.id))
        else:
            imports = cell.source.startswith(("import ", "from "))
            is_setup = imports and not any(above.cell_type == "code" for above in page.cells)
            source = cell.source.removeprefix("# NBVAL_CHECK_OUTPUT\n")  # the other spelling of nbval's tag
            new = nbformat.v4.new_code_cell(source, id=cell.id, execution_count=cell.execution_count)
            new.metadata.tags = ["hide-input"] if is_setup or _is_folded(cell) else []
            if not is_setup:  # its output says which parts are the reader's own
                new.outputs = [_output(output, cell.source, sources) for output in cell.outputs]
            page.cells.append(new)
    return page


def _with_buttons(source: str, name: str) -> str:
    """Put the ways to open the notebook below its title."""
    title, _, text = source.partition("\n")
    note = NOTE
    buttons = f'<a class="lab-button" href="../_static/notebooks/{name}.ipynb" download>Open this notebook</a>'
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        colab = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb"
        buttons += f' <a class="lab-button lab-quiet" href="{colab}">Open in Colab</a>'
        archive = f"https://github.com/{repository}/archive/refs/heads/main.zip"
        note += f" In Colab, first run this in a cell of its own: <code>%pip install --quiet {archive}</code>"
    return f'{title}\n\n<p class="lab-open">{buttons}<span>{note}</span></p>\n{text}'


def _is_folded(cell: NotebookNode) -> bool:
    """Whether the reader can skip the code of a cell: its author has hidden it, or it only draws a picture."""
    tagged = "hide-input" in cell.metadata.get("tags", []) or cell.metadata.get("jupyter", {}).get("source_hidden")
    return bool(tagged or PLOTTING.search(cell.source))


def _exercise(exercise: Any, task: str, stub: str, answer: str) -> str:
    """Return a call-out with the task, the stub, the hints and the answer."""
    effort = f"{plural(exercise.points, 'point')} · about {plural(exercise.minutes, 'minute')}"
    lines = [f"::::::{{admonition}} `{exercise.name}`", ":class: lab-exercise", ""]
    lines += [f'<p class="lab-meta">{effort}</p>', "", task, "", _python(stub), ""]
    for number, hint in enumerate(exercise.hints, 1):
        lines += [f":::::{{dropdown}} Hint {number} of {len(exercise.hints)}", _prose(hint), ":::::", ""]
    lines += [":::::{dropdown} Answer", ":class-container: lab-answer", _python(answer), ":::::", "::::::"]
    return "\n".join(lines)


def _python(source: str) -> str:
    lines = [line for line in source.splitlines() if line.strip() not in (BEGIN, END)]
    return "\n".join(["```python", *lines, "```"])


def _prose(text: str) -> str:
    """Return plain text, in which only backticks have a meaning, as Markdown."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([\\*_$<>\[\]{}])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def _output(output: NotebookNode, source: str, sources: Sources) -> NotebookNode:
    """Return an output with its pictures in files and without headings, or with a place for what moves on the page."""
    data = output.get("data", {})
    if "image/png" in data and "text/html" not in data:
        about = {**output.metadata, **output.metadata.get("image/png", {})}
        width = f' width="{about["width"]}"' if "width" in about else ""
        address = f"data:image/png;base64,{data['image/png']}"
        data["text/html"] = f'<img alt="{html.escape(about.get("alt", ""))}"{width} src="{address}">'
    if "text/html" not in data:
        return output
    text = _IMAGE.sub(lambda found: _in_a_file(found, sources), without_headings(data["text/html"]))
    live = [explorer for call, explorer in LIVE.items() if re.search(rf"\b{call}\(", source)]
    if live:
        text = f'<div class="lab-explorer" data-explorer="{live[0]}">{text}</div>'
    elif re.search(r"\bexplore(_\w+)?\(", source):
        text += '<p class="lab-note">This is a still picture. In the notebook, sliders move it.</p>'
    return nbformat.v4.new_output("display_data", {"text/html": text})


def without_headings(report: str) -> str:
    """Return HTML whose headings are paragraphs: those of a report don't belong among those of the page."""
    return re.sub(r"<h([1-6])\b([^>]*)>(.*?)</h\1>", r'<p class="lab-heading-\1"\2>\3</p>', report, flags=re.DOTALL)


def _in_a_file(found: re.Match, sources: Sources) -> str:
    """Return an `<img>` whose picture is a file, with its size, so that the page doesn't jump when it is loaded."""
    from PIL import Image

    data, attributes = base64.b64decode(found["data"]), found["before"] + found["after"]
    picture = Image.open(io.BytesIO(data))
    alt, width = (re.search(rf'\b{name}="([^"]*)"', attributes) for name in ("alt", "width"))
    columns = int(width[1]) if width else picture.width
    rows = round(columns * picture.height / picture.width)
    if picture.mode != "P":  # 256 colors: half the bytes, and no difference to the eye
        smaller = io.BytesIO()
        picture.convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE).save(smaller, "PNG", optimize=True)
        data = min(data, smaller.getvalue(), key=len)
    size = f'width="{columns}" height="{rows}"'
    address = f"../{sources.write_picture(data)}"
    return f'<img class="lab-picture" loading="lazy" alt="{alt[1] if alt else ""}" {size} src="{address}">'


def relinked(text: str, page: str, pages: Collection[str], sources: Sources) -> str:
    """Return Markdown in which every link leads to a page of the site or to the repository, or has become plain text.

    Args:
        text: As it is in the repository. Code is left alone.
        page: Its path there, where relative links start.
        pages: The paths that are pages of the site.
        sources: Where the pictures and records that it links to are written.
    """

    def link(found: re.Match) -> str:
        target = found["target"]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = Path(os.path.normpath(Path(page).parent / target))
        if path.as_posix() in pages:
            return found[0]
        if path.parts[0] == "solutions" and f"notebooks/{path.name}" in pages:
            return found[0].replace("solutions/", "notebooks/")
        if found["image"] or path.suffix in (".json", ".png"):
            sources.write(path, (sources.root / path).read_bytes())
            return found[0]
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            return f"[{found['text']}](https://github.com/{repository}/blob/main/{path.as_posix()})"
        return found["text"]

    pieces = _CODE.findall(text)
    masked = _CODE.sub("\0", text)  # a link's text may hold code, so no split
    folded = r"````{dropdown} Diagram, as Mermaid text\n```text\n\1```\n````"
    unmasked = (_DIAGRAM.sub(folded, piece) for piece in pieces)
    return re.sub("\0", lambda _: next(unmasked), _LINK.sub(link, masked))
