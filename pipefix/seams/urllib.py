"""``urllib.request``: what an opener answers. Recorded or replayed, a response is read to its end and made of its bytes."""

from __future__ import annotations

import email.message
import functools
import io
from collections.abc import Callable
from typing import Any
from urllib.response import addinfourl

from pipefix.seams import fresh, objects
from pipefix.seams.patches import Patches
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "urllib.request"

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
    import urllib.request

    fresh.register(RecordedResponse, _copy, lambda response: len(response.body) + 1000)
    urlopen = _seen(tap, urllib.request.urlopen, "urllib.request.urlopen", 0)
    patches.replace(urllib.request, "urlopen", urlopen, everywhere=True)
    opener = _seen(tap, urllib.request.OpenerDirector.open, "urllib.request.OpenerDirector.open", 1)
    patches.replace(urllib.request.OpenerDirector, "open", opener)


def _seen(tap: Tap, original: Callable[..., Any], op: str, at: int) -> Callable[..., Any]:
    """``original`` timed, recorded and replayed; the URL or request is its argument number ``at``."""

    def read_whole(*args: Any, **kwargs: Any) -> RecordedResponse:
        with original(*args, **kwargs) as answer:
            body = answer.read()
            status, reason = getattr(answer, "status", None), getattr(answer, "reason", None)
            return RecordedResponse(body, answer.headers, answer.url, status, reason, getattr(answer, "version", None))

    def kept(*args: Any, **kwargs: Any) -> RecordedResponse:
        response = read_whole(*args, **kwargs)
        asked = _question(args, kwargs, at)
        if asked is not None:
            answer = objects.of_response(asked[0], response.status or 200, response.getheaders(), response.body, response.url)
            objects.keep(tap, answer, LIBRARY)
        return response

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not tap.live or tap.stage is _STORAGE:
            return original(*args, **kwargs)
        if objects.player(tap) is not None and (asked := _question(args, kwargs, at)) is not None:
            found = _from_tape(tap, *asked)
            if found is not None:
                return found
            return tap.through(_STORAGE, op, original, args, kwargs, replayable=False)
        taping = tap.recording is not None or _STORAGE in tap.replaced
        if taping and (asked := _question(args, kwargs, at)) is not None:
            objects.noted(tap, asked[0])
        called = original if not taping else read_whole if objects.keeper(tap) is None else kept
        return tap.through(_STORAGE, op, called, args, kwargs)

    return wrapper


def _question(args: tuple[Any, ...], kwargs: dict[str, Any], at: int) -> tuple[str, str | None] | None:
    """URL and Range of a request that only reads; None for any other."""
    request: Any = args[at] if len(args) > at else kwargs.get("url", kwargs.get("fullurl"))
    data = args[at + 1] if len(args) > at + 1 else kwargs.get("data")
    if isinstance(request, str):
        return (request, None) if objects.is_question("GET", request, data) else None
    url: str = getattr(request, "full_url", "")
    if not objects.is_question(request.get_method(), url, data if data is not None else request.data):
        return None
    return url, request.get_header("Range")


def _from_tape(tap: Tap, url: str, asked: str | None) -> RecordedResponse | None:
    span = objects.span(asked)
    answer = objects.known(tap, objects.key_of(url), *span) if span is not None else None
    if answer is None:
        return None
    status, reason, headers = objects.response_of(answer, asked)
    message = email.message.Message()
    for name, value in headers.items():
        message[name] = value
    return RecordedResponse(answer.data or b"", message, answer.told.get("url", url), status, reason, 11)
