"""`progress`: show which parts of the Transformer you have built yourself."""

import html
import os
import re
from dataclasses import dataclass
from pathlib import PurePath

from transformer_lab.exercises import saved_parts
from transformer_lab.exercises.registry import FIRST_ELECTIVE, notebooks

STATES = {  # maps a state to its symbol and its word
    "yours": ("✓", "yours"),
    "edited": ("?", "edited since it passed"),
    "package": ("·", "not yet"),
}

Part = tuple[str, str]  # name and state


@dataclass(frozen=True, repr=False)
class Progress:
    """The exercises of each notebook with their states, which are `yours`, `edited`, or `package`."""

    notebooks: dict[str, list[Part]]
    current: str = ""  # the calling notebook's number, if known

    @property
    def title(self) -> str:
        """Progress in this notebook, the next step, and progress in the whole course."""
        overall = f"{_count([part for parts in self.notebooks.values() for part in parts])} parts are yours"
        if not self.notebooks.get(self.current):
            return overall
        done = f"Notebook {self.current}: {_count(self.notebooks[self.current])}"
        return ". ".join([done, *([f"Next: {self.following}"] if self.following else []), f"In all, {overall}"])

    @property
    def following(self) -> str:
        """The next step: the first exercise in this notebook that is not yours yet.

        If there is none, the next step is a later notebook.
        """
        left = [name for name, state in self.notebooks.get(self.current, []) if state != "yours"]
        later = [number for number in self.notebooks if self.current < number < FIRST_ELECTIVE]
        return left[0] if left else f"notebook {later[0]}" if later else ""

    def __str__(self) -> str:
        width = max((len(name) for parts in self.notebooks.values() for name, _ in parts), default=0)
        lines = [self.title]
        for number, parts in self.notebooks.items():
            if number == FIRST_ELECTIVE:
                lines.append("Electives")
            for index, (name, state) in enumerate(parts):
                sign, word = STATES[state]
                lines.append(f"  {number if index == 0 else '  '}  {sign} {name:<{width}}  {word}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        core = [number for number in self.notebooks if number < FIRST_ELECTIVE]
        later = [number for number in core if self.current and number > self.current]
        electives = [number for number in self.notebooks if number not in core]
        tables = [self._table([number for number in core if number not in later])]
        for title, numbers in (("Later notebooks", later), ("Electives", electives)):
            if numbers:
                is_open = " open" if self.current in numbers else ""
                tables.append(f"<details{is_open}><summary>{title}</summary>{self._table(numbers)}</details>")
        title = f'<p style="margin:4px 0;font-size:1.1em"><b>{html.escape(self.title)}</b></p>'
        drawing = _drawing({name: state for parts in self.notebooks.values() for name, state in parts})
        return f'<div style="max-width:60em">{title}{drawing}{"".join(tables)}</div>'

    def _table(self, numbers: list[str]) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="padding:2px 12px 2px 0;text-align:left;vertical-align:top">{number}</th>'
            f'<td style="text-align:left">{"".join(_box(*part) for part in self.notebooks[number])}</td></tr>'
            for number in sorted(numbers, key=lambda number: number != self.current)  # this notebook comes first
        )
        return f'<table style="border-collapse:collapse">{rows}</table>'


def _count(parts: list[Part]) -> str:
    return f"{sum(state == 'yours' for _, state in parts)} of {len(parts)}"


def _box(name: str, state: str) -> str:
    sign, word = STATES[state]
    line = "2px solid #2e8b57" if state == "yours" else "1px dashed currentColor"
    return (
        f'<span style="display:inline-block;border:{line};border-radius:4px;padding:1px 8px;margin:2px" '
        f'title="{word}">{sign} {html.escape(name)} <small>{word}</small></span>'
    )


# Figure 1 of the paper, with the parts of attention below it: x, y, width, height. Enclosing boxes come first.
_FIGURE = [
    ("Transformer", 5, 5, 590, 395),
    ("Encoder", 20, 40, 270, 205),
    ("EncoderLayer", 35, 75, 240, 155),
    ("FeedForward", 50, 105, 210, 30),
    ("MultiHeadAttention", 50, 145, 210, 30),
    ("ResidualConnection", 50, 185, 210, 30),
    ("Decoder", 310, 40, 270, 205),
    ("DecoderLayer", 325, 75, 240, 155),
    ("FeedForward", 340, 105, 210, 30),
    ("MultiHeadAttention", 340, 145, 210, 30),
    ("ResidualConnection", 340, 185, 210, 30),
    ("padding_mask", 20, 255, 130, 30),
    ("LayerNorm", 160, 255, 130, 30),
    ("target_mask", 310, 255, 130, 30),
    ("causal_mask", 450, 255, 130, 30),
    ("PositionalEncoding", 20, 295, 560, 30),
    ("TokenEmbedding", 20, 335, 270, 30),
    ("TokenEmbedding", 310, 335, 270, 30),
    ("softmax", 15, 445, 85, 30),
    ("scaled_dot_product_attention", 110, 445, 230, 30),
    ("split_heads", 350, 445, 105, 30),
    ("combine_heads", 465, 445, 125, 30),
]


def _drawing(states: dict[str, str]) -> str:
    """Draw the Transformer's parts.

    Your parts have a solid green frame and a check mark. The others have a dashed frame.
    """
    shapes = [
        '<rect x="5" y="410" width="590" height="75" rx="5" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
        '<text x="15" y="432" fill="currentColor">inside MultiHeadAttention</text>'
    ]
    for name, x, y, width, height in _FIGURE:
        state = states.get(name, "package")
        sign, word = STATES[state]
        frame = 'stroke="currentColor" stroke-dasharray="4 3"'
        if state == "yours":
            frame = 'stroke="#2e8b57" stroke-width="2.5"'
        shapes.append(
            f"<g><title>{name}: {word}</title>"
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="none" {frame}/>'
            f'<text x="{x + 10}" y="{y + 20}" fill="currentColor">{sign} {name}</text></g>'
        )
    built = ", ".join(name for name, state in states.items() if state == "yours")
    label = f"The Transformer and its parts. Yours: {built or 'none yet'}."
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 600 490" '
        'style="max-width:600px;width:100%;font:13px sans-serif">'
        f"{''.join(shapes)}</svg>"
    )


def progress() -> Progress:
    """Return which parts you have built so far.

    A part is saved when it passes its check, and later notebooks use it.
    """
    parts = {
        number: [(exercise.name, saved_parts.state(exercise.name)) for exercise in exercises]
        for number, exercises in notebooks().items()
    }
    path = PurePath(os.environ.get("JPY_SESSION_NAME", ""))  # Jupyter Server sets this to the kernel's notebook
    match = re.match(r"(\d\d)_", path.name)
    return Progress(parts, match[1] if match else "")
