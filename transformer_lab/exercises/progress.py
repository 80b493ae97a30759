"""`progress`: which parts of the Transformer are the student's own."""

import html
from dataclasses import dataclass

from transformer_lab.exercises import saved_parts
from transformer_lab.exercises.registry import notebooks

STATES = {  # state: (sign, word)
    "yours": ("✓", "yours"),
    "edited": ("?", "edited since its check"),
    "package": ("–", "the package's"),
}


@dataclass(frozen=True, repr=False)
class Progress:
    """The exercises of each notebook, `(name, state, points)`; a state is `yours`, `edited` or `package`."""

    notebooks: dict[str, list[tuple[str, str, float]]]

    @property
    def title(self) -> str:
        parts = [part for found in self.notebooks.values() for part in found]
        yours = [part for part in parts if part[1] == "yours"]
        points, out_of = (sum(part[2] for part in some) for some in (yours, parts))
        return f"{len(yours)} of {len(parts)} parts are yours, {points:g} of {out_of:g} points"

    def __str__(self) -> str:
        width = max((len(part[0]) for found in self.notebooks.values() for part in found), default=0)
        lines = [self.title]
        for number, found in self.notebooks.items():
            for index, (name, state, _) in enumerate(found):
                sign, word = STATES[state]
                lines.append(f"  {number if index == 0 else '  '}  {sign} {name:<{width}}  {word}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        states = {name: state for found in self.notebooks.values() for name, state, _ in found}
        rows = []
        for number, found in self.notebooks.items():
            boxes = "".join(_box(name, state) for name, state, _ in found)
            rows.append(
                f'<tr><th scope="row" style="padding:2px 12px 2px 0;text-align:left;vertical-align:top">{number}</th>'
                f'<td style="text-align:left">{boxes}</td></tr>'
            )
        return (
            f'<div style="max-width:60em"><h4 style="margin:4px 0">{html.escape(self.title)}</h4>{_drawing(states)}'
            f'<table style="border-collapse:collapse">{"".join(rows)}</table></div>'
        )


def _box(name: str, state: str) -> str:
    sign, word = STATES[state]
    line = "2px solid #2e8b57" if state == "yours" else "1px dashed currentColor"
    return (
        f'<span style="display:inline-block;border:{line};border-radius:4px;padding:1px 8px;margin:2px" '
        f'title="{word}">{sign} {html.escape(name)} <small>{word}</small></span>'
    )


# Figure 1 of the paper: what stands where. Boxes with others inside come first; x, y, width, height.
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
]


def _drawing(states: dict[str, str]) -> str:
    """The Transformer with its parts: what is yours has a solid green frame and a tick, the rest a dashed frame."""
    shapes = []
    for name, x, y, width, height in _FIGURE:
        state = states.get(name, "package")
        sign, word = STATES[state]
        frame = (
            'stroke="#2e8b57" stroke-width="2.5"'
            if state == "yours"
            else 'stroke="currentColor" stroke-dasharray="4 3"'
        )
        shapes.append(
            f"<g><title>{name}: {word}</title>"
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="none" {frame}/>'
            f'<text x="{x + 10}" y="{y + 20}" fill="currentColor">{sign} {name}</text></g>'
        )
    yours = [name for name, state in states.items() if state == "yours"]
    label = f"The Transformer and its parts. Yours: {', '.join(yours) or 'none yet'}."
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 600 405" '
        'style="max-width:600px;width:100%;font:13px sans-serif">'
        f"{''.join(shapes)}</svg>"
    )


def progress() -> Progress:
    """Which parts you have built so far: those whose check passed are kept, and later notebooks use them."""
    return Progress(
        {
            number: [(exercise.name, saved_parts.state(exercise.name), exercise.points) for exercise in found]
            for number, found in notebooks().items()
        }
    )
