"""An HTML page that shows every attention head of every layer for one sentence. It works offline, without scripts."""

from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing
from transformer_lab.plots.figures import encode_png
from transformer_lab.plots.heatmaps import (
    COLORS,
    STACKS,
    attention_of,
    chosen_weights,
    follows_itself,
    layers_of,
    strongest_links,
)

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, undefined=StrictUndefined
)


def attention_page(translator: Any, sentence: str) -> str:
    """Return an HTML page with a small heat map of every head. Clicking a map enlarges it and shows its tokens.

    Args:
        translator: A `Translator`.
        sentence: A sentence in the source language.

    Raises:
        InputError: The sentence cannot be translated, or the model has no attention hook.
    """
    recorded, colors = attention_of(translator, sentence), matplotlib.colormaps[COLORS]
    stacks = []
    for stack, (name, _, *sides) in STACKS.items():
        layers = []
        for layer in range(layers_of(recorded, stack)):
            weights, queries, keys, _, title = chosen_weights(recorded, stack, layer)
            layers.append([
                {
                    "address": f"{stack}-{layer}-{head}",
                    "title": f"{title}, head {head}",
                    "text": f"Heat map: {title}, head {head}. {strongest_links(table.numpy(), queries, keys)}",
                    "data": encode_png((colors(table.numpy())[..., :3] * 255).round().astype("uint8")),
                }
                for head, table in enumerate(weights)
            ])  # fmt: skip
        tokens = {"source": recorded.source_tokens, "target": recorded.target_tokens}
        queries, keys = (tokens[side] for side in sides)
        query_language, key_language = (recorded.languages[side] for side in sides)
        stacks.append({
            "name": name, "layers": layers, "queries": queries, "keys": keys,
            "query_language": query_language, "key_language": key_language,
            "following": [*recorded.target_tokens[1:], "<eos>"] if follows_itself(stack) else [],
            "cell": max(0.9, min(1.9, 34 / max(len(queries), len(keys)))),
        })  # fmt: skip
    translation = translator.translate([sentence])[0]
    return TEMPLATES.get_template("page.html").render(sentence=sentence, translation=translation, stacks=stacks)


def save_attention_page(translator: Any, sentence: str, path: str | Path) -> None:
    """Write the page that `attention_page` returns to a file, creating its folder if necessary.

    Args:
        translator: A `Translator`.
        sentence: A sentence in the source language.
        path: A file name that ends in `.html` or `.htm`.

    Raises:
        InputError: The suffix is neither `.html` nor `.htm`, the file cannot be written, the sentence cannot be
            translated, or the model has no attention hook.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"cannot save a page as {path.name}: end its name in .html")
    text = attention_page(translator, sentence)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
