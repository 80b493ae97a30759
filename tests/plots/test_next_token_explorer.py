"""Without these tests, a slider could have no effect, or the bars could differ from the sampling probabilities."""

import pytest
import torch

from transformer_lab.electives.language_model import LanguageModel
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.errors import InputError
from transformer_lab.plots.next_token_explorer import draw_next_token, explore_next_token

LOGITS = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
NAMES = ["a", "b", "$c", "▁d"]


def heights(figure):
    """Return the heights of the bars: the sampling probabilities and the model's own."""
    bars = [bar.get_height() for bar in figure.axes[0].patches]
    return bars[:4], bars[4:]


@pytest.mark.parametrize(
    ("settings", "drawn_from"),
    [
        ({}, [0.4, 0.3, 0.2, 0.1]),
        ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        ({"temperature": 0}, [1, 0, 0, 0]),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_p": 0.6}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_k": 3, "top_p": 0.7}, [4 / 7, 3 / 7, 0, 0]),
    ],
)
def test_the_bars_are_what_is_drawn_from(settings, drawn_from, cut_off):
    figure = draw_next_token(LOGITS, NAMES, **settings)
    drawn, said = heights(figure)
    assert drawn == pytest.approx(drawn_from)
    assert said == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert f"{sum(share > 0 for share in drawn_from)} of 4" in figure.get_label()
    assert len(figure.axes[0].texts) == sum(share == 0 for share in drawn_from), "a cross for each impossible token"
    assert cut_off(figure) == []


def test_the_readers_own_filters_are_drawn():
    removes_the_first = lambda logits, k: logits.masked_fill(torch.arange(4) == 1, -torch.inf)  # noqa: E731
    figure = draw_next_token(LOGITS, NAMES, top_k=1, filters=(removes_the_first, None))
    assert heights(figure)[0][0] == 0


def test_invalid_arguments_are_refused():
    with pytest.raises(InputError, match="temperature is -1"):
        draw_next_token(LOGITS, NAMES, temperature=-1)
    with pytest.raises(InputError, match="4 names"):
        draw_next_token(LOGITS[:2], NAMES)


@pytest.fixture
def explorer():
    tokenizer = TextTokenizer.train("a dog runs\na cat runs\n" * 10, 10)
    torch.manual_seed(0)
    model = LanguageModel(len(tokenizer), d_model=8, n_heads=2, n_layers=1, d_ff=8, max_length=6).train()
    explorer = explore_next_token(model, tokenizer, "a dog")
    explorer.model = model
    return explorer


@pytest.mark.parametrize("text", ["", "a cat runs and runs and runs"], ids=["empty", "long"])
def test_a_text_of_any_length_is_drawn_without_changing_the_mode_of_the_model(explorer, text):
    before = explorer.picture.value
    explorer.controls["text"].value = text
    assert "<img alt=" in explorer.picture.value
    assert explorer.picture.value != before
    assert explorer.model.training


def test_the_buttons_write_on(explorer):
    one, ten = explorer.children[2].children
    explorer.controls["top_k"].value = 1
    before = explorer.controls["text"].value
    one.click()
    after = explorer.controls["text"].value
    assert after != before
    ten.click()
    assert explorer.controls["text"].value != after
