"""Without these tests, a crash could leave students' notebooks in /tmp, or a run could delete another run's files."""

import os
import signal
import subprocess
import sys

import pytest

from transformer_lab.classroom import temporary_folders
from transformer_lab.classroom.temporary_folders import LOCK, temporary_folder

GRADER = """
import tempfile, time
from transformer_lab.classroom.grader import Grader

with Grader(jobs=1, require_sandbox=False) as grader:
    (grader.folder / "w1").mkdir(exist_ok=True)
    (grader.folder / "w1" / "03_masks.ipynb").write_text("of Ada")
    print(grader.folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(temporary_folders, "short_temporary_folder", lambda: tmp_path)
    return tmp_path


def test_what_a_killed_grader_left_is_removed_by_the_next_run(monkeypatch):
    """While the grader is running, other runs leave its folder alone."""
    monkeypatch.undo()
    with subprocess.Popen([sys.executable, "-c", GRADER], stdout=subprocess.PIPE, text=True) as grader:
        left = temporary_folders.Path(grader.stdout.readline().strip())
        with temporary_folder() as ours:
            assert (left / "w1" / "03_masks.ipynb").exists()
        assert not ours.exists()
        grader.send_signal(signal.SIGKILL)
        grader.wait()
        with temporary_folder():
            assert not left.exists()


def test_only_stale_folders_of_ours_are_removed(place):
    """A link might point to the teacher's files, and other programs may use the same prefix."""
    precious, foreign, stale = place / "precious", place / "tl-of-another-program", place / "tl-stale"
    for folder in (precious, foreign, stale):
        folder.mkdir()
        (folder / "notes.txt").write_text("")
    (precious / LOCK).touch()
    (place / "tl-link").symlink_to(precious)
    (foreign / LOCK).symlink_to(precious / LOCK)
    (stale / LOCK).touch()
    (stale / "link").symlink_to(precious)
    with temporary_folder():
        assert not stale.exists()
    assert sorted(os.listdir(place)) == ["precious", "tl-link", "tl-of-another-program"]
    assert (precious / "notes.txt").exists()
    assert (foreign / "notes.txt").exists()


def test_the_lock_is_removed_last(place, monkeypatch):
    """If a run is killed while removing a folder, the next run still recognizes the folder."""
    removed = []
    monkeypatch.setattr(temporary_folders.shutil, "rmtree", lambda path, **_: removed.append(path))
    with temporary_folder() as folder:
        (folder / "w1").mkdir()
        assert set(os.listdir(folder)) == {LOCK, "w1"}
    assert removed == [folder / "w1", folder]
