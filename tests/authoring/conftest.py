"""The environment in which the tests run whole notebooks."""

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def notebook_environment(tmp_path: Path) -> dict[str, str]:
    """Return variables for a kernel without saved parts, with one thread, and with short training runs."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("short_training.py"), startup)
    return os.environ | {
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "TRANSFORMER_LAB_MINE": "off",
        "OMP_NUM_THREADS": "1",
    }
