"""Without these tests, one strange file could stop the batch, fill up memory, or be graded as another student's."""

import io
import json
import os
import re
import stat
import struct
import tracemalloc
import unicodedata
import warnings
import zipfile
from pathlib import Path

import pytest

from transformer_lab.classroom import submissions
from transformer_lab.classroom.submissions import LONGEST_NAME, MEBIBYTE, Submission, collect, printable
from transformer_lab.errors import InputError

NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "id": "exercise-softmax", "source": "1"}], "nbformat": 4}
).encode()
OTHER = NOTEBOOK.replace(b"softmax", b"padding_mask")
NONE = [submissions.NO_NOTEBOOK]
LINK = ["it is a link, and links are not followed"]
CLASS = ["it looks like the zip of a whole class: give the path of the zip itself, not of its folder"]

Files = dict[str, "bytes | Files"]  # a nested dictionary is a zip


def zipped(files: Files | list[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, zipped(content) if isinstance(content, dict) else content)
    return buffer.getvalue()


def write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zipped(content) if isinstance(content, dict) else content)
    return folder


def both(folder: Path, files: Files) -> tuple[Path, Path]:
    """Return a folder and a zip with the same name and the same files."""
    return write(folder / "class", files), write(folder, {"class.zip": files}) / "class.zip"


def found(*paths: Path) -> dict[str, list[str]]:
    """Return the outcome for each student's files: `ok` or the problem."""
    result: dict[str, list[str]] = {}
    for submission in collect(list(paths)):
        assert bool(submission.content) != bool(submission.problem)
        assert submission.path.isprintable()
        assert submission.student.isprintable()
        result.setdefault(submission.student, []).append(submission.problem or "ok")
    return result


def with_memory(path: Path) -> tuple[list[Submission], int]:
    """Return the collected submissions and the peak memory in bytes."""
    submissions._notebook_pattern()  # the first call does all imports
    tracemalloc.start()
    try:
        return collect([path]), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- owners of files -------------------------------------------------------------------------------------------------

MOODLE = "_assignsubmission_file_"
LAYOUTS = {  # files, and the expected results for a folder and a zip of them
    "a folder for each student": (
        {
            "ada/03_masks.ipynb": NOTEBOOK,
            "ada/01_attention.ipynb": OTHER,
            "ben/week 3/final/03_masks.ipynb": NOTEBOOK,
            "ben/.ipynb_checkpoints/03_masks-checkpoint.ipynb": NOTEBOOK,
            "ben/._03_masks.ipynb": b"\0\0",
            "__MACOSX/ben/._03_masks.ipynb": b"\0",
            "cy/notes.txt": b"I am late",
        },
        {"ada": ["ok", "ok"], "ben": ["ok"], "cy": NONE},
    ),
    "Moodle: two of one name, a text, a zip": (
        {
            f"Ada Lovelace_12{MOODLE}/03_masks.ipynb": NOTEBOOK,
            "Ada Lovelace_12_assignsubmission_onlinetext_/onlinetext.html": b"<p>see the file</p>",
            f"Ada Lovelace_13{MOODLE}/03_masks.ipynb": NOTEBOOK,
            f"Bén Ünal_14{MOODLE}/all.zip": {"a/03_masks.ipynb": NOTEBOOK, "b/x.ipynb": OTHER},
            f"Cy_15{MOODLE}/essay.pdf": b"%PDF",
            "Dee_16_assignsubmission_onlinetext_/onlinetext.html": b"",
        },
        {
            "Ada Lovelace (12)": ["ok"],
            "Ada Lovelace (13)": ["ok"],
            "Bén Ünal (14)": ["ok", "ok"],
            "Cy (15)": NONE,
            "Dee (16)": NONE,
        },
    ),
    "Canvas: each file has a number of its own": (
        {
            "lovelaceada_12_345_03_masks.ipynb": NOTEBOOK,
            "lovelaceada_12_346_01_attention.ipynb": OTHER,
            "unalben_LATE_13_347_03_masks-1.ipynb": NOTEBOOK,
            "wucy_14_348_work.zip": {"03_masks.ipynb": NOTEBOOK},
            "dee_15_349_essay.docx": b"PK",
        },
        {"lovelaceada (12)": ["ok", "ok"], "unalben (13)": ["ok"], "wucy (14)": ["ok"], "dee (15)": NONE},
    ),
    "a zip is named as a notebook would be": (
        {
            "ada.zip": {"zoe/a.ipynb": NOTEBOOK},
            "ben 03_masks (1).zip": {"zoe/03_masks.ipynb": NOTEBOOK},
            "wucy_14_348_work.zip": {"zoe/03_masks.ipynb": NOTEBOOK},
            f"Dee Roe_15{MOODLE}work.zip": {"zoe/03_masks.ipynb": NOTEBOOK},
            "03_masks.zip": {"zoe/03_masks.ipynb": NOTEBOOK},
            "eve.zip": {"essay.pdf": b"%PDF"},
            "fay_16_349_essay.docx": b"PK",
        },
        {who: ["ok"] for who in ("ada", "ben", "wucy (14)", "Dee Roe (15)", "class")} | {"eve": NONE, "fay (16)": NONE},
    ),
    **{
        f"two files for one notebook: {names[0]}": (dict.fromkeys(names, NOTEBOOK), {student: ["ok"] * 2})
        for student, *names in [
            ("ada", "ada/03_masks.ipynb", "ada/03_masks-Copy1.ipynb"),
            ("Ada (12)", f"Ada_12{MOODLE}/03_masks.ipynb", f"Ada_12{MOODLE}/final.ipynb"),
            ("ada (12)", "ada_12_345_03_masks.ipynb", "ada_LATE_12_346_03_masks-1.ipynb"),
        ]
    },
    "files that are named after a notebook but aren't notebooks": (
        {
            "ada_03_masks.ipynb": NOTEBOOK,
            "ada_03_masks.ipynb.bak": NOTEBOOK,
            "ben_03_masks.ipynb.txt": NOTEBOOK,
            "cy 03-masks.JSON": NOTEBOOK,
            "dee_03_masks.pdf": b"%PDF",
            "grades.txt": b"",
        },
        {"ada": ["ok"], "ben": NONE, "cy": NONE, "dee": NONE},
    ),
    "a hundred pictures next to a notebook": (
        {"ada/all.zip": {f"a{n}.png": b"" for n in range(150)} | {"z.ipynb": NOTEBOOK}, "ben/a.ipynb": NOTEBOOK},
        {"ada": ["ok"], "ben": ["ok"]},
    ),
    "a zip that seems to be a class's, though a student can make one": (
        {
            "all.zip": {f"Ada_12{MOODLE}/a.ipynb": NOTEBOOK, f"Ben_13{MOODLE}/a.ipynb": NOTEBOOK},
            "two.zip": {f"Ada_12{MOODLE}a.ipynb": NOTEBOOK, "Ben_13_assignsubmission_onlinetext_o.html": NOTEBOOK},
            "three.zip": {"ada_12_345_03_masks.ipynb": NOTEBOOK, "ben_LATE_13_347_03_masks-1.ipynb": NOTEBOOK},
            "zoe/03_masks.ipynb": NOTEBOOK,
        },
        {"all": CLASS, "two": CLASS, "three": CLASS, "zoe": ["ok"]},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whose_files_they_are(tmp_path, layout):
    """People and course systems use these layouts. An extra row would count a student twice in the class average."""
    files, expected = LAYOUTS[layout]
    for path in both(tmp_path, files):
        assert found(path) == expected
    if "Moodle" in layout:
        paths = [submission.path for submission in collect([tmp_path / "class.zip"])]
        assert f"class.zip: Ada Lovelace_12{MOODLE}/03_masks.ipynb" in paths


FILE_NAMES = {
    "ada.ipynb": "ada",
    "ada_03_masks.ipynb": "ada",
    "03_masks_ada.ipynb": "ada",
    "03-masks-Ada Lovelace.ipynb": "Ada Lovelace",
    "student_017_03_masks.ipynb": "student_017",
    "ada 02_multi_head_attention (1).ipynb": "ada",
    "Copy of 03_masks_ada.ipynb": "ada",
    "03_masks_ada-Copy1.ipynb": "ada",
    "03_masks.ipynb": "class",
    "03_masks-Copy2.ipynb": "class",
    "ADA_03_MASKS.IPYNB": "ADA",
    "lovelaceada_4711_81502_03_masks.ipynb": "lovelaceada (4711)",
    "lovelaceada_LATE_4711_81502_my homework-2.ipynb": "lovelaceada (4711)",
    f"Ada Lovelace_4711{MOODLE}03_masks.ipynb": "Ada Lovelace (4711)",
}


@pytest.mark.parametrize(("name", "student"), FILE_NAMES.items())
def test_a_file_that_names_its_student(tmp_path, name, student):
    """E-mail, Canvas, and Moodle all produce flat folders."""
    folder, archive = both(tmp_path, {name: NOTEBOOK})
    assert found(folder) == found(folder / name) == found(archive) == {student: ["ok"]}


@pytest.mark.parametrize("ending", ["/03_masks.ipynb", "03_masks.ipynb"])
def test_a_name_with_moodles_marker_twice_is_an_owner_of_its_own(tmp_path, ending):
    """In Moodle, students choose their names. A name that imitates Moodle's folder names could hide Ada's file."""
    eve = f"Ada Lovelace_4711{MOODLE}!_4712{MOODLE}{ending}"
    owners = {
        f"Ada Lovelace_4711{MOODLE}{ending}": "Ada Lovelace (4711)",
        eve: eve.partition("/")[0],
        f"Ben Doe_4712{MOODLE}{ending}": "Ben Doe (4712)",
    }
    _, archive = both(tmp_path, dict.fromkeys(owners, NOTEBOOK))
    assert {one.path.partition(": ")[2]: one.student for one in collect([archive])} == owners


@pytest.mark.parametrize("around", ["", "handed_in/"])
@pytest.mark.parametrize("between", ["/", "_"])
def test_a_zip_made_by_hand(tmp_path, around, between):
    """Some file managers add an extra folder around everything in a zip.

    A zip inside a folder belongs to one student.
    """
    names = [f"{around}{student}{between}03_masks.ipynb" for student in ("ada", "ben")]
    write(tmp_path, {"all.zip": dict.fromkeys(names, NOTEBOOK)})
    assert found(tmp_path / "all.zip") == {"ada": ["ok"], "ben": ["ok"]}
    assert found(tmp_path) == {"all": ["ok", "ok"]}


@pytest.mark.parametrize("inner", ["zoe/03_masks.ipynb", "all/zoe/03_masks.ipynb", "zoe_03_masks.ipynb", "zoe.zip"])
@pytest.mark.parametrize("own", ["mallory.zip", "mallory_03_masks.zip", "mallory/mine.zip"])
def test_nobody_submits_under_the_name_of_another(tmp_path, inner, own):
    """If a zip in a folder were read as a class, its folders would count as students, and Zoe would appear twice."""
    hers, his = NOTEBOOK, NOTEBOOK.replace(b"1", b"2")
    content = {inner: {"03_masks.ipynb": his} if inner.endswith(".zip") else his, "own.ipynb": OTHER}
    write(tmp_path, {"zoe/03_masks.ipynb": hers, own: content})
    collected = collect([tmp_path])
    assert [one.content for one in collected if one.student == "zoe"] == [hers]
    assert {one.student for one in collected} == {"mallory", "zoe"}


def test_a_number_of_a_course_system_is_one_student_in_two_zips(tmp_path):
    """A name alone does not identify a student: two groups may each have an Ada."""
    for name, content in (("a.zip", NOTEBOOK), ("b.zip", NOTEBOOK.replace(b"1", b"2"))):
        write(tmp_path, {name: {f"Ada_12{MOODLE}/03_masks.ipynb": content, "Ben/03_masks.ipynb": content}})
    students = [one.student for one in collect([tmp_path / "a.zip", tmp_path / "b.zip"])]
    assert students == ["Ada (12)", "Ben", "Ada (12)", "Ben (2)"]


def test_names_that_look_the_same_are_told_apart(tmp_path):
    """Students whose names look the same must not share a table row.

    On any operating system, their pages must be separate files.
    """
    names = ("ada", "Ada", "ADA", "a\u200bda", "ada ", "ada\n", "ada (2)")
    write(tmp_path, {"all.zip": {f"{name}/03_masks.ipynb": NOTEBOOK for name in names}})
    students = list(found(tmp_path / "all.zip"))
    assert len({unicodedata.normalize("NFC", student).casefold() for student in students}) == len(names)


def test_names_do_not_depend_on_the_order_or_the_form_of_the_arguments(tmp_path, monkeypatch):
    """A resumed run has to find all students under their previous names, and `--resume` uses absolute paths."""
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    folders = [write(Path("x" * n), {f"{name}_03_masks.ipynb": NOTEBOOK for name in ("ada", "ADA")}) for n in (1, 2, 3)]
    archives = [Path("b/c/all.zip"), Path("b/all.zip"), Path("../a/all.zip")]
    for number, path in enumerate(archives):
        write(path.parent, {path.name: {"ada/03_masks.ipynb": NOTEBOOK.replace(b"1", b"%d" % number)}})

    def names(paths: list[Path]) -> list[tuple[str, bytes]]:
        return [(one.student, one.content) for one in collect(paths)]

    assert [student for student, _ in names(archives)] == ["ada", "ada (2)", "ada (3)"]
    for given in (folders, archives):
        assert names(given) == names(given[::-1]) == names([Path(os.path.abspath(path)) for path in given[::-1]])


def test_which_file_gets_the_plain_name(tmp_path):
    """Folders are named by the instructor or the course system, whereas students may choose file names."""
    files = {"zoe/a.ipynb": NOTEBOOK, "zoe.ipynb": b"{}" + NOTEBOOK, "zoe.zip": {"x.ipynb": NOTEBOOK}}
    students = {one.path.rpartition("class/")[2]: one.student for one in collect([both(tmp_path, files)[0]])}
    assert students == {"zoe/a.ipynb": "zoe", "zoe.zip: x.ipynb": "zoe (2)", "zoe.ipynb": "zoe (3)"}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_later_file_does_not_take_an_earlier_name(tmp_path, kind):
    """A copy of a file, or a name with an extra space, may come first alphabetically."""
    first = {"ada_03_masks.ipynb": NOTEBOOK, "Bob Stone/03_masks.ipynb": NOTEBOOK}
    later = {"ada_03_masks (1).ipynb": NOTEBOOK, "Bob  Stone_03_masks.ipynb": NOTEBOOK}
    before, after = (
        {one.path: one.student for one in collect([both(tmp_path, files)[kind == "zip"]])}
        for files in (first, first | later)
    )
    assert before.items() <= after.items()
    assert len(set(after.values())) == 4


NAMES = {
    "../../etc/passwd": ".._.._etc_passwd",
    "a\nb\tc": "a b c",
    "\x1b[31mred\x07": "[31mred",
    "\u202eevil\u200d": "evil",
    "x" * 300: "x" * (LONGEST_NAME - 1) + "…",
    **{name: name for name in ("-rf", "@file", "a::b", "=cmd()", "<script>")},
    **dict.fromkeys(("..", "", " \t\n"), "unnamed"),
    "a\\b": "a_b",
    "lone \ud800 surrogate": "lone ? surrogate",
    "e\u0301": "é",
    "\udcff\udcfe.x": "??.x",
    "\x00null": "null",
    "\ue000private": "private",
}


@pytest.mark.parametrize(("name", "shown"), NAMES.items())
def test_a_name_is_data(name, shown):
    """Names appear in tables, pages, and terminals, so no name may contain anything with a special meaning there."""
    assert printable(name) == shown
    assert printable(name).isprintable()
    assert printable(printable(name)) == printable(name)


def test_any_name_that_a_file_system_takes(tmp_path):
    """Use each name for a student's folder and for a file."""
    names = ["-rf", "@conftest", "a::b", "a\nb", "x" * 240, "=1+1", "\x1b[2J", "~", "$HOME", "a;b", "conftest.py"]
    for name in names:
        assert list(found(write(tmp_path / "one", {f"{name}/{name}.ipynb": NOTEBOOK})).values())[-1] == ["ok"]
        assert list(found(write(tmp_path / "two", {f"{name}.ipynb": NOTEBOOK})).values())[-1] == ["ok"]
    assert len(found(tmp_path / "one")) == len(found(tmp_path / "two")) == len(names)


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX only")
def test_a_name_that_is_not_text(tmp_path):
    try:
        write(tmp_path, {os.fsdecode(b"\xff\xfe/03_masks.ipynb"): NOTEBOOK})
    except OSError as error:
        pytest.skip(f"this file system does not take such a name ({error})")
    assert found(tmp_path) == {"??": ["ok"]}


# --- links and special files -----------------------------------------------------------------------------------------


def test_links_are_not_followed(tmp_path):
    """A student could use a link to submit the solutions, another student's work, or one of the instructor's files."""
    secret = write(tmp_path / "secret", {"03_masks.ipynb": NOTEBOOK})
    handed_in = write(tmp_path / "handed_in", {"ada/03_masks.ipynb": NOTEBOOK, "cy/keep": b"", "fay/keep": b""})
    targets = {"ben": secret, "cy/03_masks.ipynb": secret / "03_masks.ipynb", "dee.ipynb": secret / "03_masks.ipynb"}
    targets |= {"eve.ipynb": "/nowhere", "fay/folder": secret, "gus.zip": "/nowhere", "loop": handed_in}
    for name, target in targets.items():
        (handed_in / name).symlink_to(target)
    links = dict.fromkeys(("ben", "cy", "dee", "eve", "fay", "gus", "loop"), LINK)
    assert found(handed_in) == {"ada": ["ok"], **links}
    for name in ("ben", "dee", "eve", "gus"):
        assert found(next(handed_in.glob(f"{name}*"))) == {name: LINK}


def test_what_is_not_an_ordinary_file(tmp_path):
    """Opening a pipe could block forever. A folder can be empty, or have the same name as a notebook."""
    handed_in = write(tmp_path, {"ada/03_masks.ipynb/03_masks.ipynb": NOTEBOOK, "ben/x": b""})
    os.mkfifo(handed_in / "ben" / "03_masks.ipynb")
    os.mkfifo(handed_in / "pipe.zip")
    (handed_in / "cy").mkdir()
    pipe = ["it is not an ordinary file"]
    assert found(handed_in) == {"ada": ["it is a folder, not a file"], "ben": pipe, "cy": NONE, "pipe": pipe}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    write(tmp_path, {"ada/03_masks.ipynb": NOTEBOOK})
    (tmp_path / "ada" / "03_masks.ipynb").chmod(0)
    assert found(tmp_path) == {"ada": ["it cannot be read (Permission denied)"]}


def test_a_path_that_does_not_exist(tmp_path):
    """The instructor's own mistake is reported before anything is graded."""
    write(tmp_path, {"broken.zip": b"PK\x03\x04 and no more", "empty.zip": b""})
    reasons = {"nowhere": "No such file", "a\0b": "null", "broken.zip": "cannot be read as a zip", "empty.zip": "empty"}
    for name, reason in reasons.items():
        with pytest.raises(InputError, match=reason):
            collect([tmp_path / name])
    assert collect([]) == []


# --- size limits -----------------------------------------------------------------------------------------------------


def test_a_huge_file_is_not_held(tmp_path):
    """Hundreds of files are in memory at once, so none may be huge. This file is sparse and takes up no disk space."""
    path = tmp_path / "ada.ipynb"
    with open(path, "wb") as file:
        file.truncate(200 * MEBIBYTE)
    (submission,) = collect([path])
    assert submission.problem == "it is larger than 64 MiB: clear the outputs and submit it again"
    assert submission.content == b""


def test_pictures_are_left_out_of_a_large_notebook(tmp_path):
    """Three hundred notebooks of five megabytes each are normal, and only their sources are graded."""
    cells = [{"cell_type": "code", "id": f"c{n}", "metadata": {"tags": ["x"]}, "source": f"x = {n}"} for n in range(5)]
    large = [{**cell, "outputs": ["i" * 10**6]} for cell in cells]
    notebook = {"cells": large, "metadata": {"widgets": "w" * 10**6}, "nbformat": 4, "nbformat_minor": 5}
    (submission,) = collect([write(tmp_path, {"ada.ipynb": json.dumps(notebook).encode()})])
    assert submission.problem == ""
    assert len(submission.content) < 1_000
    assert json.loads(submission.content)["cells"] == cells


SPACES = " " * MEBIBYTE
LARGE = [
    (json.dumps({"cells": [{"cell_type": "code", "source": "#" * 3 * MEBIBYTE}]}), "3.0 MiB without its outputs"),
    ("x" * MEBIBYTE * 3, "invalid JSON (line 1, column 1)"),
    ('{"cells": [3, null, "x", {"outputs": 1}], "worksheets": [1]' + SPACES + "}", ""),
    ('{"worksheets": [3, null, {"cells": 7}, {"cells": [{"input": "1"}]}]' + SPACES + "}", ""),
]


@pytest.mark.parametrize(("content", "reason"), LARGE, ids=["long", "text", "odd cells", "worksheets"])
def test_large_files_lose_what_is_not_graded_or_are_refused(tmp_path, content, reason):
    """Large files do not stay in memory or block other submissions. `test_assemble` has more files of this kind."""
    (submission,) = collect([write(tmp_path, {"ada.ipynb": content.encode()})])
    assert reason in submission.problem
    assert bool(submission.problem) == bool(reason)
    assert len(submission.content) <= 1_000


def with_claimed_size(content: bytes, size: int) -> bytes:
    """Return the zip with a different size claimed for its last entry."""
    start = content.rindex(b"PK\x01\x02")
    return content[: start + 24] + struct.pack("<I", size) + content[start + 28 :]


def test_a_bomb_in_a_zip(tmp_path, monkeypatch):
    """A zip can store a hundred megabytes of zeros in a hundred kilobytes, and its directory may give false sizes."""
    monkeypatch.setattr(submissions, "MAX_BYTES", 4 * MEBIBYTE)
    bomb = {"ben/03_masks.ipynb": b"0" * (8 * MEBIBYTE), "ada/03_masks.ipynb": NOTEBOOK}
    too_large = "it is larger than 4 MiB: clear the outputs and submit it again"
    assert found(*both(tmp_path, bomb)[1:]) == {"ada": ["ok"], "ben": [too_large]}
    lying = with_claimed_size(zipped({"ben/03_masks.ipynb": b"0" * (3 * MEBIBYTE)}), 10)
    (ben,) = collect([write(tmp_path, {"class.zip": lying}) / "class.zip"])
    assert "damaged in the zip" in ben.problem or len(ben.content) <= 10


def test_a_zip_with_too_many_entries(tmp_path, monkeypatch):
    """Reading a zip's directory takes a kilobyte of memory per entry. One zip must not affect other students."""
    monkeypatch.setattr(submissions, "MAX_ENTRIES", 50)
    many = {f"{n}.txt": b"" for n in range(1_001)}
    write(tmp_path, {"all.zip": many, "handed_in/ada/all.zip": many, "handed_in/ben/03_masks.ipynb": NOTEBOOK})
    with pytest.raises(InputError, match="the zip has more than 50 entries"):
        collect([tmp_path / "all.zip"])
    assert found(tmp_path / "handed_in") == {"ada": ["the zip has more than 1,000 entries"], "ben": ["ok"]}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:  # uncompressed, so the inner directory is visible
        archive.writestr("ada/03_masks.ipynb", NOTEBOOK)
        archive.writestr("ben/many.zip", zipped(many))
        archive.comment = b"a comment"
    assert set(found(tmp_path / "all.zip")) == {"ada", "ben"}


@pytest.mark.parametrize("comment", [b"", b"a comment", bytes(65_535)])
@pytest.mark.parametrize("locator", [b"", struct.pack("<4sLQL", b"PK\6\7", 0, 2**62, 1)])
def test_the_list_of_a_zip_is_found_where_zipfile_finds_it(comment, locator, tmp_path, monkeypatch):
    """No matter what the zip ends with, the entries counted must be the entries read."""
    monkeypatch.setattr(submissions, "MAX_ENTRIES", 50)
    whole = zipped({f"{n}.txt": b"" for n in range(51)})
    end = whole.rindex(b"PK\5\6")
    record = whole[end:-2] + struct.pack("<H", len(comment)) + comment
    write(tmp_path, {"all.zip": whole[:end] + locator + record})
    with pytest.raises(InputError, match=r"the zip has more than 50 entries|it cannot be read as a zip"):
        collect([tmp_path / "all.zip"])


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """Return the number of bytes read from each file, not counting zip directories."""
    sizes: list[int] = []
    original = submissions._read

    def counted(*arguments) -> bytes:
        content = original(*arguments)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(submissions, "_read", counted)
    return sizes


WAYS = {  # ways to submit many files
    "in one zip": lambda files: {"ada/all.zip": files},
    "in zips": lambda files: {f"ada/{name}.zip": {"03_masks.ipynb": content} for name, content in files.items()},
    "in a folder": lambda files: {f"ada/{name}": content for name, content in files.items()},
    "named by Canvas": lambda files: {f"ada_12_{n}_{name}": files[name] for n, name in enumerate(files)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_packed", [False, True])
def test_one_student_cannot_submit_hundreds_of_files(tmp_path, read, way, is_packed):
    """Files beyond the limit are not even read, and the student is told."""
    files = WAYS[way]({f"{n:03}.ipynb": NOTEBOOK for n in range(200)})
    results = collect([both(tmp_path, files | {"ben/03_masks.ipynb": NOTEBOOK})[is_packed]])
    assert [one.content for one in results if one.student == "ben"] == [NOTEBOOK]
    (refused,) = (one for one in results if one.problem)
    assert refused.student.startswith("ada")
    assert refused.problem == "only the first 100 files of a student are read: submit fewer"
    assert len(read) == submissions.MAX_FILES_PER_STUDENT + 1
    assert len(results) == len(read) - {"in one zip": 1, "in zips": 50}.get(way, 0) + 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_packed", [False, True])
def test_what_one_student_submits_is_limited(tmp_path, monkeypatch, read, way, is_packed):
    """If a file exceeds the student's limit, it is reported, and a later file that still fits is graded."""
    monkeypatch.setattr(submissions, "MAX_BYTES_READ_PER_STUDENT", 5 * MEBIBYTE // 2)
    monkeypatch.setattr(submissions, "MAX_BYTES_KEPT_PER_STUDENT", MEBIBYTE)
    large = NOTEBOOK + b" " * 700_000
    files = WAYS[way]({"a.ipynb": large, "b.ipynb": large, "c.ipynb": NOTEBOOK, "d.ipynb": large, "e.ipynb": large})
    results = collect([both(tmp_path, files | {"ben/a.ipynb": large, "cy/a.ipynb": large})[is_packed]])
    of_ada = [one for one in results if one.student.startswith("ada")]
    held, whole = (
        f"with it, this student's {what} would exceed {most} MiB: clear the outputs and submit fewer"
        for what, most in (("notebooks", "1"), ("files", "2.5"))
    )
    assert [one.problem for one in of_ada] == ["", held, "", held, whole]
    assert sorted((one.student, one.problem) for one in results if one not in of_ada) == [("ben", ""), ("cy", "")]
    assert sum(read) < 5 * MEBIBYTE // 2 + 2 * len(large)


def test_ten_kilobytes_do_not_fill_the_memory(tmp_path):
    """A ten-kilobyte zip can hold a hundred zips, each with a hundred one-megabyte notebooks."""
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": "#" * 1_300_000}]}).encode()
    bomb = {f"{n}.zip": {f"{m}.ipynb": notebook for m in range(20)} for n in range(2)}
    flat = {f"{n}.ipynb": notebook for n in range(40)}
    write(tmp_path, {"ada/all.zip": bomb, "ben/all.zip": {"03_masks.ipynb": notebook}, "cy/all.zip": flat})
    results, peak = with_memory(tmp_path)
    # the data kept for one student, plus the notebook being read
    assert peak < submissions.MAX_BYTES_KEPT_PER_STUDENT + 16 * MEBIBYTE
    assert [[one.problem] for one in results if one.student in ("ada", "ben")] == [NONE, [""]]
    (problem,) = {one.problem for one in results if one.problem and one.student.startswith("cy")}
    assert "exceed 32 MiB" in problem


def test_names_that_are_very_long(tmp_path):
    """A name in a zip can be 64 KiB long. Searching the end of each name for ` (2)` could take hours."""
    names = [f"{n}{' ' * 60_000}x.ipynb" for n in range(90)]
    write(tmp_path, {"ada/all.zip": dict.fromkeys(names, NOTEBOOK), "ben.zip": {"x.ipynb": NOTEBOOK}})
    assert sum(one.content == NOTEBOOK for one in collect([tmp_path])) == 91


# --- zips that lie ---------------------------------------------------------------------------------------------------


def test_entries_that_are_links_or_point_outside(tmp_path):
    """Nothing is unpacked, so nothing can be written elsewhere. A file with such a path earns no points."""
    link = zipfile.ZipInfo("ada/03_masks.ipynb")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    outside = ["../../ben/03_masks.ipynb", "/cy/03_masks.ipynb", "dee/../../03_masks.ipynb", "eve\\..\\03_masks.ipynb"]
    entries = [(link, b"/etc/passwd"), *((name, NOTEBOOK) for name in [*outside, "fay/03_masks.ipynb"])]
    write(tmp_path, {"all.zip": zipped(entries)})
    result = found(tmp_path / "all.zip")
    assert (result.pop("fay"), result.pop("ada")) == (["ok"], LINK)
    assert "ben" in result
    assert [problem for problems in result.values() for problem in problems] == ["its path points outside the zip"] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["all.zip"]


def test_of_two_entries_of_one_name_the_last_counts(tmp_path):
    """Unzip programs also keep the last entry, so the file that people see is the one that is graded."""
    with warnings.catch_warnings(action="ignore"):
        write(tmp_path, {"all.zip": zipped([("ada/03_masks.ipynb", b"{}"), ("ada/03_masks.ipynb", NOTEBOOK)])})
    (submission,) = collect([tmp_path / "all.zip"])
    assert submission.content == NOTEBOOK


DAMAGE = {  # the position in the directory (or in the file, after a header of 60 bytes) and the bytes written there
    "locked": (b"PK\x01\x02", 8, b"\x01"),
    "packed in an unknown way": (b"PK\x01\x02", 10, b"\x4d"),
    "wrong data": (b"PK\x03\x04", 60, b"\xff" * 10),
    "a wrong header": (b"PK\x03\x04", 0, b"XXXX"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_entry_is_reported_and_the_others_are_read(tmp_path, kind):
    content = bytearray(zipped({"ada/03_masks.ipynb": NOTEBOOK * 50, "ben/03_masks.ipynb": NOTEBOOK}))
    mark, offset, damage = DAMAGE[kind]
    start = content.index(mark) + offset
    content[start : start + len(damage)] = damage
    result = found(write(tmp_path, {"all.zip": bytes(content)}) / "all.zip")
    assert result["ben"] == ["ok"]
    assert "zip" in result["ada"][0] or "password" in result["ada"][0]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_entry_that_would_unpack_all_at_once(tmp_path, method):
    """Only zlib decompresses in pieces: a kilobyte of bzip2 becomes a gigabyte before its size can be checked."""
    info = zipfile.ZipInfo("03_masks.ipynb")
    info.compress_type = method
    bomb = with_claimed_size(zipped([(info, b"0" * 32 * MEBIBYTE)]), 1_000)
    write(tmp_path, {"ada/all.zip": bomb, "ben/03_masks.ipynb": NOTEBOOK})
    results, peak = with_memory(tmp_path)
    problem = "it is compressed with bzip2 or LZMA: create the zip with your system's own program"
    assert [(one.student, one.problem) for one in results] == [("ada", problem), ("ben", "")]
    assert peak < 8 * MEBIBYTE


def test_entries_that_are_damaged_count_as_read(tmp_path, monkeypatch):
    """Damage is detected only after unpacking, and a zip can have a hundred damaged entries."""
    monkeypatch.setattr(submissions, "MAX_BYTES_READ_PER_STUDENT", 4 * MEBIBYTE)
    content = bytearray(zipped({f"{n:02}.ipynb": b"0" * MEBIBYTE for n in range(20)}))
    for match in re.finditer(b"PK\x01\x02", bytes(content)):
        content[match.start() + 16 : match.start() + 20] = b"\0\0\0\0"  # the checksum
    result = found(write(tmp_path, {"ada/all.zip": bytes(content), "ben/03_masks.ipynb": NOTEBOOK}))
    assert result.pop("ben") == ["ok"]
    (problems,) = result.values()
    assert ["damaged" in problem for problem in problems] == [True] * 3 + [False] * 17
    assert "with it, this student's files would exceed 4 MiB" in problems[-1]


def test_a_zip_that_is_incomplete(tmp_path):
    """No matter where an upload was cut short, the other submissions are not affected."""
    whole = zipped({"03_masks.ipynb": NOTEBOOK, "x.ipynb": NOTEBOOK, "y.ipynb": OTHER})
    for size in [*range(0, 120, 7), *range(120, len(whole), 61), len(whole) - 1]:
        result = found(write(tmp_path, {"ada/all.zip": whole[:size], "ben/03_masks.ipynb": NOTEBOOK}))
        assert result.pop("ben") == ["ok"]
        assert "ok" not in result["ada"]


def test_zips_within_zips(tmp_path):
    """In a zip from Moodle, a student's zip is a zip within a zip. Deeper zips are ignored."""
    inner: Files = {"03_masks.ipynb": NOTEBOOK}
    for _ in range(5):
        inner = {"more.zip": inner}
        files = {"ada/x.zip": inner, "ben/03_masks.ipynb": NOTEBOOK, "cy/x.zip": {"03_masks.ipynb": NOTEBOOK}}
        for path in both(tmp_path, files):
            assert found(path) == {"ada": NONE, "ben": ["ok"], "cy": ["ok"]}


def test_nothing_is_changed(tmp_path):
    """Submissions are evidence, so collecting them must not modify them."""
    write(tmp_path, {"ada/03_masks.ipynb": NOTEBOOK, "ben/all.zip": {"03_masks.ipynb": NOTEBOOK}})

    def state() -> list[tuple]:
        paths = sorted(tmp_path.rglob("*"))
        return [(path, path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in paths]

    before = state()
    collect([tmp_path])
    assert state() == before
