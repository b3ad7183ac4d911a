"""Reads parts of a remote cache through a tier, a local folder of bounded size: from there once they have arrived, else remotely.

One process a tier fetches (`pipefix.tier.fetcher`). It is started by whoever wishes for something while none runs, and leaves once
nobody holds the tier any more: readers hold a shared lock, which the system takes from them however they end.

Parts come in the order in which they were first wanted, as long as the budget has room (a smaller one may follow one too large);
none goes. Each is read once an epoch, in an order that differs every time. So whatever is thrown out for another is as likely to be
wanted next as what it was thrown out for: over epochs, keeping half of the parts answers half of the reads, and the least recently
used half answers a sixth.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipefix.vocabulary import amounts
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.files import write_whole

CLIENTS, FETCHER, WANTED, ORIGIN = "clients.lock", "fetcher.lock", "wanted", "origin"
WISH = re.compile(r"\d+(-\d+)?(\.(mdb|parquet))?\Z")
"""What files of wishes are called: as the part that is wanted."""
_KEY = re.compile(r"[0-9a-f]{24}\Z")
"""What the folders of caches are called."""


class Wanted(msgspec.Struct, frozen=True):
    """A part that is wished for, and what its bytes must be."""

    name: str
    bytes: int
    blocks: list[tuple[int, int, int]]
    """Offset, length and CRC-32."""


class Tier(NamedTuple):
    """A directory and the bytes that it may take."""

    folder: Path
    budget: int

    @classmethod
    def at(cls, text: str) -> Tier:
        """Of ``DIR:SIZE``, such as ``/nvme/tier:200GB``."""
        place, _, budget = text.rpartition(":")
        try:
            most = amounts.size(budget)
        except ValueError:
            most = 0
        if not place or not most:
            raise BadUsage(
                f"A tier of {text!r} has no budget.", advice="Name a directory and the bytes that it may take: /nvme/tier:200GB"
            )
        return cls(Path(os.path.abspath(place)), most)

    def of_cache(self, url: str, digest: str) -> TieredCache:
        """``digest``: of the cache's manifest. Another cache at the same URL is another cache."""
        key = hashlib.sha256(f"{url}\n{digest}".encode()).hexdigest()[:24]
        return TieredCache(self, url, self.folder / key)


class TieredCache:
    """One cache's parts in a tier."""

    def __init__(self, tier: Tier, url: str, folder: Path) -> None:
        self._tier, self._url, self._folder = tier, url, folder
        self._held: int | None = None
        self._wished: set[str] = set()

    def path(self, name: str) -> Path:
        return self._folder / name

    def arrived(self, name: str) -> bool:
        return os.path.exists(self._folder / name)

    def part(self, wanted: Wanted) -> Path | None:
        """The part's file; None where it is yet to come, or never will: then it is wished for, once a process."""
        try:
            if self._held is None:
                self._tier.folder.mkdir(parents=True, exist_ok=True)
                self._held = os.open(self._tier.folder / CLIENTS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                weakref.finalize(self, os.close, self._held)
                fcntl.flock(self._held, fcntl.LOCK_SH)
            if self.arrived(wanted.name):
                return self.path(wanted.name)
            if wanted.name in self._wished:
                return None
            self._wished.add(wanted.name)
            (self._folder / WANTED).mkdir(parents=True, exist_ok=True)
            if not (self._folder / ORIGIN).exists():
                write_whole(self._folder / ORIGIN, self._url.encode(), durable=False)
            write_whole(self._folder / WANTED / Path(wanted.name).name, msgspec.msgpack.encode(wanted), durable=False)
            self._start()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise UnreadableFile(
                    f"The tier {self._tier.folder} cannot be written: {error.strerror or error}.",
                    advice="Name a directory on a local disk that you may write to.",
                ) from error
            told = f"The disk of the tier {self._tier.folder} is full: parts that are not there yet are read in the store."
            warnings.warn(told, RuntimeWarning, stacklevel=2)
        return None

    def _start(self) -> None:
        if is_locked(self._tier.folder / FETCHER):
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.Popen(
            [sys.executable, "-m", "pipefix.tier.fetcher", str(self._tier.folder), str(self._tier.budget)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, start_new_session=True,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": None, "_wished": set()}


def is_of_tier(folder: Path) -> bool:
    """Whether a folder was made for a cache: called as those are, with the cache's URL in it, and reached through no link."""
    return bool(_KEY.match(folder.name)) and not folder.is_symlink() and (folder / ORIGIN).is_file()


def is_locked(path: Path) -> bool:
    """Whether another process holds this lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
