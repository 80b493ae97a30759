"""Make every pytest run here, of tests or notebooks, train notebook 13's tiny model: the real one takes minutes."""

import os

os.environ.setdefault("TRANSFORMER_LAB_PRESET", "tiny")
