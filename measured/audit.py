"""The mistake behind the rule about lists: the same reads grow a worker only where entries are objects; and what looking costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

from measured.row import Row, at_least, at_most
from pipefix.audit.dataset_scan import scan_dataset
from tests.audit.mistakes import list_dataset
from tests.audit.sound import array_dataset

MIB = 1 << 20


def rows() -> Iterator[Row]:
    lists, arrays = list_dataset().growth, array_dataset().growth
    if lists is None or arrays is None:
        raise RuntimeError("the kernel tells no memory of a worker")
    yield at_least("audit: a worker that reads a list of 500,000 tuples grows", lists.bytes / MIB, "MiB", 20)
    most = max(arrays.bytes / MIB, 1.0)
    yield at_least("audit: as many times as one that reads arrays", lists.bytes / MIB / most, "x", 4)
    held = SimpleNamespace(paths=[str(index) for index in range(1_000_000)])
    begun = time.perf_counter()
    scan_dataset(held)
    yield at_most("audit: looking at a dataset of a million entries", 1e3 * (time.perf_counter() - begun), "ms", 100)
