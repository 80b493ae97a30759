"""The reader's own copy of the notebooks, so that nobody edits files that Git tracks."""

import json
import os
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from transformer_lab.errors import InputError
from transformer_lab.shipped import PACKAGE, shipped

NOTEBOOKS = shipped("notebooks")
JUPYTER = Path(__file__).resolve().parent / "jupyter"  # settings that keep JupyterLab calm
DIGESTS = ".digests.json"  # of each notebook as it was when it was copied
WORKSPACES = ".workspaces"  # which panels and notebooks were open


def folder_for(notebooks: Path = NOTEBOOKS) -> Path:
    """Return the folder for the reader's copy: next to `notebooks/` in a checkout, else in the current folder."""
    if notebooks.parent != PACKAGE:
        return notebooks.parent / "my_course"
    here = Path.cwd()  # the notebooks are in an installed package, which an update or a cache may remove
    return here if (here / DIGESTS).is_file() else here / "my_course"


def prepare(folder: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Copy the notebooks that `folder` lacks, and return those whose original has changed since it was copied."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine").mkdir(exist_ok=True)
    for original in sorted(notebooks.iterdir()):
        if original.is_file() and not (folder / original.name).exists():
            copy(original, folder)
    digests = read_digests(folder)
    return [name for name in sorted(digests) if (path := notebooks / name).exists() and digest(path) != digests[name]]


def refresh(folder: Path, number: str, notebooks: Path = NOTEBOOKS) -> tuple[Path, Path | None]:
    """Replace a notebook by its original; return it, and where the reader's version was kept.

    Raises:
        InputError: no notebook, or more than one, starts with `number`.
    """
    found = sorted(notebooks.glob(f"{number}*.ipynb")) if number.isalnum() or number.isidentifier() else []
    if len(found) != 1:
        raise InputError(f'no single notebook starts with {number!r}; for example "transformer-lab open --fresh 03"')
    folder.mkdir(parents=True, exist_ok=True)
    current, kept = folder / found[0].name, None
    if current.exists():
        taken = 1
        while (kept := current.with_stem(f"{current.stem}_old{taken}")).exists():
            taken += 1
        current.rename(kept)
    copy(found[0], folder)
    return current, kept


def jupyterlab_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give JupyterLab the course's settings, and write its first layout into `folder`.

    The layout shows the table of contents instead of the files. It lies in `folder`, and so does what the reader makes
    of it: the windows and settings of the reader's other work stay as they are.
    """
    from jupyterlab_server.workspaces_handler import slugify

    workspaces = folder / WORKSPACES
    first_layout = workspaces / f"{slugify('default')}.jupyterlab-workspace"
    if not first_layout.exists():
        workspaces.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(JUPYTER / "workspace.json", first_layout)
    searched = {
        name: os.pathsep.join([str(JUPYTER), *filter(None, [environment.get(name)])])
        for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")  # where labconfig/ and labextensions/ are looked for
    }
    return searched | {"JUPYTERLAB_WORKSPACES_DIR": str(workspaces)}


def copy(original: Path, folder: Path) -> None:
    shutil.copyfile(original, folder / original.name)
    digests = read_digests(folder) | {original.name: digest(original)}
    (folder / DIGESTS).write_text(json.dumps(digests, indent=1), encoding="utf-8")


def read_digests(folder: Path) -> dict[str, str]:
    path = folder / DIGESTS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
