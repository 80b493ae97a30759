"""A Sphinx extension that turns formulas into MathML, which all current browsers render without a script."""

import re
from typing import Any

from docutils import nodes


def setup(app: Any) -> dict[str, bool]:
    """Register the `mathml` renderer for `html_math_renderer`."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: nodes.Element) -> None:
    translator.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.Element) -> None:
    translator.body.append(f'<div class="lab-formula">{_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert

    markup = convert(formula, display=display)
    letters = r'(?:<mi mathvariant="normal">\w</mi>){2,}'  # \mathrm{softmax} is converted one letter at a time
    markup = re.sub(letters, lambda match: f"<mi>{re.sub('<.*?>', '', match[0])}</mi>", markup)
    # By default, browsers treat the bars in |x| as operators and put a space on each side.
    return markup.replace('<mo stretchy="false">&#x0007C;', '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;')
