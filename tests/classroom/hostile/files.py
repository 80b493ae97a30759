"""Files that are not notebooks, and damaged or forged notebooks.

Each entry is `name: function that takes the solution`.
"""

import copy
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

Notebook = dict[str, Any]


def zipped(notebook: Notebook) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("03_masks.ipynb", json.dumps(notebook))
    return made.getvalue()


NOT_GRADABLE: dict[str, tuple[Callable[[Notebook], bytes], str]] = {
    "empty": (lambda notebook: b"", "empty"),
    "only spaces": (lambda notebook: b" \n" * 1000, "empty"),
    "cut off": (lambda notebook: json.dumps(notebook).encode()[:-2000], "incomplete"),
    "a script": (lambda notebook: b"import os\nos._exit(0)\n", "not a notebook"),
    "bytes": (lambda notebook: bytes(range(256)) * 100, "UTF-8"),
    "UTF-16": (lambda notebook: json.dumps(notebook).encode("utf-16"), "UTF-16"),
    "a zip that was renamed": (zipped, "zip"),
    "a list": (lambda notebook: b"[1, 2, 3]", "no list of cells"),
    "cells that are none": (lambda notebook: b'{"cells": {"0": "x"}, "nbformat": 4}', "no list of cells"),
    "brackets": (lambda notebook: b"[" * 1_000_000, ""),
    "a digit": (lambda notebook: b'{"cells": [' + b"9" * 100_000 + b"]}", ""),
    "another course's": (
        lambda notebook: json.dumps({"cells": [{"cell_type": "code", "source": "x = 1"}], "nbformat": 4}).encode(),
        "not one of this course's",
    ),
}


def _of(notebook: Notebook, exercise: str) -> dict[str, Any]:
    return next(cell for cell in notebook["cells"] if cell["id"] == f"exercise-{exercise}")


def twice(notebook: Notebook) -> bytes:
    """Return a notebook in which two cells have the same ID. The second cell counts, but its answer is wrong."""
    cell = copy.deepcopy(_of(notebook, "causal_mask"))
    cell["source"] = "def causal_mask(length, device=None):\n    return torch.ones(1, 1, length, length).bool()"
    notebook["cells"].append(cell)
    return json.dumps(notebook).encode()


def all_the_same_id(notebook: Notebook) -> bytes:
    for cell in notebook["cells"]:
        cell["id"] = "exercise-causal_mask"
        cell["metadata"] = {"transformer_lab": {"exercise": "causal_mask"}}
    return json.dumps(notebook).encode()


def forged(notebook: Notebook) -> bytes:
    """Return wrong answers whose outputs, scores, and tags claim that they are correct."""
    for cell in notebook["cells"]:
        cell["metadata"] |= {"tags": ["nbval-skip"], "nbgrader": {"grade": True, "points": 100, "solution": False}}
        if cell["cell_type"] != "code":
            continue
        if cell["id"].startswith("exercise-"):
            name = cell["id"].removeprefix("exercise-")
            cell["source"] = f"def {name}(*anything, **more):\n    return torch.ones(1, 1, 1, 1)"
        if cell["id"].startswith("check-"):
            name = cell["id"].removeprefix("check-")
            cell["source"] = f'print("submitted: {name}")'
            text = f"submitted: {name}\n✓ {name}: all checks passed\n"
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
    notebook["metadata"] |= {"kernelspec": {"name": "python3", "argv": ["sh", "-c", "kill 0"]}, "score": 100}
    return json.dumps(notebook).encode()


def strange(notebook: Notebook) -> bytes:
    """Return correct answers surrounded by invalid cells and invalid metadata."""
    junk: list[Any] = [None, 3, "cell", [], {}, {"cell_type": 5, "source": {}}, {"cell_type": "code", "source": [1]}]
    notebook["cells"] += [*junk, {"cell_type": "code", "id": ["x"], "source": "\ud800", "metadata": [], "outputs": 7}]
    notebook |= {"metadata": None, "nbformat": "four", "nbformat_minor": float("nan"), "\ud800": 1}
    return json.dumps(notebook).encode()


def old(notebook: Notebook) -> bytes:
    """Return the notebook in format version 3, which has worksheets and no cell IDs."""
    cells = [
        {"cell_type": cell["cell_type"], "input" if cell["cell_type"] == "code" else "source": cell["source"]}
        for cell in notebook["cells"]
    ]
    return json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}).encode()


def crowded(notebook: Notebook) -> bytes:
    """Return the notebook with thousands of additional cells that no answer uses."""
    notebook["cells"] += [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "source": f"x{n} = {n}"}
        for n in range(3000)
    ]
    return json.dumps(notebook).encode()


def lone_surrogates(notebook: Notebook) -> bytes:
    """Return the notebook with an answer whose text JSON can represent but UTF-8 cannot."""
    _of(notebook, "causal_mask")["source"] += "\nx = '\ud800 \udfff'"
    return json.dumps(notebook).encode()


FAILED = {("failed", 0.0)}
GRADED: dict[str, tuple[Callable[[Notebook], bytes], dict[str, set[tuple[str, float]]]]] = {
    "lone surrogates": (lone_surrogates, {}),
    "one id twice": (twice, {"causal_mask": FAILED}),
    "one id for all": (all_the_same_id, {}),
    "forged outputs and metadata": (forged, dict.fromkeys(("padding_mask", "causal_mask", "target_mask"), FAILED)),
    "cells that are no cells": (strange, {}),
    "of an old version": (old, {}),
    "three thousand cells": (crowded, {}),
}
