"""urllib3, and with it requests and botocore, which send all their requests through a connection pool of its.

A source cache keeps the body as it crossed the network (compressed, if it was), whatever the caller wants it decoded to.
"""

from __future__ import annotations

import io
from typing import Any

from pipefix.hooks import object_answers
from pipefix.hooks.calls import Patches, SampleTimer, Stage, hook

LIBRARY = "urllib3"

_OP = "urllib3.urlopen"


def install(timer: SampleTimer, patches: Patches) -> None:
    from urllib3.connectionpool import HTTPConnectionPool

    original = HTTPConnectionPool.urlopen

    @hook(timer, patches, HTTPConnectionPool, "urlopen")
    def urlopen(self: Any, method: str, url: str, body: Any = None, headers: Any = None, *args: Any, **kwargs: Any) -> Any:
        arguments = (self, method, url, body, headers, *args)
        if timer.stage is Stage.STORAGE:
            return original(*arguments, **kwargs)
        with object_answers.one_question() as outermost:
            whole = _url_of(self, url)
            recorded_or_replaced = timer.tapes(Stage.STORAGE)
            if not recorded_or_replaced or not outermost or args:
                object_answers.noted(timer, whole)
                return timer.timed_call(Stage.STORAGE, _OP, original, arguments, kwargs, replayable=False)
            question = None
            if object_answers.is_question(method, whole, body):
                question = whole, object_answers.header(headers if headers is not None else self.headers, "range")

            def read_whole() -> object_answers.Received:
                response = original(*arguments, **{**kwargs, "preload_content": False, "decode_content": False})
                data = response.read(decode_content=False)
                response.release_conn()
                return object_answers.Received(data, response.status, response.reason, list(response.headers.items()), whole)

            return _response(object_answers.received(LIBRARY, timer, _OP, question, read_whole), whole, method, kwargs)


def _url_of(pool: Any, url: str) -> str:
    if url.startswith(("http://", "https://")):  # through a proxy
        return url
    usual = {"http": 80, "https": 443}.get(pool.scheme)
    host = f"[{pool.host}]" if ":" in pool.host else pool.host
    return f"{pool.scheme}://{host}{f':{pool.port}' if pool.port not in (None, usual) else ''}{url}"


def _response(received: object_answers.Received, url: str, method: str, kwargs: dict[str, Any]) -> Any:
    from urllib3._collections import HTTPHeaderDict
    from urllib3.response import HTTPResponse

    return HTTPResponse(
        body=io.BytesIO(received.body), headers=HTTPHeaderDict(received.headers), status=received.status, reason=received.reason,
        version=11, request_method=method, request_url=url,
        preload_content=kwargs.get("preload_content", True), decode_content=kwargs.get("decode_content", True),
        retries=kwargs.get("retries") if not isinstance(kwargs.get("retries"), (int, bool)) else None,
    )  # fmt: skip
