"""Audit rules about memory: copies of Python objects in every worker, and private memory that grows."""

from __future__ import annotations

from pipefix.audit.facts import AuditFacts, DatasetFacts, Message, rule
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


@rule(
    "memory-growth",
    "warning",
    f"more than {HEAVY_OBJECTS:,} Python objects of {size(HEAVY_BYTES)} in lists or dicts of a dataset with workers, or a worker's "
    f"private memory grew by more than {percent(GROWN)} in {ENOUGH_SAMPLES} samples (to {size(GROWTH_BYTES)} an epoch)",
)
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
        sentence += (
            f"; reading one counts a reference, which copies its page, so that each of {workers} workers ends up with its own copy"
        )
        sentence += f": {size(held.bytes * workers)} more."
        if facts.growth is not None and facts.growth.bytes > 0:
            sentence += f" A worker's private memory grew by {size(facts.growth.bytes)} in {facts.growth.samples:,} samples."
    else:
        sentence += (
            f"; each of {workers} workers is sent a pickled copy when it starts: {size(held.bytes * workers)} more, and a wait."
        )
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
    projected = max(float(growth.bytes * workers), growth.per_sample * (epoch or 0))
    room = facts.machine.memory_room_bytes if facts.machine else None
    if projected <= max(GROWTH_BYTES, GROWTH_ROOM * (room or 0)):
        return None
    return Message(
        f"A worker's private memory (USS) grew by {size(growth.bytes)} ({percent(growth.fraction)}) in {growth.samples:,} samples: "
        f"about {size(projected)} an epoch in {workers} workers.",
        "Look for what the dataset keeps: a dict or list filled in __getitem__, functools.lru_cache, or Python objects "
        "read from a large list; keep tables in NumPy arrays and bound caches, as in functools.lru_cache(maxsize=128)",
    )
