"""Builds the website from the executed solutions, the catalogue of mistakes and the Markdown pages. Nothing is executed.

`prepare_site` writes a source folder that mirrors the repository, so that links between its files keep working:

    index.md, _config.yml, _toc.yml, static/     from `site/`
    notebooks/NN_name.ipynb                       from `solutions/`, with exercises as stubs and their answers folded
    field_guide.md                                from the catalogue of mistakes
    CLASSROOM.md, SERVING.md, results/            as they are, without links that lead off the site

`build_site` runs Jupyter Book over that folder.
"""

import base64
import hashlib
import html
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lab.authoring.field_guide import field_guide, number_of_mistakes
from transformer_lab.authoring.notebooks import COMPARE_OUTPUT, _count
from transformer_lab.authoring.stubs import BEGIN, END
from transformer_lab.errors import InputError

STATIC = Path("static")  # in the sources; `_static/` in the finished site
PAGES = {"CLASSROOM.md": "In the classroom", "SERVING.md": "Serving a model", "results/README.md": "Measured runs"}
HERO_SENTENCES = (
    "Ein Mann fährt auf der Straße Fahrrad.",
    "Zwei Hunde laufen durch den Schnee.",
    "Eine Frau liest ein Buch im Park.",
)
HERO_LAYER = 2  # its weights, averaged over the heads, are the easiest to follow
LIVE = {"explore_scores": "plane", "explore_positions": "positions", "explore_masks": "masks"}  # see site/_static
PLOTTING = re.compile(r"\bnew_picture\(|\.subplots\(|\baxes\.\w+\(|\bplt\.")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s#]*)(?P<anchor>#[^()\s]*)?\)")
_IMAGE = re.compile(r'<img\b(?P<before>[^>]*)\bsrc="data:image/png;base64,(?P<data>[^"]+)"(?P<after>[^>]*)>')


def build_site(root: Path, out: Path) -> Path:
    """Prepare the sources in `out`, build them, and return the folder of the finished site.

    Raises:
        InputError: Jupyter Book isn't installed, or it reported a warning or an error.
    """
    builder = shutil.which("jupyter-book", path=Path(sys.executable).parent)
    if not builder:
        raise InputError("jupyter-book is not installed here: run `make site`, which installs what it needs")
    prepare_site(root, out)
    command = [builder, "build", str(out), "--warningiserror", "--keep-going", "--quiet"]
    built = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    if built.returncode:
        raise InputError(f"the website could not be built:\n{built.stdout}{built.stderr}")
    site = out / "_build" / "html"
    shutil.copytree(out / STATIC, site / "_static", dirs_exist_ok=True)  # Sphinx copies them only if a page has changed
    return site


def prepare_site(root: Path, out: Path) -> None:
    """Write the source folder of the website.

    Args:
        root: The folder that holds `site/`, `notebooks/` and `solutions/`.
        out: Where to write. What an earlier run left there and this one doesn't write is removed, except `_build/`.
    """
    from transformer_lab.exercises.registry import notebooks

    sources = Sources(root, out)
    solutions = {path: nbformat.read(path, as_version=4) for path in sorted((root / "solutions").glob("*.ipynb"))}
    if not solutions:
        raise InputError(f"no solutions in {root / 'solutions'}: run this in the folder of the project")
    titles = {path.stem: _title(solution) for path, solution in solutions.items()}
    exercises = {name: notebooks().get(name[:2], []) for name in titles}

    for path in sorted(path for path in (root / "site" / "_static").rglob("*") if path.is_file()):
        sources.write(STATIC / path.relative_to(root / "site" / "_static"), path.read_bytes())
    if importlib.util.find_spec("transformer_lab.decoding.page_export"):
        from transformer_lab.decoding.page_export import write_translator

        write_translator(out / STATIC / "translator")
        sources.written.update((out / STATIC / "translator").rglob("*"))
    for name in titles:
        sources.write(STATIC / "notebooks" / f"{name}.ipynb", (root / "notebooks" / f"{name}.ipynb").read_bytes())
    records = sorted(path.relative_to(root).as_posix() for path in (root / "results").glob("*/README.md"))
    pages = {"index.md", "field_guide.md", *PAGES, *records, *(f"notebooks/{name}.ipynb" for name in titles)}

    for path, solution in solutions.items():
        notebook = nbformat.read(root / "notebooks" / path.name, as_version=4)
        page = _notebook_page(solution, notebook, exercises[path.stem], path.stem, sources)
        for cell in page.cells:
            if cell.cell_type == "markdown":
                cell.source = relinked(cell.source, f"notebooks/{path.name}", pages, sources)
        sources.write(f"notebooks/{path.name}", nbformat.writes(page))
    for page in (*PAGES, *records):
        text = (root / page).read_text(encoding="utf-8")
        sources.write(page, relinked(text, page, pages, sources))
    guide = (root / "site" / "field_guide.md").read_text(encoding="utf-8")
    mistakes = field_guide(exercises, titles)
    sources.write("field_guide.md", guide.replace("{{ mistakes }}", mistakes).replace("{{ count }}", _thousands(number_of_mistakes())))
    sources.write("index.md", _landing_page(titles, exercises, solutions, sources))
    sources.write("_config.yml", _config(root))
    sources.write("_toc.yml", _table_of_contents(titles, records))
    sources.remove_the_rest()


class Sources:
    """The folder that is written. A file with the same content stays untouched, so Jupyter Book builds only what changed."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.written: set[Path] = set()

    def write(self, relative: str | Path, content: str | bytes) -> None:
        path = self.out / relative
        data = content.encode() if isinstance(content, str) else content
        self.written.add(path)
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def picture(self, data: bytes, suffix: str) -> str:
        """Keep a picture in a file named after its content, and return its address on the site."""
        relative = f"pictures/{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
        self.write(STATIC / relative, data)
        return f"_static/{relative}"

    def remove_the_rest(self) -> None:
        for path in sorted(self.out.rglob("*"), reverse=True):
            if "_build" in path.relative_to(self.out).parts:
                continue
            if path.is_file() and path not in self.written:
                path.unlink()
                if path.suffix in (".md", ".ipynb"):  # its page must go as well
                    shutil.rmtree(self.out / "_build", ignore_errors=True)
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _title(notebook: NotebookNode) -> str:
    first = next(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return first.splitlines()[0].lstrip("# ").strip()


def _thousands(number: int) -> str:
    return f"{number:,}"


# Notebooks


def _notebook_page(
    solution: NotebookNode, notebook: NotebookNode, exercises: Iterable[Any], name: str, sources: Sources
) -> NotebookNode:
    """Return a solution as a page to read: what an exercise asks first, its hints and its answer folded."""
    stubs = {cell.id: cell.source for cell in notebook.cells}
    by_cell = {f"exercise-{exercise.name}": exercise for exercise in exercises}
    page = nbformat.v4.new_notebook(metadata=solution.metadata)
    for number, cell in enumerate(solution.cells):
        if cell.cell_type == "markdown":
            source = _with_buttons(cell.source, name) if number == 0 else cell.source
            page.cells.append(nbformat.v4.new_markdown_cell(source, id=cell.id))
        elif cell.id in by_cell:
            source = _exercise(by_cell[cell.id], stubs[cell.id], cell.source)
            page.cells.append(nbformat.v4.new_markdown_cell(source, id=cell.id))
        else:
            source = cell.source.removeprefix(COMPARE_OUTPUT).strip("\n")
            new = nbformat.v4.new_code_cell(source, id=cell.id, execution_count=cell.execution_count)
            set_up = source.startswith(("import ", "from ")) and not any(cell.cell_type == "code" for cell in page.cells)
            new.metadata.tags = ["hide-input"] if set_up or _is_folded(cell) else []
            if not set_up:  # it prints which parts are the reader's own
                new.outputs = [_output(output, cell.source, sources) for output in cell.outputs]
            page.cells.append(new)
    return page


def _with_buttons(source: str, name: str) -> str:
    """Put the ways to open this notebook below its title."""
    title, _, text = source.partition("\n")
    buttons = [f'<a class="lab-button" href="../_static/notebooks/{name}.ipynb" download>Open this notebook</a>']
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        colab = f"https://colab.research.google.com/github/{repository}/blob/main/notebooks/{name}.ipynb"
        buttons.append(f'<a class="lab-button lab-quiet" href="{colab}">Open in Colab</a>')
    note = "This page shows the notebook with every answer folded. In JupyterLab you write the answers yourself, and a check reads them."
    return f'{title}\n\n<p class="lab-open">{" ".join(buttons)}<span>{note}</span></p>\n{text}'


def _is_folded(cell: NotebookNode) -> bool:
    """Whether the code of a cell is beside the point: it plots, it only imports, or its author has hidden it."""
    if "hide-input" in cell.metadata.get("tags", []) or cell.metadata.get("jupyter", {}).get("source_hidden"):
        return True
    statements = [line for line in cell.source.splitlines() if line and not line.startswith((" ", ")", "#"))]
    return bool(PLOTTING.search(cell.source)) or all(line.startswith(("import ", "from ")) for line in statements)


def _exercise(exercise: Any, stub: str, answer: str) -> str:
    """Return a call-out: the stub, each hint folded, the answer folded."""
    lines = [f"::::::{{admonition}} `{exercise.name}`", ":class: lab-exercise", ""]
    lines += [f'<p class="lab-meta">{_count(exercise.points, "point")} · about {_count(exercise.minutes, "minute")}</p>', "", _python(stub), ""]
    for number, hint in enumerate(exercise.hints, 1):
        lines += [f":::::{{dropdown}} Hint {number} of {len(exercise.hints)}", _prose(hint), ":::::", ""]
    lines += [":::::{dropdown} Answer", ":class-container: lab-answer", _python(answer), ":::::", "::::::"]
    return "\n".join(lines)


def _python(source: str) -> str:
    lines = [line for line in source.splitlines() if line.strip() not in (BEGIN, END)]
    if lines[0].startswith("# Exercise"):
        del lines[0]
    return "\n".join(["```python", *lines, "```"])


def _prose(text: str) -> str:
    """Return plain text with code between backticks as Markdown: outside of code, nothing else has a meaning."""
    pieces = text.split("`")
    return "`".join(piece if index % 2 else re.sub(r"([\\*_$<>\[\]{}])", r"\\\1", piece) for index, piece in enumerate(pieces))


def _output(output: NotebookNode, source: str, sources: Sources) -> NotebookNode:
    """Return an output with its pictures in files, its headings as text, and a place for what moves on the page."""
    data = output.get("data", {})
    if "image/png" in data and "text/html" not in data:
        alt = output.metadata.get("alt") or output.metadata.get("image/png", {}).get("alt", "")
        width = output.metadata.get("image/png", {}).get("width")
        size = f' width="{width}"' if width else ""
        encoded = data.pop("image/png").replace("\n", "")
        data["text/html"] = f'<img alt="{html.escape(alt)}"{size} src="data:image/png;base64,{encoded}">'
    if "text/html" not in data:
        return output
    # a report's headings would join those of the page
    text = re.sub(r"<h([1-6])\b([^>]*)>(.*?)</h\1>", r'<p class="lab-heading-\1"\2>\3</p>', data["text/html"], flags=re.DOTALL)
    text = _IMAGE.sub(lambda found: _in_a_file(found, sources), text)
    explorer = next((explorer for call, explorer in LIVE.items() if re.search(rf"\b{call}\(", source)), None)
    if explorer:
        text = f'<div class="lab-explorer" data-explorer="{explorer}">{text}</div>'
    elif re.search(r"\bexplore(_\w+)?\(", source):
        text += '<p class="lab-note">A still picture. In the notebook it moves with the sliders next to it.</p>'
    return nbformat.v4.new_output("display_data", {"text/html": text})


def _in_a_file(found: re.Match, sources: Sources) -> str:
    """Return an `<img>` whose picture is a file, with its size, so that the page doesn't jump when it is loaded."""
    from PIL import Image

    data, attributes = base64.b64decode(found["data"]), found["before"] + found["after"]
    picture = Image.open(io.BytesIO(data))
    width = re.search(r'width="(\d+)"', attributes)
    width = int(width[1]) if width else picture.width
    alt = re.search(r'alt="([^"]*)"', attributes)
    return (
        f'<img class="lab-picture" loading="lazy" alt="{alt[1] if alt else ""}" width="{width}" '
        f'height="{round(width * picture.height / picture.width)}" '
        f'src="../{sources.picture(_fewer_colors(data, picture), "png")}">'
    )


def _fewer_colors(data: bytes, picture: Any) -> bytes:
    """Return a PNG with 256 colors where that is smaller: half the bytes, and no difference to the eye."""
    from PIL import Image

    if picture.mode == "P":
        return data
    smaller = io.BytesIO()
    picture.convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE).save(smaller, "PNG", optimize=True)
    return min(data, smaller.getvalue(), key=len)


# Markdown pages


def relinked(text: str, page: str, pages: Iterable[str], sources: Sources) -> str:
    """Return Markdown in which every link leads somewhere on the site, to the repository, or has become plain text.

    Args:
        text: As it is in the repository. Code is left alone.
        page: Its path there, from which relative links start.
        pages: The paths that are pages of the site.
    """

    def link(found: re.Match) -> str:
        target = found["target"]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = Path(os.path.normpath(Path(page).parent / target))
        file = sources.root / path
        if path.as_posix() in pages:
            return found[0]
        if path.parts[0] == "solutions" and f"notebooks/{path.name}" in pages:
            return found[0].replace("solutions/", "notebooks/")
        if found["image"] or file.suffix in (".json", ".png"):
            sources.write(path, file.read_bytes())
            return found[0]
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            return f"[{found['text']}](https://github.com/{repository}/blob/main/{path.as_posix()})"
        return found["text"]

    parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
    masked = [part if index % 2 else None for index, part in enumerate(parts)]
    joined = "".join(f"\0{index}\0" if part is not None else parts[index] for index, part in enumerate(masked))
    return re.sub(r"\0(\d+)\0", lambda found: parts[int(found[1])], _LINK.sub(link, joined))


def _landing_page(
    titles: Mapping[str, str], exercises: Mapping[str, list[Any]], solutions: Mapping[Path, NotebookNode], sources: Sources
) -> str:
    """Fill in what `site/index.md` leaves open: the contents, the counts, a report, and the weights of the drawing."""
    text = (sources.root / "site" / "index.md").read_text(encoding="utf-8")
    electives = {name for name in titles if name >= "20"}
    values = {
        "course": _cards({name: title for name, title in titles.items() if name not in electives}, exercises),
        "electives": _cards({name: title for name, title in titles.items() if name in electives}, exercises),
        "notebooks": str(len(titles) - len(electives)),
        "exercises": str(sum(len(found) for found in exercises.values())),
        "mistakes": _thousands(number_of_mistakes()),
        "report": _first_failing_report(solutions),
        "weights": json.dumps(cross_attention(), ensure_ascii=False),
        "first": next(name for name in titles if name.startswith("01")),
        "tour": next(iter(titles)),
    }
    if not (sources.out / STATIC / "translator").is_dir():
        text = re.sub(r"<!-- translator -->.*?<!-- end of translator -->\n", "", text, flags=re.DOTALL)
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: values[found[1]], text)


def _cards(titles: Mapping[str, str], exercises: Mapping[str, list[Any]]) -> str:
    rows = []
    for name, title in titles.items():
        built = ", ".join(f"<code>{html.escape(exercise.name)}</code>" for exercise in exercises[name])
        effort = _count(len(exercises[name]), "exercise") if built else ""
        built = built or "Nothing to write yet: see what it all leads to."
        rows.append(
            f'<li><a href="notebooks/{name}.html"><b>{name[:2]}</b> {html.escape(title)}</a>'
            f"<span>{effort}</span><p>{built}</p></li>"
        )
    return f'<ol class="lab-contents">{"".join(rows)}</ol>'


def _first_failing_report(solutions: Mapping[Path, NotebookNode]) -> str:
    """Return what the check says about attention without the scale, in notebook 01."""
    reports = (
        output.data["text/html"]
        for path, solution in solutions.items()
        if path.name.startswith("01")
        for cell in solution.cells
        if cell.cell_type == "code" and "without_scale" in cell.source
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    )
    report = next(reports, "")
    return re.sub(r"<h([1-6])\b([^>]*)>(.*?)</h\1>", r'<p class="lab-heading-\1"\2>\3</p>', report, flags=re.DOTALL)


def cross_attention() -> list[dict[str, Any]]:
    """Return the words and the weights of `HERO_SENTENCES`, as the included model translates them."""
    from transformer_lab.decoding import load_pretrained

    translator = load_pretrained()
    drawn = []
    for sentence in HERO_SENTENCES:
        recorded, source, target = translator.attention(sentence)
        weights = recorded[f"decoder.layers.{HERO_LAYER}.cross_attention"][0].mean(dim=0)  # (query, key)
        drawn.append({
            "source": [token.removeprefix("▁") for token in source[:-1]],
            "target": [token.removeprefix("▁") for token in target[1:]],
            # the row of a token is the one from which the next token was written
            "weights": [[round(weight, 3) for weight in row[:-1]] for row in weights[: len(target) - 1].tolist()],
        })
    return drawn


# Settings of Jupyter Book


def _config(root: Path) -> str:
    """Return `site/_config.yml`, with the address of the published site where GitHub says it."""
    import yaml

    config = yaml.safe_load((root / "site" / "_config.yml").read_text(encoding="utf-8"))
    address = ""
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        owner, _, name = repository.partition("/")
        address = os.environ.get("SITE_ADDRESS", f"https://{owner.lower()}.github.io/{name}/")
        config["html"]["baseurl"] = address
        config["sphinx"]["config"]["html_theme_options"]["icon_links"] = [
            {"name": "Source on GitHub", "url": f"https://github.com/{repository}", "icon": "fa-brands fa-github"}
        ]
    description = "Write every part of the Transformer yourself, read what went wrong, and train the result."
    config["sphinx"]["config"]["myst_html_meta"] = {
        "description": description,
        "property=og:title": config["title"],
        "property=og:type": "website",
        "property=og:description": description,
        "property=og:image": f"{address}_static/og.png",
        "name=twitter:card": "summary_large_image",
    }
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def _table_of_contents(titles: Mapping[str, str], records: Iterable[str]) -> str:
    import yaml

    def chapters(names: Iterable[str]) -> list[dict[str, str]]:
        return [{"file": f"notebooks/{name}", "title": f"{name[:2]} {titles[name]}"} for name in names]

    records = [{"file": record.removesuffix(".md"), "title": Path(record).parent.name} for record in records]
    parts: list[dict[str, Any]] = [
        {"caption": "The course", "chapters": chapters(name for name in titles if name < "20")},
        {"caption": "Electives", "chapters": chapters(name for name in titles if name >= "20")},
        {
            "caption": "Reference",
            "chapters": [
                {"file": "field_guide", "title": "A field guide to Transformer bugs"},
                *({"file": page.removesuffix(".md"), "title": title} for page, title in PAGES.items()),
            ],
        },
    ]
    parts[-1]["chapters"][-1]["sections"] = records
    return yaml.safe_dump({"format": "jb-book", "root": "index", "parts": parts}, sort_keys=False, allow_unicode=True)
