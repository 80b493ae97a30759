"""Each incorrect call to `check` gets one clear sentence in reply."""

import functools
import os
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lab import check
from transformer_lab.errors import InputError
from transformer_lab.exercises import CheckFailed, CheckUsageError
from transformer_lab.model import (
    SingleHeadAttention,
    numpy_attention,
    scaled_dot_product_attention,
    softmax,
)


class Unready:
    """A callable object without a name."""

    def __call__(self, scores):
        return softmax(scores)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected the function or class you wrote"),
        ((1, 2, 3), "expected the function or class you wrote"),
        ((None,), "it got None: did you run the cell that defines"),
        (("softmax",), "`check(softmax)`, without quotation marks"),
        (("sotfmax",), "there is no exercise `sotfmax`: did you mean softmax"),
        (("zzz",), "there is no exercise `zzz`: `progress()` lists them all"),
        (("multiheadattention", softmax), "did you mean MultiHeadAttention"),
        (("softmax", None), "it got None: did you run the cell that defines `softmax`?"),
        (("softmax", numpy_attention), "expected `softmax`, got `numpy_attention`"),
        ((softmax, numpy_attention), "expected the exercise's name as the first of two arguments"),
        ((np.ones(3),), "this is a `ndarray`, perhaps the result of a call"),
        ((torch.ones(3),), "this is a `Tensor`, perhaps the result of a call"),
        (("softmax", 3.0), "this is a `float`, perhaps the result of a call"),
        ((os,), "this is the module `os`"),
        ((object(),), "this is an `object`: pass a function or a class"),
        ((lambda scores: scores,), "has no name that says which exercise it is"),
        ((functools.partial(softmax),), "has no name that says which exercise it is"),
        ((Unready(),), "has no name that says which exercise it is"),
        ((len,), "there is no exercise `len`"),
        ((SingleHeadAttention.forward,), "this is a method of `SingleHeadAttention`"),
        (("SingleHeadAttention", softmax), "expected `SingleHeadAttention`, got `softmax`"),
        (("SingleHeadAttention", lambda x: x), "`SingleHeadAttention` is a class, but this is a function"),
        (("softmax", Unready), "`softmax` is a function, but this is the class `Unready`"),
    ],
)
def test_misuse_raises_one_line(arguments, words):
    with pytest.raises(InputError) as caught:
        check(*arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_misuse_has_a_short_traceback():
    """IPython shows what `_render_traceback_` returns. It must be one line that shows no code from `check`."""
    with pytest.raises(InputError) as caught:
        check(None)
    (line,) = caught.value._render_traceback_()
    assert line == f"check: {caught.value}"


def test_swapped_arguments_are_understood():
    report = check(softmax, "softmax")
    assert report.passed
    assert report.remarks[0] == 'The name comes first: `check("softmax", …)`.'


def test_an_object_is_checked_by_its_class():
    class SingleHeadAttention(nn.Module):
        def __init__(self, d_model, d_k):
            super().__init__()
            self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k) for _ in range(3))

        def forward(self, query, key, value, mask=None):
            return scaled_dot_product_attention(self.w_q(query), self.w_k(key), self.w_v(value), mask)[0]

    for arguments in ((SingleHeadAttention(4, 2),), ("SingleHeadAttention", SingleHeadAttention(4, 2))):
        report = check(*arguments)
        assert report.passed
        assert "The class was checked instead" in report.remarks[0]


@pytest.mark.parametrize("subject", [lambda scores: softmax(scores), functools.partial(softmax), Unready()])
def test_any_callable_can_be_checked_by_name(subject):
    assert check("softmax", subject).passed


def test_strict_raises_after_the_report(monkeypatch, capsys):
    """Strict mode lets a tool that runs notebooks stop at the first failed check."""
    monkeypatch.setenv("TRANSFORMER_LAB_STRICT", "1")
    assert check(softmax).passed
    with pytest.raises(CheckFailed, match=r"softmax: not right yet, \d+ of \d+ checks passed"):
        check("softmax", lambda scores: scores)
    assert "two rows, each by itself" in capsys.readouterr().out


def test_the_packages_answer_is_not_yours():
    assert check(softmax).remarks == ("This is the package's own answer, not yours.",)


def test_library_answer_is_remarked_upon():
    """A library's answer is correct, so it passes. However, the student must be told that it is not their own work."""
    import torch.nn.functional as F

    def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
        weights = F.scaled_dot_product_attention(query, key, torch.eye(key.size(-2)).expand(*key.shape[:-1], -1), mask)
        return (weights if dropout is None else dropout(weights)) @ value, weights

    report = check(scaled_dot_product_attention)
    assert report.passed
    assert any("`torch.nn.functional.scaled_dot_product_attention`" in remark for remark in report.remarks)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("torch.from_numpy(scores).softmax(-1).numpy()", ".softmax"),
        ("torch.nn.functional.log_softmax(torch.from_numpy(scores), -1).exp().numpy()", "torch.nn.functional.log_soft"),
    ],
)
def test_a_librarys_method_is_remarked_upon(expression, name, tmp_path):
    """Tensors have the answer as a method, and a method call does not name a module."""
    path = tmp_path / "cell.py"  # so that `inspect` finds the source
    path.write_text(f"import torch\ndef softmax(scores):\n    return {expression}\n", encoding="utf-8")
    names = {"__name__": "__main__"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    report = check(names["softmax"])
    assert report.passed
    assert [remark.startswith(f"It calls `{name}") for remark in report.remarks] == [True]


def test_an_earlier_mistake_costs_once():
    """A wrong `softmax` costs points only in its own exercise: `numpy_attention`, which calls it, is correct."""
    source = """
import numpy as np
def softmax(scores):
    return scores
def numpy_attention(query, key, value):
    weights = softmax(query @ key.swapaxes(-2, -1) / np.sqrt(query.shape[-1]))
    return weights @ value, weights
"""
    names = {"__name__": "__main__"}
    exec(source, names)
    own = names["softmax"]
    assert check(names["numpy_attention"]).passed
    assert names["softmax"] is own
    assert not check(names["softmax"]).passed


def test_a_namesake_from_a_library_is_left_alone():
    """If you import torch's softmax as `softmax`, your code should use it."""
    source = """
from torch.nn.functional import softmax
from math import sqrt
def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = softmax(scores, dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, weights
"""
    names = {"__name__": "__main__"}
    exec(source, names)
    assert check(names["scaled_dot_product_attention"]).passed


def test_a_second_mistake_does_not_hide_the_first():
    """The scale is missing and the mask is inverted, so the report must name both mistakes."""

    def both(query, key, value, mask=None, dropout=None):
        root = query.size(-1) ** 0.5
        return scaled_dot_product_attention(query * root, key, value, None if mask is None else ~mask, dropout)

    report = check("scaled_dot_product_attention", both)
    assert set(report.misconceptions) == {"missing_scale", "mask_inverted"}
    assert "Together, these two mistakes explain your results." in str(report)


def test_a_mistake_is_not_named_unless_it_explains_everything():
    """The inverted mask shows up in half of the checks. Because something else is wrong too, no mistake is named."""

    def more(query, key, value, mask=None, dropout=None):
        output, weights = scaled_dot_product_attention(query, key, value, None if mask is None else ~mask, dropout)
        return output + 0.01 * (query.sum() * key.sum()).sin(), weights

    report = check("scaled_dot_product_attention", more)
    assert report.misconceptions == ()
    assert "What happened" not in str(report)


def test_a_wrong_version_is_shown_under_another_name(monkeypatch):
    """Notebooks show reports on mistakes under another name. Nothing is saved or raised, even in strict mode."""
    monkeypatch.setenv("TRANSFORMER_LAB_STRICT", "1")

    def softmax_as_written(scores):
        return np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)

    report = check(softmax_as_written, as_="softmax")
    assert report.misconceptions == ("overflow",)
    with pytest.raises(CheckUsageError, match="there is no exercise `sofmax`"):
        check(softmax_as_written, as_="sofmax")


def test_the_earlier_part_in_which_it_stopped_is_named():
    """The report gives the line in the student's cell and says which part it calls."""
    module = types.ModuleType("transformer_lab.mine.split_heads")
    exec("def split_heads(x, n_heads):\n    return x.no_such_thing", vars(module))
    names = {"__name__": "__main__", "split_heads": module.split_heads}
    exec("def combine_heads(x):\n    return split_heads(x, 2)", names)
    (first, *_) = [row.says for row in check(names["combine_heads"]).checks if row.state == "failed"]
    assert first == (
        "it stops with an `AttributeError` inside your `split_heads` from an earlier notebook, called on line 2"
    )


def test_list_for_tuple_and_float32_pass_with_a_remark():
    def listing(query, key, value):
        output, weights = numpy_attention(query, key, value)
        return [output.astype(np.float32), weights]

    report = check("numpy_attention", listing)
    assert report.passed
    assert "It returns a list; use a tuple" in str(report)
    assert "`output` is float32" in str(report)


def test_import_is_light():
    """Importing the package does not load torch, so commands that do not need it start fast."""
    program = "import sys, transformer_lab; print('torch' in sys.modules, 'numpy' in sys.modules, dir(transformer_lab))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("False False")


def test_what_torch_loads_late_is_there_before_the_students_code_runs():
    """If a thread is stopped during an import, the import lock stays locked, and the next import waits forever."""
    program = (
        "import sys; from transformer_lab.exercises import exercises, judgment, run_check\n"
        "def loaded(): return any(name.startswith('torch._dynamo') for name in sys.modules)\n"
        "run_limited, before = judgment.run_limited, loaded()\n"
        "judgment.run_limited = lambda jobs: (print(before, loaded()), run_limited(jobs))[1]\n"
        "run_check(exercises()['train_step'], exercises()['train_step'].answer)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
