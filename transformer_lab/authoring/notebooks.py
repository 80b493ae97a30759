"""Build `notebooks/NN_name.ipynb` for students and the executed `solutions/NN_name.ipynb` from `course/NN_name.md`.

The source is MyST Markdown, which jupytext reads. This module fills in two kinds of code cells that the source leaves
empty:

    ```{code-cell} ipython3        the student's stub in `notebooks/`,
    :exercise: softmax             the source of the package's own `softmax` in `solutions/`
    ```

    ```{code-cell} ipython3        `check(softmax)`, in both
    :check: softmax
    ```

A heading starts a new cell. The text right before an exercise goes into a colored box, along with the time it takes,
its points, and where to find help. A notebook without exercises, such as the tour, is saved as the same executed
notebook in both folders, so you see its outputs when you open it.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lab.authoring.stubs import marked_answer, stub
from transformer_lab.errors import InputError
from transformer_lab.plural import plural

COMPARE_OUTPUT = "nbval-check-output"  # nbval's tag for a cell whose output must stay the same
CALL_OUT = """\
<div class="alert alert-block alert-info">

**Exercise: `{name}`** · about {minutes} · {points}

{task}

**Stuck?** Each call to `hint("{name}")` tells you a little more, and `solution("{name}")` shows our answer.

</div>"""
CELL_TIMEOUT = 900  # seconds
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},  # without the version, which differs between machines
}


def read_text(path: Path, exercises: Mapping[str, Any]) -> tuple[NotebookNode, NotebookNode]:
    """Return the `(notebook, solution)` built from one source file, both without outputs.

    Args:
        path: A file in `course/`.
        exercises: The registry, which maps names to objects with `answer`, `blank`, `points`, and `minutes`.

    Raises:
        InputError: An exercise is not registered or is not followed by its check, a cell that should be empty has
            content, or two cells would get the same ID.
    """
    import jupytext

    text = jupytext.read(path, fmt="md:myst")
    notebook, solution = (nbformat.v4.new_notebook(metadata=deepcopy(METADATA)) for _ in range(2))
    headings = _Headings(path)
    unchecked: list[str] = []  # exercises whose check hasn't been seen yet
    for cell in _split_at_headings(text.cells):
        name = cell.metadata.pop("exercise", None)
        checked = cell.metadata.pop("check", None)
        if name is not None:
            exercise = _find(exercises, name, path)
            _must_be_empty(cell, "exercise", name, path)
            headings.claim(f"exercise-{name}")
            unchecked.append(name)
            for built, write in ((notebook, stub), (solution, marked_answer)):
                _call_out(built, name, exercise)
                _add(built, cell, f"exercise-{name}", write(exercise.answer, exercise.blank), solution=True)
        elif checked is not None:
            exercise = _find(exercises, checked, path)
            _must_be_empty(cell, "check", checked, path)
            headings.claim(f"check-{checked}")
            if checked not in unchecked:
                raise InputError(f"{path.name}: add a cell `:exercise: {checked}` before `:check: {checked}`")
            unchecked.remove(checked)
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), COMPARE_OUTPUT]
            for built in (notebook, solution):
                source = f"check({checked})"
                _add(built, cell, f"check-{checked}", source, grade=True, locked=True, points=exercise.points)
        else:
            cell_id = headings.cell_id(cell)
            for built in (notebook, solution):
                _add(built, cell, cell_id, cell.source, **({"locked": True} if cell.cell_type == "markdown" else {}))
    if unchecked:
        raise InputError(f"{path.name}: add a cell `:check: {unchecked[0]}` after `:exercise: {unchecked[0]}`")
    return notebook, solution


def _split_at_headings(cells: Iterable[NotebookNode]) -> Iterable[NotebookNode]:
    for cell in cells:
        if cell.cell_type != "markdown":
            yield cell
            continue
        parts: list[list[str]] = [[]]
        fenced = False
        for line in cell.source.splitlines():
            fenced ^= line.startswith("```")
            if re.match(r"#+ ", line) and not fenced and any(parts[-1]):
                parts.append([])
            parts[-1].append(line)
        for part in parts:
            yield nbformat.v4.new_markdown_cell("\n".join(part).strip("\n"), metadata=cell.metadata)


class _Headings:
    """Cell IDs derived from section headings, so that a change in one section does not affect the others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sections: list[tuple[int, str]] = []  # level and slug of the headings above the current cell
        self.count = 0
        self.ids: set[str] = set()

    def cell_id(self, cell: NotebookNode) -> str:
        heading = re.match(r"(#+) +(.+)", cell.source) if cell.cell_type == "markdown" else None
        if heading:
            level = len(heading[1])
            title = unicodedata.normalize("NFKD", heading[2]).encode("ascii", "ignore").decode().lower()
            slug = re.sub(r"[^a-z0-9]+", "-", title).strip("-")[:28].strip("-") or "section"
            # Leave out the notebook's title, because it is above every section.
            self.sections = [section for section in self.sections if 1 < section[0] < level] + [(level, slug)]
            self.count = 0
        self.count += 1
        section = "_".join(slug for _, slug in self.sections[-2:]) or "start"
        return self.claim(section if self.count == 1 else f"{section}-{self.count}")

    def claim(self, cell_id: str) -> str:
        if cell_id in self.ids:
            raise InputError(f"{self.path.name}: two cells would have the ID `{cell_id}`: change one of the headings")
        self.ids.add(cell_id)
        return cell_id


def _find(exercises: Mapping[str, Any], name: str, path: Path) -> Any:
    if name not in exercises:
        near = difflib.get_close_matches(name, exercises, n=3) or sorted(exercises)
        raise InputError(f"{path.name}: there is no exercise `{name}`; there are {', '.join(near) or 'none'}")
    return exercises[name]


def _must_be_empty(cell: NotebookNode, kind: str, name: str, path: Path) -> None:
    if cell.source.strip():
        raise InputError(f"{path.name}: the {kind} cell of `{name}` must be empty: the package fills it")


def _call_out(built: NotebookNode, name: str, exercise: Any) -> None:
    """Put the text before an exercise into a box below its heading."""
    if not built.cells or built.cells[-1].cell_type != "markdown":
        _add(built, nbformat.v4.new_markdown_cell(), f"task-{name}", "", locked=True)
    above = built.cells[-1]
    heading, task = re.fullmatch(r"(#+ [^\n]*\n*)?(.*)", above.source, re.DOTALL).groups(default="")
    minutes, points = plural(exercise.minutes, "minute"), plural(exercise.points, "point")
    box = CALL_OUT.format(name=name, minutes=minutes, points=points, task=task).replace("\n\n\n\n", "\n\n")
    above.source = f"{heading.strip()}\n\n{box}".lstrip()


def _add(built: NotebookNode, cell: NotebookNode, cell_id: str, source: str, **nbgrader: Any) -> None:
    """Append a copy of `cell` with a different source and, if given, metadata for nbgrader (schema 3)."""
    new = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
    metadata = deepcopy(dict(cell.metadata))
    if nbgrader:
        flags = {"grade": False, "solution": False, "locked": False, "task": False}
        metadata["nbgrader"] = {"schema_version": 3, "grade_id": cell_id} | flags | nbgrader
    built.cells.append(new(source, id=cell_id, metadata=metadata))


def build_notebooks(
    root: Path, exercises: Mapping[str, Any], names: Iterable[str] = (), everything: bool = False
) -> list[Path]:
    """Build notebooks and solutions from `root/course`, and execute the solutions whose cells have changed.

    Args:
        root: The folder that contains `course/`, `notebooks/`, and `solutions/`.
        exercises: The registry, as in `read_text`.
        names: The files to build, such as `["01_attention"]`; all of them if empty.
        everything: Execute all solutions, for example after a change to the package or the trained model.

    Returns:
        The files that were written.

    Raises:
        InputError: A source file is invalid (see `read_text`), or a solution's cell failed. The solution on disk is
            then unchanged.
    """
    written = []
    for path in _texts(root, names):
        notebook, solution = read_text(path, exercises)
        notebook_path, solution_path = _built_paths(root, path)
        if everything or not _same_cells(solution_path, solution):
            executed = deepcopy(solution)
            _execute(executed, solution_path)
            _write(solution_path, executed)
            written.append(solution_path)
        notebook = _to_open(notebook, solution, solution_path)
        if not _same_file(notebook_path, notebook):
            _write(notebook_path, notebook)
            written.append(notebook_path)
    return written


def outdated_notebooks(root: Path, exercises: Mapping[str, Any]) -> list[str]:
    """Return a line for each file in `notebooks/` and `solutions/` that does not match its source. Runs no notebook."""
    lines = []
    expected = set()
    for path in _texts(root, ()):
        notebook, solution = read_text(path, exercises)
        notebook_path, solution_path = _built_paths(root, path)
        expected |= {notebook_path, solution_path}
        if not _same_file(notebook_path, _to_open(notebook, solution, solution_path)):
            lines.append(f"notebooks/{notebook_path.name} does not match course/{path.name}")
        if not _same_cells(solution_path, solution):
            lines.append(f"solutions/{solution_path.name} does not match course/{path.name}, or has not been executed")
    for folder in ("notebooks", "solutions"):
        strays = sorted(set((root / folder).glob("*.ipynb")) - expected)
        lines += [f"{folder}/{stray.name} has no text in course/" for stray in strays]
    return lines


def _texts(root: Path, names: Iterable[str]) -> list[Path]:
    texts = sorted((root / "course").glob("[0-9][0-9]_*.md"))
    if not texts:
        raise InputError(f"no text like 01_name.md in {root / 'course'}: run this in the project's folder")
    known = {path.stem: path for path in texts}
    for name in names:
        if name not in known:
            raise InputError(f"there is no text `{name}`; there are {', '.join(known)}")
    return [known[name] for name in names] or texts


def _built_paths(root: Path, text: Path) -> tuple[Path, Path]:
    return root / "notebooks" / f"{text.stem}.ipynb", root / "solutions" / f"{text.stem}.ipynb"


def _to_open(notebook: NotebookNode, solution: NotebookNode, solution_path: Path) -> NotebookNode:
    """Return the notebook for students. If there is nothing to fill in, this is the executed solution."""
    if notebook != solution or not solution_path.exists():
        return notebook
    return nbformat.read(solution_path, as_version=nbformat.NO_CONVERT)


def _same_file(path: Path, notebook: NotebookNode) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == _as_text(notebook)


def _same_cells(path: Path, solution: NotebookNode) -> bool:
    """Return whether the notebook on disk has the same cells as `solution`, and all of them have been executed."""
    if not path.exists():
        return False
    built = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    code = [cell for cell in built.cells if cell.cell_type == "code"]
    if not all(cell.execution_count for cell in code if cell.source.strip()):
        return False
    built.metadata.pop("widgets", None)
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    return _as_text(built) == _as_text(solution)


def _execute(solution: NotebookNode, path: Path) -> None:
    """Execute `solution` in place, in the folder that contains `path`, using the package's own parts.

    With the preset `tiny`, notebook 13's training run takes seconds instead of minutes.

    Raises:
        InputError: A cell or a check failed, or took too long.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    environment = os.environ | {
        "TRANSFORMER_LAB_MINE": "off",
        "TRANSFORMER_LAB_STRICT": "1",
        "TRANSFORMER_LAB_PRESET": "tiny",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(
        solution,
        timeout=CELL_TIMEOUT,
        iopub_timeout=CELL_TIMEOUT,  # with the default of 4, outputs are silently lost on a busy machine
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute(env=environment)
    except CellExecutionError as error:  # its message is the whole traceback
        reason = " ".join(f"{error.ename}: {error.evalue}".split())
        raise InputError(f"solutions/{path.name} stopped: {reason}") from error
    except AssertionError as error:  # after Ctrl-C, nbclient shuts down its kernel and then asserts that there is one
        raise InputError(f"solutions/{path.name} was interrupted; the one on disk is unchanged") from error
    except (CellTimeoutError, DeadKernelError) as error:
        raise InputError(f"solutions/{path.name} stopped: {' '.join(str(error).split())}") from error
    solution.metadata["language_info"] = dict(METADATA["language_info"])
    solution.metadata.pop("widgets", None)
    for cell in solution.cells:
        if cell.cell_type == "code":
            cell.outputs = _tidy(cell.outputs)


def _tidy(outputs: Iterable[NotebookNode]) -> list[NotebookNode]:
    """Join consecutive outputs of the same stream, and replace widgets with their pictures.

    The points where a stream is split vary from run to run. A widget needs a kernel, but any page can show a picture.
    """
    tidied: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and tidied and tidied[-1].get("name") == output.name:
            tidied[-1].text += output.text
            continue
        if "text/html" in output.get("data", {}):
            output.data.pop("application/vnd.jupyter.widget-view+json", None)
        tidied.append(output)
    return tidied


def _as_text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook) + "\n"


def _write(path: Path, notebook: NotebookNode) -> None:
    nbformat.validate(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_as_text(notebook), encoding="utf-8", newline="\n")
