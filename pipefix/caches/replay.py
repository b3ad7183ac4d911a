"""Runs unmodified dataset code on a ``source`` cache: its hooks answer reads of files with the recorded bytes.

The cache is asked by sample: its record names the files that it read, and a file is looked for among those. What is not there is
read from the file system as ever, and counted. One set of hooks serves every cache that a process replays.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
import weakref
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import msgspec

from pipefix.caches import record
from pipefix.caches.maker import path_of
from pipefix.caches.witness import NOT_DATA, REPLAYING
from pipefix.hooks.install import install_all
from pipefix.hooks.object_answers import CLIENTS, HEAD, Answer, ObjectStore
from pipefix.hooks.patches import Patches
from pipefix.hooks.result_store import ResultStore
from pipefix.hooks.sample_timer import UntimedTimer
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.stage import Stage
from pipefix.vocabulary.urls import is_remote

BYTE_READERS = ("files", "os_calls", "mmap", "numpy", "cv2", "torchvision_io", "h5py", "urllib", "urllib3", "fsspec",
                "obstore", "s3torchconnector")  # fmt: skip
"""The hooks that can answer with the bytes of a file. Others would only be in the way of the training program."""
_INSTALL_AGAIN = 64
"""Samples between two looks for libraries that were imported meanwhile: the first few samples bring most."""

_Place = Annotated[int, msgspec.Meta(ge=0)]
Piece = tuple[_Place, _Place, _Place, int]
"""Offset in the file, length, place in the record, and the position in the part of the record that holds it (-1: this one)."""
Entry = tuple[str, int, list[Piece]]
"""A file's name, its size, and what is held of it."""


class _Told(TypedDict, total=False):
    """What was told of an object besides its bytes."""

    headers: dict[str, Annotated[str, msgspec.Meta(pattern=r"\A[^\n]*\Z")]]
    info: dict[str, Any]
    attributes: dict[str, Any]
    status: int
    url: str
    client: str
    size_unknown: bool


_TOLD: Any = msgspec.json.Decoder(_Told)


class Shelf(ObjectStore):
    """The files of one sample at a time. Nothing is recorded while replaying."""

    def __init__(self, root: str | None) -> None:
        self._root = root
        self._base = os.path.join(root, "") if root is not None else None
        self._known: dict[str, tuple[int, list[Piece]]] = {}
        self.not_data = 0
        """Files of libraries that were asked for: they read them when they are first used, and no cache holds them."""

    def turn_to(self, taken: memoryview, get: Callable[[int], memoryview]) -> None:
        """``get``: the record at a position of the part that the sample is in."""
        self._record, self._get = taken, get
        known = {}
        for name, size, pieces in entries(taken):
            plain = self._base is not None and name[:1] not in ("/", "\0") and ".." not in name and not is_remote(name)
            known[f"{self._base}{name}" if plain else path_of(name, self._root)] = (size, pieces)
        self._known = known

    def clients(self) -> set[str]:
        """The libraries by which this sample got objects."""
        heads = [self._told(name.removeprefix(HEAD)) for name in self._known if name.startswith(HEAD)]
        return {head["client"] for head in heads if head is not None and head.get("client") in CLIENTS}

    def knows(self, path: str) -> bool:
        known = path in self._known
        self.not_data += not known and path.startswith(NOT_DATA)
        return known

    def size(self, path: str) -> int:
        return self._known[path][0]

    def whole(self, path: str) -> bytes | None:
        return self._range(path, 0, self.size(path)) if path in self._known else None

    def get(self, path: str, offset: int, count: int) -> bytes | None:
        known = self._known.get(path)
        if known is None:
            self.not_data += path.startswith(NOT_DATA)
            return None
        size, pieces = known
        if offset >= size or count == 0:
            return b""
        for begin, length, place, holder in pieces:
            if begin <= offset < begin + length:
                skipped, held = offset - begin, self._record if holder < 0 else self._get(holder)
                return bytes(piece_of(held, place + skipped, min(count, length - skipped)))
        return None

    def find_object(self, url: str, begin: int | None, end: int | None) -> Answer | None:
        head = self._told(url)
        if head is None or url not in self._known or ("size_unknown" in head and (begin is None or end is None)):
            return None
        size = self.size(url)
        if begin is None:
            begin, end = max(0, size - (end or 0)), size
        data = self._range(url, begin, size if end is None else min(end, size))
        return Answer(url, size, begin, data, head) if data is not None else None

    def _told(self, url: str) -> dict[str, Any] | None:
        """What was told of an object; None for one that is not known."""
        head = self.whole(HEAD + url)
        if head is None:
            return None
        try:
            description: dict[str, Any] = _TOLD.decode(head)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: text that is not UTF-8
            raise CacheDamaged(f"What a record says of {url} makes no sense: {error}.") from error
        return description

    def _range(self, path: str, begin: int, end: int) -> bytes | None:
        """From ``begin`` to ``end``; None where some of it was not recorded."""
        parts = []
        while begin < end:
            data = self.get(path, begin, end - begin)
            if not data:
                return None
            parts.append(data)
            begin += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def piece_of(held: memoryview, place: int, length: int) -> memoryview:
    """A piece of a file, in the record that holds it."""
    piece = held[place : place + length]
    if len(piece) != length:
        raise CacheDamaged("A record of the source store refers to bytes that no record holds.")
    return piece


def check(taken: memoryview, get: Callable[[int], memoryview]) -> None:
    """Raise where a record does not hold, or refer to, all that it names."""
    for _, _, pieces in entries(taken):
        for _, length, place, holder in pieces:
            piece_of(taken if holder < 0 else get(holder), place, length)


def entries(taken: memoryview) -> list[Entry]:
    """The files that a record of the ``source`` store names."""
    description = record.description(taken)
    if not isinstance(description, list) or not description or description[0] != "S":
        raise CacheDamaged("A record of the source store does not say which files it holds.")
    try:
        return msgspec.convert(description[1:], list[Entry])
    except msgspec.ValidationError:
        raise CacheDamaged("A record of the source store names a file in a way that makes no sense.") from None


class Replayer(ResultStore):
    """The process's one timer for replaying."""

    def __init__(self) -> None:
        self.timer = UntimedTimer()
        self.timer.active = True
        self._patches = Patches()
        self._samples = 0
        self.files: Shelf | None = None
        self._told = False
        install_all(self.timer, self._patches, BYTE_READERS)
        REPLAYING.append(self._patches)

    def run(self, shelf: Shelf, make: Callable[[int], Any], index: int) -> Any:
        """The sample, its files answered by ``shelf``."""
        self._samples += 1
        early = self._samples <= 4
        for client in shelf.clients() if early else ():  # a sample that imports its client itself would be past the hook by then
            with contextlib.suppress(ImportError):
                importlib.import_module(client)
        if early or self._samples % _INSTALL_AGAIN == 0:
            install_all(self.timer, self._patches, BYTE_READERS)
        timer = self.timer
        before = timer.misses
        self.files = shelf
        timer.playing = self
        timer.replaced = frozenset({Stage.STORAGE})
        timer.begin(index)
        try:
            return make(index)
        finally:
            timer.end()
            timer.replaced, timer.playing = frozenset(), None
            timer.misses = max(before, timer.misses - shelf.not_data)
            shelf.not_data = 0
            if timer.misses != before and not self._told:
                self._told = True
                told = f"Sample {index} read what the cache does not hold; it came from the files themselves (see `misses`)."
                warnings.warn(told, RuntimeWarning, stacklevel=4)

    def close(self) -> None:
        self.timer.active = False
        REPLAYING.remove(self._patches)
        self._patches.undo()


_replayer: Replayer | None = None
_readers: dict[int, weakref.finalize[..., Any]] = {}
"""By the id of each object that samples were replayed for, what is done when it goes."""


def replayer(reader: object) -> Replayer:
    """The process's one, for samples of ``reader``. Its hooks stay in place until the last reader is gone, or leaves."""
    global _replayer
    if _replayer is None:
        _replayer = Replayer()
    if id(reader) not in _readers:
        gone = _readers[id(reader)] = weakref.finalize(reader, leave, id(reader))
        gone.atexit = False
    return _replayer


def leave(reader: int) -> None:
    """No more samples are replayed for the reader of this id. After the last, what the hooks replaced is put back."""
    gone = _readers.pop(reader, None)
    if gone is not None:
        gone.detach()
        if not _readers:
            stop()


def misses() -> int:
    """Reads in this process that no cache could answer, since the hooks were installed."""
    return _replayer.timer.misses if _replayer is not None else 0


def stop() -> None:
    """Take the hooks out again."""
    global _replayer
    for gone in _readers.values():
        gone.detach()
    _readers.clear()
    if _replayer is not None:
        _replayer.close()
        _replayer = None
