"""Add the notebooks and the measurements they show to the built package. All other settings are in pyproject.toml."""

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
    """Return the files to copy, relative to the project's folder, which is the current folder during a build."""
    return [path for pattern in SHIPPED for path in sorted(Path().glob(pattern)) if path.is_file()]


class BuildWithNotebooks(build_py):
    """Copy these files from next to the package into it. `transformer_lab.shipped` finds them in both places."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a checkout already has them
            return
        package = Path(self.build_lib) / "transformer_lab"
        for folder in ("notebooks", "results"):
            shutil.rmtree(package / folder, ignore_errors=True)  # left over from an earlier build
        for path in shipped_files():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, package / path)

    def get_source_files(self) -> list[str]:
        """Add the same files to a source distribution, so that a wheel can be built from it."""
        return [*super().get_source_files(), *map(str, shipped_files())]


setup(cmdclass={"build_py": BuildWithNotebooks})
