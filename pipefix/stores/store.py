"""The interface of stores of objects (a folder, or a bucket with a prefix), which counts every request in its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.urls import is_remote


class Span(NamedTuple):
    """A range of an object."""

    name: str
    begin: int
    length: int


@dataclass
class RequestLedger:
    """What was asked of a store, and what crossed."""

    requests: dict[str, int] = field(default_factory=dict)
    """By kind: get, range, put, list."""
    received: int = 0
    sent: int = 0

    def count(self, kind: str, *, requests: int = 1, received: int = 0, sent: int = 0) -> None:
        self.requests[kind] = self.requests.get(kind, 0) + requests
        self.received += received
        self.sent += sent


class NoSuchObject(Exception):
    """There is no object of this name; whoever asked knows what that means."""


class Store(Protocol):
    url: str
    ledger: RequestLedger

    def get(self, name: str) -> bytes:
        """A whole object; raises `NoSuchObject`."""

    def ranges(self, spans: Sequence[Span]) -> list[bytes]:
        """Many ranges, fetched at the same time; one that lies beyond its object's end comes short."""

    def put(self, name: str, data: bytes | Path, *, if_absent: bool = False) -> bool:
        """An object appears whole or not at all. With ``if_absent`` False where there is one of this name already; of several who
        try at once one succeeds."""

    def list(self) -> dict[str, int]:
        """Names and sizes of all objects: all that is there but what is being written, links and pipes too."""


def is_store(place: object) -> bool:
    """Whether this names a store rather than a folder's path."""
    if isinstance(place, PurePath) and is_remote(url := str(place).replace(":/", "://", 1)):
        raise BadUsage(f"{place} was a URL until it was made a path.", advice=f'Give it as text: "{url}"')
    return isinstance(place, str) and is_remote(place)
