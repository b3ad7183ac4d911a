"""Sockets, plain and TLS: waiting for the network is storage. Timed only; HTTP clients above them are what can be replaced."""

from __future__ import annotations

import sys

from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "socket"
OPAQUE = {"asyncio": "coroutines run in a thread or loop of their own; only waiting for their result (fsspec) is seen"}


def install(tap: Tap, patches: Patches) -> None:
    import socket

    _cut_methods(tap, patches, socket.socket)
    for name in ("create_connection", "getaddrinfo"):
        cut(tap, patches, socket, name, Stage.STORAGE, replayable=False)
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        _cut_methods(tap, patches, ssl.SSLSocket)
        cut(tap, patches, ssl.SSLSocket, "do_handshake", Stage.STORAGE, "ssl.SSLSocket.do_handshake", replayable=False)


def _cut_methods(tap: Tap, patches: Patches, kind: type) -> None:
    label = f"{kind.__module__}.{kind.__name__}".removeprefix("socket.")
    for name in ("connect", "sendall", "send"):
        cut(tap, patches, kind, name, Stage.STORAGE, f"{label}.{name}", replayable=False)
    cut(tap, patches, kind, "recv", Stage.STORAGE, f"{label}.recv", replayable=False, counts=len)
    cut(tap, patches, kind, "recv_into", Stage.STORAGE, f"{label}.recv_into", replayable=False, counts=int)
