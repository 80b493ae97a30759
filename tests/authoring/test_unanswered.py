"""If a student runs every cell before writing any answer, only cells that use an answer may fail, and each
error must say that an answer is missing."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from transformer_lab.exercises.cells import names_of, providers_of

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
WITH_EXERCISES = [path for path in NOTEBOOKS if '"exercise-' in path.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def client(notebook_environment):
    """Return a client with a running kernel. Each notebook resets the kernel, because starting another takes longer."""
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=300, iopub_timeout=300, allow_errors=True)
    with client.setup_kernel(env=notebook_environment):
        yield client


def cells_that_depend_on_answers(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return the cells that use an answer, directly or indirectly, and the cells that those cells need.

    All other cells do the same thing as in the solution, and `test_solutions` runs them there.
    """
    names = [names_of(cell.source) for cell in cells]
    reads = [own.reads - own.binds for own in names]
    in_folders: set[str] = set()  # the folder and names derived from it; cells that read them may write there
    for cell, own in zip(cells, names, strict=True):
        if "TemporaryDirectory()" in cell.source or in_folders & own.reads:
            in_folders |= own.binds
    provides = [own.binds | own.changes | (in_folders if own.reads & in_folders else set()) for own in names]
    unwritten: set[str] = set()
    dependent = set()
    for index, cell in enumerate(cells):
        if cell.id.startswith("exercise-") or not names[index].is_python or unwritten & reads[index]:
            dependent.add(index)
            unwritten |= provides[index]
    needed = providers_of({name for index in dependent for name in reads[index]}, provides, reads)
    return [cells[index] for index in sorted(dependent | needed)]


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_only_unwritten_answers_fail(tmp_path, path, client):
    notebook = nbformat.read(path, as_version=4)
    cells = cells_that_depend_on_answers([cell for cell in notebook.cells if cell.cell_type == "code"])
    reset = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}")
    client.nb = nbformat.v4.new_notebook(cells=[reset, *cells])
    unwritten = 0
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
        errors = [output for output in cell.outputs if output.output_type == "error"]
        assert [error.ename for error in errors] in ([], ["NotImplementedError"]), (cell.id, errors)
        unwritten += len(errors)
        if cell.id.startswith("check-"):
            (report,) = [output.data["text/plain"] for output in cell.outputs if "data" in output]
            assert re.search("not attempted", report), cell.id
    assert unwritten
