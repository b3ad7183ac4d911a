"""requests: one ``Session.send`` is one storage operation. A recorded answer is kept with its whole body, streamed or not."""

from __future__ import annotations

import functools
import io
from typing import Any

from pipefix.seams import fresh
from pipefix.seams.patches import Patches
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "requests"

_STORAGE = Stage.STORAGE


def install(tap: Tap, patches: Patches) -> None:
    import requests

    fresh.register(requests.Response, _copy, lambda response: len(response.content) + 2000)
    original = requests.Session.send

    def send_whole(*args: Any, **kwargs: Any) -> Any:
        response = original(*args, **kwargs)
        response.content  # noqa: B018  reads the body
        return _copy(response)

    @functools.wraps(original)
    def send(*args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(*args, **kwargs)
        taping = tap.recording is not None or _STORAGE in tap.replaced
        return tap.through(_STORAGE, "requests.Session.send", send_whole if taping else original, args, kwargs)

    patches.replace(requests.Session, "send", send)


def _copy(response: Any) -> Any:
    """The same answer with its body in memory: nothing of it depends on the connection any more."""
    from urllib3.response import HTTPResponse

    new = type(response)()
    for name in response.__attrs__:
        setattr(new, name, getattr(response, name))
    new._content_consumed = True
    new.headers = response.headers.copy()
    new.raw = HTTPResponse(
        body=io.BytesIO(response.content),
        headers={name: value for name, value in response.headers.items() if name.lower() != "content-encoding"},
        status=response.status_code,
        reason=response.reason,
        preload_content=False,
    )
    return new
