"""Mapped files sliced or read as bytes. The copy brings the pages in, so it is the read."""

from __future__ import annotations

import functools
from typing import Any

from pipefix.seams.seam import Patches, cut, subclass_in_place
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = "mmap"
OPAQUE = {"memoryview(mmap)": "a mapped file is read page by page wherever it is used; only slices of the map itself are seen"}


def install(tap: Tap, patches: Patches) -> None:
    import mmap

    kind: Any = subclass_in_place(patches, mmap, "mmap")
    original = kind.__getitem__

    def counted(self: Any, index: slice) -> bytes:
        data: bytes = original(self, index)
        tap.bytes_read += len(data)
        return data

    @functools.wraps(original)
    def getitem(self: Any, index: Any) -> Any:
        if not tap.live or not isinstance(index, slice):
            return original(self, index)
        return tap.through(Stage.STORAGE, "mmap[slice]", counted, (self, index))

    patches.replace(kind, "__getitem__", getitem)
    for name in ("read", "readline"):
        cut(tap, patches, kind, name, Stage.STORAGE, f"mmap.{name}", replayable=False, counts=len)
