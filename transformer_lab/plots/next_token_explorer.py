"""The next-token distribution of a language model, and how temperature, top-k, and top-p change it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from ipywidgets import Button, FloatSlider, HBox, Layout, SelectionSlider, Text
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lab.decoding.greedy import evaluation_mode
from transformer_lab.electives.language_model import LanguageModel, sample, top_k_filter, top_p_filter
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.errors import InputError
from transformer_lab.model import causal_mask
from transformer_lab.plots.figures import DARK, ORANGE, new_picture, tidy
from transformer_lab.plots.interactive_figure import Explorer

SHOWN = 20  # number of tokens in the figure

Filter = Callable[[Tensor, Any], Tensor]


def draw_next_token(
    logits: Tensor,
    names: Sequence[str],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    filters: tuple[Filter, Filter] = (top_k_filter, top_p_filter),
) -> Figure:
    """Draw the 20 most probable next tokens, with the model's probabilities and the probabilities used for sampling.

    Args:
        logits: The model's logits at the last position, `(vocab,)`.
        names: A readable string for each token.
        temperature: The logits are divided by this number. With 0, only the most probable token can be sampled.
        top_k: The `k` for the first of `filters`. If None, skip this filter.
        top_p: The `p` for the second of `filters`. If None, skip this filter.
        filters: `top_k_filter` and `top_p_filter`, or your own versions of them.

    Raises:
        InputError: `temperature` is negative, or `logits` and `names` differ in length.
        ValueError: A filter rejects `top_k` or `top_p`.
    """
    if temperature < 0:
        raise InputError(f"temperature is {temperature}, but must not be negative")
    if logits.shape != (len(names),):
        raise InputError(
            f"logits of shape {tuple(logits.shape)}, but {len(names)} names: give one row, with a name for each"
        )
    logits = logits.detach().cpu()
    probabilities = logits.softmax(dim=-1)
    if temperature == 0:
        drawn_from = torch.zeros_like(probabilities).scatter(-1, logits.argmax(keepdim=True), 1.0)
    else:
        filtered = logits / temperature
        filtered = filtered if top_k is None else filters[0](filtered, top_k)
        filtered = filtered if top_p is None else filters[1](filtered, top_p)
        drawn_from = filtered.softmax(dim=-1)
    order = probabilities.argsort(descending=True, stable=True)[:SHOWN]
    possible = int((drawn_from > 0).sum())
    settings = f"temperature {temperature:g}"
    settings += "" if top_k is None else f", top-k {top_k}"
    settings += "" if top_p is None else f", top-p {top_p:g}"
    likeliest = ", ".join(f"{names[token]} {drawn_from[token]:.2f}" for token in order[:3].tolist())
    figure = new_picture(
        f"Bars of the {len(order)} most probable next tokens, with the model's probabilities and the ones after "
        f"{settings}. {possible} of {len(names)} tokens can be sampled; the first three now have these probabilities: "
        f"{likeliest}.",
        9.5,
        3.4,
    )
    axes = figure.subplots()
    places = list(range(len(order)))
    axes.bar(places, drawn_from[order].tolist(), color=DARK, label="sampled from")
    outline = {"fill": False, "edgecolor": ORANGE, "linewidth": 1.5, "label": "model"}
    axes.bar(places, probabilities[order].tolist(), **outline)
    for place, token in enumerate(order.tolist()):
        if drawn_from[token] == 0:
            axes.text(place, probabilities[token] + 0.01, "×", ha="center", va="bottom", color="0.4")
    # Without a backslash, a dollar sign would start a formula.
    labels = [names[token].replace("$", r"\$") for token in order.tolist()]
    axes.set_xticks(places, labels, rotation=90 if max(map(len, labels)) > 2 else 0, fontsize=10)
    axes.set(ylabel="probability", ylim=(0, 1.05 * max(float(drawn_from.max()), float(probabilities.max())) + 0.02))
    axes.set_title(f"{settings}: {possible:,} of {len(names):,} tokens can be sampled", fontsize=11)
    axes.legend(frameon=False, loc="upper right")
    tidy(axes)
    return figure


def explore_next_token(
    model: LanguageModel,
    tokenizer: TextTokenizer,
    text: str,
    filters: tuple[Filter, Filter] = (top_k_filter, top_p_filter),
    write: Callable[..., Tensor] = sample,
) -> Any:
    """Return a widget that shows `draw_next_token`, with a text field, sliders, and buttons that continue the text.

    Args:
        model: The model that predicts the next token.
        tokenizer: The model's tokenizer.
        text: The initial text. The model reads a line break before it.
        filters: `top_k_filter` and `top_p_filter`, or your own versions of them.
        write: `sample` or your own version of it. The buttons call this function.
    """
    names = tokenizer.names(range(len(tokenizer)))
    generator = torch.Generator().manual_seed(0)
    device = model.output.weight.device

    def ids(text: str) -> Tensor:
        return tokenizer.encode("\n" + text).to(device)[-model.max_length :]

    def draw(text: str, temperature: float, top_k: int, top_p: float) -> Figure:
        seen = ids(text)
        with evaluation_mode(model):
            logits = model(seen[None], ~causal_mask(len(seen), device)[0, 0])[0, -1]
        return draw_next_token(logits, names, temperature, *asked_for(top_k, top_p), filters)

    def asked_for(top_k: int, top_p: float) -> tuple[int | None, float | None]:
        """Convert the sliders' values. k = 0 and p = 1 mean no filter, because a slider's value cannot be None."""
        return top_k or None, None if top_p == 1 else top_p

    controls = {
        "text": Text(text, description="Text", continuous_update=False, layout=Layout(width="98%")),
        "temperature": FloatSlider(1.0, min=0.0, max=3.0, step=0.1, description="Temperature"),
        "top_k": SelectionSlider(
            options=[("all", 0), *((str(k), k) for k in (50, 20, 10, 5, 3, 2, 1))], value=0, description="Top-k"
        ),
        "top_p": SelectionSlider(
            options=[("all", 1.0), *((f"{p:g}", p) for p in (0.99, 0.95, 0.9, 0.8, 0.6, 0.4, 0.2))],
            value=1.0,
            description="Top-p",
        ),
    }
    temperature, top_k, top_p = (controls[name] for name in ("temperature", "top_k", "top_p"))

    def button(label: str, count: int) -> Button:
        def clicked(_: Any) -> None:
            written = controls["text"].value
            settings = temperature.value, *asked_for(top_k.value, top_p.value)
            new = write(model, ids(written), count, *settings, generator=generator)
            # The field holds only one line, so keep only what follows the last line break.
            controls["text"].value = (written + tokenizer.decode(new)).split("\n")[-1]

        made = Button(description=label)
        made.on_click(clicked)
        return made

    buttons = HBox([button("Sample one", 1), button("Sample ten", 10)])
    return Explorer(controls, draw, rows=[controls["text"], HBox([temperature, top_k, top_p]), buttons])
