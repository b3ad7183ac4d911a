"""Mapped files sliced or read as bytes. The copy brings the pages in, so it is the read.

What else is read of a map cannot be seen. A recording that asks for it is therefore given what a sample maps when it maps it.
"""

from __future__ import annotations

import os
from typing import Any

from pipefix.hooks.calls import Patches, SampleTimer, Stage, hook
from pipefix.hooks.recorded_files import IN_MEMORY, keep_whole, key_behind, remembered

LIBRARY = "mmap"

_STATUS = os.fstat


def is_memory(mapped: Any) -> bool:
    """Whether a map is of no file on a disk: one in memory that stands for a recorded file, or none at all."""
    return getattr(mapped, "in_memory", False)


def install(timer: SampleTimer, patches: Patches) -> None:
    """A subclass takes the place of the class, which is written in C and whose methods cannot be replaced.

    It frees its objects as Python does (many C extensions do not, and crash). Maps made before are still instances of it, as far as
    ``isinstance`` can tell.
    """
    import mmap

    original: type = mmap.mmap

    class Meta(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    kind: Any = Meta("mmap", (original,), {key: getattr(original, key) for key in ("__module__", "__qualname__", "__doc__")})
    get, create = kind.__getitem__, kind.__new__

    def new(cls: Any, fileno: int, *args: Any, **kwargs: Any) -> Any:
        mapped = create(cls, fileno, *args, **kwargs)
        if timer.live and timer.tapes(Stage.STORAGE):
            key = key_behind(fileno, _STATUS(fileno)) if fileno != -1 else IN_MEMORY
            mapped.in_memory = key == IN_MEMORY
            if key != IN_MEMORY:
                timer.misses += remembered(timer) is not None
                keep_whole(timer, key, fileno)
        return mapped

    def counted(self: Any, index: slice) -> bytes:
        data: bytes = get(self, index)
        timer.bytes_read += len(data)
        return data

    @hook(timer, patches, kind, "__getitem__")
    def getitem(self: Any, index: Any) -> Any:
        if not isinstance(index, slice) or is_memory(self):
            return get(self, index)
        return timer.timed_call(Stage.STORAGE, "mmap[slice]", counted, (self, index))

    patches.replace(mmap, "mmap", kind, everywhere=True)
    patches.replace(kind, "__new__", new)
