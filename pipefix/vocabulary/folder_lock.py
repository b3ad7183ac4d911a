"""One process at a time works in a directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from pathlib import Path
from typing import BinaryIO

from pipefix.vocabulary.errors import BadUsage, UnreadableFile

NAME = ".lock"
_OURS = re.compile(rb"(pipefix )?\d+ on \S+\s*\Z")
"""What stands in a lock file of ours; past versions left out the first word."""


class FolderLock:
    """A lock file in ``folder``, held by the process: it goes with it, however that ends.

    Raises `BadUsage` where another process holds it (``work`` is what it is called then), or where the file is not ours.
    """

    def __init__(self, folder: Path, work: str) -> None:
        self._folder, self._work = folder, work
        self._path = folder / NAME
        self._file: BinaryIO | None = None
        self._keep = False
        """The file was there, and empty: nothing says that it is ours to remove."""

    def __enter__(self) -> FolderLock:
        while True:
            try:
                self._keep = self._path.exists() and not self._path.stat().st_size
                file = _open(self._path)
                if not _taken(file):
                    raise self._busy(file)
            except OSError as error:
                raise unwritable(self._folder, error) from error
            if _is_at(file, self._path):
                break
            file.close()  # its holder removed it just before it let go
        file.truncate(0)
        file.write(f"pipefix {os.getpid()} on {socket.gethostname()}".encode())
        self._file = file
        return self

    def _busy(self, file: BinaryIO) -> BadUsage:
        holder = file.read(200).decode("utf-8", "replace").removeprefix("pipefix ").strip() or "unknown"
        file.close()
        return BadUsage(
            f"{self._folder} is being written by another {self._work} (process {holder}).",
            advice="Wait until it is done, or give this one another directory: --out DIR",
        )

    def moved(self, folder: Path) -> None:
        """The directory was renamed."""
        self._folder, self._path = folder, folder / NAME

    def __exit__(self, *why: object) -> None:
        assert self._file is not None
        with contextlib.suppress(OSError):
            self._file.truncate(0) if self._keep else self._path.unlink()
        self._file.close()


def unwritable(folder: Path, error: OSError) -> UnreadableFile:
    return UnreadableFile(
        f"{folder} cannot be written: {error.strerror or error}.",
        advice="Choose a directory that you may write to, on a disk of this machine: --out DIR",
    )


def is_lock(path: Path) -> bool:
    """Whether this is a lock file of ours, perhaps one that a killed process left."""
    try:
        _open(path, create=False).close()
    except (OSError, BadUsage):
        return False
    return True


def _open(path: Path, *, create: bool = True) -> BinaryIO:
    """The file, ours or new: never through a link, and never somebody else's."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _foreign(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _foreign(path)
    file = os.fdopen(descriptor, "a+b", buffering=0)
    file.seek(0)
    held = file.read(400)
    file.seek(0)
    if held and not _OURS.match(held):
        file.close()
        raise _foreign(path)
    return file


def _foreign(path: Path) -> BadUsage:
    return BadUsage(f"{path} is not a lock of pipefix: nothing is written there.", advice="Name another directory: --out DIR")


def _taken(file: BinaryIO) -> bool:
    import fcntl

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        file.close()
        raise
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one that its path names now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
