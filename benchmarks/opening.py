"""Measure the time from `make course`, once setup is done, until a browser shows the tour's first picture.

    python benchmarks/opening.py [--runs N] [--browser PATH]

Runs `make course` in the project folder, as a reader would, and opens the tour in headless Chromium with an empty
profile. The clock stops when the tour's first picture is on the page. The goal is 10 seconds. Prints the time of each
run and writes the times to `results/opening.json`.
"""

import argparse
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from machine import RESULTS, ROOT, run_script, write_result

from transformer_lab.errors import InputError

GOAL_SECONDS = 10
PICTURE = "[...document.querySelectorAll('.jp-OutputArea img')].some(image => image.complete && image.naturalWidth > 0)"


def open_course(browser: Any) -> float:
    """Return the seconds from the start of `make course` until the browser shows a picture."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    address = f"http://127.0.0.1:{port}"
    arguments = f"--no-browser --allow-root --port {port} --ServerApp.port_retries=0 --IdentityProvider.token={token}"
    start = time.perf_counter()
    course = subprocess.Popen(
        ["make", "--no-print-directory", "course", f"ARGS={arguments}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that JupyterLab and its kernel end with it
    )
    try:
        while True:
            try:
                urllib.request.urlopen(f"{address}/api?token={token}", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                if course.poll() is not None:
                    raise InputError("`make course` ended before JupyterLab responded: run it to see why") from None
                time.sleep(0.05)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/lab/tree/00_tour.ipynb?token={token}")
        page.wait_for_function(PICTURE)
        seconds = time.perf_counter() - start
        page.close()
        return seconds
    finally:
        os.killpg(course.pid, signal.SIGTERM)
        course.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="how often to open the course (default: 5)")
    parser.add_argument("--browser", default=shutil.which("chromium"), metavar="PATH", help="path of Chromium")
    arguments = parser.parse_args()
    if arguments.browser is None:
        raise InputError("no `chromium` on the PATH: install it, or pass its path with --browser")
    from playwright.sync_api import sync_playwright

    seconds = []
    with sync_playwright() as playwright:
        for run in range(arguments.runs):
            browser = playwright.chromium.launch(
                executable_path=arguments.browser,
                args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"],
            )
            seconds.append(open_course(browser))
            browser.close()
            print(f"run {run + 1}: {seconds[-1]:.1f} s")
    result = {
        "what": "seconds from `make course` until the browser shows the tour's first picture",
        "goal": GOAL_SECONDS,
        "seconds": [round(each, 2) for each in seconds],
        "median": round(statistics.median(seconds), 2),
    }
    write_result(RESULTS / "opening.json", result)
    print(f"median of {arguments.runs}: {result['median']:.1f} s; goal: {GOAL_SECONDS} s")


if __name__ == "__main__":
    run_script(main)
