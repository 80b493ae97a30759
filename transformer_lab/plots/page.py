"""An HTML page with all heads of all layers for one sentence. It works offline and without scripts."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image
from torch import Tensor

from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing
from transformer_lab.plots.heatmaps import (
    COLORS,
    STACKS,
    attention_of,
    chosen_weights,
    follows_itself,
    layers_of,
    strongest_links,
)

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.layer { display: flex; flex-wrap: wrap; gap: .8rem; align-items: flex-start; margin: .6rem 0; }
.layer > b { width: 5rem; }
.small { text-align: center; text-decoration: none; color: inherit; font-size: .8rem; }
.small img { display: block; width: 7.5rem; border: 1px solid #8888; }
.small:hover img, .small:focus img { outline: 3px solid #d95f02; }
img { image-rendering: pixelated; background: white; }
.large { display: none; }
.large:target { display: block; position: fixed; inset: 0; overflow: auto; padding: 1.5rem; background: Canvas; }
.map { display: grid; width: max-content; grid-template-columns: auto auto auto; gap: .4rem; margin: 1rem 0; }
.queries, .next { display: grid; grid-auto-rows: var(--cell); line-height: var(--cell); font-size: .85rem; }
.queries { text-align: right; } .next { color: GrayText; }
.keys { display: grid; grid-auto-flow: column; grid-auto-columns: var(--cell); grid-column: 2; font-size: .85rem; }
.keys span { writing-mode: vertical-rl; line-height: var(--cell); }
.map img { width: calc(var(--columns) * var(--cell)); height: calc(var(--rows) * var(--cell)); }
.map img { outline: 1px solid #8888; }
nav a { margin-right: 1.2rem; }
"""


def attention_page(translator: Any, sentence: str) -> str:
    """Return a page with a small heat map of every head. Clicking one enlarges it and shows its tokens.

    Args:
        translator: A `Translator`.
        sentence: A sentence in the source language.

    Raises:
        InputError: The sentence cannot be translated.
    """
    recorded = attention_of(translator, sentence)
    translation = translator.translate([sentence])[0]
    overview, enlarged = [], []
    for stack, (name, _, *sides) in STACKS.items():
        query_language, key_language = (recorded.languages[side] for side in sides)
        overview.append(f"<h2>{name}</h2>\n<p>Rows: {query_language} tokens. Columns: {key_language} tokens.</p>")
        following = [*recorded.target_tokens[1:], "<eos>"] if follows_itself(stack) else []
        for layer in range(layers_of(recorded, stack)):
            weights, queries, keys, _, layer_title = chosen_weights(recorded, stack, layer)
            links, addresses = [], [f"{stack}-{layer}-{head}" for head in range(len(weights))]
            for head, (table, address) in enumerate(zip(weights, addresses, strict=True)):
                title = f"{layer_title}, head {head}"
                picture = _picture(table, f"Heat map: {title}. {strongest_links(table.numpy(), queries, keys)}")
                links.append(f'<a class="small" href="#{address}">{picture}head {head}</a>')
                around = addresses[head - 1], addresses[(head + 1) % len(addresses)]
                enlarged.append(_enlarged(address, title, picture, queries, keys, following, around))
            overview.append(f'<div class="layer"><b>layer {layer}</b>{"".join(links)}</div>')
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; style-src '
        "'unsafe-inline'\">\n"
        f"<title>Attention: {html.escape(sentence)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(sentence)}</h1>\n<p>{html.escape(translation)}</p>\n"
        "<p>Each map is one head: the darker a cell, the more its row's token attends to its column's token. "
        "Click one to enlarge it.</p>\n" + "\n".join(overview) + "\n" + "\n".join(enlarged) + "\n</body>\n</html>\n"
    )


def save_attention_page(translator: Any, sentence: str, path: str | Path) -> None:
    """Write `attention_page` to a file.

    Raises:
        InputError: The suffix is not .html, the file cannot be written, or the sentence cannot be translated.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"cannot save a page as {path.name}: end its name in .html")
    text = attention_page(translator, sentence)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _picture(table: Tensor, text: str) -> str:
    """Return an image with one pixel per weight, which the page enlarges without smoothing."""
    pixels = (matplotlib.colormaps[COLORS](table.numpy())[..., :3] * 255).round().astype("uint8")
    image = io.BytesIO()
    Image.fromarray(pixels).save(image, "PNG")
    data = base64.b64encode(image.getvalue()).decode("ascii")
    return f'<img alt="{html.escape(text, quote=True)}" src="data:image/png;base64,{data}">'


def _enlarged(
    address: str,
    title: str,
    picture: str,
    queries: Sequence[str],
    keys: Sequence[str],
    following: Sequence[str],
    around: Sequence[str],
) -> str:
    def spans(tokens: Sequence[str]) -> str:
        return "".join(f"<span>{html.escape(token)}</span>" for token in tokens)

    cell = max(0.9, min(1.9, 34 / max(len(queries), len(keys))))
    size = f"--cell: {cell:.2f}rem; --rows: {len(queries)}; --columns: {len(keys)}"
    right = f'<div class="next" title="the predicted token">{spans(following)}</div>'
    before, after = around
    return (
        f'<section class="large" id="{address}" aria-label="{html.escape(title, quote=True)}">\n<h2>{title}</h2>\n'
        f'<nav><a href="#">back to all</a><a href="#{before}">previous head</a><a href="#{after}">next head</a></nav>\n'
        f'<div class="map" style="{size}"><div class="queries">{spans(queries)}</div>{picture}{right}'
        f'<div class="keys">{spans(keys)}</div></div>\n</section>'
    )
