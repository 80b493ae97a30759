"""The docstrings of the grader name the tests that would fail without each mechanism. Renaming a test must not go
unnoticed."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_a_docstring_names_exists():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "transformer_lab" / "classroom").glob("*.py")]
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    named = {name for text in sources for name in re.findall(r"`(test_\w+)`", text)}
    existing = {name for text in tests for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}
    assert named, "the pattern no longer finds any names"
    assert named - existing == set()
