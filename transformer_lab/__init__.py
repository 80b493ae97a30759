"""Transformer Lab: build the Transformer of "Attention Is All You Need" part by part.

A notebook needs four functions: `check`, `hint`, `solution`, and `progress`. They are loaded on first use.
"""

from typing import Any

__all__ = ["check", "hint", "progress", "solution"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from transformer_lab import exercises

        return getattr(exercises, name)
    if name == "mine":
        import importlib

        return importlib.import_module("transformer_lab.mine")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__, "mine"]
