"""Builds `notebooks/NN_name.ipynb`, to be filled in, and `solutions/NN_name.ipynb`, executed, from `course/NN_name.md`.

The text is MyST Markdown as jupytext reads it. Two kinds of code cell are left empty in it and filled here:

    ```{code-cell} ipython3        the student's stub in `notebooks/`,
    :exercise: softmax             the source of the package's own `softmax` in `solutions/`
    ```

    ```{code-cell} ipython3        `check(softmax)`, in both
    :check: softmax
    ```

A text without exercises, such as the tour's, becomes the same executed notebook in both folders, so it opens with its
outputs.
The text right before an exercise is put into a colored box with its minutes, its points, and where to find help.
A heading starts a new cell.
"""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lab.authoring.stubs import marked_answer, stub
from transformer_lab.errors import InputError
from transformer_lab.plural import plural

COMPARE_OUTPUT = "nbval-check-output"  # a tag of nbval: what the cell prints must stay the same
CALL_OUT = """\
<div class="alert alert-block alert-info">

**Exercise: `{name}`** · about {minutes} · {points}

{task}

**Stuck?** Each call of `hint("{name}")` tells you a little more, and `solution("{name}")` shows our answer.

</div>"""
CELL_TIMEOUT = 900  # seconds
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},  # without the version: it would differ from machine to machine
}


def read_text(path: Path, exercises: Mapping[str, Any]) -> tuple[NotebookNode, NotebookNode]:
    """The two notebooks of one text: `(notebook, solution)`, both without outputs.

    Args:
        path: A file of `course/`.
        exercises: The registry: name to `Exercise`, of which `answer`, `blank`, `points` and `minutes` are read.

    Raises:
        InputError: The text names an exercise that is not registered, an exercise has no check after it, a cell that is
            filled by the builder is not empty, or two cells would get the same id.
    """
    import jupytext

    text = jupytext.read(path, fmt="md:myst")
    notebook, solution = (nbformat.v4.new_notebook(metadata=deepcopy(METADATA)) for _ in range(2))
    headings = _Headings(path)
    waiting: list[str] = []  # exercises that have had their cell and wait for their check
    for cell in _split_at_headings(text.cells):
        name = cell.metadata.pop("exercise", None)
        checked = cell.metadata.pop("check", None)
        if name is not None:
            exercise = _find(exercises, name, path)
            _must_be_empty(cell, "exercise", name, path)
            headings.claim(f"exercise-{name}")
            waiting.append(name)
            for built, write in ((notebook, stub), (solution, marked_answer)):
                _call_out(built, name, exercise)
                _add(built, cell, f"exercise-{name}", write(exercise.answer, exercise.blank), solution=True)
        elif checked is not None:
            exercise = _find(exercises, checked, path)
            _must_be_empty(cell, "check", checked, path)
            headings.claim(f"check-{checked}")
            if checked not in waiting:
                raise InputError(f"{path.name}: no cell `:exercise: {checked}` stands before `:check: {checked}`")
            waiting.remove(checked)
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), COMPARE_OUTPUT]
            for built in (notebook, solution):
                source = f"check({checked})"
                _add(built, cell, f"check-{checked}", source, grade=True, locked=True, points=exercise.points)
        else:
            cell_id = headings.cell_id(cell)
            for built in (notebook, solution):
                _add(built, cell, cell_id, cell.source, **({"locked": True} if cell.cell_type == "markdown" else {}))
    if waiting:
        raise InputError(f"{path.name}: no cell `:check: {waiting[0]}` stands after `:exercise: {waiting[0]}`")
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
    """Gives the cells of a text their ids: those of the section they stand in, with a number from the second cell on.

    An id stays what it is when another section changes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sections: list[tuple[int, str]] = []  # level and slug of the headings above the current cell
        self.count = 0
        self.ids: set[str] = set()

    def cell_id(self, cell: NotebookNode) -> str:
        heading = re.match(r"(#+) +(.+)", cell.source) if cell.cell_type == "markdown" else None
        if heading:
            level = len(heading[1])
            slug = re.sub(r"[^a-z0-9]+", "-", _ascii(heading[2]).lower()).strip("-")[:28].strip("-") or "section"
            # the title of the notebook is in every path, so it is left out of them
            self.sections = [section for section in self.sections if 1 < section[0] < level] + [(level, slug)]
            self.count = 0
        self.count += 1
        section = "_".join(slug for _, slug in self.sections[-2:]) or "start"
        return self.claim(section if self.count == 1 else f"{section}-{self.count}")

    def claim(self, cell_id: str) -> str:
        if cell_id in self.ids:
            raise InputError(f"{self.path.name}: two cells would have the id `{cell_id}`: change one of the headings")
        self.ids.add(cell_id)
        return cell_id


def _ascii(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _find(exercises: Mapping[str, Any], name: str, path: Path) -> Any:
    if name not in exercises:
        import difflib

        near = difflib.get_close_matches(name, exercises, n=3) or sorted(exercises)
        raise InputError(f"{path.name}: there is no exercise `{name}`; there are {', '.join(near) or 'none'}")
    return exercises[name]


def _must_be_empty(cell: NotebookNode, kind: str, name: str, path: Path) -> None:
    if cell.source.strip():
        raise InputError(f"{path.name}: the {kind} cell of `{name}` must be empty: it is filled from the package")


def _call_out(built: NotebookNode, name: str, exercise: Any) -> None:
    """Put the text before an exercise into a box, below its heading."""
    if not built.cells or built.cells[-1].cell_type != "markdown":
        _add(built, nbformat.v4.new_markdown_cell(), f"task-{name}", "", locked=True)
    above = built.cells[-1]
    heading, task = re.fullmatch(r"(#+ [^\n]*\n*)?(.*)", above.source, re.DOTALL).groups(default="")
    minutes, points = plural(exercise.minutes, "minute"), plural(exercise.points, "point")
    box = CALL_OUT.format(name=name, minutes=minutes, points=points, task=task).replace("\n\n\n\n", "\n\n")
    above.source = f"{heading.strip()}\n\n{box}".lstrip()


def _add(built: NotebookNode, cell: NotebookNode, cell_id: str, source: str, **nbgrader: Any) -> None:
    """Appends a copy of `cell` with another source, and with nbgrader's metadata (schema 3) if any of it is given."""
    new = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
    metadata = deepcopy(dict(cell.metadata))
    if nbgrader:
        flags = {"grade": False, "solution": False, "locked": False, "task": False}
        metadata["nbgrader"] = {"schema_version": 3, "grade_id": cell_id} | flags | nbgrader
    built.cells.append(new(source, id=cell_id, metadata=metadata))


def build_notebooks(
    root: Path, exercises: Mapping[str, Any], names: Iterable[str] = (), everything: bool = False
) -> list[Path]:
    """Builds the notebooks and solutions of `root/course`, and executes the solutions whose cells have changed.

    Args:
        root: The folder that holds `course/`, `notebooks/` and `solutions/`.
        exercises: The registry, as in `read_text`.
        names: Build only these, for example `["01_attention"]`; all of them if empty.
        everything: Execute also what has not changed, because the package or the trained model has.

    Returns:
        The files that were written.

    Raises:
        InputError: As in `read_text`, or a cell of a solution failed: then the solution on disk stays as it was.
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
    """One line for each file of `notebooks/` and `solutions/` that is not what its text says. Nothing is executed."""
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
        raise InputError(f"no text like 01_name.md in {root / 'course'}: run this in the folder of the project")
    known = {path.stem: path for path in texts}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"there is no text `{unknown[0]}`; known are {', '.join(known)}")
    return [known[name] for name in names] or texts


def _built_paths(root: Path, text: Path) -> tuple[Path, Path]:
    return root / "notebooks" / f"{text.stem}.ipynb", root / "solutions" / f"{text.stem}.ipynb"


def _to_open(notebook: NotebookNode, solution: NotebookNode, solution_path: Path) -> NotebookNode:
    """The notebook as it is opened: where there is nothing to fill in, with the outputs of its solution."""
    if notebook != solution or not solution_path.exists():
        return notebook
    return nbformat.read(solution_path, as_version=nbformat.NO_CONVERT)


def _same_file(path: Path, notebook: NotebookNode) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == _as_text(notebook)


def _same_cells(path: Path, solution: NotebookNode) -> bool:
    """Whether the notebook on disk is `solution`, and every cell of it has been run."""
    if not path.exists():
        return False
    built = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    if not all(cell.execution_count for cell in built.cells if cell.cell_type == "code" and cell.source.strip()):
        return False
    return _as_text(_without_outputs(built)) == _as_text(solution)


def _without_outputs(notebook: NotebookNode) -> NotebookNode:
    notebook = deepcopy(notebook)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def _execute(solution: NotebookNode, path: Path) -> None:
    """Runs `solution` in place, in the folder of `path`, with the package's own parts; a check that fails stops it.

    A training of some minutes, in notebook 13, is replaced by one of seconds.
    """
    import os

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
        iopub_timeout=CELL_TIMEOUT,  # nbclient's own 4 seconds lose outputs on a busy machine, without an error
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute(env=environment)
    except CellExecutionError as error:  # its own text is the whole traceback
        reason = " ".join(f"{error.ename}: {error.evalue}".split())
        raise InputError(f"solutions/{path.name} stopped: {reason}") from error
    except AssertionError as error:  # on Ctrl-C nbclient ends its kernel, and stumbles when it needs it next
        raise InputError(f"solutions/{path.name} was interrupted; the one on disk stays as it was") from error
    except (CellTimeoutError, DeadKernelError) as error:
        raise InputError(f"solutions/{path.name} stopped: {' '.join(str(error).split())}") from error
    solution.metadata["language_info"] = dict(METADATA["language_info"])
    _keep_pictures_of_widgets(solution)
    _join_streams(solution)


def _join_streams(solution: NotebookNode) -> None:
    """What a cell prints comes in more messages the busier the machine is: one output of all that follow each other."""
    for cell in solution.cells:
        joined: list[NotebookNode] = []
        for output in cell.get("outputs", []):
            before = joined[-1] if joined else {}
            if output.output_type == "stream" and before.get("name") == output.name:
                before.text += output.text
            else:
                joined.append(output)
        if "outputs" in cell:
            cell.outputs = joined


def _keep_pictures_of_widgets(solution: NotebookNode) -> None:
    """A widget lives in a kernel. What is kept of it is its picture, which a page without a kernel can show."""
    solution.metadata.pop("widgets", None)
    for cell in solution.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                data.pop("application/vnd.jupyter.widget-view+json", None)


def _as_text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook) + "\n"


def _write(path: Path, notebook: NotebookNode) -> None:
    nbformat.validate(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_as_text(notebook), encoding="utf-8", newline="\n")
