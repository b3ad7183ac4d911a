"""The ruler of planted pipelines: what is planted is really spent, by the clocks of the thread that spends it."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator

from measured.planted import ledger, tuning
from measured.planted.fixes import Fix, changed
from measured.planted.judge import preload
from measured.planted.pipelines import Planted, assemble
from measured.planted.server import Server
from measured.planted.truth import POOL
from measured.row import Row, about, at_least, at_most

MS = 1e-3
COSTS = {"storage": 0.6 * MS, "decode": 1.5 * MS, "augment": 0.9 * MS, "collate": 0.4 * MS}
CLOSE = 0.35
"""How nearly what is planted is spent: the bench asks it of every case that it judges."""
SOURCE = "the bench's own tolerance"
PIPELINES = (
    ("jpeg", "open", "map"),
    ("png", "pathlib", "methods"),
    ("cv2", "fromfile", "inline"),
    ("torchvision", "shard", "folder"),
    ("npz", "pread", "batched"),
    ("zlib", "socket", "stream"),
    ("json", "urllib", "map"),
    ("jpeg", "requests", "methods"),
)
"""Every format, source and shape, each at least once."""


def rows() -> Iterator[Row]:
    preload()
    with Server():
        for format, source, shape in PIPELINES:
            yield spent_as_planted(format, source, shape)
        yield from steps()
        yield from taken_out()
        yield waiting()
        yield payload()


def spent_as_planted(format: str, source: str, shape: str) -> Row:
    """The worst of its stages, so that one row stands for all of them."""
    waits = source in ("socket", "urllib", "requests")
    planted = Planted(
        "ruler", "storage", COSTS | {"storage": (5 if waits else 2) * MS}, format=format, storage=source, shape=shape,
        waits=("storage",) if waits else (),
    )  # fmt: skip
    with tuning.build(planted) as pipeline:
        spent = tuning.steady(pipeline, 32)
    errors = {stage: spent[stage] / planted.costs[stage] - 1 for stage in POOL}
    worst = max(POOL, key=lambda stage: abs(errors[stage]))
    return at_most(
        f"ruler: {format} by {source}, {shape}: worst stage",
        100 * abs(errors[worst]), "% off", 100 * CLOSE, source=SOURCE,
        note=f"{worst} took {spent[worst] / MS:.2f} ms where {planted.costs[worst] / MS:.2f} ms were planted",
    )  # fmt: skip


def steps() -> Iterator[Row]:
    planted = Planted("step", "step", COSTS | {"step": 3 * MS}, consumer="real")
    for kind, waits in (("computing", ()), ("waiting", ("step",))):
        with tuning.build(dataclasses.replace(planted, waits=waits)) as pipeline:
            batch = {"labels": [0] * planted.batch_size}
            taken = []
            for _ in range(7):
                begun = time.perf_counter()
                pipeline.step(batch)
                taken.append((time.perf_counter() - begun) / planted.batch_size)
        yield about(f"ruler: {kind} step, 3 ms planted", statistics.median(taken) / MS, "ms", 3, CLOSE, source=SOURCE)


def taken_out() -> Iterator[Row]:
    """What the what-if benchmark takes out is gone, and all else stays."""
    with tuning.build(Planted("whole", "decode", dict.fromkeys(POOL, 1.5 * MS))) as pipeline:
        for stage in POOL:
            spent = tuning.steady(changed(pipeline, Fix(pipeline.planted, without=(stage,))))
            least = min(spent[name] for name in POOL if name != stage)
            yield at_most(f"ruler: {stage} of 1.5 ms taken out", spent[stage] / MS, "ms", 0.25, source=SOURCE)
            yield at_least(f"ruler: the least of the others without {stage}", least / MS, "ms", 1, source=SOURCE)


def waiting() -> Row:
    planted = Planted("waits", "augment", COSTS | {"augment": 3 * MS, "collate": 2 * MS}, waits=("augment", "collate"))
    with tuning.build(planted) as pipeline:
        tuning.direct(pipeline)
        shares = [ledger.spent()[stage].cpu_s / ledger.spent()[stage].wall_s for stage in planted.waits]
    return at_most("ruler: CPU used while waiting", 100 * max(shares), "%", 40, source=SOURCE)


def payload() -> Row:
    planted = Planted("payload", "ipc", dict.fromkeys(POOL, 0.1 * MS) | {"ipc": 2 * MS}, workers=1)
    with tuning.build(planted) as pipeline:
        seconds = []
        for size in (1000, 0):
            pipeline.payload.resize(size)
            assemble(pipeline)
            seconds.append(tuning.handover(pipeline))
    return at_least("ruler: hand-over, 1,000 objects against none", seconds[0] / seconds[1], "x", 2, source=SOURCE)
