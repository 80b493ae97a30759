"""A schematic's alt text must agree with its numbers."""

from transformer_lab.plots import draw_word_weights


def test_the_words_name_the_token_with_the_largest_weight():
    rows = [(["a", "b", "c"], [0.2, 0.7, 0.1], "x"), (["d", "e"], [0.9, 0.1], "y")]
    figure = draw_word_weights(rows)
    assert "before x, 0.70 of the weight is on b; before y, 0.90 of the weight is on d" in figure.get_label()
    written = [text.get_text() for text in figure.axes[0].texts]
    assert {"a", "b", "c", "d", "e", "x", "y", "0.70", "0.90"} <= set(written)
