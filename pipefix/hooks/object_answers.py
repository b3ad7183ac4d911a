"""Recorded answers of object stores: a GET by whichever library, under the URL without its signature.

A recording that keeps objects (`ObjectStore`) is that of a ``source`` cache. What crossed the network is kept by URL and place, as
files are by path and place, so that one library's answer serves another's question, and a range of an object is a range of a file.
A recording that has no place for objects (a probe's) records the results of calls instead.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from pipefix.hooks.result_store import ByteStore, ResultStore
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import STORAGE
from pipefix.vocabulary.urls import store_of

CLIENTS = frozenset({"urllib.request", "urllib3", "fsspec", "obstore", "s3torchconnector"})
"""Libraries whose hooks keep objects and answer with them."""
HEAD = "head+"
"""Before a URL: what was told of the object besides its bytes."""
_KEPT = re.compile(
    r"(content-(type|encoding|language|disposition)|etag|last-modified|accept-ranges|location|x-(amz|goog|ms)-meta-.*)\Z"
)
"""Headers that belong to the object. The others (dates, request numbers, cookies) belong to one answer."""
_SIGNATURES = (
    ("x-amz-signature", re.compile(r"x-amz-")),
    ("x-goog-signature", re.compile(r"x-goog-")),
    ("signature", re.compile(r"(awsaccesskeyid|googleaccessid|key-pair-id|policy|signature|expires)\Z")),
    ("sig", re.compile(r"(sv|ss|srt|st|se|sr|sp|sip|spr|sig|sdd|skoid|sktid|skt|ske|sks|skv)\Z")),
)
"""A parameter that only a signed URL has, and those that sign together with it."""
_SECRETS = ("access_token", "api_key", "apikey", "auth", "password", "token")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")


class Answer(NamedTuple):
    """An object, or a range of it, and what was told of it."""

    url: str
    """As `key_of` names it."""
    size: int
    """Of the whole object."""
    begin: int
    data: bytes | None
    """None where only its size and the like were asked for."""
    told: dict[str, Any]
    """``headers``, ``info`` (of file system libraries), ``status`` and ``url`` of an answer that leads elsewhere."""

    @property
    def mark(self) -> int:
        """What differs once the object was changed, as far as the store tells: from its ETag, or its time of last change."""
        facts = [fact for part in ("headers", "info") for fact in self.told.get(part, {}).items()]
        known = {key.lower().replace("_", "-"): value for key, value in facts}
        etag_or_date = next((str(known[key]) for key in ("etag", "e-tag", "last-modified", "lastmodified") if known.get(key)), "")
        return mark_of(etag_or_date)


def mark_of(etag_or_date: str) -> int:
    """A positive number of 63 bits for an ETag (weak or strong, quoted or not) or a date; 1 for none."""
    plain = etag_or_date.removeprefix("W/").strip('"')
    return int.from_bytes(hashlib.sha256(plain.encode()).digest()[:8], "big") >> 1 if plain else 1


class ObjectStore(ByteStore):
    """Keeps objects beside files, and answers with them."""

    def put_object(self, answer: Answer) -> None:
        """It was got."""

    def find_object(self, url: str, begin: int | None, end: int | None) -> Answer | None:
        """The object from ``begin`` to ``end``, or to its end for None; ``None, n`` are its last n bytes, and ``0, 0`` is only what
        was told of it."""
        return None


def key_of(url: str) -> str:
    """What an object is called: its URL without user, fragment and signature. Values of secrets are replaced by their digest.

    Only HTTP has fragments and queries: in other stores ``#`` and ``?`` are part of an object's name.
    """
    if not url.lower().startswith(("http://", "https://")):
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = parts.query
    if query:
        pairs = parse_qsl(query, keep_blank_values=True)
        names = {name.lower() for name, _ in pairs}
        for mark, signing in _SIGNATURES:
            if mark in names:
                pairs = [(name, value) for name, value in pairs if not signing.match(name.lower())]
        for at, (name, value) in enumerate(pairs):
            if name.lower() in _SECRETS:
                pairs[at] = name, hashlib.sha256(value.encode()).hexdigest()[:12]
        query = query if pairs == parse_qsl(query, keep_blank_values=True) else urlencode(pairs)
    return f"{parts.scheme}://{host}{parts.path}{'?' * bool(query)}{query}"


def keeper(timer: SampleTimer) -> ObjectStore | None:
    """The recording that keeps objects, while one is recorded."""
    return _objects(timer.recording) if timer.live else None


def player(timer: SampleTimer) -> ObjectStore | None:
    """The recording that answers with objects, while one is replayed."""
    return _objects(timer.playing) if timer.live and STORAGE in timer.replaced else None


def _objects(recording: ResultStore | None) -> ObjectStore | None:
    files = recording.files if recording is not None else None
    return files if isinstance(files, ObjectStore) else None


def known(timer: SampleTimer, url: str, begin: int | None = 0, end: int | None = None) -> Answer | None:
    """What the recording that is replayed answers; a miss is counted where it cannot."""
    recording = player(timer)
    if recording is None:
        return None
    answer = recording.find_object(url, begin, end)
    timer.misses += answer is None
    return answer


def noted(timer: SampleTimer, url: str) -> None:
    """A recording without a place for objects still learns which stores were asked."""
    files = timer.recording.files if timer.live and timer.recording is not None else None
    if files is not None and not isinstance(files, ObjectStore) and (store := store_of(url)) is not None:
        files.put(store, 0, b"", 0)


def keep(timer: SampleTimer, answer: Answer | None, client: str) -> None:
    """Keep what ``client``, a library, was answered; None where that was an error."""
    recording = keeper(timer)
    if recording is not None and answer is not None:
        recording.put_object(answer._replace(told={**answer.told, "client": client}))


# -- HTTP ---------------------------------------------------------------------------------------------------------------------


_inside = threading.local()


@contextmanager
def one_question() -> Iterator[bool]:
    """False inside another: libraries ask themselves again for a redirection or a retry."""
    outermost = not getattr(_inside, "asking", False)
    _inside.asking = True
    try:
        yield outermost
    finally:
        if outermost:
            _inside.asking = False


def is_question(method: str | None, url: str, body: Any) -> bool:
    """Whether a request only reads an object."""
    return (method or "GET").upper() == "GET" and not body and url.lower().startswith(("http://", "https://"))


def span(range_header: str | None) -> tuple[int | None, int | None] | None:
    """Of a Range header, or of none, begin and end as `ObjectStore.find_object` takes them; None for several ranges."""
    if not range_header:
        return 0, None
    ends = _RANGE.match(range_header.replace(" ", ""))
    if ends is None or not (ends[1] or ends[2]):
        return None
    if not ends[1]:
        return None, int(ends[2])
    return int(ends[1]), int(ends[2]) + 1 if ends[2] else None


def of_response(url: str, status: int, headers: Iterable[tuple[str, str]], body: bytes, final: str | None = None) -> Answer | None:
    """The answer that an HTTP response is; None for one that is none (an error)."""
    names = {name.lower(): value for name, value in headers}
    description: dict[str, Any] = {"headers": {name: value for name, value in sorted(names.items()) if _KEPT.match(name)}}
    begin, size = 0, len(body)
    if status in (301, 302, 303, 307, 308) and "location" in names:
        description["headers"]["location"] = key_of(names["location"])
        description["status"] = status
        body, size = b"", 0
    elif status == 206 and (ranged := _CONTENT_RANGE.match(names.get("content-range", ""))) is not None:
        begin = int(ranged[1])
        size = int(ranged[3]) if ranged[3] != "*" else begin + len(body)
    elif status != 200:
        return None
    if final is not None and final != url:
        description["url"] = key_of(final)
    return Answer(key_of(url), size, begin, body, description)


def response_of(answer: Answer, range_header: str | None) -> tuple[int, str, dict[str, str]]:
    """Status, reason and headers of the HTTP response that an answer is, to a request with this Range header."""
    data = answer.data or b""
    headers = {**answer.told.get("headers", {}), "content-length": str(len(data))}
    if "status" in answer.told:
        return int(answer.told["status"]), "Found", headers
    if not range_header:
        return 200, "OK", headers
    headers["content-range"] = f"bytes {answer.begin}-{answer.begin + len(data) - 1}/{answer.size}"
    return 206, "Partial Content", headers


def header(headers: Mapping[Any, Any] | None, name: str) -> str | None:
    """A header of a request, whatever its case and type."""
    for key, value in (headers or {}).items():
        plain = key.decode("latin-1") if isinstance(key, bytes) else str(key)
        if plain.lower() == name:
            return value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return None


class Received(NamedTuple):
    """An HTTP response that was read to its end."""

    body: bytes
    status: int
    reason: str | None
    headers: list[tuple[str, str]]
    url: str
    """Where it came from in the end."""


def received(
    client: str, timer: SampleTimer, op: str, question: tuple[str, str | None] | None, read_whole: Callable[[], Received]
) -> Received:
    """The response to a request, while recording or replaying: from the recording, or by asking, and then kept.

    ``question``: URL and Range header of a request that only reads; None for another.
    """
    url, range_header = question or ("", None)
    places = span(range_header) if question is not None else None
    recorded = known(timer, key_of(url), *places) if places is not None else None
    if recorded is not None:
        status, reason, headers = response_of(recorded, range_header)
        return Received(recorded.data or b"", status, reason, list(headers.items()), recorded.told.get("url", url))
    noted(timer, url)
    answer = timer.timed_call(STORAGE, op, read_whole, replayable=player(timer) is None)
    if question is not None:
        keep(timer, of_response(url, answer.status, answer.headers, answer.body, answer.url), client)
    return answer


def asked_of(
    client: str, timer: SampleTimer, op: str, url: str, span: tuple[int | None, int | None], ask: Callable[[], Answer],
    needed: str = "",
) -> Answer:  # fmt: skip
    """For libraries that answer with bytes: from the recording, or by asking, and then kept.

    ``needed`` is what has to be told of the object in a recorded answer.
    """

    def asking() -> Answer:
        answer = ask()
        timer.bytes_read += len(answer.data or b"")
        return answer

    recorded = known(timer, url, *span)
    if recorded is not None and (not needed or needed in recorded.told):
        return recorded
    noted(timer, url)
    # A recording without a place for objects keeps the answer as the result of the call.
    answer: Answer = timer.timed_call(STORAGE, op, asking, replayable=player(timer) is None)
    keep(timer, answer, client)
    return answer
