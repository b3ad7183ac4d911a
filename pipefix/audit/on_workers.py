"""Audit rules about workers: what they share, how many shards there are for them, how they are started, and what memory they take:
copies of Python objects in every one, and private memory that grows."""

from __future__ import annotations

import re

from pipefix.audit.facts import AuditFacts, DatasetFacts, Message, rule
from pipefix.vocabulary.quantity import counted, percent, seconds, size

TOLD = 3
"""Handles that are named."""
ENDS_WORKERS_AT_ONCE = (2, 13)
"""The torch from which workers that are kept and whose batches are pinned end with the program (pytorch#81794)."""
QUICK_START_S = 1.0
"""A first batch sooner than this shows that workers do not pay for importing torch, which takes each of them 1 to 2 s of CPU."""
HEAVY_BYTES = 64 << 20
"""Python objects that each worker will come to hold a copy of. Beside the 200 to 300 MB of any worker, less is lost."""
HEAVY_OBJECTS = 100_000
"""Fewer objects than this are not what grows: a few large ones (arrays) are not copied by being counted."""
ENOUGH_SAMPLES = 500
"""Samples before growth is projected: the first few hundred fill allocators and caches."""
GROWN = 0.10
GROWTH_BYTES = 256 << 20
GROWTH_ROOM = 0.10
"""Part of the memory left that an epoch's growth must reach to matter."""


@rule("handle-before-fork", "problem", "workers are forked while the dataset holds open what every process must open for itself")
def handle_before_fork(facts: AuditFacts) -> Message | None:
    if not facts.num_workers or facts.start_method != "fork" or not facts.handles:
        return None
    handles = ", ".join(f"{where} ({kind})" for where, kind in list(facts.handles.items())[:TOLD])
    more = len(facts.handles) - TOLD
    handles += f" and {more} more" if more > 0 else ""
    shared = "one handle" if facts.num_workers == 1 else f"one handle in {facts.num_workers} workers"
    return Message(
        f"Opened before the workers are forked: {handles}. The training process and its workers would use {shared}: its position "
        "in the file, or its connection, moves under each of them, and what they read is wrong or raises.",
        "Keep the path; open it at the first __getitem__ (self.handle = None in __init__), or in worker_init_fn.",
    )


@rule("threads-before-fork", "problem", "workers are forked while a library runs threads of its own in the training process")
def threads_before_fork(facts: AuditFacts) -> Message | None:
    library = facts.lost_by_fork
    if not facts.num_workers or library is None or facts.first_batch_s is not None:
        return None  # workers that gave a batch do without these threads
    return Message(
        f"{library} runs threads in the training process, and a forked worker has none of them: it waits for them without end as "
        f"soon as its samples need {library}.",
        'DataLoader(..., multiprocessing_context="forkserver"), or use the library inside of workers only.',
    )


def _each(workers: int) -> str:
    return "The worker" if workers == 1 else f"Each of {workers} workers"


@rule("few-shards", "warning", "a stream has fewer shards than there are workers")
def few_shards(facts: AuditFacts) -> Message | None:
    workers, shards = facts.num_workers, facts.shards
    if not workers or shards is None or shards >= workers:
        return None
    idle = f"{workers - shards} of them {'gets' if workers - shards == 1 else 'get'} no sample, and more workers change nothing."
    advice = f"Write the data in at least {workers} shards, or use num_workers={shards}."
    return Message(f"The stream has {counted(shards, 'shard')} for {workers} workers: {idle}", advice)


@rule("start-method", "warning",
    "workers are started with spawn, or forkserver without a preload, and the first batch takes over 1 s or was not timed",
)  # fmt: skip
def start_method(facts: AuditFacts) -> Message | None:
    method = facts.start_method
    if not facts.num_workers or method not in ("spawn", "forkserver"):
        return None
    if facts.first_batch_s is not None and facts.first_batch_s <= QUICK_START_S:
        return None
    if method == "forkserver" and (facts.preload is None or set(facts.preload) - {"__main__"}):
        return None
    took = f" The first batch took {seconds(facts.first_batch_s)}." if facts.first_batch_s is not None else ""
    return Message(
        f"{_each(facts.num_workers)} is started by {method} and imports torch and your modules again.{took}",
        'At the top of the program: torch.multiprocessing.set_forkserver_preload(["torch", "torchvision"]), '
        'and DataLoader(..., multiprocessing_context="forkserver", persistent_workers=True)',
    )


@rule("slow-end", "note",
      "a torch before 2.13 waits 5 s at the program's end for each worker that is kept and whose batches are pinned")  # fmt: skip
def slow_end(facts: AuditFacts) -> Message | None:
    settings, machine = facts.settings, facts.machine
    if settings is None or not (settings.num_workers and settings.persistent_workers and settings.pin_memory):
        return None
    if machine is None or not machine.gpus:
        return None  # nothing is pinned there
    version = re.match(r"(\d+)\.(\d+)", machine.versions.get("torch", ""))
    if version is None or tuple(map(int, version.groups())) >= ENDS_WORKERS_AT_ONCE:
        return None
    return Message(
        f"torch {version[0]} waits 5 s for each worker that is kept (persistent_workers) and whose batches are pinned, and "
        f"tells none to end: the program takes {seconds(5.0 * settings.num_workers)} to end after its last line.",
        "When training is over: del loader, and whatever else holds it. A newer torch needs nothing.",
    )


@rule("memory-growth", "warning",
    f"more than {HEAVY_OBJECTS:,} Python objects of {size(HEAVY_BYTES)} in lists or dicts of a dataset with workers, or a worker's "
    f"private memory grew by more than {percent(GROWN)} in {ENOUGH_SAMPLES} samples (to {size(GROWTH_BYTES)} an epoch)",
)  # fmt: skip
def memory_growth(facts: AuditFacts) -> Message | None:
    if not facts.num_workers:
        return None
    held = facts.dataset
    if held is not None and held.objects > HEAVY_OBJECTS and held.bytes > HEAVY_BYTES:
        return _copied_objects(facts, held, facts.num_workers)
    return _growing(facts, facts.num_workers)


def _copied_objects(facts: AuditFacts, held: DatasetFacts, workers: int) -> Message:
    """Each worker will come to hold a copy of more Python objects than are worth a word."""
    name = held.where or "dataset"
    sentence = f"{name} holds {held.objects:,} Python objects ({size(held.bytes)})"
    if facts.start_method == "fork":
        sentence += "; reading one counts a reference, which copies its page, so that "
        sentence += f"{_each(workers).lower()} ends up with its own copy: {size(held.bytes * workers)} more."
        if facts.growth is not None and facts.growth.bytes > 0:
            sentence += f" A worker's private memory grew by {size(facts.growth.bytes)} in {facts.growth.samples:,} samples."
    else:
        more = f"{size(held.bytes * workers)} more, and a wait."
        sentence += f"; {_each(workers).lower()} is sent a pickled copy when it starts: {more}"
    return Message(
        sentence,
        f"Keep it in NumPy arrays, which hold no objects: in __init__, self.paths = numpy.array(paths, dtype=numpy.bytes_); "
        f"self.labels = numpy.array(labels); in __getitem__, os.fsdecode(self.paths[index]) (now: {name})",
    )


def _growing(facts: AuditFacts, workers: int) -> Message | None:
    growth = facts.growth
    if growth is None or growth.samples < ENOUGH_SAMPLES or growth.fraction <= GROWN:
        return None
    epoch = facts.settings.epoch if facts.settings else None
    projected = max(float(growth.bytes * workers), growth.bytes / growth.samples * (epoch or 0))
    room = facts.machine.memory_room_bytes if facts.machine else None
    if projected <= max(GROWTH_BYTES, GROWTH_ROOM * (room or 0)):
        return None
    return Message(
        f"A worker's private memory (USS) grew by {size(growth.bytes)} ({percent(growth.fraction)}) in {growth.samples:,} samples: "
        f"about {size(projected)} an epoch in {counted(workers, 'worker')}.",
        "Look for what the dataset keeps: a dict or list filled in __getitem__, functools.lru_cache, or Python objects "
        "read from a large list; keep tables in NumPy arrays and bound caches, as in functools.lru_cache(maxsize=128)",
    )
