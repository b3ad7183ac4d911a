"""Measurements built by hand: every cost is known, so what is read out of them can be checked to the nanosecond."""

from __future__ import annotations

from collections.abc import Mapping

from pipefix.measurement.measurement import Block, Measurement, Row
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.vocabulary.settings import LoaderSettings

MS = 1_000_000


def measured(
    costs: Mapping[str, float],
    *,
    workers: int = 0,
    batch: int = 4,
    batches: int = 12,
    blocks: int = 3,
    step: float = 0.0,
    handing: float = 0.0,
    jitter: Mapping[int, float] | None = None,
    arms: Mapping[str, float] | None = None,
) -> Measurement:
    """A pipeline whose stages take ``costs`` milliseconds a sample, its step and the taking over of a batch likewise.

    With workers the delivered time is that of the slower station. ``jitter`` multiplies the costs of single batches;
    ``arms`` gives other arms' throughput over the real one's.
    """
    settings = LoaderSettings(batch_size=batch, num_workers=workers, length=1000)
    found = Measurement(settings, workers, cores=2.0, consumer="test" if step else "none", has_consumer=bool(step))
    maker = sum(value for name, value in costs.items() if name != "step")
    cycle = max(maker / workers, step + handing) if workers else maker + step
    for number in range(blocks):
        rows = tuple(
            _row(costs, place, workers, batch, step, handing, cycle, (jitter or {}).get(place, 1.0), number * batches)
            for place in range(batches)
        )
        seconds = cycle * batch * batches / 1e3
        found.blocks.append(Block("real", rows, seconds, batch * batches))
        found.blocks.append(Block("plain", rows, seconds, batch * batches))
        for name, gain in (arms or {}).items():
            found.blocks.append(Block(name, (), seconds / gain, batch * batches))
    return found


def _row(
    costs: Mapping[str, float],
    place: int,
    workers: int,
    batch: int,
    step: float,
    handing: float,
    cycle: float,
    factor: float,
    earlier: int,
) -> Row:
    def ns(ms: float) -> int:
        return round(ms * MS * batch * factor)

    charges = [
        Charge(name, f"{name}-op", ns(value), ns(value), ns(value), batch)
        for name, value in costs.items()
        if name in ("storage", "decode", "augment")
    ]
    made = sum(charge.wall for charge in charges)
    collate = ns(costs.get("collate", 0.0))
    turn = place // max(1, workers)
    begun = round((earlier + turn * max(1, workers)) * cycle * batch * MS)
    trace = BatchTrace(
        1, 1, place % max(1, workers), 100 + place % max(1, workers), batch, begun, begun + made, begun + made + collate, made, made
    )
    trace.charges = charges
    trace.unit_walls = [made // batch] * batch
    trace.collate_wall = trace.collate_cpu = collate
    trace.dumps, trace.handed = ns(costs.get("ipc", 0.0)), 1
    asked = round((earlier + place) * cycle * batch * MS)
    stepping = ns(step)
    if workers:
        fetching = round(cycle * batch * MS) - stepping
        return Row(asked, asked + fetching, asked + fetching + stepping, fetching - ns(handing), ns(handing), trace)
    got = asked + made + collate
    return Row(asked, got, got + stepping, 0, 0, trace)
