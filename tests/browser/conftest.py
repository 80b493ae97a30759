"""Fixtures that start a real JupyterLab on this machine and open it in a real browser.

The tests save a screenshot of every page in `build/screenshots/`. Look at the screenshots after a run.
"""

import contextlib
import functools
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer_lab.my_course import jupyterlab_environment

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
TOKEN = "a-token-of-the-tests"
START_SECONDS = 90
QUIET = [
    "--no-sandbox",  # Chromium's sandbox does not start as root, and these pages are trusted
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium_path() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on the PATH: apt-get install chromium")


class Lab:
    """A running JupyterLab or Notebook server: its address, the folder it serves, and its log."""

    def __init__(self, folder: Path, application: str, environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.application = application
        self.folder, self.log = folder, folder.parent / f"{application}.log"
        arguments = [
            "--no-browser",
            "--allow-root",
            "--expose-app-in-browser",
            f"--ServerApp.root_dir={folder}",
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={TOKEN}",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", application, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,  # so that stopping the server also stops its kernels
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api?token={TOKEN}", timeout=2).close()
                return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"{application} did not start:\n{self.log.read_text()}") from None
                time.sleep(0.2)

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}?token={TOKEN}"

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def environment_of(home: Path, folder: Path) -> dict[str, str]:
    """Return the environment variables that `transformer-lab open` passes to JupyterLab for a new reader."""
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "TRANSFORMER_LAB"))}
    return kept | {
        "HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    } | jupyterlab_environment(folder, {})


@contextlib.contextmanager
def serving(application: str, folder: Path) -> Iterator[Lab]:
    """Serve a copy of `notebooks/` with this application for the duration of the `with` block."""
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns("mine", ".ipynb_checkpoints"))
    running = Lab(folder, application, environment_of(folder.parent / "home", folder))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def lab(tmp_path_factory, chromium_path):
    with serving("jupyterlab", tmp_path_factory.mktemp("lab") / "notebooks") as running:
        yield running


@pytest.fixture(scope="module")
def notebook_7(tmp_path_factory, chromium_path):
    with serving("notebook", tmp_path_factory.mktemp("notebook7") / "notebooks") as running:
        yield running


@pytest.fixture(scope="module")  # an open browser keeps an asyncio event loop running in every test
def browser(chromium_path):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=QUIET)
        yield browser
        browser.close()


@contextlib.contextmanager
def new_page(browser) -> Iterator:
    """Open a page and collect its console errors in `page.errors`."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(45_000)  # starting a kernel takes a while on a busy machine
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.errors = errors
    yield page
    page.close()


@pytest.fixture
def page(browser):
    with new_page(browser) as page:
        yield page


@pytest.fixture
def screenshot(request):
    """Save a picture of the page: `screenshot(page, "name")`."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=SCREENSHOTS / f"{request.node.name}_{name}.png")


class OpenNotebook:
    """A notebook open in JupyterLab, with a reader's actions as methods. Cells are identified by their IDs."""

    def __init__(self, page, lab: Lab, name: str) -> None:
        self.page, self.lab = page, lab
        # a separate workspace in which no other notebook is open
        place = f"lab/workspaces/{uuid.uuid4().hex}/tree" if lab.application == "jupyterlab" else "notebooks"
        page.goto(lab.address(f"{place}/{name}"))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.content?.activeCell")
        page.wait_for_function("jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'")

    def _cell(self, cell_id: str):
        """Scroll the cell into view, activate it, and return it."""
        number = self.page.evaluate(
            """async id => {
                const notebook = jupyterapp.shell.currentWidget.content;
                const number = notebook.widgets.findIndex(cell => cell.model.id === id);
                if (number < 0) throw new Error(`no cell ${id}`);
                notebook.activeCellIndex = number;
                await notebook.scrollToItem(number);
                return number;
            }""",
            cell_id,
        )
        cell = self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{number}"]')
        cell.scroll_into_view_if_needed()
        return cell

    def show(self, cell_id: str):
        """Scroll to the cell and return its output."""
        return self._cell(cell_id).locator(".jp-Cell-outputArea")

    def write(self, cell_id: str, text: str) -> None:
        """Replace the content of the cell with `text`, as a reader would do by pasting."""
        self._cell(cell_id).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)

    def run(self, cell_id: str):
        """Run the cell with Ctrl+Enter, wait until the kernel is idle, and return the cell's output."""
        cell = self._cell(cell_id)
        cell.locator(".cm-content").first.click()
        before = self._count(cell_id)
        self.page.keyboard.press("Control+Enter")
        self.wait_for(cell_id, before)
        return cell.locator(".jp-Cell-outputArea")

    def wait_for(self, cell_id: str, before: int | None = None) -> None:
        """Wait until the cell's execution count is no longer `before` and the kernel is idle."""
        self.page.wait_for_function(
            """([id, before]) => {
                const panel = jupyterapp.shell.currentWidget;
                const cell = panel.content.widgets.find(cell => cell.model.id === id);
                return cell.model.executionCount && cell.model.executionCount !== before
                    && panel.sessionContext.session.kernel.status === 'idle';
            }""",
            arg=[cell_id, before],
        )

    def _count(self, cell_id: str) -> int | None:
        return self.page.evaluate(
            """id => jupyterapp.shell.currentWidget.content.widgets.find(cell => cell.model.id === id)
                    .model.executionCount""",
            cell_id,
        )


@pytest.fixture
def opened(page, lab):
    """Return a function that opens a notebook in JupyterLab or on a given server: `opened("01_attention.ipynb")`."""
    return lambda name, server=lab: OpenNotebook(page, server, name)


@pytest.fixture(scope="module")
def opened_for_all(browser, lab):
    """Return a function like `opened`. All tests in a file share one page, because kernels take seconds to start."""
    with new_page(browser) as page:
        yield lambda name: OpenNotebook(page, lab, name)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="session")
def translator_address(tmp_path_factory):
    """Start a web server for the translator page and return its address."""
    from transformer_lab.decoding.page_export import write_translator

    folder = tmp_path_factory.mktemp("translator")
    write_translator(folder)
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
