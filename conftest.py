"""Use notebook 13's tiny model in every pytest run here, because training the real one takes minutes."""

import os

os.environ.setdefault("TRANSFORMER_LAB_PRESET", "tiny")
