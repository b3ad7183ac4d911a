"""obstore: ``get``, ``get_range``, ``get_ranges`` and ``head``, as functions and methods of a store. Coroutines are not cut."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterator
from typing import Any

from pipefix.hooks import object_answers
from pipefix.hooks.calls import STORAGE, Patches, SampleTimer, hook
from pipefix.hooks.object_answers import Answer

LIBRARY = "obstore"


class RecordedGet:
    """What ``get`` answered, from memory."""

    def __init__(self, answer: Answer) -> None:
        self._data = answer.data or b""
        self.meta = _meta(answer)
        self.attributes: dict[str, str] = answer.told.get("attributes", {})
        self.range = (0, len(self._data))

    def bytes(self) -> Any:
        from obstore import Bytes

        return Bytes(self._data)

    buffer = bytes

    def stream(self, min_chunk_size: int = 10 << 20) -> Iterator[Any]:
        for at in range(0, len(self._data), max(1, min_chunk_size)):
            yield self._data[at : at + max(1, min_chunk_size)]

    __iter__ = stream


def install(timer: SampleTimer, patches: Patches) -> None:
    import obstore
    from obstore import store

    methods = vars(store).get("ObjectStoreMethods") or vars(store)["_ObjectStoreMixin"]  # as older releases call it
    for name, ask in {"get": _get, "get_range": _get_range, "get_ranges": _get_ranges, "head": _head}.items():
        for owner in (obstore, methods):
            _cut(timer, patches, owner, name, ask)


def _cut(timer: SampleTimer, patches: Patches, owner: Any, name: str, ask: Callable[..., Any]) -> None:
    original, op = getattr(owner, name), f"obstore.{name}"

    @hook(timer, patches, owner, name)
    def asked(held: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        if timer.stage is STORAGE:
            return original(held, path, *args, **kwargs)
        url = _url(held, path) if timer.tapes(STORAGE) else None
        if url is None or (name == "get" and (args or kwargs)):
            value = timer.timed_call(STORAGE, op, original, (held, path, *args), kwargs, replayable=name != "get")
            timer.bytes_read += sum(map(len, value if name == "get_ranges" else [value] if name == "get_range" else []))
            return value
        answered = functools.partial(object_answers.asked_of, LIBRARY, timer, op, url)
        return ask(answered, functools.partial(original, held, path, *args, **kwargs), url, kwargs)


def _url(held: Any, path: str) -> str | None:
    """Of an object in a store; None for stores that cannot tell where they are."""
    prefix = str(getattr(held, "prefix", None) or "").strip("/")
    within = f"{prefix}/{path}" if prefix else path
    kind = type(held).__name__
    if kind == "HTTPStore":
        escaped = path.replace("#", "%23").replace("?", "%3F")  # as they are sent
        return object_answers.key_of(f"{str(held.url).rstrip('/')}/{escaped}")
    stores = {"S3Store": ("s3", "bucket"), "GCSStore": ("gs", "bucket"), "AzureStore": ("az", "container_name"),
              "LocalStore": ("file", "")}  # fmt: skip
    scheme, name = stores.get(kind, ("", ""))
    return f"{scheme}://{(getattr(held, 'config', None) or {}).get(name, '')}/{within}" if scheme else None


def _meta(answer: Answer) -> dict[str, Any]:
    info = dict(answer.told.get("info", {}))
    if info.get("last_modified"):
        info["last_modified"] = datetime.datetime.fromisoformat(info["last_modified"])
    return info


def _told(meta: Any) -> dict[str, Any]:
    changed = meta["last_modified"]
    return {"info": {**meta, "last_modified": changed.isoformat() if changed is not None else None}}


def _get(answered: Callable[..., Answer], real: Callable[[], Any], url: str, _: dict[str, Any]) -> Any:
    def ask() -> Answer:
        result = real()
        description = {**_told(result.meta), "attributes": dict(result.attributes)}
        return Answer(url, result.meta["size"], 0, bytes(result.bytes()), description)

    return RecordedGet(answered((0, None), ask))


def _get_range(answered: Callable[..., Answer], real: Callable[[], Any], url: str, kwargs: dict[str, Any]) -> Any:
    several = {f"{name}s": [place] for name, place in kwargs.items() if place is not None}
    return _get_ranges(answered, lambda: [real()], url, several)[0]


def _get_ranges(answered: Callable[..., Answer], real: Callable[[], Any], url: str, kwargs: dict[str, Any]) -> Any:
    from obstore import Bytes

    starts, ends = list(kwargs["starts"]), kwargs.get("ends")
    ends = [start + length for start, length in zip(starts, kwargs["lengths"], strict=True)] if ends is None else list(ends)
    parts = functools.cache(lambda: [bytes(part) for part in real()])  # one request, as soon as one of them is not known

    def part(at: int) -> Answer:
        return Answer(url, ends[at], starts[at], parts()[at], {"size_unknown": True})

    spans = enumerate(zip(starts, ends, strict=True))
    return [Bytes(answered(span, functools.partial(part, at)).data or b"") for at, span in spans]


def _head(answered: Callable[..., Answer], real: Callable[[], Any], url: str, _: dict[str, Any]) -> Any:
    def ask() -> Answer:
        meta = real()
        return Answer(url, meta["size"], 0, None, _told(meta))

    return _meta(answered((0, 0), ask, "info"))
