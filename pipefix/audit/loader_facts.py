"""Facts for the audit from a running loader and one of its worker processes: read there, changing nothing.

`worker_facts` runs inside a worker with a batch it has made; plain numbers travel back. `loader_facts` and `run_facts`
turn a loader and those numbers into fields of `AuditFacts`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.multiprocessing import get_sharing_strategy
from torch.utils.data import DataLoader, IterableDataset

from pipefix.audit.dataset_scan import scan_dataset
from pipefix.audit.facts import REUSED, BatchFacts, MemoryGrowth
from pipefix.audit.handle_scan import open_handles
from pipefix.audit.on_handover import SMALL_BYTES
from pipefix.audit.storage_facts import store_in
from pipefix.system.forks import lost_by_workers_of, start_method_of
from pipefix.system.machine import filesystems
from pipefix.system.resources import rollup
from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.nested import leaves
from pipefix.vocabulary.shards import shards_of

BUSY_THREADS = "worker.busy_threads"
"""Threads of native pools (neither the main thread nor one of Python's) that really used CPU time."""
CV2_THREADS = "worker.cv2_threads"
"""``cv2.getNumThreads()``, where cv2 is loaded."""
USS = "worker.uss_bytes"
"""Private pages only. Grows when shared pages are copied because somebody wrote to them."""
PRIVATE = {"Private_Clean", "Private_Dirty"}
BATCH = "batch."
POOL_CPU_S = 0.005
POOL_SHARE = 0.1
"""A pool counts as used when its threads took this part of the main thread's CPU time (and `POOL_CPU_S` together)."""
THREAD_CPU_S = 0.001
MAX_DEPTH = 6
MAX_PARTS = 20_000
"""Of one batch, that are looked at."""
ARRAYS = (bytes, bytearray, memoryview, np.ndarray)


def worker_facts(batch: Any) -> dict[str, float]:
    """All that is known of this process and one batch it has made, as numbers. Asked inside the worker."""
    cv2, memory, made = sys.modules.get("cv2"), rollup(), batch_facts(batch)
    seen = {
        BUSY_THREADS: _busy_threads(),
        CV2_THREADS: int(cv2.getNumThreads()) if cv2 is not None and hasattr(cv2, "getNumThreads") else None,
        USS: memory["Private_Clean"] + memory["Private_Dirty"] if memory.keys() >= PRIVATE else None,
        **{BATCH + name: getattr(made, name) for name in made.__struct_fields__},
    }
    return {name: float(value) for name, value in seen.items() if value is not None}


def batch_facts(batch: Any) -> BatchFacts:
    """Size and make-up of a batch of any shape: tensors and arrays in dicts, lists, tuples and objects."""
    parts = list(islice(_parts(batch), MAX_PARTS))
    storages = dict(_storage(part) for part in parts if isinstance(part, torch.Tensor))
    piped = sum(part.nbytes if hasattr(part, "nbytes") else len(part) for part in parts if isinstance(part, ARRAYS))
    sizes = list(storages.values())
    small = sum(size < SMALL_BYTES for size in sizes)
    return BatchFacts(bytes=sum(sizes) + piped, tensors=len(sizes), small_tensors=small, piped_bytes=piped)


def _parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """The leaves of a batch, and after each that is an object of another kind those of what it holds."""
    for leaf in leaves(value):
        yield leaf
        if depth < MAX_DEPTH and not isinstance(leaf, (torch.Tensor, *ARRAYS, str, int, float, type)):
            for held in attributes(leaf).values():
                yield from _parts(held, depth + 1)


def _storage(tensor: torch.Tensor) -> tuple[Any, int]:
    """What a tensor's memory is known by, and its bytes."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() or id(tensor), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):  # sparse and nested tensors have no single storage
        return id(tensor), int(tensor.numel() * tensor.element_size())


def growth(looks: Sequence[tuple[int, Mapping[str, float]]]) -> MemoryGrowth | None:
    """How private memory grew between the first and the last look into a process, each with the samples it had made by then."""
    (earlier, first), (later, last) = looks[0], looks[-1]
    if later <= earlier or USS not in first or USS not in last:
        return None
    return MemoryGrowth(before_bytes=int(first[USS]), after_bytes=int(last[USS]), samples=later - earlier)


def loader_facts(loader: Any) -> dict[str, Any]:
    """Fields of `AuditFacts` that can be read off a loader without running it."""
    # FastLoader has the fork server load modules when its workers start.
    by_itself = any(kind.__module__ == "pipefix.loader.fast_loader" for kind in type(loader).__mro__)
    reused = getattr(loader, "another", DataLoader) is not DataLoader
    return {
        "start_method": start_method_of(loader),
        "lost_by_fork": lost_by_workers_of(loader),
        "preload": None if by_itself else list(forkserver._forkserver._preload_modules),  # type: ignore[attr-defined]
        "sharing_strategy": REUSED if reused else str(get_sharing_strategy()),
        "dataset": scan_dataset(loader.dataset),
        "store": store_in(loader.dataset),
        "handles": open_handles(loader.dataset, getattr(loader, "worker_init_fn", None)),
        "shards": shards_of(loader.dataset) if isinstance(loader.dataset, IterableDataset) else None,
    }


def run_facts(loader: Any, numbers: Mapping[str, float], paths: Sequence[str] = ()) -> dict[str, Any]:
    """`loader_facts`, what `worker_facts` sent back, and the file systems under the ``paths`` that samples were read from."""
    batch = {name: int(numbers[BATCH + name]) for name in BatchFacts.__struct_fields__ if BATCH + name in numbers}
    return loader_facts(loader) | {"filesystems": filesystems(paths), "batch": BatchFacts(**batch) if batch else None}


def _thread_cpu() -> dict[int, float]:
    """Seconds of CPU time of every thread of this process, as far as the kernel tells."""
    spent = {}
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return {}
    for task in tasks:
        try:
            # The first figure is nanoseconds on a CPU.
            spent[int(task)] = int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError, ValueError):  # the thread has ended, or the kernel keeps no such figures
            continue
    return spent


_AT_IMPORT = (os.getpid(), _thread_cpu())
"""In a spawned process, threads have spun since their library was imported; only what comes after counts."""


def _busy_threads() -> int | None:
    if not (now := _thread_cpu()):
        return None
    then = _AT_IMPORT[1] if _AT_IMPORT[0] == os.getpid() else {}
    used = {task: spent - then.get(task, 0.0) for task, spent in now.items()}
    ours = {thread.native_id for thread in threading.enumerate()} | {os.getpid()}
    pool = [spent for task, spent in used.items() if task not in ours and spent >= THREAD_CPU_S]
    main = used.get(os.getpid(), 0.0)
    return len(pool) if sum(pool) >= max(POOL_CPU_S, POOL_SHARE * main) else 0
