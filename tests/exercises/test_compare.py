"""Test that data is compared correctly and that numbers are printed the same way on every machine."""

import numpy as np
import pytest
import torch

from transformer_lab.exercises.comparison import compare, format_number, short, short_and_apart
from transformer_lab.exercises.diagnosis import _is_informative
from transformer_lab.exercises.observation import Observation


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1 / 3, "0.3333"),
        (-0.0, "0"),
        (1e-17, "0"),
        (4.54e-5, "4.5e-05"),
        (123456.0, "1.2e+05"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (3.0, "3"),
    ],
)
def test_numbers_are_short(value, text):
    assert format_number(value) == text


def test_last_bits_do_not_show():
    """0.03125 is halfway between two numbers with four decimals. Rounding must not depend on the last bit."""
    assert len({format_number(0.03125 + shift * 2**-57) for shift in range(-3, 4)}) == 1
    assert len({format_number(value) for value in (0.1 + 0.2, 0.3, 0.30000000000000016)}) == 1


def one(expected, received, **options):
    differences, remarks = compare(expected, received, **options)
    return [difference.kind for difference in differences], remarks


def test_two_numbers_that_differ_look_different():
    """A report must never say "expected -0.4571, got -0.4571"."""
    assert short_and_apart(-0.457121, -0.457148) == ("-0.45712", "-0.45715")
    assert short_and_apart(0.5, 0.7) == ("0.5", "0.7")
    assert short_and_apart("one", 1.0) == ("'one'", "1")
    assert short_and_apart(0.25, 0.25 + 1e-16) == ("0.25", "0.25")


def test_tolerance_is_absolute_and_relative():
    assert one(torch.tensor([1000.0]), torch.tensor([1000.009])) == ([], [])
    assert one(torch.tensor([1000.0]), torch.tensor([1000.02])) == (["value"], [])
    assert one(torch.tensor([0.0]), torch.tensor([2e-5])) == (["value"], [])


def test_kinds_of_differences():
    ones = torch.ones(2, 3, dtype=torch.float64)
    assert one(ones, ones.clone()) == ([], [])
    assert one(ones, ones.T)[0] == ["shape"]
    assert one(ones, ones * float("nan"))[0] == ["nan"]
    assert one(ones, ones > 0)[0] == ["dtype"]
    assert one(ones, ones.long())[0] == ["dtype"]
    assert one(ones, ones.numpy())[0] == ["type"]
    assert one(ones, None)[0] == ["type"]
    assert one((ones, ones), (ones,), names=("a", "b"))[0] == ["type"]
    assert one({"a": ones}, {"b": ones})[0] == ["length", "length"]
    assert one([ones, ones], [ones])[0] == ["length"]
    assert one([1, 2], [1, 3])[0] == ["value"]
    assert one("a", "b")[0] == ["value"]
    assert one(1.0, "b")[0] == ["type"]


def test_what_is_odd_but_right_is_remarked_upon():
    ones = torch.ones(2, dtype=torch.float64)
    assert "float32" in one(ones, ones.float())[1][0]
    assert "a list; use a tuple" in one((ones, ones), [ones, ones], names=("a", "b"))[1][0]
    assert one(1.0, torch.tensor(1.0))[0] == []
    assert one(1.0, np.ones(()))[0] == []
    assert one([[1, 2], [3]], ([1, 2], [3]))[0] == []
    assert len(set(one([1.0, 2.0], [torch.tensor(1.0), torch.tensor(2.0)])[1])) == 1
    assert one(3.0, 3) == ([], [])
    assert "expected an int" in one(3, 3.0)[1][0]


def test_infinity_equals_infinity():
    infinite = torch.tensor([float("inf"), -float("inf")])
    assert one(infinite, infinite.clone()) == ([], [])
    assert one(infinite, -infinite)[0] == ["value"]


def test_infinities_are_counted_in_both_directions():
    """An infinite difference alone does not show whether a mask hides too much or too little."""
    expected, received = torch.tensor([1.0, 2.0, -torch.inf, -torch.inf]), torch.tensor([1.0, -torch.inf, -1e9, 3.0])
    (difference,), _ = compare(expected, received)
    assert difference.says == (
        "`output` is infinite in 1 of 4 entries where it should be finite "
        "and is finite in 2 of 4 entries where it should be infinite"
    )
    (turned,), _ = compare(expected, -expected)
    assert turned.says == "`output` has infinities with the wrong sign in 2 of 4 entries"
    (unknown,), _ = compare(torch.tensor([torch.nan, 1.0]), torch.ones(2))
    assert unknown.says == "`output` is not NaN in 1 of 2 entries where it should be"


def test_a_missing_gradient_is_named():
    differences, _ = compare({"gradient of x": torch.ones(2)}, {"gradient of x": None})
    assert differences[0].says == "no gradient reaches `x`"


def test_values_are_cut_off():
    assert short(list(range(1000))).endswith(" …")
    assert len(short("x" * 1000)) <= 200
    assert short({"a": (1, 2.5, None)}) == "{'a': (1, 2.5, None)}"


@pytest.mark.parametrize(
    ("value", "is_informative"),
    [
        (torch.tensor([0.0, 1.0]), True),
        (torch.tensor([float("nan"), 1.0]), True),
        (torch.zeros(2, 3), False),
        (torch.full((2, 3), float("nan")), False),
        ((torch.zeros(2), torch.tensor([1, 2])), True),
        ((torch.zeros(2), np.full(3, np.nan)), False),
        (np.array([True, False]), True),
        (3.5, True),
    ],
)
def test_one_number_everywhere_tells_little(value, is_informative):
    """Many mistakes lead to zeros or NaN everywhere, so that cannot show which one was made."""
    assert _is_informative(Observation(value)) == is_informative
