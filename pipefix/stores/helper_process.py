"""The helper process that talks to an object store, since its client survives no fork: ``python -m`` this module.

obstore's threads do not survive a fork, and a child that uses it after its parent did waits for ever. So it is imported here alone;
who asks sends MessagePack through a `Connection`, whose descriptor this process was given, and gets its answers there.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

AT_ONCE = 64
"""Requests in flight."""
_TIMEOUT, _RETRIES, _RETRY_SECONDS = "30s", 8, 60


class _Asked:
    def __init__(self, url: str) -> None:
        import obstore

        self._obstore: Any = obstore
        if not url.startswith("http"):  # names in a bucket are no parts of a URL: "#3" would be cut off as its fragment
            url = url.replace("%", "%25").replace("#", "%23").replace("?", "%3F")
        options: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
        self._store = obstore.store.from_url(url, client_options={"allow_http": True, "timeout": _TIMEOUT}, retry_config=options)
        self._few = asyncio.Semaphore(AT_ONCE)

    async def get(self, name: str) -> bytes:
        return bytes(await (await self._obstore.get_async(self._store, name)).bytes_async())

    async def ranges(self, spans: list[tuple[str, int, int]]) -> list[bytes]:
        return list(await asyncio.gather(*(self._range(*span) for span in spans)))

    async def _range(self, name: str, begin: int, length: int) -> bytes:
        if not length:
            return b""
        async with self._few:
            return bytes(await self._obstore.get_range_async(self._store, name, start=begin, length=length))

    async def put(self, name: str, data: bytes | str, absent: bool) -> bool:
        body = Path(data) if isinstance(data, str) else data
        how: dict[str, Any] = {"mode": "create", "use_multipart": False} if absent else {}
        try:
            await self._obstore.put_async(self._store, name, body, **how)
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        return True

    async def list(self) -> dict[str, int]:
        sizes = {}
        async for chunk in self._obstore.list(self._store):
            sizes.update({entry["path"]: entry["size"] for entry in chunk})
        return sizes


def _kind(error: Exception) -> str:
    name = type(error).__name__
    if name in ("NotFoundError", "FileNotFoundError"):
        return "missing"
    return "denied" if name in ("PermissionDeniedError", "UnauthenticatedError") else "failed"


async def _serve(url: str, connection: Connection) -> None:
    """Until the other side is gone, which raises EOFError or ConnectionError."""
    request: _Asked | None = None
    while True:
        name, *arguments = msgspec.msgpack.decode(connection.recv_bytes())
        try:
            request = request or _Asked(url)
            answer: Any = ("ok", await getattr(request, name)(*arguments))
        except Exception as error:  # noqa: BLE001 - told to who asked
            words = str(error).strip().splitlines()[0][:500] if str(error) else ""
            answer = (_kind(error), f"{type(error).__name__}: {words}")
        connection.send_bytes(msgspec.msgpack.encode(answer))


def main() -> None:
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        asyncio.run(_serve(sys.argv[1], Connection(int(sys.argv[2]))))


if __name__ == "__main__":
    main()
