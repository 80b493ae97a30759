"""Each generic variant of an answer fails a check or is listed as equivalent, with a reason."""

import re
from pathlib import Path

import pytest

from transformer_lab.exercises import exercises
from transformer_lab.exercises.edits import bare_source
from transformer_lab.exercises.observation import isolated_global_state
from transformer_lab.exercises.variants import SAYS, variants_of
from transformer_lab.exercises.verdicts import reference_of, verdict_on

EXERCISES = list(exercises().values())
every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


def equivalent() -> dict[str, dict[str, str]]:
    """Read `equivalent_variants.md`, which lists each change by exercise (`old` → `new` in `line`), with its reason."""
    found: dict[str, dict[str, str]] = {}
    text = (Path(__file__).parent / "equivalent_variants.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("## "):
            changes = found.setdefault(line[3:].strip(), {})
        elif line.startswith("- "):
            change, reason = re.fullmatch(r"- (`.*?` → (?:`.*?`|nothing) in `.*?`): (.+)", line).groups()
            changes[change] = reason
    return found


def change_of(variant) -> str:
    source, (edit,) = bare_source(variant.wrong.exercise.answer), variant.wrong.edits
    line = source[source.rfind("\n", 0, edit.start) + 1 : source.find("\n", edit.end)]
    new = f"`{edit.new}`" if edit.new else "nothing"
    return " ".join(f"`{source[edit.start : edit.end]}` → {new} in `{line}`".split()).replace("` `", "`` ``")


def survives(exercise, variant) -> bool:
    """Return whether every check passes, both with the notebook's seed and with another seed."""
    for seed in (0, 1):
        known = reference_of(exercise, seed)
        with isolated_global_state(seed):
            for check in exercise.checks:
                seen = known.of(variant.wrong, check)
                if seen.changes or verdict_on(known, check, seen).state != "passed":
                    return False
    return True


@every_exercise
def test_every_variant_fails_or_is_known_to_be_equivalent(exercise):
    """A variant that no check catches is either equivalent to the answer or reveals a gap in the checks."""
    listed = equivalent().get(exercise.name, {})
    surviving = {change_of(variant) for variant in variants_of(exercise) if survives(exercise, variant)}
    unexpected = surviving - listed.keys()
    assert not unexpected, "no check catches:\n" + "\n".join(f"- {change}: …" for change in sorted(unexpected))
    stale = listed.keys() - surviving
    assert not stale, "these fail a check now, or no longer exist:\n" + "\n".join(sorted(stale))


def test_the_list_is_short():
    variants = sum(len(variants_of(exercise)) for exercise in EXERCISES)
    assert sum(map(len, equivalent().values())) < 0.06 * variants


def test_every_operator_changes_something():
    used = {variant.slug for exercise in EXERCISES for variant in variants_of(exercise)}
    assert used == set(SAYS)
