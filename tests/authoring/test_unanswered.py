"""If a student runs every cell before writing any answer, only cells that use an answer may fail, and the error
must say so."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
WITH_EXERCISES = [path for path in NOTEBOOKS if '"exercise-' in path.read_text(encoding="utf-8")]


def run_all_cells(path: Path, folder: Path, environment: dict[str, str]) -> nbformat.NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=300, iopub_timeout=300, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment)
    return notebook


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_only_unwritten_answers_fail(tmp_path, path, notebook_environment):
    notebook = run_all_cells(path, tmp_path, notebook_environment)
    unwritten = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        errors = [output for output in cell.outputs if output.output_type == "error"]
        assert [error.ename for error in errors] in ([], ["NotImplementedError"]), (cell.id, errors)
        unwritten += len(errors)
        if cell.id.startswith("check-"):
            (report,) = [output.data["text/plain"] for output in cell.outputs if "data" in output]
            assert re.search("not attempted", report), cell.id
    assert unwritten
