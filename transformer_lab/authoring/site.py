"""Build the website from executed solutions, the catalog of mistakes, and Markdown pages, without running notebooks.

`prepare_site` writes a source folder that mirrors the repository, so that links between its files keep working:

    index.md, _config.yml, _toc.yml, static/    from `site/`
    notebooks/NN_name.ipynb                     from `solutions/`, with stubs, hints, and collapsed answers
    field_guide.md                              from the catalog of mistakes
    CLASSROOM.md, SERVING.md, results/          unchanged, except for links to files that are not on the site

`build_site` runs Jupyter Book on that folder.
"""

import html
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
from transformer_lab.authoring.site_pages import STATIC, Sources, notebook_page, relinked, without_headings
from transformer_lab.decoding import load_pretrained
from transformer_lab.decoding.page_export import write_translator
from transformer_lab.errors import InputError
from transformer_lab.exercises.registry import FIRST_ELECTIVE, notebooks
from transformer_lab.plural import plural

PAGES = ("CLASSROOM.md", "SERVING.md", "results/README.md")
HERO_SENTENCES = (
    "Ein Mann fährt auf der Straße Fahrrad.",
    "Zwei Hunde laufen durch den Schnee.",
    "Eine Frau liest ein Buch im Park.",
)
HERO_LAYER = 2  # one of layers 0 to 3; averaged over heads, its cross-attention is the easiest to follow


def build_site(root: Path, out: Path) -> Path:
    """Write the source folder to `out`, build the site, and return its folder.

    Raises:
        InputError: Jupyter Book is not installed, or it reported a warning or an error.
    """
    builder = shutil.which("jupyter-book", path=Path(sys.executable).parent)
    if not builder:
        raise InputError("jupyter-book is not installed: run `make site`, which installs it")
    prepare_site(root, out)
    command = [builder, "build", str(out), "--warningiserror", "--keep-going", "--quiet"]
    built = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    if built.returncode:
        raise InputError(f"the website could not be built:\n{built.stdout}{built.stderr}")
    site = out / "_build" / "html"
    shutil.copytree(out / STATIC, site / "_static", dirs_exist_ok=True)  # Sphinx skips this if no page has changed
    return site


def prepare_site(root: Path, out: Path) -> None:
    """Write the website's source folder.

    Args:
        root: The folder that contains `site/`, `notebooks/`, and `solutions/`.
        out: Where to write it. Files left by an earlier run are removed, except those in `_build/`.
    """
    sources = Sources(root, out)
    solutions = {path.stem: nbformat.read(path, as_version=4) for path in sorted((root / "solutions").glob("*.ipynb"))}
    if not solutions:
        raise InputError(f"no solutions in {root / 'solutions'}: run this in the project's folder")
    titles = {name: _title(solution) for name, solution in solutions.items()}
    exercises = {name: notebooks().get(name[:2], []) for name in titles}
    records = sorted(path.relative_to(root).as_posix() for path in (root / "results").glob("*/README.md"))
    pages = {"index.md", "field_guide.md", *PAGES, *records, *(f"notebooks/{name}.ipynb" for name in titles)}

    _write_static_files(root, titles, sources)
    for name, solution in solutions.items():
        notebook = nbformat.read(root / "notebooks" / f"{name}.ipynb", as_version=4)
        page = notebook_page(name, solution, notebook, exercises[name], sources)
        for cell in page.cells:
            if cell.cell_type == "markdown":
                cell.source = relinked(cell.source, f"notebooks/{name}.ipynb", pages, sources)
        sources.write(f"notebooks/{name}.ipynb", nbformat.writes(page))
    for page in (*PAGES, *records):
        sources.write(page, relinked((root / page).read_text(encoding="utf-8"), page, pages, sources))

    values = {
        "mistakes": f"{number_of_mistakes():,}",
        "guide": field_guide(exercises, titles),
        "notebooks": str(len([name for name in titles if name < FIRST_ELECTIVE])),
        "exercises": str(sum(map(len, exercises.values()))),
        "course": _contents({name: titles[name] for name in titles if name < FIRST_ELECTIVE}, exercises),
        "electives": _contents({name: titles[name] for name in titles if name >= FIRST_ELECTIVE}, exercises),
        "tour": next(iter(titles)),
        "first": next(name for name in titles if name.startswith("01")),
        "full_run": next(name[:2] for name in titles if "multi30k" in name),
        "report": _report_about("without_scale", solutions),
        "weights": json.dumps(cross_attention(), ensure_ascii=False),
        **_addresses(),
    }
    for name in ("index.md", "field_guide.md", "_config.yml"):
        text = (root / "site" / name).read_text(encoding="utf-8")
        sources.write(name, re.sub(r"\{\{ (\w+) \}\}", lambda match: values[match[1]], text))
    sources.write("_toc.yml", _table_of_contents(titles, records))
    sources.remove_the_rest()


def _write_static_files(root: Path, names: Iterable[str], sources: Sources) -> None:
    folder = root / "site" / "_static"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        sources.write(STATIC / path.relative_to(folder), path.read_bytes())
    for name in names:
        sources.write(STATIC / "notebooks" / f"{name}.ipynb", (root / "notebooks" / f"{name}.ipynb").read_bytes())
    translator = sources.out / STATIC / "translator"
    write_translator(translator)
    sources.written.update(translator.rglob("*"))


def _title(notebook: NotebookNode) -> str:
    first = next(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return first.splitlines()[0].lstrip("# ").strip()


def _contents(titles: Mapping[str, str], exercises: Mapping[str, list[Any]]) -> str:
    """Return an HTML list of the notebooks and their exercises."""
    rows = []
    for name, title in titles.items():
        written = ", ".join(f"<code>{html.escape(exercise.name)}</code>" for exercise in exercises[name])
        exercise_count = plural(len(exercises[name]), "exercise") if written else ""
        rows.append(
            f'<li><a href="notebooks/{name}.html"><b>{name[:2]}</b> {html.escape(title)}</a>'
            f"<span>{exercise_count}</span><p>{written or 'Nothing to write yet: see where it all leads.'}</p></li>"
        )
    return f'<ol class="lab-contents">{"".join(rows)}</ol>'


def _report_about(mistake: str, solutions: Mapping[str, NotebookNode]) -> str:
    """Return the check report for a function whose name ends in `mistake`."""
    return next(
        without_headings(output.data["text/html"])
        for solution in solutions.values()
        for cell in solution.cells
        if cell.cell_type == "code" and re.search(rf"check\(\w+{mistake}\b", cell.source)
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    )


def cross_attention() -> list[dict[str, Any]]:
    """Return the tokens and attention weights for the included model's translations of `HERO_SENTENCES`."""
    translator = load_pretrained()
    translations = []
    for sentence in HERO_SENTENCES:
        recorded, source, target = translator.attention(sentence)
        weights = recorded[f"decoder.layers.{HERO_LAYER}.cross_attention"][0].mean(dim=0)  # (query, key)
        translations.append({
            "source": [token.removeprefix("▁") for token in source[:-1]],
            "target": [token.removeprefix("▁") for token in target[1:]],
            # A token is generated by the query one position before it.
            "weights": weights[: len(target) - 1, :-1].double().round(decimals=3).tolist(),
        })
    return translations


def _addresses() -> dict[str, str]:
    """Return the URLs of the site and its source. If the site is not built on GitHub, both are empty."""
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    owner, _, name = repository.partition("/")
    published = f"https://{owner.lower()}.github.io/{name}/" if repository else ""
    return {
        "address": os.environ.get("SITE_ADDRESS", published),
        "repository": f"https://github.com/{repository}" if repository else "",
        "clone": f"git clone https://github.com/{repository}.git && cd {name}\n" if repository else "",
        "on_github": "true" if repository else "false",
    }


def _table_of_contents(titles: Mapping[str, str], records: Iterable[str]) -> str:
    """Return Jupyter Book's `_toc.yml` as JSON, which is also valid YAML."""

    def part(caption: str, chapters: list[dict[str, Any]]) -> dict[str, Any]:
        return {"caption": caption, "chapters": chapters}

    chapters = {name: {"file": f"notebooks/{name}", "title": f"{name[:2]} {title}"} for name, title in titles.items()}
    reference: list[dict[str, Any]] = [{"file": page.removesuffix(".md")} for page in ("field_guide.md", *PAGES)]
    reference[-1]["sections"] = [
        {"file": record.removesuffix(".md"), "title": Path(record).parent.name} for record in records
    ]
    parts = [
        part("The course", [chapter for name, chapter in chapters.items() if name < FIRST_ELECTIVE]),
        part("Electives", [chapter for name, chapter in chapters.items() if name >= FIRST_ELECTIVE]),
        part("Reference", reference),
    ]
    return json.dumps({"format": "jb-book", "root": "index", "parts": parts}, ensure_ascii=False, indent=1)
