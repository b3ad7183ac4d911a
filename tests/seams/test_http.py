"""HTTP clients against a server on this machine."""

from __future__ import annotations

import gzip
import http.client
import http.server
import sys
import threading
import types
import urllib.error
import urllib.request

import fsspec
import fsspec.asyn
import pytest
import requests
import urllib3
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from pipefix.vocabulary.stage import Stage

BODY = bytes(range(256)) * 300


class Handler(http.server.BaseHTTPRequestHandler):
    hits = 0

    def do_GET(self):
        type(self).hits += 1
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/x")
            self.end_headers()
            return
        body = gzip.compress(BODY) if self.path == "/gzip" else BODY
        begin, end = 0, len(body)
        if "Range" in self.headers:
            begin, end = (int(part) for part in self.headers["Range"].removeprefix("bytes=").split("-"))
        self.send_response(206 if "Range" in self.headers else 200)
        if self.path == "/gzip":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body[begin:end])))
        self.send_header("X-Extra", "yes")
        self.end_headers()
        self.wfile.write(body[begin:end])

    def log_message(self, *args):
        """Quiet."""


@pytest.fixture
def server():
    Handler.hits = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def _urlopen(url):
    with urllib.request.urlopen(url + "/x") as answer:
        first = answer.read(100)
        return (
            first,
            answer.read(),
            answer.status,
            answer.getcode(),
            answer.geturl(),
            answer.headers["X-Extra"],
            answer.getheader("X-Extra"),
        )


def test_urlopen_timed_reads_the_body_apart(seams, server):
    bare = _urlopen(server)
    seams.install("socket", "http", "urllib")
    assert seams.run(lambda: _urlopen(server)) == bare
    assert seams.charged() == {"urllib.request.urlopen": "storage", "http.client.HTTPResponse.read": "storage"}
    assert seams.tap.bytes_read >= len(BODY)


def test_urlopen_replayed_asks_nobody(seams, server):
    seams.install("socket", "http", "urllib")
    bare = _urlopen(server)
    assert seams.run(lambda: _urlopen(server), record=True) == bare
    hits = Handler.hits
    assert seams.run(lambda: _urlopen(server), replace=[Stage.STORAGE]) == bare
    assert Handler.hits == hits
    assert seams.tap.bytes_read == 0


def test_errors_stay_errors(seams, server):
    seams.install("socket", "http", "urllib", "urllib3")

    def fails():
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(server + "/missing")
        with pytest.raises(requests.HTTPError):
            requests.get(server + "/missing").raise_for_status()
        return caught.value.code

    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert seams.run(fails, **how) == 404


def test_urlopen_taken_by_name(seams, server):
    module = types.ModuleType("took_urlopen_by_name")
    exec("from urllib.request import urlopen", vars(module))
    sys.modules[module.__name__] = module
    try:
        seams.install("socket", "http", "urllib")
        seams.run(lambda: module.urlopen(server + "/x").read())
        assert "urllib.request.urlopen" in seams.charged()
    finally:
        seams.undo()
        del sys.modules[module.__name__]


def test_http_client(seams, server):
    def get():
        connection = http.client.HTTPConnection(server.removeprefix("http://"))
        connection.request("GET", "/x")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return body

    seams.install("socket", "http")
    assert seams.run(get) == BODY
    assert seams.charged() == {
        "http.client.request": "storage", "http.client.getresponse": "storage", "http.client.HTTPResponse.read": "storage",
    }  # fmt: skip
    assert seams.tap.bytes_read >= len(BODY)


REQUESTS = {
    "get": lambda url: requests.get(url + "/x").content,
    "gzip": lambda url: requests.get(url + "/gzip").content,
    "moved": lambda url: [requests.get(url + "/moved").url, len(requests.get(url + "/moved").history)],
    "session": lambda url: [(s := requests.Session()).get(url + "/x").status_code, s.get(url + "/x").headers["X-Extra"]],
    "raw": lambda url: requests.get(url + "/x", stream=True).raw.read(),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(seams, server, name):
    bare = REQUESTS[name](server)
    seams.install("socket", "http", "urllib3")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        hits = Handler.hits
        assert seams.run(lambda: REQUESTS[name](server), **how) == bare
    assert seams.charged() == {}
    assert Handler.hits == hits


def test_requests_streamed(seams, server):
    def streamed():
        return b"".join(requests.get(server + "/gzip", stream=True).iter_content(1000))

    seams.install("socket", "http", "urllib3")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert seams.run(streamed, **how) == BODY
    assert seams.charged() == {}


class Blocks(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        request = urllib.request.Request(self.fs.url + "/x", headers={"Range": f"bytes={start}-{end}"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()


class Remote(AbstractFileSystem):
    protocol = "remote"
    cachable = False

    def __init__(self, url, **kwargs):
        super().__init__(**kwargs)
        self.url = url

    def info(self, path, **kwargs):
        return {"name": path, "size": len(BODY), "type": "file"}

    def _open(self, path, mode="rb", **kwargs):
        return Blocks(self, path, mode, **{**kwargs, "block_size": 4096})


class Coroutines(AsyncFileSystem):
    cachable = False

    async def _cat_file(self, path, start=None, end=None, **kwargs):
        return BODY[start:end]

    async def _info(self, path, **kwargs):
        return {"name": path, "size": len(BODY), "type": "file"}


def test_fsspec_blocks(seams, server):
    def read():
        with Remote(server).open("x") as file:
            file.seek(5000)
            return file.read(10), file.read(20000)

    seams.contract(read, "socket", "http", "fsspec", ops={"fsspec.fetch_range": "storage"})
    seams.contract(lambda: Remote(server).cat_file("x"), "socket", "http", "fsspec", ops={"fsspec.cat_file": "storage"})


def test_fsspec_coroutines(seams):
    files = Coroutines()
    seams.contract(lambda: [files.cat_file("x", 3, 90), files.size("x")], "fsspec",
                   ops={"fsspec.cat_file": "storage", "fsspec.size": "storage"})  # fmt: skip
    seams.install("fsspec")
    seams.run(lambda: files.cat_file("x"))
    assert seams.tap.bytes_read == len(BODY)


def test_fsspec_local_files_are_files(seams, tmp_path):
    (tmp_path / "x").write_bytes(BODY)

    def read():
        with fsspec.open(str(tmp_path / "x"), "rb") as file:
            return file.read()

    seams.install("files", "fsspec")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert seams.run(read, **how) == BODY
    assert "read" not in seams.charged()


def test_urllib3_is_timed_by_request(seams, server):
    pool = urllib3.PoolManager()

    def get():
        return pool.request("GET", server + "/x").data, pool.request("GET", server + "/x", preload_content=False).read(100)

    bare = get()
    seams.install("socket", "http", "urllib3")
    for how in ({}, {"record": True}):
        assert seams.run(get, **how) == bare
        assert seams.charged()["urllib3.urlopen"] == "storage"
        assert seams.tap.bytes_read > len(BODY)
    assert seams.run(get, replace=[Stage.STORAGE]) == bare
    assert seams.charged() == {}
