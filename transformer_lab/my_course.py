"""The reader's own copy of the notebooks, so that readers never have to edit a file that Git tracks."""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformer_lab.errors import InputError
from transformer_lab.files import write_file
from transformer_lab.shipped import PACKAGE

JUPYTER = Path(__file__).resolve().parent / "jupyter"  # settings that keep JupyterLab quiet
DIGESTS = ".digests.json"  # one for each notebook, taken when it was copied
WORKSPACES = ".workspaces"  # the panels and notebooks that were open


def folder_for(notebooks: Path) -> Path:
    """Return the folder for the reader's copy: next to `notebooks/` in a checkout, or else in the current folder."""
    if notebooks.parent != PACKAGE:
        return notebooks.parent / "my_course"
    here = Path.cwd()  # the notebooks are in an installed package, which may be updated or deleted
    return here if (here / DIGESTS).is_file() else here / "my_course"


def prepare(folder: Path, notebooks: Path) -> list[str]:
    """Copy the notebooks missing from `folder`, and return the names of copies whose original has since changed."""
    (folder / "mine").mkdir(parents=True, exist_ok=True)
    originals = [path for path in sorted(notebooks.iterdir()) if path.is_file()]
    _copy([path for path in originals if not (folder / path.name).exists()], folder)
    digests = _read_digests(folder)
    return [path.name for path in originals if path.name in digests and digests[path.name] != _digest(path)]


def refresh(folder: Path, number: str, notebooks: Path) -> tuple[Path, Path | None]:
    """Replace a notebook with its original, and return its path and the new path of the reader's version.

    Raises:
        InputError: No notebook, or more than one, starts with `number`.
    """
    originals = list(notebooks.glob(f"{number}*.ipynb")) if number.isidentifier() or number.isalnum() else []
    if len(originals) != 1:
        raise InputError(f"expected the number of a notebook, as in transformer-lab open --fresh 03; got {number!r}")
    notebook, backup = folder / originals[0].name, None
    if notebook.exists():
        backups = (notebook.with_stem(f"{notebook.stem}_old{count}") for count in itertools.count(1))
        backup = notebook.rename(next(path for path in backups if not path.exists()))
    _copy(originals, folder)
    return notebook, backup


def jupyterlab_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the course's settings for JupyterLab, and write its initial layout to `folder`.

    The layout shows the table of contents instead of the files. It is stored in `folder`, along with any changes that
    the reader makes to it, so JupyterLab does not change outside the course.
    """
    from jupyterlab_server.workspaces_handler import slugify

    workspaces = folder / WORKSPACES
    first_layout = workspaces / f"{slugify('default')}.jupyterlab-workspace"
    if not first_layout.exists():
        workspaces.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(JUPYTER / "workspace.json", first_layout)
    searched = {
        name: os.pathsep.join([str(JUPYTER), *filter(None, [environment.get(name)])])
        for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")  # JupyterLab looks for settings and extensions there
    }
    return searched | {"JUPYTERLAB_WORKSPACES_DIR": str(workspaces)}


def _copy(originals: Sequence[Path], folder: Path) -> None:
    if not originals:
        return
    # Write the digests first. A notebook left without one by an interruption could never be recognized as outdated.
    digests = _read_digests(folder) | {original.name: _digest(original) for original in originals}
    write_file(folder.resolve() / DIGESTS, json.dumps(digests, indent=1))
    for original in originals:
        shutil.copyfile(original, folder / original.name)


def _read_digests(folder: Path) -> dict[str, str]:
    path = folder / DIGESTS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
