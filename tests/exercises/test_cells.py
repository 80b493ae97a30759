"""Without these tests, a stub could be mistaken for an answer, or a helper could be overlooked."""

import warnings

import pytest

from transformer_lab.exercises.cells import MAX_CHARACTERS, is_unwritten, names_of

PYTHON = [
    "x = 1",
    "x: object = functools.partial(print)",
    "a = x = max",
    "(x, other) = max, min",
    "(x := max)",
    "@functools.cache\ndef x(scores):\n    return scores",
    "class X:\n    def __call__(self, scores): return scores\n\nx = X()",
    "if True:\n    def x(scores):\n        return scores",
    "from numpy import max as x",
    "with open('a') as x: pass",
    "def f():\n    global x\n    x = max\nf()",
    "def x(scores): return scores\nraise SystemExit",
    "await y\nx = 1",
    "    x = 1\n    y = 2",
    # IPython syntax
    "!pip install numpy\nx = 1",
    "%matplotlib inline\nx = 1",
    "x = 1\nnumpy.exp?",
    "?numpy\nx = 1",
    "x = !ls\nx",
    "x = %timeit -o y",
    "%time x = 1",
    "%time 1 +\nx = 1",
    "%timeit -n 3 x = 1",
    "if y:\n    !ls\n    x = 1",
    "%%time\nx = 1",
    "%%capture out\nx = 1",
]
NOT_PYTHON = ["def x(scores)\n    return scores", "x = lambda scores: scores)"]


@pytest.mark.parametrize("source", [*PYTHON, *NOT_PYTHON])
def test_all_ways_to_bind_a_name(source):
    """If a cell could not be analyzed, its imports and names would be lost. After a syntax error, names are guessed."""
    names = names_of(source)
    assert names.is_python == (source in PYTHON)
    assert "x" in names.binds


@pytest.mark.parametrize(
    "source",
    [
        "%%bash\nx = 1",
        "%%html\n<x = 1>",
        "%%writefile a.py\nx = 1",
        "%%javascript\nx = 1",
        "print(x(3))",
        "x.name = 1",
        "# x = 1",
        "'''\ndef x(): pass\n'''",
    ],
)
def test_what_binds_no_name(source):
    """These cells contain other languages, or Python code that mentions a name without binding it."""
    assert names_of(source).binds == frozenset()


@pytest.mark.parametrize(
    ("source", "binds", "reads", "changes"),
    [
        ("import a.b, c as d\nfrom e import f as g", {"a", "d", "g"}, set(), set()),
        ("def f(x, y=z) -> w:\n    v = x\n    return u(v)", {"f"}, {"z", "w", "u"}, set()),
        ("class A(b.B):\n    c = d\n    def e(self): return f", {"A"}, {"b", "d", "f"}, set()),
        ("a.b[0].c = d\ndel e[1]", set(), {"a", "d", "e"}, {"a", "e"}),
        ("a += b", {"a"}, {"b"}, set()),
        ("[a for a in b if (c := a)]", {"c"}, {"b"}, set()),
        ("def f():\n    global a\n    a = b", {"f", "a"}, {"b"}, set()),
        ("for a, (b, *c) in d: pass", {"a", "b", "c"}, {"d"}, set()),
        ("x = lambda y: y + z", {"x"}, {"z"}, set()),
        ("def f():\n    x = 1\nclass A:\n    x = 1", {"f", "A"}, set(), set()),
        ("setattr(a.b, 'c', d)\ndelattr(e, 'f')", set(), {"setattr", "delattr", "a", "d", "e"}, {"a", "e"}),
    ],
)
def test_global_names(source, binds, reads, changes):
    """Local names do not count, because nearly every answer has a local variable `scores`."""
    names = names_of(source)
    assert (names.binds, names.reads - {"self"}, names.changes) == (binds, reads, changes)


def test_what_is_too_long_is_not_parsed():
    """Parsing takes hundreds of times as much memory as the text. The names in a long cell are found without it."""
    names = names_of("softmax = 1\n" * MAX_CHARACTERS)
    assert not names.is_python
    assert names.binds == {"softmax"}


STUB = "def f(x):\n    '''Doc.'''\n    # YOUR CODE HERE\n    raise NotImplementedError()\n"


@pytest.mark.parametrize(
    ("source", "unwritten"),
    [
        (STUB, True),
        ("def f(x):\n    pass", True),
        ("def f(x): ...", True),
        ("def f(x):\n    '''Doc.'''", True),
        ("def f(x):\n    return None", True),
        ("def f(x):\n    raise NotImplementedError", True),
        ("import a\n\n@a\n" + STUB + "print(f)", True),
        ("def f(x):\n    return x\n" + STUB, True),
        (STUB + "def f(x):\n    return x\n", False),
        (STUB + "f = g", False),
        (STUB + "from g import f", False),
        ("def f(x):\n    return x\n    raise NotImplementedError()", False),
        ("def f(x):\n    y = x\n    raise NotImplementedError()", False),
        ("def f(x):\n    raise ValueError()", False),
        ("f = g", False),
        ("def g(x): pass", False),
        ("def f(x)\n    pass", False),
    ],
)
def test_which_functions_are_unwritten(source, unwritten):
    """A function counts as unwritten only if its last definition is a stub or has an empty body."""
    assert is_unwritten(source, "f") is unwritten


def test_which_classes_are_unwritten():
    """A class counts as written as soon as the student has written one of the missing methods."""
    methods = ["__init__(self):\n        {}", "forward(self):\n        {}", "shown(self):\n        return 1"]
    source = "class A:\n" + "".join(f"    def {method}\n" for method in methods)
    blank = ("__init__", "forward")
    raising = "raise NotImplementedError()"
    assert is_unwritten(source.format(raising, raising), "A", blank)
    assert not is_unwritten(source.format("self.a = 1", raising), "A", blank)
    assert not is_unwritten(source.format("self.a = 1", "return 1"), "A", blank)
    assert not is_unwritten("class A:\n    attend = 1", "A", blank)


def test_uses_are_whole_names():
    """Each use of a name is reported with its line and full dotted name, even if the code uses `getattr`.

    For an object without a name, only attributes are reported.
    """
    source = "a.b.c(d)\nx = getattr(e.f, 'g').h\ni[0].j\nk.l = 1\ngetattr(m, n)\n"
    assert names_of(source).uses == (
        (1, "a", ("b", "c")),
        (1, "d", ()),
        (2, "e", ("f", "g", "h")),
        (3, "", ("j",)),
        (3, "i", ()),
        (4, "k", ("l",)),
        (5, "getattr", ()),
        (5, "m", ()),
        (5, "n", ()),
    )


def test_every_import_has_its_line():
    """A name may be imported twice, from different modules."""
    source = "import a.b\nimport a.b as c\ndef f():\n    from d import e as c\nfrom g import *\nfrom . import h\n"
    assert names_of(source).imported == ((1, "a", "a"), (2, "c", "a.b"), (5, "*", "g.*"), (4, "c", "d.e"))
    assert names_of(source).imports == {"a": "a", "c": "d.e", "*": "g.*"}


def test_nothing_warns():
    """Python would show a warning about `"\\d"` in a student's source as if the course's own code had caused it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names_of("x = '\\d' is 3; assert (x, 'y')").is_python
