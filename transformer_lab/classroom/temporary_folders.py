"""Temporary folders. What a killed run could not remove, the next one does."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "tl-"
LOCK = "transformer-lab.lock"  # its owner holds a lock on it for as long as it lives


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, and the end of those whose owners were killed."""
    parent = short_temporary_folder()
    for stale in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_stale(stale)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    lock = os.open(folder / "new.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # some network file systems have no locks: nobody else removes a folder there
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(folder / "new.lock", folder / LOCK)  # another run sees it locked, or not at all
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def short_temporary_folder() -> Path:
    """Sockets have paths of at most some hundred characters: where the usual place is longer, /tmp."""
    usual = tempfile.gettempdir()
    return Path(usual if len(usual) < 50 else "/tmp")


def _remove_if_stale(folder: Path) -> None:
    """Remove a folder of ours whose owner is gone. Links are not followed, and what has no lock is somebody else's."""
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
        for inner in folder.iterdir():  # the lock goes last: if we are killed before, the next run still finds it
            if inner.name != LOCK:
                shutil.rmtree(inner, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
