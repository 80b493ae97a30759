"""Fixtures and hooks shared by several test folders."""

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests marked `costly_setup` first. A worker starts at the front of its list and takes tests from the ends of
    other workers' lists, so such a module stays with a single worker and is set up only once."""
    items.sort(key=lambda item: item.get_closest_marker("costly_setup") is None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real corpora (`multi30k/`, `tatoeba_en_zh/`, `ted_de_en/`), or skip the test without it."""
    named = os.environ.get("TRANSFORMER_LAB_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if folder.name == "multi30k":
        folder = folder.parent
    if not (folder / "multi30k" / "train.de.gz").is_file():
        pytest.skip(f"no real corpora: {folder / 'multi30k' / 'train.de.gz'} is missing (set TRANSFORMER_LAB_DATA)")
    return folder
