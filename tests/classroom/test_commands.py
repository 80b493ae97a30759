"""Without these tests, `release` and `grade` could do the wrong thing or respond to a typo with a traceback."""

import io
import json
import os
import pty
import shlex
import sys

import pytest

from transformer_lab.classroom import batch
from transformer_lab.cli import advance_to, progress

pytestmark = pytest.mark.usefixtures("without_charts")
ALL = {"padding_mask": "# passed", "causal_mask": "# failed", "target_mask": "# timed out"}


@pytest.fixture
def lab(lab, monkeypatch, tmp_path):
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lab


@pytest.fixture
def reader(mark_reader, monkeypatch):
    """Read marks instead of running a grader. `reader.asked` holds the arguments that the command passed."""
    found = mark_reader()

    def open_with(jobs, require_sandbox, cluster):
        found.asked = jobs, require_sandbox, cluster
        return found

    monkeypatch.setattr(batch, "grader_for", open_with)
    return found


@pytest.fixture
def answer(monkeypatch):
    """Return a function that types text at a terminal."""

    def typing(text):
        controller, terminal = pty.openpty()
        monkeypatch.setattr(sys, "stdin", os.fdopen(terminal))
        os.write(controller, f"{text}\n".encode())

    return typing


# --- release ---


def test_release(lab, course, tmp_path):
    done = lab("release", "03", "--out", "handout")
    assert (done.status, done.warnings) == (0, "")
    assert "transformer-lab grade" in done.hints[0]
    names = {"03_masks.ipynb", "README.md", "manifest.json"}
    assert {path.name for path in (tmp_path / "handout").iterdir()} == names
    assert {line.rpartition("/")[2] for line in done.stdout.splitlines()} == names
    manifest = json.loads((tmp_path / "handout" / "manifest.json").read_text())
    assert list(manifest["notebooks"]) == ["03_masks"]
    done = lab("release", "--all", "--out", "all")
    assert sorted(path.stem for path in (tmp_path / "all").glob("*.ipynb")) == course.graded
    assert len(done.stdout.splitlines()) == len(course.graded) + 2  # lists each file once


def test_release_of_what_there_is_not(lab, course):
    assert "unknown notebook `77`" in lab("release", "77").complaint


# --- grade ---


def test_grade(lab, hand_in, reader, tmp_path):
    hand_in("Ada", **ALL)
    (hand_in("Bob", **ALL) / "Bob" / "03_masks.ipynb").write_text("{")
    done = lab("grade", "handed_in", "--jobs", "3", "--cluster", "tcp://host:8786")
    assert reader.asked == (3, True, "tcp://host:8786")
    assert (done.status, done.warnings) == (0, "")
    assert "grades/summary.html" in done.hints[0]
    first, second, *files = done.stdout.splitlines()
    assert first == "1 submission graded, 1 could not be graded; 2 students in the gradebook"
    assert second.startswith("not graded: handed_in/Bob/03_masks.ipynb: ")
    assert {file.strip() for file in files} == {
        str(tmp_path / "grades" / name)
        for name in ("gradebook.csv", "gradebook.sqlite", "summary.html", "feedback", "junit", "gradescope")
    }
    hand_in("Cyd", **ALL)
    again = lab("grade", "handed_in").stdout
    assert again.startswith("1 submission graded, 2 kept; 3 students")


def test_grade_with_the_list_of_the_class(lab, hand_in, reader, tmp_path):
    hand_in("Ada", **ALL)
    (tmp_path / "class.txt").write_text("Ada\nBob\x1b[2J\n")
    done = lab("grade", "handed_in", "--roster", "class.txt")
    assert done.status == 0
    assert done.warnings == "warning: submitted nothing: 1 of the 2 students on the roster: Bob [2J\n"


def test_names_do_not_reach_the_terminal_as_commands(lab, hand_in, reader):
    """An escape sequence in a name could clear the screen or inject text into the terminal."""
    name = "Eve\x1b[2J\x1b]0;owned\x07\u202e\r"
    folder = hand_in(name, **ALL)
    hand_in(name + "2")
    (folder / (name + "2") / "03_masks.ipynb").write_text("\x1b[2J{")
    outcomes = [lab("grade", folder), lab("grade", "--only", "causal_mask", "--yes")]
    reader.overrides = {"causal_mask": "failed \x1b[2J"}
    outcomes.append(lab("grade", "--only", "causal_mask"))
    for done in outcomes:
        assert done.status == 0
        assert all(character.isprintable() or character == "\n" for character in done.stdout + done.stderr)
    assert "Eve" in outcomes[0].stdout
    assert "Eve" in outcomes[2].stdout


@pytest.mark.parametrize("options", [[], ["--without-sandbox"]])
def test_ctrl_c_says_how_to_go_on(lab, hand_in, reader, options):
    hand_in("Ada", **ALL)
    reader.dies_after = 1
    done = lab("grade", hand_in("Bob", **ALL), "--out", "my grades", *options)
    assert done.status == 130
    (line,) = done.stderr.splitlines()
    assert "the grades so far are kept" in line
    reader.dies_after = None
    command = shlex.split(line.partition("continue with: ")[2])
    assert command[5:] == options
    assert lab(*command[1:]).stdout.startswith("1 submission graded, 1 kept; 2 students")
    assert len(reader.graded) == 2


def test_a_pattern_in_the_place_of_a_folder_is_warned_of(lab, hand_in, reader):
    """Without the warning, each student's folder would be read as a class, and each file as a student."""
    for name in ("Ada", "Bob", "Eve"):
        folder = hand_in(name, **ALL)
    assert lab("grade", folder).warnings == ""
    assert lab("grade", folder / "Ada", folder / "Bob").warnings == ""  # two sections of a class are fine
    (line,) = lab("grade", *sorted(folder.iterdir())).warnings.splitlines()
    assert "each path is read as a whole class" in line
    assert str(folder) in line


def test_without_a_sandbox_the_warning_comes_before_anything_is_run(lab, hand_in, reader, monkeypatch, capfd):
    """A warning after grading would come too late to protect the instructor's files. The result repeats the warning."""
    read, printed_before = reader.read, []

    def look_and_read(*given):
        printed_before.append(capfd.readouterr().err)
        return read(*given)

    monkeypatch.setattr(reader, "read", look_and_read)
    reader.sandboxed = False
    for arguments in (["handed_in"], ["--only", "causal_mask", "--yes"]):
        hand_in("Ada", **ALL)
        printed_before.clear()
        done = lab("grade", *arguments, "--without-sandbox")
        assert reader.asked == (None, False, None)
        assert printed_before[0] == "warning: there is no sandbox: students' code runs with your permissions\n"
        assert "warning: 1 submission graded without a sandbox" in done.stderr
        reader.overrides = {"causal_mask": "passed"}


def test_where_there_is_a_sandbox_nothing_warns(lab, hand_in, reader):
    assert lab("grade", hand_in("Ada", **ALL), "--without-sandbox").warnings == ""


def test_only_one_exercise(lab, hand_in, reader, answer, tmp_path):
    hand_in("Ada", **ALL)
    lab("grade", hand_in("Bob", **ALL))
    table = tmp_path / "grades" / "gradebook.csv"
    before = table.read_text()

    same = lab("grade", "--only", "causal_mask")
    assert same.stdout == "causal_mask: 2 answers graded again, 0 with a different result\n"

    reader.overrides = {"causal_mask": "passed"}
    dry = lab("grade", "--only", "causal_mask")
    assert dry.status == 0
    assert dry.stdout.splitlines() == [
        "causal_mask: 2 answers graded again, 2 with a different result",
        "  Ada: failed, 0 of 1 -> passed, 1 of 1",
        "  Bob: failed, 0 of 1 -> passed, 1 of 1",
        "nothing was written; use --yes to keep these results",
    ]
    answer("n")
    assert "nothing was written" in lab("grade", "--only", "causal_mask").stdout
    assert table.read_text() == before
    answer("y")
    assert "2 submissions graded" in lab("grade", "--only", "causal_mask").stdout
    assert table.read_text() == before.replace(",1,0,0,1,3,", ",1,1,0,2,3,")
    reader.overrides = {"causal_mask": "failed"}
    lab("grade", "--only", "causal_mask", "--yes")
    assert table.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["grade", "handed_in", "--out", "strange"], "not a gradebook, or damaged"),
        (["grade", "--only", "causal_maks", "--out", "strange"], "did you mean causal_mask"),
        (["grade", "handed_in", "--roster", "a file"], "a file contains no names"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_slip_is_one_line(lab, hand_in, reader, tmp_path, arguments, says):
    hand_in("Ada", **ALL)
    (tmp_path / "a file").write_text("")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "gradebook.sqlite").write_text("student,points\n" * 100)
    outcome = lab(*arguments)
    assert says in outcome.complaint
    assert outcome.stderr.count("\n") == 1
    assert not (tmp_path / "grades").exists()


@pytest.mark.parametrize("arguments", [[], ["--require-sandbox"], ["--resume"]])
def test_without_a_sandbox_nothing_is_run(lab, hand_in, monkeypatch, tmp_path, arguments):
    """A single line says what is missing and which option allows grading anyway. No grades are written."""
    from transformer_lab.classroom import grader as grading

    monkeypatch.setattr(grading, "why_no_sandbox", lambda: "bubblewrap is not installed (sudo apt install bubblewrap)")
    monkeypatch.setattr(grading.Grader, "__enter__", lambda grader: pytest.fail("it starts processes"))
    folder = hand_in("Ada", **ALL)
    for again in ([], arguments):
        assert lab("grade", folder, *again).complaint == (
            "nothing was run, because there is no sandbox: bubblewrap is not installed (sudo apt install bubblewrap); "
            "--without-sandbox runs students' code with your permissions"
        )
    assert not (tmp_path / "grades" / "gradebook.csv").exists()


def test_without_a_sandbox_the_option_runs_the_real_grader(lab, hand_in, monkeypatch):
    from transformer_lab.classroom import grader as grading

    def start(grader):
        assert not grader.sandboxed
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "why_no_sandbox", lambda: "bubblewrap is not installed")
    monkeypatch.setattr(grading.Grader, "__enter__", start)
    assert lab("grade", hand_in("Ada", **ALL), "--without-sandbox").status == 130


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_bar_shows_what_is_left(monkeypatch, is_terminal):
    """The progress bar appears only in a terminal. If the output goes to a log, nothing is printed."""
    shown = io.StringIO()
    shown.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", shown)
    with progress(None, " submissions") as bar:
        advance_to(bar, 0, 300)
        advance_to(bar, 150, 300)
    assert ("150/300" in shown.getvalue()) == is_terminal
    assert bool(shown.getvalue()) == is_terminal
