"""Without these tests, visitors would be the first to find a dead link, a leaked answer, or illegible text."""

import http.server
import json
import re
import shutil
import sys
import threading
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import torch
from bs4 import BeautifulSoup

from transformer_lab import model
from transformer_lab.authoring.site import build_site
from transformer_lab.authoring.site_pages import PLOTTING, Sources, notebook_page, relinked
from transformer_lab.decoding import load_pretrained
from transformer_lab.exercises.catalogue import hints_of, mistakes_of
from transformer_lab.exercises.registry import exercises, notebooks

pytestmark = pytest.mark.costly_setup

ROOT = Path(__file__).resolve().parents[2]
BROWSER_PAGES = ("index", "notebooks/01_attention", "results/README", "field_guide")
LEAST_CONTRAST, LEAST_CONTRAST_LARGE = 4.5, 3.0  # WCAG 2.2, level AA, criterion 1.4.3


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Build the site. Any warning makes the build fail."""
    if not shutil.which("jupyter-book", path=Path(sys.executable).parent):
        pytest.skip("jupyter-book is not installed in this environment: make test installs it")
    return build_site(ROOT, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site) -> dict[str, BeautifulSoup]:
    """Return all pages of the site, by path."""
    found = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    return {str(path.relative_to(site)): BeautifulSoup(path.read_text(encoding="utf-8"), "lxml") for path in found}


@pytest.fixture(scope="module")
def address(site):
    """Serve the site and return the server's address."""
    handler = partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def test_every_internal_link_has_a_target(site, pages):
    ids = {name: {element["id"] for element in page.find_all(id=True)} for name, page in pages.items()}
    dead = []
    for name, page in pages.items():
        for element in page.find_all(["a", "img", "script", "link"]):
            target = element.get("href") or element.get("src") or ""
            parts = urlsplit(target)
            if parts.scheme or not target:
                continue
            path = (site / name).parent / unquote(parts.path) if parts.path else site / name
            if path.is_dir():
                path /= "index.html"
            page_name = path.resolve().relative_to(site.resolve()).as_posix()
            anchored = not parts.fragment or page_name not in ids or unquote(parts.fragment) in ids[page_name]
            if not path.is_file() or not anchored:
                dead.append(f"{name}: {target}")
    assert dead == []


def test_pages_load_nothing_from_other_sites(pages):
    """The site must work offline and must not tell other sites who reads it."""
    loaded = [
        f"{name}: {address}"
        for name, page in pages.items()
        for element in page.find_all(["script", "img", "link", "iframe", "source"])
        if (address := element.get("src") or (element.get("href") if "stylesheet" in element.get("rel", []) else None))
        and urlsplit(address).scheme in ("http", "https")
    ]
    assert loaded == []


def test_every_picture_has_alternative_text(pages):
    silent = []
    for name, page in pages.items():
        for picture in page.find_all("img"):
            link = picture.find_parent("a")
            if not picture.get("alt") and not (link and link.get_text(strip=True)):
                silent.append(f"{name}: {picture.get('src')}")
        for drawing in page.find_all("svg", role="img"):
            if not drawing.get("aria-label"):
                silent.append(f"{name}: {str(drawing)[:80]}")
    assert silent == []


def test_every_notebook_has_a_page_with_buttons_and_pictures(site, pages):
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page = pages[f"notebooks/{path.stem}.html"]
        button = page.select_one(".lab-open a[download]")
        opened = (site / "notebooks" / button["href"]).resolve()
        assert opened.read_bytes() == path.read_bytes()
        assert page.select("img.lab-picture, .lab-explorer"), f"no picture on the page of {path.stem}"


def test_exercises_are_stubs_with_folded_hints_and_a_folded_answer(pages):
    for number, found in notebooks().items():
        name = next(name for name in pages if name.startswith(f"notebooks/{number}_"))
        boxes = pages[name].select(".lab-exercise")
        titles = [box.select_one(".admonition-title code").get_text() for box in boxes]
        assert titles == [exercise.name for exercise in found]
        for exercise, box in zip(found, boxes, strict=True):
            folded = [fold.extract() for fold in box.select("details")]
            assert all(not fold.has_attr("open") for fold in folded)
            assert len(folded) == len(hints_of(exercise)) + 1
            assert "raise NotImplementedError()" in box.get_text()
            answer = folded[-1].get_text()
            assert "raise NotImplementedError()" not in answer
            assert re.search(rf"\b(def|class) {exercise.name}\b", answer)


def test_no_build_markers_are_left(pages):
    for name in [name for name in pages if name.startswith("notebooks/")]:
        text = pages[name].get_text()
        assert "BEGIN SOLUTION" not in text, name
        assert "END SOLUTION" not in text, name
        assert "NBVAL_CHECK_OUTPUT" not in text, name
    for name in ("index.html", "field_guide.html"):
        assert "{{" not in pages[name].get_text(), f"{name} has a gap that was not filled"


def test_plotting_code_is_folded(pages):
    shown = [
        f"{name}: {code.get_text()[:80]}"
        for name, page in pages.items()
        for code in page.select("div.cell_input")
        if PLOTTING.search(code.get_text()) and not code.find_parent("details")
    ]
    assert shown == []


def test_only_the_text_has_headings(pages):
    """If a report's heading were in the table of contents, its link would point to a cell's output."""
    for name, page in pages.items():
        assert not page.select(".cell_output :is(h1, h2, h3, h4, h5, h6)"), name
        assert len(page.select("article h1")) == 1 or name == "search.html", name


def test_the_field_guide_shows_every_mistake_with_its_diff(pages):
    entries = pages["field_guide.html"].select("details.lab-bug")
    known = [f"{exercise.name}-{one.slug}" for exercise in exercises().values() for one in mistakes_of(exercise)]
    assert sorted(entry["id"] for entry in entries) == sorted(known)
    for entry in entries:
        assert entry.select_one("p").get_text(strip=True)
        assert entry.select("pre.lab-diff del, pre.lab-diff ins"), entry["id"]


def test_the_drawing_shows_the_models_translations(pages):
    drawn = json.loads(pages["index.html"].select_one("#lab-weights").string)
    translated = load_pretrained().translate([" ".join(one["source"]).replace(" .", ".") for one in drawn])
    assert [" ".join(one["target"]).replace(" .", ".") for one in drawn] == translated
    for one in drawn:
        assert len(one["weights"]) == len(one["target"])
        assert all(len(row) == len(one["source"]) and min(row) >= 0 and sum(row) <= 1.001 for row in one["weights"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[masks](03_masks.ipynb#a)", "[masks](03_masks.ipynb#a)"),
        ("[the answer](../solutions/03_masks.ipynb)", "[the answer](../notebooks/03_masks.ipynb)"),
        ("[the readme](../README.md)", "the readme"),
        ("`[the readme](../README.md)`", "`[the readme](../README.md)`"),
        ("[a site](https://example.org/README.md)", "[a site](https://example.org/README.md)"),
    ],
)
def test_links_to_files_without_a_page_become_text(text, expected, monkeypatch, tmp_path):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    sources = Sources(tmp_path, tmp_path)
    assert relinked(text, "notebooks/01_attention.ipynb", {"notebooks/03_masks.ipynb"}, sources) == expected


def test_links_to_other_files_point_to_the_publishing_repository(monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_REPOSITORY", "ada/lab")
    found = relinked("[the readme](../README.md)", "notebooks/01_attention.ipynb", set(), Sources(tmp_path, tmp_path))
    assert found == "[the readme](https://github.com/ada/lab/blob/main/README.md)"


def test_a_page_shows_what_to_install_in_colab(monkeypatch, tmp_path):
    """Colab does not have the package. Without this line, the first cell of the notebook would fail."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Masks\n\nHide the future.")])
    sources = Sources(tmp_path, tmp_path)
    monkeypatch.setenv("GITHUB_REPOSITORY", "ada/lab")
    text = notebook_page("03_masks", notebook, notebook, [], sources).cells[0].source
    assert "https://colab.research.google.com/github/ada/lab/blob/main/notebooks/03_masks.ipynb" in text
    assert "<code>%pip install --quiet https://github.com/ada/lab/archive/refs/heads/main.zip</code>" in text
    monkeypatch.delenv("GITHUB_REPOSITORY")  # without this variable, the address for Colab is unknown
    assert "Colab" not in notebook_page("03_masks", notebook, notebook, [], sources).cells[0].source


CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, address, scheme):
    weak = []
    with browser.new_context(color_scheme=scheme, reduced_motion="reduce") as context:
        for name in BROWSER_PAGES:
            page = context.new_page()
            page.goto(f"{address}/{name}.html")
            page.wait_for_load_state("networkidle")
            found = page.evaluate(CONTRAST, [LEAST_CONTRAST, LEAST_CONTRAST_LARGE])
            assert found["texts"] > 100, f"{name}: found no text on the page"
            weak += [f"{name}: {one}" for one in found["weak"]]
    assert weak == []


def test_pages_fit_a_phone_and_raise_no_error(browser, address):
    wide, errors = [], []
    with browser.new_context(viewport={"width": 400, "height": 800}) as context:
        for name in (*BROWSER_PAGES, "notebooks/03_masks", "notebooks/04_embeddings", "CLASSROOM"):
            page = context.new_page()
            page.on("pageerror", lambda error, name=name: errors.append(f"{name}: {error}"))
            page.goto(f"{address}/{name}.html")
            if page.evaluate("document.documentElement.scrollWidth") > 400:
                wide.append(name)
    assert (wide, errors) == ([], [])


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d+", text)]


def test_the_plane_moves_and_matches_the_package(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/notebooks/01_attention.html")
    explorer = page.locator('[data-explorer="plane"]')
    tips = explorer.locator(".handle")
    tips.nth(3).press("ArrowUp")

    def state() -> tuple[list[list[float]], list[float]]:
        vectors = [numbers(tips.nth(index).get_attribute("data-exact")) for index in range(4)]
        return vectors, numbers(" ".join(explorer.locator("text.weight").all_text_contents()))

    before, _ = state()
    box = tips.first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 90, y + 30, steps=3)
    page.mouse.up()
    after, shown = state()
    assert after[0] != before[0]
    assert after[1:] == before[1:]
    query, keys = torch.tensor([after[:1]]), torch.tensor([after[1:]])
    _, weights = model.scaled_dot_product_attention(query, keys, keys)
    assert shown == pytest.approx(weights[0, 0].tolist(), abs=0.006)  # the page shows two decimals
    page.close()


def test_the_masks_on_the_page_match_the_package(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/notebooks/03_masks.html")
    explorer = page.locator('[data-explorer="masks"]')
    explorer.locator("input[type=text]").first.fill("one two three")
    explorer.locator("input[type=text]").nth(1).fill("one")
    shown = explorer.evaluate("box => [...box.querySelectorAll('tbody td')].map(cell => cell.className === 'seen')")
    expected = model.target_mask(torch.tensor([[1, 1, 1], [1, 0, 0]]), 0)  # (batch, 1, length, length)
    assert shown == expected.flatten().tolist()
    page.close()


def test_the_curve_of_positions_matches_the_package(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/notebooks/04_embeddings.html")
    explorer = page.locator('[data-explorer="positions"]')
    explorer.locator("input").nth(2).fill("7")
    points = [numbers(point) for point in explorer.locator("polyline").get_attribute("data-exact").split(" ")]
    table = model.sinusoidal_encoding(60, 32)
    assert [point[0] for point in points] == pytest.approx((table @ table[7] / 16).tolist(), abs=1e-4)
    page.close()


def test_searching_the_field_guide(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/field_guide.html#softmax-one_sum")
    assert page.locator("#softmax-one_sum").get_attribute("open") is not None
    page.locator("#lab-filter-text").fill("softmax overflow")
    assert page.locator("#softmax-overflow").is_visible()
    assert not page.locator("#softmax-one_sum").is_visible()
    page.locator("#lab-filter-text").fill("")
    assert page.locator("#softmax-one_sum").is_visible()
    page.close()
