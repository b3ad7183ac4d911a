"""A device computes on after the step's call has returned: what it does meanwhile is neither waiting nor extra time."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pipefix.diagnosis.attribution import exposed_share, own_wait
from pipefix.diagnosis.diagnose import diagnose
from pipefix.measurement.measurement import Block, Measurement, Row
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.tuning.child import trial_block
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.stage import Stage
from tests.doubles.measured import measured

MS = 1_000_000
LAUNCH = 0.2
"""Milliseconds that launching a step takes the training process."""


def loop(making: float, device: float, *, workers: int, batches: int = 40, at_once: int = 1, events: bool = False) -> list[Row]:
    """Batches of four: made in ``making`` milliseconds each (by all workers together), used by the device in ``device``.

    ``at_once``: so many arrive together. ``events``: how long the device idled is known.
    """
    rows = []
    now, ready, free = 0.0, 0.0, 0.0
    for number in range(batches):
        asked = now
        ready = max(ready, 0.0 if workers else asked) + (0.0 if number % at_once else at_once * making)
        got = max(asked, ready)
        done = got + LAUNCH
        idle = round(max(0.0, done - free) * MS) if events else None
        free = max(free, done) + device
        begun = ready - making * max(1, workers)
        trace = BatchTrace(1, 1, number % max(1, workers), 9, 4, round(begun * MS), round(ready * MS), round(ready * MS), 0, 0)
        wall = round(making * max(1, workers) * MS)
        trace.charges = [Charge("decode", "decode", wall, wall, wall, 4)]
        trace.unit_walls = [wall // 4] * 4
        waited = round((got - asked) * MS) if workers else 0
        rows.append(Row(round(asked * MS), round(got * MS), round(done * MS), waited, 0, trace, round(device * MS), idle))
        now = done if free - done < 20 * device else free - 20 * device  # the launch queue is not endless
    return rows


def found(rows: list[Row], delivered: float, workers: int, **arms: float) -> Measurement:
    """``arms``: what a batch takes in other arms, in milliseconds."""
    settings = LoaderSettings(batch_size=4, num_workers=workers, length=1000)
    whole = Measurement(settings, workers, cores=8.0, consumer="train_step", has_consumer=True)
    for _ in range(3):
        whole.blocks += [Block(arm, tuple(rows), delivered / 1e3 * len(rows), 4 * len(rows)) for arm in ("real", "plain")]
        whole.blocks += [Block(arm.replace("_", "-"), (), ms / 1e3 * len(rows), 4 * len(rows)) for arm, ms in arms.items()]
    return whole


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize(("making", "device", "waiting"), [(10.0, 6.0, 0.4), (10.0, 0.0, 0.98), (10.0, 9.5, 0.05)])
def test_a_starved_device_waits_for_what_it_cannot_hide(making: float, device: float, waiting: float, workers: int) -> None:
    rows = loop(making, device, workers=workers)
    assert exposed_share([Block("real", tuple(rows[1:]), 1.0, 4)], workers) == pytest.approx(waiting, abs=0.03)


@pytest.mark.parametrize("workers", [0, 4])
def test_a_fed_device_does_not_wait(workers: int) -> None:
    assert exposed_share([Block("real", tuple(loop(3.0, 10.0, workers=workers)[1:]), 1.0, 4)], workers) == 0


def test_what_a_backlog_of_steps_hides_is_no_wait() -> None:
    """Ten batches come at once, every tenth of a second; what they have the device do takes eight tenths of that."""
    rows = tuple(loop(10.0, 8.0, workers=4, batches=200, at_once=10, events=True)[100:])
    block = Block("plain", rows, 1.0, 4)
    assert exposed_share([block], 4) == pytest.approx(0.2, abs=0.03)
    pool: Any = SimpleNamespace(consumer=SimpleNamespace(present=True), workers=4, serving=4)
    assert trial_block(block, pool, 0.0).waited == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("pinned", [False, True])
def test_copies_that_a_step_waits_for_are_a_part_of_its_time(pinned: bool) -> None:
    """Milliseconds a sample: 1 to make, 3 for the step, one of those for the copy. Else what the loader's way of copying takes."""
    pipeline = measured({"decode": 1.0}, step=3.0)
    pipeline.settings = msgspec.structs.replace(pipeline.settings, pin_memory=pinned)
    pipeline.transfer = {"pinned": 0.002, "pageable": 0.006, "pinning": 0.001, "bytes": 1e6, "exposed": 0.004}
    copy = diagnose(pipeline).stages[Stage.TRANSFER]
    assert (copy.share, copy.hidden, copy.wall.value) == (pytest.approx(0.25), False, pytest.approx(0.001))
    pipeline.transfer["exposed"] = 0.0
    copy = diagnose(pipeline).stages[Stage.TRANSFER]
    assert (copy.share, copy.hidden, copy.wall.value) == (0, True, pytest.approx(0.0005 if pinned else 0.0015))


def test_what_is_measured_beside_a_batch_is_no_wait_without_workers() -> None:
    rows = loop(3.0, 0.0, workers=0)
    for row in rows:
        row.trace.extra = 2 * MS
    blocks = [Block("real", tuple(rows[1:]), 1.0, 4)]
    assert exposed_share(blocks, 0) < exposed_share(blocks, 1)


def test_what_the_loader_itself_takes_is_no_wait_for_data() -> None:
    blocks = [Block("real", tuple(loop(3.0, 0.0, workers=0)[1:]), 1.0, 4)]
    assert exposed_share(blocks, 0, own_wait(blocks, 0)) == pytest.approx(0, abs=1e-9)
    assert own_wait(blocks, 0) == pytest.approx(3 * MS, rel=0.1)


def test_a_wait_for_the_sampler_is_one_for_data_in_every_arm() -> None:
    """It is asked where batches cost nothing as well: a consumer that waited for it 80 % of the time was called fed."""
    rows = [dataclasses.replace(row, sampled=2 * MS) for row in loop(3.0, 0.0, workers=0)[1:]]
    assert own_wait([Block("loader-floor", tuple(rows), 1.0, 4)], 0) == pytest.approx(1 * MS, rel=0.1)


def test_a_step_that_waits_for_its_device_is_as_before() -> None:
    rows = [dataclasses.replace(row, done=row.got + 6 * MS, device=6 * MS) for row in loop(10.0, 0.0, workers=4)]
    assert exposed_share([Block("real", tuple(rows[1:]), 1.0, 4)], 4) == pytest.approx(10 / 16, abs=0.03)


@pytest.mark.parametrize("workers", [0, 4])
def test_data_limit_where_making_takes_longer(workers: int) -> None:
    """The device's time hides behind the making: named as the step's cost it would make the parts longer than the whole."""
    diagnosis = diagnose(found(loop(10.0, 6.0, workers=workers)[1:], 10.2 if not workers else 10.0, workers, decode_recorded=6.2))
    assert (diagnosis.verdict.kind, diagnosis.verdict.stage) == ("input-bound", Stage.DECODE)
    assert diagnosis.closure == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("workers", [0, 4])
def test_the_step_limits_where_the_device_takes_longer(workers: int) -> None:
    diagnosis = diagnose(found(loop(3.0, 10.0, workers=workers)[1:], 10.0, workers, no_consumer=3.2))
    assert (diagnosis.verdict.kind, diagnosis.verdict.stage) == ("step-bound", Stage.STEP)
