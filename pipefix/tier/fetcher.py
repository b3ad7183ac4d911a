"""The one process that fills a tier: ``python -m pipefix.tier.fetcher DIR BYTES``. It ends when nobody reads from the tier.

A part is a draft until each of its blocks was found to fit its checksum, and then renamed. Room is taken on the disk before a byte
is fetched. Killed at any moment, it leaves at most a draft, which the next one removes: only who holds the lock has drafts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
import zlib
from pathlib import Path

import msgspec

from pipefix.stores.opening import open_store
from pipefix.stores.store import NoSuchObject, Span, Store
from pipefix.tier.client import CLIENTS, FETCHER, ORIGIN, WANTED, WISH, Wanted, is_locked, is_of_tier
from pipefix.vocabulary.errors import CacheDamaged, PipefixError
from pipefix.vocabulary.files import DRAFT, drafted, remove

_PIECE, _PIECES_AT_ONCE = 8 << 20, 4
_IDLE_S = 0.05
_TRIES = 4


class Fetcher:
    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.budget = folder, budget
        self._stores: dict[str, Store] = {}

    def clear(self) -> None:
        """Remove what one that was killed left."""
        for cache in self._caches():
            for path in cache.glob("parts/*"):
                remove(path, DRAFT)

    def held(self) -> int:
        """Bytes that parts take, those that are under way included."""
        return sum(path.stat().st_size for cache in self._caches() for path in cache.glob("parts/*"))

    def _caches(self) -> list[Path]:
        """Folders of ours: what else lies in the tier's directory is somebody's, whatever it holds."""
        return [path for path in sorted(self.folder.iterdir()) if is_of_tier(path)]

    def wishes(self) -> list[Path]:
        """In the order in which they were made."""
        wishes = []
        for cache in self._caches():
            for path in cache.glob(f"{WANTED}/*"):
                if WISH.match(path.name):
                    with contextlib.suppress(FileNotFoundError):
                        wishes.append((path.stat().st_mtime_ns, path.name, path))
        return [path for _, _, path in sorted(wishes)]

    def serve(self) -> bool:
        """Fulfil one wish, or tell that it cannot be; False where there is none."""
        for path in self.wishes():
            cache = path.parent.parent
            try:
                wanted = msgspec.msgpack.decode(path.read_bytes(), type=Wanted)
                if self.held() + wanted.bytes > self.budget:
                    continue
                self._fetch(cache, wanted)
            except (OSError, ValueError, PipefixError, NoSuchObject):
                pass  # it is read in the store, where whoever reads is told what is wrong
            finally:
                remove(path, WISH)
            return True
        return False

    def _fetch(self, cache: Path, wanted: Wanted) -> None:
        target = cache / wanted.name
        if Path(wanted.name).parts[:1] != ("parts",) or ".." in Path(wanted.name).parts or target.exists():
            return
        url = (cache / ORIGIN).read_text(encoding="utf-8")
        store = self._stores.setdefault(url, open_store(url))
        target.parent.mkdir(exist_ok=True)
        with drafted(target) as draft, draft.open("xb+") as file:
            if wanted.bytes and hasattr(os, "posix_fallocate"):  # not on macOS: a disk that fills up is noticed as it is written
                os.posix_fallocate(file.fileno(), 0, wanted.bytes)
            spans = [Span(wanted.name, at, min(_PIECE, wanted.bytes - at)) for at in range(0, wanted.bytes, _PIECE)]
            for first in range(0, len(spans), _PIECES_AT_ONCE):
                few = spans[first : first + _PIECES_AT_ONCE]
                for span, data in zip(few, store.ranges(few), strict=True):
                    os.pwrite(file.fileno(), data, span.begin)
            if not all(zlib.crc32(os.pread(file.fileno(), length, at)) == crc for at, length, crc in wanted.blocks):
                raise CacheDamaged(f"{store.url}/{wanted.name} is not what was written.")
            os.fsync(file.fileno())  # or a power failure may leave its length and no bytes, under its name


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another that fetches, or for a moment by one who looks whether there is one
        time.sleep(_IDLE_S)
        return False
    return True


def run(folder: Path, budget: int) -> None:
    lock = os.open(folder / FETCHER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if not any(_taken(lock) for _ in range(_TRIES)):
        return  # another fetches
    try:
        fetcher = Fetcher(folder, budget)
        fetcher.clear()
        while fetcher.serve() or is_locked(folder / CLIENTS):
            if not fetcher.wishes():
                time.sleep(_IDLE_S)
    finally:
        os.close(lock)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
