"""The functions `hint`, `solution`, and `progress`."""

import inspect

import pytest

from transformer_lab import hint, progress, solution
from transformer_lab.errors import InputError
from transformer_lab.exercises import exercises, hints
from transformer_lab.exercises.catalogue import hints_of
from transformer_lab.model import softmax


def test_each_call_gives_the_next_hint(monkeypatch):
    monkeypatch.setattr(hints, "_given", {})
    wanted = hints_of(exercises()["softmax"])
    given = [hint("softmax"), hint(softmax), hint("softmax"), hint("softmax")]
    assert [one.text for one in given] == [*wanted, wanted[-1]]
    assert "hint 1 of 3" in str(given[0])
    assert 'the last one; `solution("softmax")` shows an answer' in str(given[-1])
    assert "<code>exp</code>" in given[1]._repr_html_()


def test_solution_is_the_packages_source():
    assert str(solution("softmax")) == inspect.getsource(softmax).rstrip()
    assert "<span style=" in solution(softmax)._repr_html_()


@pytest.mark.parametrize("function", [hint, solution])
@pytest.mark.parametrize("name", ["sofmax", None, 3])
def test_unknown_names_raise_an_error(function, name):
    with pytest.raises(InputError, match="there is no exercise"):
        function(name)


def test_progress_lists_every_exercise():
    shown = progress()
    assert all(name in str(shown) for name in exercises())
    assert f"0 of {len(exercises())} parts are yours" in shown.title
    page = shown._repr_html_()
    assert page.count("<rect") >= 15
    assert 'role="img"' in page
