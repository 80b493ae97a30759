"""What was handed in, as data: files, folders, and the zips of Moodle and Canvas.

Nothing is unpacked to disk, no link is followed, and a name is never used as a path.
"""

import json
import mmap
import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from transformer_lab.errors import InputError

MEBIBYTE = 2**20
MOST_BYTES = 64 * MEBIBYTE  # of one file, with its outputs
MOST_BYTES_WITHOUT_OUTPUTS = 2 * MEBIBYTE  # the longest notebook of the course has a twentieth of it
MOST_BYTES_KEPT_AS_THEY_ARE = MEBIBYTE  # of a larger one the outputs are left out: hundreds are held in memory
MOST_JSON_VALUES = 2_000_000  # an empty list takes two bytes of a file, and sixty in memory
MOST_ENTRIES = 100_000  # of the zip of a whole class
MOST_ENTRIES_OF_A_STUDENT = 1_000
MOST_FILES_OF_A_STUDENT = 100  # zips among them
MOST_BYTES_READ_OF_A_STUDENT = 4 * MOST_BYTES
MOST_BYTES_KEPT_OF_A_STUDENT = 32 * MEBIBYTE  # every notebook of the course, as large as is kept as it is
LONGEST_NAME = 100
NO_NOTEBOOK = "there is no notebook (.ipynb) in it"
OF_A_CLASS = "it looks like the zip of a whole class: give the path of the zip itself, not of its folder"
TOO_MANY_FILES = (
    f"it comes after {MOST_FILES_OF_A_STUDENT} files of the same student, and no more are read: hand in fewer"
)


@dataclass(frozen=True)
class Submission:
    """One file of one student. Several notebooks of a student are several submissions under one name."""

    student: str  # printable, at most 100 characters, no slashes; another name for each student of a batch
    path: str  # where it lay, printable: "moodle.zip: Ada Lovelace_123_assignsubmission_file_/03_masks.ipynb"
    content: bytes  # the notebook's JSON, of large ones without outputs; b"" where there is a problem
    problem: str = ""  # why it cannot be graded: a link, an empty file, too large


@dataclass(frozen=True)
class _Found:
    """A file before it gets its student's name."""

    key: str  # what tells students apart: the folder's name, the beginning of the file's name
    path: str
    content: bytes = b""
    problem: str = ""
    file_name: str = ""
    container: str = ""  # the folder or the zip of one student; a file that lies in none is its own


class _Allowance:
    """How many files and bytes of one student are still read and kept: ten kilobytes of a zip may be a gigabyte."""

    def __init__(self) -> None:
        self.files = MOST_FILES_OF_A_STUDENT
        self.read = MOST_BYTES_READ_OF_A_STUDENT
        self.kept = MOST_BYTES_KEPT_OF_A_STUDENT


def collect(paths: Sequence[Path | str]) -> list[Submission]:
    """All submissions in files, folders and zips, in an order that does not depend on the machine.

    A folder or a zip among the paths is a class's: it holds `<student>/.../<notebook>.ipynb`, or files whose names name
    the student. A zip that lies in one is a student's, and what it holds as well, under whatever names. A file that
    cannot be graded is among the submissions, with its problem.

    Raises:
        InputError: A path does not exist, or a zip among the paths cannot be opened.
    """
    found: list[_Found] = []
    for path in sorted(map(Path, paths), key=os.path.abspath):
        found += sorted(_in_path(path), key=lambda one: Path(one.path).parts)  # `zoe/` comes before `zoe.zip`
    return _named(found)


def folder_of_a_pattern(paths: Iterable[Path]) -> Path | None:
    """The folder in which three or more of the given folders and zips lie: a shell has made them of `handed_in/*`."""
    parents = Counter(path.absolute().parent for path in paths if path.is_dir() or _is_zip(path.name))
    folder, count = max(parents.items(), key=lambda item: item[1], default=(None, 0))
    return folder if count >= 3 else None


def _in_path(path: Path) -> Iterator[_Found]:
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{printable(str(path), 300)}: {reason}: give files, folders or zips") from None
    if stat.S_ISDIR(mode):
        yield from _in_folder(path)
    elif _is_zip(path.name) and stat.S_ISREG(mode):
        yield from _in_zip_of_class(path)
    else:
        content, problem = _read_file(path, _Allowance())
        yield _Found(_key_of([path.name]) or path.absolute().parent.name, str(path), content, problem, path.name)


# --- folders ---------------------------------------------------------------------------------------------------------


def _in_folder(folder: Path) -> Iterator[_Found]:
    of_key: dict[str, list[Path]] = {}
    for path in _entries(folder):
        if os.path.islink(path):
            key = path.name
        else:
            key = _key_of([path.name, ""] if os.path.isdir(path) else [path.name]) or folder.absolute().name
        of_key.setdefault(key, []).append(path)
    for key, some in sorted(of_key.items()):
        allowance = _Allowance()
        found = _first(replace(one, container=str(path)) for path in some for one in _of_student(key, path, allowance))
        if not found and any(os.path.isdir(path) or _is_handed_in(path.name) for path in some):
            yield _Found(key, str(some[0]), problem=NO_NOTEBOOK)
        yield from found


def _of_student(key: str, path: Path, allowance: _Allowance, depth: int = 0) -> Iterator[_Found]:
    """The notebooks in a file or folder that a student handed in."""
    if os.path.islink(path):
        yield _Found(key, str(path), problem="it is a link, and links are not followed")
    elif os.path.isdir(path):
        if depth and _is_notebook(path.name):
            yield _Found(key, str(path), problem="it is a folder, not a file", file_name=path.name)
        elif depth <= 8:
            for inner in _entries(path):
                yield from _of_student(key, inner, allowance, depth + 1)
    elif _is_notebook(path.name):
        content, problem = _read_file(path, allowance)
        yield _Found(key, str(path), content, problem, path.name)
    elif _is_zip(path.name):
        content, problem = _read_file(path, allowance)
        yield from _in_zip_of_student(key, str(path), content, problem, allowance)


def _first(found: Iterable[_Found]) -> list[_Found]:
    """As many as are taken of one student, up to one that says that there are more; others are not looked for."""
    some: list[_Found] = []
    for one in islice(found, MOST_FILES_OF_A_STUDENT + 1):
        some.append(one)
        if one.problem == TOO_MANY_FILES:
            break
    return some


def _is_handed_in(name: str) -> bool:
    """Whether a file is somebody's even if there is no notebook in it."""
    return _is_zip(name) or bool(_student_by_system(name))


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not _is_litter(name)]
    except OSError:
        return []


def _is_litter(name: str) -> bool:
    """What systems leave beside the files of people."""
    return name.startswith(".") or name == "__MACOSX"


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb")


def _is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _read_file(path: Path, allowance: _Allowance) -> tuple[bytes, str]:
    """`(content, problem)`; of a link, a device or a pipe nothing is read."""
    try:
        # a pipe without a writer would wait for ever
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if path.is_symlink():
            return b"", "it is a link, and links are not followed"
        return b"", f"it cannot be read ({error.strerror})"
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return b"", "it is a folder, not a file"
        if not stat.S_ISREG(status.st_mode):
            return b"", "it is no ordinary file"
        try:
            return _read(file, status.st_size, allowance, zipped=_is_zip(path.name))
        except OSError as error:
            return b"", f"it cannot be read ({error.strerror})"


def _read(file: BinaryIO | Any, size: int, allowance: _Allowance, zipped: bool) -> tuple[bytes, str]:
    """`(content, problem)`; no more is read than `size`, which is a claim, and than the student has left."""
    if not allowance.files:
        return b"", TOO_MANY_FILES
    allowance.files -= 1
    if size > MOST_BYTES:
        return b"", f"it has more than {MOST_BYTES // MEBIBYTE} MiB: clear the outputs and hand it in again"
    if size > allowance.read:
        return b"", _too_much("files", MOST_BYTES_READ_OF_A_STUDENT)
    allowance.read -= size
    content = file.read(size)
    if zipped:
        return content, ""
    content, problem = without_outputs(content)
    if len(content) > allowance.kept:
        return b"", _too_much("notebooks", MOST_BYTES_KEPT_OF_A_STUDENT)
    allowance.kept -= len(content)
    return content, problem


def _too_much(what: str, most: int) -> str:
    having = f"the {what} of this student would have more than {most / MEBIBYTE:g} MiB"
    return f"with it, {having}: clear the outputs and hand in fewer"


def without_outputs(content: bytes) -> tuple[bytes, str]:
    """`(content, problem)`: a large notebook without what is not graded, its outputs and attachments."""
    if len(content) <= MOST_BYTES_KEPT_AS_THEY_ARE:
        return content, ""
    notebook, problem = read_notebook(content)
    if problem:
        return b"", problem
    for cell in cells_of(notebook):
        if isinstance(cell, dict):
            cell.pop("outputs", None)
            cell.pop("attachments", None)
    content = json.dumps({**notebook, "metadata": {}}).encode()
    if len(content) > MOST_BYTES_WITHOUT_OUTPUTS:
        return b"", f"it has {len(content) / MEBIBYTE:.1f} MiB without its outputs: no notebook of the course has 1"
    return content, ""


def read_notebook(content: bytes) -> tuple[dict[str, Any], str]:
    """`(notebook, problem)`: the JSON of a notebook of any version, which has a list of cells."""
    if not content.strip():
        return {}, "the file is empty"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return {}, "the text is encoded as UTF-16, not as UTF-8: save it from Jupyter and hand it in again"
    if content.startswith(b"PK\x03\x04"):
        return {}, "it is a zip that was renamed, not a notebook"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return {}, f"the text is not encoded as UTF-8 (byte {content[error.start]:#04x} at place {error.start})"
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_JSON_VALUES:
        return {}, f"it has more than {MOST_JSON_VALUES:,} values, which no notebook has"
    try:
        notebook = json.loads(text)
    except RecursionError:
        return {}, "its lists are nested too deeply to be a notebook"
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{") and (error.pos >= len(text.rstrip()) or "Unterminated" in error.msg):
            return {}, "the file is not whole: it ends in the middle of the notebook"
        return {}, f"it is not a notebook: no valid JSON (line {error.lineno}, column {error.colno})"
    except ValueError:  # a number of thousands of digits
        return {}, "it is not a notebook: no valid JSON"
    if not isinstance(notebook, dict) or not any(
        isinstance(notebook.get(key), list) for key in ("cells", "worksheets")
    ):
        return {}, "it is JSON, but not a notebook: it has no list of cells"
    return notebook, ""


def cells_of(notebook: dict[str, Any]) -> list[Any]:
    """The cells, which were in worksheets before version 4 of the format. Anything may be among them."""
    if isinstance(notebook.get("cells"), list):
        return notebook["cells"]
    sheets = [sheet.get("cells") for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
    return [cell for cells in sheets if isinstance(cells, list) for cell in cells]


# --- zips ------------------------------------------------------------------------------------------------------------


def _in_zip_of_class(path: Path) -> Iterator[_Found]:
    """What lies in the zip of a course system: `<student>/<file>`, or files whose names name the student."""
    try:
        # no link, no pipe; the same flags as for a file
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            problem = _too_many_entries(file)
            if problem is None:
                with zipfile.ZipFile(file) as archive:
                    for one in _in_archive(archive, path.name):  # two zips may have one name
                        yield replace(one, container=os.path.join(os.path.abspath(path), one.container))
                return
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        problem = f"it cannot be read as a zip ({getattr(error, 'strerror', None) or error})"
    raise InputError(f"{printable(str(path), 300)}: {problem}")


def _too_many_entries(file: BinaryIO) -> str | None:
    """Reading the list of a zip takes a kilobyte for each entry of fifty bytes."""
    if os.fstat(file.fileno()).st_size == 0:
        return "the zip is empty"
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return _more_entries_than(mapped, MOST_ENTRIES)


def _more_entries_than(content: Any, most: int) -> str | None:
    entries = re.compile(b"PK\x01\x02").finditer(content, *_directory(content))
    for number, _ in enumerate(entries, start=1):
        if number > most:
            return f"the zip has more than {most:,} entries"
    return None


def _directory(content: Any) -> tuple[int, int]:
    """Where in a zip its list of entries begins and ends: a file in it may be a zip itself, with a list of its own.

    The list ends where its size stands, at the end of the zip but for a comment; `zipfile` looks for it in the same
    way. Where there is no such place, or one for large zips beside it, the list is taken to be everywhere.
    """
    end = len(content) - 22
    if end < 0 or content[end : end + 4] != b"PK\5\6" or content[end + 20 :] != b"\0\0":
        end = content.rfind(b"PK\5\6", max(0, end - (1 << 16)))
    if end < 0 or content[max(0, end - 20) : max(0, end - 16)] == b"PK\6\7":
        return 0, len(content)
    return max(0, end - int.from_bytes(content[end + 12 : end + 16], "little")), end


def _in_archive(archive: zipfile.ZipFile, name: str) -> Iterator[_Found]:
    entries = _last_of_each_name(archive)
    all_parts = [_parts(entry.filename) for entry in entries]
    skipped = int(_has_one_folder_around(all_parts))
    of_key: dict[str, list[zipfile.ZipInfo]] = {}
    for entry, parts in zip(entries, all_parts, strict=True):
        of_key.setdefault(_key_of(parts[skipped:]) or Path(name).stem, []).append(entry)
    for key, some in sorted(of_key.items()):
        allowance = _Allowance()
        found = _first(
            replace(one, container="/".join(_parts(entry.filename)[: skipped + 1]))
            for entry in some
            for one in _in_entry(archive, entry, key, name, allowance)
        )
        if not found and any(len(_parts(entry.filename)) > 1 or _is_handed_in(entry.filename) for entry in some):
            yield _Found(key, f"{name}: {some[0].filename}", problem=NO_NOTEBOOK)
        yield from found


def _has_one_folder_around(all_parts: list[list[str]]) -> bool:
    """Whether the folder at the top holds students: folders of theirs, or files whose names name them."""
    tops = {parts[0] for parts in all_parts if parts}
    if len(tops) != 1 or any(len(parts) < 2 for parts in all_parts) or _student_of_file(*tops)[1]:
        return False
    return any(len(parts) > 2 for parts in all_parts) or all(_student_of_file(parts[1])[0] for parts in all_parts)


def _key_of(parts: Sequence[str]) -> str:
    if not parts:
        return ""
    named, by_system = _student_of_file(parts[0])
    return named if len(parts) == 1 or by_system else parts[0]


def _last_of_each_name(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The entries that are files. Of two with the same name the last counts, as for every program that unpacks."""
    entries = {
        entry.filename: entry
        for entry in archive.infolist()
        if not entry.is_dir() and not any(map(_is_litter, _parts(entry.filename)))
    }
    return [entries[name] for name in sorted(entries)]


def _parts(name: str) -> list[str]:
    """`../` and slashes at the front are dropped: this is a name, and no way to anywhere."""
    return [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("/", "..", ".", "//")]


def _in_entry(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, key: str, where: str, allowance: _Allowance
) -> Iterator[_Found]:
    path, file_name = f"{where}: {entry.filename}", (_parts(entry.filename) or [""])[-1]
    if stat.S_ISLNK(entry.external_attr >> 16):
        yield _Found(key, path, problem="it is a link, and links are not followed", file_name=file_name)
    elif _is_notebook(file_name):
        if PurePosixPath(entry.filename.replace("\\", "/")).is_absolute() or ".." in re.split(r"[/\\]", entry.filename):
            yield _Found(key, path, problem="its name points out of the zip", file_name=file_name)
        else:
            content, problem = _read_entry(archive, entry, allowance)
            yield _Found(key, path, content, problem, file_name)
    elif _is_zip(file_name):
        content, problem = _read_entry(archive, entry, allowance)
        yield from _in_zip_of_student(key, path, content, problem, allowance)


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, allowance: _Allowance) -> tuple[bytes, str]:
    """Reads no more than the entry claims to have, packed and unpacked."""
    if entry.flag_bits & 1:
        return b"", "it is locked with a password"
    if entry.compress_type in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # Python unpacks these at once, whatever is asked
        return b"", "it is packed as few programs do it (bzip2, LZMA): make the zip anew with the program of the system"
    try:
        with archive.open(entry) as file:
            return _read(file, max(entry.file_size, entry.compress_size), allowance, _is_zip(entry.filename))
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        return b"", f"it is damaged in the zip ({printable(str(error), 100)})"
    except Exception as error:  # lzma's own, and whatever a damaged stream brings about
        return b"", f"it is damaged in the zip ({type(error).__name__})"


def _in_zip_of_student(key: str, path: str, content: bytes, problem: str, allowance: _Allowance) -> Iterator[_Found]:
    """The notebooks in a zip that a student handed in, and in no zip within it."""
    problem = problem or _more_entries_than(content, MOST_ENTRIES_OF_A_STUDENT) or ""
    if not problem:
        try:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                entries = _last_of_each_name(archive)
                problem = OF_A_CLASS if _is_of_class(entries) else ""
                for entry in [] if problem else entries:
                    if not _is_zip(entry.filename):
                        yield from _in_entry(archive, entry, key, path, allowance)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            problem = f"it cannot be read as a zip ({printable(str(error), 100)})"
    if problem:
        yield _Found(key, path, problem=problem)


def _is_of_class(entries: list[zipfile.ZipInfo]) -> bool:
    """Whether a course system named everything, for several students. A student can make such a zip as well."""
    students = {_student_by_system((_parts(entry.filename) or [""])[0]) for entry in entries}
    return len(students) > 1 and "" not in students


# --- names -----------------------------------------------------------------------------------------------------------

_MOODLE = re.compile(r"(?P<who>[^/]+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.DOTALL)
_MARKER_OF_MOODLE = re.compile(r"_\d+_assignsubmission_(?:file|onlinetext)")
_CANVAS = re.compile(r"(?P<who>[^/_]+)_(?:LATE_)?(?P<id>\d+)_\d+_(?P<file>.+)", re.DOTALL)
_COPY = re.compile(r"(?:^copy[ _-]of[ _-]+)|[ _-]copy\d*$|\s*\(\d{1,3}\)$", re.IGNORECASE)


def _notebook_names() -> list[str]:
    """`attention`, `masks`: what the files of notebooks with exercises are called, without their numbers."""
    import pkgutil

    import transformer_lab.exercises

    files = [file.name for file in pkgutil.iter_modules(transformer_lab.exercises.__path__)]
    return [file.split("_", 2)[2] for file in files if file.startswith("notebook_")]


def _student_of_file(name: str) -> tuple[str, bool]:
    """`(key, whether a course system made the name)` from a file's name; the key is "" where it names no student."""
    if key := _student_by_system(name):
        return key, True
    stem = name[: name.rindex(".")] if "." in name[1:] else name
    for _ in range(3):
        stem = _COPY.sub("", stem)
    return _notebook_pattern().sub("", stem).strip(" _-."), False


def _student_by_system(name: str) -> str:
    """The key from a file's name that a course system made, and "" from any other.

    A name that has Moodle's marker twice is a key of its own. A student may have put one of the markers there, so
    neither number can be trusted.
    """
    if len(_MARKER_OF_MOODLE.findall(name)) > 1:
        return name
    if match := _MOODLE.fullmatch(name):
        return f"{match['who']}_{match['id']}_assignsubmission_file_"
    match = _CANVAS.fullmatch(name)
    if match and not _notebook_pattern().match(name, match.end("id") + 1):  # not "student_17_03_masks.ipynb"
        return f"{match['who']}_{match['id']}_0_"
    return ""


@cache
def _notebook_pattern() -> re.Pattern[str]:
    """`03_masks` as a part of a file's name, with any of the signs that people and systems put for `_`."""
    names = "|".join(re.escape(name) for name in _notebook_names()).replace("_", "[ _-]")
    return re.compile(rf"(?:^|(?<=[ _-]))\d\d[ _-](?:{names})(?=$|[ _.-])", re.IGNORECASE)


def _named(found: list[_Found]) -> list[Submission]:
    """Gives each student one printable name.

    Files for one notebook in one folder or zip, or under one number of a course system, are of one student, and the
    best of them counts. Where only names agree, the second gets a name of its own: they may be two people.
    """
    complete = {one.key for one in found if one.problem != NO_NOTEBOOK}  # a text field beside it may be empty
    found = [one for one in found if one.problem != NO_NOTEBOOK or one.key not in complete]
    display: dict[str, str] = {}
    taken: set[str] = set()
    for key in sorted({one.key for one in found}, key=lambda key: (_display_name(key) != key, key)):
        display[key] = _unique(_display_name(key), taken)  # to the letter `Ada Lovelace` before `Ada  Lovelace`
    students: dict[int, str] = {}
    containers: dict[tuple[str, str], dict[str, str]] = {}  # of files that seem to be of one notebook: to their name
    for number, one in sorted(enumerate(found), key=lambda item: _claim_to_a_name(item[1])):
        known = containers.setdefault((one.key, _looks_like(one)), {})
        container = "" if _is_by_system(one.key) else one.container or one.path
        student = known.get(container) or (display[one.key] if not known or one.problem else "")
        if not student:
            student = _unique(display[one.key], taken)
        known.setdefault(container, student)
        students[number] = student
    return [
        Submission(students[number], printable(one.path, 500), one.content, one.problem)
        for number, one in enumerate(found)
    ]


def _claim_to_a_name(one: _Found) -> tuple[bool, int]:
    """Who has a name first: whose folder or zip is called so; of loose files `a_03.ipynb` before `a_03 (1).ipynb`."""
    is_loose = one.container in ("", one.path)
    return is_loose, len(one.file_name) * is_loose


def _looks_like(one: _Found) -> str:
    """Which notebook this seems to be, without reading it: two of the same student may be two notebooks."""
    match = re.search(rb'"exercise-\w{1,80}"', one.content)
    return match[0].decode(errors="replace") if match else one.file_name


def _is_by_system(key: str) -> re.Match | None:
    if len(_MARKER_OF_MOODLE.findall(key)) > 1:
        return None
    return _MOODLE.fullmatch(key) or re.fullmatch(r"(?P<who>[^/_]+)_(?P<id>\d+)_0_", key)


def _display_name(key: str) -> str:
    if match := _is_by_system(key):
        return printable(f"{match['who']} ({match['id']})")
    return printable(key)


def _unique(name: str, taken: set[str]) -> str:
    """`name`, or `name (2)` where it is taken, upper and lower case being the same."""
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        ending = f" ({number})"
        candidate = name[: LONGEST_NAME - len(ending)] + ending
    taken.add(candidate.casefold())
    return candidate


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """A stranger's text as a name on one line: no control, format or lone surrogate characters, none too long.

    In a name (at most `LONGEST_NAME`) slashes are replaced as well, and what is only dots is no name.
    """
    text = unicodedata.normalize("NFC", text[: 10 * longest].encode("utf-8", "replace").decode("utf-8"))
    text = "".join(
        " " if character.isspace() or unicodedata.category(character) in ("Cc", "Zl", "Zp") else character
        for character in text
        if unicodedata.category(character) not in ("Cf", "Co", "Cn")
    )
    if longest <= LONGEST_NAME:
        text = re.sub(r"[/\\]", "_", text)
    text = " ".join(text.split())
    if len(text) > longest:
        text = text[: longest - 1].rstrip() + "…"
    return text if text.strip(". ") else "unnamed"
