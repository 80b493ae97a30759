"""Without these tests, the instructor might not see where the class is stuck, or a name could run a script."""

import base64
import os
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from transformer_lab.classroom.summary import OUTCOMES, _leave_home_alone, outcome, summary_page
from transformer_lab.exercises import exercises
from transformer_lab.exercises.catalogue import mistakes_of
from transformer_lab.files import file_names


@pytest.fixture(scope="module")
def slug():
    return mistakes_of(exercises()["causal_mask"])[0].slug


def with_charts(*entries) -> str:
    return summary_page(entries, file_names(entry.student for entry in entries))


@pytest.fixture
def show(without_charts):
    return with_charts


@pytest.fixture
def class_of_four(entry, slug):
    failed = {"state": "failed", "misconceptions": (slug,)}
    return [
        entry("Ada", padding_mask="passed", causal_mask="passed", target_mask="passed"),
        entry("Bob", padding_mask="passed", causal_mask=failed, target_mask="not attempted"),
        entry("Cyd", padding_mask="passed", causal_mask=failed, target_mask="timed out"),
        entry("Dan", "", path="dan.ipynb", problem="the file is empty"),
    ]


def text_of(page, heading):
    """Return the text from this heading to the next."""
    part = page.partition(f"<h2>{heading}</h2>")[2].partition("<h2>")[0]
    return " ".join(re.sub("<[^>]+>", " ", part).split())


def test_it_says_how_exercises_went_and_who_is_stuck_where(show, class_of_four, slug):
    page = show(*class_of_four)
    assert "4 students, 4 notebooks (1 could not be graded)" in page
    assert (
        "For the 3 students with a notebook that could be graded, the mean is 1.67 of 3 points and the median is 1. "
        "The points range from 1 to 3."
    ) in page
    assert "causal_mask 1 0.33 1 0 2 0 0" in text_of(page, "How each exercise went")
    says = mistakes_of(exercises()["causal_mask"])[0].says.replace("`", " ")
    misconceptions = text_of(page, "The most common mistakes")
    assert " ".join(says.split()) in misconceptions.replace(" ,", ",")
    assert misconceptions.endswith("Bob , Cyd")
    stuck = text_of(page, "Who is stuck where")
    assert "causal_mask 2 2&nbsp;×&nbsp; ✗ failed Bob , Cyd" in stuck
    assert "target_mask" not in stuck  # a student is stuck only at the first exercise that fails
    assert "dan.ipynb: the file is empty" in text_of(page, "Files with remarks")


def test_means_of_exercises_add_up_to_the_notebooks(show, class_of_four, entry):
    """If one mean included unreadable files and another did not, the difference would look like a bug in the grader."""
    page = show(*class_of_four, entry("Ada", "01_attention", softmax="passed"), entry("Eve", "01_attention", softmax={
        "state": "failed", "earned": 0.5
    }))  # fmt: skip
    exercises_text = text_of(page, "How each exercise went")
    means = {
        name: float(re.search(rf" {name} 1 ([\d.]+) ", exercises_text)[1])
        for name in ("softmax", "padding_mask", "causal_mask", "target_mask")
    }
    assert means == {"softmax": 0.75, "padding_mask": 1, "causal_mask": 0.33, "target_mask": 0.33}
    totals = text_of(page, "Points per student")
    assert "01_attention 2 1 0.75 0.75 0.5 1" in totals
    assert "03_masks 3 3 1.67 1 1 3" in totals
    assert "For the 4 students with a notebook that could be graded, the mean is 1.62 of 4 points" in totals
    assert "a missing notebook counts as 0" in totals


def test_it_lists_what_to_review(show, entry):
    flagged = {"state": "passed", "flags": ("line 4 uses `torch.softmax`",)}
    ada = replace(entry("Ada", padding_mask=flagged), similar={"padding_mask": ("Bob",)})
    bob = replace(entry("Bob", padding_mask="passed"), similar={"padding_mask": ("Ada",)})
    review = text_of(show(ada, bob), "To be reviewed")
    assert "Ada padding_mask line 4 uses torch.softmax" in review
    assert "padding_mask 2 Ada , Bob" in review
    assert review.count("Bob") == 1  # one group, not one per member
    assert "To be reviewed" not in show(entry("Ada", padding_mask="passed"))


def test_it_warns_of_what_cannot_be_trusted(show, entry):
    page = show(entry("Ada", sandboxed=False, padding_mask="passed"), entry("Bob", padding_mask="grader error"))
    assert "1 notebook was graded without a sandbox" in page
    assert re.search("The grader itself failed</b> for <a [^>]*><bdi>Bob", page)


def test_the_outcomes_are_told_apart(entry):
    states = {
        "passed": "all points", "failed": "no points", "not checked": "no points", "not attempted": "not attempted",
        "timed out": "stopped", "killed": "stopped", "out of memory": "stopped", "grader error": "stopped",
    }  # fmt: skip
    for state, expected in states.items():
        assert outcome(entry("Ada", padding_mask=state).result.exercises[0]) == expected
        assert expected in OUTCOMES
    assert outcome(entry("A", padding_mask={"state": "failed", "earned": 0.5}).result.exercises[0]) == "some points"


def test_charts_hold_their_data_for_both_themes_and_have_words(class_of_four):
    """The page must work offline and say in words what its charts show. The same results must give the same page."""
    page = with_charts(*class_of_four)
    assert page == with_charts(*class_of_four)  # so that a folder of grades can be kept in version control
    figures = re.findall("<figure>(.*?)</figure>", page, re.DOTALL)
    assert len(figures) == 3
    for figure in figures:
        words = re.search('alt="([^"]+)"', figure)[1]
        assert len(words) > 20
        pictures = [base64.b64decode(data).decode() for data in re.findall('base64,([^"]+)', figure)]
        assert len(pictures) == 2
        assert Counter("<svg" in picture for picture in pictures) == {True: 2}
        light, dark = pictures[1], pictures[0]
        assert "#1b1f24" in light
        assert "#e6e8eb" in dark
        assert "#1b1f24" not in dark
    assert "causal_mask: 1 of 3 with all points" in figures[0]


def test_nothing_of_a_student_runs_in_it(entry):
    hostile = '"><script>alert(1)</script>\x1b[2J\ud800'
    fields = {"state": "failed", "misconceptions": (hostile,), "flags": (hostile,), "remarks": (hostile,)}
    ours = replace(entry("Bob", padding_mask="passed"), similar={"padding_mask": (hostile,)})
    page = with_charts(entry(hostile, path=hostile, problem=hostile, remarks=[hostile], padding_mask=fields), ours)
    assert "<script" not in page
    assert "Content-Security-Policy" in page
    page.encode("utf-8")
    links = re.findall('href="([^"]*)"', page)
    assert links
    assert all(re.fullmatch(r"feedback/[\w.%-]+\.html", link) for link in links)


def test_a_class_of_which_nothing_could_be_read_has_a_page(show, entry):
    page = show(entry("Dan", "", problem="the file is empty"))
    assert "the file is empty" in page
    assert "<figure>" not in page


def test_three_hundred_students_are_still_a_page(show, entry):
    entries = [entry(f"s{number:03}", padding_mask="failed" if number % 3 else "passed") for number in range(300)]
    page = show(*entries)
    assert "<details><summary>300 students</summary>" in page  # folded, so that the charts are visible
    assert len(page) < 500_000


def test_a_home_without_matplotlib_stays_without(tmp_path, monkeypatch):
    """matplotlib would save a font list in the home folder, but grading must write only to the output folder."""
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")  # so that it is restored at the end
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ".cache" / "matplotlib"
    cache.mkdir(parents=True)
    (cache / "fontlist-v1.json").write_text("{}")
    _leave_home_alone()
    assert "MPLCONFIGDIR" not in os.environ  # an existing font list is used, because creating one takes time
    (cache / "fontlist-v1.json").unlink()
    _leave_home_alone()
    folder = Path(os.environ["MPLCONFIGDIR"])
    assert folder.is_dir()
    assert not folder.is_relative_to(tmp_path)
