"""These tests download Multi30k from a local server that counts its responses and can misbehave on request."""

import gzip
import hashlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from transformer_lab.data import corpora, load_corpus

SPLITS = ("train", "val", "test_2016_flickr")
FILES = {
    f"{split}.{language}.gz": gzip.compress(f"{split} {language} eins\n{split} {language} zwei\n".encode() * 20)
    for split in SPLITS
    for language in ("de", "en", "fr")
}
NEEDED = {name for name in FILES if ".fr." not in name}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.requests.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[name]
        self.send_response(200)
        if self.server.announces_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if name in self.server.truncated else content)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.requests = dict(FILES), []
        self.truncated = set()  # files whose connection breaks halfway
        self.announces_length = True
        self.url = f"http://127.0.0.1:{self.server_port}/task1/raw/"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self):
        if self.thread.is_alive():
            self.shutdown()
            self.thread.join()
            self.server_close()


@pytest.fixture
def server(monkeypatch, tmp_path: Path):
    server = Server()
    monkeypatch.delenv("TRANSFORMER_LAB_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(corpora, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(corpora, "MULTI30K_URL", server.url)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(corpora, "MULTI30K_SHA256", sums)
    yield server
    server.stop()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "multi30k"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_only_the_first_call_needs_a_connection(server: Server, cache: Path):
    corpus = load_corpus("multi30k")
    assert corpus.train[0] == ("train de eins", "train en eins")
    assert list(corpus.tests) == ["test_2016_flickr"]
    assert names(cache) == set(server.requests) == NEEDED
    server.requests.clear()
    assert load_corpus("multi30k", "en", "fr").train[0] == ("train en eins", "train fr eins")
    assert set(server.requests) == FILES.keys() - NEEDED
    server.stop()
    assert load_corpus("multi30k") == corpus


def test_a_damaged_download_is_deleted_and_named(server: Server, cache: Path, refusal):
    server.files["val.de.gz"] = b"<html>blocked by the school's filter</html>"
    message = refusal("multi30k")
    assert message.startswith(f"{server.url}val.de.gz is damaged (its SHA-256 differs) and was deleted: try again")
    assert "captions" in message
    assert names(cache) <= FILES.keys() - {"val.de.gz"}, "neither the damaged file nor a temporary one may remain"
    server.files = FILES
    assert len(load_corpus("multi30k").validation) == 40


def test_a_file_damaged_in_the_cache_is_never_used(server: Server, cache: Path, refusal):
    corpus = load_corpus("multi30k")
    server.requests.clear()
    (cache / "train.en.gz").write_bytes(FILES["train.en.gz"][:20])
    assert load_corpus("multi30k") == corpus
    assert server.requests == ["train.en.gz"]
    server.stop()
    (cache / "train.en.gz").write_bytes(FILES["train.en.gz"][:20])
    assert "train.en.gz cannot be downloaded" in refusal("multi30k")


@pytest.mark.parametrize("announces_length", [True, False])
def test_a_broken_connection_leaves_no_incomplete_file(server: Server, cache: Path, announces_length: bool, refusal):
    """Without a content length, a broken connection looks like the end of the file, and only the SHA-256 reveals it."""
    server.truncated, server.announces_length = {"train.en.gz"}, announces_length
    message = refusal("multi30k")
    assert message.startswith(f"{server.url}train.en.gz ")
    assert "captions" in message
    assert names(cache) == {"train.de.gz"}
    server.truncated = set()
    assert len(load_corpus("multi30k").train) == 40
    assert server.requests.count("train.de.gz") == 1, "complete files are kept"


@pytest.mark.parametrize("reason", ["HTTPError", "ConnectionError"])
def test_a_failed_download_names_the_file_and_an_alternative(server: Server, cache: Path, reason: str, refusal):
    server.files = {}
    if reason == "ConnectionError":
        server.stop()
    message = refusal("multi30k")
    assert message.startswith(f"{server.url}train.de.gz cannot be downloaded ({reason})")
    assert f"put train.de.gz into {cache} yourself" in message
    assert "the corpus captions" in message
    assert names(cache) == set()
    # The message advises putting the files there by hand.
    cache.mkdir(exist_ok=True)
    for name in NEEDED:
        (cache / name).write_bytes(FILES[name])
    server.stop()
    assert len(load_corpus("multi30k").train) == 40


def test_a_server_without_pooch_is_told_what_to_do(server: Server, monkeypatch, refusal):
    monkeypatch.setitem(sys.modules, "pooch", None)
    message = refusal("multi30k")
    assert message.startswith("multi30k cannot be downloaded without pooch")
    assert "TRANSFORMER_LAB_DATA" in message
