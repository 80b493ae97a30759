"""Without these tests, library answers and copies could go undetected, or honest students could be flagged."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from transformer_lab.authoring.stubs import marked_answer, stub
from transformer_lab.classroom.course import Course, exercise_of
from transformer_lab.classroom.integrity import MAX_FLAGS, interference, review, similar
from transformer_lab.exercises import exercises

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = exercises()["scaled_dot_product_attention"]
HEADS = exercises()["MultiHeadAttention"]
SOFTMAX = exercises()["softmax"]
PADDING = exercises()["padding_mask"]
PAD = exercises()["pad_batch"]
COURSE = [
    "import math\nimport numpy as np\nimport torch\nfrom torch import Tensor, nn\nfrom transformer_lab import check"
]


def answer(body: str, before: str = "") -> str:
    return f"{before}def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):\n    return {body}\n"


@pytest.mark.parametrize(
    ("source", "flag"),
    [
        (answer("nn.functional.scaled_dot_product_attention(query, key, value)"), "line 2 uses `torch.nn.functional."),
        (answer("F.scaled_dot_product_attention(query, key, value)"), "line 2 uses `torch.nn.functional.scaled"),
        (
            answer("sdpa(query, key)", "from torch.nn.functional import scaled_dot_product_attention as sdpa\n"),
            "line 3",
        ),
        (answer("f(query)", "f = torch.nn.functional.scaled_dot_product_attention\n"), "line 1 uses"),
        (answer("getattr(torch.nn.functional, 'scaled_dot_product_attention')(query)"), "line 2 uses `torch.nn."),
        (answer("torch._C._nn.scaled_dot_product_attention(query)"), "line 2 uses `torch._C._nn.scaled_dot"),
        (answer("scaled_dot(query)", "from torch.nn.functional import *\n"), "line 1 uses `torch.nn.functional.*`"),
        (answer("torch.ops.aten._scaled_dot_product_attention_math(query)"), "line 2 uses `torch.ops.aten._scaled"),
        (answer("aten.add(query, key)", "from torch.ops import aten\n"), "line 3 uses `torch.ops.aten.add`"),
        (answer("getattr(torch.ops, 'aten').add(query)"), "line 2 uses `torch.ops.aten.add`"),
        (answer("f(query)", "import torch._C as f\n"), "line 3 uses `torch._C`"),
        (answer("torch._scaled_dot_product_attention_math(query)"), "line 2 uses `torch._scaled_dot_product_"),
        (answer("attend(query)", "from torch._C._nn import *\n"), "line 1 uses `torch._C._nn.*`"),
        (answer("nn.MultiheadAttention(4, 1)(query, key, value)"), "line 2 uses `torch.nn.MultiheadAttention`"),
        (answer("nn.modules.activation.MultiheadAttention(4, 1)(query)"), "line 2 uses `torch.nn.modules.activation."),
        (answer("a(query)", "from transformer_lab.model import fused_attention as a\n"), "does not build on"),
        (answer("m.fused_attention(query)", "import transformer_lab.model as m\n"), "line 3 uses `transformer_lab."),
        (answer("transformer_lab.solution('x')", "import transformer_lab\n"), "line 3 uses `transformer_lab.solution`"),
        (answer("eval('F.' + 'scaled')"), "line 2 uses `eval`"),
        (answer("inspect.getsource(query)", "import inspect\n"), "line 3 uses `inspect.getsource`"),
        (answer("pkgutil.resolve_name('torch.nn:' + 'x')(query)", "import pkgutil\n"), "line 3 uses `pkgutil.resolve"),
        (answer("load(file)(query)", "from pickle import load\n"), "line 3 uses `pickle.load`"),
        (answer("pickle.loads(code)(query)", "import pickle\n"), "line 3 uses `pickle.loads`"),
        (answer("_pickle.loads(code)(query)", "import _pickle\n"), "line 3 uses `_pickle.loads`"),
        (answer("torch.serialization.pickle.loads(code)(query)"), "line 2 uses `torch.serialization.pickle.loads`"),
        (answer("p.loads(code)(query)", "from torch.serialization import pickle as p\n"), "line 3 uses `torch.serial"),
        (answer("marshal.loads(code)", "import marshal\n"), "line 3 uses `marshal.loads`"),
        (answer("shelve.open(file)['f'](query)", "import shelve\n"), "line 3 uses `shelve.open`"),
        (answer("run_module('torch.' + 'x')", "from runpy import run_module\n"), "line 3 uses `runpy.run_module`"),
        (answer("torch.load(file)(query)"), "line 2 uses `torch.load`"),
        (answer("np.load(file, allow_pickle=True).item()(query)"), "line 2 uses `numpy.load`"),
        (answer("pd.read_pickle(file)(query)", "import pandas as pd\n"), "line 3 uses `pandas.read_pickle`"),
        (answer("pd.eval('@F.' + 'scaled')", "import pandas as pd\n"), "line 3 uses `pandas.eval`"),
        (answer("methodcaller('soft' + 'max')(query)", "from operator import *\n"), "line 1 uses `operator.*`"),
        (answer("f('soft' + 'max')(query)", "from _operator import methodcaller as f\n"), "line 3 uses `_operator."),
        (answer("torch.__dict__['soft' + 'max'](query, -1)"), "line 2 uses `torch.__dict__`"),
        (answer("torch.Tensor.__dict__['soft' + 'max'](query, -1)"), "line 2 uses `torch.Tensor.__dict__`"),
        (answer("query.__getattribute__('soft' + 'max')(-1)"), "line 2 uses `.__getattribute__`"),
        (answer("object.__getattribute__(torch, 'soft' + 'max')"), "line 2 uses `.__getattribute__`"),
        (answer("locals()['soft' + 'max'](query)"), "line 2 uses `locals`"),
        (answer("__builtins__['ev' + 'al']('x')"), "line 2 uses `__builtins__`"),
        (answer("np.__builtins__['ev' + 'al']('x')"), "line 2 uses `numpy.__builtins__`"),
        (answer("op.methodcaller('soft' + 'max', -1)(query)", "import operator as op\n"), "line 3 uses `operator.m"),
        (answer("attrgetter('nn.' + 'x')(torch)", "from operator import attrgetter\n"), "line 3 uses `operator.attr"),
        (answer("getattr(query, 'soft' + 'max')(-1)"), "line 2 uses `getattr`"),
        (answer("getattr(self.functional, 'soft' + 'max')(query)"), "line 2 uses `getattr`"),
        (answer("get(F, name)(query)", "get = getattr\n"), "line 1 uses `getattr`"),
        ("%load_ext x\n!ls\n" + answer("F.scaled_dot_product_attention(query)"), "line 4 uses `torch.nn.functional."),
        (answer("f(query)", "%time f = torch.nn.functional.scaled_dot_product_attention\n"), "line 1 uses `torch.nn."),
        (answer("f(query)", "%timeit -n 1 -r1 f = F.scaled_dot_product_attention\n"), "line 1 uses `torch.nn."),
        (answer("f(query)", "f = %time F.scaled_dot_product_attention\n"), "line 1 uses `torch.nn.functional."),
        (answer("f(query)", "%time from transformer_lab.model import fused_attention as f\n"), "does not build on"),
        (answer("f(query)", "%%prun f = F.scaled_dot_product_attention\n"), "line 1 uses `torch.nn."),
        (answer("f(query)", "%prun -s cumulative f = F.x\n"), "line 1 runs `%prun`"),
        (answer("f(query)", "%run -i helper.py\n"), "line 1 runs `%run`"),
        (answer("f(query)", "f = %sx cat x\n"), "line 1 runs `%sx`"),
        (answer("f(query)", "!curl example.org\n"), "line 1 runs `!`"),
        (answer("f(query)", ",exec x = 1\n"), "line 1 uses `exec`"),
        (answer("f(query)", "/exec 'x = 1'\n"), "line 1 uses `exec`"),
        *(
            (answer("f.scaled_dot_product_attention(query)", before), "uses `torch.nn.functional.scaled_dot_product_")
            for before in (
                "f = torch.nn.functional\n",
                "g = nn\nf: object = g.functional\n",
                "(f := getattr(nn, 'functional'))\n",
                "f = torch.nn.functional\nif False: torch = nn = 0\n",
            )
        ),
        ("%%time\n%%prun\n!ls\n" + answer("F.scaled_dot_product_attention(query)"), "line 3 runs `!`"),
        ("\n \n?exec\n" + answer("F.scaled_dot_product_attention(query)"), "line 5 uses `torch.nn."),
        (answer("F.scaled_dot_product_attention(query)") + "#" + "x" * 50_000, "it cannot be read as Python"),
    ],
)
def test_a_librarys_answer_is_flagged_with_its_line(source, flag):
    """Each source uses a different way to call a library function that solves the exercise."""
    flags = review(ATTENTION, source, [], COURSE)
    assert any(flag in text for text in flags), flags
    assert not any("\n" in text for text in flags)


HONEST = [
    "weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), -1)",
    "softmax = nn.Softmax(dim=-1)\nweights = softmax(query)",
    "nn.functional.softmax(query, dim=-1), check",
    "F = 3\nprint(F)",
    "sys.float_info.max, os.path",
    "torch.__version__, torch.optim, torch.signal.windows, scipy.signal.convolve",
    "model.eval(), model.load_state_dict(query.__dict__), table.eval('a + b'), self.__dict__, layer.inspect()",
    "weights = query.softmax(dim=-1)",
    "attend = getattr(query, 'attend', None), getattr(nn, 'Linear')",
    "import operator\nproduct = operator.mul(query, operator.itemgetter(0)(key))",
    "for name in ('w_q', 'w_k'):\n    getattr(self, name)(query), getattr(self.attention, self.names[0])(key)",
    # IPython's commands
    "%matplotlib inline",
    "%time x = 1",
    "%timeit -n1 -r 2 math.sqrt(2)",
    "torch.exp?",
]


def softmax(expression: str) -> str:
    return f"def softmax(scores):\n    return {expression}\n"


SDPA = "torch.nn.functional.scaled_dot_product_attention"
HELPER = f"def helper(*arguments):\n    return {SDPA}(*arguments)\n"
OTHER_ANSWER = "import torch.nn.functional as tnf\nquick = tnf.scaled_dot_product_attention\n" + softmax(
    "nn.MultiheadAttention(4, 1)(scores)"
)


@pytest.mark.parametrize(
    ("exercise", "source", "cells", "flags"),
    [
        # a helper is part of the answer, even if called through another helper; a cell that the answer ignores is not
        (
            ATTENTION,
            answer("through(query)"),
            [HELPER, "def through(*x):\n    return helper(*x)", "expected = nn.MultiheadAttention(4, 1)"],
            [f"line 2 of another cell uses `{SDPA}`"],
        ),
        (ATTENTION, answer("helper(query)"), [HELPER + "#" + "x" * 50_000], ["another cell cannot be read as Python"]),
        (
            ATTENTION,
            answer("tnf.scaled_dot_product_attention(query)"),
            ["import torch.nn.functional as tnf"],
            [f"line 2 uses `{SDPA}`"],
        ),
        # a cell that changes a library is part of every answer, even though it binds no name
        (
            SOFTMAX,
            softmax("torch.from_numpy(scores).normal(-1).numpy()"),
            ["torch.Tensor.normal = torch.Tensor.softmax"],
            ["line 1 of another cell uses `torch.Tensor.softmax`"],
        ),
        # a library may have the answer under several names, and tensors have some of them as methods
        *(
            (exercise, f"def {exercise.name}(scores):\n    return {expression}", [], [f"line 2 uses `{used}`"])
            for exercise, expression, used in [
                (SOFTMAX, "torch.nn.functional.softmin(-scores, -1)", "torch.nn.functional.softmin"),
                (SOFTMAX, "nn.Softmin(-1)(-scores)", "torch.nn.Softmin"),
                (SOFTMAX, "nn.Softmax2d()(scores)", "torch.nn.Softmax2d"),
                (SOFTMAX, "scores.softmax(-1)", ".softmax"),
                (SOFTMAX, "torch.from_numpy(scores).softmax(-1).numpy()", ".softmax"),
                (SOFTMAX, "torch.tensor(scores).log_softmax(dim=-1).exp().numpy()", ".log_softmax"),
                (SOFTMAX, "getattr(torch.from_numpy(scores), 'softmax')(-1)", ".softmax"),
                (SOFTMAX, "torch.Tensor.softmax(torch.tensor(scores), -1)", "torch.Tensor.softmax"),
                (SOFTMAX, "torch.nn.functional.log_softmax(scores, -1).exp()", "torch.nn.functional.log_softmax"),
                (SOFTMAX, "torch.special.log_softmax(torch.tensor(scores), -1)", "torch.special.log_softmax"),
                (SOFTMAX, "nn.LogSoftmax(-1)(torch.tensor(scores)).exp()", "torch.nn.LogSoftmax"),
                (PAD, "torch.nested.nested_tensor(scores)", "torch.nested.nested_tensor"),
                (PAD, "torch.nested.to_padded_tensor(ragged, 0)", "torch.nested.to_padded_tensor"),
                (PAD, "ragged.to_padded_tensor(0)", ".to_padded_tensor"),
            ]
        ),
        # functions that the exercise allows, the course's own imports, and variables named like a function
        *((ATTENTION, answer("query @ key", f"import os\nimport sys\n{line}\n"), [], []) for line in HONEST),
        *((ATTENTION, answer("query @ key", f"{magic}\nx = 1\n"), [], []) for magic in ("%%time", "%%capture")),
        (ATTENTION, softmax("scores.softmax(-1)"), [], []),  # later notebooks use it themselves
        # a string can be used as a name; a word in a sentence can't
        *(
            (SOFTMAX, softmax(f"{name}(scores)"), [], ["line 2 contains the text `softmax`"])
            for name in ("methodcaller('softmax', -1)", "methods['softmax']")
        ),
        (ATTENTION, softmax("methodcaller('softmax', -1)(scores)"), [], []),
        (SOFTMAX, 'def softmax(scores):\n    """softmax"""\n    raise ValueError("softmax of nothing")\n', [], []),
        # a solution that was copied and changed may still contain a marker
        *(
            (
                ATTENTION,
                answer(f"query @ key\n    {marker}"),
                [],
                [f"it contains `{marker}`, a marker from the course's own solution"],
            )
            for marker in ("### BEGIN SOLUTION", "### END SOLUTION")
        ),
    ],
)
def test_what_is_flagged(exercise, source, cells, flags):
    """The listed flags appear, and no other flags appear."""
    assert list(review(exercise, source, cells, COURSE)) == flags


def test_a_helper_in_the_cell_of_another_exercise_is_found():
    """A helper in another exercise's cell is checked.

    That exercise's own answer and the functions it uses are not checked.
    """
    through = answer("quick(query, key, value)")
    flags = review(ATTENTION, through, [], COURSE, {"softmax": OTHER_ANSWER, ATTENTION.name: through})
    assert f"line 2 of another cell uses `{SDPA}`" in flags
    honest = answer("tnf.softmax(softmax(query), -1)")
    assert review(ATTENTION, honest, [], COURSE, {"softmax": OTHER_ANSWER, ATTENTION.name: honest}) == ()


def test_parts_that_the_exercise_builds_on_are_free():
    """Parts that an exercise builds on are not flagged: notebook 02 itself imports `scaled_dot_product_attention`."""
    course = ["from transformer_lab.mine import scaled_dot_product_attention\nfrom transformer_lab.model import Mask"]
    source = "class MultiHeadAttention(nn.Module):\n    attend = scaled_dot_product_attention\n    other = Mask\n"
    assert review(HEADS, source, [], course) == ()
    own = "from transformer_lab.model import split_heads\n" + source
    assert review(HEADS, own, [], course) == ()


@pytest.mark.parametrize(
    ("before", "module", "names"),
    [
        ("", "transformer_lab.model", "padding_mask"),
        ("import math\n", "transformer_lab.model.masks", "padding_mask"),
        ("", "transformer_lab.model", "causal_mask as padding_mask"),
        ("", "transformer_lab.mine", "padding_mask"),
        ("try:\n    ", "transformer_lab.model", "padding_mask\nexcept: pass"),
        ("", "elsewhere", "padding_mask"),
    ],
)
def test_an_answer_that_is_imported_is_flagged(before, module, names):
    """Without a flag, an imported answer would earn all points even if the cell never calls it."""
    source = f"{before}from {module} import {names}"
    line = 1 + before.count("\n")
    flag = f"line {line} imports the answer: `{module}.{names.split()[0]}`"
    assert review(PADDING, source, [], COURSE) == (flag,)
    assert review(exercises()["target_mask"], source, [], COURSE) == ()


@pytest.mark.parametrize("name", ["padding_mask", "*"])
def test_an_answer_that_another_cell_imports_is_flagged(name):
    """Another cell imports the answer by name or with a star, and the student's answer then redefines that name."""
    source = "theirs = padding_mask\ndef padding_mask(tokens, pad):\n    return theirs(tokens, pad)"
    (flag,) = review(PADDING, source, [f"from transformer_lab.model import {name}"], COURSE)
    assert flag.startswith("line 1 of another cell ")
    assert f"`transformer_lab.model.{name}`" in flag


@pytest.mark.parametrize(
    ("source", "flag"),
    [
        ("from transformer_lab.model import *", "uses `transformer_lab.model.*`, which the exercise does not build on"),
        ("exec('from transformer_lab.model import ' + 'padding_mask')", "uses `exec`"),
        ("globals()['padding_' + 'mask'] = 1", "uses `globals`"),
        ("locals()['padding_' + 'mask'] = 1", "uses `locals`"),
        ("%run helper.py", "runs `%run`"),
    ],
)
def test_a_cell_that_may_define_anything_is_looked_at(source, flag):
    """A cell may redefine names between the answer and its check, even names that the answer does not mention."""
    own = textwrap.dedent(inspect.getsource(PADDING.answer))
    assert review(PADDING, own, [source], COURSE) == (f"line 1 of another cell {flag}",)


def test_what_the_course_imports_for_its_own_pictures_is_no_answer():
    """Below the exercise, notebook 01 itself imports the package's attention under another name."""
    course = ["from transformer_lab.model import scaled_dot_product_attention as package_attention"]
    (flag,) = review(ATTENTION, answer("package_attention(query, key, value)"), [], course)
    assert "`transformer_lab.model.scaled_dot_product_attention`, which" in flag


@pytest.mark.parametrize("name", Course.find().graded)
def test_a_stub_below_the_imports_of_its_notebook_is_not_flagged(name):
    """Imports of `check`, `hint`, and parts from `transformer_lab.mine` are not flagged, as the course has them."""
    notebook = Course.find().notebook(name)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not exercise_of(cell)]
    imports = [line for cell in cells for line in cell.split("\n") if line.startswith("from transformer_lab")]
    imports = [line for line in imports if not line.endswith("(") and " as " not in line]
    for exercise in Course.find().exercises(name):
        source = "\n".join([*imports, stub(exercise.answer, exercise.blank)])
        assert review(exercise, source, [], cells) == ()


def test_a_name_of_their_own_hides_ours():
    """A student's function may have the same name as something that another cell imports."""
    course = ["from torch.nn.functional import scaled_dot_product_attention as attend"]
    assert review(ATTENTION, answer("attend(query, key, value)"), [], course)
    assert review(ATTENTION, "def attend(*x): return x\n" + answer("attend(query)"), [], course) == ()
    assert review(ATTENTION, answer("attend(query)"), ["def attend(*x): return x"], course) == ()


THE_TEXT = "it is identical to the course's own solution"


@pytest.mark.parametrize("name", exercises())
def test_the_courses_own_answer_is_recognized_if_it_is_large_enough(name):
    """`solution(...)` shows the answer, so anyone can copy it."""
    exercise = exercises()[name]
    own = textwrap.dedent(inspect.getsource(exercise.answer)).replace("mask", "my_mask").replace("scores", "s")
    flags = review(exercise, f"# mine\n{own}", [], [])
    assert set(flags) <= {THE_TEXT, "except for names and comments, it is the course's own answer"}
    assert len(flags) <= 1


@pytest.mark.parametrize("name", exercises())
def test_the_text_of_a_solution_is_flagged(name):
    """Test a cell from `solutions/` once unchanged, and once without its markers, comments, and docstrings."""
    exercise = exercises()[name]
    assert review(exercise, marked_answer(exercise.answer, exercise.blank), [], COURSE) == (THE_TEXT,)
    plain = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(exercise.answer))))
    assert set(review(exercise, plain, [], COURSE)) <= {THE_TEXT}
    indented = f"if True:\n{textwrap.indent(plain, '    ')}"
    renamed = f"{plain.replace(f' {name}(', ' mine(', 1)}\n{name} = mine"
    for source in (indented, renamed):
        assert (THE_TEXT in review(exercise, source, [], COURSE)) == (THE_TEXT in review(exercise, plain, [], COURSE))


def test_the_guide_says_where_copies_go_unnoticed():
    """An instructor who relies on flags has to know which exercises never get one."""
    answers = {name: inspect.getsource(exercise.answer) for name, exercise in exercises().items()}
    unflagged = [name for name, source in answers.items() if not review(exercises()[name], source, [], COURSE)]
    not_compared = [name for name, text in answers.items() if not similar([(who, name, text) for who in ("a", "b")])]
    guide = " ".join((ROOT / "CLASSROOM.md").read_text(encoding="utf-8").split())
    (passage,) = re.findall(r"For \d+ of the \d+ exercises, not even .* identical copies to be listed", guide)
    names = [name for name in re.findall(r"`(\w+)`", passage) if name in answers]
    counts = [len(unflagged), len(answers), len(not_compared), len(answers), len(unflagged)]
    assert (names, list(map(int, re.findall(r"\d+", passage)))) == (unflagged, counts)
    assert set(unflagged) <= set(not_compared)


def test_a_short_solution_may_be_found_by_oneself():
    """`padding_mask` is one line, and its last hint nearly reveals it. A copied comment cannot be a coincidence."""
    assert review(PADDING, textwrap.dedent(inspect.getsource(PADDING.answer)), [], COURSE) == ()
    combine = exercises()["combine_heads"]
    own = textwrap.dedent(inspect.getsource(combine.answer))
    comments = [line for line in own.split("\n") if "  # " in line]
    assert comments, "this test needs a short answer with a comment"
    assert review(combine, own, [], COURSE) == (THE_TEXT,)
    for line in comments:
        own = own.replace(line, line.partition("  # ")[0])
    assert review(combine, own, [], COURSE) == ()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("check = print", "replaces `check`"),
        ("def run_check(*anything): return 1", "replaces `run_check`"),
        ("def f():\n    global check\n    check = 1", "replaces `check`"),
        ("from elsewhere import check", "replaces `check`"),
        ("import transformer_lab\ntransformer_lab.exercises.x = 1", "writes into `transformer_lab`"),
        (
            "import transformer_lab.exercises.judgment as j\nj.judge = 1",
            "writes into `transformer_lab.exercises.judgment`",
        ),
        ("import transformer_lab\nsetattr(transformer_lab.exercises, 'x', 1)", "writes into `transformer_lab`"),
        ("check.__code__ = f.__code__", "writes into `transformer_lab.check`"),
        ("open('transformer_lab/exercises/judgment.py', 'w').write('')", "opens a file of the package"),
        ("import transformer_lab as t\nPath(t.__file__).write_text('')", "opens a file of the package"),
        # a repeated import, a part that the student built, a local variable, and unrelated files and objects
        ("from transformer_lab import check", None),
        ("def split_heads(x): return x", None),
        ("def f(check):\n    check[0] = 1\n    check = 2", None),
        ("open('notes.txt').read()", None),
        ("setattr(model, 'x', 1)", None),
        ("torch.x = 1", None),
    ],
)
def test_an_attempt_on_the_checks_is_reported(source, says):
    """An attempt to tamper with the checks earns no points, but the instructor should know about it."""
    course = [*COURSE, "from transformer_lab.exercises import run_check\nfrom transformer_lab.mine import split_heads"]
    assert interference(source, course) == ([says] if says else [])


def test_what_cannot_be_read():
    """A cell that cannot be parsed is flagged if a kernel could still run it."""
    for source in ("def f(:", "\0", "(" * 5_000, "x = '\ud800'", ""):
        assert review(ATTENTION, source, [source], [source]) == ()
    for source in ("%%bash\nrm -rf /", "%%time\n%%bash\nrm -rf /", "-" * 40_000 + "1", "!ls\n" * 100):
        assert review(ATTENTION, source, [source], [source]) == ("it cannot be read as Python",)


def test_flags_are_few_short_and_printable():
    """A submission must not fill up the instructor's page, even if an alias refers to a very long name."""
    flags = review(ATTENTION, "\n".join("eval('1')" for _ in range(200)), [], [])
    assert len(flags) == MAX_FLAGS + 1
    assert flags[-1] == f"and {200 - MAX_FLAGS} more"
    (flag,) = review(ATTENTION, f"import transformer_lab.{'a' * 20_000} as x\nx.y\n", [], [])
    assert len(flag) < 200


# --- similar answers -------------------------------------------------------------------------------------------------

BASE = inspect.getsource(HEADS.answer)
PLAIN = re.sub(r"  # .*|: (Tensor|int|float)( \| None)?", "", BASE)  # without comments and annotations
RENAMED = re.sub(r"\b([qkv]|output|query|key|value)\b", r"my_\1", PLAIN)
ONE_MORE = BASE.replace("        output, _", "        assert q is not None\n        output, _")
ONE_OTHER = BASE.replace("raise ValueError(f", "raise TypeError(f")
OTHER = inspect.getsource(exercises()["AdditiveAttention"].answer)
NAME = "MultiHeadAttention"
SMALL = "def softmax(scores):\n    e = np.exp(scores - scores.max(-1))\n    return e / e.sum(-1)[..., None]"
OTHER_FUNCTIONS = BASE.replace("split_heads", "cut").replace("combine_heads", "join").replace("scaled_dot", "my")


@pytest.mark.parametrize("copy", [BASE, RENAMED, ONE_MORE, ONE_OTHER])
def test_a_copy_is_found(copy):
    """Each copy is unchanged, has new names and no comments, or has one statement that was added or changed."""
    answers = [("ada", NAME, BASE), ("ben", NAME, OTHER), ("cy", NAME, copy)]
    assert similar(answers) == [(NAME, ("ada", "cy"))]


def test_copies_of_copies_are_one_group():
    """Each copy differs from the next in one statement, and the first differs from the last in two."""
    twice = ONE_MORE.replace("raise ValueError(f", "raise TypeError(f")
    repeated = BASE.replace("        output, _", "        print(q)\n        print(q)\n        output, _")
    answers = [("ada", NAME, BASE), ("ben", NAME, OTHER), ("cy", NAME, ONE_MORE), ("dee", NAME, twice)]
    answers += [("eve", NAME, repeated), ("fay", NAME, repeated.replace("print(q)", "print(q)\n        print(k)", 1))]
    assert similar(answers) == [(NAME, ("ada", "cy", "dee")), (NAME, ("eve", "fay"))]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ada", NAME, BASE), ("ben", NAME, OTHER_FUNCTIONS)),  # the names of called functions count
        (("ada", NAME, BASE), ("ada", NAME, RENAMED)),  # the same student
        (("ada", "Encoder", BASE), ("ben", "Decoder", BASE)),
        (("ada", "softmax", SMALL), ("ben", "softmax", SMALL)),  # everyone writes the same two lines
        *(
            (("ada", NAME, source), ("ben", NAME, source))  # unwritten stubs, or unreadable cells
            for source in (stub(HEADS.answer, HEADS.blank), "def f(:" * 30, "(" * 5_000, f"x = 1\n{'-' * 30_000}1", "")
        ),
    ],
)
def test_what_is_not_a_copy(first, second):
    assert similar([first, second]) == []
