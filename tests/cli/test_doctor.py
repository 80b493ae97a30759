"""Test the findings and the advice of `transformer-lab doctor`."""

import re
import sys
from types import SimpleNamespace

import pytest

from transformer_lab import doctor


def test_everything_essential_is_installed(lab):
    """On a machine that runs the tests, `transformer-lab doctor` must not report a problem."""
    examined = lab("doctor", "--verbose")
    assert examined.status == 0
    assert "MISSING" not in examined.stdout
    names = "Python", "torch", "jupyterlab", "threads", "GPU", "bfloat16", "Multi30k", "disk", "notebooks", "sandbox"
    for name in names:
        assert name in examined.stdout


@pytest.mark.parametrize(("name", "status", "mark"), [("sacrebleu", 1, "MISSING"), ("spacy", 0, "TO DO")])
def test_a_missing_package_fails_only_if_training_needs_it(lab, monkeypatch, name, status, mark):
    """A script that starts training on a new GPU server should stop at this check instead of an hour later.

    The server can train without packages that only the notebooks need.
    """
    monkeypatch.setitem(sys.modules, name, None)
    examined = lab("doctor")
    assert examined.status == status
    assert re.search(rf"^{mark} +{name} +not installed", examined.stdout, re.MULTILINE)
    assert doctor.INSTALL in " ".join(examined.stdout.split())


def test_a_package_that_does_not_load_is_found(monkeypatch):
    """A compiled extension built for another version of torch is installed but cannot be imported."""

    def broken(name):
        raise OSError("undefined symbol: _ZN2at4\nand a second line")

    monkeypatch.setattr(doctor, "import_module", broken)
    finding = doctor.find_package("torchtext", essential=False)
    assert not finding.ok
    assert finding.observed == "does not load: OSError: undefined symbol: _ZN2at4"


def test_grading_names_what_is_missing_before_it_starts(lab, monkeypatch, tmp_path):
    """Only a worker imports nbval. Without this check, every submission would end with a grader error."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("nbval", "pytest") else name)
    complaint = lab("grade", tmp_path, "--output", tmp_path / "grades").complaint
    assert "grading needs nbval, pytest" in complaint
    assert doctor.INSTALL in complaint
    assert not (tmp_path / "grades").exists()


def test_a_command_names_a_missing_package_in_one_line(lab, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    complaint = lab("heatmap", "Ein Hund rennt.", "--output", tmp_path / "weights.png").complaint
    assert "matplotlib is not installed" in complaint
    assert doctor.INSTALL in complaint


def test_threads_limited_by_an_environment_variable(monkeypatch):
    import torch

    monkeypatch.setattr("os.cpu_count", lambda: torch.get_num_threads() + 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "unset it" in doctor.find_threads().advice
    monkeypatch.delenv("OMP_NUM_THREADS")  # some libraries leave one core free by default
    assert doctor.find_threads().ok


def test_multi30k_is_found(monkeypatch, tmp_path, real_data):
    monkeypatch.setenv("TRANSFORMER_LAB_DATA", str(real_data))
    assert doctor.find_multi30k_files().observed == str(real_data / "multi30k")
    monkeypatch.setenv("TRANSFORMER_LAB_DATA", str(tmp_path))
    assert str(tmp_path) in doctor.find_multi30k_files().observed
    assert "TRANSFORMER_LAB_DATA" in doctor.find_multi30k_files().advice


def test_finding_multi30k_without_the_notebook_packages(monkeypatch):
    """Finding the download folder requires one of these packages. Without it, the command must not crash."""
    monkeypatch.delenv("TRANSFORMER_LAB_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    finding = doctor.find_multi30k_files()
    assert finding.observed == "the download folder is unknown without platformdirs"
    assert not finding.essential


def test_a_full_disk(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=2**28))
    assert doctor.find_disk().observed.startswith("0.2 GiB free")
    assert "make room" in doctor.find_disk().advice


def test_missing_notebooks(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "TOUR_NOTEBOOK", tmp_path / "00_tour.ipynb")
    assert "from a clone" in doctor.find_notebook().advice


def test_only_graders_need_a_sandbox(monkeypatch):
    """A teacher should learn of a missing sandbox before grading. A student does not need a sandbox to start."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/bwrap" if name == "bwrap" else None)
    assert doctor.find_sandbox() == doctor.Finding("sandbox", "bubblewrap, /usr/bin/bwrap")
    monkeypatch.setattr("shutil.which", lambda name: None)
    missing = doctor.find_sandbox()
    assert "sudo apt install bubblewrap" in missing.advice
    assert "only teachers who grade" in missing.advice
    assert not missing.essential
    monkeypatch.setattr(sys, "platform", "darwin")
    assert doctor.find_sandbox().ok  # that system has no sandbox to install
