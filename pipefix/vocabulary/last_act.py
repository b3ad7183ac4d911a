"""Notes what this process is doing in shared memory, so that whoever watches can say what it did when it ended."""

from __future__ import annotations

import mmap

SIZE = 4096

_memory: mmap.mmap | None = None


def keep() -> mmap.mmap:
    """From now on acts are noted, in memory that processes forked later share."""
    global _memory
    _memory = mmap.mmap(-1, SIZE)
    return _memory


def kept() -> bool:
    """Whether anybody watches; else there is no need to put an act into words."""
    return _memory is not None


def note(act: str) -> None:
    """``act``: as in "the process ended while it was ...". An empty one: nothing that could end it."""
    if _memory is not None:
        _memory.seek(0)
        _memory.write(act.encode("utf-8", "replace")[: SIZE - 1] + b"\0")


def read(memory: mmap.mmap) -> str:
    """The latest act."""
    return memory[:].partition(b"\0")[0].decode("utf-8", "replace")
