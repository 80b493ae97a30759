"""What students get: the notebook, a page that says how to hand it in, and a list of what counts."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lab.classroom.cells import is_unwritten
from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.classroom.writing import write_file
from transformer_lab.errors import InputError

FORMAT = 1  # of the manifest
BEFORE = "README.md before"  # in a list whose page was still to be written


def release(name: str, out: Path, course: Course, address: str | None = None) -> list[Path]:
    """Writes the student's notebook, `README.md` and `manifest.json` into `out`, each in one step.

    What was released there before stays in the list. The same release gives the same bytes.

    Args:
        name: Of a notebook: `03`, or `03_masks`.
        out: A folder; it is made if it is not there.
        course: Where the notebooks are.
        address: What students clone, for their page. What was given once stands there in later releases too.

    Returns:
        The files that were written.

    Raises:
        InputError: There is no such notebook, it is not as it is to be handed out (an exercise has been answered in
            it, or has other points than in the package), or `out` holds a file of that name that was not released
            there, or was changed since.
    """
    name = course.full_name(name)
    out = Path(out).resolve()
    text = nbformat.writes(_without_outputs(course.notebook(name))) + "\n"
    _refuse_answers(name, course)
    _refuse_other_points(name, course)
    manifest = _manifest(out)
    path = out / f"{name}.ipynb"
    released = manifest["notebooks"].get(name)
    _refuse_to_overwrite(path, text, {released.get("sha256")} if isinstance(released, dict) else set())
    manifest["notebooks"] = dict(sorted({**manifest["notebooks"], name: _entry(name, text, course)}.items()))
    manifest["address"] = address or manifest["address"]
    readme = _readme(manifest)
    _refuse_to_overwrite(out / "README.md", readme, {manifest["README.md"], manifest.pop(BEFORE, None)})
    before = {BEFORE: manifest["README.md"]}
    manifest["README.md"] = _checksum(readme)
    write_file(path, text)
    # Whenever this ends, the list knows the page that lies there.
    write_file(out / "manifest.json", json.dumps(manifest | before, indent=1) + "\n")
    write_file(out / "README.md", readme)
    write_file(out / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    return [path, out / "README.md", out / "manifest.json"]


def _without_outputs(notebook: NotebookNode) -> NotebookNode:
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def _refuse_answers(name: str, course: Course) -> None:
    """Somebody may have worked in the notebooks of the course."""
    blank = {exercise.name: exercise.blank for exercise in course.exercises(name)}
    for cell in course.notebook(name).cells:
        exercise = exercise_of(cell)
        if exercise and not is_unwritten(cell.source, exercise, blank[exercise]):
            raise InputError(
                f"{course.paths[name]} holds an answer to `{exercise}`: build it anew "
                f"(python -m transformer_lab.authoring build {name}) before you hand it out"
            )


def _refuse_other_points(name: str, course: Course) -> None:
    """Points are written into a notebook when it is built, and may have been changed in the package since."""
    points = {exercise.name: exercise.points for exercise in course.exercises(name)}
    for cell in course.notebook(name).cells:
        exercise = check_of(cell)
        said = cell.metadata.get("nbgrader", {}).get("points")
        if exercise in points and said not in (None, points[exercise]):
            raise InputError(
                f"{course.paths[name]} gives `{exercise}` {said:g} points, and the package {points[exercise]:g}: "
                f"run `make notebooks ARGS={name}` before you hand it out"
            )


def _manifest(out: Path) -> dict[str, Any]:
    path = out / "manifest.json"
    empty = {"format": FORMAT, "package": "transformer-lab", "version": version("transformer-lab"), "notebooks": {}}
    empty |= {"address": None, "README.md": None}
    if not path.exists():
        return empty
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        known = isinstance(manifest["notebooks"], dict) and manifest["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise InputError(f"{path} is no list of a release: remove it, or choose another folder")
    return {**empty, **{key: manifest[key] for key in ("notebooks", "address", "README.md", BEFORE) if key in manifest}}


def _refuse_to_overwrite(path: Path, text: str, recorded: set[str | None]) -> None:
    """The folder may be somebody's own, with their work in it."""
    if not path.exists() or path.read_bytes() == text.encode():
        return
    if hashlib.sha256(path.read_bytes()).hexdigest() not in recorded:
        raise InputError(f"{path} was not released there, or was changed since: move it away, or choose another folder")


def _entry(name: str, text: str, course: Course) -> dict[str, Any]:
    found = course.exercises(name)
    return {
        "file": f"{name}.ipynb",
        "sha256": _checksum(text),
        "version": version("transformer-lab"),
        "points": sum(exercise.points for exercise in found),
        "minutes_of_exercises": sum(exercise.minutes for exercise in found),  # what it "takes" is more: reading
        "exercises": [
            {
                "name": exercise.name,
                "cell": f"exercise-{exercise.name}",
                "points": exercise.points,
                "minutes": exercise.minutes,
            }
            for exercise in found
        ],
    }


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _readme(manifest: dict[str, Any]) -> str:
    rows = []
    for entry in manifest["notebooks"].values():
        names = ", ".join(f"`{exercise['name']}` ({exercise['points']:g})" for exercise in entry["exercises"])
        rows.append(f"| [{entry['file']}]({entry['file']}) | {names or 'none'} | {entry['points']:g} |")
    names = [exercise["name"] for entry in manifest["notebooks"].values() for exercise in entry["exercises"]]
    hint = f'`hint("{names[0]}")` helps with the exercise of that name.\n' if names else ""
    note = "" if manifest["address"] else "    # ADDRESS: the address your teacher gives you"
    return README.format(rows="\n".join(rows), hint=hint, address=manifest["address"] or "ADDRESS", note=note)


README = """# Your notebooks

| notebook | exercises (points) | points |
| --- | --- | --- |
{rows}

## Set up, once

You need Python 3.11 or newer. On Linux or macOS:

```sh
git clone {address} transformer-lab{note}
cd transformer-lab
make course                          # takes some minutes, then opens the tour in JupyterLab
```

The project's own `README.md` says how it is done on Windows, or with conda.

## Work

In the folder `transformer-lab`, `source .venv/bin/activate` makes the commands known. Go from there to the folder of
this page, and open a notebook in JupyterLab (`jupyter lab`). If something is missing, `transformer-lab doctor` says
what.

Write the exercises, where it says `# YOUR CODE HERE`, and take out the line `raise NotImplementedError()`. Run the
check below: it says at once whether you are right, and if not, what you did.
{hint}
A part that passes is kept in a folder `mine` beside the notebook, and later notebooks go on with it: so keep your
notebooks in one folder.

## Hand in

- Hand in the notebook itself, the `.ipynb` file, saved. Its outputs do not matter: your code is run again.
- Your answer is found by the cell of the exercise, or by its name: call the function as it is called in the notebook.
  If it is defined twice, the last definition counts.
- You may add cells of your own before an exercise, with imports and helpers. Cells of the course are taken from the
  course: what you change in them does not count.
- Your code may import torch, numpy, Python's standard library, and what the notebook imports itself. Use no other: what
  else you have installed, such as scipy or einops, may be missing where it is graded.
- Your code runs without a network and without other files, and a cell may take 30 seconds. What takes longer, such as
  a training of your own, leave out of what you hand in.

## What counts

Your function or class is called with inputs that nobody has seen, and what it gives is compared with what is right.
How you wrote it makes no difference, but keep the names that the exercise gives. A mistake costs once: later exercises
are tried with right parts in the place of your earlier ones. Where an exercise asks you to build something that a
library has ready, build it: whoever grades is shown where a ready answer is called.
"""
