"""Files that are replaced in one step: whole, or not at all."""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from transformer_lab.errors import InputError


def cannot_write(path: Path, error: OSError | SafetensorError) -> InputError:
    """The line that says what keeps `path` from being written."""
    reason = error.strerror if isinstance(error, OSError) else str(error).rpartition("I/O error: ")[2]
    full = isinstance(error, SafetensorError) or error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "make room there or choose another folder" if full else "choose another folder"
    return InputError(f"cannot write {path} ({reason}): {advice}; what was saved before is intact")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line what keeps `path` from being written.

    Raises:
        InputError: the folder cannot be written, or the disk is full.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to. What is written there takes the place of `path` at once, or not at all.

    Raises:
        InputError: the folder cannot be written, or the disk is full; the old file is as it was.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        unfinished.unlink(missing_ok=True)  # of a process that was killed, with rights of its own
        unfinished.touch()
        rights = unfinished.stat().st_mode
        yield unfinished
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())  # the bytes must be on the disk before the name is
        os.chmod(unfinished, rights)  # safetensors lets nobody but the owner read
        os.replace(unfinished, path)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


@contextmanager
def replacing_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A folder inside `folder` to write files of these names to. They take the places of the old ones all, or none.

    No file system replaces several files in one step. So all are written whole first; the old ones are put back if one
    cannot be replaced. Only a machine that stops between the first and the last of the renamings, some microseconds,
    leaves files of two kinds.

    Raises:
        InputError: the folder cannot be written, or the disk is full; the old files are as they were.
    """
    scratch = folder / ".unfinished"
    kept = scratch / "old"
    moved: list[str] = []
    path = folder
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
        kept.mkdir(parents=True)
        rights = scratch.stat().st_mode & 0o666
        yield scratch
        for name in names:
            path = folder / name
            with open(scratch / name, "rb+") as file:
                os.fsync(file.fileno())  # the bytes must be on the disk before the name is
            os.chmod(scratch / name, rights)  # safetensors lets nobody but the owner read
            if path.exists():
                keep_aside(path, kept / name)
        for name in names:
            path = folder / name
            os.replace(scratch / name, path)
            moved.append(name)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None
    finally:
        for name in moved if len(moved) < len(names) else ():
            if (kept / name).exists():
                os.replace(kept / name, folder / name)
            else:
                (folder / name).unlink()
        shutil.rmtree(scratch, ignore_errors=True)


def keep_aside(path: Path, copy: Path) -> None:
    """A second name for the same file, or a copy of it where the file system has no such thing."""
    try:
        os.link(path, copy)
    except OSError:
        shutil.copy2(path, copy)
