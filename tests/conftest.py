"""What several test folders share."""

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked `costly_setup` go first. Workers begin at the front of their lists and take from the ends
    of others', so one of them keeps such a module whole, and it is set up once."""
    items.sort(key=lambda item: item.get_closest_marker("costly_setup") is None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real corpora: `multi30k/`, `tatoeba_en_zh/`, `ted_de_en/`. Skips where there is none."""
    named = os.environ.get("TRANSFORMER_LAB_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if folder.name == "multi30k":
        folder = folder.parent
    if not (folder / "multi30k" / "train.de.gz").is_file():
        pytest.skip(f"no real corpora: {folder / 'multi30k' / 'train.de.gz'} is missing (set TRANSFORMER_LAB_DATA)")
    return folder
