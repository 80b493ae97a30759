"""Files that are written at once or not at all, and text of strangers that is safe in them and on a screen."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from transformer_lab.errors import InputError

# XML 1.0 or UTF-8 has none of these, except the last two groups: C1 controls, which terminals obey, and characters that
# change the direction of the text around them, so that a reader sees it in another order.
UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f]|[\u202a-\u202e\u2066-\u2069]")
NAME_BYTES = 160  # file systems allow 255; suffixes need some


def write_file(path: Path, content: str | bytes, encoding: str = "utf-8") -> None:
    """Put `content` where `path` is, in one step. A link that lies there is replaced and never followed.

    Args:
        path: Absolute and without links, such as `folder.resolve() / name`: a link among its folders is refused.
        content: What the file is to hold.
        encoding: Of text; `utf-8-sig` where spreadsheets shall know that it is UTF-8.

    Raises:
        InputError: A folder is a link or cannot be written, or the disk is full; what was there is as it was.
    """
    unfinished = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.realpath(path.parent) != str(path.parent):
            raise InputError(f"{path.parent} is a link, or lies behind one: remove it, or choose another folder")
        if path.is_dir() and not path.is_symlink():
            raise InputError(f"{path} is a folder where a file is to be written: remove it, or choose another folder")
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                # Not synced: a report is made anew from the gradebook at any time.
                file.write(content if isinstance(content, bytes) else content.encode(encoding))
            os.replace(unfinished, path)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path} ({error.strerror}): what was there before is as it was") from None


def clean(text: str) -> str:
    """Replace controls, lone surrogates and characters that change the direction of writing by �."""
    return UNSAFE.sub("\ufffd", text)


def on_screen(text: str) -> str:
    """`text` on one line without anything that a terminal obeys: escapes, line ends, marks that turn the writing."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def file_names(names: Iterable[str]) -> dict[str, str]:
    """A name of a file or folder for each name of a student: readable, safe on every system, no two alike."""
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names)):
        safe = re.sub(r"[^\w .-]", "_", clean(name)).strip(" .")
        short = safe.encode()[:NAME_BYTES].decode(errors="ignore").rstrip(" .")
        if not short or short != name or short.startswith("-") or _reserved(short) or short.casefold() in taken:
            digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
            short = f"{short.lstrip('-') or 'student'}_{digest}"
        chosen[name] = short
        taken.add(short.casefold())
    return chosen


def _reserved(name: str) -> bool:
    """Whether Windows keeps this name for a device."""
    return re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", name.casefold()) is not None
