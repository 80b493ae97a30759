"""Turn notebooks and Markdown files into web pages."""

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
from transformer_lab.exercises.catalogue import hints_of
from transformer_lab.plural import plural

STATIC = Path("static")  # in the sources; `_static/` in the finished site
LIVE = {"explore_scores": "plane", "explore_positions": "positions", "explore_masks": "masks"}  # see site.js
PLOTTING = re.compile(r"\bnew_picture\(|\.subplots\(|\baxes\.\w+\(|\bplt\.")
NOTE = "This page shows the finished notebook with collapsed answers. In JupyterLab, you write them yourself."
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s#]*)(?:#[^()\s]*)?\)")
_CALL_OUT = re.compile(r"<div[^>]*>\n\n\*\*Exercise: [^\n]*\n\n(?P<task>.*?)\s*\*\*Stuck\?.*?</div>", re.DOTALL)
_IMAGE = re.compile(r'<img\b(?P<before>[^>]*)\bsrc="data:image/png;base64,(?P<data>[^"]+)"(?P<after>[^>]*)>')


class Sources:
    """The website's source folder. Unchanged files are not rewritten, so only changed pages are rebuilt."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.written: set[Path] = set()

    def write(self, relative: str | Path, content: str | bytes) -> None:
        """Write a file unless it already has this content."""
        path = self.out / relative
        data = content.encode() if isinstance(content, str) else content
        self.written.add(path)
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def write_picture(self, data: bytes) -> str:
        """Write a PNG under a name derived from its content, and return its address on the site."""
        name = f"pictures/{hashlib.sha256(data).hexdigest()[:16]}.png"
        self.write(STATIC / name, data)
        return f"_static/{name}"

    def remove_the_rest(self) -> None:
        """Remove files left by earlier runs."""
        for path in sorted(self.out.rglob("*"), reverse=True):
            if path.is_file() and "_build" not in path.relative_to(self.out).parts and path not in self.written:
                path.unlink()
                if path.suffix in (".md", ".ipynb"):  # so that its page is removed, too
                    shutil.rmtree(self.out / "_build", ignore_errors=True)


def notebook_page(
    name: str, solution: NotebookNode, notebook: NotebookNode, exercises: Iterable[Any], sources: Sources
) -> NotebookNode:
    """Return a solution as a web page that shows each exercise as a stub with collapsed hints and a collapsed answer.

    Args:
        name: The notebook's name, such as `01_attention`.
        solution: The executed solution.
        notebook: The notebook that students open.
        exercises: The exercises of this notebook.
        sources: Where to write its pictures.
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
            source = cell.source.removeprefix("# NBVAL_CHECK_OUTPUT\n")  # means the same as the tag
            new = nbformat.v4.new_code_cell(source, id=cell.id, execution_count=cell.execution_count)
            new.metadata.tags = ["hide-input"] if is_setup or _is_folded(cell) else []
            if not is_setup:  # a setup cell's output lists the parts that the reader has built
                new.outputs = [_output(output, cell.source, sources) for output in cell.outputs]
            page.cells.append(new)
    return page


def _with_buttons(source: str, name: str) -> str:
    """Add buttons that open the notebook below its title."""
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
    """Return whether to collapse a cell's code because its author has hidden it or because it draws a picture."""
    tagged = "hide-input" in cell.metadata.get("tags", []) or cell.metadata.get("jupyter", {}).get("source_hidden")
    return bool(tagged or PLOTTING.search(cell.source))


def _exercise(exercise: Any, task: str, stub: str, answer: str) -> str:
    """Return a box with the task, the stub, the hints, and the answer."""
    effort = f"{plural(exercise.points, 'point')} · about {plural(exercise.minutes, 'minute')}"
    lines = [f"::::::{{admonition}} `{exercise.name}`", ":class: lab-exercise", ""]
    lines += [f'<p class="lab-meta">{effort}</p>', "", task, "", _python(stub), ""]
    hints = hints_of(exercise)
    for number, hint in enumerate(hints, 1):
        lines += [f":::::{{dropdown}} Hint {number} of {len(hints)}", _prose(hint), ":::::", ""]
    lines += [":::::{dropdown} Answer", ":class-container: lab-answer", _python(answer), ":::::", "::::::"]
    return "\n".join(lines)


def _python(source: str) -> str:
    lines = [line for line in source.splitlines() if line.strip() not in (BEGIN, END)]
    return "\n".join(["```python", *lines, "```"])


def _prose(text: str) -> str:
    """Escape text for Markdown, leaving backticks unchanged."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([\\*_$<>\[\]{}])", r"\\\1", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def _output(output: NotebookNode, source: str, sources: Sources) -> NotebookNode:
    """Return a version of an output for the site.

    Its pictures are in files, its headings are paragraphs, and its explorers are marked for site.js.
    """
    data = output.get("data", {})
    if "image/png" in data and "text/html" not in data:
        about = {**output.metadata, **output.metadata.get("image/png", {})}
        width = f' width="{about["width"]}"' if "width" in about else ""
        address = f"data:image/png;base64,{data['image/png']}"
        data["text/html"] = f'<img alt="{html.escape(about.get("alt", ""))}"{width} src="{address}">'
    if "text/html" not in data:
        return output
    text = _IMAGE.sub(lambda match: _in_a_file(match, sources), without_headings(data["text/html"]))
    live = [explorer for call, explorer in LIVE.items() if re.search(rf"\b{call}\(", source)]
    if live:
        text = f'<div class="lab-explorer" data-explorer="{live[0]}">{text}</div>'
    elif re.search(r"\bexplore(_\w+)?\(", source):
        text += '<p class="lab-note">This is a still picture. In the notebook, sliders move it.</p>'
    return nbformat.v4.new_output("display_data", {"text/html": text})


def without_headings(report: str) -> str:
    """Turn a report's headings into paragraphs, so that they do not show up among the page's headings."""
    return re.sub(r"<h([1-6])\b([^>]*)>(.*?)</h\1>", r'<p class="lab-heading-\1"\2>\3</p>', report, flags=re.DOTALL)


def _in_a_file(match: re.Match, sources: Sources) -> str:
    """Move a picture to a file, and set its size in the `<img>`, so that the layout does not shift when it loads."""
    from PIL import Image

    data, attributes = base64.b64decode(match["data"]), match["before"] + match["after"]
    picture = Image.open(io.BytesIO(data))
    alt, width = (re.search(rf'\b{name}="([^"]*)"', attributes) for name in ("alt", "width"))
    columns = int(width[1]) if width else picture.width
    rows = round(columns * picture.height / picture.width)
    if picture.mode != "P":  # 256 colors take half the bytes and look the same
        smaller = io.BytesIO()
        picture.convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE).save(smaller, "PNG", optimize=True)
        data = min(data, smaller.getvalue(), key=len)
    size = f'width="{columns}" height="{rows}"'
    address = f"../{sources.write_picture(data)}"
    return f'<img class="lab-picture" loading="lazy" alt="{alt[1] if alt else ""}" {size} src="{address}">'


def relinked(text: str, page: str, pages: Collection[str], sources: Sources) -> str:
    """Return Markdown whose links lead to pages on the site or to the repository. All other links become plain text.

    Args:
        text: A page in the repository. Code in it is left unchanged.
        page: The page's path in the repository, which is used to resolve relative links.
        pages: The paths of the pages on the site.
        sources: Where to write the pictures and records to which the page links.
    """

    def link(match: re.Match) -> str:
        target = match["target"]
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = Path(os.path.normpath(Path(page).parent / target))
        if path.as_posix() in pages:
            return match[0]
        if path.parts[0] == "solutions" and f"notebooks/{path.name}" in pages:
            return match[0].replace("solutions/", "notebooks/")
        if match["image"] or path.suffix in (".json", ".png"):
            sources.write(path, (sources.root / path).read_bytes())
            return match[0]
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            return f"[{match['text']}](https://github.com/{repository}/blob/main/{path.as_posix()})"
        return match["text"]

    pieces = iter(_CODE.findall(text))
    masked = _CODE.sub("\0", text)  # not split, because link text may contain code
    return re.sub("\0", lambda _: next(pieces), _LINK.sub(link, masked))
