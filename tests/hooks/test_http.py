"""HTTP clients against a server on this machine."""

from __future__ import annotations

import gzip
import http.client
import http.server
import socket
import threading
import urllib.error
import urllib.request

import fsspec
import fsspec.asyn
import pytest
import requests
import urllib3
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from pipefix.hooks import fsspec as fsspec_hooks
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
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
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


def test_urlopen_reads_the_body_apart_and_replayed_asks_nobody(hooks, server):
    bare = _urlopen(server)
    hooks.install("socket", "http", "urllib")
    assert hooks.run(lambda: _urlopen(server)) == bare
    assert hooks.charged() == {"urllib.request.urlopen": "storage", "http.client.HTTPResponse.read": "storage"}
    assert hooks.timer.bytes_read >= len(BODY)
    assert hooks.run(lambda: _urlopen(server), record=True) == bare
    hits = Handler.hits
    assert hooks.run(lambda: _urlopen(server), replace=[Stage.STORAGE]) == bare
    assert Handler.hits == hits
    assert hooks.timer.bytes_read == 0


def test_errors_stay_errors(hooks, server):
    hooks.install("socket", "http", "urllib", "urllib3")

    def fails():
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(server + "/missing")
        with pytest.raises(requests.HTTPError):
            requests.get(server + "/missing").raise_for_status()
        return caught.value.code

    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert hooks.run(fails, **how) == 404


def test_waking_an_event_loop_reads_nothing(hooks):
    hooks.install("socket")
    waker, sleeper = socket.socketpair()
    with waker, sleeper:
        hooks.run(lambda: waker.send(b"0"))
    assert hooks.charged() == {}


def test_http_client(hooks, server):
    def get():
        connection = http.client.HTTPConnection(server.removeprefix("http://"))
        connection.request("GET", "/x")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return body

    hooks.install("socket", "http")
    assert hooks.run(get) == BODY
    assert hooks.charged() == {
        "http.client.request": "storage", "http.client.getresponse": "storage", "http.client.HTTPResponse.read": "storage",
    }  # fmt: skip
    assert hooks.timer.bytes_read >= len(BODY)


REQUESTS = {
    "get": lambda url: requests.get(url + "/x").content,
    "gzip": lambda url: requests.get(url + "/gzip").content,
    "moved": lambda url: [requests.get(url + "/moved").url, len(requests.get(url + "/moved").history)],
    "session": lambda url: [(s := requests.Session()).get(url + "/x").status_code, s.get(url + "/x").headers["X-Extra"]],
    "raw": lambda url: requests.get(url + "/x", stream=True).raw.read(),
    "streamed": lambda url: b"".join(requests.get(url + "/gzip", stream=True).iter_content(1000)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(hooks, server, name):
    bare = REQUESTS[name](server)
    hooks.install("socket", "http", "urllib3")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        hits = Handler.hits
        assert hooks.run(lambda: REQUESTS[name](server), **how) == bare
    assert hooks.charged() == {}
    assert Handler.hits == hits


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


def test_fsspec_blocks(hooks, server):
    def read():
        with Remote(server).open("x") as file:
            file.seek(5000)
            return file.read(10), file.read(20000)

    hooks.contract(read, "socket", "http", "fsspec", ops={"fsspec.fetch_range": "storage"})
    hooks.contract(lambda: Remote(server).cat_file("x"), "socket", "http", "fsspec", ops={"fsspec.cat_file": "storage"})


def test_fsspec_coroutines(hooks):
    files = Coroutines()
    hooks.contract(lambda: [files.cat_file("x", 3, 90), files.size("x")], "fsspec",
                   ops={"fsspec.cat_file": "storage", "fsspec.size": "storage"})  # fmt: skip
    hooks.install("fsspec")
    hooks.run(lambda: files.cat_file("x"))
    assert hooks.timer.bytes_read == len(BODY)


@pytest.mark.parametrize(
    ("args", "kwargs", "question"),
    [
        (("x",), {}, (0, None)),
        (("x", 3), {"end": 90}, (3, 90)),
        (("x",), {"start": 3, "end": 90}, (3, 90)),
        ((), {"path": "x", "start": 3, "end": 90}, (3, 90)),
    ],
)
def test_what_is_asked_of_an_object_is_understood_however_it_is_given(args, kwargs, question):
    """Half of an object kept as the whole of it would be answered as that."""
    files = Coroutines()
    assert fsspec_hooks._questions(files, "_cat_file", args, kwargs) == [(files.unstrip_protocol("x"), *question)]


def test_fsspec_local_files_are_files(hooks, tmp_path):
    (tmp_path / "x").write_bytes(BODY)

    def read():
        with fsspec.open(str(tmp_path / "x"), "rb") as file:
            return file.read()

    hooks.install("files", "fsspec")
    for how in ({}, {"record": True}, {"replace": [Stage.STORAGE]}):
        assert hooks.run(read, **how) == BODY
    assert "read" not in hooks.charged()


def test_urllib3_is_timed_by_request(hooks, server):
    pool = urllib3.PoolManager()

    def get():
        return pool.request("GET", server + "/x").data, pool.request("GET", server + "/x", preload_content=False).read(100)

    bare = get()
    hooks.install("socket", "http", "urllib3")
    for how in ({}, {"record": True}):
        assert hooks.run(get, **how) == bare
        assert hooks.charged()["urllib3.urlopen"] == "storage"
        assert hooks.timer.bytes_read > len(BODY)
    assert hooks.run(get, replace=[Stage.STORAGE]) == bare
    assert hooks.charged() == {}
