"""Whether objects that a cache was made of have changed in their stores since: asked for by HEAD, many at a time."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from pipefix.hooks.object_answers import Answer, mark_of

_AT_ONCE = 16
_TIMEOUT_S = 20.0
_GONE = (404, 410)


def changed(objects: Iterable[tuple[str, int, int]]) -> bool:
    """Whether one of these (URL, size, mark) is gone, or another object now.

    One that does not answer, or not to us (its reader has credentials, or a protocol of its own), counts as unchanged.
    """
    over_http = [web_object for web_object in objects if web_object[0].startswith(("http://", "https://"))]
    if not over_http:
        return False
    with ThreadPoolExecutor(_AT_ONCE, "pipefix-head") as pool:
        return any(pool.map(_is_changed, over_http))


def _is_changed(web_object: tuple[str, int, int]) -> bool:
    url, size, mark = web_object
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_TIMEOUT_S) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code in _GONE
    except (OSError, ValueError):
        return False
    now = Answer(url, size, 0, None, {"headers": headers}).mark
    if mark == mark_of("") or now == mark_of(""):
        return "content-length" in headers and headers["content-length"] != str(size)
    return now != mark
