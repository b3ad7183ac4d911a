"""Reads and writes whole files, in directories that others may write to as well.

Only regular files are read: opening a pipe would wait for ever, and a device may never end. Files are written whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

DRAFT = re.compile(r"\.pipefix-[0-9a-f]{12}\Z")
"""Names of files that were begun and not renamed into place: what a process that was killed leaves."""


def draft_beside(path: Path) -> Path:
    """A new name for a file that is to be renamed to ``path``."""
    return path.with_name(f".pipefix-{os.urandom(6).hex()}")


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading and unbuffered; OSError where it is missing or not a regular file. Never waits."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    return _regular(os.open(path, flags), path, "rb")


def open_own(path: Path, *, create: bool = True) -> BinaryIO:
    """A file of ours, open to be read and appended to; OSError for a link, which may lead anywhere, and for what is no file."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    return _regular(os.open(path, flags, 0o666), path, "a+b")


def _regular(descriptor: int, path: Path, mode: Literal["rb", "a+b"]) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, mode, buffering=0)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that its path names now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file; of a longer one the first ``most``."""
    with open_regular(path) as file:
        left = os.fstat(file.fileno()).st_size if most is None else most
        pieces = []
        while left > 0 and (piece := file.read(left)):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


@contextlib.contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A new path to write to. What was written there takes the place of ``path`` when the block ends, unless by an error."""
    draft = draft_beside(path)
    try:
        yield draft
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def write_new(path: Path, data: bytes) -> bool:
    """`write_whole` where nothing is at ``path`` yet; False where something is."""
    draft = draft_beside(path)
    try:
        with contextlib.suppress(FileExistsError):
            write_whole(draft, data)
            os.link(draft, path)
            return True
        return False
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """``path`` holds all of ``data``, or what it held before; its rights stay. With ``durable`` also after a power failure."""
    draft, file = _draft(path, data, durable=durable)
    try:
        with file:
            os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def _draft(path: Path, data: bytes, *, durable: bool) -> tuple[Path, BinaryIO]:
    """A file of ``data`` beside ``path``, locked while it is open: that tells it from what a killed process left.

    Where the file system allows that, it has no name before it is whole, so that a process that is killed leaves nothing.
    """
    file: BinaryIO
    if hasattr(os, "O_TMPFILE"):
        draft = draft_beside(path)
        with contextlib.suppress(OSError):
            file = open(os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), "r+b")  # noqa: SIM115 - for who asked
            try:
                _lock(file, wait=True)
                _fill(file, path, data, durable=durable)
                # Where a folder is named besides, it follows the link to the file.
                os.link(f"/proc/self/fd/{file.fileno()}", draft, src_dir_fd=file.fileno())
            except BaseException:
                file.close()
                raise
            return draft, file
    draft, file = _new_draft(path)
    try:
        _fill(file, path, data, durable=durable)
    except BaseException:
        with contextlib.suppress(OSError):  # what found no room is written once more
            file.close()
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return draft, file


def _fill(file: BinaryIO, path: Path, data: bytes, *, durable: bool) -> None:
    if path.exists():
        os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
    file.write(data)
    file.flush()
    if durable:
        os.fsync(file.fileno())


def _new_draft(path: Path) -> tuple[Path, BinaryIO]:
    """An empty one, with its name."""
    while True:
        draft = draft_beside(path)
        file = open(draft, "xb")  # noqa: SIM115 - for who asked
        _lock(file, wait=True)
        if is_at(file.fileno(), draft):
            return draft, file
        file.close()  # `remove_drafts` came between


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Whether the lock is held; a file system may have none."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    return False


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes began to write in ``folder``: files called as drafts are, of our content, that nobody writes."""
    for path in sorted(folder.iterdir()):
        if DRAFT.fullmatch(path.name) is None or path.is_symlink():
            continue
        with contextlib.suppress(OSError), open_regular(path) as file:
            head = file.read(4096)
            if (not head or b"pipefix" in head) and _lock(file, wait=False):
                path.unlink()


def move(path: Path, to: Path, called: re.Pattern[str]) -> None:
    """Give a file another name, in place of what bears that; both are called so. Also after a power failure."""
    if not (called.match(path.name) and called.match(to.name)):
        raise ValueError(f"{path.name} is not ours to rename to {to.name}")
    os.replace(path, to)
    sync_folder(to.parent)


def remove(path: Path, called: re.Pattern[str]) -> None:
    """Remove a file or socket that is called so: no link, no directory, nothing of another name. It may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        kind = path.lstat().st_mode
        if called.match(path.name) and (stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
            path.unlink()


def remove_empty_folder(path: Path) -> None:
    """Remove a folder that we made, where nothing is in it."""
    with contextlib.suppress(OSError):
        path.rmdir()


def sync_folder(folder: Path) -> None:
    """Bring the names in a directory to the disk: a file that was synced is found after a power failure only then. Some file
    systems refuse it; what was written is in its place all the same."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
