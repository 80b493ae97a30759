"""Create temporary folders, and remove those that killed runs have left behind.

Without the removal, `test_what_a_killed_grader_left_is_removed_by_the_next_run` fails.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "tl-"
LOCK = "transformer-lab.lock"  # locked while the folder's owner is running


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, after removing folders whose owners were killed."""
    parent = short_temporary_folder()
    for stale in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_stale(stale)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    lock = os.open(folder / "new.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # network file systems may not support locks; other runs keep such folders
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(folder / "new.lock", folder / LOCK)  # other runs see the lock only once it is held
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def short_temporary_folder() -> Path:
    """Return the usual folder for temporary files. If socket paths would be too long there, return /tmp."""
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) < 50 else "/tmp")


def _remove_if_stale(folder: Path) -> None:
    """Remove a folder whose owner is gone.

    Skip links and folders without a lock, because other programs may own them.
    """
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        return
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():  # remove the lock last, so that the next run recognizes a half-removed folder
            if path.name != LOCK:
                shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
