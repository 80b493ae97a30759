"""Without these tests, a submission could call the answer, or find a second copy of it in the package."""

import difflib
import inspect
import io
import json
import os
import subprocess
import sys
import textwrap
import tokenize
from functools import cache
from pathlib import Path

import pytest

from transformer_lab.authoring.stubs import stub
from transformer_lab.classroom import inert_exercises
from transformer_lab.classroom.assemble import SKIP, assemble
from transformer_lab.classroom.course import Course
from transformer_lab.classroom.stubbed_package import COPIED, PACKAGE, places_of, write_stubbed_package
from transformer_lab.classroom.submissions import Submission
from transformer_lab.exercises import exercises, notebooks

ROOT = Path(__file__).resolve().parents[2]
COURSE = Course.find()
SOLVED = [name for name in COURSE.graded if (ROOT / "solutions" / f"{name}.ipynb").exists()]
LEAST_TOKENS = 16  # shorter bodies are common code: `self.norm = LayerNorm(d_model)`


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory) -> dict[str, Path]:
    """Return the folder of the stubbed package for each notebook that has exercises."""
    folder = tmp_path_factory.mktemp("stubbed")
    for number in notebooks():
        write_stubbed_package(folder / number, [number])
    return {number: folder / number for number in notebooks()}


@cache
def tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of source text without comments, indentation, and line ends. A docstring is one token."""
    left_out = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    return tuple(t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in left_out)


def bodies(name: str) -> list[tuple[str, ...]]:
    """Return the tokens from the lines that are in an answer but not in its stub."""
    exercise = exercises()[name]
    whole = textwrap.dedent(inspect.getsource(exercise.answer)).strip("\n").splitlines()
    matcher = difflib.SequenceMatcher(None, stub(exercise.answer, exercise.blank).splitlines(), whole, autojunk=False)
    parts = ["\n".join(whole[b1:b2]) for tag, _, _, b1, b2 in matcher.get_opcodes() if tag != "equal"]
    return [tokens(textwrap.dedent(part)) for part in parts if part.strip()]


def windows(stream: tuple[str, ...], length: int) -> set[tuple[str, ...]]:
    return {stream[start : start + length] for start in range(max(1, len(stream) - length + 1))}


def holds(stream: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return part in windows(stream, len(part))


def test_the_measure_finds_an_answer_where_it_is():
    """If the bodies were extracted incorrectly, the other tests would never find anything."""
    for name, exercise in exercises().items():
        stream = tokens((PACKAGE / places_of(exercise)[0][0]).read_text(encoding="utf-8"))
        found = bodies(name)
        assert found, name
        assert all(holds(stream, body) for body in found), name


@pytest.mark.parametrize("number", notebooks())
def test_no_answer_is_left_in_the_package(stubbed, number):
    """No file still contains 60% or more of a function body, no matter how it is formatted.

    Earlier notebooks' answers stay: a student who writes a decoder may read the encoder or inherit from it.
    """
    earlier = {places_of(e)[0][0] for n, found in notebooks().items() if n < number for e in found}
    earlier -= {places_of(e)[0][0] for n, found in notebooks().items() if n >= number for e in found}
    streams = {
        path: tokens(path.read_text(encoding="utf-8"))
        for path in (stubbed[number] / "transformer_lab").rglob("*.py")
        if not any(map(path.match, earlier))
    }
    for exercise in notebooks()[number]:
        for body in bodies(exercise.name):
            length = max(LEAST_TOKENS, int(0.6 * len(body)))
            parts = windows(body, length)
            for path, stream in streams.items():
                if len(body) < LEAST_TOKENS and not path.match(places_of(exercise)[0][0]):
                    continue
                assert not parts & windows(stream, len(next(iter(parts)))), f"{exercise.name} found in {path}"


@pytest.mark.parametrize("number", notebooks())
def test_nothing_is_in_the_package_but_what_runs(stubbed, number):
    """Bytecode, tests, notebooks, and nearly correct wrong answers would give the answers away a second time."""
    files = [path.relative_to(stubbed[number] / "transformer_lab") for path in stubbed[number].rglob("*.*")]
    assert {path.suffix for path in files} <= {".py", ".json", ".jsonl", ".md", ".safetensors", ".xz"}
    assert not [path for path in files if path.name.startswith(("notebook_", "test_", "."))]
    assert not {"authoring", "cli.py"} & {path.parts[0] for path in files}
    assert {path.name for path in files if path.parts[0] == "classroom"} == set(COPIED["classroom"])
    assert not [path for path in files if path.parts[0] == "exercises" and path.name in ("judgment.py", "hints.py")]


# Functions that contain an answer in different code, which comparing source text doesn't find.
ROUNDABOUT = {
    "padding_mask": "from transformer_lab.decoding.table_model import TableModel as T; T({}).encode(torch.ones(1, 2))",
    "apply_bpe": "from transformer_lab.plots.byte_pair_explorer import stages; stages('aa', [('a', 'a')])",
    "beam_search": "from transformer_lab.decoding.search_tree import search_tree; "
    "from transformer_lab.decoding.table_model import TableModel; "
    "search_tree(TableModel({1: {}}), torch.ones(1, 2, dtype=int), 2, 3)",
}


FORKED = """
import os, sys, torch

for folder, code in {runs!r}:
    if os.fork() == 0:  # a fresh copy of this process, because importing torch takes seconds
        sys.path.insert(0, folder)
        try:
            exec(code)
        except NotImplementedError as error:
            os._exit(4 if error.args else 3)  # a stub gives no reason
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def test_no_answer_is_left_under_another_name(stubbed):
    number_of = {exercise.name: number for number, found in notebooks().items() for exercise in found}
    whole = [(str(PACKAGE.parent), code) for code in ROUNDABOUT.values()]
    taken_out = [(str(stubbed[number_of[name]]), code) for name, code in ROUNDABOUT.items()]
    program = FORKED.format(runs=[*whole, *taken_out])
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0"] * len(whole) + ["3"] * len(taken_out), ran.stderr


def test_every_user_can_read_it(tmp_path):
    """The submission runs as an unprivileged user, who must be able to read the package even if the umask is strict."""
    before = os.umask(0o077)
    try:
        package = write_stubbed_package(tmp_path, ["01"])
    finally:
        os.umask(before)
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in package.rglob("*"))


SCRIPT = """
import contextlib, io, json, os, pkgutil, importlib, sys, traceback

runs = json.load(sys.stdin)
sys.path.insert(0, runs[0]["folder"])
import transformer_lab
assert transformer_lab.__file__.startswith(runs[0]["folder"]), transformer_lab.__file__
assert "torch" not in sys.modules and "numpy" not in sys.modules, "importing it is not light"
for name in [name for name in sys.modules if name.split(".")[0] == "transformer_lab"]:
    del sys.modules[name]
import torch, numpy, matplotlib.pyplot

def run(folder, cells, answers):
    sys.path[0] = folder
    if folder == runs[0]["folder"]:  # in this one every answer is a stub
        for module in pkgutil.walk_packages([folder + "/transformer_lab"], "transformer_lab."):
            importlib.import_module(module.name)
    from transformer_lab.exercises.observation import is_unwritten
    for name, (module, blank) in answers.items():
        importlib.import_module(module)
        if not is_unwritten(getattr(sys.modules[module], name), blank):
            return f"{name} is still there"
        if getattr(importlib.import_module("transformer_lab.mine"), name) is not getattr(sys.modules[module], name):
            return f"mine.{name} is something else"
    import __main__
    for source, expected in cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "<cell>", "exec"), vars(__main__))
        if expected and printed.getvalue() != expected:
            return f"{source!r} printed {printed.getvalue()!r}"
    return "fine"

for arguments in runs:
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            print(json.dumps(run(**arguments)))
        except BaseException:
            print(json.dumps(traceback.format_exc()))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def outcomes(stubbed) -> dict[str, str]:
    """Run each solution with its notebook's stubbed package, which lacks the answers, and return the outcomes."""
    runs = {}
    for name in SOLVED:
        content = (ROOT / "solutions" / f"{name}.ipynb").read_bytes()
        cells = assemble(Submission("ada", name, content), COURSE).notebook.cells
        run = [cell for cell in cells if cell.cell_type == "code" and SKIP not in cell.metadata.get("tags", [])]
        runs[name] = {
            "folder": str(stubbed[name[:2]]),
            "cells": [(cell.source, "".join(output.text for output in cell.outputs)) for cell in run],
            "answers": {e.name: (e.answer.__module__, e.blank) for e in notebooks()[name[:2]]},
        }
    command = [sys.executable, "-I", "-B", "-c", SCRIPT]
    ran = subprocess.run(command, input=json.dumps(list(runs.values())), capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return dict(zip(runs, map(json.loads, ran.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", SOLVED)
def test_right_answers_run_with_it(outcomes, name):
    """All modules of the stubbed package can be imported, and its answers are gone. A solution runs without the skipped
    cells: no cell fails because it needs a name from a skipped cell."""
    assert outcomes[name] == "fine"


class Liar:
    def __getattr__(self, name):
        raise RuntimeError("do not look at me")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((lambda: None,), "check: expected an exercise"),
        ((Liar(),), "check: expected an exercise"),
        ((), "check: expected an exercise"),
        ((1, 2, 3), "check: expected an exercise"),
        (("softmax", print), "submitted: softmax"),
        ((print, "softmax"), "submitted: softmax"),
    ],
)
def test_check_never_raises(capsys, arguments, says):
    """If a check cell raised an exception, the student would see a failure that is not the student's fault."""
    assert inert_exercises.check(*arguments) is None
    assert capsys.readouterr().out.startswith(says)


def test_check_finds_the_name_that_holds_a_lambda(capsys, monkeypatch):
    """nbval compares the check's output. A correct answer is found by its variable name, regardless of `__name__`."""
    monkeypatch.setattr(inert_exercises, "ANSWERS", {"softmax": "transformer_lab.model"})
    subject = lambda scores: scores  # noqa: E731
    monkeypatch.setattr(sys.modules["__main__"], "softmax", subject, raising=False)
    inert_exercises.check(subject)
    assert capsys.readouterr().out == "submitted: softmax\n"
