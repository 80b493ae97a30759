"""Release notebooks to students, along with a page about submitting them and a manifest that lists their points."""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat

from transformer_lab.classroom.course import Course, check_of, exercise_of
from transformer_lab.classroom.page_templates import render
from transformer_lab.errors import InputError
from transformer_lab.exercises.cells import is_unwritten
from transformer_lab.files import write_file

FORMAT = 1  # format version of the manifest
PREVIOUS = "README.md before"  # key in the manifest for the previous page's checksum, until the new page is written


def release(name: str, out: Path, course: Course, address: str | None = None) -> list[Path]:
    """Write the student's notebook, `README.md`, and `manifest.json` into `out`, each atomically.

    The manifest keeps earlier releases in the same folder. Releasing the same notebook again writes the same bytes.

    Args:
        name: The notebook, such as `03` or `03_masks`.
        out: A folder, which is created if it does not exist.
        course: The course notebooks.
        address: The URL of the repository that students clone. It appears on the page, and later releases reuse it.

    Returns:
        The files that were written.

    Raises:
        InputError: The notebook does not exist, contains an answer, or lists points that differ from those in the
            package. Also raised if a file in `out` was not released there or has been changed since.
    """
    name = course.full_name(name)
    out = Path(out).resolve()
    _check_answers_and_points(name, course)
    notebook = course.notebook(name)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    text = nbformat.writes(notebook) + "\n"
    path, page, manifest_path = out / f"{name}.ipynb", out / "README.md", out / "manifest.json"
    manifest = _read_manifest(manifest_path)
    released = manifest["notebooks"].get(name)
    _refuse_to_overwrite(path, text, {released.get("sha256")} if isinstance(released, dict) else set())
    manifest["notebooks"] = dict(sorted({**manifest["notebooks"], name: _entry(name, text, course)}.items()))
    manifest["address"] = address or manifest["address"]
    readme = render("handout.md", notebooks=list(manifest["notebooks"].values()), address=manifest["address"])
    _refuse_to_overwrite(page, readme, {manifest["README.md"], manifest.pop(PREVIOUS, None)})
    previous = {PREVIOUS: manifest["README.md"]}
    manifest["README.md"] = _checksum(readme)
    write_file(path, text)
    # Even after an interruption here, the manifest has the checksum of the page on disk.
    write_file(manifest_path, json.dumps(manifest | previous, indent=1) + "\n")
    write_file(page, readme)
    write_file(manifest_path, json.dumps(manifest, indent=1) + "\n")
    return [path, page, manifest_path]


def _check_answers_and_points(name: str, course: Course) -> None:
    """Reject a notebook that contains an answer or was built before the package's points changed."""
    path, exercises = course.paths[name], {exercise.name: exercise for exercise in course.exercises(name)}
    for cell in course.notebook(name).cells:
        exercise = exercises.get(exercise_of(cell) or check_of(cell))
        if exercise is None:
            continue
        points = cell.metadata.nbgrader.get("points", exercise.points)  # only check cells have points
        if points != exercise.points:
            raise InputError(
                f"{path} gives {points:g} points for `{exercise.name}`, but the package gives {exercise.points:g}: "
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
    return empty | {key: manifest[key] for key in ("notebooks", "address", "README.md", PREVIOUS) if key in manifest}


def _refuse_to_overwrite(path: Path, text: str, released: set[str | None]) -> None:
    """Reject a file that differs from `text` and was not released here, because it may be the user's own work."""
    if not path.exists() or path.read_bytes() == text.encode():
        return
    if hashlib.sha256(path.read_bytes()).hexdigest() not in released:
        raise InputError(f"{path} was not released there, or has been changed since: move it, or choose another folder")


def _entry(name: str, text: str, course: Course) -> dict[str, Any]:
    exercises = [
        {"name": e.name, "cell": f"exercise-{e.name}", "points": e.points, "minutes": e.minutes}
        for e in course.exercises(name)
    ]
    return {
        "file": f"{name}.ipynb",
        "sha256": _checksum(text),
        "version": version("transformer-lab"),
        "points": sum(exercise["points"] for exercise in exercises),
        "minutes_of_exercises": sum(exercise["minutes"] for exercise in exercises),  # not counting the time to read
        "exercises": exercises,
    }


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
