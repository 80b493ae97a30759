"""Puts the notebooks, and the measurements they show, into the package that is built. The rest is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "notebooks/*.ipynb",
    "results/language_model.json",
    "results/recurrent.json",
    "results/*_languages/*.json",
    "results/*_search/*",
)


def shipped_files() -> list[Path]:
    """Return what to copy, relative to the project's folder, which is the current one while setuptools builds."""
    return [path for pattern in SHIPPED for path in sorted(Path().glob(pattern)) if path.is_file()]


class BuildWithNotebooks(build_py):
    """Copies what lies next to the package into it. `transformer_lab.shipped` finds it in both places."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a checkout has them already
            return
        package = Path(self.build_lib) / "transformer_lab"
        for folder in ("notebooks", "results"):
            shutil.rmtree(package / folder, ignore_errors=True)  # left by an earlier build
        for path in shipped_files():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, package / path)

    def get_source_files(self) -> list[str]:
        """Add the same files to a source distribution, so that a wheel can be built from it."""
        return [*super().get_source_files(), *map(str, shipped_files())]


setup(cmdclass={"build_py": BuildWithNotebooks})
