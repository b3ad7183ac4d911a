"""``urllib.request``: what an opener answers. Recorded or replayed, a response is read to its end and made of its bytes."""

from __future__ import annotations

import email.message
import io
from typing import Any
from urllib.response import addinfourl

from pipefix.hooks import object_answers
from pipefix.hooks.calls import Patches, SampleTimer, Stage, hook

LIBRARY = "urllib.request"

_OP = "urllib.request.urlopen"


class RecordedResponse(addinfourl):
    """What ``urlopen`` answered, from memory."""

    def __init__(self, received: object_answers.Received) -> None:
        headers = email.message.Message()
        for name, value in received.headers:
            headers[name] = value
        super().__init__(io.BytesIO(received.body), headers, received.url, received.status)
        self.reason = self.msg = received.reason
        self.version = 11

    def getheader(self, name: str, default: Any = None) -> Any:
        return self.headers.get(name, default)

    def getheaders(self) -> list[tuple[str, str]]:
        return list(self.headers.items())


def install(timer: SampleTimer, patches: Patches) -> None:
    from urllib.request import OpenerDirector

    original = OpenerDirector.open  # by which ``urlopen`` opens

    @hook(timer, patches, OpenerDirector, "open")
    def opened(self: Any, fullurl: Any, data: Any = None, *timeout: Any, **named_timeout: Any) -> Any:
        args = (self, fullurl, data, *timeout)
        if timer.stage is Stage.STORAGE:
            return original(*args, **named_timeout)
        if not timer.tapes(Stage.STORAGE):
            return timer.timed_call(Stage.STORAGE, _OP, original, args, named_timeout)

        def read_whole() -> object_answers.Received:
            with original(*args, **named_timeout) as answer:
                status, reason = getattr(answer, "status", None) or 200, getattr(answer, "reason", None)
                return object_answers.Received(answer.read(), status, reason, list(answer.headers.items()), answer.url)

        return RecordedResponse(object_answers.received(LIBRARY, timer, _OP, _question(fullurl, data), read_whole))


def _question(request: Any, data: Any) -> tuple[str, str | None] | None:
    """URL and Range of a request that only reads; None for any other."""
    if isinstance(request, str):
        return (request, None) if object_answers.is_question("GET", request, data) else None
    url: str = getattr(request, "full_url", "")
    if not object_answers.is_question(request.get_method(), url, data if data is not None else request.data):
        return None
    return url, request.get_header("Range")
