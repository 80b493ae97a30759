"""The parts you have built: `from transformer_lab.mine import MultiHeadAttention`.

The import gives you your own version if it passed its check, and the package's otherwise. It prints which one it is.
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
    if outermost:  # parts that your parts import need no message
        print(f"{name}: {which}")
    return part


def __dir__() -> list[str]:
    from transformer_lab.exercises import exercises

    return list(exercises())
