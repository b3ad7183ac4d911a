"""``urllib.request``: what an opener answers. Recorded or replayed, a response is read to its end and made of its bytes."""

from __future__ import annotations

import email.message
import functools
import io
from collections.abc import Callable
from typing import Any
from urllib.response import addinfourl

from pipefix.hooks import object_answers
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import Stage

LIBRARY = "urllib.request"


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
    import urllib.request

    urlopen = _seen(timer, urllib.request.urlopen, "urllib.request.urlopen", 0)
    patches.replace(urllib.request, "urlopen", urlopen, everywhere=True)
    opener = _seen(timer, urllib.request.OpenerDirector.open, "urllib.request.OpenerDirector.open", 1)
    patches.replace(urllib.request.OpenerDirector, "open", opener)


def _seen(timer: SampleTimer, original: Callable[..., Any], op: str, at: int) -> Callable[..., Any]:
    """``original`` timed, recorded and replayed; the URL or request is its argument number ``at``."""

    def read_whole(args: tuple[Any, ...], kwargs: dict[str, Any]) -> object_answers.Received:
        with original(*args, **kwargs) as answer:
            status, reason = getattr(answer, "status", None) or 200, getattr(answer, "reason", None)
            return object_answers.Received(answer.read(), status, reason, list(answer.headers.items()), answer.url)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not timer.live or timer.stage is Stage.STORAGE:
            return original(*args, **kwargs)
        if timer.recording is None and Stage.STORAGE not in timer.replaced:
            return timer.timed_call(Stage.STORAGE, op, original, args, kwargs)
        question = _question(args, kwargs, at)
        if question is None and object_answers.player(timer) is not None:
            return timer.timed_call(Stage.STORAGE, op, original, args, kwargs, replayable=False)
        return RecordedResponse(object_answers.received(LIBRARY, timer, op, question, functools.partial(read_whole, args, kwargs)))

    return wrapper


def _question(args: tuple[Any, ...], kwargs: dict[str, Any], at: int) -> tuple[str, str | None] | None:
    """URL and Range of a request that only reads; None for any other."""
    request: Any = args[at] if len(args) > at else kwargs.get("url", kwargs.get("fullurl"))
    data = args[at + 1] if len(args) > at + 1 else kwargs.get("data")
    if isinstance(request, str):
        return (request, None) if object_answers.is_question("GET", request, data) else None
    url: str = getattr(request, "full_url", "")
    if not object_answers.is_question(request.get_method(), url, data if data is not None else request.data):
        return None
    return url, request.get_header("Range")
