"""Do the whole course in Jupyter kernels, as a student would. The trained model must be the one the student built."""

import ast
import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from transformer_lab.authoring import marked_answer
from transformer_lab.exercises import exercises

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
LAST = "13_multi30k"

FACTS = """
watch.wait()
yours = Translator.load(folder, Transformer)
print(json.dumps({
    "classes": [[type(part).__module__, type(part).__name__] for part in yours.model.modules()],
    "losses": [record["loss"] for record in read_metrics(folder / "metrics.jsonl") if record["kind"] == "step"],
    "translations": yours.translate(["Zwei Hunde rennen im Park.", "Eine Frau liest ein Buch."]),
}))
"""


def answered(path: Path) -> nbformat.NotebookNode:
    """Return the student's notebook with the package's source as the answer to every exercise."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.id.startswith("exercise-") and (name := cell.id.removeprefix("exercise-")) in exercises():
            assert "raise NotImplementedError()" in cell.source
            cell.source = marked_answer(exercises()[name].answer, exercises()[name].blank)
    return notebook


def imports_and_exercises(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the exercise and check cells, plus the imports from all other cells."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if cell.id.removeprefix("exercise-").removeprefix("check-") not in exercises():
            statements = ast.parse(cell.source).body
            imports = [line for line in statements if isinstance(line, ast.Import | ast.ImportFrom)]
            cell.source = "\n".join(map(ast.unparse, imports))
        if cell.source:
            found.append(cell)
    return found


def run(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """Run a notebook in `folder` in a separate kernel, and return what its last cell printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRANSFORMER_LAB_")}
    environment |= {"IPYTHONDIR": str(folder), "TRANSFORMER_LAB_STRICT": "1", "TRANSFORMER_LAB_PRESET": "tiny"}
    client = NotebookClient(
        notebook, timeout=300, iopub_timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    try:
        client.execute(env=environment)
    except CellExecutionError as error:
        reports = [
            output.data["text/plain"]
            for cell in notebook.cells
            for output in cell.get("outputs", [])
            if "data" in output
        ]
        pytest.fail(f"{error}\n{reports[-1] if reports else ''}")
    return "".join(output.get("text", "") for output in notebook.cells[-1].outputs)


@pytest.mark.skipif(LAST not in [path.stem for path in NOTEBOOKS], reason=f"notebooks/{LAST}.ipynb is not built")
def test_the_last_notebook_trains_what_the_others_have_built(tmp_path):
    """If the trained model contained a class from the package, the student's own version would not have been used."""
    before = [path for path in NOTEBOOKS if "00" < path.stem[:2] < LAST[:2]]
    code, written = nbformat.v4.new_code_cell, set()
    student = nbformat.v4.new_notebook(cells=[])
    for path in before:  # in one kernel that is reset: starting thirteen kernels takes a minute
        cells = imports_and_exercises(answered(path))
        written |= {cell.id.removeprefix("exercise-") for cell in cells} & exercises().keys()
        student.cells += [code("%reset -f"), *(code(cell.source) for cell in cells)]
    run(student, tmp_path)
    assert {file.stem for file in (tmp_path / "mine").glob("*.py")} == written

    last = answered(next(path for path in NOTEBOOKS if path.stem == LAST))
    starts = "train_in_own_process(preset, folder"
    training = next(index for index, cell in enumerate(last.cells) if starts in cell.source)
    last.cells[training + 1 :] = [code(FACTS)]
    facts = json.loads(run(last, tmp_path))
    classes = {(module, name) for module, name in facts["classes"] if not module.startswith("torch.")}
    assert {module for module, _ in classes} == {f"transformer_lab.mine.{name}" for _, name in classes}
    assert {"Transformer", "MultiHeadAttention", "LayerNorm", "TokenEmbedding"} <= {name for _, name in classes}
    assert facts["losses"][-1] < facts["losses"][0] / 2
    assert all(len(translation.split()) > 2 for translation in facts["translations"])
