"""urllib3, and with it requests and botocore, which send all their requests through a connection pool of its.

A source cache keeps the body as it crossed the network (compressed, if it was), whatever the caller wants it decoded to.
"""

from __future__ import annotations

import functools
import io
from typing import Any

from pipefix.seams import objects
from pipefix.seams.patches import Patches
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "urllib3"

_STORAGE = Stage.STORAGE


def install(tap: Tap, patches: Patches) -> None:
    from urllib3.connectionpool import HTTPConnectionPool

    original = HTTPConnectionPool.urlopen

    @functools.wraps(original)
    def urlopen(self: Any, method: str, url: str, body: Any = None, headers: Any = None, *args: Any, **kwargs: Any) -> Any:
        given = (self, method, url, body, headers, *args)
        if not tap.live:
            return original(*given, **kwargs)
        with objects.one_question() as outermost:
            whole = _url_of(self, url)
            objects.noted(tap, whole)
            keeping = objects.keeper(tap) is not None or objects.player(tap) is not None
            if not (outermost and keeping and not args and objects.is_question(method, whole, body)):
                return tap.through(_STORAGE, "urllib3.urlopen", original, given, kwargs, replayable=False)
            asked = objects.header(headers if headers is not None else self.headers, "range")
            span = objects.span(asked)
            found = objects.known(tap, objects.key_of(whole), *span) if span is not None else None
            if found is None:
                return tap.through(
                    _STORAGE, "urllib3.urlopen", _read_whole, (tap, original, given, whole, kwargs), replayable=False
                )
            return _from_tape(found, asked, whole, kwargs)

    patches.replace(HTTPConnectionPool, "urlopen", urlopen)


def _url_of(pool: Any, url: str) -> str:
    if url.startswith(("http://", "https://")):  # through a proxy
        return url
    usual = {"http": 80, "https": 443}.get(pool.scheme)
    host = f"[{pool.host}]" if ":" in pool.host else pool.host
    return f"{pool.scheme}://{host}{f':{pool.port}' if pool.port not in (None, usual) else ''}{url}"


def _read_whole(tap: Tap, original: Any, given: tuple[Any, ...], url: str, kwargs: dict[str, Any]) -> Any:
    """The response, read to its end without decoding, kept, and made again from its bytes."""
    response = original(*given, **{**kwargs, "preload_content": False, "decode_content": False})
    body = response.read(decode_content=False)
    response.release_conn()
    answer = objects.of_response(url, response.status, response.headers.items(), body)
    objects.keep(tap, answer, LIBRARY)
    return _response(body, response.headers, response.status, response.reason, url, kwargs)


def _from_tape(answer: objects.Answer, asked: str | None, url: str, kwargs: dict[str, Any]) -> Any:
    status, reason, headers = objects.response_of(answer, asked)
    return _response(answer.data or b"", headers, status, reason, url, kwargs)


def _response(body: bytes, headers: Any, status: int, reason: str | None, url: str, kwargs: dict[str, Any]) -> Any:
    from urllib3.response import HTTPResponse

    return HTTPResponse(
        body=io.BytesIO(body), headers=headers, status=status, reason=reason, version=11, request_method="GET", request_url=url,
        preload_content=kwargs.get("preload_content", True), decode_content=kwargs.get("decode_content", True),
        retries=kwargs.get("retries") if not isinstance(kwargs.get("retries"), (int, bool)) else None,
    )  # fmt: skip
