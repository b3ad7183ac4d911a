"""The process that talks to an object store for one that may fork: ``python -m pipefix.stores.fetching URL``.

obstore's threads do not survive a fork, and a child that uses it after its parent did waits for ever. So it is imported here alone;
who asks sends frames (length, MessagePack) to standard input and reads answers from standard output.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

LENGTH = struct.Struct("<Q")
AT_ONCE = 64
"""Requests in flight."""
_TIMEOUT, _RETRIES, _RETRY_SECONDS = "30s", 8, 60


def send(stream: BinaryIO, value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """The next frame; raises EOFError where the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    data = stream.read(length := LENGTH.unpack(head)[0])
    if len(data) < length:
        raise EOFError
    return msgspec.msgpack.decode(data)


class _Asked:
    def __init__(self, url: str) -> None:
        from datetime import timedelta

        from obstore.store import from_url

        options: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        self._store = from_url(url, client_options={"allow_http": True, "timeout": _TIMEOUT}, retry_config=options)
        self._few = asyncio.Semaphore(AT_ONCE)

    async def get(self, name: str) -> bytes:
        import obstore

        return bytes(await (await obstore.get_async(self._store, name)).bytes_async())

    async def ranges(self, spans: list[tuple[str, int, int]]) -> list[bytes]:
        return list(await asyncio.gather(*(self._range(*span) for span in spans)))

    async def _range(self, name: str, begin: int, length: int) -> bytes:
        import obstore

        if not length:
            return b""
        async with self._few:
            return bytes(await obstore.get_range_async(self._store, name, start=begin, length=length))

    async def put(self, name: str, data: bytes | str, absent: bool) -> bool:
        import obstore

        body = Path(data) if isinstance(data, str) else data
        if not absent:
            await obstore.put_async(self._store, name, body)
            return True
        try:
            await obstore.put_async(self._store, name, body, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    async def list(self) -> dict[str, int]:
        import obstore

        sizes = {}
        async for chunk in obstore.list(self._store):
            sizes.update({entry["path"]: entry["size"] for entry in chunk})
        return sizes


def _kind(error: Exception) -> str:
    name = type(error).__name__
    if name in ("NotFoundError", "FileNotFoundError"):
        return "missing"
    return "denied" if name in ("PermissionDeniedError", "UnauthenticatedError") else "failed"


async def _serve(url: str, asking: BinaryIO, answering: BinaryIO) -> None:
    request: _Asked | None = None
    while True:
        try:
            name, *arguments = receive(asking)
        except EOFError:
            return
        try:
            request = request or _Asked(url)
            send(answering, ("ok", await getattr(request, name)(*arguments)))
        except Exception as error:  # noqa: BLE001 - told to who asked
            send(
                answering,
                (_kind(error), f"{type(error).__name__}: {str(error).strip().splitlines()[0][:500] if str(error) else ''}"),
            )


def main() -> None:
    answering = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        asyncio.run(_serve(sys.argv[1], sys.stdin.buffer, answering))
    except (BrokenPipeError, KeyboardInterrupt):
        pass


if __name__ == "__main__":
    main()
