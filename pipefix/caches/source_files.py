"""Whether what a part was made of is what it was: files by their size and time, objects of stores by HEAD, many at a time."""

from __future__ import annotations

import http.client
import os
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pipefix.caches.maker import path_of
from pipefix.caches.writer import Facts
from pipefix.hooks.object_answers import Answer, mark_of
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.urls import is_remote

_AT_ONCE = 16
_TIMEOUT_S = 20.0
_GONE = (404, 410)


def changed_files(facts: Facts, root: str | None) -> Iterator[tuple[str, bool]]:
    """Files that are not what they were, and whether each of them is still there."""
    for name, length, modified in facts.files:
        if is_remote(name):
            continue
        try:
            path = path_of(name, root)
            status = os.stat(path)
        except (OSError, ValueError, CacheDamaged):
            yield name, False
            continue
        if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns) != (length, modified):
            yield path, True


def any_found(facts: Facts, root: str | None) -> bool:
    """Whether a file is there now that a damaged sample did not find."""
    read = {name for name, _, _ in facts.files}
    named = {name for sample in facts.bad if sample.error.startswith(FileNotFoundError.__name__) for name in sample.files}
    return any(not is_remote(name) and os.path.exists(path_of(name, root)) for name in named - read)


def any_object_changed(facts: Facts) -> bool:
    """Whether an object is gone, or another one now.

    One that does not answer, or not to us (its reader has credentials, or a protocol of its own), counts as unchanged.
    """
    over_http = [entry for entry in facts.files if entry[0].startswith(("http://", "https://"))]
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
    except (OSError, ValueError, http.client.HTTPException):
        return False
    now = Answer(url, size, 0, None, {"headers": headers}).mark
    if mark == mark_of("") or now == mark_of(""):
        return "content-length" in headers and headers["content-length"] != str(size)
    return now != mark
