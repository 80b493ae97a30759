"""A student sees only a few rows, and no text from the student's code is interpreted as HTML."""

from html.parser import HTMLParser

import torch

from transformer_lab.exercises import check
from transformer_lab.exercises.report import SIGNS, CheckResult, Report


class Balance(HTMLParser):
    """A parser that checks that tags are balanced."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_of(report) -> list[str]:
    parser = Balance()
    parser.feed(report._repr_html_())
    assert parser.open == []
    return parser.seen


def test_no_table_has_more_than_four_rows():
    """A screen full of numbers does not teach anything."""
    report = check("scaled_dot_product_attention", lambda q, k, v, mask=None, dropout=None: (q, k))
    rows = [line for line in str(report).splitlines() if line.startswith("    [")]
    blocks = str(report).split("\n\n")
    assert rows
    assert all(sum(line.startswith("    [") for line in block.splitlines()) <= 4 for block in blocks)


def test_page_is_well_formed_and_has_headings_and_a_table():
    """Screen readers jump from heading to heading and read out table headers."""
    for report in (
        check("softmax", lambda scores: scores),
        check("split_heads", lambda x, n_heads: x),
        check("softmax", torch.exp),
    ):
        seen = page_of(report)
        assert "h4" in seen
        assert "table" in seen
        assert "th" in seen
        assert "script" not in seen


def test_the_students_text_stays_text():
    """An exception's message or a name can contain anything, even HTML."""

    def softmax(scores):
        raise ValueError("<script>alert(1)</script> & `code`")

    page = check(softmax)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_states_differ_by_sign_and_word():
    """Readers who cannot tell red from green can read the word instead."""
    report = Report("x", "failed", checks=tuple(CheckResult("name", state) for state in SIGNS))
    for state, sign in SIGNS.items():
        assert f"{sign} {state}" in str(report)
        assert f"{sign} {state}" in report._repr_html_()


def test_the_title_counts_checks():
    """In self-study, the number of passed checks says more than the points, because points are for graders."""
    checks = tuple(CheckResult("name", state) for state in ("passed", "failed", "not checked"))
    assert Report("x", "failed", score=1 / 3, out_of=2).points == 0.67
    assert Report("x", "failed", checks=checks).title == "x: not right yet, 1 of 3 checks passed"
    assert Report("x", "passed", checks=checks[:1]).title == "x: 1 of 1 check passed"
    assert Report("x", "not attempted", checks=checks).title == "x: not attempted"


def test_success_is_one_line():
    report = Report("x", "passed", checks=(CheckResult("name", "passed"),), next_step="Saved in mine/x.py. Next: y")
    assert str(report) == "✓ x: 1 of 1 check passed. Saved in mine/x.py. Next: y"
