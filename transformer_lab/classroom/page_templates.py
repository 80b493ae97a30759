"""Pages for students and instructors, rendered from the Jinja2 templates in `templates/`.

An HTML page is a single file that has a light and a dark style, runs no scripts, and loads nothing from the network.
Every value in it is escaped.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from transformer_lab.classroom.gradebook import format_points
from transformer_lab.exercises.report import prose
from transformer_lab.files import clean

TEMPLATES = Path(__file__).with_name("templates")
STYLE = (TEMPLATES / "style.css").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()  # the only style that browsers apply

ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals |= {"style": Markup(STYLE), "style_hash": STYLE_HASH}
ENVIRONMENT.filters |= {"clean": clean, "points": format_points, "prose": lambda text: Markup(prose(text))}


def render(template: str, **data: Any) -> str:
    """Return a complete page, replacing characters that cannot be written in UTF-8."""
    return clean(ENVIRONMENT.get_template(template).render(data))
