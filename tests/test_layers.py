"""`make test` runs import-linter. Without these tests, its contract could miss a violation, or even a subpackage."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def layers() -> list[set[str]]:
    """Return the modules of each layer, from the top layer down."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [{name.strip(" ()") for name in re.split("[:|]", layer)} for layer in contract["layers"]]


def test_every_part_of_the_package_belongs_to_a_layer():
    """If a part were outside every layer, it could import any other part without an error."""
    parts = {path.stem for path in (ROOT / "transformer_lab").iterdir() if path.suffix == ".py" or _is_package(path)}
    assert parts - {"__init__", "pretrained"} <= set().union(*layers())


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()


def test_the_order_of_the_layers():
    """The order of the layers is the architecture: moving one would allow imports that the design forbids."""
    order = [next(index for index, layer in enumerate(reversed(layers())) if name in layer) for name in (
        "errors", "model", "decoding", "evaluation", "training", "plots", "exercises", "authoring", "classroom", "cli"
    )]  # fmt: skip
    assert order == sorted(order)
    assert len(set(order)) == len(order)


@pytest.fixture
def lint_package(tmp_path):
    """Return the folder of an empty package with the same layers, and a function that applies the contracts to it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(text[text.index("[tool.importlinter]") :], encoding="utf-8")
    package = tmp_path / "transformer_lab"
    for name in set().union(*layers()):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")

    def lint() -> subprocess.CompletedProcess:
        command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return package, lint


def test_two_files_that_import_each_other_are_detected(lint_package):
    package, lint = lint_package
    (package / "plots" / "curves.py").write_text("from transformer_lab.plots import figures\n")
    (package / "plots" / "figures.py").write_text("")
    assert lint().returncode == 0
    (package / "plots" / "figures.py").write_text("def draw():\n    from transformer_lab.plots import curves\n")
    broken = lint()
    assert broken.returncode == 1
    assert "curves" in broken.stdout


@pytest.mark.parametrize(
    ("lower", "higher"), [("model", "data"), ("data", "model"), ("training", "plots"), ("decoding", "evaluation")]
)
def test_an_import_from_a_higher_or_the_same_layer_is_detected(lint_package, lower, higher):
    """A single forbidden import breaks the contract."""
    package, lint = lint_package
    assert lint().returncode == 0
    (package / lower / "__init__.py").write_text(f"import transformer_lab.{higher}\n")
    broken = lint()
    assert broken.returncode == 1
    said = " ".join(broken.stdout.split())
    assert f"transformer_lab.{lower} is not allowed to import transformer_lab.{higher}" in said
