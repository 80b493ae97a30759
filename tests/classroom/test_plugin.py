"""Grade with plain pytest: `pytest --transformer-lab-grade`."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]


def pytest_in(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [*PYTEST, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_it_costs_other_runs_of_pytest_nothing():
    """If the package is installed, pytest imports the plug-in on every run, so importing it must be cheap."""
    code = "import sys, transformer_lab.classroom.plugin; print({'torch', 'nbval', 'numpy', 'zmq'} & {*sys.modules})"
    asked = [sys.executable, "-c", code]
    assert subprocess.run(asked, capture_output=True, text=True, timeout=100, check=True).stdout == "set()\n"


def test_pytest_finds_it():
    from importlib.metadata import entry_points

    assert entry_points(group="pytest11")["transformer_lab"].value == "transformer_lab.classroom.plugin"


@pytest.fixture(scope="module")
def graded(notebook_of, tmp_path_factory):
    """Grade a notebook with one correct, one wrong, and one unattempted exercise."""
    folder = tmp_path_factory.mktemp("handed in")
    notebook = notebook_of(
        "03_masks",
        padding_mask="def padding_mask(tokens, pad_id):\n    return (tokens != pad_id)[:, None, None, :]\n1 / 0",
        causal_mask=(
            "# NBVAL_SKIP\ndef causal_mask(length, device=None):\n    return torch.ones(1, 1, length, length)"
        ),
    )
    (folder / "03 masks (1).ipynb").write_text(json.dumps(notebook))
    (folder / "test_forged.py").write_text("def test_forged(): pass")
    (folder / "conftest.py").write_text("")  # most projects have this file, which pytest checks for plug-ins
    ran = pytest_in(folder, "--transformer-lab-grade", "03 masks (1).ipynb", "--junitxml=junit.xml")
    return ran, folder


def test_it_prints_a_line_for_each_exercise(graded):
    ran, _ = graded
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert ["padding_mask", "passed", "1", "of", "1"] in lines, ran.stdout + ran.stderr
    assert ["causal_mask", "failed", "0", "of", "1"] in lines
    assert ["target_mask", "not", "attempted", "0", "of", "1"] in lines
    assert "1 of 3 points" in ran.stdout
    assert ran.returncode == 1


def test_junit_has_cells_and_exercises_with_their_ids_and_points(graded):
    _ran, folder = graded
    cases = {}
    for case in ElementTree.parse(folder / "junit.xml").getroot().iter("testcase"):
        cases[case.get("name")] = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert cases["padding_mask"] == {
        "exercise": "padding_mask",
        "cell_id": "exercise-padding_mask",
        "state": "passed",
        "points": "1",
        "possible": "1",
    }
    assert {"cell_id": "check-causal_mask", "check": "causal_mask"} in cases.values()
    assert "test_forged" not in cases


def test_it_leaves_nothing_behind(graded):
    _, folder = graded
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == [
        "03 masks (1).ipynb",
        "conftest.py",
        "junit.xml",
        "test_forged.py",
    ]


def test_a_file_that_is_no_notebook_is_refused_in_one_line(tmp_path):
    (tmp_path / "mine.ipynb").write_text("{")
    ran = pytest_in(tmp_path, "--transformer-lab-grade", "mine.ipynb")
    assert ran.returncode == 4
    (line,) = ran.stderr.strip().splitlines()
    assert "cannot be graded" in line
