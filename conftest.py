"""Whatever pytest runs here, tests or notebooks, trains the tiny model of notebook 13: the real one takes minutes."""

import os

os.environ.setdefault("TRANSFORMER_LAB_PRESET", "tiny")
