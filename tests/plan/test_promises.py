"""No promise above what the cores can compute, and no advice of workers that nothing feeds or nothing runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipefix.measurement.measurement import Block
from pipefix.plan.advise import advise
from pipefix.plan.plan import Declined, Plan, Proposed
from tests.plan.builders import JPEGS, MACHINE, SLOW_NETWORK, World, find

WAITING = World(
    storage=0.0002, decode=0.006, augment=0.0001, collate=0.0001, ipc=0.0002, taking=0.0001, workers=1, cores=4.0,
    computing={"decode": 0.1},
)  # fmt: skip
"""Decoding seems to wait."""


def planned(world: World, *, cpu: float = 0.0, starved: float = 0.0) -> Plan:
    """``cpu``: seconds a sample that all threads of the workers compute."""
    measurement, diagnosis = world.measurement(), world.diagnosis()
    samples = measurement.of("plain")[0].samples
    row = measurement.rows("real")[0]
    row.trace.process_made = round(cpu * samples * 1e9)
    measurement.blocks = [replace(block, rows=(row,)) if isinstance(block, Block) else block for block in measurement.blocks]
    diagnosis.starved = starved
    return advise(measurement, diagnosis, machine=MACHINE)


def test_more_workers_are_promised_no_more_than_the_cores_can_compute() -> None:
    """By the calling thread's clock a decoder with threads of its own waits: 16 workers looked like 6.7x on cores that are full."""
    assert any(step.id.startswith("workers-") and step.speedup.value > 4 for step in planned(WAITING).proposed)
    for step in planned(WAITING, cpu=0.02):
        if isinstance(step, Proposed) and step.id.startswith("workers-"):
            assert step.speedup.value <= 4 * WAITING.seconds / 0.02 + 1e-9
    assert not [step for step in planned(WAITING, cpu=0.03).proposed if step.id.startswith("workers-")]


@pytest.mark.parametrize("shards", [1, 2])
def test_no_more_workers_than_a_stream_has_shards(shards: int) -> None:
    world = SLOW_NETWORK.but(workers=1, fields={"shards": shards}, settings={"kind": "iterable", "length": None})
    counts = [int(step.id.removeprefix("workers-")) for step in planned(world).proposed if step.id.startswith("workers-")]
    assert all(count <= shards for count in counts)
    if shards == 1:
        step = find(planned(world), "workers")
        assert isinstance(step, Declined)
        assert step.why.startswith("the stream has 1 shard, which feeds one worker: ")


def test_no_more_workers_where_others_have_the_cores() -> None:
    """Three quarters of the time without a CPU on two cores was told as waiting, with 3.34x for eight workers."""
    world = JPEGS.but(cores=4.0, computing={"decode": 0.2, "augment": 0.2})
    assert any(step.id.startswith("workers-") for step in planned(world, cpu=0.001).proposed)
    plan = planned(world, cpu=0.001, starved=0.74)
    assert not any(step.id.startswith("workers-") for step in plan.proposed)
    step = find(plan, "workers")
    assert isinstance(step, Declined)
    assert step.why.startswith(
        "for 74 % of the time the pipeline was ready to run and had no CPU, though it uses only 0.2 of 4 cores"
    )
