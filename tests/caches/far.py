"""A store of objects that speaks HTTP and counts what it is asked; and datasets that read from it as people write them."""

from __future__ import annotations

import hashlib
import http.server
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import urllib3
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from torch.utils.data import Dataset


class Store:
    """Objects by path, and every request that was made for one."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    @contextmanager
    def served(self) -> Iterator[Store]:
        handler = type("Handler", (_Handler,), {"store": self})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
            thread = threading.Thread(target=running.serve_forever, args=(0.01,))
            thread.start()
            self.url = f"http://127.0.0.1:{running.server_port}"
            try:
                yield self
            finally:
                running.shutdown()
                thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    store: Store
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path, _, _ = self.path.partition("?")
        self.store.asked.append((self.command, self.path))
        if path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", path.removeprefix("/moved") + "?X-Amz-Signature=secret&X-Amz-Date=1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = self.store.objects.get(path)
        if data is None:
            self.send_error(404)
            return
        begin, end, status = 0, len(data), 200
        range_header = self.headers.get("Range")
        if range_header:
            first, _, last = range_header.removeprefix("bytes=").partition("-")
            begin, end = (int(first), min(end, int(last) + 1 if last else end)) if first else (end - int(last), end)
            status = 206
        self.send_response(status)
        self.send_header("Content-Type", "application/x-numbers")
        self.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        self.send_header("Content-Length", str(end - begin))
        if range_header:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.end_headers()
        if body:
            self.wfile.write(data[begin:end])

    def log_message(self, *args: Any) -> None:
        """Quiet."""


class Far(Dataset[Any]):
    """One object a sample, read in one of the many ways there are."""

    def __init__(self, urls: list[str], how: str) -> None:
        self.urls, self.way = urls, how
        self.session: Any = None

    def __len__(self) -> int:
        return len(self.urls)

    def __getitem__(self, index: int) -> Any:
        return WAYS[self.way](self, self.urls[index])


def by_urlopen(_: Far, url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return answer.read(10), answer.read(), answer.status, answer.headers["Content-Type"], answer.geturl()


def by_range(_: Far, url: str) -> Any:
    request = urllib.request.Request(url, headers={"Range": "bytes=20-119", "Authorization": "Bearer secret"})
    with urllib.request.urlopen(request) as answer:
        return answer.read(), answer.status, answer.headers["Content-Range"]


def by_opener(_: Far, url: str) -> Any:
    opener = urllib.request.build_opener()
    opener.addheaders = [("X-Mine", "1")]
    return opener.open(url).read()


def by_requests(_: Far, url: str) -> Any:
    answer = requests.get(url, timeout=5)
    answer.raise_for_status()
    return answer.content, answer.status_code, answer.headers["content-type"], answer.ok


def by_session(dataset: Far, url: str) -> Any:
    if dataset.session is None:
        dataset.session = requests.Session()
    with dataset.session.get(url, stream=True, headers={"Range": "bytes=-33"}, timeout=5) as answer:
        return b"".join(answer.iter_content(10)), answer.status_code


def by_pool(dataset: Far, url: str) -> Any:
    if dataset.session is None:
        dataset.session = urllib3.PoolManager()
    return dataset.session.request("GET", url).data, dataset.session.request("GET", url, preload_content=False).read(7)


def by_redirection(dataset: Far, url: str) -> Any:
    moved = url.replace("/data/", "/moved/data/")
    with urllib.request.urlopen(moved) as answer:
        return answer.read(), by_requests(dataset, moved)


class Blocks(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        pool = urllib3.PoolManager()
        return bytes(pool.request("GET", self.fs.base + self.path, headers={"Range": f"bytes={start}-{end - 1}"}).data)


class Plain(AbstractFileSystem):
    """A file system that fetches blocks in the caller's thread."""

    protocol = "plain"
    cachable = False

    def __init__(self, base: str, size: int) -> None:
        super().__init__()
        self.base, self.length = base, size

    def info(self, path: str, **kwargs: Any) -> Any:
        return {"name": path, "size": self.length, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return Blocks(self, path, mode, block_size=64)


class Coroutines(AsyncFileSystem):
    """A file system of coroutines, which a thread of fsspec's runs."""

    protocol = "coroutines"
    cachable = False

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        with urllib.request.urlopen(self.base + self._strip_protocol(path)) as answer:
            return bytes(answer.read())[start:end]

    async def _info(self, path: str, **kwargs: Any) -> Any:
        with urllib.request.urlopen(urllib.request.Request(self.base + path, method="HEAD")) as answer:
            return {"name": path, "size": int(answer.headers["Content-Length"]), "type": "file", "ETag": answer.headers["ETag"]}


def _split(url: str) -> tuple[str, str]:
    base, _, path = url.partition("/data/")
    return base, f"/data/{path}"


def by_blocks(_: Far, url: str) -> Any:
    base, path = _split(url)
    with Plain(base, 200).open(path) as file:
        file.seek(100)
        middle = file.read(10)
        file.seek(0)
        return middle, file.read()


def by_coroutines(_: Far, url: str) -> Any:
    base, path = _split(url)
    files = Coroutines(base)
    return files.cat_file(path), files.cat_file(path, 3, 9), files.info(path)["size"], files.exists(path), files.cat([path])


WAYS = {
    "urlopen": by_urlopen,
    "a range": by_range,
    "opener": by_opener,
    "requests": by_requests,
    "session": by_session,
    "urllib3": by_pool,
    "redirection": by_redirection,
    "fsspec blocks": by_blocks,
    "fsspec coroutines": by_coroutines,
}
