"""Recorded training runs in other languages, from the files that `benchmarks/languages.py` writes."""

import json
from pathlib import Path
from typing import Any

from transformer_lab.shipped import shipped

RESULTS = shipped("results")
TITLES = {"en_fr": "English–French", "en_zh": "English–Chinese", "ted": "TED, German–English"}


def recorded_languages(results: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Map each run's title to its newest record. If there is no `results` folder, return an empty dictionary."""
    files = sorted(results.glob("*_languages/*.json"))  # sorted by date
    newest = {file.stem: file for file in files if file.stem in TITLES}
    return {TITLES[name]: json.loads(newest[name].read_text(encoding="utf-8")) for name in TITLES if name in newest}
