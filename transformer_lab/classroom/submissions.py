"""Collects submissions from files, folders, and the zips of Moodle and Canvas.

Nothing is unpacked to disk, no link is followed, and a name is never used as a path.
"""

import json
import os
import pkgutil
import re
import stat
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from transformer_lab.errors import InputError

MEBIBYTE = 2**20
MOST_BYTES = 64 * MEBIBYTE  # of one file, with its outputs, and of the list of a zip's entries
MOST_BYTES_WITHOUT_OUTPUTS = 2 * MEBIBYTE  # the longest notebook of the course has a twentieth of it
MOST_BYTES_KEPT_AS_THEY_ARE = MEBIBYTE  # a larger notebook loses its outputs: hundreds are held in memory
MOST_JSON_VALUES = 2_000_000  # an empty list takes two bytes of a file, and sixty in memory
MOST_ENTRIES = 100_000  # of a whole class's zip
MOST_ENTRIES_OF_A_STUDENT = 1_000
MOST_FILES_OF_A_STUDENT = 100  # including zips
MOST_BYTES_READ_OF_A_STUDENT = 4 * MOST_BYTES
MOST_BYTES_KEPT_OF_A_STUDENT = 32 * MEBIBYTE  # every notebook of the course, as large as is kept as it is
DEEPEST_FOLDER = 8
LONGEST_NAME = 100

LINK = "it is a link, and links are not followed"
NO_NOTEBOOK = "there is no notebook (.ipynb) in it"
WHOLE_CLASS = "it looks like the zip of a whole class: give the path of the zip itself, not of its folder"
TOO_MANY_FILES = f"only the first {MOST_FILES_OF_A_STUDENT} files of a student are read: submit fewer"


class NotGradable(Exception):  # noqa: N818 (it describes the submission and is not an error of ours)
    """A file cannot be graded; the message says why, in one line."""


@dataclass(frozen=True)
class Submission:
    """One file of one student. Several notebooks of a student are several submissions under one name."""

    student: str  # printable, at most 100 characters, no slashes; another name for each student of a batch
    path: str  # where it was found, printable: "moodle.zip: Ada Lovelace_123_assignsubmission_file_/03_masks.ipynb"
    content: bytes  # the notebook's JSON, without outputs if it is large; b"" if there is a problem
    problem: str = ""  # why it cannot be graded: a link, an empty file, too large


@dataclass(frozen=True, order=True)
class _Owner:
    """Whose files they are, as far as the name of a file or folder says."""

    name: str
    number: str = ""  # in a course system
    system: str = ""  # "Moodle" or "Canvas", which keep such names unique

    @property
    def display_name(self) -> str:
        return printable(f"{self.name} ({self.number})" if self.system else self.name)


@dataclass(frozen=True)
class _File:
    """A file on disk or in a zip. Nothing of it has been read yet."""

    parts: tuple[str, ...]  # of its path within the folder or zip that was given; an empty folder ends in ""
    path: str
    is_link: bool
    read: Callable[["_Allowance"], bytes]  # raises NotGradable

    @property
    def is_notebook(self) -> bool:
        return self.parts[-1].lower().endswith(".ipynb")

    @property
    def is_zip(self) -> bool:
        return _is_zip(self.parts[-1])


@dataclass(frozen=True)
class _Candidate:
    """A file that was submitted, before its owner has been given a name that no other student has."""

    owner: _Owner
    file: _File
    container: str  # the owner's folder, zip, or file: tells it from those of the same name elsewhere
    content: bytes = b""
    problem: str = ""


class _Allowance:
    """What may still be read and kept of one student's files: ten kilobytes of a zip can hold a gigabyte."""

    def __init__(self) -> None:
        self.files = MOST_FILES_OF_A_STUDENT
        self.read = MOST_BYTES_READ_OF_A_STUDENT
        self.kept = MOST_BYTES_KEPT_OF_A_STUDENT


def collect(paths: Sequence[Path | str]) -> list[Submission]:
    """Return all submissions in files, folders, and zips, in an order that does not depend on the machine.

    A folder or a zip among the paths is a class's: it holds `<student>/.../<notebook>.ipynb`, or files whose names name
    the student. A zip inside it is one student's, with everything in it, whatever the names are. A file that cannot be
    graded is among the submissions, with its problem.

    Raises:
        InputError: A path does not exist, or a zip among the paths cannot be opened.
    """
    candidates: list[_Candidate] = []
    for path in sorted(map(Path, paths), key=os.path.abspath):
        candidates += sorted(_in_path(path), key=_path_parts)  # `zoe/` before `zoe.zip`
    return _with_unique_names(candidates)


def _path_parts(candidate: _Candidate) -> tuple[str, ...]:
    return Path(candidate.file.path).parts


def folder_of_a_pattern(paths: Iterable[Path]) -> Path | None:
    """Return the folder that holds three or more of the given folders and zips: a shell expanded `submitted/*`."""
    parents = Counter(path.absolute().parent for path in paths if path.is_dir() or _is_zip(path.name))
    folder, count = max(parents.items(), key=lambda item: item[1], default=(None, 0))
    return folder if count >= 3 else None


def _in_path(path: Path) -> list[_Candidate]:
    where, parent = os.path.abspath(path), path.absolute().parent.name
    try:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            files = [file for top in _entries(path) for file in _files_below(top, (top.name,))]
            return _by_student(files, path.absolute().name, where)
        if _is_zip(path.name) and stat.S_ISREG(mode):
            with _open(path) as file, _opened_zip(file, MOST_ENTRIES) as archive:
                return _by_student(_without_folder_around(_files_in_zip(archive, path.name)), path.stem, where)
    except (OSError, ValueError, NotGradable) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{printable(str(path), 300)}: {reason}: give files, folders, or zips") from None
    (file,) = _files_below(path, (path.name,))
    return [_read_notebook_of(_owner(file) or _Owner(parent), file, where, _Allowance())]


# --- whose files -----------------------------------------------------------------------------------------------------


def _by_student(files: Sequence[_File], fallback: str, where: str) -> list[_Candidate]:
    """Return what each student submitted; files whose names name nobody belong to `fallback`."""
    of_owner: dict[_Owner, list[_File]] = {}
    for file in files:
        of_owner.setdefault(_owner(file) or _Owner(fallback), []).append(file)
    candidates: list[_Candidate] = []
    for owner, own_files in sorted(of_owner.items()):
        submitted = list(_of_student(owner, own_files, where))
        if not submitted and any(len(f.parts) > 1 or f.is_zip or _owner_by_system(f.parts[0]) for f in own_files):
            submitted = [_Candidate(owner, own_files[0], where, problem=NO_NOTEBOOK)]
        candidates += submitted
    return candidates


def _of_student(owner: _Owner, files: Sequence[_File], where: str) -> Iterator[_Candidate]:
    allowance = _Allowance()
    for file in files:
        container = os.path.join(where, file.parts[0])
        if file.is_zip and not file.is_link:
            candidates = _in_zip_of_student(owner, file, container, allowance)
        else:
            relevant = file.is_link or file.is_notebook
            candidates = [_read_notebook_of(owner, file, container, allowance)] if relevant else []
        for candidate in candidates:
            yield candidate
            if candidate.problem == TOO_MANY_FILES:
                return


def _in_zip_of_student(owner: _Owner, file: _File, container: str, allowance: _Allowance) -> Iterator[_Candidate]:
    """Yield the notebooks in a student's zip. Zips within it are left alone."""
    try:
        with _opened_zip(BytesIO(_content(file, allowance)), MOST_ENTRIES_OF_A_STUDENT) as archive:
            files = _files_in_zip(archive, file.path)
            owners = {_owner_by_system(inner.parts[0]) for inner in files}
            if len(owners) > 1 and None not in owners:  # a student can make such a zip as well
                raise NotGradable(WHOLE_CLASS)
            for inner in files:
                if inner.is_notebook or inner.is_link:
                    yield _read_notebook_of(owner, inner, container, allowance)
    except NotGradable as problem:
        yield _Candidate(owner, file, container, problem=str(problem))


def _read_notebook_of(owner: _Owner, file: _File, container: str, allowance: _Allowance) -> _Candidate:
    try:
        content = without_outputs(_content(file, allowance))
        if len(content) > allowance.kept:
            raise _too_much("notebooks", MOST_BYTES_KEPT_OF_A_STUDENT)
    except NotGradable as problem:
        return _Candidate(owner, file, container, problem=str(problem))
    allowance.kept -= len(content)
    return _Candidate(owner, file, container, content)


def _content(file: _File, allowance: _Allowance) -> bytes:
    if not allowance.files:
        raise NotGradable(TOO_MANY_FILES)
    allowance.files -= 1
    if file.is_link:
        raise NotGradable(LINK)
    return file.read(allowance)


# --- folders ---------------------------------------------------------------------------------------------------------


def _files_below(path: Path, parts: tuple[str, ...]) -> Iterator[_File]:
    """Yield the files in a student's folder, or the file itself."""
    file = _File(parts, str(path), os.path.islink(path), partial(_read_from_disk, path))
    if file.is_link or not os.path.isdir(path) or (file.is_notebook and len(parts) > 1):
        yield file
        return
    entries = _entries(path) if len(parts) <= DEEPEST_FOLDER else []
    for inner in entries:
        yield from _files_below(inner, (*parts, inner.name))
    if not entries:
        yield replace(file, parts=(*parts, ""))


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not _is_litter(name)]
    except OSError:
        return []


def _is_litter(name: str) -> bool:
    """Return whether an operating system or an editor leaves files of this name next to people's own."""
    return name.startswith(".") or name == "__MACOSX"


def _is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _open(path: Path) -> BinaryIO:
    """Open a file, but not through a link, and without waiting for somebody to write to a pipe."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(path, "rb", opener=lambda name, usual: os.open(name, usual | flags))


def _read_from_disk(path: Path, allowance: _Allowance) -> bytes:
    try:
        with _open(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise NotGradable("it is not an ordinary file")
            return _read(file, status.st_size, allowance)
    except IsADirectoryError:
        raise NotGradable("it is a folder, not a file") from None
    except OSError as error:
        raise NotGradable(f"it cannot be read ({error.strerror})") from None


def _read(file: BinaryIO, size: int, allowance: _Allowance) -> bytes:
    """Read no more than `size`, which is a claim, and no more than the student has left."""
    if size > MOST_BYTES:
        raise NotGradable(f"it has more than {MOST_BYTES // MEBIBYTE} MiB: clear the outputs and submit it again")
    if size > allowance.read:
        raise _too_much("files", MOST_BYTES_READ_OF_A_STUDENT)
    allowance.read -= size
    return file.read(size)


def _too_much(files: str, most: int) -> NotGradable:
    total = f"the {files} of this student would have more than {most / MEBIBYTE:g} MiB"
    return NotGradable(f"with it, {total}: clear the outputs and submit fewer")


# --- zips ------------------------------------------------------------------------------------------------------------


def _opened_zip(file: BinaryIO, most_entries: int) -> zipfile.ZipFile:
    """Open a zip after counting its entries: `zipfile` needs a kilobyte for each, and an entry may have fifty bytes.

    Raises:
        NotGradable: It is not a zip, is damaged, or has too many entries.
    """
    try:
        if not file.seek(0, os.SEEK_END):
            raise NotGradable("the zip is empty")
        if end := zipfile._EndRecData(file):  # with which `zipfile` itself finds the list of entries
            size = end[zipfile._ECD_SIZE]
            if size > MOST_BYTES:
                raise NotGradable(f"the zip's list of entries has more than {MOST_BYTES // MEBIBYTE} MiB")
            file.seek(max(0, end[zipfile._ECD_LOCATION] - size - 76))  # a large zip has two records of 76 bytes there
            if file.read(size + 76).count(b"PK\x01\x02") > most_entries:
                raise NotGradable(f"the zip has more than {most_entries:,} entries")
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise NotGradable(f"it cannot be read as a zip ({printable(str(error), 100)})") from None


def _files_in_zip(archive: zipfile.ZipFile, where: str) -> list[_File]:
    """Return the files in a zip. Of two with the same name the last counts, as it does for every unpacking program."""
    files = {}
    for entry in archive.infolist():
        # `../` and a leading slash are dropped: these are names, which lead nowhere
        parts = PurePosixPath(entry.filename.replace("\\", "/")).parts
        parts = tuple(part for part in parts if part not in ("/", "..", "//"))
        if parts and not entry.is_dir() and not any(map(_is_litter, parts)):
            is_link = stat.S_ISLNK(entry.external_attr >> 16)
            path = f"{where}: {entry.filename}"
            files[entry.filename] = _File(parts, path, is_link, partial(_read_entry, archive, entry))
    return [files[name] for name in sorted(files)]


def _without_folder_around(files: list[_File]) -> list[_File]:
    """Leave out the folder at the top if it holds students: their folders, or files whose names name them."""
    inner = [replace(file, parts=file.parts[1:]) for file in files if len(file.parts) > 1]
    tops = {file.parts[0] for file in files}
    if len(tops) != 1 or len(inner) < len(files) or _owner_by_system(*tops):
        return files
    holds_students = any(len(file.parts) > 1 for file in inner) or all(map(_owner, inner))
    return inner if holds_students else files


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, allowance: _Allowance) -> bytes:
    """Read no more than the entry claims to have, compressed and uncompressed."""
    path = entry.filename.replace("\\", "/")
    if path.startswith("/") or ".." in path.split("/"):
        raise NotGradable("its name points out of the zip")
    if entry.flag_bits & 1:
        raise NotGradable("it is locked with a password")
    if entry.compress_type in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # Python unpacks these at once, however large
        raise NotGradable("it is compressed with bzip2 or LZMA: make the zip again with your system's own program")
    try:
        with archive.open(entry) as file:
            return _read(file, max(entry.file_size, entry.compress_size), allowance)
    except NotGradable:
        raise
    except Exception as error:  # whatever a damaged stream makes zipfile and its decompressors raise
        raise NotGradable(f"it is damaged in the zip ({printable(str(error) or type(error).__name__, 100)})") from None


# --- notebooks -------------------------------------------------------------------------------------------------------


def without_outputs(content: bytes) -> bytes:
    """Return a small notebook as it is, and a large one without its outputs and attachments, which are not graded.

    Raises:
        NotGradable: It is large and not a notebook, or its sources are too large.
    """
    if len(content) <= MOST_BYTES_KEPT_AS_THEY_ARE:
        return content
    notebook = read_notebook(content)
    for cell in cells_of(notebook):
        if isinstance(cell, dict):
            cell.pop("outputs", None)
            cell.pop("attachments", None)
    content = json.dumps({**notebook, "metadata": {}}).encode()
    if len(content) > MOST_BYTES_WITHOUT_OUTPUTS:
        size = len(content) / MEBIBYTE
        raise NotGradable(f"it has {size:.1f} MiB without its outputs: no notebook of the course has 1")
    return content


def read_notebook(content: bytes) -> dict[str, Any]:
    """Return the JSON of a notebook of any version: a dictionary with a list of cells.

    Raises:
        NotGradable: It is not a notebook.
    """
    if not content.strip():
        raise NotGradable("the file is empty")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotGradable("the text is encoded as UTF-16, not as UTF-8: save it from Jupyter and submit it again")
    if content.startswith(b"PK\x03\x04"):
        raise NotGradable("it is a zip that was renamed, not a notebook")
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_JSON_VALUES:
        raise NotGradable(f"it has more than {MOST_JSON_VALUES:,} values, which no notebook has")
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#04x} at position {error.start}"
        raise NotGradable(f"the text is not encoded as UTF-8 ({byte})") from None
    except RecursionError:
        raise NotGradable("its lists are nested too deeply to be a notebook") from None
    except json.JSONDecodeError as error:
        if error.doc.lstrip().startswith("{") and (error.pos >= len(error.doc.rstrip()) or "Unterminated" in error.msg):
            raise NotGradable("the file is incomplete: it ends in the middle of the notebook") from None
        place = f"line {error.lineno}, column {error.colno}"
        raise NotGradable(f"it is not a notebook: no valid JSON ({place})") from None
    except ValueError:  # a number of thousands of digits
        raise NotGradable("it is not a notebook: no valid JSON") from None
    if not isinstance(notebook, dict) or not any(isinstance(notebook.get(k), list) for k in ("cells", "worksheets")):
        raise NotGradable("it is JSON, but not a notebook: it has no list of cells")
    return notebook


def cells_of(notebook: dict[str, Any]) -> list[Any]:
    """Return the cells, which were in worksheets before version 4 of the format. Anything may be among them."""
    if isinstance(notebook.get("cells"), list):
        return notebook["cells"]
    sheets = [sheet.get("cells") for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
    return [cell for cells in sheets if isinstance(cells, list) for cell in cells]


# --- names -----------------------------------------------------------------------------------------------------------

_MOODLE = re.compile(r"([^/]+?)_(\d+)_assignsubmission_(?:file|onlinetext)_?.*", re.DOTALL)
_MARKER_OF_MOODLE = re.compile(r"_\d+_assignsubmission_(?:file|onlinetext)")
_CANVAS = re.compile(r"([^/_]+)_(?:LATE_)?(\d+)_\d+_.+", re.DOTALL)
_COPY = re.compile(r"(?:^copy[ _-]of[ _-]+)|[ _-]copy\d*$|\s*\(\d{1,3}\)$", re.IGNORECASE)


def _owner(file: _File) -> _Owner | None:
    """Return whose file this is, by the first part of its path; None if that does not say."""
    name = file.parts[0]
    if (owner := _owner_by_system(name)) or len(file.parts) > 1:
        return owner or _Owner(name)
    stem = name[: name.rindex(".")] if "." in name[1:] else name
    for _ in range(3):
        stem = _COPY.sub("", stem)
    student = _notebook_pattern().sub("", stem).strip(" _-.")
    return _Owner(student) if student else None


def _owner_by_system(name: str) -> _Owner | None:
    """Return the owner of a file or folder that a course system named.

    A name with Moodle's marker twice is an owner of its own. A student may have put one of the markers there, so
    neither number can be trusted.
    """
    if len(_MARKER_OF_MOODLE.findall(name)) > 1:
        return _Owner(name)
    if match := _MOODLE.fullmatch(name):
        return _Owner(match[1], match[2], "Moodle")
    match = _CANVAS.fullmatch(name)
    if match and not _notebook_pattern().match(name, match.end(2) + 1):  # not "student_17_03_masks.ipynb"
        return _Owner(match[1], match[2], "Canvas")
    return None


@cache
def _notebook_pattern() -> re.Pattern[str]:
    """Return what matches `03_masks` in a file's name, with any of the signs that people and systems use for `_`."""
    import transformer_lab.exercises

    modules = [module.name for module in pkgutil.iter_modules(transformer_lab.exercises.__path__)]
    names = [re.escape(module.split("_", 2)[2]) for module in modules if module.startswith("notebook_")]
    alternatives = "|".join(names).replace("_", "[ _-]")
    return re.compile(rf"(?:^|(?<=[ _-]))\d\d[ _-](?:{alternatives})(?=$|[ _.-])", re.IGNORECASE)


def _with_unique_names(candidates: list[_Candidate]) -> list[Submission]:
    """Give each student one printable name.

    Files for one notebook in one folder or zip, or under one number of a course system, belong to one student, and the
    best of them counts. Where only names agree, the second gets a name of its own: they may be two people.
    """
    graded = {candidate.owner for candidate in candidates if candidate.problem != NO_NOTEBOOK}
    candidates = [  # a text field next to a notebook may be empty
        candidate for candidate in candidates if candidate.problem != NO_NOTEBOOK or candidate.owner not in graded
    ]
    taken: set[str] = set()
    names: dict[_Owner, str] = {}
    owners = {candidate.owner for candidate in candidates}
    for owner in sorted(owners, key=lambda owner: (owner.display_name != owner.name, owner)):
        names[owner] = _unique(owner.display_name, taken)  # `Ada Lovelace` keeps her name before `Ada  Lovelace`
    students: dict[int, str] = {}
    students_of: dict[tuple[_Owner, str], dict[str, str]] = {}  # owner and notebook to container to student
    for index in sorted(range(len(candidates)), key=lambda index: _claim_to_a_name(candidates[index])):
        candidate, owner = candidates[index], candidates[index].owner
        known = students_of.setdefault((owner, _looks_like(candidate)), {})
        container = "" if owner.system else candidate.container
        student = known.get(container) or (names[owner] if not known or candidate.problem else "")
        students[index] = student or _unique(names[owner], taken)
        known.setdefault(container, students[index])
    return [
        Submission(students[index], printable(candidate.file.path, 500), candidate.content, candidate.problem)
        for index, candidate in enumerate(candidates)
    ]


def _claim_to_a_name(candidate: _Candidate) -> tuple[bool, int]:
    """Rank files by their claim to a name: those in a folder or zip of that name, then `a_03`, then `a_03 (1)`."""
    is_loose = candidate.container.lower().endswith(".ipynb")
    return is_loose, len(candidate.file.parts[-1]) * is_loose


def _looks_like(candidate: _Candidate) -> str:
    """Return which notebook this seems to be, without parsing it: two of one student may be two notebooks."""
    match = re.search(rb'"exercise-\w{1,80}"', candidate.content)
    return match[0].decode(errors="replace") if match else candidate.file.parts[-1]


def _unique(name: str, taken: set[str]) -> str:
    """Return `name`, or `name (2)` if it is taken, ignoring case."""
    candidate, count = name, 1
    while candidate.casefold() in taken:
        count += 1
        ending = f" ({count})"
        candidate = name[: LONGEST_NAME - len(ending)] + ending
    taken.add(candidate.casefold())
    return candidate


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a stranger's text as a name on one line: no control, format, or lone surrogate characters, not too long.

    In a name (at most `LONGEST_NAME`) slashes are replaced as well, and dots alone are not a name.
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
