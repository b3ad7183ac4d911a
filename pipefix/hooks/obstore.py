"""obstore: ``get``, ``get_range``, ``get_ranges`` and ``head``, as functions and methods of a store. Coroutines are not cut."""

from __future__ import annotations

import datetime
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from pipefix.hooks import objects
from pipefix.hooks.objects import Answer
from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import Stage

LIBRARY = "obstore"

_STORAGE = Stage.STORAGE


class RecordedGet:
    """What ``get`` answered, from memory."""

    def __init__(self, data: bytes, meta: dict[str, Any], begin: int) -> None:
        self._data = data
        self.meta = meta
        self.attributes: dict[str, str] = {}
        self.range = (begin, begin + len(data))

    def bytes(self) -> Any:
        from obstore import Bytes

        return Bytes(self._data)

    buffer = bytes

    async def bytes_async(self) -> Any:
        return self.bytes()

    buffer_async = bytes_async

    def stream(self, min_chunk_size: int = 10 << 20) -> RecordedStream:
        return RecordedStream(self._data, min_chunk_size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.stream())

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.stream().__aiter__()


class RecordedStream:
    def __init__(self, data: bytes, each: int) -> None:
        self._data, self._each = data, max(1, each)

    def __iter__(self) -> Iterator[bytes]:
        for at in range(0, len(self._data), self._each):
            yield self._data[at : at + self._each]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


def install(timer: SampleTimer, patches: Patches) -> None:
    import obstore
    from obstore import store

    seen = {"get": _get, "get_range": _get_range, "get_ranges": _get_ranges, "head": _head}
    for name, ask in seen.items():
        label = f"obstore.{name}"
        for owner in (obstore, store.ObjectStoreMethods):
            _cut(timer, patches, owner, name, label, ask)


def _cut(timer: SampleTimer, patches: Patches, owner: Any, name: str, label: str, ask: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(held: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        if not timer.live or timer.stage is _STORAGE:
            return original(held, path, *args, **kwargs)

        def real() -> Any:
            return timer.timed_call(_STORAGE, label, original, (held, path, *args), kwargs, replayable=name != "get")

        url = _url(held, path) if timer.recording is not None or objects.player(timer) is not None else None
        if objects.keeper(timer) is None and objects.player(timer) is None:
            objects.noted(timer, url or "")
            return real()
        return real() if url is None or (name == "get" and (args or kwargs)) else ask(timer, url, real, kwargs)

    patches.replace(owner, name, wrapper, everywhere=owner.__name__ == "obstore")


def _url(held: Any, path: str) -> str | None:
    """Of an object in a store; None for stores that cannot tell where they are."""
    prefix = str(getattr(held, "prefix", None) or "").strip("/")
    within = f"{prefix}/{path}" if prefix else path
    kind = type(held).__name__
    if kind == "HTTPStore":
        return objects.key_of(f"{str(held.url).rstrip('/')}/{path}")
    config = getattr(held, "config", None) or {}
    place = {"S3Store": ("s3", "bucket"), "GCSStore": ("gs", "bucket"), "AzureStore": ("az", "container_name")}.get(kind)
    if place is not None:
        scheme, name = place
        return f"{scheme}://{config.get(name, '')}/{within}"
    return f"file:///{within}" if kind == "LocalStore" else None


def _meta(answer: Answer) -> dict[str, Any]:
    told = dict(answer.told.get("info", {}))
    if told.get("last_modified"):
        told["last_modified"] = datetime.datetime.fromisoformat(told["last_modified"])
    return told


def _told(meta: Any) -> dict[str, Any]:
    changed = meta["last_modified"]
    return {"info": {**meta, "last_modified": changed.isoformat() if changed is not None else None}}


def _get(timer: SampleTimer, url: str, real: Callable[[], Any], _: dict[str, Any]) -> Any:
    def ask() -> Answer:
        found = real()
        meta = found.meta
        return Answer(url, meta["size"], 0, bytes(found.bytes()), _told(meta))

    answer = objects.asked_of(LIBRARY, timer, url, (0, None), ask)
    return RecordedGet(answer.data or b"", _meta(answer), 0)


def _get_range(timer: SampleTimer, url: str, real: Callable[[], Any], kwargs: dict[str, Any]) -> Any:
    from obstore import Bytes

    begin, end = kwargs["start"], kwargs.get("end")
    end = begin + kwargs["length"] if end is None else end

    def ask() -> Answer:
        return Answer(url, end, begin, bytes(real()), {"size_unknown": True})

    return Bytes(objects.asked_of(LIBRARY, timer, url, (begin, end), ask).data or b"")


def _get_ranges(timer: SampleTimer, url: str, real: Callable[[], Any], kwargs: dict[str, Any]) -> Any:
    from obstore import Bytes

    starts, ends = list(kwargs["starts"]), kwargs.get("ends")
    ends = [start + length for start, length in zip(starts, kwargs["lengths"], strict=True)] if ends is None else list(ends)
    found = [objects.known(timer, url, begin, end) for begin, end in zip(starts, ends, strict=True)]
    known = [one for one in found if one is not None]
    if len(known) < len(starts):
        parts = [bytes(part) for part in real()]
        known = [Answer(url, *place, {"size_unknown": True}) for place in zip(ends, starts, parts, strict=True)]
        for answer in known:
            objects.keep(timer, answer, LIBRARY)
    return [Bytes(answer.data or b"") for answer in known]


def _head(timer: SampleTimer, url: str, real: Callable[[], Any], _: dict[str, Any]) -> Any:
    found = objects.known(timer, url, 0, 0)
    if found is not None and "info" in found.told:
        return _meta(found)
    meta = real()
    objects.keep(timer, Answer(url, meta["size"], 0, None, _told(meta)), LIBRARY)
    return meta
