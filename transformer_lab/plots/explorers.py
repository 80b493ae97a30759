"""Pictures that answer to the reader, in a notebook."""

from typing import Any

from transformer_lab.errors import InputError
from transformer_lab.plots.figures import as_html
from transformer_lab.plots.heatmaps import STACKS, draw_recorded_attention, languages_of


def explore_attention(translator: Any, sentence: str) -> Any:
    """A heat map with a field for the sentence and a choice of stack, layer and head.

    Args:
        translator: A `Translator`.
        sentence: The first sentence to show, in the source language.

    Returns:
        The widget. A cell that ends in it shows it.

    Raises:
        InputError: The first sentence cannot be translated. A later one that cannot is answered in the widget.
    """
    import html

    from ipywidgets import HTML, Dropdown, HBox, IntSlider, Label, Layout, Text, VBox

    config = translator.model.config
    wide = Layout(width="98%")
    sentence_field = Text(sentence, description="Sentence", continuous_update=False, layout=wide)
    stack = Dropdown(options=[(name, key) for key, (name, *_) in STACKS.items()], value="cross", description="Stack")
    layer = IntSlider(config.n_layers - 1, 0, config.n_layers - 1, description="Layer")
    head = Dropdown(options=[("all", None), *((str(h), h) for h in range(config.n_heads))], value=0, description="Head")
    translation, picture = Label(), HTML()
    recorded = None

    def read_sentence(_: Any = None) -> None:
        nonlocal recorded
        recorded = translator.attention(sentence_field.value)
        translation.value = "Translation: " + translator.translate([sentence_field.value])[0]

    def draw(_: Any = None) -> None:
        chosen = stack.value, layer.value, head.value
        picture.value = as_html(draw_recorded_attention(*recorded, languages_of(translator), *chosen))

    def answer_new_sentence(_: Any) -> None:
        try:
            read_sentence()
        except InputError as error:
            picture.value = f"<p>{html.escape(str(error))}</p>"
        else:
            draw()

    read_sentence()
    draw()
    sentence_field.observe(answer_new_sentence, "value")
    for control in (stack, layer, head):
        control.observe(draw, "value")
    return VBox([sentence_field, HBox([stack, layer, head]), translation, picture])
