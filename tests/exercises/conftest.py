"""What the tests of exercises share."""

import os

import pytest


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch):
    """A test that passes a check keeps no part in this repository; TRANSFORMER_LAB_STRICT of the caller has no say."""
    monkeypatch.setenv("TRANSFORMER_LAB_MINE", "off")
    monkeypatch.delenv("TRANSFORMER_LAB_STRICT", raising=False)
    assert os.environ["TRANSFORMER_LAB_MINE"] == "off"
