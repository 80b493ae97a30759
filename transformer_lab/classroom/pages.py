"""Renders the HTML pages that grading writes: one file per page, no scripts, nothing from the network, light and dark.

The pages are Jinja2 templates in `templates/`. Every value that they show is escaped.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from transformer_lab.classroom.gradebook import number
from transformer_lab.exercises.report import prose
from transformer_lab.files import clean

TEMPLATES = Path(__file__).with_name("templates")
STYLE = (TEMPLATES / "style.css").read_text(encoding="utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()  # browsers apply no other style

ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.globals |= {"style": Markup(STYLE), "style_hash": STYLE_HASH}
ENVIRONMENT.filters |= {"clean": clean, "number": number, "prose": lambda text: Markup(prose(text))}


def render(template: str, **data: Any) -> str:
    """Return a whole page. Characters that no UTF-8 file may hold are replaced."""
    return clean(ENVIRONMENT.get_template(template).render(data))
