"""A lock on a directory: one process at a time works there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import threading
from pathlib import Path
from typing import BinaryIO

from pipefix.vocabulary import files
from pipefix.vocabulary.errors import BadUsage, UnreadableFile

NAME = ".lock"
_CALLED = re.compile(r"\.lock\Z")
_OURS = re.compile(rb"(pipefix )?\d+ on \S+\s*\Z")
"""What stands in a lock file of ours; past versions left out the first word."""

_held: set[str] = set()
"""Lock files that this process holds. The kernel lets it lock one twice, and drops the lock when any of its files is closed."""
_HELD = threading.Lock()
os.register_at_fork(after_in_child=_held.clear)


class FolderLock:
    """A lock file in ``folder``, held by the process, and by one thread of it: it goes with the process, however that ends.

    Raises `BadUsage` where another process holds it (``work`` is what it is called then), or where the file is not ours.
    """

    def __init__(self, folder: Path, work: str, *, ours: bool = False) -> None:
        """``ours``: the folder is a cache's, so that an empty lock file in it was left by a process of ours that was killed."""
        self._folder, self._work, self._ours = folder, work, ours
        self._path = folder / NAME
        self._name = os.path.realpath(folder / NAME)
        self._file: BinaryIO | None = None
        self._keep = False
        """The file was there, and empty: nothing says that it is ours to remove."""

    def __enter__(self) -> FolderLock:
        with _HELD:
            if self._name in _held:
                raise self._busy(str(os.getpid()))
            _held.add(self._name)
        try:
            self._file = self._locked()
        except BaseException:
            _held.discard(self._name)
            raise
        return self

    def _locked(self) -> BinaryIO:
        while True:
            try:
                self._keep = not self._ours and self._path.exists() and not self._path.stat().st_size
                file = _open(self._path)
                if not taken(file):
                    holder = file.read(200).decode("utf-8", "replace").removeprefix("pipefix ").strip() or "unknown"
                    file.close()
                    raise self._busy(holder)
            except OSError as error:
                raise unwritable(self._folder, error) from error
            if files.is_at(file.fileno(), self._path):
                break
            file.close()  # its holder removed it just before it let go
        with contextlib.suppress(OSError):  # a disk without room: who holds it is not told then, and is held all the same
            file.truncate(0)
            file.write(f"pipefix {os.getpid()} on {socket.gethostname()}".encode())
        return file

    def _busy(self, holder: str) -> BadUsage:
        message = f"{self._folder} is being written by another {self._work} (process {holder})."
        return BadUsage(message, advice="Wait until it is done, or give this one another directory: --out DIR")

    def moved(self, folder: Path) -> None:
        """The directory was renamed."""
        with _HELD:
            _held.discard(self._name)
            self._folder, self._path, self._name = folder, folder / NAME, os.path.realpath(folder / NAME)
            _held.add(self._name)

    def __exit__(self, *why: object) -> None:
        assert self._file is not None
        try:
            with contextlib.suppress(OSError):
                self._file.truncate(0) if self._keep else files.remove(self._path, _CALLED)
        finally:
            self._file.close()
            _held.discard(self._name)


def unwritable(folder: Path, error: OSError) -> UnreadableFile:
    advice = "Choose a directory that you may write to, on a disk of this machine: --out DIR"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "Allow more open files, ulimit -n 65536, or ask for fewer --workers; then run the same command again."
    return UnreadableFile(f"{folder} cannot be written: {error.strerror or error}.", advice=advice)


def is_lock(path: Path) -> bool:
    """Whether this is a lock file of ours, perhaps one that a killed process left."""
    if os.path.realpath(path) in _held:
        return True
    with contextlib.suppress(OSError, BadUsage):
        _open(path, create=False).close()
        return True
    return False


def _open(path: Path, *, create: bool = True) -> BinaryIO:
    """The file, ours or new: never through a link, and never somebody else's."""
    try:
        file = files.open_own(path, create=create)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EINVAL):
            raise _foreign(path) from error
        raise
    file.seek(0)
    held = file.read(400)
    file.seek(0)
    if held and not _OURS.match(held):
        file.close()
        raise _foreign(path)
    return file


def _foreign(path: Path) -> BadUsage:
    return BadUsage(f"{path} is not a lock of pipefix: nothing is written there.", advice="Name another directory: --out DIR")


def taken(file: BinaryIO, *, needed: bool = True) -> bool:
    """Lock an open file; False where another process holds it. The lock goes with this process, however that ends, and processes
    forked from it do not hold it. Where it is not ``needed``, a file system without locks is gone on with."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if not needed and error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return True
        file.close()
        raise
    return True
