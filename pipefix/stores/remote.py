"""An object store, asked through a helper process (`pipefix.stores.helper_process`), one for each process that asks."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from pipefix.stores.store import NoSuchObject, RequestLedger, Span
from pipefix.vocabulary.errors import MissingExtra, UnreadableFile

_ADVICE = {
    "denied": "Check the credentials that the environment gives: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, …",
    "failed": "Check the URL, the network and the endpoint (AWS_ENDPOINT_URL); then run the same command again.",
}


class RemoteStore:
    def __init__(self, url: str) -> None:
        if importlib.util.find_spec("obstore") is None:  # not imported: this process may fork
            raise MissingExtra(f"{url} needs the package 'obstore'.", advice="Install it with: pip install obstore")
        self.url = url
        self.ledger = RequestLedger()
        self._begin()

    def _begin(self) -> None:
        _all.add(self)
        self._helper: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes:
        data: bytes = self._ask("get", name)
        self.ledger.count("get", received=len(data))
        return data

    def ranges(self, spans: Sequence[Span]) -> list[bytes]:
        parts: list[bytes] = self._ask("ranges", list(spans))
        self.ledger.count("range", requests=len(spans), received=sum(map(len, parts)))
        return parts

    def put(self, name: str, data: bytes | Path, *, if_absent: bool = False) -> bool:
        created: bool = self._ask("put", name, str(data) if isinstance(data, Path) else data, if_absent)
        self.ledger.count("put", sent=data.stat().st_size if isinstance(data, Path) else len(data))
        return created

    def list(self) -> dict[str, int]:
        sizes: dict[str, int] = self._ask("list")
        self.ledger.count("list", requests=1 + len(sizes) // 1000)
        return sizes

    def _ask(self, request: str, *arguments: Any) -> Any:
        with self._lock:
            process, connection = self._running()
            try:
                connection.send_bytes(msgspec.msgpack.encode((request, *arguments)))
                kind, answer = msgspec.msgpack.decode(connection.recv_bytes())
            except (EOFError, OSError) as error:
                self._helper = None
                raise UnreadableFile(f"The process that asks {self.url} ended.", advice="Run the same command again.") from error
            except BaseException:  # interrupted: its answer would be taken for that of the next question
                process.kill()
                self._helper = None
                raise
        if kind == "missing":
            raise NoSuchObject(str(arguments[0]) if arguments else self.url)
        if kind != "ok":
            raise UnreadableFile(f"{self.url} cannot be reached: {answer}", advice=_ADVICE[kind])
        return answer

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """The process that asks. That of a parent is the parent's: a forked child starts its own."""
        if self._helper is None or self._owner != os.getpid():
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            ours, theirs = multiprocessing.Pipe()
            process = subprocess.Popen(
                [sys.executable, "-m", "pipefix.stores.helper_process", self.url, str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=2, pass_fds=[theirs.fileno()], env=environment, start_new_session=True,
            )  # fmt: skip
            theirs.close()
            self._helper, self._owner = (process, ours), os.getpid()
            weakref.finalize(self, _end, process, ours, self._owner)
        return self._helper

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "ledger": RequestLedger()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()


def _end(process: subprocess.Popen[bytes], connection: Connection, owner: int) -> None:
    if owner == os.getpid():
        process.kill()
        process.wait()
        connection.close()


def _forked() -> None:
    """In a forked child: a lock that another thread held stays held for ever."""
    for store in list(_all):
        store._begin()


_all: weakref.WeakSet[RemoteStore] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
