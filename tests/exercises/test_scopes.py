"""Without these tests, the names that a cell or a saved part binds would depend on the version of Python."""

import sys

import pytest

from transformer_lab.exercises import scopes
from transformer_lab.exercises.scopes import global_symbols


def global_names(text: str) -> tuple[set[str], set[str]]:
    """Return the names that the text binds and the names that it reads."""
    symbols = list(global_symbols(text))
    bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned()}
    return bound, {symbol.get_name() for symbol in symbols if symbol.is_referenced()}


@pytest.mark.parametrize("rewritten", [False, True] if sys.version_info < (3, 12) else [True])
@pytest.mark.parametrize(
    ("text", "bound", "read"),
    [
        ("x = [a for a in b]", {"x"}, {"b"}),
        ("x = [a for a in b]\nprint(a)", {"x"}, {"a", "b", "print"}),
        ("[c for a in b if (c := a)]", {"c"}, {"b", "c"}),
        ("{k: lambda: v for k, v in q.items()}", set(), {"q"}),
        ("[[a for a in y] for y in {z for z in b}]", set(), {"b"}),
        ("[(lambda: a) for a in b]", set(), {"b"}),
        ("class A:\n    v = {a for a in b}", {"A"}, {"b"}),
        ("def f(q):\n    return [a + w for a in q]", {"f"}, {"w"}),
        ("async def f():\n    return [await g(a) async for a in b]", {"f"}, {"b", "g"}),
        ("f'{[a for a in b]!r:>{w}}'", set(), {"b", "w"}),
        (r"'\d'; [a for a in b]", set(), {"b"}),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_comprehension_keeps_its_names_to_itself(monkeypatch, text, bound, read, rewritten):
    monkeypatch.setattr(scopes, "COMPREHENSIONS_ARE_SCOPES", not rewritten)
    assert global_names(text) == (bound, read)


def test_a_sum_of_thousands_is_read(monkeypatch):
    """On such a long sum, `ast.unparse` would overflow the stack."""
    monkeypatch.setattr(scopes, "COMPREHENSIONS_ARE_SCOPES", False)
    bound, read = global_names(f"x = {'+'.join('a' * 2000)}\n[q for q in b]")
    assert "x" in bound
    assert {"a", "b"} <= read


@pytest.mark.parametrize("rewritten", [False, True])
def test_what_is_no_python_is_a_syntax_error(monkeypatch, rewritten):
    monkeypatch.setattr(scopes, "COMPREHENSIONS_ARE_SCOPES", not rewritten)
    with pytest.raises(SyntaxError):
        list(global_symbols("x = [a for"))
