"""Makes the records of samples, one store a class: what a sample read, what it is once decoded, or its fields as a row."""

from __future__ import annotations

import contextlib
import itertools
import os
from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

from pipefix.caches import pictures, record
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.cut import Hook
from pipefix.caches.witness import Reads, Witness
from pipefix.hooks.snapshot import force
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.nested import leaves, map_leaves
from pipefix.vocabulary.random_state import seeded
from pipefix.vocabulary.urls import is_far

File = tuple[str, int, int]
"""Name, size and time of last change in nanoseconds."""


class Unreadable(ValueError):
    """A sample that came without an error and is no sample all the same."""


def name_of(path: str, root: str | None) -> str:
    """What a file is called in records: relative to the root where it lies below it; an object of a far store, its URL."""
    if root is not None and path.startswith(root) and path[len(root) : len(root) + 1] == os.sep:
        path = path[len(root) + 1 :].replace(os.sep, "/")
    try:
        path.encode()
    except UnicodeEncodeError:
        return "\0" + os.fsencode(path).decode("latin-1")  # bytes that are no UTF-8; no name of a file has a NUL of its own
    return path


def path_of(name: str, root: str | None) -> str:
    """The file that a name in a record means; names that would lead out of the root mean nothing. A URL is no file's."""
    if is_far(name):
        return name
    if name.startswith("\0"):
        try:
            name = os.fsdecode(name[1:].encode("latin-1"))
        except UnicodeEncodeError:
            raise CacheDamaged(f"The name {name!r} is not that of a file.") from None
    if os.path.isabs(name) or root is None:
        return name
    path = os.path.normpath(os.path.join(root, name))
    if not path.startswith(os.path.join(root, "")):
        raise CacheDamaged(f"The name {name!r} leads out of the directory that the cache was made from.")
    return path


def picture_files(reads: Reads) -> list[tuple[str, Any]]:
    """The images among the files of a sample, in the order in which they were opened."""
    found = [(pictures.kind_of(read.head), read) for read in reads.files.values() if read.pieces]
    return [(kind, read) for kind, read in found if kind is not None]


class SourceMaker:
    """What each sample read. A range that an earlier sample of the part holds is referred to, not stored again."""

    def __init__(self, blueprint: Blueprint, witness: Witness) -> None:
        self.reads = Reads()
        self._root = blueprint.root
        self._witness = witness
        witness.stop_at, witness.by_path, witness.maps = blueprint.stop_at, blueprint.by_path, blueprint.maps
        self._stored: dict[str, list[tuple[int, int, int, int]]] = {}
        """By file the ranges that the part's records hold, sorted: begin, length, position of the record, place in it."""
        self._position = 0

    def begin(self) -> None:
        self._stored, self._position = {}, 0

    def make(self, index: int, sample: Callable[[int], Any]) -> bytes:
        try:
            self._witness.read_only(sample, index)
        finally:
            self.reads = self._witness.timer.reads
        return self._record(self.reads)

    def _record(self, reads: Reads) -> bytes:
        payloads: list[bytes] = []
        place = 0
        told: list[Any] = []
        for path, found in reads.files.items():
            name = name_of(path, self._root)
            pieces = []
            for offset, data in found.runs():
                known = self._known(name, offset, len(data))
                if known is not None:
                    pieces.append(known)
                    continue
                gap = -place % record.ALIGN
                payloads += [bytes(gap), data] if gap else [data]
                place += gap
                pieces.append([offset, len(data), place, -1])
                insort(self._stored.setdefault(name, []), (offset, len(data), self._position, place))
                place += len(data)
            told.append([name, found.size, pieces])
        self._position += 1
        return record.closed(payloads, ["S", *told])

    def _known(self, name: str, offset: int, length: int) -> list[int] | None:
        stored = self._stored.get(name, [])
        number = bisect_right(stored, offset, key=lambda held: held[0]) - 1
        if number < 0:
            return None
        begin, size, position, place = stored[number]
        return [offset, length, place + offset - begin, position] if offset + length <= begin + size else None


class TreeMaker:
    """The sample itself, its images encoded smaller or laid out as pixels."""

    def __init__(self, blueprint: Blueprint, witness: Witness) -> None:
        self.reads = Reads()
        self._recipe = blueprint.recipe
        self._seeded = blueprint.seeded
        self._witness = witness
        self.images = 0
        """Images in the last sample."""

    def begin(self) -> None:
        """Every record stands for itself."""

    def sample(self, index: int, sample: Callable[[int], Any]) -> Any:
        """The sample as the dataset gives it, with the files that it read in ``reads``."""

        def decoded(index: int) -> Any:
            value = sample(index)
            force(value)
            return value

        try:
            with seeded(index) if self._seeded else contextlib.nullcontext():
                value, _ = self._witness.whole(decoded, index)
        finally:
            self.reads = self._witness.timer.reads
        if value is None:
            raise Unreadable("the dataset returned None")
        return value

    def row(self, index: int, sample: Callable[[int], Any]) -> Any:
        """The sample, its PIL images as files: those that it read, where they are these images."""
        value = self.sample(index, sample)
        if not _has_pil(value):
            return value
        files = [whole for _, read in picture_files(self.reads) if (whole := read.whole()) is not None]
        return self._mapped(value, lambda image, _: pictures.lossless(image, files), pictures.is_pil)

    def make(self, index: int, sample: Callable[[int], Any]) -> bytes:
        value = self.sample(index, sample)
        files = picture_files(self.reads)
        for kind, read in files:
            whole = read.whole()
            if whole is not None:
                pictures.check_whole(whole, kind)
        if self._recipe.store == "sample":
            return record.encode(self._mapped(value, lambda image, _: pictures.raw(*pictures.as_pil(image)), pictures.is_pil))
        return record.encode(self._with_images(value, [kind for kind, _ in files]))

    def _with_images(self, value: Any, kinds: list[str]) -> Any:
        found = [leaf for leaf in leaves(value) if pictures.is_image(leaf)]
        self.images = len(found)
        one_each = len(kinds) == len(found)
        common = kinds[0] if kinds and len(set(kinds)) == 1 else None
        sources = kinds if one_each else [common] * len(found)
        photos = sum(pictures.as_pil(one)[0].mode in ("RGB", "CMYK", "RGBA") for one in found) if len(found) > 1 else 0
        return self._mapped(value, lambda image, place: self._stored(image, sources[place], photos > 0), pictures.is_image)

    def _stored(self, image: Any, kind: str | None, beside_a_photo: bool) -> Any:
        size, recipe = self._recipe.size, self._recipe
        told, like = pictures.as_pil(image)
        labels = pictures.is_map(told, kind, beside_a_photo and told.mode not in ("RGB", "CMYK", "RGBA"))
        fitting = pictures.smaller(pictures.upright(told), size, labels=labels)
        if recipe.store == "decoded":
            return pictures.raw(fitting, like)
        return pictures.encoded(fitting, kind, recipe.quality, like, labels=labels)

    def _mapped(self, value: Any, change: Callable[[Any, int], Any], wanted: Callable[[Any], bool]) -> Any:
        """The tree with its images changed, in the order in which they are met."""
        counter = itertools.count()
        return map_leaves(lambda leaf: change(leaf, next(counter)) if wanted(leaf) else leaf, value)


def _has_pil(value: Any) -> bool:
    return any(map(pictures.is_pil, leaves(value)))


def getter(dataset: Any, hook: Hook | None) -> Callable[[int], Any]:
    """``dataset[index]``, or the one sample of ``dataset.__getitems__([index])``."""
    if hasattr(type(dataset), "__getitem__") and type(dataset).__getitem__ is not _abstract():
        take: Callable[[int], Any] = dataset.__getitem__
    else:

        def take(index: int) -> Any:
            return dataset.__getitems__([index])[0]

    if hook is None:
        return take

    def hooked(index: int) -> Any:
        hook.begin()
        return take(index)

    return hooked


def _abstract() -> Any:
    import sys

    torch = sys.modules.get("torch.utils.data")
    return torch.Dataset.__getitem__ if torch is not None else None


def told(error: BaseException, reads: Reads) -> tuple[str, list[str]]:
    """One line on what went wrong with a sample, and the files it read until then."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - the user's own __str__
        text = ""
    line = text.splitlines()[0][:300].encode("utf-8", "backslashreplace").decode() if text else ""
    named = getattr(error, "filename", None)
    files = list(reads.files) or ([os.fsdecode(named)] if isinstance(named, (str, bytes)) else [])
    return f"{type(error).__name__}: {line}" if line else type(error).__name__, files
