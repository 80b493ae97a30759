"""A Sphinx extension: formulas become MathML, which every current browser draws without a script or a download."""

from typing import Any

from docutils import nodes


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer `mathml`, for `html_math_renderer`."""
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

    return convert(formula, display=display)
