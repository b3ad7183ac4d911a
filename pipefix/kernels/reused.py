"""Reusable memory for batches that are made in this process: free again once every view of a batch is dropped.

Pages that were written once stay: a batch in new memory costs a page fault for every 4 kB of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from collections import deque

import torch


class Memory:
    """Blocks of one size. ``kept`` of them at most wait for the next batch."""

    def __init__(self, kept: int = 1) -> None:
        self.kept = kept
        self.size = 0
        self._free: deque[mmap.mmap] = deque()

    def batch(self, shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool = False) -> torch.Tensor:
        """A tensor of whatever was there. Pinned memory is torch's own: it is used again when copies out of it are done."""
        if pinned or 0 in shape:
            return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=pinned)
        count = torch.Size(shape).numel()
        size = count * dtype.itemsize
        if size > self.size:
            self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            self._free.clear()
        block = None
        with contextlib.suppress(IndexError):  # another thread may take the last one, or give back one of a size before
            block = self._free.pop()
        if block is None or len(block) < size:
            # Private: a child that is forked has pages of its own. In large pages, where the system has some.
            block = mmap.mmap(-1, max(size, self.size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(AttributeError, OSError):
                block.madvise(mmap.MADV_HUGEPAGE)
        held = (ctypes.c_ubyte * len(block)).from_buffer(block)
        weakref.finalize(held, self._back, block).atexit = False
        return torch.frombuffer(held, dtype=dtype, count=count).view(shape)

    def _back(self, block: mmap.mmap) -> None:
        if len(block) == self.size and len(self._free) < self.kept:
            self._free.append(block)
