"""Memory that processes share, in a file without a name.

It counts towards memory and not towards ``/dev/shm``, and the kernel takes it back with the last process. Its size is room that may
be used: pages come when they are first written.
"""

from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing import reduction
from typing import Any


class AnonymousMemory:
    """``fields`` of a subclass are what a process that is started with it needs to know."""

    fields: tuple[str, ...] = ()

    def _make(self, name: str, size: int) -> None:
        """Raises OSError or AttributeError where this system has no such memory."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            self._open(fd)
        except (OSError, ValueError):
            os.close(fd)
            raise

    def _open(self, fd: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._end = weakref.finalize(self, os.close, fd)

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned: the file travels as a descriptor."""
        return {**{name: getattr(self, name) for name in self.fields}, "fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fd = state.pop("fd").detach()
        self.__dict__.update(state)
        self._open(fd)
