"""Facts for the audit from a running loader and one of its worker processes: read there, changing nothing.

`worker_facts` runs inside a worker with a batch it has made; plain numbers travel back. `loader_facts` and `run_facts`
turn a loader and those numbers into fields of `AuditFacts`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipefix.audit.dataset_scan import scan_dataset
from pipefix.audit.facts import BatchFacts, MemoryGrowth, WorkerFacts
from pipefix.audit.handle_scan import open_handles
from pipefix.audit.on_handover import SMALL_BYTES
from pipefix.audit.store_scan import store_in
from pipefix.system.machine import filesystems
from pipefix.vocabulary.attributes import attributes
from pipefix.vocabulary.shards import shards_of

POOL_CPU_S = 0.005
POOL_SHARE = 0.1
"""A pool counts as used when its threads took this part of the main thread's CPU time (and `POOL_CPU_S` together)."""
THREAD_CPU_S = 0.001
MAX_DEPTH = 6
MAX_NODES = 20_000
"""Parts of one batch that are looked at."""


def worker_facts(batch: Any) -> dict[str, float]:
    """Everything about this process and one batch it has made, as numbers. Asked inside the worker."""
    return {**_numbers("worker", observe_worker()), **_numbers("batch", batch_facts(batch))}


def observe_worker() -> WorkerFacts:
    """Look at the process that calls this."""
    cv2 = sys.modules.get("cv2")
    memory = _smaps()
    return WorkerFacts(
        busy_threads=_busy_threads(),
        cv2_threads=int(cv2.getNumThreads()) if cv2 is not None and hasattr(cv2, "getNumThreads") else None,
        uss_bytes=memory["Private_Clean"] + memory["Private_Dirty"] if {"Private_Clean", "Private_Dirty"} <= set(memory) else None,
    )


def batch_facts(batch: Any) -> BatchFacts:
    """Size and make-up of a batch of any shape: tensors and arrays in dicts, lists, tuples and objects."""
    parts = _Parts()
    parts.add(batch, 0)
    sizes = list(parts.storages.values())
    return BatchFacts(
        bytes=sum(sizes) + parts.piped,
        tensors=len(sizes),
        small_tensors=sum(size < SMALL_BYTES for size in sizes),
        largest_bytes=parts.largest,
        largest_is_float=parts.largest_is_float,
        piped_bytes=parts.piped,
    )


def growth(before: WorkerFacts, after: WorkerFacts, samples: int) -> MemoryGrowth | None:
    """How private memory grew between two looks into the same process, which made ``samples`` in between."""
    if before.uss_bytes is None or after.uss_bytes is None:
        return None
    return MemoryGrowth(before_bytes=before.uss_bytes, after_bytes=after.uss_bytes, samples=samples)


def loader_facts(loader: Any) -> dict[str, Any]:
    """Fields of `AuditFacts` that can be read off a loader without running it."""
    from torch.multiprocessing import get_sharing_strategy
    from torch.utils.data import IterableDataset

    context = getattr(loader, "multiprocessing_context", None)
    return {
        "start_method": context.get_start_method() if context is not None else _default_method(),
        "preload": None if _preloads_by_itself(loader) else _preload(),
        "sharing_strategy": str(get_sharing_strategy()),
        "dataset": scan_dataset(loader.dataset),
        "store": store_in(loader.dataset),
        "handles": open_handles(loader.dataset, getattr(loader, "worker_init_fn", None)),
        "shards": shards_of(loader.dataset) if isinstance(loader.dataset, IterableDataset) else None,
    }


def run_facts(loader: Any, numbers: Mapping[str, float], paths: Sequence[str] = ()) -> dict[str, Any]:
    """`loader_facts`, what `worker_facts` sent back, and the file systems under the ``paths`` that samples were read from."""
    facts = loader_facts(loader)
    facts["filesystems"] = filesystems(paths)
    batch = {name: int(value) for name, value in _under("batch", numbers).items() if name in BatchFacts.__struct_fields__}
    if batch:
        is_float = bool(batch.pop("largest_is_float", 0))
        facts["batch"] = BatchFacts(**batch, largest_is_float=is_float)
    return facts


def worker_of(numbers: Mapping[str, float]) -> WorkerFacts:
    """The process that `worker_facts` looked at, from the numbers that travelled."""
    known = WorkerFacts.__struct_fields__
    return WorkerFacts(**{name: int(value) for name, value in _under("worker", numbers).items() if name in known})


def _numbers(prefix: str, facts: WorkerFacts | BatchFacts) -> dict[str, float]:
    values = ((name, getattr(facts, name)) for name in facts.__struct_fields__)
    return {f"{prefix}.{name}": float(value) for name, value in values if value is not None}


def _under(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix(f"{prefix}."): value for name, value in numbers.items() if name.startswith(f"{prefix}.")}


class _Parts:
    """Tensors and arrays met while walking through a batch."""

    def __init__(self) -> None:
        self.storages: dict[Any, int] = {}
        self.piped = 0
        self.largest = 0
        self.largest_is_float = False
        self._nodes = 0

    def add(self, part: Any, depth: int) -> None:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES or part is None or isinstance(part, (str, int, float, type)):
            return
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(part, torch.Tensor):
            self._tensor(part)
        elif numpy is not None and isinstance(part, numpy.ndarray):
            self.piped += int(part.nbytes)
        elif isinstance(part, (bytes, bytearray, memoryview)):
            self.piped += len(part)
        elif isinstance(part, Mapping):
            for value in part.values():
                self.add(value, depth + 1)
        elif isinstance(part, (list, tuple, set, frozenset)):
            for value in part:
                self.add(value, depth + 1)
        else:
            for value in attributes(part).values():
                self.add(value, depth + 1)

    def _tensor(self, tensor: Any) -> None:
        own = int(tensor.numel() * tensor.element_size())
        try:
            storage = tensor.untyped_storage()
            key, held = (storage.data_ptr() or id(tensor)), int(storage.nbytes())
        except (RuntimeError, NotImplementedError):  # sparse and nested tensors have no single storage
            key, held = id(tensor), own
        self.storages[key] = held
        if own > self.largest:
            self.largest, self.largest_is_float = own, bool(tensor.is_floating_point())


def _default_method() -> str:
    """The program's start method, without fixing it by asking."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _preloads_by_itself(loader: Any) -> bool:
    """FastLoader has the fork server load modules when its workers start."""
    return any(kind.__module__ == "pipefix.loader.fast_loader" for kind in type(loader).__mro__)


def _preload() -> list[str] | None:
    try:
        from multiprocessing import forkserver
    except ImportError:  # a platform without fork servers
        return None
    names = getattr(getattr(forkserver, "_forkserver", None), "_preload_modules", None)
    return list(names) if names is not None else None


def _smaps() -> dict[str, int]:
    try:
        text = Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        return {}
    sizes = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) * 1024
    return sizes


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
    now = _thread_cpu()
    if not now:
        return None
    then = _AT_IMPORT[1] if _AT_IMPORT[0] == os.getpid() else {}
    used = {task: spent - then.get(task, 0.0) for task, spent in now.items()}
    ours = {thread.native_id for thread in threading.enumerate()} | {os.getpid()}
    pool = [spent for task, spent in used.items() if task not in ours and spent >= THREAD_CPU_S]
    main = used.get(os.getpid(), 0.0)
    return len(pool) if sum(pool) >= max(POOL_CPU_S, POOL_SHARE * main) else 0
