"""Facts about where samples come from: the object stores that a dataset names, and what the probe timed and counted of reading:
seconds of a request to a store, and what is unpacked and not used (chunks, row groups, frames of a video)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pipefix.audit.facts import AmplifiedReads, ObjectStoreFacts
from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.urls import store_of

_DEEPEST = 3
_FIRST = 8
"""Entries of a container that are looked at."""
_CLIENTS = ("urllib.request.", "urllib3.", "requests.", "fsspec.", "obstore.", "s3torchconnector.", "http.client.get")
"""Operations that are a request each."""
_DECODED = ("av.decode", "av.Packet.decode")
"""Operations that are a frame each, whether it is used or not."""
_USED = "av.VideoFrame."
"""And those that hand one over."""


def store_in(dataset: Any) -> ObjectStoreFacts | None:
    return named(_stores(dataset, 0))


def named(stores: Iterable[str]) -> ObjectStoreFacts | None:
    distinct = list(dict.fromkeys(stores))
    more = f" and {len(distinct) - 1} more" if len(distinct) > 1 else ""
    return ObjectStoreFacts(name=f"{distinct[0]}{more}") if distinct else None


def timed(stores: Iterable[str], operations: Iterable[Any], bytes_read: float | None) -> ObjectStoreFacts | None:
    """The stores that were seen to be asked, with what the ``operations`` (`OpCost`) of storage took a sample."""
    store = named(stores)
    asking = [operation for operation in operations if operation.name.startswith(_CLIENTS)]
    calls = sum(operation.calls for operation in asking)
    if store is None or not calls:
        return store
    spent = sum(operation.wall_s for operation in asking)
    rate = bytes_read / spent if bytes_read and spent else None
    return ObjectStoreFacts(name=store.name, requests=calls, request_s=spent / calls, bytes_per_s=rate)


def _stores(value: Any, depth: int) -> Iterator[str]:
    if type(value) is str:
        if (store := store_of(value)) is not None:
            yield store
    elif depth < _DEEPEST and type(value) in (list, tuple, dict):
        for member in islice(value.values() if type(value) is dict else value, _FIRST):
            yield from _stores(member, depth + 1)
    elif depth < _DEEPEST:
        for member in attributes(value).values():
            if hasattr(type(member), "__getitem__"):
                yield from _stores(member, depth + 1)


def amplified(reads: Iterable[Any], operations: Iterable[Any], sample_bytes: float) -> list[AmplifiedReads]:
    """What samples have unpacked: ``reads`` (`Unpacked`) of arrays and tables, and ``operations`` (`OpCost`) that decode frames.

    ``sample_bytes``: of a finished sample; 0 where that is not known. What no selection tells is held against these.
    """
    divided = [
        AmplifiedReads(read.name, "chunks" if read.chunk else "row groups", read.asked or sample_bytes, read.unpacked, read.chunk)
        for read in reads
    ]
    return [*divided, *_frames(list(operations))]


def _frames(operations: list[Any]) -> list[AmplifiedReads]:
    decoded = [operation for operation in operations if operation.name in _DECODED]
    used = sum(operation.calls for operation in operations if operation.name.startswith(_USED))
    if not decoded or not used:
        return []
    most = max(decoded, key=lambda operation: operation.calls)
    return [AmplifiedReads(most.name, "frames", used, most.calls)]
