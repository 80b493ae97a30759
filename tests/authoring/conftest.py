"""The environment in which the tests run whole notebooks."""

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def notebook_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return environment variables for a kernel that has no saved parts, uses one thread, and trains only briefly."""
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("short_training.py"), startup)
    return os.environ | {
        "IPYTHONDIR": str(folder),
        "TRANSFORMER_LAB_MINE": "off",
        "OMP_NUM_THREADS": "1",
    }
