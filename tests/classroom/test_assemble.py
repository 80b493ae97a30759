"""Without these tests, a correct answer in an odd file could lose points, or a submission could change other cells."""

import copy
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbval.plugin import comment_markers as nbval_markers
from nbval.plugin import find_comment_markers

from transformer_lab.classroom.assemble import Assembled, NotGradable, assemble, is_skipped, role_of
from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.submissions import Submission

ROOT = Path(__file__).resolve().parents[2]
COURSE = Course.find()
NAME = "01_attention"
EXERCISES = [exercise.name for exercise in COURSE.exercises(NAME)]
SOLVED = json.loads((ROOT / "solutions" / f"{NAME}.ipynb").read_text(encoding="utf-8"))
for cell in SOLVED["cells"]:
    cell["source"] = "".join(cell["source"])
ANSWERS = {
    name: next(cell["source"] for cell in SOLVED["cells"] if cell["id"] == f"exercise-{name}") for name in EXERCISES
}


def solved() -> dict[str, Any]:
    return copy.deepcopy(SOLVED)


def untouched() -> dict[str, Any]:
    return json.loads(json.dumps(COURSE.notebook(NAME)))


def handed_in(notebook: Any, path: str = "work.ipynb") -> Assembled:
    content = notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode()
    assembled = assemble(Submission("ada", path, content), COURSE)
    nbformat.validate(assembled.notebook)
    written = nbformat.writes(assembled.notebook).encode("utf-8")  # no lone surrogate remains
    assert nbformat.reads(written.decode(), as_version=4) == assembled.notebook
    exercises = [exercise.name for exercise in COURSE.exercises(assembled.name)]
    cells = {cell.id: cell for cell in assembled.notebook.cells}
    for name in exercises:
        check = cells[f"check-{name}"]
        assert check.source == f"check({name})"
        assert [output.text for output in check.outputs] == [f"submitted: {name}\n"]
        assert check.execution_count
        assert check.metadata == {"transformer_lab": {"check": name}, "tags": ["nbval-check-output"]}
        assert cells[f"exercise-{name}"].metadata.transformer_lab["exercise"] == name
    course = {cell.id for cell in COURSE.notebook(assembled.name).cells}
    assert course <= set(cells)
    for cell in assembled.notebook.cells:
        students = role_of(cell).get("student", False)
        assert students == (cell.id not in course or (students and cell.id.startswith("exercise-")))
        if students:
            assert set(cell.metadata) == {"transformer_lab"}
            assert cell.outputs == []
    assert set(assembled.sources) <= set(exercises)
    assert all("\n" not in remark and remark.isprintable() for remark in assembled.remarks)
    return assembled


def cell_of(notebook: dict[str, Any], cell_id: str) -> dict[str, Any]:
    return next(cell for cell in notebook["cells"] if cell.get("id") == cell_id)


STUBS = {name: cell_of(untouched(), f"exercise-{name}")["source"] for name in EXERCISES}


def insert(notebook: dict[str, Any], before: str, *cells: dict[str, Any]) -> None:
    place = notebook["cells"].index(cell_of(notebook, before))
    notebook["cells"][place:place] = cells


def with_answer(name: str, source: str) -> dict[str, Any]:
    """Return a solved notebook with a different answer to one exercise."""
    notebook = solved()
    cell_of(notebook, f"exercise-{name}")["source"] = source
    return notebook


def without(notebook: dict[str, Any], *ids: str) -> dict[str, Any]:
    return notebook | {"cells": [cell for cell in notebook["cells"] if cell.get("id") not in ids]}


def code(source: str, **fields: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None, **fields}


def order(assembled: Assembled) -> list[str]:
    """Return the sources of the cells that run, in order."""
    return [cell.source for cell in assembled.notebook.cells if cell.cell_type == "code" and not is_skipped(cell)]


# --- normal notebooks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in COURSE.graded if (ROOT / "solutions" / f"{name}.ipynb").exists()])
def test_a_solution(name):
    """All answers are found, nothing is flagged, and the grader runs only the cells that the answers depend on."""
    assembled = handed_in((ROOT / "solutions" / f"{name}.ipynb").read_bytes())
    assert assembled.name == name
    assert list(assembled.sources) == [exercise.name for exercise in COURSE.exercises(name)]
    assert assembled.remarks == ()
    skipped = list(filter(is_skipped, assembled.notebook.cells))
    assert len(skipped) >= 4
    assert not any(map(role_of, skipped))


def test_an_untouched_notebook():
    """The assembled notebook contains the stubs, and nothing is flagged."""
    assembled = handed_in(untouched())
    assert (assembled.sources, assembled.remarks) == (STUBS, ())
    assert all("raise NotImplementedError()" in stub for stub in STUBS.values())


def test_nothing_but_sources_is_taken_over():
    """Forged outputs, tags, and metadata have no effect. Changes to the course's cells have no effect either."""
    notebook = solved()
    notebook["metadata"] = {"kernelspec": {"name": "evil", "display_name": "x"}, "widgets": {}, "nbval": 1}
    for cell in notebook["cells"]:
        cell["metadata"]["tags"] = ["nbval-skip", "raises-exception", "nbval-ignore-output"]
        cell["metadata"]["transformer_lab"] = {"student": False}
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "✓ passed, 3 of 3 points"}]
            cell["execution_count"] = 99
    for name in EXERCISES:
        cell_of(notebook, f"check-{name}")["source"] = f"print('submitted: {name}')"
    cell_of(notebook, "attention-2")["source"] += "\ncheck = print\nimport os\nos._exit(0)"
    assembled = handed_in(notebook)
    assert assembled.notebook == handed_in(solved()).notebook


# --- how an answer is found ------------------------------------------------------------------------------------------


def by_nbgrader(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        del cell["id"]


def by_our_metadata(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        name = cell.pop("id").removeprefix("exercise-")
        cell["metadata"] = {"transformer_lab": {"exercise": name}} if name in EXERCISES else {}


def by_name(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        cell.update(id=f"{random.Random(cell['id']).getrandbits(32):08x}", metadata={})


def without_anything(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        del cell["id"], cell["metadata"]
    del notebook["metadata"], notebook["nbformat"], notebook["nbformat_minor"]


def only_answers(notebook: dict[str, Any]) -> None:
    notebook["cells"] = [code("\n\n".join(ANSWERS[name] for name in EXERCISES))]


def version_3(notebook: dict[str, Any]) -> None:
    cells = [
        {"cell_type": "code", "language": "python", "input": cell["source"].splitlines(keepends=True), "outputs": []}
        if cell["cell_type"] == "code"
        else {"cell_type": "markdown", "source": [cell["source"]]}
        for cell in notebook["cells"]
    ]
    notebook.update(nbformat=3, nbformat_minor=0, worksheets=[{"cells": cells[:9]}, {"cells": cells[9:]}])
    del notebook["cells"]


def windows(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].replace("\n", "\r\n").splitlines(keepends=True)


@pytest.mark.parametrize(
    "change", [by_nbgrader, by_our_metadata, by_name, without_anything, only_answers, version_3, windows]
)
def test_where_an_answer_is_found(change):
    """Answers are found by ID, by metadata (nbgrader's or ours), or by name, even in old or incomplete notebooks."""
    notebook = solved()
    change(notebook)
    assembled = handed_in(notebook)
    assert assembled.name == NAME
    for name in EXERCISES:
        assert ANSWERS[name] in assembled.sources[name]
        assert sum(ANSWERS[name] in source for source in order(assembled)) == 1


@pytest.mark.parametrize(
    ("source", "is_answer"),
    [
        ("softmax = max", True),
        ("!ls\ndef softmax(x):\n    return x", True),
        ("def softmax(x)\n    return x", True),
        ("%%bash\ndef softmax(scores)", False),
        ("print(softmax(3))", False),
    ],
)
def test_a_cell_that_binds_the_name_is_the_answer(source, is_answer):
    """A cell is found by the name it defines, even if it contains IPython syntax or a syntax error.

    `test_cells` has more cases.
    """
    notebook = untouched()
    insert(notebook, "check-softmax", code(source))
    assembled = handed_in(notebook)
    (cell,) = (cell for cell in assembled.notebook.cells if cell.id == "exercise-softmax")
    assert assembled.sources["softmax"] == cell.source == (source if is_answer else STUBS["softmax"])


def test_the_last_definition_counts():
    """Earlier definitions run before the last one, regardless of where they were. The last one may use their names."""
    attempt, last = code("old = softmax\ndef softmax(x):\n    return old(x)"), code("def softmax(x):\n    return 2")
    for cells in ([attempt], [last, attempt], [attempt, last]):
        notebook = solved()
        for cell, place in zip(cells, ["check-numpy_attention", "check-scaled_dot_product_attention"], strict=False):
            insert(notebook, place, cell)
        assembled = handed_in(notebook)
        assert assembled.sources["softmax"] == cells[-1]["source"]
        assert f"`softmax` is defined in {len(cells) + 1} cells: the last one counts." in assembled.remarks
        definitions = [ANSWERS["softmax"], *(cell["source"] for cell in cells)]
        run = order(assembled)
        assert sorted(definitions[:-1]) == sorted(source for source in run if source in definitions[:-1])
        assert max(map(run.index, definitions[:-1])) < run.index(definitions[-1])


def test_a_copied_cell():
    """A copied cell keeps its ID and metadata. If neither copy has an answer, the student is told which one counts."""
    for notebook, remark in (
        (solved(), "`softmax` is defined in 2 cells: the last one counts."),
        (untouched(), "The notebook has 2 cells for `softmax`: the last one counts."),
    ):
        second = copy.deepcopy(cell_of(notebook, "exercise-softmax"))
        second["source"] += "\n# the copy"
        insert(notebook, "check-softmax", second)
        assembled = handed_in(notebook)
        assert assembled.sources["softmax"] == second["source"]
        assert remark in assembled.remarks


def test_a_stub_that_was_left_behind_counts_for_nothing():
    """An answer may be above its exercise or in another answer's cell. A stub after the answer does not count."""
    notebook = untouched()
    both = code(ANSWERS["softmax"] + "\n\n" + ANSWERS["numpy_attention"], id="both")
    insert(notebook, "exercise-softmax", both)
    assembled = handed_in(notebook)
    assert assembled.sources["softmax"] == assembled.sources["numpy_attention"] == both["source"]
    sources = both["source"], STUBS["softmax"], STUBS["numpy_attention"]
    assert list(map(order(assembled).count, sources)) == [1, 0, 0]


def test_answers_in_each_others_cells():
    notebook = with_answer("softmax", ANSWERS["numpy_attention"])
    cell_of(notebook, "exercise-numpy_attention")["source"] = ANSWERS["softmax"]
    assert handed_in(notebook).sources == ANSWERS


TURNED_TO_TEXT = "The cell for `softmax` had been changed to a text cell; it was run as code."


@pytest.mark.parametrize(
    ("kind", "fence"),
    [
        ("markdown", "{}"),
        ("markdown", "```python\n{}\n```"),
        ("markdown", "```\n{}```\n"),
        ("raw", "{}"),
        ("heading", "{}"),
        ("nonsense", "{}"),
        (None, "{}"),
    ],
)
def test_a_cell_turned_to_text(kind, fence):
    """In Jupyter, pressing a single key turns a cell into text. That is easy to overlook."""
    notebook = solved()
    cell = cell_of(notebook, "exercise-softmax")
    cell.update(cell_type=kind, source=fence.format(cell["source"]))
    assembled = handed_in(notebook)
    assert assembled.sources["softmax"].strip() == ANSWERS["softmax"].strip()
    assert TURNED_TO_TEXT in assembled.remarks


def test_a_cell_turned_to_text_in_a_notebook_without_ids():
    """A cell without an ID is identified only by its text.

    If the exercise has an answer, notes about the answer do not count.
    """
    notebook = solved()
    cell_of(notebook, "exercise-softmax")["cell_type"] = "raw"
    without_anything(notebook)
    notebook["cells"].append({"cell_type": "markdown", "source": "```python\ndef numpy_attention(): pass\n```"})
    notebook["cells"].append({"cell_type": "markdown", "source": "class SingleHeadAttention is easy"})
    assembled = handed_in(notebook)
    assert assembled.sources == ANSWERS
    assert TURNED_TO_TEXT in assembled.remarks


def test_text_that_is_not_an_answer():
    """A line of a formula can look like an assignment. An old version of an answer, if kept as text, does not count."""
    notebook = without(solved(), "exercise-softmax")
    notebook["cells"].append({"cell_type": "markdown", "source": "We know that\nsoftmax = exp over sum\n"})
    assert "softmax" not in handed_in(notebook).sources
    notebook = solved()
    cell_of(notebook, "exercise-softmax")["cell_type"] = "raw"
    mine = code("def softmax(scores):\n    return scores")
    insert(notebook, "exercise-softmax", mine)
    assert handed_in(notebook).sources["softmax"] == mine["source"]


def test_a_missing_cell():
    """An exercise whose cell is missing counts as not attempted, and the other exercises are graded."""
    assembled = handed_in(without(solved(), "exercise-softmax", "check-softmax"))
    assert assembled.sources == {name: ANSWERS[name] for name in EXERCISES[1:]}
    assert {
        "The cell for `softmax` is missing.",
        "1 course cell had been deleted and was put back.",
    } == set(assembled.remarks)


def test_moved_cells():
    """Moved cells run in course order, and each helper still runs before the answer that it preceded."""
    pairs = [(code(f"helper_of_{name} = 1"), cell_of(solved(), f"exercise-{name}")) for name in EXERCISES]
    rest = without(solved(), *(f"exercise-{name}" for name in EXERCISES))
    for seed in range(5):
        random.Random(seed).shuffle(pairs)
        assembled = handed_in(rest | {"cells": [*rest["cells"], *(cell for pair in pairs for cell in pair)]})
        run = order(assembled)
        assert [source for source in run if source in ANSWERS.values()] == [ANSWERS[name] for name in EXERCISES]
        for name in EXERCISES:
            assert run.index(f"helper_of_{name} = 1") < run.index(ANSWERS[name])
        assert "Some cells had been moved; they were run in their original order." in assembled.remarks


# --- other cells that are kept ---------------------------------------------------------------------------------------


def test_cells_of_their_own_stay_where_they_were():
    """Students' own cells run after the course cell that they follow and before the next exercise."""
    notebook = solved()
    previous = ["attention-2", "check-softmax", "exercise-numpy_attention"]
    for number, cell_id in enumerate(previous):
        place = notebook["cells"].index(cell_of(notebook, cell_id))
        notebook["cells"].insert(place + 1, code(f"own_{number} = 1\nfirst = {number}"))
    notebook["cells"].insert(0, code("own_top = 1"))
    notebook["cells"].insert(3, {"cell_type": "markdown", "metadata": {}, "source": "my notes"})
    assembled = handed_in(notebook)
    ids = [cell.id for cell in assembled.notebook.cells]
    assert ids[0] == "student-1"
    assert [ids[ids.index(f"student-{number}") - 1] for number in (2, 3, 4)] == previous
    assert "4 cells that you added were run as well." in assembled.remarks
    assert not any("my notes" in cell.source for cell in assembled.notebook.cells)


def test_what_follows_the_last_exercise_comes_along_only_if_it_is_needed():
    """Training code after the last exercise costs no points. A helper that is defined too late is still found."""
    use = "\n\ndef used():\n    return written_late()"
    notebook = with_answer("SingleHeadAttention", ANSWERS["SingleHeadAttention"] + use)
    late = "def written_late():\n    return even_later"
    needed = ["the_last = 0", late, "even_later = the_last", "the_last = 1"]
    unneeded = ["time.sleep(3600)", "unused = 1"]
    notebook["cells"] += map(code, [unneeded[0], *needed, unneeded[1]])
    run = order(handed_in(notebook))
    assert [source for source in run if source in needed + unneeded] == needed


def test_an_import_that_was_added_to_a_cell_of_the_course():
    """Many students add an import to the first cell. Without that import, a correct answer would fail."""
    answer = ANSWERS["scaled_dot_product_attention"].replace("scores.softmax(dim=-1)", "F.softmax(scores, dim=-1)")
    assert "F.softmax" in answer
    notebook = with_answer("scaled_dot_product_attention", answer)
    first = cell_of(notebook, "attention-2")
    first["source"] += "\nimport torch.nn.functional as F\nunused = 1"
    assembled = handed_in(notebook)
    assert order(assembled)[1] == first["source"]
    assert any("that your code needs" in remark for remark in assembled.remarks)


def test_demonstrations_are_run_only_for_answers():
    """An answer may use a table from a course cell. Cells that only print a result must not trigger training."""
    by_hand = cell_of(solved(), "from-scores-to-weights_by-hand-2")["source"]
    assert by_hand not in order(handed_in(solved()))
    name = "scaled_dot_product_attention"
    assert by_hand in order(handed_in(with_answer(name, ANSWERS[name] + "\nprint(exponentials)")))
    notebook = solved()
    insert(notebook, "exercise-softmax", code("print(exponentials)"))
    run = order(handed_in(notebook))
    assert "print(exponentials)" in run
    assert by_hand not in run
    insert(notebook, "exercise-softmax", code("table = exponentials"))
    cell_of(notebook, "exercise-softmax")["source"] += "\nprint(table)"
    assert by_hand in order(handed_in(notebook))


def test_an_answer_in_a_check_cell():
    """A student may merge two cells or use the wrong one. The definition counts, but the call to `check` does not."""
    notebook = untouched()
    cell_of(notebook, "check-softmax")["source"] = merged = ANSWERS["softmax"] + "\n\ncheck(softmax)"
    assert handed_in(notebook).sources["softmax"] == merged


def test_a_name_that_is_not_defined_is_remarked_upon():
    assembled = handed_in(with_answer("softmax", ANSWERS["softmax"].replace("def softmax", "def soft_max")))
    assert "The cell for `softmax` does not define `softmax`." in assembled.remarks
    assert "def soft_max" in assembled.sources["softmax"]


# --- markers ---------------------------------------------------------------------------------------------------------


LINES = ["# {}", "   ###   {}  ", "x = 1\x0c# {}", "x = 1\u2028#{}", "\x1c#{}", "'''\n# {}\n'''"]


@pytest.mark.parametrize("marker", nbval_markers)
def test_nbvals_markers_have_no_effect(marker):
    """nbval obeys comments in cells, so a student could add one that makes nbval skip a cell."""
    notebook = solved()
    texts = [line.format(marker) for line in LINES]
    assert all(list(find_comment_markers(text)) for text in texts)
    cell_of(notebook, "exercise-softmax")["source"] = "\n".join([*texts, ANSWERS["softmax"], *texts])
    notebook["cells"] = [*map(code, texts), *notebook["cells"]]
    assembled = handed_in(notebook)
    students = [cell for cell in assembled.notebook.cells if "student" in role_of(cell)]
    assert len(students) == len(EXERCISES) + len(LINES)
    assert not any(list(find_comment_markers(cell.source)) for cell in students)
    assert marker in assembled.sources["softmax"]  # the page shows the source as the student wrote it


# --- files that cannot be graded -------------------------------------------------------------------------------------

WHOLE = json.dumps(SOLVED).encode()
UNREADABLE = {
    "empty": (b"", "the file is empty"),
    "white space": (b" \n\t", "the file is empty"),
    "truncated": (WHOLE[: len(WHOLE) // 2], "the file is incomplete"),
    "truncated at the end": (WHOLE[:-1], "the file is incomplete"),
    "text": (b"def softmax(): pass", "invalid JSON (line 1, column 1)"),
    "a page": (b"<!DOCTYPE html><html>", "invalid JSON"),
    "two notebooks": (WHOLE + WHOLE, "invalid JSON"),
    "latin-1": (
        WHOLE.decode("unicode_escape", "ignore").encode("latin-1", "replace") + b"\xe4",
        "not encoded as UTF-8",
    ),
    "utf-16": (json.dumps(SOLVED).encode("utf-16"), "UTF-16"),
    "a zip": (b"PK\x03\x04...", "a renamed zip"),
    "null": (b"null", "no list of cells"),
    "a list": (b"[1, 2]", "no list of cells"),
    "a text": (b'"cells"', "no list of cells"),
    "no cells": (b'{"nbformat": 4}', "no list of cells"),
    "cells are no list": (b'{"cells": {"0": 1}}', "no list of cells"),
    "worksheets are no list": (b'{"cells": 3, "worksheets": "abc"}', "no list of cells"),
    "no cell": (b'{"cells": []}', "the notebook is empty"),
    "empty cells": (b'{"cells": [{"cell_type": "code", "source": ""}]}', "the notebook is empty"),
    "no texts": (b'{"cells": [{"source": 3}, 4, null, {"source": [1]}]}', "the notebook is empty"),
    "deep": (b'{"cells": ' + b"[" * 100_000, "nested too deeply"),
    "deep and whole": (b'{"cells": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
    "a long number": (b'{"cells": [' + b"1" * 10_000 + b"]}", "invalid JSON"),
    "many values": (b"[" + b"0," * 2_100_000 + b"0]", "more than 2,000,000 values"),
    "long": (json.dumps({"cells": [code("#" * 399_999)] * 2}).encode(), "more than 400,000 characters"),
    "another course": (json.dumps({"cells": [code("def f(): pass")]}).encode(), "not one of this course's"),
    "the tour": ((ROOT / "notebooks" / "00_tour.ipynb").read_bytes(), "not one of this course's"),
}


def test_what_cannot_be_graded_is_reported_in_one_line():
    """The reason tells the student what to fix before submitting again."""
    submitted = [(Submission("ada", "03_masks.ipynb", content), reason) for content, reason in UNREADABLE.values()]
    for submission, reason in [*submitted, (Submission("ada", "x", b"", "it is a link"), "it is a link")]:
        with pytest.raises(NotGradable) as error:
            assemble(submission, COURSE)
        assert reason in str(error.value)
        assert str(error.value).isprintable()
        assert len(str(error.value)) < 200


def test_unusual_files_that_can_be_graded():
    """Only code has a length limit, because a student may paste a whole paper into a text cell.

    Some editors write a byte-order mark.
    """
    long = solved()
    long["cells"].append({"cell_type": "markdown", "source": "x" * 900_000})
    for content in (long, b"\xef\xbb\xbf" + WHOLE):
        assert handed_in(content).sources == ANSWERS


def test_a_chain_of_a_thousand_helpers_is_followed():
    """Searching all cells again for each helper would take minutes."""
    notebook = with_answer("softmax", ANSWERS["softmax"] + "\nuse = link_0")
    links = [code(f"link_{number} = lambda x: link_{number + 1}(x)") for number in range(1500)]
    notebook["cells"] += [*links, code("link_1500 = abs")]
    assert "1501 cells that you added were run as well." in handed_in(notebook).remarks


@pytest.mark.parametrize(
    "line",
    [" " * 24_000 + "=" + " " * 24_000 + "a", "\n" * 49_000 + "$", "open(" + "'transformer_lab" * 3_000 + ")"],
    ids=["blanks", "empty lines", "quotes"],
)
def test_no_text_makes_reading_it_slow(line):
    """A regular expression that backtracks at every character would take minutes on these strings."""
    notebook = solved()
    notebook["cells"] += [code(f"x{number} = (\n{line}") for number in range(7)]
    assert handed_in(notebook).sources == ANSWERS


# --- which notebook --------------------------------------------------------------------------------------------------


def test_the_name_of_the_file_decides_only_where_nothing_else_does():
    """Students may give a file any name, so the file's content takes precedence over its name."""
    assert handed_in(solved(), "03_masks.ipynb").name == NAME
    both = {"cells": [code(ANSWERS["softmax"]), code("def padding_mask(tokens, pad_id): return tokens")]}
    assert handed_in(both, "hand/03_masks.ipynb").name == "03_masks"
    assert handed_in(both, "hand/01_attention_final.ipynb").name == NAME


def test_answers_that_were_pasted_from_another_notebook_do_not_decide():
    """When you paste a cell, Jupyter keeps nbgrader's metadata. A pasted stub does not count as an answer."""
    masks, attention = (
        json.loads((ROOT / folder / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        for folder, name in (("solutions", "03_masks"), ("notebooks", NAME))
    )
    stubs = [cell for cell in attention if exercise_of(nbformat.from_dict(cell))]
    assert len(stubs) == len(EXERCISES)
    other = "It also contains answers to notebook 01, but only those to 03_masks were graded."
    for pasted, remark in (
        ([code(ANSWERS[name]) for name in EXERCISES], "4 cells that you added were run as well."),
        ([{**cell_of(solved(), f"exercise-{name}"), "id": f"pasted-{name}"} for name in EXERCISES], other),
        ([{**cell, "id": f"pasted-{cell['id']}"} for cell in stubs], None),  # functions and a class
    ):
        assembled = handed_in({"cells": [*pasted, *masks], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        assert assembled.name == "03_masks"
        assert remark in assembled.remarks if remark else other not in assembled.remarks


def test_a_notebook_without_a_single_answer_is_recognized_by_its_cells():
    """If every exercise was deleted, they all count as not attempted, and the notebook can still be graded."""
    assembled = handed_in(without(solved(), *(f"exercise-{name}" for name in EXERCISES)))
    assert (assembled.name, assembled.sources) == (NAME, {})


# --- hostile texts ---------------------------------------------------------------------------------------------------

HOSTILE = {
    "brackets": "softmax = " + "(" * 10_000,
    "minus signs": "softmax = " + "-" * 40_000 + "1",
    "attributes": "softmax = a" + ".b" * 20_000,
    "calls": "softmax = f" + "()" * 20_000,
    "sums": "softmax = " + "+".join(["1"] * 20_000),
    "lambdas": "softmax = " + "lambda: " * 5_000 + "1",
    "conditions": "softmax = " + "1 if 1 else " * 5_000 + "1",
    "comprehensions": "softmax = " + "[" * 90 + "x" + " for x in y]" * 90,
    "indentation": "\n".join(" " * n + "if 1:" for n in range(150)),
    "f-strings": "softmax = " + "f'{" * 50,
    "null bytes": "softmax = 1\0",
    "surrogates": "softmax = '\ud800'",
    "a digit": "softmax = " + "9" * 20_000,
    "an escape": "softmax = '\\N{no such name}' '\\777' '\\d'",
    "a coding line": "# -*- coding: utf-7 -*-\nsoftmax = 1",
    "line ends": "softmax = 1\x0b\x0c\x1c\x85\u2028\u2029x",
    "one long line": "softmax = '" + "x" * 150_000 + "'",
    "many lines": "softmax = 1\n" * 12_000,
    "magics": "!x\n" * 10_000 + "softmax = 1",
    "assignments": "softmax = " + "a = " * 10_000 + "1",
    "an invisible name": "soft\u200bmax = 1",
    "another alphabet": "ѕoftmax = 1",
    "white space": " " * 100_000,
    "a tab": "\tif 1:\n        softmax = 1\n\tx",
    "a match": "match x:\n" + "".join(f"    case {n}: softmax = 1\n" for n in range(2_000)),
    "globals": "global softmax\nsoftmax = 1",
    "nonlocal": "nonlocal softmax",
    "a star": "from os import *",
    "a future": "from __future__ import nothing\nsoftmax = 1",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_texts(kind):
    """Regardless of what a cell contains, the other answers are graded, and the cell's text stays in that cell."""
    notebook = with_answer("softmax", HOSTILE[kind])
    notebook["cells"].insert(5, code(HOSTILE[kind], id="own"))
    assembled = handed_in(notebook)
    assert {name: assembled.sources[name] for name in EXERCISES[1:]} == {name: ANSWERS[name] for name in EXERCISES[1:]}
    if kind == "surrogates":
        remark = "2 cells contained characters that aren't text (lone surrogates): they are shown as �."
        assert remark in assembled.remarks
    elif kind != "white space":
        assert assembled.sources["softmax"] == HOSTILE[kind]


def test_nothing_of_a_submission_runs(tmp_path):
    """Reading, parsing, and transforming a submission does not run any of its code."""
    mark = tmp_path / "mark"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    sources = [
        touch,
        f"!touch {mark}",
        f"%run -m touch {mark}",
        f"%%bash\ntouch {mark}",
        f"%%time\n{touch}\n!touch {mark}\nx = !touch {mark}\nx?",
        f"softmax = {touch}",
        f"class A(metaclass={touch}): pass",
        f"@{touch}\ndef softmax(x={touch}) -> {touch}: pass",
        f"from __future__ import braces\n{touch}",
        f"f'{{{touch}}}'",
        f"import sys; sys.meta_path.insert(0, {touch})",
    ]
    notebook = untouched()
    notebook["cells"] = [c for source in sources for c in (code(source), *notebook["cells"][:1])] + notebook["cells"]
    handed_in(notebook)
    assert not mark.exists()


def test_an_answer_that_a_cell_of_their_own_imports_is_flagged():
    """An import is flagged for the exercises whose names it binds, because nothing else reveals such an answer."""
    notebook = untouched()
    insert(notebook, "exercise-softmax", code("from transformer_lab.model import softmax, numpy_attention"))
    flags = handed_in(notebook).flags
    for name in ("softmax", "numpy_attention"):
        assert flags[name] == (f"line 1 imports the answer: `transformer_lab.model.{name}`",)
    assert not flags["scaled_dot_product_attention"]


def test_an_attempt_on_the_checks_is_flagged_once():
    """A cell that tampers with the checks is run for every exercise, but only the first exercise is flagged."""
    notebook = solved()
    for name in EXERCISES:
        cell_of(notebook, f"exercise-{name}")["source"] = f"def {name}(x):\n    return x\n"
    notebook["cells"].insert(1, code("import transformer_lab\ncheck = print\ntransformer_lab.check = print"))
    flags = handed_in(notebook).flags
    assert flags.pop(EXERCISES[0]) == (
        "another cell replaces `check`",
        "another cell writes into `transformer_lab`",
    )
    assert not any(flags.values())


def test_ids_and_names_of_cells_are_not_taken_over():
    """Cell IDs and names from a submission must not appear in reports or JUnit XML."""
    notebook = solved()
    for number, cell in enumerate(notebook["cells"]):
        if not cell["id"].startswith(("exercise-", "check-")):
            cell["id"] = f"<&\x00{'x' * 300}{number}"
    notebook["cells"].insert(1, code("own = 1", id="exercise-softmax\n", metadata={"name": "a::b"}))
    notebook["cells"].insert(2, code("own = 2", id=["exercise-softmax"]))
    notebook["cells"].insert(3, code("own = 3", id="check-nothing"))
    assembled = handed_in(notebook)
    known = {cell.id for cell in COURSE.notebook(NAME).cells}
    assert {cell.id for cell in assembled.notebook.cells} - known == {"student-1", "student-2", "student-3"}


@pytest.mark.parametrize(("source", "in_front"), [("x = {}", True), ("x = {}", False), ("# {}", False), (" ", True)])
def test_ten_thousand_cells(source, in_front):
    """The grader recognizes the notebook even if its cells have moved, and it finds answers outside their own cells."""
    notebook = solved()
    notebook["cells"].append(code(cell_of(notebook, "exercise-softmax").pop("source")))
    cell_of(notebook, "exercise-softmax")["source"] = ""
    added = [code(source.format(n)) for n in range(10_000)]
    notebook["cells"] = added + notebook["cells"] if in_front else notebook["cells"] + added
    assembled = handed_in(notebook)
    assert assembled.sources == ANSWERS
    assert any("only 2,000 were read" in remark for remark in assembled.remarks)


def spoiled(generator: random.Random) -> bytes:
    """Return a notebook in which some parts are replaced, removed, repeated, or moved."""
    notebook: Any = solved()
    notebook["cells"] = [*generator.sample(notebook["cells"], k=12), cell_of(notebook, "exercise-softmax")]
    junk = [None, True, -1, 1e308, "", "x\ud800", [], {}, [[]], {"a": {"b": []}}, "exercise-softmax", ["def softmax"]]
    for _ in range(generator.randint(1, 8)):
        node: Any = notebook
        while isinstance(node, dict | list) and node:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = generator.choice(keys)
            if generator.random() < 0.4 or not isinstance(node[key], dict | list):
                kind = generator.random()
                if kind < 0.6:
                    node[key] = generator.choice(junk)
                elif kind < 0.8:
                    del node[key]
                elif isinstance(node, list):
                    node.insert(0, node[key])
                else:
                    node[generator.choice(["id", "source", "cells", "metadata", "nbgrader", "cell_type"])] = node[key]
                break
            node = node[key]
    return json.dumps(notebook).encode()


@pytest.mark.parametrize("seed", range(30))
def test_spoiled_notebooks(seed):
    """A spoiled notebook is either assembled or rejected, and the assembled notebook is valid."""
    with suppress(NotGradable):
        handed_in(spoiled(random.Random(seed)))
