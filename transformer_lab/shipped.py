"""The location of the files that come with the package: the notebooks and the recorded results.

In a checkout, they are next to the package. In a wheel, `setup.py` puts them inside the package.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the folder `notebooks` or `results`. It does not exist if only the package was copied."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def is_checkout() -> bool:
    """Return whether the package runs from the project's folder rather than from an installed copy."""
    return not (PACKAGE / "notebooks").is_dir() and (PACKAGE.parent / "pyproject.toml").is_file()
