"""Local files that a library reads by itself: their pages are brought in under the storage clock, so that it finds them in memory.

What follows is then decoding alone. With storage replaced that step is left out: pages that were just recorded are still there.
"""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Callable, Collection
from typing import Any

from pipefix.seams.files import ORIGINAL_OPEN
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

_STORAGE = Stage.STORAGE
_MMAP, _ISFILE = mmap.mmap, os.path.isfile
_WHOLE_AT_MOST = 1 << 30
"""A larger file is not fetched before a call that may need little of it."""


def whole(tap: Tap, original: Callable[..., Any], label: str, parts: Collection[str] = ()) -> Callable[..., Any]:
    """A decoder of the whole file that its first argument names.

    ``parts``: keywords that, given, ask for a part of it only; what part that is, is for the library to know.
    """
    read_label = f"{label.partition('.')[0]} read"

    @functools.wraps(original)
    def read(source: Any, *args: Any, **kwargs: Any) -> Any:
        if not tap.live:
            return original(source, *args, **kwargs)
        if isinstance(source, (str, os.PathLike)) and not any(kwargs.get(name) for name in parts):
            fetch(tap, os.fspath(source), None, read_label)
        return tap.through(Stage.DECODE, label, original, (source, *args), kwargs)

    return read


def fetch(tap: Tap, path: str, ranges: list[tuple[int, int]] | None, label: str) -> None:
    """Bring in a file's pages, or those of some (begin, length), as an operation of storage."""
    if _STORAGE not in tap.replaced:
        tap.through(_STORAGE, label, _touch, (tap, path, ranges), replayable=False)


def _touch(tap: Tap, path: str, ranges: list[tuple[int, int]] | None) -> None:
    if not _ISFILE(path):
        return
    with ORIGINAL_OPEN(path, "rb", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        if length == 0 or (ranges is None and length > _WHOLE_AT_MOST):
            return
        with _MMAP(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            for begin, count in ranges or [(0, length)]:
                mapped[begin : begin + count : mmap.PAGESIZE]  # the copy brings the pages in
                tap.bytes_read += count
