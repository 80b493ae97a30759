"""Releases notebooks to students: the notebook, a page that says how to submit it, and a list of what counts."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat

from transformer_lab.classroom.cells import is_unwritten
from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.classroom.pages import render
from transformer_lab.errors import InputError
from transformer_lab.files import write_file

FORMAT = 1  # of the manifest
BEFORE = "README.md before"  # in a manifest whose page was still to be written


def release(name: str, out: Path, course: Course, address: str | None = None) -> list[Path]:
    """Write the student's notebook, `README.md`, and `manifest.json` into `out`, each in one step.

    Earlier releases into the same folder stay in the manifest. The same release yields the same bytes.

    Args:
        name: Of a notebook: `03`, or `03_masks`.
        out: A folder; it is made if it does not exist.
        course: Where the notebooks are.
        address: What students clone, for their page. Later releases remember it.

    Returns:
        The files that were written.

    Raises:
        InputError: There is no such notebook, it cannot be released as it is (an exercise has been answered in it, or
            has other points than in the package), or `out` has a file of that name that was not released there or was
            changed since.
    """
    name = course.full_name(name)
    out = Path(out).resolve()
    _refuse_answers_and_other_points(name, course)
    notebook = course.notebook(name)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    text = nbformat.writes(notebook) + "\n"
    path, page, list_of_all = out / f"{name}.ipynb", out / "README.md", out / "manifest.json"
    manifest = _read_manifest(list_of_all)
    released = manifest["notebooks"].get(name)
    _refuse_to_overwrite(path, text, {released.get("sha256")} if isinstance(released, dict) else set())
    manifest["notebooks"] = dict(sorted({**manifest["notebooks"], name: _entry(name, text, course)}.items()))
    manifest["address"] = address or manifest["address"]
    readme = render("handout.md", notebooks=list(manifest["notebooks"].values()), address=manifest["address"])
    _refuse_to_overwrite(page, readme, {manifest["README.md"], manifest.pop(BEFORE, None)})
    before = {BEFORE: manifest["README.md"]}
    manifest["README.md"] = _checksum(readme)
    write_file(path, text)
    # Whenever this is interrupted, the manifest knows the page that is there.
    write_file(list_of_all, json.dumps(manifest | before, indent=1) + "\n")
    write_file(page, readme)
    write_file(list_of_all, json.dumps(manifest, indent=1) + "\n")
    return [path, page, list_of_all]


def _refuse_answers_and_other_points(name: str, course: Course) -> None:
    """Refuse a notebook that somebody has worked in, or that was built before the package's points changed."""
    path, exercises = course.paths[name], {exercise.name: exercise for exercise in course.exercises(name)}
    for cell in course.notebook(name).cells:
        exercise = exercises.get(exercise_of(cell) or check_of(cell))
        if exercise is None:
            continue
        points = cell.metadata.nbgrader.get("points", exercise.points)  # the check's
        if points != exercise.points:
            raise InputError(
                f"{path} gives `{exercise.name}` {points:g} points, and the package {exercise.points:g}: "
                f"run `make notebooks ARGS={name}` before you release it"
            )
        if exercise_of(cell) and not is_unwritten(cell.source, exercise.name, exercise.blank):
            raise InputError(
                f"{path} has an answer to `{exercise.name}`: build it again "
                f"(python -m transformer_lab.authoring build {name}) before you release it"
            )


def _read_manifest(path: Path) -> dict[str, Any]:
    empty = {"format": FORMAT, "package": "transformer-lab", "version": version("transformer-lab"), "notebooks": {}}
    empty |= {"address": None, "README.md": None}
    if not path.exists():
        return empty
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest["notebooks"], dict) or manifest["format"] != FORMAT:
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path} is not the manifest of a release: remove it, or choose another folder") from None
    return empty | {key: manifest[key] for key in ("notebooks", "address", "README.md", BEFORE) if key in manifest}


def _refuse_to_overwrite(path: Path, text: str, released: set[str | None]) -> None:
    """Refuse to replace anything but the text itself or what was released: the folder may hold somebody's own work."""
    if not path.exists() or path.read_bytes() == text.encode():
        return
    if hashlib.sha256(path.read_bytes()).hexdigest() not in released:
        raise InputError(f"{path} was not released there, or was changed since: move it away, or choose another folder")


def _entry(name: str, text: str, course: Course) -> dict[str, Any]:
    exercises = course.exercises(name)
    return {
        "file": f"{name}.ipynb",
        "sha256": _checksum(text),
        "version": version("transformer-lab"),
        "points": sum(exercise.points for exercise in exercises),
        "minutes_of_exercises": sum(exercise.minutes for exercise in exercises),  # reading takes more
        "exercises": [
            {
                "name": exercise.name,
                "cell": f"exercise-{exercise.name}",
                "points": exercise.points,
                "minutes": exercise.minutes,
            }
            for exercise in exercises
        ],
    }


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
