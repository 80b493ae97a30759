"""Fixtures for all tests of the exercises."""

import os

import pytest


@pytest.fixture(autouse=True)
def nothing_is_saved(monkeypatch):
    """A test that passes a check saves no part in this repository. The caller's TRANSFORMER_LAB_STRICT is ignored."""
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "off")
    monkeypatch.delenv("TRANSFORMER_LAB_STRICT", raising=False)
    assert os.environ["TRANSFORMER_LAB_MINE"] == "off"
