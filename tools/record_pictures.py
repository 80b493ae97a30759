"""Take screenshots of the course in use, with a real JupyterLab in Chromium and a real grading run.

    python tools/record_pictures.py                 # all of them, into course/pictures/
    python tools/record_pictures.py animation       # one of: animation, mistake, explorer, grading

Like the browser tests, this requires Chromium and Playwright. The grader also requires bubblewrap.
"""

import io
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from PIL import Image
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "tests" / "exercises")]

from attempt_files import read_attempts  # noqa: E402 (what students write)

from conftest import QUIET, OpenNotebook, serving  # noqa: E402 (the browser tests' JupyterLab)

STUDENTS = [
    "Amara Okafor", "Ben Castillo", "Chiara Lombardi", "Daniel Weber", "Elif Demir", "Farid Haddad",
    "Grace Nolan", "Inês Carvalho", "Jonas Berg", "Kavya Iyer", "Lucie Moreau", "Mateo Rojas",
]  # fmt: skip
PICTURES = ROOT / "course" / "pictures"
START = '''def softmax(scores):
    """Turn scores into weights that add up to 1 along the last axis."""
'''
WRONG = (
    START
    + """    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()"""
)
HALF_RIGHT = WRONG.replace(".max()", ".max(axis=-1, keepdims=True)")
RIGHT = HALF_RIGHT.replace(".sum()", ".sum(axis=-1, keepdims=True)")
ONE_SUM = """def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()"""
WITHOUT_SCALE = """def numpy_attention(query, key, value):
    scores = query @ key.swapaxes(-2, -1)  # (batch, query, key)
    weights = softmax(scores)
    return weights @ value, weights"""
IMPORTS = "attention-4"


def answers(name: str) -> dict[str, str]:
    """Return the course's answers to a notebook's exercises, by cell ID."""
    cells = nbformat.read(ROOT / "solutions" / name, as_version=4).cells
    return {
        cell.id: "\n".join(line for line in cell.source.splitlines() if "### " not in line)
        for cell in cells
        if cell.id.startswith("exercise-") and "BEGIN SOLUTION" in cell.source
    }


class Camera:
    """A notebook that is shown without the rest of JupyterLab, along with its screenshots."""

    def __init__(self, browser, lab, name: str, width: int, height: int, scale: float = 1) -> None:
        page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
        page.set_default_timeout(60_000)
        self.page, self.notebook = page, OpenNotebook(page, lab, name)
        page.evaluate("jupyterapp.commands.execute('application:set-mode', {mode: 'single-document'})")
        page.evaluate("jupyterapp.shell.collapseLeft()")
        for side in ("left", "right"):
            page.evaluate("side => jupyterapp.commands.execute('application:toggle-side-tabbar', {side})", side)
        self.frames: list[tuple[Image.Image, float]] = []

    def scroll(self, cell_id: str, below: int, part: str = ".jp-Cell-inputWrapper") -> None:
        """Scroll so that this part of the cell starts `below` pixels under the notebook's toolbar."""
        self.notebook.show(cell_id)
        self.page.evaluate(
            """([id, below, part]) => {
                const notebook = jupyterapp.shell.currentWidget.content;
                const cell = notebook.widgets.find(cell => cell.model.id === id).node.querySelector(part);
                const scroller = document.querySelector('.jp-WindowedPanel-outer');
                scroller.scrollTop += cell.getBoundingClientRect().top - scroller.getBoundingClientRect().top - below;
            }""",
            [cell_id, below, part],
        )

    def shoot(self) -> Image.Image:
        self.page.wait_for_timeout(600)  # for images and scroll bars to settle
        picture = self.page.locator("#jp-main-content-panel").screenshot(caret="hide")
        return Image.open(io.BytesIO(picture)).convert("RGB")

    def frame(self, seconds: float) -> None:
        self.frames.append((self.shoot(), seconds))


def save(picture: Image.Image, name: str) -> None:
    picture.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(PICTURES / name, optimize=True)


def animation(browser, lab) -> None:
    """Record a wrong softmax, its report, the right softmax, and a heat map at the end of the notebook."""
    camera = Camera(browser, lab, "01_attention.ipynb", 860, 640)
    notebook, exercise = camera.notebook, "exercise-softmax"
    notebook.run(IMPORTS)
    camera.scroll(exercise, 330)
    camera.frame(1.4)

    def write(text: str, seconds: float) -> None:
        notebook.write(exercise, text)
        camera.scroll(exercise, 16)
        camera.frame(seconds)

    def check(seconds: float) -> None:
        notebook.run(exercise)
        notebook.run("check-softmax")
        camera.scroll(exercise, 16)
        camera.frame(seconds)

    write(START, 0.5)
    write(WRONG[: WRONG.rindex("\n")], 0.6)
    write(WRONG, 0.8)
    check(3.2)
    write(HALF_RIGHT, 0.6)
    write(RIGHT, 0.9)
    check(1.5)
    for cell, answer in answers("01_attention.ipynb").items():
        if cell != exercise:
            notebook.write(cell, answer)
            notebook.run(cell)
    head = "exercise-singleheadattention_a-head-set-by-hand-2"
    notebook.run(head)
    camera.scroll(head, 100, ".jp-Cell-outputWrapper")
    camera.frame(2.5)

    pictures, seconds = zip(*camera.frames, strict=True)
    frames = [picture.quantize(256, kmeans=1, dither=Image.Dither.NONE) for picture in pictures]
    duration = [round(1000 * time) for time in seconds]
    frames[0].save(PICTURES / "course.gif", save_all=True, append_images=frames[1:], duration=duration, loop=0)


def mistake(browser, lab) -> None:
    """Record the report on an attention function that leaves out the scale."""
    camera = Camera(browser, lab, "01_attention.ipynb", 880, 688, 1.5)
    notebook = camera.notebook
    notebook.run(IMPORTS)
    for cell, answer in {"exercise-softmax": RIGHT, "exercise-numpy_attention": WITHOUT_SCALE}.items():
        notebook.write(cell, answer)
        notebook.run(cell)
    notebook.run("check-numpy_attention")
    camera.scroll("exercise-numpy_attention", 12)
    save(camera.shoot(), "named_mistake.png")


def explorer(browser, lab) -> None:
    """Record the heat map of notebook 14, with one word selected."""
    camera = Camera(browser, lab, "14_heat_maps.ipynb", 880, 1180, 1.5)
    cell = "three-kinds-of-maps_look-for-yourself-2"
    for setup in ("attention-heat-maps-2", "attention-heat-maps-3"):
        camera.notebook.run(setup)
    output = camera.notebook.run(cell)
    picture = output.locator("img")
    picture.wait_for()
    before = picture.get_attribute("src")
    output.locator(".widget-toggle-buttons button").nth(4).click()  # the fourth word
    expect(picture).not_to_have_attribute("src", before, timeout=60_000)
    camera.scroll(cell, 60)
    save(camera.shoot(), "attention_explorer.png")


def grading(browser, lab) -> None:
    """Record a class summary and one student's feedback page, with made-up names and answers from the tests."""
    folder = lab.folder.parent
    write_class(folder / "submissions")
    (folder / "roster.txt").write_text("\n".join([*STUDENTS, "Hugo Lindqvist"]))
    grade = [sys.executable, "-m", "transformer_lab.cli", "grade", "submissions", "--out", "grades"]
    subprocess.run([*grade, "--roster", "roster.txt"], cwd=folder, check=True)
    for address, name, height in (
        ("summary.html", "summary.png", 1240),
        (f"feedback/{STUDENTS[0]}.html", "feedback.png", 860),
    ):
        page = browser.new_page(viewport={"width": 960, "height": height}, device_scale_factor=1.375)
        page.goto((folder / "grades" / address).as_uri())
        save(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), name)
        page.close()


def write_class(folder: Path) -> None:
    """Write a notebook for each student, with random answers. The first student makes two common mistakes."""
    mistakes = {"exercise-softmax": ONE_SUM, "exercise-numpy_attention": WITHOUT_SCALE}
    chance = random.Random(3)
    for student in STUDENTS:
        notebook = nbformat.read(ROOT / "notebooks" / "01_attention.ipynb", as_version=4)
        for cell in notebook.cells:
            exercise = cell.id.removeprefix("exercise-")
            attempts = [attempt for attempt in read_attempts() if attempt.exercise == exercise]
            if attempts and chance.random() < 0.9:
                is_right = chance.random() < 0.65
                cell.source = chance.choice([one for one in attempts if one.is_right == is_right]).source
            if student == STUDENTS[0]:
                cell.source = mistakes.get(cell.id, cell.source)
        (folder / student).mkdir(parents=True)
        nbformat.write(notebook, folder / student / "01_attention.ipynb")


PARTS = {"animation": animation, "mistake": mistake, "explorer": explorer, "grading": grading}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("jupyterlab", Path(folder) / "notebooks") as lab,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=QUIET)
        for name in sys.argv[1:] or PARTS:
            PARTS[name](browser, lab)
        browser.close()


if __name__ == "__main__":
    main()
