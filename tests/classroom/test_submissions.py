"""Without these, one strange file would stop the batch, fill the memory, or be graded as somebody else's."""

import io
import json
import os
import re
import stat
import struct
import tracemalloc
import unicodedata
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


def with_memory(path: Path) -> tuple[list[Submission], int]:
    """What is collected, and how many bytes were held at once."""
    submissions._notebook_pattern()  # imports what it needs, once
    tracemalloc.start()
    try:
        return collect([path]), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


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


@pytest.mark.parametrize("ending", ["/03_masks.ipynb", "03_masks.ipynb"])
def test_a_name_with_moodles_marker_twice_is_nobody_elses(tmp_path, ending):
    """Moodle shows the name that a student chose. One that imitates a folder of Moodle's would bury Ada's file."""
    eve = f"Ada Lovelace_4711_assignsubmission_file_!_4712_assignsubmission_file_{ending}"
    members = {
        f"Ada Lovelace_4711_assignsubmission_file_{ending}": NOTEBOOK,
        eve: OTHER,
        f"Ben Doe_4712_assignsubmission_file_{ending}": NOTEBOOK,
    }
    (tmp_path / "moodle.zip").write_bytes(zipped(members))
    found = {one.path.partition(": ")[2]: one.student for one in collect([tmp_path / "moodle.zip"])}
    assert found == {
        f"Ada Lovelace_4711_assignsubmission_file_{ending}": "Ada Lovelace (4711)",
        eve: eve.partition("/")[0],
        f"Ben Doe_4712_assignsubmission_file_{ending}": "Ben Doe (4712)",
    }


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
    """With one folder around everything, as file managers make them, and without. In a folder it is one student's."""
    (tmp_path / "all.zip").write_bytes(zipped(dict.fromkeys(names, NOTEBOOK)))
    assert found(tmp_path / "all.zip") == {"ada": ["ok"], "ben": ["ok"]}
    assert found(tmp_path) == {"all": ["ok", "ok"]}


@pytest.mark.parametrize("inner", ["zoe/03_masks.ipynb", "all/zoe/03_masks.ipynb", "zoe_03_masks.ipynb", "zoe.zip"])
@pytest.mark.parametrize("kept", ["mallory.zip", "mallory_03_masks.zip", "mallory/mine.zip"])
def test_nobody_hands_in_under_the_name_of_another(tmp_path, inner, kept):
    """In a folder, a zip was read as a class's: its folders became students, and Zoe herself `zoe (2)`."""
    hers, his = NOTEBOOK, NOTEBOOK.replace(b"1", b"2")
    content = zipped({inner: zipped({"03_masks.ipynb": his}) if inner.endswith(".zip") else his, "own.ipynb": OTHER})
    write(tmp_path, {"zoe/03_masks.ipynb": hers, kept: content})
    submissions = collect([tmp_path])
    assert [one.content for one in submissions if one.student == "zoe"] == [hers]
    assert {one.student for one in submissions} == {"mallory", "zoe"}


def test_a_zip_in_a_folder_is_named_as_a_notebook_would_be(tmp_path):
    """Whoever hands in a zip has the same name as with the notebook itself."""
    names = {
        "ada.zip": "ada",
        "ben 03_masks (1).zip": "ben",
        "wucy_14_348_work.zip": "wucy (14)",
        "Dee Roe_15_assignsubmission_file_work.zip": "Dee Roe (15)",
        "03_masks.zip": "handed_in",
    }
    write(tmp_path / "handed_in", dict.fromkeys(names, zipped({"zoe/03_masks.ipynb": NOTEBOOK})))
    write(tmp_path / "handed_in", {"eve.zip": zipped({"essay.pdf": b"%PDF"}), "fay_16_349_essay.docx": b"PK"})
    nothing = ["there is no notebook (.ipynb) in it"]
    expected = {student: ["ok"] for student in names.values()} | {"eve": nothing, "fay (16)": nothing}
    assert found(tmp_path / "handed_in") == expected


@pytest.mark.parametrize(
    "names",
    [
        ["Ada_12_assignsubmission_file_/03_masks.ipynb", "Ben_13_assignsubmission_file_/03_masks.ipynb"],
        ["Ada_12_assignsubmission_file_03_masks.ipynb", "Ben_13_assignsubmission_onlinetext_onlinetext.html"],
        ["lovelaceada_12_345_03_masks.ipynb", "unalben_LATE_13_347_03_masks-1.ipynb"],
    ],
)
def test_the_zip_of_a_course_system_in_a_folder(tmp_path, names):
    """It would be graded as one student's. It is told, and not as an error: a student could make such a zip."""
    write(tmp_path, {"all.zip": zipped(dict.fromkeys(names, NOTEBOOK)), "zoe/03_masks.ipynb": NOTEBOOK})
    problem = "it looks like the zip of a whole class: give the path of the zip itself, not of its folder"
    assert found(tmp_path) == {"all": [problem], "zoe": ["ok"]}
    assert len(found(tmp_path / "all.zip")) == 2


@pytest.mark.parametrize(
    "names",
    [
        ["ada/03_masks.ipynb", "ada/03_masks-Copy1.ipynb"],
        ["Ada Lovelace_12_assignsubmission_file_/03_masks.ipynb", "Ada Lovelace_12_assignsubmission_file_/final.ipynb"],
        ["lovelaceada_12_345_03_masks.ipynb", "lovelaceada_LATE_12_346_03_masks-1.ipynb"],
    ],
)
def test_two_files_of_one_student_for_one_notebook(tmp_path, names):
    """The second had a row of its own: the mean counted it, and the student's row could hold the worse of the two."""
    write(tmp_path / "handed_in", dict.fromkeys(names, NOTEBOOK))
    (tmp_path / "all.zip").write_bytes(zipped(dict.fromkeys(names, NOTEBOOK)))
    for path in (tmp_path / "handed_in", tmp_path / "all.zip"):
        assert list(found(path).values()) == [["ok", "ok"]]


def test_a_number_of_a_course_system_is_one_student_in_two_zips(tmp_path):
    """And a mere name is not: two groups may have an Ada each."""
    for name, content in (("a.zip", NOTEBOOK), ("b.zip", NOTEBOOK.replace(b"1", b"2"))):
        files = {"Ada_12_assignsubmission_file_/03_masks.ipynb": content, "Ben/03_masks.ipynb": content}
        (tmp_path / name).write_bytes(zipped(files))
    students = [one.student for one in collect([tmp_path / "a.zip", tmp_path / "b.zip"])]
    assert students == ["Ada (12)", "Ben", "Ada (12)", "Ben (2)"]


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


def test_the_names_do_not_depend_on_the_order_of_zips_or_on_how_a_path_is_written(tmp_path, monkeypatch):
    """Two zips of one name looked the same, and `--resume` gives whole paths where the first run had short ones."""
    given = [Path("b/c/all.zip"), Path("b/all.zip"), Path("../a/all.zip")]
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    for number, path in enumerate(given):
        write(path.parent, {path.name: zipped({"ada/03_masks.ipynb": NOTEBOOK.replace(b"1", b"%d" % number)})})

    def names(paths: list[Path]) -> list[tuple[str, bytes]]:
        return [(one.student, one.content) for one in collect(paths)]

    assert [student for student, _ in names(given)] == ["ada", "ada (2)", "ada (3)"]
    assert names(given) == names(given[::-1]) == names([Path(os.path.abspath(path)) for path in given[::-1]])


def test_a_folder_comes_before_a_file_of_the_same_name(tmp_path):
    """A folder is named by the instructor or the course system, a file sometimes by its student."""
    write(
        tmp_path,
        {"zoe/03_masks.ipynb": NOTEBOOK, "zoe.ipynb": b"{}" + NOTEBOOK, "zoe.zip": zipped({"x.ipynb": NOTEBOOK})},
    )
    (zoe, *others) = collect([tmp_path])
    assert (zoe.student, zoe.path) == ("zoe", str(tmp_path / "zoe" / "03_masks.ipynb"))
    assert {Path(one.path.partition(":")[0]).name: one.student for one in others} == {
        "zoe.zip": "zoe (2)",
        "zoe.ipynb": "zoe (3)",
    }


def test_who_comes_later_takes_nobodys_name(tmp_path):
    """A copy of a file and a name with another blank sort before those that they resemble."""
    write(tmp_path, {"ada_03_masks.ipynb": NOTEBOOK, "Bob Stone/03_masks.ipynb": NOTEBOOK})
    before = {one.path: one.student for one in collect([tmp_path])}
    write(tmp_path, {"ada_03_masks (1).ipynb": NOTEBOOK, "Bob  Stone_03_masks.ipynb": NOTEBOOK})
    after = {one.path: one.student for one in collect([tmp_path])}
    assert before.items() <= after.items()
    assert len(set(after.values())) == 4


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
    expected = {"ada": ["ok"], **dict.fromkeys(("ben", "cy", "dee", "eve", "fay", "loop"), link)}
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
    assert result.pop("ben") == ["it is not an ordinary file"]
    assert result.pop("pipe") == ["it is not an ordinary file"]
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
    assert submission.problem == "it has more than 64 MiB: clear the outputs and submit it again"
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
        ('{"cells": [' + "{}," * 500_000, "the file is incomplete"),
        ('{"cells": ["' + "x" * MEBIBYTE, "the file is incomplete"),
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
    assert ben.problem == "it has more than 4 MiB: clear the outputs and submit it again"

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


def test_a_zip_in_a_zip_counts_as_one_entry(tmp_path, monkeypatch):
    """Or one student's file could have the zip of a whole class refused."""
    monkeypatch.setattr(submissions, "MOST_ENTRIES", 50)
    many = zipped({f"{n}.txt": b"" for n in range(60)})
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:  # not compressed, so that the inner list is to be seen
        archive.writestr("ada/03_masks.ipynb", NOTEBOOK)
        archive.writestr("ben/many.zip", many)
    assert {one.student for one in collect([tmp_path / "all.zip"])} == {"ada", "ben"}
    with zipfile.ZipFile(tmp_path / "all.zip", "a") as archive:
        archive.comment = b"a comment"
    assert len(collect([tmp_path / "all.zip"])) == 2


@pytest.mark.parametrize("comment", [b"", b"a comment", bytes(65_535)])
@pytest.mark.parametrize("locator", [b"", struct.pack("<4sLQL", b"PK\6\7", 0, 2**62, 1)])
def test_the_list_of_a_zip_is_found_where_zipfile_finds_it(comment, locator, tmp_path, monkeypatch):
    """Whatever stands at the end: what is counted must be what will be read."""
    monkeypatch.setattr(submissions, "MOST_ENTRIES", 50)
    whole = zipped({f"{n}.txt": b"" for n in range(51)})
    end = whole.rindex(b"PK\5\6")
    record = whole[end:-2] + struct.pack("<H", len(comment)) + comment
    (tmp_path / "all.zip").write_bytes(whole[:end] + locator + record)
    with pytest.raises(InputError, match="the zip has more than 50 entries"):
        collect([tmp_path / "all.zip"])


THOUSAND = {f"{n:03}.ipynb": NOTEBOOK for n in range(1_000)}


def all_in_one(files: dict[str, bytes]) -> dict[str, bytes]:
    return {"ada/all.zip": zipped(files)}


def in_zips(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"ada/{name}.zip": zipped({"03_masks.ipynb": content}) for name, content in files.items()}


def in_a_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"ada/{name}": content for name, content in files.items()}


def named_by_canvas(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"ada_12_{n}_{name}": content for n, (name, content) in enumerate(files.items())}


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """How many bytes were read of each file, packed or not, and not of an archive's own list."""
    sizes: list[int] = []
    original = submissions._read

    class Counted:
        def __init__(self, file) -> None:
            self.file = file

        def read(self, size: int) -> bytes:
            content = self.file.read(size)
            sizes.append(len(content))
            return content

    monkeypatch.setattr(submissions, "_read", lambda file, *rest, **more: original(Counted(file), *rest, **more))
    return sizes


@pytest.mark.parametrize("hand_in", [all_in_one, in_zips, in_a_folder, named_by_canvas])
@pytest.mark.parametrize("packed", [False, True])
def test_one_student_cannot_hand_in_a_thousand_files(tmp_path, read, hand_in, packed):
    """Nothing is read of what is not taken, and the student is told."""
    files = hand_in(THOUSAND) | {"ben/03_masks.ipynb": NOTEBOOK}
    if packed:
        (tmp_path / "class.zip").write_bytes(zipped(files))
    else:
        write(tmp_path, files)
    results = collect([tmp_path / "class.zip" if packed else tmp_path])
    (ben,) = (one for one in results if one.student == "ben")
    assert ben.content == NOTEBOOK
    (told,) = (one for one in results if one.problem)
    assert told.student.startswith("ada")
    assert told.problem == "only the first 100 files of a student are read: submit fewer"
    assert len(read) == submissions.MOST_FILES_OF_A_STUDENT + 1
    zips = {all_in_one: 1, in_zips: 50}.get(hand_in, 0)
    assert len(results) == len(read) - zips + 1


@pytest.mark.parametrize("hand_in", [all_in_one, in_zips, in_a_folder, named_by_canvas])
@pytest.mark.parametrize("packed", [False, True])
def test_what_one_student_hands_in_is_limited(tmp_path, monkeypatch, read, hand_in, packed):
    """A file by itself may be as large as any. What is above the limit is reported, what still fits is graded."""
    monkeypatch.setattr(submissions, "MOST_BYTES_READ_OF_A_STUDENT", 5 * MEBIBYTE // 2)
    monkeypatch.setattr(submissions, "MOST_BYTES_KEPT_OF_A_STUDENT", MEBIBYTE)
    large = NOTEBOOK + b" " * 700_000
    files = hand_in({"a.ipynb": large, "b.ipynb": large, "c.ipynb": NOTEBOOK, "d.ipynb": large, "e.ipynb": large})
    files |= {"ben/03_masks.ipynb": large, "cy/03_masks.ipynb": large}
    if packed:
        (tmp_path / "class.zip").write_bytes(zipped(files))
    else:
        write(tmp_path, files)
    results = collect([tmp_path / "class.zip" if packed else tmp_path])
    of_ada = [one for one in results if one.student.startswith("ada")]
    kept = "with it, the notebooks of this student would have more than 1 MiB: clear the outputs and submit fewer"
    whole = "with it, the files of this student would have more than 2.5 MiB: clear the outputs and submit fewer"
    assert [one.problem for one in of_ada] == ["", kept, "", kept, whole]
    assert sorted((one.student, one.problem) for one in results if one not in of_ada) == [("ben", ""), ("cy", "")]
    assert sum(read) < 5 * MEBIBYTE // 2 + 2 * len(large)


def test_ten_kilobytes_do_not_fill_the_memory(tmp_path):
    """A hundred zips of a hundred notebooks of a megabyte are a zip of ten kilobytes."""
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": "#" * 1_300_000}]}).encode()
    inner = zipped({"03_masks.ipynb": notebook})
    bomb = zipped({f"{n}.zip": zipped({f"{m}.ipynb": notebook for m in range(20)}) for n in range(6)})
    flat = zipped({f"{n}.ipynb": notebook for n in range(90)})
    write(tmp_path, {"ada/all.zip": bomb, "ben/all.zip": inner, "cy/all.zip": flat})
    results, peak = with_memory(tmp_path)
    # what is kept of one student, and a notebook that is being read
    assert peak < submissions.MOST_BYTES_KEPT_OF_A_STUDENT + 16 * MEBIBYTE
    assert {one.student: one.problem for one in results if not one.student.startswith("cy")} == {
        "ada": "there is no notebook (.ipynb) in it",
        "ben": "",
    }
    (problem,) = {one.problem for one in results if one.problem and one.student.startswith("cy")}
    assert "more than 32 MiB" in problem


def test_names_that_are_very_long(tmp_path):
    """A name in a zip has up to 64 KiB. Looking for ` (2)` at the end of each would take hours."""
    names = [f"{n}{' ' * 60_000}x.ipynb" for n in range(90)]
    write(tmp_path, {"ada/all.zip": zipped(dict.fromkeys(names, NOTEBOOK)), "ben.zip": zipped({"x.ipynb": NOTEBOOK})})
    assert sum(one.content == NOTEBOOK for one in collect([tmp_path])) == 91


def test_a_hundred_pictures_beside_a_notebook(tmp_path):
    """Only notebooks count: the first hundred entries of a zip were looked at, whatever they were."""
    files = {f"a{n}.png": b"" for n in range(150)} | {"z.ipynb": NOTEBOOK}
    write(tmp_path, {"ada/all.zip": zipped(files)})
    assert found(tmp_path) == {"ada": ["ok"]}


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


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_entry_that_would_unpack_all_at_once(tmp_path, method):
    """Python gives the size of a piece to zlib alone: a kilobyte of bzip2 becomes a gigabyte before it is counted."""
    info = zipfile.ZipInfo("03_masks.ipynb")
    info.compress_type = method
    bomb = bytearray(zipped([(info, b"0" * 32 * MEBIBYTE)]))
    place = bomb.rindex(b"PK\x01\x02")
    bomb[place + 24 : place + 28] = struct.pack("<I", 1_000)  # the size it claims
    write(tmp_path, {"ada/all.zip": bytes(bomb), "ben/03_masks.ipynb": NOTEBOOK})
    results, peak = with_memory(tmp_path)
    problem = "it is compressed with bzip2 or LZMA: make the zip again with your system's own program"
    assert [(one.student, one.problem) for one in results] == [("ada", problem), ("ben", "")]
    assert peak < 8 * MEBIBYTE


def test_entries_that_are_damaged_count_as_read(tmp_path, monkeypatch, read):
    """Damage shows after everything was unpacked, which can be done a hundred times."""
    monkeypatch.setattr(submissions, "MOST_BYTES_READ_OF_A_STUDENT", 4 * MEBIBYTE)
    files = {f"{n:02}.ipynb": b"0" * MEBIBYTE for n in range(20)}
    content = bytearray(zipped(files))
    for match in re.finditer(b"PK\x01\x02", bytes(content)):
        content[match.start() + 16 : match.start() + 20] = b"\0\0\0\0"  # the checksum
    write(tmp_path, {"ada/all.zip": bytes(content), "ben/03_masks.ipynb": NOTEBOOK})
    result = found(tmp_path)
    assert result.pop("ben") == ["ok"]
    (problems,) = result.values()
    assert ["damaged" in problem for problem in problems] == [True] * 3 + [False] * 17
    assert "with it, the files of this student would have more than 4 MiB" in problems[-1]


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
        files = {"ada/x.zip": inner, "ben/03_masks.ipynb": NOTEBOOK, "cy/x.zip": zipped({"03_masks.ipynb": NOTEBOOK})}
        (tmp_path / "all.zip").write_bytes(zipped(files))
        expected = {"ada": ["there is no notebook (.ipynb) in it"], "ben": ["ok"], "cy": ["ok"]}
        assert found(tmp_path / "all.zip") == expected
        assert found(write(tmp_path / "unpacked: all", files)) == expected


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
