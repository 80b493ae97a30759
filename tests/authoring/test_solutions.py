"""Without these tests, a notebook could become outdated or stop working while every other test passes."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from transformer_lab.authoring import outdated_notebooks
from transformer_lab.exercises import exercises

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))


def test_every_built_notebook_matches_its_text():
    assert outdated_notebooks(ROOT, exercises()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_student_notebook_has_no_outputs(path):
    """Student notebooks have no outputs, except for the tour, which has no exercises."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    has_outputs = any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    assert has_outputs == (path.stem == "00_tour")


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_solution_has_alternative_texts_and_no_errors(path):
    """Blind readers depend on the alt text of pictures. No output may contain a traceback or a warning."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    pictures = [output.data for output in outputs if "data" in output]
    assert not [data for data in pictures if "image/png" in data and "text/html" not in data]
    # a widget does not work without a kernel, so a picture of it is stored instead
    assert not [data for data in pictures if "application/vnd.jupyter.widget-view+json" in data]
    images = [data["text/html"] for data in pictures if "<img" in data.get("text/html", "")]
    assert images
    assert all('<img alt="' in image and '<img alt=""' not in image for image in images)


def run_with_nbval(path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax", str(path)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_solution_runs_as_stored(path, notebook_environment):
    """Every cell must run, and the checks must print the same output as when the solution was built."""
    done = run_with_nbval(path, notebook_environment)
    assert done.returncode == 0, done.stdout[-4000:]
