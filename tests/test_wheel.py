"""Test a copy installed without a checkout. Without these tests, `uvx transformer-lab open` might find no notebooks."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("transformer_lab", "notebooks", "results", "pyproject.toml", "setup.py", "README.md", "LICENSE")

ADDRESS = "--LabApp.default_url=/lab/tree/00_tour.ipynb"
OPEN = """
import sys, jupyterlab.labapp
from transformer_lab.cli import main
jupyterlab.labapp.main = lambda arguments: print(*arguments)
sys.argv = ["transformer-lab", "open", "--no-browser"]
main()
"""

FACTS = """
import json, transformer_lab
from transformer_lab import doctor
from transformer_lab.classroom.course import Course
from transformer_lab.decoding import load_pretrained
from transformer_lab.electives.language_records import recorded_languages
from transformer_lab.electives.recurrent_comparison import recorded_comparison
from transformer_lab.electives.search import recorded_search
print(json.dumps({
    "package": transformer_lab.__file__,
    "course": str(Course.find().folder),
    "notebooks": doctor.find_notebook().observed,
    "advice": doctor.INSTALL,
    "languages": list(recorded_languages()),
    "compared": list(recorded_comparison()["models"]),
    "searched": len(recorded_search().trials),
    "translation": load_pretrained().translate(["Ein Hund rennt."]),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from a copy of the repository, because setuptools leaves a `build` folder behind."""
    copy, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".ipynb_checkpoints")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*build, "--wheel-dir", str(out), str(copy)], check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(code: str, unpacked: Path, here: Path) -> str:
    """Run Python code outside the checkout, using the package from the wheel."""
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=here, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_contains_the_whole_package_and_the_notebooks(wheel):
    """It is easy to forget a new file type in `package-data`. Then the files are missing only from installed copies."""
    names = set(zipfile.ZipFile(wheel).namelist())
    package = [path for path in (ROOT / "transformer_lab").rglob("*") if path.is_file()]
    wanted = {path.relative_to(ROOT).as_posix() for path in package if path.suffix != ".pyc"}
    wanted |= {f"transformer_lab/notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert sorted(wanted - names) == []
    assert "transformer_lab/notebooks/00_tour.ipynb" in names
    assert not [name for name in names if name.startswith(("tests/", "solutions/", "notebooks/"))]
    assert wheel.stat().st_size < 10 * 2**20


def test_open_copies_the_wheels_notebooks_into_the_current_folder(unpacked, tmp_path):
    tour = tmp_path / "my_course" / "00_tour.ipynb"
    assert run(OPEN, unpacked, tmp_path).split() == [str(tour), ADDRESS, "--no-browser"]
    originals = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [path.name for path in sorted(tour.parent.glob("*.ipynb"))] == [path.name for path in originals]
    assert all((tour.parent / path.name).read_bytes() == path.read_bytes() for path in originals)

    tour.write_text("my work", encoding="utf-8")
    assert run(OPEN, unpacked, tour.parent).split() == [str(tour), ADDRESS, "--no-browser"]  # not my_course/my_course
    assert tour.read_text(encoding="utf-8") == "my work"


def test_the_wheel_contains_the_data_that_the_notebooks_show(unpacked, tmp_path):
    """The wheel needs the included model and the recorded results that the electives compare a reader's run with."""
    facts = json.loads(run(FACTS, unpacked, tmp_path))
    package = unpacked / "transformer_lab"
    assert facts["package"] == str(package / "__init__.py")
    assert facts["course"] == facts["notebooks"] == str(package / "notebooks")
    assert "requirements.txt" not in facts["advice"]  # an installed copy has no such file
    assert all(facts[name] for name in ("languages", "compared", "searched"))
    assert "dog" in facts["translation"][0]
