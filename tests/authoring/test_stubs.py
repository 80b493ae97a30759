"""Without these tests, a student's notebook could show an answer, or a solution could lose part of its answer."""

import ast
import functools

import pytest
from torch import nn

from transformer_lab.authoring import marked_answer, stub, stub_source
from transformer_lab.model import LayerNorm, MultiHeadAttention, scaled_dot_product_attention


def doubled(numbers: list[int]) -> list[int]:
    """Every number times two.

    The order stays.
    """

    # the secret way
    return [
        2 * number
        for number in numbers
    ]
    # a word after it


@functools.cache
def undocumented(
    first: dict[str, int] | None = None, then=lambda x: x[1:2]
) -> "int":
    # secret
    return "secret"


class Counter(nn.Module):
    """Counts."""

    step = 1

    def __init__(self, start: int) -> None:
        """Starts at `start`."""
        super().__init__()
        self.secret = start

    def forward(self) -> int:
        self.secret += self.step
        return self.secret

    def shown(self) -> str:
        return "shown"


def test_a_function_keeps_its_signature_and_docstring_and_loses_its_body():
    assert stub(doubled) == (
        "def doubled(numbers: list[int]) -> list[int]:\n"
        '    """Every number times two.\n\n    The order stays.\n    """\n\n'
        "    # YOUR CODE HERE\n"
        "    raise NotImplementedError()"
    )


def test_a_decorator_and_a_long_signature_stay_when_the_body_has_no_docstring():
    assert stub(undocumented) == (
        "@functools.cache\n"
        "def undocumented(\n"
        "    first: dict[str, int] | None = None, then=lambda x: x[1:2]\n"
        ') -> "int":\n'
        "    # YOUR CODE HERE\n"
        "    raise NotImplementedError()"
    )


def test_a_class_loses_only_the_named_methods():
    text = stub(Counter, ["forward", "__init__"])
    assert "secret" not in text
    assert text.count("raise NotImplementedError()") == 2
    assert '"""Starts at `start`."""' in text
    assert 'return "shown"' in text
    assert "self.secret = start" in stub(Counter, ["forward"])


@pytest.mark.parametrize(
    ("answer", "blank"),
    [
        (doubled, []),
        (undocumented, []),
        (Counter, ["__init__", "forward"]),
        (scaled_dot_product_attention, []),
        (LayerNorm, ["__init__", "forward"]),
        (MultiHeadAttention, ["__init__", "forward"]),
    ],
)
def test_the_stub_omits_the_parts_marked_in_the_answer(answer, blank):
    """Removing the marked parts, as nbgrader does, must produce the student's version, so that every student starts
    from the same cell."""
    kept, inside = [], False
    for line in marked_answer(answer, blank).splitlines():
        if "### BEGIN SOLUTION" in line:
            indent = line[: line.index("#")]
            kept += [f"{indent}# YOUR CODE HERE", f"{indent}raise NotImplementedError()"]
            inside = True
        elif "### END SOLUTION" in line:
            inside = False
        elif not inside:
            kept.append(line)
    assert not inside
    assert "\n".join(kept) == stub(answer, blank)
    ast.parse(stub(answer, blank))


def test_the_marked_answer_runs_like_the_answer():
    names: dict = {}
    exec(marked_answer(doubled), names)
    assert names["doubled"]([1, 2]) == [2, 4]


def test_a_stubbed_module_keeps_everything_around_the_answer():
    module = "PI = 3.14\n\n\ndef area(r):\n    return PI * r * r\n\n\nHALF = area(1) / 2  # ß\n"
    empty = "# YOUR CODE HERE\n    raise NotImplementedError()"
    assert stub_source(module, "area") == module.replace("return PI * r * r", empty)


@pytest.mark.parametrize(
    ("answer", "blank", "says"),
    [
        (Counter, [], "no method to leave blank; it has __init__, forward, shown"),
        (Counter, ["backward"], "no method `backward`; it has __init__, forward, shown"),
        (doubled, ["forward"], "`doubled` is a function"),
    ],
)
def test_an_invalid_blank_is_rejected(answer, blank, says):
    with pytest.raises(ValueError, match=says):
        stub(answer, blank)


def test_a_body_on_the_same_line_as_the_signature_is_rejected():
    """Answers are removed line by line, so a body on the signature's line would remain in the stub."""
    with pytest.raises(ValueError, match="a line of its own"):
        stub_source("def one(): return 1\n", "one")
