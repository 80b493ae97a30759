"""Replace files atomically, and make untrusted text safe to use in files and file names."""

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from transformer_lab.errors import InputError

# Characters that XML 1.0 or UTF-8 can't represent; C1 controls, which terminals interpret; and characters that change
# the direction of the surrounding text, so that it is displayed in a different order.
UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f]|[\u202a-\u202e\u2066-\u2069]")
NAME_BYTES = 160  # file systems allow 255, and suffixes need some of them
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # Windows reserves these names for devices


def cannot_write(path: Path, error: OSError | SafetensorError) -> InputError:
    """Return a one-line error for a `path` that cannot be written. It says why, and what to do."""
    reason = error.strerror if isinstance(error, OSError) else str(error).rpartition("I/O error: ")[2]
    full = isinstance(error, SafetensorError) or error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "make room there or choose another folder" if full else "choose another folder"
    return InputError(f"cannot write {path} ({reason}): {advice}; what was saved before is intact")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors that occur while `path` is written into a one-line `InputError`.

    Raises:
        InputError: The folder cannot be written, or the disk is full.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None


@contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`. The file written there replaces `path` either completely or not at all.

    Args:
        path: The file to replace. If it is a link, the link is replaced.
        sync: Wait until the file is on the disk, so that it survives a power failure right afterward.

    Raises:
        InputError: The folder cannot be written, or the disk is full. The old file is unchanged.
    """
    unfinished = path.with_name(path.name + ".part")
    try:
        with writing(path):
            unfinished.unlink(missing_ok=True)  # left by a killed process, perhaps with different permissions
            unfinished.touch()
            rights = unfinished.stat().st_mode
            yield unfinished
            if sync:
                flush_to_disk(unfinished)
            os.chmod(unfinished, rights)  # safetensors makes files readable only by their owner
            os.replace(unfinished, path)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes, encoding: str = "utf-8") -> None:
    """Replace a report or another file that can be regenerated. Links are not followed.

    Args:
        path: Absolute and without links, such as `folder.resolve() / name`. It is an error if one of its folders is a
            link.
        content: Text or bytes.
        encoding: The encoding for text; `utf-8-sig` tells spreadsheets that it is UTF-8.

    Raises:
        InputError: A folder is a link or cannot be written, or the disk is full. The old file is unchanged.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.realpath(path.parent) != str(path.parent):
        raise InputError(f"{path.parent} is a link, or is reached through one: remove it or choose another folder")
    if path.is_dir() and not path.is_symlink():
        raise InputError(f"{path} is a folder, but a file goes there: remove it or choose another folder")
    with replacing(path, sync=False) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))


@contextmanager
def replacing_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a temporary folder for files with these names. They replace the old files in `folder` all at once.

    File systems cannot replace several files in one step, so all files are first written completely. If one of them
    cannot be replaced, the old ones are restored. Only a crash in the few microseconds between the first and the last
    rename can leave a mixture of old and new files.

    Raises:
        InputError: The folder cannot be written, or the disk is full. The old files are unchanged.
    """
    scratch = folder / ".unfinished"
    backups = scratch / "old"
    replaced: list[str] = []
    path = folder
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # left by a killed run
        backups.mkdir(parents=True)
        rights = scratch.stat().st_mode & 0o666
        yield scratch
        for name in names:
            path = folder / name
            flush_to_disk(scratch / name)
            os.chmod(scratch / name, rights)  # safetensors makes files readable only by their owner
            if path.exists():
                _link_or_copy(path, backups / name)
        for name in names:
            path = folder / name
            os.replace(scratch / name, path)
            replaced.append(name)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path, error) from None
    finally:
        for name in replaced if len(replaced) < len(names) else ():
            if (backups / name).exists():
                os.replace(backups / name, folder / name)
            else:
                (folder / name).unlink()
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def creating(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder. It becomes `folder` once all files in it are on the disk.

    `folder` must not exist yet or must be empty. If an error occurs, it is not created.

    Raises:
        InputError: The parent folder cannot be written, or the disk is full.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            unfinished = Path(scratch, folder.name)  # the usual permissions; the temporary folder has 0700
            unfinished.mkdir()
            yield unfinished
            for path in unfinished.iterdir():
                flush_to_disk(path)
            if folder.exists():
                folder.rmdir()
            os.replace(unfinished, folder)


def flush_to_disk(path: Path) -> None:
    """Wait until a file's content is on the disk. Only then can it safely replace another file."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _link_or_copy(path: Path, copy: Path) -> None:
    try:
        os.link(path, copy)
    except OSError:  # the file system has no hard links
        shutil.copy2(path, copy)


def clean(text: str) -> str:
    """Replace control characters, lone surrogates, and characters that change the text direction with �."""
    return UNSAFE.sub("\ufffd", text)


def on_screen(text: str) -> str:
    """Return `text` on one line, replacing escapes, line ends, and anything else that a terminal might act on."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a unique, readable file or folder name for each student. It is safe on every operating system."""
    chosen: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(set(names)):
        safe = re.sub(r"[^\w .-]", "_", clean(name)).strip(" .")
        short = safe.encode()[:NAME_BYTES].decode(errors="ignore").rstrip(" .")
        is_usable = short and short == name and not short.startswith("-") and not RESERVED.fullmatch(short.casefold())
        if not is_usable or short.casefold() in used:
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
            short = f"{short.lstrip('-') or 'student'}_{digest}"
        chosen[name] = short
        used.add(short.casefold())
    return chosen
