"""A source that waits: a server on the loopback interface that answers with bytes after a delay, over HTTP or a bare socket.

The waiting happens in another process, so the reader's thread really blocks in ``recv`` and uses no CPU.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

_BLOB = os.urandom(1 << 20)
_VARIABLE = "PIPEFIX_PLANTED_SERVER"
_PROCESS = "PIPEFIX_PLANTED_SERVER_PROCESS"


def answer(connection: socket.socket) -> None:
    """Requests are ``GET /MICROSECONDS/BYTES`` with HTTP headers, or the same path alone on a line (bare socket)."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pending = b""
    with connection:
        while True:
            try:
                data = connection.recv(4096)
            except OSError:
                return
            if not data:
                return
            pending += data
            http = pending.startswith(b"GET")
            if not pending.endswith(b"\r\n\r\n" if http else b"\n"):
                continue
            path = pending.split(b" ")[1] if http else pending.strip()
            pending = b""
            _, delay, size = path.split(b"/")
            time.sleep(int(delay) / 1e6)
            body = _BLOB[: int(size)]
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
                if http
                else b""
            )
            try:
                connection.sendall(head + body)
            except OSError:
                return


def _serve(listener: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


class Server:
    """A forked process that ends when it is stopped, or when its parent goes away."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = listener.getsockname()[1]
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            try:
                _serve(listener)
            finally:
                os._exit(0)
        listener.close()
        os.environ[_VARIABLE] = str(self.port)
        os.environ[_PROCESS] = str(self._pid)

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.environ.pop(_VARIABLE, None)
        os.environ.pop(_PROCESS, None)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def process() -> int | None:
    """The server of this session; None where none runs."""
    found = os.environ.get(_PROCESS)
    return int(found) if found else None


def cpu_seconds() -> float:
    """What the server of this session has used of the processor; 0 where none runs."""
    try:
        fields = Path("/proc", os.environ.get(_PROCESS, "none"), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def port() -> int:
    """Where the waiting server of this session listens."""
    found = os.environ.get(_VARIABLE)
    if found is None:
        raise RuntimeError("No waiting server runs. Start one with: with Server(): ...")
    return int(found)
