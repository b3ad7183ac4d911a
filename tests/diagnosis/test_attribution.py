"""Charges of batches become seconds a sample, stage by stage, and add up. A device computes on after the step's call has returned:
what it does meanwhile is neither waiting nor extra time."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.diagnosis.attribution import INDEX, cpu_shares, exposed_share, ledger, operations, own_wait, per_sample
from pipefix.diagnosis.diagnose import diagnose
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.measurement import Block, Measurement, Row
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.tuning.child import trial_block
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.stage import Stage
from tests.doubles.measured import MS, charged, measured

COSTS = st.fixed_dictionaries({name: st.floats(0.05, 20.0) for name in ("storage", "decode", "augment", "collate")})


def each(measurement, name):  # type: ignore[no-untyped-def]
    return per_sample(np.concatenate(ledger(measurement, measurement.of("real"))))[INDEX[name]] * 1e3


@given(COSTS)
def test_without_workers_every_planted_cost_is_found_again(costs: dict[str, float]) -> None:
    measurement = measured(costs)
    for name, value in costs.items():
        assert each(measurement, name) == pytest.approx(value, rel=1e-4)


@given(COSTS, st.floats(0.05, 20.0), st.sampled_from([0, 1, 2, 4]))
def test_shares_and_the_rest_add_up_to_the_delivered_time(costs: dict[str, float], step: float, workers: int) -> None:
    diagnosis = diagnose(measured(costs, workers=workers, step=step))
    attributed = sum(cost.share for cost in diagnosis.stages.values()) * diagnosis.sample.value
    assert attributed + diagnosis.unattributed == pytest.approx(diagnosis.sample.value, rel=1e-6)
    assert diagnosis.closure == pytest.approx(0.0, abs=0.02)


def test_the_users_own_code_belongs_to_what_the_sample_has_been_through() -> None:
    measurement = charged(
        measured({"storage": 1.0, "decode": 1.0}),
        Charge(None, "own code before reading", 4_000_000, 0, 0, 0),
        Charge(None, "own code on raw bytes", 8_000_000, 0, 0, 0),
        Charge(None, "own code on decoded values", 12_000_000, 0, 0, 0),
    )
    assert each(measurement, "own") == pytest.approx(1.0)
    assert each(measurement, "decode") == pytest.approx(1.0 + 2.0)
    assert each(measurement, "augment") == pytest.approx(3.0)


def test_a_dataset_in_memory_has_no_before_reading() -> None:
    measurement = charged(measured({"augment": 1.0}), Charge(None, "own code before reading", 4_000_000, 0, 0, 0))
    assert each(measurement, "augment") == pytest.approx(2.0)
    assert each(measurement, "own") == 0.0


def test_helper_threads_take_the_time_that_the_batch_waited_for_them() -> None:
    header, own = Charge("decode", "header", 400_000, 0, 0, 1), Charge(None, "own code before reading", 8_000_000, 0, 0, 0)
    measurement = charged(measured({"storage": 0.0}), header, own, keep=False)
    for row in measurement.rows("real"):
        row.trace.foreign = [("storage", "get", 30_000_000), ("decode", "jpeg", 10_000_000)]
    assert each(measurement, "storage") == pytest.approx(1.5)
    assert each(measurement, "decode") == pytest.approx(0.6)
    assert each(measurement, "own") == 0.0


def test_collating_into_fresh_shared_memory_is_the_hand_overs_cost() -> None:
    measurement = measured({"decode": 1.0, "collate": 4.0}, workers=2)
    for row in measurement.rows("real"):
        row.trace.plain_collate, row.trace.collate_again = row.trace.collate_wall // 4, row.trace.collate_wall
    assert each(measurement, "collate") == pytest.approx(1.0)
    assert each(measurement, "ipc") == pytest.approx(3.0)


def test_what_collating_has_done_to_samples_already_is_no_hand_over() -> None:
    """It converts them in place, say, which it need not do a second time: that takes a tenth, in either memory."""
    measurement = measured({"decode": 1.0, "collate": 4.0}, workers=2)
    for row in measurement.rows("real"):
        row.trace.plain_collate, row.trace.collate_again = row.trace.collate_wall // 20, row.trace.collate_wall // 10
    assert each(measurement, "collate") == pytest.approx(3.8)
    assert each(measurement, "ipc") == pytest.approx(0.2)


def test_pickling_counts_per_batch_handed_over() -> None:
    measurement = measured({"decode": 1.0, "ipc": 0.5}, workers=2)
    assert each(measurement, "ipc") == pytest.approx(0.5, rel=1e-3)


def test_the_seams_own_cost_is_taken_off_where_the_calls_are_made() -> None:
    measurement = measured({"storage": 1.0, "decode": 1.0, "augment": 1.0})
    measurement.seam_cost = 1e-5
    for row in measurement.rows("real"):
        read, decode, flip = row.trace.charges
        row.trace.charges = [read, msgspec.structs.replace(decode, entered=read.calls), flip]
    assert [each(measurement, stage) for stage in ("storage", "decode", "augment")] == pytest.approx([1.0, 0.99, 1.0])


def test_cpu_share_is_that_of_the_calls_whose_cpu_time_was_read() -> None:
    measurement = charged(measured({"storage": 1.0}), Charge("storage", "read", 1000, 50, 200, 4), keep=False)
    assert cpu_shares(measurement.of("real"))["storage"] == pytest.approx(0.25)


def test_operations_are_named_costliest_first_and_own_code_says_why_it_is_not_cut() -> None:
    measurement = charged(
        measured({"augment": 1.0}),
        Charge("augment", "Flip", 400_000, 0, 0, 4),
        Charge("augment", "Resize", 2_000_000, 0, 0, 4),
        Charge(None, "own code on decoded values", 1_000_000, 0, 0, 0),
        keep=False,
    )
    ops = operations(measurement.of("real"))[Stage.AUGMENT]
    assert [op.name for op in ops] == ["Resize", "own code on decoded values", "Flip"]
    assert ops[1].opaque == "the user's own code, bounded by no library call"
    assert ops[0].calls == 1.0


def waiting(measurement, *, others: float):  # type: ignore[no-untyped-def]
    """The making thread computes for a tenth of the time; other threads of its process for ``others`` of it."""
    for row in measurement.rows("real"):
        trace = row.trace
        trace.charges = [
            Charge(charge.stage, charge.op, charge.wall, charge.wall // 10, charge.wall, charge.calls) for charge in trace.charges
        ]
        spent = sum(charge.wall for charge in trace.charges)
        trace.cpu = spent // 10
        trace.process_made = round(trace.cpu + others * spent)
    return measurement


@pytest.mark.parametrize(("others", "waits"), [(0.0, 0.9), (0.45, 0.45), (0.9, 0.0), (1.8, 0.0)])
def test_a_librarys_own_threads_are_work_and_not_waiting(others: float, waits: float) -> None:
    """Two threads of a decoder that the caller waits for: by the caller's own CPU time alone it looked like waiting for a disk."""
    measurement = waiting(measured({"decode": 4.0}), others=others)
    assert diagnose(measurement).stages[Stage.DECODE].waiting == pytest.approx(waits * 4e-3, abs=1e-5)


@pytest.mark.parametrize(("others", "stage"), [(0.0, "storage"), (0.9, "own")])
def test_own_code_that_waits_for_its_own_threads_is_no_source(others: float, stage: str) -> None:
    own = Charge(None, "own code before reading", 40_000_000, 0, 40_000_000, 0)
    measurement = charged(measured({"storage": 0.1, "decode": 0.1}), own)
    assert each(waiting(measurement, others=others), stage) == pytest.approx(10.0, rel=0.02)


def test_operations_add_up_to_their_stage_whatever_clocks_and_threads_take() -> None:
    many = [Charge("decode", f"op {number}", 100_000, 0, 0, 4) for number in range(40)]
    own = Charge(None, "own code before reading", 8_000_000, 0, 0, 0)
    measurement = charged(measured({"storage": 1.0, "decode": 1.0}), *many, own)
    measurement.seam_cost = 1e-5
    for row in measurement.rows("real"):
        row.trace.foreign = [("storage", "get", 30_000_000)]
    for cost in diagnose(measurement).stages.values():
        if cost.ops:
            assert sum(op.wall_s for op in cost.ops) == pytest.approx(cost.wall.value)


def test_calls_that_cost_nothing_in_this_pipeline_are_not_made_cheaper() -> None:
    """Six calls of 4 µs, a call calibrated at 9 µs: but the timed arm is as fast as the untimed one."""
    calls = Charge("decode", "json.loads", 96_000, 0, 0, 24, entered=24)
    measurement = charged(measured({"decode": 0.024}, blocks=4), calls, keep=False)
    measurement.seam_cost = 9e-6
    assert each(measurement, "decode") == pytest.approx(0.024, rel=0.02)


def test_own_code_that_waits_for_threads_of_its_stage_is_theirs() -> None:
    """Pictures that were read are decoded in a pool: the line that waits for it is decoding, of a call that is known."""
    found = measured({"storage": 0.5})
    for row in found.rows("real"):
        row.trace.charges = [*row.trace.charges, Charge(None, OWN_NAMES[1], 40 * MS, 4 * MS, 40 * MS, 0)]
        row.trace.foreign = [("decode", "cv2.imdecode", 70 * MS)]
    ops = {op.name: op.wall_s for op in operations(found.of("real"))[Stage.DECODE]}
    assert ops == pytest.approx({"cv2.imdecode (other threads)": 9e-3, OWN_NAMES[1]: 1e-3})


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
@pytest.mark.parametrize(
    ("making", "device", "waiting"), [(10.0, 6.0, 0.4), (10.0, 0.0, 0.98), (10.0, 9.5, 0.05), (3.0, 10.0, 0.0)]
)
def test_a_starved_device_waits_for_what_it_cannot_hide(making: float, device: float, waiting: float, workers: int) -> None:
    exposed = exposed_share([Block("real", tuple(loop(making, device, workers=workers)[1:]), 1.0, 4)], workers)
    assert exposed == pytest.approx(waiting, abs=0.03 if waiting else 0)


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
def test_what_takes_longer_limits(workers: int) -> None:
    """The device's time hides behind the making: named as the step's cost it would make the parts longer than the whole."""
    diagnosis = diagnose(found(loop(10.0, 6.0, workers=workers)[1:], 10.2 if not workers else 10.0, workers, decode_recorded=6.2))
    assert (diagnosis.verdict.kind, diagnosis.verdict.stage) == ("input-bound", Stage.DECODE)
    assert diagnosis.closure == pytest.approx(0, abs=0.05)
    diagnosis = diagnose(found(loop(3.0, 10.0, workers=workers)[1:], 10.0, workers, no_consumer=3.2))
    assert (diagnosis.verdict.kind, diagnosis.verdict.stage) == ("step-bound", Stage.STEP)
