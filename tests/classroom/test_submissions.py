"""Without these, one strange file would stop the batch, fill the memory, or be graded as somebody else's."""

import io
import json
import os
import stat
import struct
import unicodedata
import zipfile
from pathlib import Path

import pytest

from transformer_lab.classroom import submissions
from transformer_lab.classroom.submissions import LONGEST_NAME, MEBIBYTE, collect, printable
from transformer_lab.errors import InputError

NOTEBOOK = json.dumps(
    {"cells": [{"cell_type": "code", "id": "exercise-softmax", "source": "1"}], "nbformat": 4}
).encode()
OTHER = NOTEBOOK.replace(b"softmax", b"padding_mask")


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def zipped(files: dict[str, bytes] | list[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, content)
    return buffer.getvalue()


def found(*paths: Path) -> dict[str, list[str]]:
    """Student to what became of each file: `ok`, or the problem."""
    result: dict[str, list[str]] = {}
    for submission in collect(list(paths)):
        assert bool(submission.content) != bool(submission.problem)
        assert submission.path.isprintable()
        assert submission.student.isprintable()
        result.setdefault(submission.student, []).append(submission.problem or "ok")
    return result


# --- whose is it? ----------------------------------------------------------------------------------------------------


def test_a_folder_for_each_student(tmp_path):
    """As nbgrader and most people arrange it; how deep the notebook lies does not matter."""
    write(
        tmp_path,
        {
            "ada/03_masks.ipynb": NOTEBOOK,
            "ada/01_attention.ipynb": OTHER,
            "ben/week 3/final/03_masks.ipynb": NOTEBOOK,
            "ben/.ipynb_checkpoints/03_masks-checkpoint.ipynb": NOTEBOOK,
            "ben/._03_masks.ipynb": b"\0\0",
            "__MACOSX/ben/._03_masks.ipynb": b"\0",
            "cy/notes.txt": b"I am late",
        },
    )
    assert found(tmp_path) == {"ada": ["ok", "ok"], "ben": ["ok"], "cy": ["there is no notebook (.ipynb) in it"]}


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("ada.ipynb", "ada"),
        ("ada_03_masks.ipynb", "ada"),
        ("03_masks_ada.ipynb", "ada"),
        ("03-masks-Ada Lovelace.ipynb", "Ada Lovelace"),
        ("student_017_03_masks.ipynb", "student_017"),
        ("ada 02_multi_head_attention (1).ipynb", "ada"),
        ("Copy of 03_masks_ada.ipynb", "ada"),
        ("03_masks_ada-Copy1.ipynb", "ada"),
        ("03_masks.ipynb", "handed_in"),
        ("03_masks-Copy2.ipynb", "handed_in"),
        ("ADA_03_MASKS.IPYNB", "ADA"),
        ("lovelaceada_4711_81502_03_masks.ipynb", "lovelaceada (4711)"),
        ("lovelaceada_LATE_4711_81502_my homework-2.ipynb", "lovelaceada (4711)"),
        ("Ada Lovelace_4711_assignsubmission_file_03_masks.ipynb", "Ada Lovelace (4711)"),
    ],
)
def test_a_file_that_names_its_student(tmp_path, name, student):
    """Flat, as people collect them by mail, and as Canvas and Moodle name them."""
    write(tmp_path / "handed_in", {name: NOTEBOOK})
    assert found(tmp_path / "handed_in") == {student: ["ok"]}
    assert found(tmp_path / "handed_in" / name) == {student: ["ok"]}


def test_moodles_zip(tmp_path):
    """A folder a student; two students of one name; one who typed into the text field, one who uploaded a zip."""
    path = tmp_path / "moodle.zip"
    files = {
        "Ada Lovelace_12_assignsubmission_file_/03_masks.ipynb": NOTEBOOK,
        "Ada Lovelace_12_assignsubmission_onlinetext_/onlinetext.html": b"<p>see the file</p>",
        "Ada Lovelace_13_assignsubmission_file_/03_masks.ipynb": NOTEBOOK,
        "Bén Ünal_14_assignsubmission_file_/all.zip": zipped({"a/03_masks.ipynb": NOTEBOOK, "b/x.ipynb": OTHER}),
        "Cy_15_assignsubmission_file_/essay.pdf": b"%PDF",
        "Dee_16_assignsubmission_onlinetext_/onlinetext.html": b"",
    }
    path.write_bytes(zipped(files))
    assert found(path) == {
        "Ada Lovelace (12)": ["ok"],
        "Ada Lovelace (13)": ["ok"],
        "Bén Ünal (14)": ["ok", "ok"],
        "Cy (15)": ["there is no notebook (.ipynb) in it"],
        "Dee (16)": ["there is no notebook (.ipynb) in it"],
    }
    paths = [submission.path for submission in collect([path])]
    assert "moodle.zip: Ada Lovelace_12_assignsubmission_file_/03_masks.ipynb" in paths
    write(tmp_path / "unpacked", files)
    assert found(tmp_path / "unpacked") == found(path)


def test_canvas_zip(tmp_path):
    """Everything in one folder; each file has a number of its own, also where a student uploaded two."""
    path = tmp_path / "submissions.zip"
    path.write_bytes(
        zipped(
            {
                "lovelaceada_12_345_03_masks.ipynb": NOTEBOOK,
                "lovelaceada_12_346_01_attention.ipynb": OTHER,
                "unalben_LATE_13_347_03_masks-1.ipynb": NOTEBOOK,
                "wucy_14_348_work.zip": zipped({"03_masks.ipynb": NOTEBOOK}),
                "dee_15_349_essay.docx": b"PK",
            }
        )
    )
    assert found(path) == {
        "lovelaceada (12)": ["ok", "ok"],
        "unalben (13)": ["ok"],
        "wucy (14)": ["ok"],
        "dee (15)": ["there is no notebook (.ipynb) in it"],
    }


@pytest.mark.parametrize(
    "names",
    [
        ["ada/03_masks.ipynb", "ben/03_masks.ipynb"],
        ["ada_03_masks.ipynb", "ben_03_masks.ipynb"],
        ["handed_in/ada/03_masks.ipynb", "handed_in/ben/03_masks.ipynb"],
        ["handed_in/ada_03_masks.ipynb", "handed_in/ben_03_masks.ipynb"],
    ],
)
def test_a_zip_of_ones_own(tmp_path, names):
    """With one folder around everything, as file managers make them, and without."""
    (tmp_path / "all.zip").write_bytes(zipped(dict.fromkeys(names, NOTEBOOK)))
    assert found(tmp_path / "all.zip") == {"ada": ["ok"], "ben": ["ok"]}
    assert found(tmp_path) == {"ada": ["ok"], "ben": ["ok"]}  # a zip in a folder


def test_two_versions_of_one_notebook(tmp_path):
    """Nothing is lost and nothing mixed up: the second has a name of its own. Two notebooks share the name."""
    write(tmp_path, {"ada/03_masks.ipynb": NOTEBOOK, "ada/03_masks-Copy1.ipynb": NOTEBOOK, "ada/other.ipynb": OTHER})
    assert found(tmp_path) == {"ada": ["ok", "ok"], "ada (2)": ["ok"]}


def test_students_whose_names_look_the_same(tmp_path):
    """Their points would be added up in one row; on some systems their pages would be one file."""
    names = ("ada", "Ada", "a\u200bda", "ada ", "ada\n", "ada (2)")
    (tmp_path / "all.zip").write_bytes(zipped({f"{name}/03_masks.ipynb": NOTEBOOK for name in names}))
    students = list(found(tmp_path / "all.zip"))
    assert len(students) == 6
    assert len({unicodedata.normalize("NFC", student).casefold() for student in students}) == 6


def test_upper_and_lower_case_make_no_other_student(tmp_path):
    """On some systems the pages of `Ada` and `ada` would be one file."""
    (tmp_path / "all.zip").write_bytes(zipped({f"{name}/03_masks.ipynb": NOTEBOOK for name in ("ADA", "Ada", "ada")}))
    assert list(found(tmp_path / "all.zip")) == ["ADA", "Ada (2)", "ada (3)"]


def test_the_order_and_the_names_do_not_depend_on_the_order_of_the_arguments(tmp_path):
    """A run that goes on after a crash finds everybody under the name they had."""
    write(tmp_path, {f"{folder}/{name}_03_masks.ipynb": NOTEBOOK for folder in "xyz" for name in ("ada", "ADA", "ben")})
    folders = [tmp_path / folder for folder in "xyz"]
    assert collect(folders) == collect(folders[::-1])


NAMES = {
    "../../etc/passwd": ".._.._etc_passwd",
    "a\nb\tc": "a b c",
    "\x1b[31mred\x07": "[31mred",
    "\u202eevil\u200d": "evil",
    "x" * 300: "x" * (LONGEST_NAME - 1) + "…",
    "-rf": "-rf",
    "@file": "@file",
    "a::b": "a::b",
    "=cmd()": "=cmd()",
    "..": "unnamed",
    "": "unnamed",
    " \t\n": "unnamed",
    "a\\b": "a_b",
    "lone \ud800 surrogate": "lone ? surrogate",
    "e\u0301": "é",
    "\udcff\udcfe.x": "??.x",
    "<script>": "<script>",
    "\x00null": "null",
    "\ue000private": "private",
}


@pytest.mark.parametrize(("name", "shown"), NAMES.items())
def test_a_name_is_data(name, shown):
    """It stands in tables, in pages and on screens: on one line, without what these obey, never as a path."""
    assert printable(name) == shown
    assert printable(name).isprintable()
    assert printable(printable(name)) == printable(name)


@pytest.mark.parametrize(
    "name", ["-rf", "@conftest", "a::b", "a\nb", "x" * 240, "=1+1", "\x1b[2J", "~", "$HOME", "a;b", "conftest.py"]
)
def test_any_name_that_a_file_system_takes(tmp_path, name):
    """As a student's folder and as the file itself."""
    write(tmp_path / "one", {f"{name}/{name}.ipynb": NOTEBOOK})
    write(tmp_path / "two", {f"{name}.ipynb": NOTEBOOK})
    assert list(found(tmp_path / "one").values()) == list(found(tmp_path / "two").values()) == [["ok"]]


@pytest.mark.skipif(os.name != "posix", reason="only on POSIX are names of files bytes")
def test_a_name_that_is_no_text(tmp_path):
    try:
        os.makedirs(os.fsencode(tmp_path) + b"/\xff\xfe")
    except OSError as error:
        pytest.skip(f"this file system takes no such name ({error})")
    with open(os.fsencode(tmp_path) + b"/\xff\xfe/03_masks.ipynb", "wb") as file:
        file.write(NOTEBOOK)
    assert found(tmp_path) == {"??": ["ok"]}


# --- what is no file -------------------------------------------------------------------------------------------------


def test_links_are_not_followed(tmp_path):
    """A link could hand in the solutions, another student's work, or any file of the instructor's."""
    secret = write(tmp_path / "secret", {"03_masks.ipynb": NOTEBOOK})
    handed_in = write(tmp_path / "handed_in", {"ada/03_masks.ipynb": NOTEBOOK, "cy/keep": b""})
    (handed_in / "ben").symlink_to(secret)
    (handed_in / "cy" / "03_masks.ipynb").symlink_to(secret / "03_masks.ipynb")
    (handed_in / "dee.ipynb").symlink_to(secret / "03_masks.ipynb")
    (handed_in / "eve.ipynb").symlink_to("/nowhere")
    (handed_in / "fay").mkdir()
    (handed_in / "fay" / "folder").symlink_to(secret)
    (handed_in / "loop").symlink_to(handed_in)
    link = ["it is a link, and links are not followed"]
    expected = {"ada": ["ok"], **dict.fromkeys(("ben", "cy", "dee.ipynb", "eve.ipynb", "fay", "loop"), link)}
    assert found(handed_in) == expected
    assert found(handed_in / "dee.ipynb") == {"dee": link}
    assert found(handed_in / "ben") == {"ben": link}


def test_what_is_no_ordinary_file(tmp_path):
    """A pipe would be waited for; a folder may be called like a notebook."""
    handed_in = write(tmp_path, {"ada/03_masks.ipynb/03_masks.ipynb": NOTEBOOK, "ben/x": b""})
    os.mkfifo(handed_in / "ben" / "03_masks.ipynb")
    os.mkfifo(handed_in / "pipe.zip")
    result = found(handed_in)
    assert result.pop("ada") == ["it is a folder, not a file"]
    assert result.pop("ben") == ["it is no ordinary file"]
    (problem,) = result.pop("pipe")
    assert "zip" in problem
    assert not result


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    write(tmp_path, {"ada/03_masks.ipynb": NOTEBOOK})
    (tmp_path / "ada" / "03_masks.ipynb").chmod(0)
    assert found(tmp_path) == {"ada": ["it cannot be read (Permission denied)"]}


def test_a_path_that_does_not_exist(tmp_path):
    """The instructor's own mistake is told as such, before anything is graded."""
    with pytest.raises(InputError, match="No such file"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="null"):
        collect(["a\0b"])
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(InputError, match=r"broken.zip: it cannot be read as a zip"):
        collect([tmp_path / "broken.zip"])
    assert collect([]) == []


# --- too much --------------------------------------------------------------------------------------------------------


def test_a_huge_file_is_not_held(tmp_path):
    """Hundreds lie in memory at once. This one has a hole and takes no room on the disk."""
    path = tmp_path / "ada.ipynb"
    with open(path, "wb") as file:
        file.truncate(200 * MEBIBYTE)
    (submission,) = collect([path])
    assert submission.problem == "it has more than 64 MiB: clear the outputs and hand it in again"
    assert submission.content == b""


def test_pictures_are_left_out_of_a_large_notebook(tmp_path):
    """Three hundred notebooks of five megabytes are nothing special, and nothing of it is graded but the sources."""
    cells = [
        {
            "cell_type": "code",
            "id": f"c{n}",
            "metadata": {"tags": ["x"]},
            "source": f"x = {n}",
            "outputs": ["i" * 10**6],
        }
        for n in range(5)
    ]
    notebook = {"cells": cells, "metadata": {"widgets": "w" * 10**6}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "ada.ipynb").write_text(json.dumps(notebook))
    (submission,) = collect([tmp_path])
    assert submission.problem == ""
    assert len(submission.content) < 1_000
    kept = json.loads(submission.content)["cells"]
    assert [(cell["id"], cell["source"], cell["metadata"]) for cell in kept] == [
        (cell["id"], cell["source"], cell["metadata"]) for cell in cells
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (json.dumps({"cells": [{"cell_type": "code", "source": "#" * 3 * MEBIBYTE}]}), "3.0 MiB without its outputs"),
        ("[" + "[]," * 1_100_000 + "[]]", "more than 2,000,000 values"),
        ('{"cells": ' * 60_000 + "[" * MEBIBYTE, "nested too deeply"),
        ('{"cells": [' + "{}," * 500_000, "the file is not whole"),
        ('{"cells": ["' + "x" * MEBIBYTE, "the file is not whole"),
        ("x" * MEBIBYTE * 3, "no valid JSON (line 1, column 1)"),
        ('{"cells": [' + "1" * MEBIBYTE * 2 + "]}", "no valid JSON"),
        ("[" + " " * MEBIBYTE + "]", "no list of cells"),
        ('{"cells": 3, "worksheets": "abc"' + " " * MEBIBYTE + "}", "no list of cells"),
        ('{"cells": [3, null, "x", {"outputs": 1}], "worksheets": [1]' + " " * MEBIBYTE + "}", ""),
        ('{"worksheets": [3, null, {"cells": 7}, {"cells": [{"input": "1"}]}]' + " " * MEBIBYTE + "}", ""),
    ],
)
def test_large_files_that_are_no_notebooks(tmp_path, content, problem):
    """Nothing of them is held, and none stops anything."""
    (tmp_path / "ada.ipynb").write_text(content)
    (submission,) = collect([tmp_path])
    said = submission.problem, len(submission.content)
    assert problem in said[0]
    assert bool(said[0]) == bool(problem)
    assert said[1] <= 1_000


def test_a_bomb_in_a_zip(tmp_path, monkeypatch):
    """A hundred megabytes of zeros are a hundred kilobytes in the zip; the list of entries may lie about it."""
    monkeypatch.setattr(submissions, "MOST_BYTES", 4 * MEBIBYTE)
    bomb = zipped({"ben/03_masks.ipynb": b"0" * (8 * MEBIBYTE), "ada/03_masks.ipynb": NOTEBOOK})
    (tmp_path / "all.zip").write_bytes(bomb)
    (ada, ben) = collect([tmp_path / "all.zip"])
    assert (ada.student, ada.problem) == ("ada", "")
    assert ben.problem == "it has more than 4 MiB: clear the outputs and hand it in again"

    lying = bytearray(zipped({"ben/03_masks.ipynb": b"0" * (3 * MEBIBYTE)}))
    start = lying.rindex(b"PK\x01\x02")
    lying[start + 24 : start + 28] = struct.pack("<I", 10)  # the size it claims
    (tmp_path / "all.zip").write_bytes(lying)
    (ben,) = collect([tmp_path / "all.zip"])
    assert "damaged in the zip" in ben.problem or len(ben.content) <= 10


def test_a_zip_with_too_many_entries(tmp_path, monkeypatch):
    """Each takes a kilobyte once the list is read."""
    monkeypatch.setattr(submissions, "MOST_ENTRIES", 50)
    (tmp_path / "all.zip").write_bytes(zipped({f"{n}.txt": b"" for n in range(51)}))
    with pytest.raises(InputError, match="the zip has more than 50 entries"):
        collect([tmp_path / "all.zip"])
    inner = zipped({f"{n}.txt": b"" for n in range(1_001)})
    write(tmp_path / "handed_in", {"ada/all.zip": inner, "ben/03_masks.ipynb": NOTEBOOK})
    assert found(tmp_path / "handed_in") == {"ada": ["the zip has more than 1,000 entries"], "ben": ["ok"]}


def test_one_student_cannot_hand_in_a_thousand_files(tmp_path):
    write(tmp_path, {f"ada/{n}.ipynb": NOTEBOOK for n in range(105)} | {"ben/03_masks.ipynb": NOTEBOOK})
    assert len(collect([tmp_path])) == submissions.MOST_FILES_OF_A_STUDENT + 1


# --- zips that lie ---------------------------------------------------------------------------------------------------


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def test_entries_that_are_links_or_point_outside(tmp_path):
    """Nothing is unpacked, so nothing can be written anywhere; and nobody gets points for a path."""
    (tmp_path / "all.zip").write_bytes(
        zipped(
            [
                (entry("ada/03_masks.ipynb", stat.S_IFLNK | 0o777), b"/etc/passwd"),
                ("../../ben/03_masks.ipynb", NOTEBOOK),
                ("/cy/03_masks.ipynb", NOTEBOOK),
                ("dee/../../03_masks.ipynb", NOTEBOOK),
                ("eve\\..\\03_masks.ipynb", NOTEBOOK),
                ("fay/03_masks.ipynb", NOTEBOOK),
            ]
        )
    )
    before = sorted(path.name for path in tmp_path.iterdir())
    outside = ["its name points out of the zip"]
    result = found(tmp_path / "all.zip")
    assert result.pop("fay") == ["ok"]
    assert result.pop("ada") == ["it is a link, and links are not followed"]
    assert result.pop("ben") == outside
    assert all(problems == outside for problems in result.values()), result
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_of_two_entries_of_one_name_the_last_counts(tmp_path):
    """As with every program that unpacks: what people looked at is what is graded."""
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = zipped([("ada/03_masks.ipynb", b"{}"), ("ada/03_masks.ipynb", NOTEBOOK)])
    (tmp_path / "all.zip").write_bytes(content)
    (submission,) = collect([tmp_path / "all.zip"])
    assert submission.content == NOTEBOOK


@pytest.mark.parametrize("place", ["flags", "method", "data", "local"])
def test_a_damaged_entry_is_reported_and_the_others_read(tmp_path, place):
    """Locked with a password, packed in an unknown way, with wrong data, with a wrong header."""
    content = bytearray(zipped({"ada/03_masks.ipynb": NOTEBOOK * 50, "ben/03_masks.ipynb": NOTEBOOK}))
    start, local = content.index(b"PK\x01\x02"), content.index(b"PK\x03\x04")
    if place == "flags":
        content[start + 8] |= 1
    elif place == "method":
        content[start + 10] = 77
    elif place == "data":
        content[local + 60 : local + 70] = b"\xff" * 10
    else:
        content[local : local + 4] = b"XXXX"
    (tmp_path / "all.zip").write_bytes(content)
    result = found(tmp_path / "all.zip")
    assert result["ben"] == ["ok"]
    assert "zip" in result["ada"][0] or "password" in result["ada"][0]


@pytest.mark.parametrize("size", [*range(0, 120, 7), *range(120, 800, 61)])
def test_a_zip_that_is_not_whole(tmp_path, size):
    """An upload that broke off; wherever it did, nothing else is affected."""
    whole = zipped({"03_masks.ipynb": NOTEBOOK, "x.ipynb": NOTEBOOK, "y.ipynb": OTHER})
    write(tmp_path, {"ada/all.zip": whole[: min(size, len(whole) - 1)], "ben/03_masks.ipynb": NOTEBOOK})
    result = found(tmp_path)
    assert result["ben"] == ["ok"]
    assert all(problem != "ok" for problem in result["ada"])


def test_zips_within_zips(tmp_path):
    """One within another is what Moodle makes of a student's zip. Deeper ones are left alone."""
    inner = zipped({"03_masks.ipynb": NOTEBOOK})
    for _ in range(5):
        inner = zipped({"more.zip": inner})
    (tmp_path / "all.zip").write_bytes(zipped({"ada/x.zip": inner, "ben/03_masks.ipynb": NOTEBOOK}))
    assert found(tmp_path / "all.zip") == {"ada": ["there is no notebook (.ipynb) in it"], "ben": ["ok"]}


def test_nothing_is_changed(tmp_path):
    """What was handed in is evidence."""
    write(tmp_path, {"ada/03_masks.ipynb": NOTEBOOK, "ben/all.zip": zipped({"03_masks.ipynb": NOTEBOOK})})

    def state() -> list[tuple]:
        return [
            (path, path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
            for path in sorted(tmp_path.rglob("*"))
        ]

    before = state()
    collect([tmp_path])
    assert state() == before
