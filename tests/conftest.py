"""What several test folders share."""

import os
from pathlib import Path

import pytest


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
