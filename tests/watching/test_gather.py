"""Readings of a meter made into windows."""

from __future__ import annotations

import pytest

from pipefix.loader.metering.cost_record import TimedBatch, Totals
from pipefix.loader.metering.meter import MeteredStep, MeterReading
from pipefix.watching.gather import LEAST, Gatherer

MS = 1_000_000


def look(number: int, **changes: int) -> TimedBatch:
    plain = TimedBatch(
        number, at=0, samples=10, storage=10 * MS, decode=40 * MS, augment=20 * MS, own=0, collate=5 * MS, bytes=1000, cpu=60 * MS,
        made=80 * MS, handed=2 * MS, sent=2, calls=100,
    )  # fmt: skip
    return plain._replace(**changes)


def reading(looks: list[TimedBatch], **changes: object) -> MeterReading:
    steps = [MeteredStep(at=0, wait=MS, took=MS, step=20 * MS, samples=10, first=number == 0) for number in range(20)]
    plain = {"seconds": 30.0, "batches": 20, "samples": 200, "waited_s": 0.1, "worked_s": 0.4, "steps": steps, "looks": looks}
    return MeterReading(**{**plain, "workers": True, **changes})  # type: ignore[arg-type]


def test_medians_of_seconds_a_sample():
    looks = [look(number) for number in range(1, 10)] + [look(10, decode=4000 * MS)]
    window = Gatherer().window(reading(looks), time=1.0, workers=2)
    assert {name: pytest.approx(cost.s * 1e3) for name, cost in window.stages.items()} == {
        "storage": 1.0, "decode": 4.0, "augment": 2.0, "collate": 0.5, "ipc": 0.2, "step": 2.0,
    }  # fmt: skip
    assert window.bytes == 100
    assert window.cpu == pytest.approx(0.006)
    assert window.waiting == pytest.approx(0.2)
    assert window.rate == pytest.approx(200 / 30)
    assert window.wait is not None and window.wait.p50 == pytest.approx(0.001)


def test_stages_without_any_cost_are_not_told():
    window = Gatherer().window(reading([look(1, storage=0, bytes=0) for _ in range(LEAST)]), time=1.0)
    assert "storage" not in window.stages
    assert window.bytes is None


def test_few_looks_wait_for_more():
    gatherer = Gatherer()
    assert "decode" not in gatherer.window(reading([look(1)]), time=1.0).stages
    assert "step" in gatherer.window(reading([look(1)]), time=2.0).stages
    assert gatherer.window(reading([look(1), look(2)]), time=3.0).stages["decode"].batches == LEAST + 1
    gatherer.window(reading([look(1)]), time=4.0)
    assert gatherer.window(reading([]), time=5.0, ended=True).stages["decode"].batches == 1


def test_how_busy_makers_are_is_told_by_window():
    gatherer = Gatherer()
    first = gatherer.window(reading([], makers=Totals(made_ns=30_000 * MS, cost_ns=30 * MS)), time=1.0, workers=2)
    second = gatherer.window(reading([], makers=Totals(made_ns=90_000 * MS, cost_ns=60 * MS)), time=2.0, workers=2)
    assert (first.busy, second.busy) == (0.5, 1.0)
    assert second.looking == pytest.approx(0.0005)


def test_a_window_in_which_nothing_happened():
    window = Gatherer().window(MeterReading(seconds=30.0, batches=0, samples=0, waited_s=0.0, worked_s=0.0), time=1.0)
    assert (window.waiting, window.wait, window.step, window.stages) == (None, None, None, {})
