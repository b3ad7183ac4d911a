"""Measurements built by hand: every cost is known, so what is read out of them can be checked to the nanosecond."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT
from pipefix.measurement.measurement import Block, Measurement, Row
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.stage import Stage

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
    arms: Mapping[str, float | None] | None = None,
) -> Measurement:
    """A pipeline whose stages take ``costs`` milliseconds a sample, its step and the taking over of a batch likewise.

    With workers the delivered time is that of the slower station. ``jitter`` multiplies the costs of single batches;
    ``arms`` gives other arms' throughput over the real one's. Where it says nothing, each stage's own arm gains what its cost
    allows; None leaves an arm out.
    """
    settings = LoaderSettings(batch_size=batch, num_workers=workers, length=1000)
    measurement = Measurement(settings, workers, cores=2.0, consumer="test" if step else "none", has_consumer=bool(step))
    maker = sum(value for name, value in costs.items() if name != "step")
    cycle = max(maker / workers, step + handing) if workers else maker + step
    measurement.declined = {experiments.SUPPLY.name: "left out by the test"} if workers and step else {}
    gains = honest_gains(costs, workers, step, handing) | dict(arms or {})
    for number in range(blocks):
        rows = tuple(
            _row(costs, place, workers, batch, step, handing, cycle, (jitter or {}).get(place, 1.0), number * batches)
            for place in range(batches)
        )
        seconds = cycle * batch * batches / 1e3
        measurement.blocks.append(Block("real", rows, seconds, batch * batches))
        measurement.blocks.append(Block("plain", rows, seconds, batch * batches))
        for name, gain in gains.items():
            if gain is not None:
                measurement.blocks.append(Block(name, (), seconds / gain, batch * batches))
    return measurement


def charged(measurement: Measurement, *charges: Charge, keep: bool = True) -> Measurement:
    """Add these charges to every batch of the pipeline as it is, or put them in the place of its own."""
    for row in measurement.rows("real"):
        row.trace.charges = [*(row.trace.charges if keep else ()), *charges]
    return measurement


def slowed(measurement: Measurement, arm: str, *factors: float) -> Measurement:
    """The blocks of an arm take so many times as long, one factor after the other."""
    each = itertools.cycle(factors)
    for number, block in enumerate(measurement.blocks):
        if block.arm == arm:
            measurement.blocks[number] = dataclasses.replace(block, seconds=block.seconds * next(each))
    return measurement


def honest_gains(costs: Mapping[str, float], workers: int, step: float, handing: float) -> dict[str, float | None]:
    """What every stage's own arm gains by the stations alone. With workers a test says what the loader alone takes."""

    def cycle(without: str = "") -> float:
        left = {name: 0.0 if name == without else value for name, value in costs.items()}
        taking = step + (0.0 if without == "ipc" else handing)
        return max(sum(left.values()) / workers, taking, 1e-3) if workers else max(sum(left.values()) + step, 1e-3)

    gains: dict[str, float | None] = {
        arm.name: cycle() / cycle(stage.value)
        for stage, arm in LEAVE_ONE_OUT.items()
        if stage is not Stage.STEP and (workers or stage is not Stage.IPC)
    }
    return gains | ({experiments.SUPPLY.name: cycle() / max(sum(costs.values()), 1e-3)} if step and not workers else {})


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
