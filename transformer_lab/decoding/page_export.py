"""Export a trained model as a web page that translates in the browser. Its JavaScript is in the folder `page`."""

import base64
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from transformer_lab.data import SpacyTokenizer
from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.decoding.translator import PRETRAINED, Translator
from transformer_lab.errors import InputError
from transformer_lab.files import replacing, writing
from transformer_lab.model import record_attention

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("translator.js", "style.js", "transformer.js")  # the first one imports the others
MODEL_FILES = ("config.json", "tokenizer.json", "weights.safetensors")
TRAINING = "training.json"
FIRST_SENTENCES = {  # the same as the first examples in translator.js
    "de": "Ein brauner Hund rennt über die grüne Wiese.",
    "en": "A brown dog is running across the green meadow.",
}
FONT_SIZE = 21  # pixels, in the still picture
FAINTEST_CURVE = 0.05  # the smallest attention weight that is drawn


def write_translator(folder: Path) -> None:
    """Write the page of the included model into `folder`: `index.html`, its scripts, and the model.

    The page needs a web server.

    `still.svg` shows the first translation to readers without JavaScript.
    """
    folder.mkdir(parents=True, exist_ok=True)
    picture = still_picture(Translator.load(PRETRAINED))
    for path in [*(PAGE / name for name in SCRIPTS), *(PRETRAINED / name for name in (*MODEL_FILES, TRAINING))]:
        shutil.copyfile(path, folder / path.name)
    (folder / "still.svg").write_text(picture, encoding="utf-8")
    (folder / "index.html").write_text(render_page(picture), encoding="utf-8")


def export_page(translator: Translator, file: Path, training: Path | None = None) -> None:
    """Write a page that translates with this model: a single file that works without a server or a network.

    Args:
        translator: A model built from the package's own parts, using byte-pair encoding. Its weights are stored in half
            precision.
        file: The file to write. An existing file is replaced.
        training: The `training.json` of the model's run, so that the page can say how long training took.

    Raises:
        InputError: The tokenizer is spaCy's and cannot run in a browser, the file name does not end in .html or .htm,
            or the file cannot be written.
    """
    if file.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"cannot save a page as {file.name}: end its name in .html")
    if isinstance(translator.tokenizer, SpacyTokenizer):
        raise InputError("spaCy's tokenizer doesn't run in a browser: export a model trained with --tokenizer bpe")
    with tempfile.TemporaryDirectory() as temporary:
        saved = Path(temporary)
        translator.save(saved, half=True)
        parts = {
            "config": json.loads((saved / "config.json").read_text(encoding="utf-8")),
            "tokenizer": json.loads((saved / "tokenizer.json").read_text(encoding="utf-8")),
            "weights": base64.b64encode((saved / "weights.safetensors").read_bytes()).decode(),
        }
    if training is not None and training.is_file():
        parts["training"] = json.loads(training.read_text(encoding="utf-8"))
    page = render_page(still_picture(translator), parts)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as unfinished:
        unfinished.write_text(page, encoding="utf-8")


def render_page(picture: str, model: dict | None = None) -> str:
    """Return the page's HTML. If `model` is given, the model and the scripts are embedded.

    Otherwise, the page loads the model and the scripts from the server.
    """
    start, *imported = SCRIPTS
    modules = {f"./{name}": base64.b64encode((PAGE / name).read_bytes()).decode() for name in imported}
    return render(
        "index.html",
        picture=Markup(picture),
        model=Markup(in_script(model)) if model else None,
        imports=Markup(in_script({"imports": {n: f"data:text/javascript;base64,{m}" for n, m in modules.items()}})),
        start=Markup((PAGE / start).read_text(encoding="utf-8")),
    )


def render(template: str, **values: Any) -> str:
    environment = Environment(loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(values)


def in_script(data: dict) -> str:
    """Return JSON that cannot close the `<script>` element around it."""
    return json.dumps(data, ensure_ascii=False).replace("</", "<\\/")


@dataclass
class Word:
    """A word or punctuation mark in the still picture: its text, its center in pixels, and its token indices."""

    text: str = ""
    x: float = 0.0
    tokens: list[int] = field(default_factory=list)


def still_picture(translator: Translator) -> str:
    """Return an SVG of one translation, with curves from each word to the source words it attended to.

    The weights are the mean over the heads of the second-to-last decoder layer, as on the page. Return "" if there is
    no example sentence in the source language or it is too long for the model.
    """
    config, tokenizer = translator.model.config, translator.tokenizer
    sentence = FIRST_SENTENCES.get(tokenizer.source, "")
    source = tokenizer.encode_source(sentence)
    if not sentence or len(source) > config.max_length:
        return ""
    target = translator.search([sentence], 1, 0.0, None)[0]
    with evaluation_mode(translator.model), record_attention(translator.model) as recorded:
        translator.model(torch.tensor([source]), torch.tensor([[config.bos_id, *target[: config.max_length - 1]]]))
    layer = max(0, config.n_layers - 2)
    weights = recorded[f"decoder.layers.{layer}.cross_attention"][0].mean(dim=0)  # (target + 1, source)
    source_line, source_width = line_of_words(tokenizer.source_tokens(source[:-1]))
    target_line, target_width = line_of_words(tokenizer.target_tokens(target))
    curves = []
    for written in target_line:
        for read in source_line:
            weight = weights[written.tokens][:, read.tokens].sum(dim=1).mean().item()
            if weight >= FAINTEST_CURVE:
                curves.append((read.x, written.x, round(weight, 3)))
    return render(
        "still.svg",
        sentence=sentence,
        translation=tokenizer.decode(target),
        width=round(max(source_width, target_width)),
        size=FONT_SIZE,
        curves=curves,
        source=source_line,
        target=target_line,
    )


def line_of_words(tokens: list[str]) -> tuple[list[Word], float]:
    """Join tokens into words placed side by side. Return the words and the line's estimated width in pixels."""
    words: list[Word] = []
    for index, token in enumerate(tokens):
        if not words or token.startswith("▁") or not token.isalnum():
            words.append(Word())
        words[-1].text += token.removeprefix("▁")
        words[-1].tokens.append(index)
    end = 0.0
    for word in words:
        width = 0.58 * FONT_SIZE * len(word.text)
        start = end + (0.9 * FONT_SIZE if word.text[:1].isalnum() else 0.0)
        word.x, end = round(start + width / 2), start + width
    return words, end + 0.9 * FONT_SIZE
