"""HTTP through the standard library: ``urlopen``, and the connections and responses of `http.client` under it.

While recording, a response is read to its end at once, and what the caller gets is a response made from those bytes; a replayed one
is made the same way. Timed only, nothing changes hands.
"""

from __future__ import annotations

import functools
import io
from typing import Any
from urllib.response import addinfourl

from pipefix.seams import fresh
from pipefix.seams.seam import Patches, cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "http.client"

_STORAGE = Stage.STORAGE


class RecordedResponse(addinfourl):
    """What ``urlopen`` answered, from memory."""

    def __init__(self, body: bytes, headers: Any, url: str, status: int | None, reason: str | None, version: int | None) -> None:
        super().__init__(io.BytesIO(body), headers, url, status)
        self.body = body
        self.reason = self.msg = reason
        self.version = version

    def getheader(self, name: str, default: Any = None) -> Any:
        return self.headers.get(name, default)

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self.headers.items())


def _copy(response: RecordedResponse) -> RecordedResponse:
    return RecordedResponse(response.body, response.headers, response.url, response.code, response.reason, response.version)


def install(tap: Tap, patches: Patches) -> None:
    import http.client
    import urllib.request

    fresh.register(RecordedResponse, _copy, lambda response: len(response.body) + 1000)
    for name in ("request", "getresponse"):
        cut(tap, patches, http.client.HTTPConnection, name, _STORAGE, f"http.client.{name}", replayable=False)
    for name in ("read", "readinto", "read1", "readline", "peek"):
        cut(tap, patches, http.client.HTTPResponse, name, _STORAGE, f"http.client.HTTPResponse.{name}", replayable=False)
    original = urllib.request.urlopen

    def read_whole(*args: Any, **kwargs: Any) -> RecordedResponse:
        with original(*args, **kwargs) as answer:
            body = answer.read()
            status, reason = getattr(answer, "status", None), getattr(answer, "reason", None)
            return RecordedResponse(body, answer.headers, answer.url, status, reason, getattr(answer, "version", None))

    @functools.wraps(original)
    def urlopen(*args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(*args, **kwargs)
        taping = tap.recording is not None or _STORAGE in tap.replaced
        return tap.through(_STORAGE, "urllib.request.urlopen", read_whole if taping else original, args, kwargs)

    patches.replace(urllib.request, "urlopen", urlopen, everywhere=True)
