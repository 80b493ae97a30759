"""Fixtures shared by the exercise tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def nothing_is_saved(monkeypatch):
    """Keep tests from saving parts in this repository, and ignore any TRANSFORMER_LAB_STRICT that is set."""
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "off")
    monkeypatch.delenv("TRANSFORMER_LAB_STRICT", raising=False)
    assert os.environ["TRANSFORMER_LAB_MINE"] == "off"
