"""Open each explorer in a real JupyterLab and move its controls. Those that work in Python can still fail there."""

import re

import nbformat
import pytest

from transformer_lab import plots

IMPORTS = """
from collections import Counter

from transformer_lab.data import learn_bpe
from transformer_lab.decoding import load_pretrained
from transformer_lab.electives.language_model import LanguageModel
from transformer_lab.electives.text_tokenizer import TextTokenizer
from transformer_lab.plots import *

translator = load_pretrained()
sentence = "Ein brauner Hund rennt über die grüne Wiese."
pairs = [(sentence, "A brown dog runs across the green meadow.")] * 3
counts = {
    "German": Counter("ein hund rennt und ein hund spielt".split()), "English": Counter("a dog runs and plays".split())
}
merges = learn_bpe(counts["German"] + counts["English"], 20)
letters = TextTokenizer.train("a dog runs and plays\\n" * 10)
language_model = LanguageModel(len(letters), d_model=8, n_heads=2, n_layers=1, d_ff=8)


def run(on_log):
    import time
    for number in range(1, 2000):
        on_log({"kind": "step", "step": number, "epoch": 1, "loss": 5 / number, "rate": 1e-3, "gradient_norm": 1.0,
                "tokens_per_second": 100.0, "seconds": float(number)})
        time.sleep(0.02)
"""
CALLS = {
    "explore_attention": "explore_attention(translator, sentence)",
    "explore_beam": "explore_beam(translator, sentence)",
    "explore_byte_pairs": 'explore_byte_pairs(merges, {"German": "ein hund", "English": "a dog"}, counts)',
    "explore_heads": "explore_heads(translator, sentence, pairs)",
    "explore_label_smoothing": "explore_label_smoothing()",
    "explore_masks": "explore_masks()",
    "explore_next_token": 'explore_next_token(language_model, letters, "a dog")',
    "explore_positions": "explore_positions()",
    "explore_scores": "explore_scores()",
    "explore_training": "explore_training(run, seconds=0.5)",
    "explore_warmup": "explore_warmup()",
}


@pytest.fixture(scope="module")
def notebook(lab, opened_for_all):
    """Open a notebook with a cell for each explorer, shared by all tests."""
    cells = [nbformat.v4.new_code_cell(source, id=name) for name, source in ({"imports": IMPORTS} | CALLS).items()]
    kernel = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), lab.folder / "explorers.ipynb")
    notebook = opened_for_all("explorers.ipynb")
    notebook.run("imports")
    return notebook


def test_every_explorer_is_tested():
    """This test must fail if a new explorer is not added to these tests."""
    assert {name for name in plots.__all__ if name.startswith("explore_")} == set(CALLS)


def focus_on_first_control(output):
    output.get_by_role("slider").or_(output.get_by_role("checkbox")).first.focus()


@pytest.mark.parametrize("name", CALLS)
def test_moving_a_control_changes_the_picture(notebook, screenshot, name):
    from playwright.sync_api import expect

    output = notebook.run(name)
    picture = output.locator("img").first
    picture.wait_for()
    screenshot(notebook.page, "before")
    before = picture.get_attribute("src")
    if name == "explore_heads":
        output.get_by_role("button", name="3").last.click()
    elif name != "explore_training":  # that explorer is animated
        focus_on_first_control(output)
        keys = {"explore_masks": "Space", "explore_byte_pairs": "ArrowRight"}
        notebook.page.keyboard.press(keys.get(name, "ArrowLeft"))
    expect(picture).not_to_have_attribute("src", before, timeout=30_000)
    screenshot(notebook.page, "after")
    assert picture.get_attribute("alt")
    if name == "explore_training":
        output.get_by_role("button", name="Stop").click()  # otherwise training would continue during other tests
    assert notebook.page.errors == []
    assert not re.search(r"Traceback|Error", notebook.lab.log.read_text())


def test_the_button_pauses_training(notebook, screenshot):
    from playwright.sync_api import expect

    output = notebook.run("explore_training")
    output.get_by_role("button", name="Pause").click()
    expect(output.get_by_role("status")).to_contain_text("paused")
    output.get_by_role("button", name="Continue").click()
    expect(output.get_by_role("status")).to_contain_text("loss")
    output.get_by_role("button", name="Stop").click()
    expect(output.get_by_role("status")).to_contain_text("stopped")
    screenshot(notebook.page, "stopped")
    assert notebook.page.errors == []


def test_the_last_picture_remains_without_a_kernel(notebook, screenshot):
    """Run this test last, because it shuts down the kernel that all tests share."""
    output = notebook.run("explore_masks")
    picture = output.locator("img").first
    before = picture.get_attribute("src")
    notebook.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    focus_on_first_control(output)
    notebook.page.keyboard.press("Space")
    notebook.page.wait_for_function("!jupyterapp.shell.currentWidget.sessionContext.session?.kernel")
    assert picture.get_attribute("src") == before
    screenshot(notebook.page, "no_kernel")
    # a console message from ipywidgets isn't a page error
    assert [error for error in notebook.page.errors if not error.startswith("Could not send widget sync")] == []
