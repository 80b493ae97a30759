"""Measure how fast the translator page is in Chromium, both on a first visit and when translating test2016.

    python benchmarks/translator_page.py [--data-dir FOLDER] [--rounds 5]

The goals: the first translation within 2 seconds after the page loads, less than 12 MB for a first visit, and the same
greedy tokens as Python for all 1,000 sentences. Prints the figures and writes them to `results/translator_page.json`.
"""

import argparse
import functools
import gzip
import http.server
import json
import os
import shutil
import statistics
import tempfile
import threading
from pathlib import Path

from machine import RESULTS, run_script, timed, write_result
from playwright.sync_api import sync_playwright

from transformer_lab.data import load_corpus
from transformer_lab.decoding import load_pretrained
from transformer_lab.decoding.page_export import export_page, write_translator

GOAL = {"seconds_from_load_to_first_translation": 2.0, "first_visit_mb": 12.0, "same_of_test2016": 1000}
WRITING_SECONDS = 1.2  # in translator.js
FIRST_VISIT = """
() => new Promise(resolve => {
    const ready = () => resolve({ load: window.loadedAt, translated: window.translatedAt });
    const wait = () => window.translatedAt && window.loadedAt ? ready() : setTimeout(wait, 10);
    wait();
})
"""
LISTEN = """
addEventListener("load", () => { window.loadedAt = performance.now(); });
addEventListener("translated", () => { window.translatedAt ??= performance.now(); });
"""
TRANSLATE = """
async sentences => {
    const { loadModel } = await import(new URL("transformer.js", location.href));
    const get = name => fetch(new URL(name, location.href));
    const { model, tokenizer } = loadModel(await (await get("config.json")).json(),
        await (await get("tokenizer.json")).json(), await (await get("weights.safetensors")).arrayBuffer());
    const start = performance.now();
    const tokens = sentences.map(sentence =>
        [...model.translate(tokenizer.encodeSource(sentence))].map(({ token }) => token));
    return { tokens, seconds: (performance.now() - start) / 1000 };
}
"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="folder with Multi30k; downloaded if omitted")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    load = os.getloadavg()[0]
    sentences = [german for german, _ in load_corpus("multi30k", data_dir=arguments.data_dir).test]
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary) / "page"
        write_translator(folder)
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        compressed = sum(len(gzip.compress(path.read_bytes())) for path in folder.iterdir())
        export_page(load_pretrained(), Path(temporary) / "one.html")
        single = (Path(temporary) / "one.html").stat().st_size

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        visits = []
        for _ in range(arguments.rounds):
            context = browser.new_context()  # nothing is cached
            context.add_init_script(LISTEN)
            page = context.new_page()
            page.goto(address)
            visits.append(page.evaluate(FIRST_VISIT))
            context.close()
        page = browser.new_page()
        page.goto(address + "still.svg")
        found = page.evaluate(TRANSLATE, sentences)
        version = browser.version
        browser.close()
        server.shutdown()

    python_seconds, expected = timed(lambda: load_pretrained().search(sentences, 1, 0.0, None))
    generated = [ids[:-1] if ids[-1] == 2 else ids for ids in found["tokens"]]
    result = {
        "what": "the translator page: size and time of a first visit, and greedy decoding of test2016",
        "goal": GOAL,
        "bytes": files,
        "first_visit_mb": round(sum(files.values()) / 1e6, 2),
        "first_visit_mb_compressed": round(compressed / 1e6, 2),
        "exported_page_mb": round(single / 1e6, 2),
        "seconds_from_load_to_first_translation": round(
            statistics.median(visit["translated"] - visit["load"] for visit in visits) / 1000, 2
        ),
        "seconds_from_navigation_to_first_translation": round(
            statistics.median(visit["translated"] for visit in visits) / 1000, 2
        ),
        "seconds_of_animation_in_both": WRITING_SECONDS,
        "milliseconds_per_sentence": round(1000 * found["seconds"] / len(sentences), 1),
        "seconds_test2016_in_python": round(python_seconds, 1),
        "same_of_test2016": sum(one == other for one, other in zip(generated, expected, strict=True)),
        "rounds": arguments.rounds,
        "processes_waiting_for_a_core": round(load, 1),
        "chromium": version,
    }
    write_result(RESULTS / "translator_page.json", result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    run_script(main)
