"""Which files of a directory are a cache's own. Nothing else in it is ever changed, removed or followed.

A directory is ours where its manifest, the manifest's copy or the plan of an unfinished cache begins with our mark. Then, and only
then, the plain files in ``parts`` and ``index`` that are called as a cache calls its parts, up to the last part that a plan or
manifest of ours names, are the cache's. A cache is begun only in a directory that is empty.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from pipefix.vocabulary import folder_lock
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.files import DRAFT, read_regular

MANIFEST, PLAN, QUARANTINE = "manifest.json", "plan.json", "quarantine.jsonl"
COPY = Path("index", "manifest.copy")
FOLDERS = ("parts", "index")
_MARK = b'{\n "format": "pipefix.cache'
_QUARANTINED = b'{"index": '
_PART = {
    "parts": re.compile(r"(\d{5,})(?:-\d+)?\.(?:mdb|parquet)\Z"),
    "index": re.compile(r"(\d{5,})(?:-\d+)?\.(?:idx|facts)\Z"),
}
_PAST_DRAFTS = (f"{MANIFEST}.draft", f"{PLAN}.draft", f"{COPY.name}.draft")
_PAST_PART_DRAFT = re.compile(r"\.\d{5,}(-\d+)?(\.idx|\.facts)?\.\d+\.draft\Z")
"""What past versions called files that were being written."""


def marked(path: Path) -> bool:
    """Whether a manifest or plan begins as ours do; links are not followed."""
    return is_plain(path) and _head(path).startswith(_MARK)


def is_ours(folder: Path) -> bool:
    """Whether there is a cache, finished or begun, whole or damaged."""
    return any(marked(folder / name) for name in (MANIFEST, PLAN)) or (_is_folder(folder / "index") and marked(folder / COPY))


def check(folder: Path, *, quarantine: bool = False) -> None:
    """Refuse a directory in which a cache cannot be made, or go on, without touching what is not its own.

    Args:
        folder: may be missing.
        quarantine: whether a list of damaged samples is going to be written.
    """
    try:
        entries = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnreadableFile(
            f"{folder} cannot be made or read: {error.strerror or error}.",
            advice="Choose a directory that you may write to: --out DIR",
        ) from error
    if not is_ours(folder):
        others = [name for name in entries if not is_left_behind(folder / name)]
        if others:
            raise BadUsage(
                f"{folder} exists and holds other things, such as {others[0]!r}: nothing is written there.",
                advice="Name a directory that does not exist yet: --out DIR",
            )
        return
    for name in FOLDERS:
        if os.path.lexists(folder / name) and not _is_folder(folder / name):
            raise _misplaced(folder / name, "directory")
    for path in _called_as_ours(folder):
        if not is_plain(path):
            raise _misplaced(path, "file")
    if PLAN in entries and MANIFEST not in entries and not marked(folder / PLAN):
        raise _misplaced(folder / PLAN, "file")
    if quarantine and QUARANTINE in entries and not is_quarantine(folder / QUARANTINE):
        raise _misplaced(folder / QUARANTINE, "file")


def _misplaced(path: Path, kind: str) -> BadUsage:
    return BadUsage(
        f"{path} is not a {kind} that a cache would hold: nothing is written there.",
        advice="Move it elsewhere, or name another directory: --out DIR",
    )


def part_files(folder: Path, count: int | None) -> Iterator[Path]:
    """The cache's plain files in ``parts`` and ``index``, the manifest's copy and drafts included.

    Args:
        folder: a directory that is ours.
        count: only of so many parts, the first; None for all.
    """
    for path in _called_as_ours(folder):
        number = _PART[path.parent.name].match(path.name)
        if is_plain(path) and (number is None or count is None or int(number[1]) < count):
            yield path


def drafts(folder: Path) -> Iterator[Path]:
    """Manifests and plans that a process which was killed left half written."""
    for path in sorted(folder.iterdir()):
        if path.name not in (folder_lock.NAME, *FOLDERS) and is_left_behind(path) and path.stat().st_size:
            yield path


def is_left_behind(path: Path) -> bool:
    """Whether a conversion that ended before it had a plan may have left this: there is nothing in it that is anybody's."""
    if path.name == folder_lock.NAME:
        return folder_lock.is_lock(path)
    if path.name in FOLDERS:
        return _is_folder(path) and not os.listdir(path)
    called_so = DRAFT.match(path.name) is not None or path.name in _PAST_DRAFTS
    return called_so and is_plain(path) and _MARK.startswith(_head(path)[: len(_MARK)])


def is_quarantine(path: Path) -> bool:
    """Whether this is a list of damaged samples that we wrote."""
    return is_plain(path) and _head(path).startswith(_QUARANTINED)


def _called_as_ours(folder: Path) -> list[Path]:
    found = []
    for name, pattern in _PART.items():
        for path in sorted((folder / name).iterdir()) if _is_folder(folder / name) else []:
            draft = DRAFT.match(path.name) or _PAST_PART_DRAFT.match(path.name)
            if pattern.match(path.name) or draft or path == folder / COPY:
                found.append(path)
    return found


def is_plain(path: Path) -> bool:
    """A regular file, not a link to one."""
    return stat.S_ISREG(_mode(path))


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _head(path: Path) -> bytes:
    try:
        return read_regular(path, 100)
    except OSError:
        return b""
