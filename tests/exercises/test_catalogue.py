"""Every entry in the catalog of mistakes compiles, fails the checks, is recognized, and differs from the others."""

import os

import pytest

from transformer_lab.exercises import catalogue, exercises
from transformer_lab.exercises.catalogue import CatalogueError, mistakes_of, read
from transformer_lab.exercises.edits import EditError, find, without_comments
from transformer_lab.exercises.judgment import judge
from transformer_lab.exercises.verdicts import reference_of

SEEDS = range(int(os.environ.get("TRANSFORMER_LAB_SEEDS", "2")))
EXERCISES = list(exercises().values())
every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


@every_exercise
def test_every_mistake_is_named_as_itself(exercise):
    """If a mistake goes unnoticed or is confused with a different one, the student gets wrong feedback.

    The score must not depend on the seed. Otherwise, the same answer would get different points if it is graded again.
    """
    problems = []
    for mistake in mistakes_of(exercise):
        for number, way in enumerate(mistake.ways):
            name = mistake.slug + (f" (way {number + 1})" if number else "")
            try:
                way.subject  # noqa: B018 (it is compiled here)
            except Exception as error:
                problems.append(f"{name}: its code does not run: {type(error).__name__}: {error}\n{way.source}")
                continue
            bare = way.source and without_comments(way.source)
            scores = {}
            for seed in SEEDS:
                known = reference_of(exercise, seed)
                observations = {check.name: known.of(way, check) for check in exercise.checks}
                report = judge(exercise, observations, seed, bare)
                scores[seed] = round(report.score, 3)
                if report.passed:
                    problems.append(f"{name}: it passes every check (seed {seed})")
                elif report.misconceptions != (mistake.slug,):
                    problems.append(f"{name}: it is named {report.misconceptions or 'nothing'} (seed {seed})")
            if len(set(scores.values())) > 1:
                problems.append(f"{name}: its score depends on the seed: {scores}")
    assert not problems, "\n".join(problems)


@every_exercise
def test_there_are_enough_and_their_texts_can_be_read(exercise):
    assert len(mistakes_of(exercise)) >= 5
    for mistake in mistakes_of(exercise):
        assert mistake.says.rstrip()[-1] in ".?!)`”", mistake.slug
        assert len(mistake.says) >= 60, (
            f"{mistake.slug}: say what the code does, why it matters, and what to do instead"
        )
        assert "  " not in mistake.says, mistake.slug
        assert mistake.says.count("`") % 2 == 0, mistake.slug


def test_fewer_than_one_in_ten_is_a_whole_function():
    ways = [way for exercise in EXERCISES for mistake in mistakes_of(exercise) for way in mistake.ways]
    assert sum(not way.edits for way in ways) < len(ways) / 10


def test_every_section_is_about_an_exercise():
    """If a heading is misspelled, its entries are never used."""
    assert {entry.exercise for entry in catalogue._all_entries()} <= exercises().keys()


def broken(tmp_path, text):
    file = tmp_path / "01_attention.md"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## softmax\n\n### One\n", "line 3, `softmax` / `One`: a slug has only lowercase letters"),
        ("### one\n", "line 1, `` / `one`: this entry comes before the first"),
        ("## softmax\n### one\n### one\n", "line 3, `softmax` / `one`: slug used twice"),
        ("## softmax\n### one\n```diff\n- a\n", "line 3, `softmax` / `one`: the code block has no end"),
        ("## softmax\n### one\n```python3\na\n```\n", "line 3, `softmax` / `one`: a code block starts with"),
        ("## softmax\n### one\n```diff\na\n```\n", "line 3, `softmax` / `one`: each line of a diff starts with"),
        ("## softmax\n### one\n`a` → b\n", "line 3, `softmax` / `one`: an edit is"),
        ("## softmax\n### one\n`a` → `b`\nor `a` → `c` x2\n", "line 4, `softmax` / `one`: an edit is"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, message):
    with pytest.raises(CatalogueError, match=r"^01_attention\.md, ") as caught:
        read(broken(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("`logits` → `x`", "line 3, `softmax` / `one`: this fragment does not occur in the body of `softmax`"),
        ("`axis=-1` → `axis=0`", "line 3, `softmax` / `one`: this fragment occurs 2 times, but the entry says once"),
        ("`axis=-1` → `axis=0` ×3", "this fragment occurs 2 times, but the entry says 3 times"),
        ("`axis=-1` → `axis=0` ×2\n`-1` → `1` ×2", "two of its edits overlap"),
        ("```python\ndef other(): ...\n```", "the code block does not define `softmax`"),
        ("only if the code has `(`\n`scores.max` → `scores.min`", "`(` is not a regular expression"),
        ("", "there is no edit"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(tmp_path, edit, message):
    (entry,) = read(broken(tmp_path, f"## softmax\n### one\n{edit}\n\nSome text for the student.\n"))
    with pytest.raises(CatalogueError) as caught:
        catalogue._mistake(exercises()["softmax"], entry)
    assert message in str(caught.value)


def test_a_fragment_is_found_whatever_its_white_space():
    source = "x = f( a,\n      b )\ny = fa(ab)\n"
    assert find(source, "f(a, b)") == [(4, 19)]
    with pytest.raises(EditError, match="does not occur"):
        find(source, "f(a)")
