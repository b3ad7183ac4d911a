"""What a meter shows, made into windows."""

from __future__ import annotations

from typing import Any

import pytest

from pipefix.loader.metering.cost_record import FAILED, TimedBatch, Totals
from pipefix.loader.metering.meter import Meter, MeteredStep, Sums
from pipefix.watching.gather import LEAST, Gatherer

MS = 1_000_000


def look(number: int, **changes: int) -> TimedBatch:
    plain = TimedBatch(
        number, at=0, samples=10, storage=10 * MS, decode=40 * MS, augment=20 * MS, own=0, collate=5 * MS, bytes=1000, cpu=60 * MS,
        made=80 * MS, handed=2 * MS, sent=2,
    )  # fmt: skip
    return plain._replace(**changes)


class Told(Meter):
    """Shows what the test says, and half a minute passes whenever it is asked for the time."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: next(self._seconds) * 1000 * MS)
        self._seconds = iter(range(0, 3000, 30))
        self.shown: tuple[Sums, list[MeteredStep], list[TimedBatch], Totals] = (Sums(0, 0, 0, 0, 0), [], [], Totals())
        self.workers = True

    def tell(self, looks: list[TimedBatch], makers: Totals | None = None) -> None:
        before = self.shown[0]
        steps = [MeteredStep(at=0, wait=MS, took=MS, step=20 * MS, samples=10, first=number == 0) for number in range(20)]
        passed = Sums(20, 200, 100 * MS, 400 * MS, MS)
        sums = Sums(*(one + other for one, other in zip(before, passed, strict=True)))
        self.shown = (sums, steps, looks, makers or Totals())

    def sums(self) -> Sums:
        return self.shown[0]

    def steps(self, since: int) -> list[MeteredStep]:
        return self.shown[1]

    def looks(self) -> list[TimedBatch]:
        return self.shown[2]

    def makers(self) -> Totals:
        return self.shown[3]


@pytest.fixture
def meter() -> Told:
    return Told()


@pytest.fixture
def window(meter: Told) -> Any:
    """Makes one of what the meter is told to show."""
    gatherer = Gatherer(meter)

    def gathered(looks: list[TimedBatch], makers: Totals | None = None, **options: Any) -> Any:
        meter.tell(looks, makers)
        return gatherer.window(time=1.0, workers=2, **options)

    return gathered


def test_medians_of_seconds_a_sample(window: Any):
    looks = [look(number) for number in range(1, 10)] + [look(10, decode=4000 * MS)]
    found = window(looks)
    assert {name: pytest.approx(cost.s * 1e3) for name, cost in found.stages.items()} == {
        "storage": 1.0, "decode": 4.0, "augment": 2.0, "collate": 0.5, "ipc": 0.2, "step": 2.0,
    }  # fmt: skip
    assert found.bytes == 100
    assert found.cpu == pytest.approx(0.006)
    assert found.waiting == pytest.approx(0.2)
    assert found.rate == pytest.approx(200 / 30)
    assert found.starts == [0.001]
    assert found.wait is not None and found.wait.p50 == pytest.approx(0.001)


def test_stages_without_any_cost_are_not_told(window: Any):
    found = window([look(1, storage=0, bytes=0) for _ in range(LEAST)])
    assert "storage" not in found.stages
    assert found.bytes is None


def test_few_looks_wait_for_more(window: Any):
    assert "decode" not in window([look(1)]).stages
    assert "step" in window([look(1)]).stages
    assert window([look(1), look(2)]).stages["decode"].batches == LEAST + 1
    window([look(1)])
    assert window([], ended=True).stages["decode"].batches == 1


def test_how_busy_makers_are_is_told_by_window(window: Any):
    first = window([], Totals(made_ns=30_000 * MS, cost_ns=30 * MS))
    second = window([], Totals(made_ns=90_000 * MS, cost_ns=60 * MS))
    assert (first.busy, second.busy) == (0.5, 1.0)
    assert second.looking == pytest.approx(0.0005)


def test_why_there_are_no_figures_by_stage(window: Any):
    assert window([]).declined is None
    assert window([], Totals(state=FAILED)).declined == "looking at stages failed where batches are made, and was given up"


def test_a_window_in_which_nothing_happened(meter: Told):
    window = Gatherer(meter).window(time=1.0)
    assert (window.waiting, window.wait, window.step, window.stages) == (None, None, None, {})
