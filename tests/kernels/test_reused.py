"""Memory that is used again for batches, also by several threads."""

from __future__ import annotations

import mmap
from collections import deque

import torch

from pipefix.kernels.reused import Memory


class TakenMeanwhile(deque[mmap.mmap]):
    """Another thread takes the last block between the look and the taking."""

    def __len__(self) -> int:
        return 1


def test_threads_that_take_and_give_back_at_the_same_time_get_memory_that_is_large_enough() -> None:
    memory = Memory(kept=2)
    memory.size = 2 * mmap.PAGESIZE
    memory._free.append(mmap.mmap(-1, mmap.PAGESIZE))  # given back just as the size grew
    assert memory.batch((2 * mmap.PAGESIZE,), torch.uint8).numel() == 2 * mmap.PAGESIZE
    memory._free = TakenMeanwhile()
    assert memory.batch((3,), torch.uint8).shape == (3,)
