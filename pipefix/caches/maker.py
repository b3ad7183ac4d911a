"""Makes the record of a sample: of the bytes that it read (`SourceMaker`), or of what it holds (`TreeMaker`, all other stores)."""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipefix.caches import pictures, record
from pipefix.caches.cut import Hook
from pipefix.caches.manifest import Blueprint, Call
from pipefix.caches.witness import Reads, Witness
from pipefix.hooks.snapshot import force
from pipefix.vocabulary.errors import CacheDamaged, TargetError
from pipefix.vocabulary.nested import leaves, map_leaves
from pipefix.vocabulary.random_state import seeded
from pipefix.vocabulary.tracebacks import frames, summary
from pipefix.vocabulary.urls import is_remote


class Unreadable(ValueError):
    """A sample that came without an error and is no sample all the same."""


def name_of(path: str, root: str | None) -> str:
    """What a file is called in records: relative to the root where it lies below it; an object of a store, its URL."""
    if root is not None and path.startswith(root) and path[len(root) : len(root) + 1] == os.sep:
        path = path[len(root) + 1 :].replace(os.sep, "/")
    # Bytes that are no UTF-8 follow a NUL: no name of a file has one of its own.
    return path if is_text(path) else "\0" + os.fsencode(path).decode("latin-1")


def is_text(text: str) -> bool:
    """Whether it is UTF-8: paths, and what comes of them, need not be."""
    with contextlib.suppress(UnicodeEncodeError):
        text.encode()
        return True
    return False


def path_of(name: str, root: str | None) -> str:
    """The file that a name in a record means; names that would lead out of the root mean nothing. A URL is no file's."""
    if is_remote(name):
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


def root_of(dataset: Any, files: list[str]) -> str | None:
    """The directory below which the files lie: the dataset's own root where it has one, or what their paths share."""
    files = [file for file in files if not is_remote(file)]
    if not files:
        return None
    own = getattr(dataset, "root", None)
    if isinstance(own, (str, os.PathLike)):
        path = os.path.abspath(os.fspath(own))
        if isinstance(path, str) and all(file.startswith(os.path.join(path, "")) for file in files) and is_text(path):
            return path
    shared = os.path.commonpath([os.path.dirname(file) for file in files])
    return shared if shared != os.sep and is_text(shared) else None


def picture_files(reads: Reads) -> list[tuple[str, Any]]:
    """The images among the files of a sample, in the order in which they were opened."""
    kinds_and_reads = [(pictures.kind_of(read.head), read) for read in reads.files.values() if read.chunks]
    return [(kind, read) for kind, read in kinds_and_reads if kind is not None]


def decoded(get: Callable[[int], Any]) -> Callable[[int], Any]:
    """``get``, with the pictures of a sample decoded that were only opened: what that reads belongs to the sample."""

    def take(index: int) -> Any:
        value = get(index)
        force(value)
        return value

    return take


class SourceMaker:
    """What each sample of a part read. A range that an earlier one holds is referred to, not stored again."""

    def __init__(self, blueprint: Blueprint, witness: Witness) -> None:
        self._root = blueprint.source.root
        self._witness = witness
        witness.stop_at, witness.by_path, witness.maps = blueprint.stop_at, blueprint.by_path, blueprint.maps
        self._stored: dict[tuple[str, int, int, int], list[int]] = {}
        """Ranges that the part's records hold, by file, offset, length and checksum: place in the record, and its position."""
        self._position = 0

    def make(self, index: int, sample: Callable[[int], Any]) -> bytes:
        reads = self._witness.read_only(decoded(sample), index)
        self._position += 1
        return source_record(reads, self._root, self._stored, self._position - 1)


def source_record(reads: Reads, root: str | None, stored: dict[tuple[str, int, int, int], list[int]], position: int) -> bytes:
    """What a sample read, less the ranges that are ``stored`` by an earlier record; its own are added to those.

    A file need not be the same for every sample: some write what they unpack to one and the same file, and read it.
    """
    if reads.rewritten is not None:
        raise TargetError(
            f"A sample reads {reads.rewritten} twice, with other bytes the second time: a cache would answer with the first ones.",
            advice="Store the finished samples instead: --store sample",
        )
    payloads: list[bytes] = []
    entries: list[Any] = []
    place = 0
    for path, file_read in reads.files.items():
        name = name_of(path, root)
        pieces = []
        for offset, data in file_read.runs():
            piece = (name, offset, len(data), zlib.crc32(data))
            if piece in stored:
                pieces.append([offset, len(data), *stored[piece]])
                continue
            gap = -place % record.ALIGN
            payloads += [bytes(gap), data]
            pieces.append([offset, len(data), place + gap, -1])
            stored[piece] = [place + gap, position]
            place += gap + len(data)
        entries.append([name, file_read.size, pieces])
    return record.closed(payloads, ["S", *entries])


class TreeMaker:
    """The sample itself, its images encoded smaller or laid out as pixels."""

    def __init__(self, blueprint: Blueprint, witness: Witness) -> None:
        self._recipe, self._seeded, self._witness = blueprint.recipe, blueprint.seeded, witness
        self.images = 0
        """Images in the last sample."""

    def sample(self, index: int, sample: Callable[[int], Any]) -> Any:
        """The sample as the dataset gives it; the witness has seen the files that it read."""

        with seeded(index) if self._seeded else contextlib.nullcontext():
            value, _ = self._witness.whole(decoded(sample), index)
        if value is None:
            raise Unreadable("the dataset returned None")
        return value

    def row(self, index: int, sample: Callable[[int], Any]) -> Any:
        """The sample, its PIL images as files: those that it read, where they are these images."""
        value = self.sample(index, sample)
        if not any(map(pictures.is_pil, leaves(value))):
            return value
        files = [whole for _, read in picture_files(self._witness.files) if (whole := read.whole()) is not None]
        return map_leaves(lambda leaf: pictures.lossless(leaf, files) if pictures.is_pil(leaf) else leaf, value)

    def make(self, index: int, sample: Callable[[int], Any]) -> bytes:
        value = self.sample(index, sample)
        files = picture_files(self._witness.files)
        for kind, read in files:
            if (whole := read.whole()) is not None:
                pictures.check_whole(whole, kind)
        kinds = [kind for kind, _ in files]
        return record.encode(pictures.as_pixels(value) if self._recipe.store == "sample" else self._with_images(value, kinds))

    def _with_images(self, value: Any, kinds: Sequence[str]) -> Any:
        """The sample with its images as they are stored. ``kinds``: of the picture files that it read."""
        images = [leaf for leaf in leaves(value) if pictures.is_image(leaf)]
        self.images = len(images)
        common = kinds[0] if len(set(kinds)) == 1 else None
        each_has_a_file = len(kinds) == len(images)
        sources = iter(kinds if each_has_a_file else [common] * len(images))
        grey_kind = common if each_has_a_file else None  # a mask may be drawn from an annotation, or come before the photo
        modes = [pictures.as_pil(image)[0].mode for image in images] if len(images) > 1 else []

        def stored(leaf: Any) -> Any:
            return self._stored(leaf, next(sources), grey_kind, modes) if pictures.is_image(leaf) else leaf

        return map_leaves(stored, value)

    def _stored(self, image: Any, kind: str | None, grey_kind: str | None, modes: Sequence[str]) -> Any:
        picture, like = pictures.as_pil(image)
        labels = pictures.is_map(picture, grey_kind, modes)
        fitting = pictures.smaller(picture, self._recipe.size, labels=labels)
        if self._recipe.store == "decoded" or pictures.needs_pixels(fitting):
            return pictures.raw(fitting, like)
        orientation = pictures.orientation_of(picture)
        return pictures.encoded(fitting, kind, self._recipe.quality, like, labels=labels, orientation=orientation)


def getter(dataset: Any, hook: Hook | None) -> Callable[[int], Any]:
    """``dataset[index]``, or the one sample of ``dataset.__getitems__([index])``; of a stream the sample at that place."""
    if is_stream(dataset):
        return stream(dataset, hook)
    torch = sys.modules.get("torch.utils.data")
    abstract = torch.Dataset.__getitem__ if torch is not None else None
    has_own = getattr(type(dataset), "__getitem__", abstract) is not abstract

    def take(index: int) -> Any:
        if hook is not None:
            hook.begin()
        return dataset[index] if has_own else dataset.__getitems__([index])[0]

    return dataset.__getitem__ if hook is None and has_own else take


def as_cut(get: Callable[[int], Any], hook: Hook, call: Call, instead: str) -> Callable[[int], Any]:
    """``get``, which raises where what runs live would be run on something else than the dataset runs it on."""

    def take(index: int) -> Any:
        sample = get(index)
        if sample is not None and not hook.gave(call, sample):
            raise Unreadable(
                f"it does not hold what its transforms gave, where others do: those that run live would be run on it too.{instead}"
            )
        return sample

    return take


# -- streams: samples by their place in them; they have one reader, and end where they end


class EndOfStream(Exception):
    """There is no sample of this number."""


def is_stream(dataset: Any) -> bool:
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(dataset, torch.IterableDataset)


def stream(dataset: Any, hook: Hook | None) -> Callable[[int], Any]:
    """Samples of an iterable by their place in it: forward at no cost, backward from its beginning."""
    at = 0
    running: Iterator[Any] = iter(())
    failed: Exception | None = None
    """What the sample before raised."""

    def following(*, wanted: bool = True) -> Any:
        nonlocal at, failed
        at += 1
        try:
            value, failed = next(running), None
        except StopIteration:
            if failed is None:
                raise EndOfStream from None
            raise TargetError(
                f"The stream ended after sample {at - 2}, which raised {summary(failed)}: whether more was to come cannot be told.",
                advice="A generator ends with what it raises: let __iter__ catch what one sample raises, and go on with the next.",
                user_traceback=frames(failed),
            ) from failed
        except Exception as error:
            failed = error
            if wanted:
                raise
            return None
        return value

    def get(index: int) -> Any:
        nonlocal at, running, failed
        if not at or index < at:
            at, running, failed = 0, iter(dataset), None
        while at < index:
            following(wanted=False)
        if hook is not None:
            hook.begin()
        return following()

    return get
