"""JupyterLab, as started by `transformer-lab open`, must show the course without anything that distracts a learner."""

import statistics

import nbformat
import pytest

from transformer_lab.exercises import exercises

# The lengths of all lines of text in the notebook's Markdown, except for the last line of each paragraph.
LINE_LENGTHS = """
() => [...document.querySelectorAll(".jp-Notebook .jp-RenderedMarkdown p")].flatMap(paragraph => {
    const texts = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT), range = document.createRange();
    const lengths = [];
    let left = Infinity;
    for (let text; text = texts.nextNode();) {
        for (let start = 0; start < text.length; start++) {
            range.setStart(text, start);
            range.setEnd(text, start + 1);
            const [box] = range.getClientRects();
            if (box?.width) {
                box.left < left ? lengths.push(1) : lengths[lengths.length - 1]++;
                left = box.left;
            }
        }
    }
    return lengths.slice(0, -1);
})
"""
# All text on a page, including its menus and its command palette.
NAMES = """
() => [
    ...[...document.querySelectorAll("body :not(script)")].flatMap(element =>
        [...element.attributes].map(({ value }) => value)),
    ...document.body.innerText.split("\\n"),
    ...jupyterapp.commands.listCommands().filter(command => jupyterapp.commands.isVisible(command)),
]
"""


@pytest.fixture
def first_start(page, lab):
    """Open the page that a learner sees first, and record the addresses it requests."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto(lab.address("lab/tree/00_tour.ipynb"))
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'")
    page.locator(".jp-Notebook .jp-MarkdownCell h2").first.wait_for()
    return page, asked


def test_the_table_of_contents_is_shown_and_nothing_distracts(first_start, lab, screenshot):
    page, asked = first_start
    contents = page.locator(".jp-TableOfContents")
    contents.get_by_text("What you will build").first.wait_for()
    screenshot(page, "tour")
    assert page.locator(".jp-FileBrowser").is_hidden()
    assert page.locator(".Toastify__toast").count() == 0
    said = page.evaluate(NAMES)
    for distraction in ("nbgrader", "debugger", "extensionmanager", "extension manager", "announcement", "news"):
        assert [name for name in said if distraction in name.lower()] == []
    assert [address for address in asked if not address.startswith((f"http://127.0.0.1:{lab.port}/", "data:"))] == []
    assert page.errors == []


def test_lines_of_text_have_about_80_characters(first_start):
    page = first_start[0]
    page.wait_for_function(f"({LINE_LENGTHS.strip()})().length > 20")  # cells are rendered one after another
    lengths = page.evaluate(LINE_LENGTHS)
    assert 75 <= statistics.median(lengths) <= 85
    assert max(lengths) <= 100


# The report up to the smallest failing input, and the part of the window in which the notebook is visible.
DIAGNOSIS = """
id => new Promise(answer => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => {
    const cell = jupyterapp.shell.currentWidget.content.widgets.find(cell => cell.model.id === id);
    const report = cell.node.querySelector(".transformer-lab-report");
    const page = report.closest(".jp-WindowedPanel-outer").getBoundingClientRect();
    const parts = [...report.children], headings = parts.filter(part => part.tagName === "H5");
    const said = parts.slice(0, headings.length > 1 ? parts.indexOf(headings[1]) : 3);
    answer({
        text: said.map(part => part.innerText).join("\\n"),
        above: said[0].getBoundingClientRect().top - page.top,
        below: page.bottom - said.at(-1).getBoundingClientRect().bottom,
    });
}))))
"""


REPORTS = """
from transformer_lab.exercises import exercises
from transformer_lab.exercises.catalogue import mistakes_of
from transformer_lab.exercises.report import CheckResult, Code, Heading, Report

def longest_report(name):
    says = sorted((mistake.says for mistake in mistakes_of(exercises()[name])), key=len)[-2:]
    blocks = [Heading("What happened"), "Your results are those of either of these mistakes.", *says]
    blocks += [Heading("The smallest input that fails"), Code("a row of numbers\\n" * 30)]
    return Report(name, "failed", checks=(CheckResult("a check", "failed"),), blocks=tuple(blocks))
"""


def test_a_diagnosis_is_visible_after_its_check_has_run(lab, opened, screenshot):
    """Run the two longest diagnoses of every exercise in a small window, using Shift+Enter to run the cells."""
    cells = [nbformat.v4.new_code_cell(REPORTS, id="reports")]
    for number, name in enumerate(exercises()):
        text = nbformat.v4.new_markdown_cell("Text that says what to write. " * (5 * number % 70))  # of various lengths
        cells += [text, nbformat.v4.new_code_cell(f"longest_report({name!r})", id=name)]
    kernel = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), lab.folder / "reports.ipynb")
    notebook = opened("reports.ipynb")
    page = notebook.page
    page.set_viewport_size({"width": 1024, "height": 768})
    page.evaluate("jupyterapp.commands.execute('toc:show-panel')")
    notebook.run("reports")
    page.keyboard.press("Shift+Enter")
    hidden = {}
    for name in exercises():
        page.keyboard.press("Shift+Enter")  # moves past the Markdown cell
        page.keyboard.press("Shift+Enter")
        notebook.wait_for(name)
        seen = page.evaluate(DIAGNOSIS, name)
        assert "What happened" in seen["text"], name
        if min(seen["above"], seen["below"]) < 0:
            hidden[name] = seen
    screenshot(page, "last")
    assert hidden == {}
    assert page.errors == []
    assert "without encryption" not in lab.log.read_text(errors="replace")  # by default, kernels print a warning
