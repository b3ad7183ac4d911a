"""--batch-sizes: other batch sizes are measured with the settings chosen, within the limits, and none of them is chosen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipefix.api.tune import _with_sizes
from pipefix.report.tune_report import ConsumerName, TuneReporter
from pipefix.tuning.batch_sizes import DOUBLINGS, sweep
from pipefix.tuning.limits import ResourceLimits
from pipefix.tuning.results import BatchSize
from pipefix.tuning.space import Settings
from pipefix.tuning.trial import TrialEnded, Watch
from pipefix.vocabulary.settings import LoaderSettings
from tests.tuning import grids
from tests.tuning.machine import Appetite, FakeTrial, Machine, planned, tuned

EIGHT = next(grid for grid in grids.every() if grid.name == "eight-cores")
FED = next(grid for grid in grids.every() if grid.demand is not None)


@pytest.mark.parametrize(("grid", "waits"), [(EIGHT, False), (FED, True)], ids=["no consumer", "a consumer"])
def test_sizes_are_doubled_from_half_the_present_one(grid: grids.Grid, waits: bool) -> None:
    machine = Machine(grid)
    result = tuned(machine, Settings(4))
    before = len(machine.started)
    sizes = list(sweep(machine, result, 32, ResourceLimits(), seconds=1.0))
    assert [size.batch_size for size in sizes] == [16 * 2**power for power in range(DOUBLINGS + 1)]
    assert all(size.rate is not None and size.batch_s == size.batch_size / size.rate.value for size in sizes)
    assert all((size.stall is not None) == waits for size in sizes)
    assert all(size.rate.low < size.rate.high and size.used.memory_bytes for size in sizes if size.rate)
    assert {settings.but(batch_size=None) for settings in machine.started[before:]} == {result.chosen}
    assert not machine.running


def test_a_size_that_does_not_fit_is_told_and_ends_it() -> None:
    limits = ResourceLimits(memory_bytes=6e9)
    machine = Machine(EIGHT, Appetite(batch=40e6))
    result = tuned(machine, Settings(4), limits)
    sizes = list(sweep(machine, result, 32, limits, seconds=1.0))
    assert len(sizes) < DOUBLINGS + 1
    assert "the limit is 6.00 GB of memory" in sizes[-1].reason and sizes[-1].rate is None
    assert not any(size.reason for size in sizes[:-1])
    plan = planned(machine, Settings(4), limits)
    telling = TuneReporter("data.py", LoaderSettings(batch_size=32), plan, result, ConsumerName("none", present=False), sizes)
    report = telling.report(created="", written=None)
    assert report.batch_sizes == sizes and "batch_size" not in report.changes
    assert any("The batch size stays 32." in note for note in report.notes)


def test_no_batch_is_larger_than_an_epoch() -> None:
    """They held no more samples than the dataset has, were told as slower from batch to batch, and with drop_last failed."""
    machine = Machine(EIGHT)
    subject = SimpleNamespace(settings=LoaderSettings(batch_size=32, length=100))
    sizes: list[BatchSize] = []
    _with_sizes(sizes, machine, tuned(machine, Settings(4)), subject, planned(machine, Settings(4)))
    assert [size.batch_size for size in sizes] == [16, 32, 64]


def test_an_interrupt_among_the_sizes_keeps_what_was_tuned() -> None:
    machine = Machine(EIGHT)
    plan = planned(machine, Settings(4))
    result = tuned(machine, Settings(4))
    machine.break_at = machine.now + 5.0
    sizes: list[BatchSize] = []
    subject = SimpleNamespace(settings=LoaderSettings(batch_size=32))
    kept = _with_sizes(sizes, machine, result, subject, plan)
    assert 0 < len(sizes) < DOUBLINGS + 1
    assert (kept.partial, kept.chosen, kept.after) == (True, result.chosen, result.after)
    assert not machine.running


def test_a_smaller_size_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch of two half is one, with which a step with BatchNorm raises: no size was measured at all."""
    machine = Machine(EIGHT)
    result, start = tuned(machine, Settings(4)), machine.start

    def fussy(settings: Settings, watch: Watch) -> FakeTrial:
        if settings.batch_size == 1:
            raise TrialEnded("it failed: more than one value is expected")
        return start(settings, watch)

    monkeypatch.setattr(machine, "start", fussy)
    sizes = list(sweep(machine, result, 2, ResourceLimits(), seconds=1.0))
    assert [bool(size.reason) for size in sizes] == [True, *[False] * DOUBLINGS]
    telling = TuneReporter("x", LoaderSettings(batch_size=2), planned(machine), result, ConsumerName("none", present=False), sizes)
    assert not any("accumulate" in note for note in telling.report(created="", written=None).notes)
