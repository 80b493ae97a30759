"""Multi30k comes from a server on this machine, which counts its answers and misbehaves on request."""

import gzip
import hashlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from transformer_lab.data import corpora, load_corpus
from transformer_lab.errors import InputError

SPLITS = ("train", "val", "test_2016_flickr")
FILES = {
    f"{split}.{language}.gz": gzip.compress(f"{split} {language} eins\n{split} {language} zwei\n".encode() * 20)
    for split in SPLITS
    for language in ("de", "en", "fr")
}


class Server:
    """`files` is what is served; `asked` what was asked for; `cut` names files whose connection breaks half-way."""

    def __init__(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rpartition("/")[2]
                server.asked.append(name)
                if name not in server.files:
                    self.send_error(404)
                    return
                content = server.files[name]
                self.send_response(200)
                if server.announce_length:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if name in server.cut else content)

            def log_message(self, *_):
                pass

        self.files, self.asked, self.cut, self.announce_length = dict(FILES), [], set(), True
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/task1/raw/"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self):
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()


@pytest.fixture
def server(monkeypatch, tmp_path: Path):
    server = Server()
    monkeypatch.delenv("TRANSFORMER_LAB_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(corpora, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(corpora, "MULTI30K_URL", server.url)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(corpora, "MULTI30K_SHA256", sums)
    yield server
    server.stop()


@pytest.fixture
def cache(server: Server, tmp_path: Path) -> Path:
    return tmp_path / "cache" / "multi30k"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def refused() -> str:
    with pytest.raises(InputError) as raised:
        load_corpus("multi30k")
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_first_call_downloads_what_is_needed_and_the_second_needs_no_connection(server: Server, cache: Path):
    corpus = load_corpus("multi30k")
    assert corpus.train[0] == ("train de eins", "train en eins")
    assert list(corpus.tests) == ["test_2016_flickr"]
    needed = {name for name in FILES if ".fr." not in name}
    assert names(cache) == set(server.asked) == needed
    server.stop()
    assert load_corpus("multi30k") == corpus
    assert len(server.asked) == len(needed)


def test_another_language_fetches_only_its_own_files(server: Server, cache: Path):
    load_corpus("multi30k")
    server.asked.clear()
    assert load_corpus("multi30k", "en", "fr").train[0] == ("train en eins", "train fr eins")
    assert set(server.asked) == {f"{split}.fr.gz" for split in SPLITS}


def test_a_damaged_download_is_deleted_and_named(server: Server, cache: Path):
    good = server.files["val.de.gz"]
    server.files["val.de.gz"] = b"<html>blocked by the school's filter</html>"
    message = refused()
    assert message.startswith(f"{server.url}val.de.gz is damaged (its SHA-256 differs) and was deleted: try again")
    assert "captions" in message
    assert names(cache) <= FILES.keys() - {"val.de.gz"}, "neither the damaged file nor a temporary one may stay"
    server.files["val.de.gz"] = good
    assert len(load_corpus("multi30k").validation) == 40


def test_a_file_damaged_in_the_cache_is_fetched_anew(server: Server, cache: Path):
    corpus = load_corpus("multi30k")
    (cache / "train.en.gz").write_bytes(FILES["train.en.gz"][:20])
    server.asked.clear()
    assert load_corpus("multi30k") == corpus
    assert server.asked == ["train.en.gz"]


def test_a_file_damaged_in_the_cache_is_deleted_even_without_a_connection(server: Server, cache: Path):
    load_corpus("multi30k")
    (cache / "train.en.gz").write_bytes(FILES["train.en.gz"][:20])
    server.stop()
    assert "train.en.gz cannot be downloaded" in refused()
    assert "train.en.gz" not in names(cache)


@pytest.mark.parametrize("announce_length", [True, False])
def test_a_server_that_breaks_off_leaves_nothing_half_written(server: Server, cache: Path, announce_length: bool):
    """Without an announced length the break looks like the end of the file; only the SHA-256 tells."""
    server.cut, server.announce_length = {"train.en.gz"}, announce_length
    message = refused()
    assert message.startswith(f"{server.url}train.en.gz ")
    assert "captions" in message
    assert names(cache) == {"train.de.gz"}
    server.cut = set()
    assert len(load_corpus("multi30k").train) == 40
    assert server.asked.count("train.de.gz") == 1, "what came whole is kept"


def test_a_file_that_is_not_on_the_server_is_named(server: Server, cache: Path):
    del server.files["train.de.gz"]
    assert refused().startswith(f"{server.url}train.de.gz cannot be downloaded (HTTPError)")


def test_without_a_network_the_error_names_file_folder_and_a_way_on(server: Server, cache: Path):
    server.stop()
    message = refused()
    assert message.startswith(f"{server.url}train.de.gz cannot be downloaded (ConnectionError)")
    assert f"put train.de.gz into {cache} yourself" in message
    assert "the corpus captions" in message
    assert names(cache) == set()


def test_a_file_put_into_the_cache_by_hand_is_taken(server: Server, cache: Path):
    """That is what the error advises."""
    cache.mkdir(parents=True)
    for name, content in FILES.items():
        (cache / name).write_bytes(content)
    server.stop()
    assert len(load_corpus("multi30k").train) == 40
    assert server.asked == []


def test_a_bare_server_without_pooch_is_told_what_to_do(server: Server, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    message = refused()
    assert message.startswith("multi30k cannot be downloaded without pooch")
    assert "TRANSFORMER_LAB_DATA" in message
