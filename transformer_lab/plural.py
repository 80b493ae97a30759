"""Format a number with its noun, for messages."""


def plural(number: float, noun: str) -> str:
    """Return the number with its noun, such as "1 check" or "2.5 points"."""
    digits = f"{number:g}" if isinstance(number, float) else number
    return f"{digits} {noun}{'' if number == 1 else 's'}"
