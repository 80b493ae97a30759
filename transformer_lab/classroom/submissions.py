"""Collect submissions from files, folders, and zips, including those from Moodle and Canvas.

Zips are read in memory and never unpacked to disk, links are not followed, and no name is used as a path.
"""

import json
import os
import pkgutil
import re
import stat
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from transformer_lab.errors import InputError

MEBIBYTE = 2**20
MAX_BYTES = 64 * MEBIBYTE  # limit for a file with its outputs, and for a zip's list of entries
MAX_BYTES_WITHOUT_OUTPUTS = 2 * MEBIBYTE  # twenty times as long as the course's longest notebook
MAX_BYTES_UNCHANGED = MEBIBYTE  # larger notebooks lose their outputs, because hundreds of notebooks are held in memory
MAX_JSON_VALUES = 2_000_000  # an empty list takes two bytes in a file, but sixty in memory
MAX_ENTRIES = 100_000  # limit for the zip of a whole class
MAX_ENTRIES_PER_STUDENT = 1_000
MAX_FILES_PER_STUDENT = 100  # including zips
MAX_BYTES_READ_PER_STUDENT = 4 * MAX_BYTES
MAX_BYTES_KEPT_PER_STUDENT = 32 * MEBIBYTE  # enough for all of the course's notebooks at `MAX_BYTES_UNCHANGED` each
MAX_DEPTH = 8  # levels of nested folders
LONGEST_NAME = 100

LINK = "it is a link, and links are not followed"
NO_NOTEBOOK = "it contains no notebook (.ipynb): if there is one under another ending, rename it"
WHOLE_CLASS = "it looks like the zip of a whole class: give the path of the zip itself, not of its folder"
TOO_MANY_FILES = f"only the first {MAX_FILES_PER_STUDENT} files of a student are read: submit fewer"


class NotGradable(Exception):  # noqa: N818 (it describes a submission, not an error in this package)
    """Raised if a file cannot be graded. The message says why, in one line."""


@dataclass(frozen=True)
class Submission:
    """One file from one student. Each of a student's notebooks is a separate submission with the same `student`."""

    student: str  # printable, at most 100 characters, no slashes; unique within a batch
    path: str  # printable: "moodle.zip: Ada Lovelace_123_assignsubmission_file_/03_masks.ipynb"
    content: bytes  # the notebook's JSON, without outputs if it is large; b"" if there is a problem
    problem: str = ""  # why it cannot be graded


@dataclass(frozen=True, order=True)
class _Owner:
    """The student to whom a file or folder belongs, judging by its name."""

    name: str
    number: str = ""  # the student's number in a course system
    system: str = ""  # "Moodle" or "Canvas", where name and number together identify a student

    @property
    def display_name(self) -> str:
        return printable(f"{self.name} ({self.number})" if self.system else self.name)


@dataclass(frozen=True)
class _File:
    """A file on disk or in a zip that has not been read yet."""

    parts: tuple[str, ...]  # parts of its path within the given folder or zip; an empty folder ends in ""
    path: str
    is_link: bool
    read: Callable[["_Student"], bytes]  # raises NotGradable

    @property
    def is_notebook(self) -> bool:
        return self.parts[-1].lower().endswith(".ipynb")

    @property
    def is_zip(self) -> bool:
        return _is_zip(self.parts[-1])


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A submitted file whose owner does not have a unique name yet."""

    owner: _Owner
    file: _File
    container: str  # the owner's folder, zip, or file, which distinguishes the owner from namesakes
    content: bytes = b""
    problem: str = ""


def collect(paths: Sequence[Path | str]) -> list[Submission]:
    """Return all submissions in files, folders, and zips, in an order that does not depend on the machine.

    Each given folder or zip belongs to a class: it contains `<student>/.../<notebook>.ipynb`, or files named after
    their students. A zip inside it belongs to one student, regardless of what it contains. Files that cannot be
    graded are included, along with the reason.

    Raises:
        InputError: A path does not exist, or a given zip cannot be opened.
    """
    candidates: list[_Candidate] = []
    for path in sorted(map(Path, paths), key=os.path.abspath):
        candidates += sorted(_in_path(path), key=lambda candidate: Path(candidate.file.path).parts)
    return _with_unique_names(candidates)


def folder_of_a_pattern(paths: Iterable[Path]) -> Path | None:
    """Return the folder that contains three or more of the paths. If there is none, return None.

    Such paths suggest that a shell has expanded a pattern like `submitted/*`.
    """
    parents = Counter(path.absolute().parent for path in paths if path.is_dir() or _is_zip(path.name))
    folder, count = max(parents.items(), key=lambda item: item[1], default=(None, 0))
    return folder if count >= 3 else None


def _in_path(path: Path) -> list[_Candidate]:
    where = os.path.abspath(path)
    try:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            files = [file for top in _entries(path) for file in _files_below(top, (top.name,))]
            return _by_student(files, path.absolute().name, where)
        if _is_zip(path.name) and stat.S_ISREG(mode):
            with _open(path) as file, _open_zip(file, MAX_ENTRIES) as archive:
                return _by_student(_without_top_folder(_files_in_zip(archive, path.name)), path.stem, where)
    except (OSError, ValueError, NotGradable) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{printable(str(path), 300)}: {reason}: give files, folders, or zips") from None
    (file,) = _files_below(path, (path.name,))
    student = _Student(_owner(file) or _Owner(path.absolute().parent.name), where)
    return list(student.read_file(file, where))


def _by_student(files: Sequence[_File], fallback: str, where: str) -> list[_Candidate]:
    """Return all students' files. Files whose names do not identify a student belong to `fallback`."""
    files_of: dict[_Owner, list[_File]] = {}
    for file in files:
        files_of.setdefault(_owner(file) or _Owner(fallback), []).append(file)
    candidates: list[_Candidate] = []
    for owner, own_files in sorted(files_of.items()):
        submitted = list(_Student(owner, where).read(own_files))
        if not submitted and any(map(_is_submitted, own_files)):
            submitted = [_Candidate(owner, own_files[0], where, problem=NO_NOTEBOOK)]
        candidates += submitted
    return candidates


def _is_submitted(file: _File) -> bool:
    """Return whether a file seems to be a student's, even if it is not a notebook."""
    name = file.parts[0]
    return bool(len(file.parts) > 1 or file.is_zip or _owner_by_system(name) or _notebook_pattern().search(name))


class _Student:
    """Reads one student's files, with size limits, because a ten-kilobyte zip can expand to a gigabyte."""

    def __init__(self, owner: _Owner, where: str) -> None:
        self.owner, self.where = owner, where
        self.files_left = MAX_FILES_PER_STUDENT
        self.bytes_to_read = MAX_BYTES_READ_PER_STUDENT
        self.bytes_to_keep = MAX_BYTES_KEPT_PER_STUDENT

    def read(self, files: Sequence[_File]) -> Iterator[_Candidate]:
        for file in files:
            if file.is_zip or file.is_link or file.is_notebook:
                for candidate in self.read_file(file, os.path.join(self.where, file.parts[0])):
                    yield candidate
                    if candidate.problem == TOO_MANY_FILES:
                        return

    def read_file(self, file: _File, container: str) -> Iterator[_Candidate]:
        """Yield a notebook, or the notebooks in a zip, ignoring zips within it."""
        try:
            if not self.files_left:
                raise NotGradable(TOO_MANY_FILES)
            self.files_left -= 1
            if file.is_link:
                raise NotGradable(LINK)
            content = file.read(self)
            if file.is_zip:
                with _open_zip(BytesIO(content), MAX_ENTRIES_PER_STUDENT) as archive:
                    files = _files_in_zip(archive, file.path)
                    owners = {_owner_by_system(inner.parts[0]) for inner in files}
                    if len(owners) > 1 and None not in owners:  # a student can submit such a zip, too
                        raise NotGradable(WHOLE_CLASS)
                    for inner in files:
                        if inner.is_notebook or inner.is_link:
                            yield from self.read_file(inner, container)
                return
            content = without_outputs(content)
            if len(content) > self.bytes_to_keep:
                raise _too_much("notebooks", MAX_BYTES_KEPT_PER_STUDENT)
            self.bytes_to_keep -= len(content)
            yield _Candidate(self.owner, file, container, content)
        except NotGradable as problem:
            yield _Candidate(self.owner, file, container, problem=str(problem))


def _read(stream: BinaryIO, size: int, student: _Student) -> bytes:
    """Read at most `size` bytes (the file's claimed size), provided that the student's remaining limit allows it."""
    if size > MAX_BYTES:
        raise NotGradable(f"it is larger than {MAX_BYTES // MEBIBYTE} MiB: clear the outputs and submit it again")
    if size > student.bytes_to_read:
        raise _too_much("files", MAX_BYTES_READ_PER_STUDENT)
    student.bytes_to_read -= size
    return stream.read(size)


def _too_much(files: str, limit: int) -> NotGradable:
    limit_text = f"{limit / MEBIBYTE:g} MiB"
    return NotGradable(f"with it, this student's {files} would exceed {limit_text}: clear the outputs and submit fewer")


# --- folders ---------------------------------------------------------------------------------------------------------


def _files_below(path: Path, parts: tuple[str, ...]) -> Iterator[_File]:
    """Yield the files in a student's folder. If `path` is a file, yield just that file."""
    file = _File(parts, str(path), os.path.islink(path), partial(_read_from_disk, path))
    if file.is_link or not os.path.isdir(path) or (file.is_notebook and len(parts) > 1):
        yield file
        return
    entries = _entries(path) if len(parts) <= MAX_DEPTH else []
    for inner in entries:
        yield from _files_below(inner, (*parts, inner.name))
    if not entries:
        yield replace(file, parts=(*parts, ""))


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if not _is_junk(name)]
    except OSError:
        return []


def _is_junk(name: str) -> bool:
    """Return whether this is the name of a file that operating systems or editors create."""
    return name.startswith(".") or name == "__MACOSX"


def _is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _open(path: Path) -> BinaryIO:
    """Open a file without following a link, and without waiting for a writer if it is a pipe."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def _read_from_disk(path: Path, student: _Student) -> bytes:
    try:
        with _open(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise NotGradable("it is not an ordinary file")
            return _read(file, status.st_size, student)
    except IsADirectoryError:
        raise NotGradable("it is a folder, not a file") from None
    except OSError as error:
        raise NotGradable(f"it cannot be read ({error.strerror})") from None


# --- zips ------------------------------------------------------------------------------------------------------------


def _open_zip(file: BinaryIO, max_entries: int) -> zipfile.ZipFile:
    """Open a zip after counting its entries, because `zipfile` allocates a kilobyte for an entry of fifty bytes.

    Without the count, `test_a_zip_with_too_many_entries` fails.

    Raises:
        NotGradable: The file is not a zip, is damaged, or has too many entries.
    """
    try:
        if not file.seek(0, os.SEEK_END):
            raise NotGradable("the zip is empty")
        if end := zipfile._EndRecData(file):  # `zipfile` itself uses this function to find the list of entries
            size = end[zipfile._ECD_SIZE]
            if size > MAX_BYTES:
                raise NotGradable(f"the zip's list of entries is larger than {MAX_BYTES // MEBIBYTE} MiB")
            file.seek(max(0, end[zipfile._ECD_LOCATION] - size - 76))  # a large zip has 76 bytes of records there
            if file.read(size + 76).count(b"PK\x01\x02") > max_entries:
                raise NotGradable(f"the zip has more than {max_entries:,} entries")
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise NotGradable(f"it cannot be read as a zip ({printable(str(error), 100)})") from None


def _files_in_zip(archive: zipfile.ZipFile, where: str) -> list[_File]:
    """Return the files in a zip. If two have the same name, the last one wins, as it does in unzip programs."""
    files = {}
    for entry in archive.infolist():
        # The parts are used only as names, so `../` and a leading slash can be dropped.
        parts = PurePosixPath(entry.filename.replace("\\", "/")).parts
        parts = tuple(part for part in parts if part not in ("/", "..", "//"))
        if parts and not entry.is_dir() and not any(map(_is_junk, parts)):
            is_link = stat.S_ISLNK(entry.external_attr >> 16)
            path = f"{where}: {entry.filename}"
            files[entry.filename] = _File(parts, path, is_link, partial(_read_entry, archive, entry))
    return [files[name] for name in sorted(files)]


def _without_top_folder(files: list[_File]) -> list[_File]:
    """Drop the single top-level folder if it contains students' folders, or files named after students."""
    inner = [replace(file, parts=file.parts[1:]) for file in files if len(file.parts) > 1]
    tops = {file.parts[0] for file in files}
    if len(tops) != 1 or len(inner) < len(files) or _owner_by_system(*tops):
        return files
    contains_students = any(len(file.parts) > 1 for file in inner) or all(map(_owner, inner))
    return inner if contains_students else files


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, student: _Student) -> bytes:
    """Read an entry, but no more data than its claimed compressed and uncompressed sizes."""
    path = entry.filename.replace("\\", "/")
    if path.startswith("/") or ".." in path.split("/"):
        raise NotGradable("its path points outside the zip")
    if entry.flag_bits & 1:
        raise NotGradable("it is protected by a password")
    if entry.compress_type in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # Python decompresses these in one go
        raise NotGradable("it is compressed with bzip2 or LZMA: create the zip with your system's own program")
    try:
        with archive.open(entry) as file:
            return _read(file, max(entry.file_size, entry.compress_size), student)
    except NotGradable:
        raise
    except Exception as error:  # a damaged stream makes zipfile and its decompressors raise almost anything
        raise NotGradable(f"it is damaged in the zip ({printable(str(error) or type(error).__name__, 100)})") from None


# --- notebooks -------------------------------------------------------------------------------------------------------


def without_outputs(content: bytes) -> bytes:
    """Return a notebook's content. If the notebook is large, remove outputs and attachments, which are not graded.

    Raises:
        NotGradable: The file is large and not a notebook, or it is too large even without its outputs.
    """
    if len(content) <= MAX_BYTES_UNCHANGED:
        return content
    notebook = read_notebook(content)
    for cell in cells_of(notebook):
        if isinstance(cell, dict):
            cell.pop("outputs", None)
            cell.pop("attachments", None)
    content = json.dumps({**notebook, "metadata": {}}).encode()
    if len(content) > MAX_BYTES_WITHOUT_OUTPUTS:
        size, limit = len(content) / MEBIBYTE, MAX_BYTES_WITHOUT_OUTPUTS // MEBIBYTE
        raise NotGradable(f"it is {size:.1f} MiB without its outputs, but the limit is {limit}: remove what you added")
    return content


def read_notebook(content: bytes) -> dict[str, Any]:
    """Return the JSON of a notebook of any version: a dictionary with a list of cells.

    Raises:
        NotGradable: The content is not a notebook.
    """
    if not content.strip():
        raise NotGradable("the file is empty")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotGradable("the text is encoded as UTF-16, not UTF-8: save it in Jupyter and submit it again")
    if content.startswith(b"PK\x03\x04"):
        raise NotGradable("it is a renamed zip, not a notebook")
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise NotGradable(f"it has more than {MAX_JSON_VALUES:,} values: no real notebook has that many")
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#04x} at position {error.start}"
        raise NotGradable(f"the text is not encoded as UTF-8 ({byte})") from None
    except RecursionError:
        raise NotGradable("its lists are nested too deeply to be a notebook") from None
    except json.JSONDecodeError as error:
        if error.doc.lstrip().startswith("{") and (error.pos >= len(error.doc.rstrip()) or "Unterminated" in error.msg):
            raise NotGradable("the file is incomplete: it breaks off in the middle of the notebook") from None
        place = f"line {error.lineno}, column {error.colno}"
        raise NotGradable(f"it is not a notebook: invalid JSON ({place})") from None
    except ValueError:  # a number with thousands of digits
        raise NotGradable("it is not a notebook: invalid JSON") from None
    if not isinstance(notebook, dict) or not any(isinstance(notebook.get(k), list) for k in ("cells", "worksheets")):
        raise NotGradable("it is JSON, but not a notebook: it has no list of cells")
    return notebook


def cells_of(notebook: dict[str, Any]) -> list[Any]:
    """Return the cells, which may be values of any type. Before version 4 of the format, cells were in worksheets."""
    if isinstance(notebook.get("cells"), list):
        return notebook["cells"]
    sheets = [sheet.get("cells") for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
    return [cell for cells in sheets if isinstance(cells, list) for cell in cells]


# --- names -----------------------------------------------------------------------------------------------------------

_MOODLE_MARKER = r"_(\d+)_assignsubmission_(?:file|onlinetext)"
_MOODLE = re.compile(rf"([^/]+?){_MOODLE_MARKER}_?.*", re.DOTALL)
_CANVAS = re.compile(r"([^/_]+)_(?:LATE_)?(\d+)_\d+_.+", re.DOTALL)
_COPY = re.compile(r"(?:^copy[ _-]of[ _-]+)|[ _-]copy\d*$|\s*\(\d{1,3}\)$", re.IGNORECASE)


def _owner(file: _File) -> _Owner | None:
    """Return the owner of a file according to the first part of its path. If that part names no owner, return None."""
    name = file.parts[0]
    if (owner := _owner_by_system(name)) or len(file.parts) > 1:
        return owner or _Owner(name)
    stem = re.sub(r"(?<=.)(\.ipynb)?\.[^.]*\Z", "", name, flags=re.IGNORECASE | re.DOTALL)  # `03_masks.ipynb.txt`
    for _ in range(3):
        stem = _COPY.sub("", stem)
    student = _notebook_pattern().sub("", stem).strip(" _-.")
    return _Owner(student) if student else None


def _owner_by_system(name: str) -> _Owner | None:
    """Return the owner of a file or folder if its name comes from Moodle or Canvas. Otherwise, return None.

    If Moodle's marker appears twice, the student may have put one there. Then neither number can be trusted, and the
    whole name becomes the owner.
    """
    if len(re.findall(_MOODLE_MARKER, name)) > 1:
        return _Owner(name)
    if match := _MOODLE.fullmatch(name):
        return _Owner(match[1], match[2], "Moodle")
    match = _CANVAS.fullmatch(name)
    if match and not _notebook_pattern().match(name, match.end(2) + 1):  # not "student_17_03_masks.ipynb"
        return _Owner(match[1], match[2], "Canvas")
    return None


@cache
def _notebook_pattern() -> re.Pattern[str]:
    """Return a pattern that finds `03_masks` in a file name, even with a space or hyphen in place of `_`."""
    import transformer_lab.exercises

    modules = [module.name for module in pkgutil.iter_modules(transformer_lab.exercises.__path__)]
    names = [re.escape(module.split("_", 2)[2]) for module in modules if module.startswith("notebook_")]
    alternatives = "|".join(names).replace("_", "[ _-]")
    return re.compile(rf"(?:^|(?<=[ _-]))\d\d[ _-](?:{alternatives})(?=$|[ _.-])", re.IGNORECASE)


def _with_unique_names(candidates: list[_Candidate]) -> list[Submission]:
    """Give each student a unique, printable name.

    Files with the same student's name for the same notebook belong to one student if they are in the same folder or
    zip, or have the same number from a course system. The best of these files will count. If only the names match, the
    files may be from two people, so the second person gets a different name.
    """
    # Moodle may add an empty text field next to a notebook.
    with_notebook = {one.owner for one in candidates if one.problem != NO_NOTEBOOK}
    candidates = [one for one in candidates if one.problem != NO_NOTEBOOK or one.owner not in with_notebook]
    used: set[str] = set()
    names: dict[_Owner, str] = {}
    owners = {candidate.owner for candidate in candidates}
    for owner in sorted(owners, key=lambda owner: (owner.display_name != owner.name, owner)):
        names[owner] = _unique(owner.display_name, used)  # `Ada Lovelace` keeps her name, `Ada  Lovelace` doesn't

    def claim(candidate: _Candidate) -> tuple[bool, int]:
        """Rank files by their claim to a name.

        Files in a folder or zip with that name come first, followed by `a_03` and then `a_03 (1)`.
        """
        is_loose = candidate.container.lower().endswith(".ipynb")
        return is_loose, len(candidate.file.parts[-1]) * is_loose

    students: dict[_Candidate, str] = {}
    students_by_container: defaultdict[tuple[_Owner, str], dict[str, str]] = defaultdict(dict)  # per owner and notebook
    for candidate in sorted(candidates, key=claim):
        owner = candidate.owner
        known = students_by_container[owner, _guess_notebook(candidate)]
        container = "" if owner.system else candidate.container
        student = known.get(container) or (names[owner] if not known or candidate.problem else "")
        students[candidate] = student or _unique(names[owner], used)
        known.setdefault(container, students[candidate])
    return [
        Submission(students[candidate], printable(candidate.file.path, 500), candidate.content, candidate.problem)
        for candidate in candidates
    ]


def _guess_notebook(candidate: _Candidate) -> str:
    """Guess the notebook from an exercise's ID or else from the file's name, without parsing the file."""
    match = re.search(rb'"exercise-\w{1,80}"', candidate.content)
    return match[0].decode() if match else candidate.file.parts[-1]


def _unique(name: str, used: set[str]) -> str:
    """Return `name`. If it is already in use (ignoring case), return `name (2)`, `name (3)`, and so on."""
    candidate, count = name, 1
    while candidate.casefold() in used:
        count += 1
        ending = f" ({count})"
        candidate = name[: LONGEST_NAME - len(ending)] + ending
    used.add(candidate.casefold())
    return candidate


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """Return untrusted text as one shortened line, without control characters, format characters, or lone surrogates.

    If the limit is at most `LONGEST_NAME`, the text is treated as a name, so slashes are replaced, too.
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
