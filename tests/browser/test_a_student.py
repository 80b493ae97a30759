"""Do a student's work in a real JupyterLab, where the course could fail even if all other tests pass."""

import re

WRONG = """
def softmax(scores):
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()
"""
RIGHT = """
def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
"""


def test_a_mistake_is_named_and_a_correct_answer_is_kept(opened, screenshot):
    notebook = opened("01_attention.ipynb")
    notebook.run("attention-4")  # the imports
    notebook.run("exercise-softmax")
    assert "not attempted" in notebook.run("check-softmax").inner_text()
    before = notebook.run("where-you-are-2").inner_text()

    notebook.write("exercise-softmax", WRONG)
    notebook.run("exercise-softmax")
    report = notebook.run("check-softmax").inner_text()
    screenshot(notebook.page, "named_mistake")
    assert "failed" in report
    assert "All rows share one sum" in report

    notebook.write("exercise-softmax", RIGHT)
    notebook.run("exercise-softmax")
    assert "passed" in notebook.run("check-softmax").inner_text()
    screenshot(notebook.page, "passed")
    after = notebook.run("where-you-are-2").inner_text()
    screenshot(notebook.page, "progress")
    assert before != after
    assert (notebook.lab.folder / "mine" / "softmax.py").read_text().count("np.exp") == 1
    assert notebook.page.errors == []


def test_a_report_is_legible_in_the_dark_theme_and_a_small_window(opened, screenshot):
    notebook = opened("01_attention.ipynb")
    page = notebook.page
    notebook.run("attention-4")
    notebook.write("exercise-softmax", WRONG)
    notebook.run("exercise-softmax")
    report = notebook.run("check-softmax")
    assert report.get_by_role("heading").count() >= 2  # screen readers navigate by headings
    lightness = """element => {
        const shine = color => { const [r, g, b] = color.match(/[0-9.]+/g).map(Number); return (r + g + b) / 765; };
        let behind = element, color;
        do { color = getComputedStyle(behind).backgroundColor; behind = behind.parentElement; }
        while (behind && /, 0\\)|transparent/.test(color));
        return [shine(getComputedStyle(element).color), shine(color)];
    }"""
    for theme, width, zoom in (("JupyterLab Dark", 1280, 1.0), ("JupyterLab Light", 800, 1.25)):
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("zoom => { document.body.style.zoom = zoom }", zoom)
        page.wait_for_function("dark => (document.body.dataset.jpThemeLight === 'false') === dark", arg="Dark" in theme)
        report = notebook.show("check-softmax")
        screenshot(page, f"{theme.split()[1].lower()}_{width}")
        assert report.get_by_role("table").count() >= 1
        for cell in report.locator("td, p, h3, h4").all():
            text, background = cell.evaluate(lightness)
            assert abs(text - background) > 0.4, (theme, cell.inner_text())
    assert page.errors == []


def test_the_same_notebook_runs_in_notebook_7(opened, notebook_7, screenshot):
    notebook = opened("01_attention.ipynb", notebook_7)
    at_start = list(notebook.page.errors)  # Notebook 7 requests settings for extensions that it doesn't have
    notebook.run("attention-4")
    notebook.write("exercise-softmax", RIGHT)
    notebook.run("exercise-softmax")
    assert "passed" in notebook.run("check-softmax").inner_text()
    screenshot(notebook.page, "passed")
    assert notebook.page.errors == at_start


def test_moving_the_layer_slider_of_notebook_14_changes_the_picture(opened, screenshot):
    from playwright.sync_api import expect

    notebook = opened("14_heat_maps.ipynb")
    notebook.run("attention-heat-maps-2")
    notebook.run("attention-heat-maps-3")
    output = notebook.run("three-kinds-of-maps_look-for-yourself-2")
    picture = output.locator("img")
    expect(picture).to_have_attribute("alt", re.compile("layer 3"))
    output.get_by_role("slider").first.focus()
    notebook.page.keyboard.press("ArrowLeft")
    expect(picture).to_have_attribute("alt", re.compile("layer 2"), timeout=30_000)
    screenshot(notebook.page, "layer_2")
    assert notebook.page.errors == []
