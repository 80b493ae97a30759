"""Without these tests, a page could run a script, leave out a mistake, or show students confidential information."""

import re
from dataclasses import replace
from html import unescape

import pytest

from transformer_lab.classroom.exports import gradescope_results, junit_xml
from transformer_lab.classroom.feedback import feedback_page, parts_of_report, reading_places, sentences
from transformer_lab.classroom.page_templates import STYLE, STYLE_HASH
from transformer_lab.classroom.results import ExerciseResult
from transformer_lab.exercises import exercises, run_check
from transformer_lab.exercises.catalogue import mistakes_of
from transformer_lab.files import clean


def graded(name, number):
    """Return the result of grading a known mistake. If `number` is None, grade the correct answer."""
    exercise = exercises()[name]
    subject = exercise.answer if number is None else mistakes_of(exercise)[number].ways[0].subject
    report = run_check(exercise, subject)
    return {
        "state": report.state, "earned": report.points, "misconceptions": report.misconceptions, "report": str(report),
        "source": f"def {name}(scores):\n    return scores  # 1 < 2",
    }  # fmt: skip


def test_a_page_says_what_passed_what_was_misunderstood_and_where_to_read(entry, course, read_page):
    softmax = mistakes_of(exercises()["softmax"])[0]
    found = entry("Ada", "01_attention", softmax=graded("softmax", 0), numpy_attention="not attempted")
    page = read_page(feedback_page("Ada", [found], reading_places(course, "01_attention")))
    text = " ".join(page.text.split())
    assert "Feedback for Ada" in text
    assert text.count(" ".join(softmax.says.replace("`", "").split())) == 1
    assert "Where to read: notebook 01, Attention: “From scores to weights”" in text
    assert "The smallest input that fails" in text
    assert "return scores # 1 < 2" in text
    assert "○ not attempted" in text
    assert "✗ failed" in text
    passed = graded("softmax", None) | {"remarks": ("r",), "report": "✓ softmax: passed\n\nRemark: r"}
    page = read_page(feedback_page("Ada", [entry("Ada", "01_attention", softmax=passed)], {}))
    assert "✓ passed" in page.text
    assert "details" in page.tags
    # The report of an exercise that passed lists no checks, so nothing but the code is left to be shown or repeated.
    text = " ".join(page.text.split())
    assert text.endswith("softmax ✓ passed1 of 1 Remark: r Your code def softmax(scores): return scores # 1 < 2")


@pytest.mark.parametrize("number", range(3))
def test_a_report_loses_nothing_on_the_page(number, entry):
    """Text that is not recognized as a list, a table, or a heading must not vanish."""
    exercise = exercises()["scaled_dot_product_attention"]
    report = str(run_check(exercise, mistakes_of(exercise)[number].ways[0].subject))
    page = feedback_page("Ada", [entry("Ada", **{exercise.name: {"state": "failed", "report": report}})], {})
    section = page.partition("</h3>")[2].partition("</div>")[2].partition("</section>")[0]
    shown = unescape(re.sub("<[^>]*>", " ", section))
    words = set(re.findall(r"\w+", report)) - {"What", "happened", "not", "right", "yet", "points"}
    assert words - set(re.findall(r"\w+", shown)) <= set(re.findall(r"\w+", report.splitlines()[0]))
    assert re.search(r"\w- \w", shown) is None or re.search(r"\w- \w", report)  # words wrapped at a hyphen


def test_what_was_received_is_aligned_with_what_was_expected():
    """Reports are 80 columns wide, so two wide tables are printed one above the other, separated by a blank line."""
    report = "x: failed\n\n    f(x)\n\noutput (2,)\n    expected\n    1  2\n\n    received\n    3  4\n\nThe end."
    parts = parts_of_report(ExerciseResult("softmax", "failed", 0.0, 1.0, report=report))
    listing = "f(x)\n\noutput (2,)\n    expected\n    1  2\n\n    received\n    3  4"
    assert parts["rest"] == [("prose", "x: failed"), ("numbers", listing), ("prose", "The end.")]


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></pre></code><svg onload=alert(1)>",
    "javascript:alert(1)",
    "<meta http-equiv=refresh content='0;url=http://evil'>",
    "`<b>`",
    "&lt;script&gt;",
    "\x00\x1b[31m\x9b\ud800\u202e",
    "<!-- ",
    "{{7*7}}",
)


def test_nothing_of_a_student_is_more_than_text(entry, read_page):
    for hostile in HOSTILE:
        fields = {"state": "failed", "report": hostile, "source": hostile, "remarks": (hostile,), "cell_id": hostile}
        ours = entry("x", path="p", remarks=["r"], padding_mask=fields | dict.fromkeys(("report", "source"), "t"))
        theirs = entry(hostile, path=hostile, remarks=[hostile], problem=hostile, padding_mask=fields)
        plain = read_page(feedback_page("x", [replace(ours, result=replace(ours.result, problem="p"))], {}))
        page = read_page(feedback_page(hostile, [theirs, entry(hostile, "", hostile, problem=hostile)], {}))
        assert set(page.tags) - {"code", "b", "h2"} <= set(plain.tags)
        assert f"Feedback for {clean(hostile)}" in page.text  # shown verbatim, not interpreted as a template
        feedback_page(hostile, [theirs], {}).encode("utf-8")
        assert set("\x00\x1b\x9b\u202e").isdisjoint(page.text)


def test_the_browser_is_told_to_run_nothing(entry, read_page):
    """Even if a future change fails to escape a value, the policy blocks scripts and network requests."""
    page = feedback_page("Ada", [entry("Ada", padding_mask="passed")], {})
    policy = re.search('Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert page.index("Content-Security-Policy") < page.index("<title>")
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    assert style == STYLE  # its digest is in the policy, so no other style is applied
    assert STYLE_HASH in policy
    read_page(page)
    assert "://" not in page
    assert "prefers-color-scheme: dark" in page


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio as WCAG 2.1 defines it."""

    def luminance(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_text_can_be_read_in_light_and_in_dark():
    """WCAG requires a contrast of at least 4.5 to 1."""
    for theme in STYLE.split("@media (prefers-color-scheme: dark)")[:2]:
        colors = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for ink in ("ink", "soft", "link", "good", "bad", "warn", "none"):
            for ground in ("paper", "panel"):
                assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)
        assert contrast(colors["ink"], colors["warning"]) >= 4.5


def test_flags_and_other_students_are_in_nothing_that_students_see(entry):
    """A flag is a suspicion, not feedback, so only the instructor may see it."""
    flagged = {"state": "passed", "flags": ("line 4 uses `torch.secret`",)}
    found = replace(entry("Ada", padding_mask=flagged), similar={"padding_mask": ("Bob",)})
    for text in (feedback_page("Ada", [found], {}), junit_xml(found.result), gradescope_results([found])):
        assert "secret" not in text
        assert "Bob" not in text


def test_code_without_end_is_shortened(entry):
    """A cell with a million lines must not produce a page that no browser can open."""
    fields = {"state": "failed", "source": "x\n" * 1_000_000 + "y" * 1_000_000, "report": "z\n" * 1_000_000}
    page = feedback_page("Ada", [entry("Ada", padding_mask=fields)], {})
    assert len(page) < 200_000
    assert "999701 more lines" in page


def test_all_exercises_of_the_course_have_a_place_to_read(course):
    for name in course.graded:
        places = reading_places(course, name)
        assert set(places) == {exercise.name for exercise in course.exercises(name)}
        assert all("“" in place for place in places.values()), name


def test_the_place_to_read_is_the_section_right_before_the_exercise(course):
    """A student who divided by the wrong sum must not be told to read the history of attention."""
    sections = {name: re.findall("“(.+?)”", place) for name, place in reading_places(course, "01_attention").items()}
    assert sections["softmax"] == ["From scores to weights"]
    assert sections["SingleHeadAttention"] == ["Learned projections"]
    shared = [re.findall("“(.+?)”", place) for place in reading_places(course, "02_multi_head_attention").values()]
    assert shared == [["Several heads"], *[["One average is not enough", "Several heads"]] * 2]


def test_the_sentences_are_those_of_the_exercise():
    assert sentences("softmax")[mistakes_of(exercises()["softmax"])[0].slug]
    assert sentences("of an older version") == {}


@pytest.mark.parametrize(
    ("problem", "advised"), [("the file is empty", True), ("the grader stopped: it says no more", False)]
)
def test_an_ungradable_file_comes_with_advice(entry, problem, advised):
    """If the grader itself failed, the student is not asked to submit again."""
    page = feedback_page("Ada", [entry("Ada", "", "class/secret/03.ipynb", problem=problem)], {})
    assert problem in page
    assert "The file 03.ipynb" in page
    assert "secret" not in page
    assert ("submit the file that ends in .ipynb" in page) == advised
