"""Reads a cache in an object store: the manifest and indices when it is opened, records by ranges as they are asked for.

The chain of trust is that of a cache on a disk: manifest -> index -> block. No byte is used before its checksum was found to fit,
every time that it crossed the network. A part that lies in a local tier is read there instead.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pipefix.caches import manifest as manifests
from pipefix.caches.index import DataFile, Index, Parts
from pipefix.caches.layout import FOLDERS, MANIFEST, beside
from pipefix.caches.manifest import Manifest, Part
from pipefix.stores.store import NoSuchObject, Span, Store
from pipefix.tier.client import WISH, Tier, Wanted
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import BadUsage, CacheDamaged, UnreadableFile
from pipefix.vocabulary.files import remove
from pipefix.vocabulary.quantity import size

_PIECE = 32 << 20
_AGAIN = 2
"""Times that a block whose checksum does not fit is fetched once more: networks flip bytes as well."""


def read_manifest(store: Store) -> Manifest:
    try:
        text = store.get(MANIFEST)
    except NoSuchObject:
        raise UnreadableFile(
            f"{store.url} is not a pipefix cache: it has no {MANIFEST}.",
            advice="Make one, or go on with one that was begun: "
            + command("pipefix", "convert", "TARGET", "--to", "lmdb", "--out", store.url),
        ) from None
    return manifests.of_text(text, f"{store.url}/{MANIFEST}")


class RemoteFile:
    """A data file in a store: what `DataFile` is on a disk."""

    def __init__(self, store: Store, name: str, part: Part, index: Index, ahead: dict[Span, bytes]) -> None:
        self.path, self.size = f"{store.url}/{name}", part.bytes
        index.check(part, self.path)
        self.index: Index | None = None
        self._store, self._name = store, name
        self._place = index.places()
        self._ahead = ahead
        """What was fetched and is yet to be read."""

    def span(self, number: int) -> Span:
        try:
            offset, length, _ = self._place(number)
        except IndexError:
            raise CacheDamaged(f"{self.path}: record {number} is not in its index.") from None
        return Span(self._name, offset, length)

    def read(self, number: int) -> memoryview:
        span = self.span(number)
        data = self._ahead.pop(span, None)
        for attempt in range(_AGAIN + 1):
            if data is not None and len(data) == span.length and zlib.crc32(data) == self._place(number)[2]:
                return memoryview(bytearray(data))
            try:
                data = self._store.ranges([span])[0] if attempt < _AGAIN else None
            except NoSuchObject:
                raise CacheDamaged(f"{self.path} is missing.") from None
        raise CacheDamaged(f"{self.path} is damaged: {span.length} bytes at {span.begin} do not fit their checksum.")


class TierFile(DataFile):
    """A data file in the tier; read in the store as soon as the tier's disk does not give what was written."""

    def __init__(self, path: Path, part: Part, index: Index, far: Callable[[], RemoteFile], *, scattered: bool) -> None:
        self._far = far
        self._instead: RemoteFile | None = None
        try:
            super().__init__(path, part, index, scattered=scattered)
        except CacheDamaged as error:
            self._instead = self._given_up(path, error)

    def read(self, number: int) -> memoryview:
        if self._instead is None:
            try:
                return super().read(number)
            except (CacheDamaged, OSError) as error:
                self._instead = self._given_up(self.path, error)
        return self._instead.read(number)

    def _given_up(self, path: Path, error: Exception) -> RemoteFile:
        told = f"{str(error).rstrip('.')}: this copy in the tier is removed, and read in the store."
        warnings.warn(told, RuntimeWarning, stacklevel=3)
        with contextlib.suppress(OSError):
            remove(path, WISH)
        return self._far()


class RemoteParts(Parts):
    """The data files of a cache in a store, each read in the tier once it lies there."""

    def __init__(self, store: Store, manifest: Manifest, tier: Tier | None) -> None:
        self._ahead: dict[Span, bytes] = {}
        """Blocks of the last batch that are yet to be read; each is compared with its checksum then."""
        super().__init__(Path(store.url), manifest.parts, manifest.recipe.container)
        smallest = min((part.bytes for part in manifest.parts[:-1] or manifest.parts), default=0)  # the last one is a rest
        if tier is not None and tier.budget < smallest:
            told = f"The tier {tier.folder} may take {size(tier.budget)}, and a part of {store.url} has {size(smallest)} or more."
            raise BadUsage(told, advice=f"Give it room for parts of the {size(manifest.bytes)} that there are, or leave tier out.")
        self.store = store
        self.tier = tier.of_cache(store.url, manifest.digest) if tier is not None else None

    def _opened(self, number: int) -> Any:
        part, name = self.parts[number], self._name(number)
        index_name = beside(Path(name), ".idx").as_posix()
        try:
            index = Index.parse(self.store.get(index_name), part, f"{self.store.url}/{index_name}")
        except NoSuchObject:
            raise CacheDamaged(f"{self.store.url}/{index_name} is missing.") from None
        blocks = index.blocks[["offset", "length", "crc"]].tolist()
        local = self.tier.part(Wanted(name, part.bytes, blocks)) if self.tier is not None else None
        far = partial(RemoteFile, self.store, name, part, index, self._ahead)
        file = TierFile(local, part, index, far, scattered=self.scattered) if local is not None else far()
        return self._keeping(number, file, index)

    def __getitem__(self, number: int) -> Any:
        file = self.files[number]
        if isinstance(file, RemoteFile) and self.tier is not None and self.tier.arrived(self._name(number)):
            file = None
        return self._opened(number) if file is None else file

    def _name(self, number: int) -> str:
        return self.parts[number].data(number, self.container).as_posix()

    def fetch(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Blocks, by part and number, all at the same time; those that lie in the tier are not."""
        self._ahead.clear()
        files = [(self[number], block) for number, block in dict.fromkeys(blocks)]
        spans = [file.span(block) for file, block in files if isinstance(file, RemoteFile)]
        try:
            contents = self.store.ranges(spans) if spans else []
        except NoSuchObject as error:
            raise CacheDamaged(f"{self.store.url}/{error} is missing.") from None
        self._ahead.update(zip(spans, contents, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ahead": {}}


@contextlib.contextmanager
def brought(store: Store, manifest: Manifest, number: int) -> Iterator[Path]:
    """A directory as that of a cache, with the files of one part; one that is missing in the store is missing in it."""
    part = manifest.parts[number]
    data = part.data(number, manifest.recipe.container)
    with tempfile.TemporaryDirectory(prefix="pipefix-verify-") as place:
        folder = Path(place)
        for name in FOLDERS:
            (folder / name).mkdir()
        with (folder / data).open("wb") as file, contextlib.suppress(NoSuchObject):
            for at in range(0, part.bytes, _PIECE):
                file.write(store.ranges([Span(data.as_posix(), at, min(_PIECE, part.bytes - at))])[0])
        for path in (beside(data, ".idx"), beside(data, ".facts")):
            with contextlib.suppress(NoSuchObject):
                (folder / path).write_bytes(store.get(path.as_posix()))
        yield folder
