"""The parts you have built: `from transformer_lab.mine import MultiHeadAttention`.

If your own version has passed its check, you get that version. Otherwise, you get the package's version. The import
prints which one you got.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    from transformer_lab.errors import InputError
    from transformer_lab.exercises import saved_parts

    if name.startswith("_"):
        raise AttributeError(name)
    outermost = saved_parts.is_outermost()
    try:
        part, which = saved_parts.part(name)
    except InputError as error:
        raise ImportError(str(error)) from None
    if outermost:  # no message for the parts that your parts import
        print(f"{name}: {which}")
    return part


def __dir__() -> list[str]:
    from transformer_lab.exercises import exercises

    return list(exercises())
