"""`progress`: which parts of the Transformer are the student's own."""

import html
from dataclasses import dataclass

from transformer_lab.exercises import kept
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
        rows = []
        for number, found in self.notebooks.items():
            boxes = "".join(_box(name, state) for name, state, _ in found)
            rows.append(
                f'<tr><th scope="row" style="padding:2px 12px 2px 0;text-align:left">{number}</th>'
                f'<td style="text-align:left">{boxes}</td></tr>'
            )
        return (
            f'<div style="max-width:60em"><h4 style="margin:4px 0">{html.escape(self.title)}</h4>'
            f'<table style="border-collapse:collapse">{"".join(rows)}</table></div>'
        )


def _box(name: str, state: str) -> str:
    sign, word = STATES[state]
    line = "2px solid #2e8b57" if state == "yours" else "1px dashed currentColor"
    return (
        f'<span style="display:inline-block;border:{line};border-radius:4px;padding:1px 8px;margin:2px" '
        f'title="{word}">{sign} {html.escape(name)} <small>{word}</small></span>'
    )


def progress() -> Progress:
    """Which parts you have built so far: those whose check passed are kept, and later notebooks use them."""
    return Progress(
        {
            number: [(exercise.name, kept.state(exercise.name), exercise.points) for exercise in found]
            for number, found in notebooks().items()
        }
    )
