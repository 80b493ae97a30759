"""Build two notebooks from each file in `course/`: one in `notebooks/` and one in `solutions/`."""

from transformer_lab.authoring.notebooks import build_notebooks, outdated_notebooks, read_text
from transformer_lab.authoring.stubs import marked_answer, stub, stub_source

__all__ = ["build_notebooks", "marked_answer", "outdated_notebooks", "read_text", "stub", "stub_source"]
