"""Mistakes about memory: copies of Python objects in every worker, batches that wait in memory, a machine that is full."""

from __future__ import annotations

from pipefix.audit.finding import AuditFacts, Said, rule
from pipefix.vocabulary.quantity import percent, size

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
PREFETCH_ROOM = 0.25
"""Part of the memory left that batches in flight may take before they crowd out the page cache that serves the dataset."""
NEARLY_FULL = 0.10
"""Part of the memory that is left when the kernel begins to drop the page cache and to swap."""
SWAPPED = 256 << 20


@rule(
    "python-lists",
    "warning",
    f"more than {HEAVY_OBJECTS:,} Python objects of {size(HEAVY_BYTES)} in lists or dicts of a dataset with workers",
)
def python_lists(facts: AuditFacts) -> Said | None:
    held, workers = facts.dataset, facts.num_workers
    if held is None or not workers or held.objects <= HEAVY_OBJECTS or held.bytes <= HEAVY_BYTES:
        return None
    name = held.where or "dataset"
    found = f"{name} holds {held.objects:,} Python objects ({size(held.bytes)})"
    if facts.method == "fork":
        found += (
            f"; reading one counts a reference, which copies its page, so that each of {workers} workers ends up with its own copy"
        )
        found += f": {size(held.bytes * workers)} more."
        if facts.growth is not None and facts.growth.bytes > 0:
            found += f" A worker's private memory grew by {size(facts.growth.bytes)} in {facts.growth.samples:,} samples."
    else:
        found += (
            f"; each of {workers} workers is sent a pickled copy when it starts: {size(held.bytes * workers)} more, and a wait."
        )
    return Said(
        found,
        f"Keep it in NumPy arrays, which hold no objects: in __init__, self.paths = numpy.array(paths, dtype=numpy.bytes_); "
        f"self.labels = numpy.array(labels); in __getitem__, os.fsdecode(self.paths[index]) (now: {name})",
    )


@rule(
    "memory-growth",
    "warning",
    f"a worker's private memory grew by more than {percent(GROWN)} in {ENOUGH_SAMPLES} samples (to {size(GROWTH_BYTES)} an epoch)",
)
def memory_growth(facts: AuditFacts) -> Said | None:
    growth, workers = facts.growth, facts.num_workers
    if growth is None or not workers or growth.samples < ENOUGH_SAMPLES or growth.fraction <= GROWN:
        return None
    if python_lists.check(facts) is not None:
        return None  # named already, with its cause
    epoch = facts.settings.epoch if facts.settings else None
    projected = max(float(growth.bytes * workers), growth.per_sample * (epoch or 0))
    room = facts.machine.memory_room_bytes if facts.machine else None
    if projected <= max(GROWTH_BYTES, GROWTH_ROOM * (room or 0)):
        return None
    return Said(
        f"A worker's private memory (USS) grew by {size(growth.bytes)} ({percent(growth.fraction)}) in {growth.samples:,} samples: "
        f"about {size(projected)} an epoch in {workers} workers.",
        "Look for what the dataset keeps: a dict or list filled in __getitem__, functools.lru_cache, or Python objects "
        "read from a large list; keep tables in NumPy arrays and bound caches, as in functools.lru_cache(maxsize=128)",
    )


@rule("prefetch-memory", "warning", f"batches in flight take more than {percent(PREFETCH_ROOM)} of the memory that is left")
def prefetch_memory(facts: AuditFacts) -> Said | None:
    machine = facts.machine
    room = machine.memory_room_bytes if machine else None
    if room is None or facts.batch is None or facts.settings is None or facts.in_flight is None or facts.batch.bytes == 0:
        return None
    need = facts.in_flight * facts.batch.bytes
    if need <= PREFETCH_ROOM * room:
        return None
    workers, prefetch = facts.settings.num_workers, facts.settings.prefetch_factor or 2
    fitting = int((PREFETCH_ROOM * room / facts.batch.bytes - 1) // workers)
    advice = (
        f"prefetch_factor={fitting}" if 1 <= fitting < prefetch else "prefetch_factor=1, num_workers=" + str(max(1, workers // 2))
    )
    return Said(
        f"Up to {facts.in_flight} batches of {size(facts.batch.bytes)} are alive at once ({workers} workers x {prefetch}): "
        f"{size(need)}, and {size(room)} of memory is left.",
        f"DataLoader(..., {advice})",
        severity="problem" if need > room else None,
    )


@rule("memory-nearly-full", "warning", f"less than {percent(NEARLY_FULL)} of the memory is left")
def memory_nearly_full(facts: AuditFacts) -> Said | None:
    machine = facts.machine
    room = machine.memory_room_bytes if machine else None
    total = (machine.memory_limit_bytes or machine.memory_bytes) if machine else None
    if machine is None or room is None or not total or room >= NEARLY_FULL * total:
        return None
    whose = "the control group's limit" if machine.memory_limit_bytes else "the machine"
    swapped = (
        f", and {size(machine.swap_used_bytes)} is swapped out"
        if machine.swap_used_bytes and machine.swap_used_bytes > SWAPPED
        else ""
    )
    return Said(
        f"{size(room)} of {size(total)} ({whose}) is left{swapped}: files do not stay in memory, and workers may be killed.",
        "Stop what else is using memory (see: top -o %MEM), or raise the container's limit (docker run --memory N)",
    )
