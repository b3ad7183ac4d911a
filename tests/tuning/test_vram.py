"""The device's memory, told by a driver that is made up."""

from __future__ import annotations

import sys

import pytest
from torch.utils.data import DataLoader

import pipefix
from pipefix.tuning.limits import BatchCost, Footprint, ResourceLimits, Usage, ending, refusal
from pipefix.tuning.space import Settings
from pipefix.tuning.usage import Vram
from tests.doubles.driver import GIB, Driver
from tests.tuning.paced import Paced, as_list


def test_what_processes_hold_is_summed() -> None:
    driver = Driver()
    vram = Vram(driver)
    assert vram.why is None and vram.free == 7 * GIB
    driver.held, driver.used = {10: GIB, 11: 2 * GIB, 99: GIB}, 5 * GIB
    assert vram.of(10, [10, 11]) == 3 * GIB
    vram.close()
    vram.close()
    assert driver.open == 0
    assert vram.of(10, [10]) == 0.0


@pytest.mark.parametrize("held", [{4711: GIB}, {10: None}])
def test_where_the_driver_knows_other_numbers_what_came_with_a_trial_counts(held: dict[int, int | None]) -> None:
    """Two that run in turn were each told the memory of both, and their sum was held against the limit."""
    driver = Driver()
    vram = Vram(driver)
    assert vram.of(10, [10]) == 0.0, "nothing runs yet"
    driver.held, driver.used = held, 3 * GIB
    assert vram.of(10, [10]) == 2 * GIB
    driver.used = 6 * GIB
    assert [vram.of(20, [20]), vram.of(10, [10])] == [3 * GIB, 2 * GIB]
    driver.used = 4 * GIB  # the first has ended
    assert vram.of(20, [20]) == 3 * GIB


def test_why_nothing_is_watched_is_said() -> None:
    assert Vram(Driver(devices=0)).why == "the driver knows no device"
    vram = Vram(Driver("driver not loaded"))
    assert vram.why == "the driver cannot be asked: driver not loaded"
    assert vram.free is None and vram.of(1, [1]) == 0.0


def test_device_memory_is_a_limit_like_any_other() -> None:
    limits = ResourceLimits(vram_bytes=8 * GIB)
    footprint = Footprint(BatchCost(1e6, 1, 3e8, 40, 0.01, 0.01)).with_trial(
        Settings(2, batch_size=32), Usage(vram_bytes=3.0 * GIB)
    )
    assert refusal(limits, footprint.predict(Settings(4, batch_size=32))) is None
    reason = refusal(limits, footprint.predict(Settings(2, batch_size=96)))
    assert reason == "it would take about 9.66 GB of the device's memory, and the limit is 8.59 GB of the device's memory"
    assert ending(limits, Usage(vram_bytes=7.5 * GIB)) is not None
    assert ending(limits, Usage(vram_bytes=6.5 * GIB), Usage(vram_bytes=5.0 * GIB)) is not None, "it grows"


def test_a_limit_that_cannot_be_watched_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver("driver not loaded"))
    tuned = pipefix.tune(DataLoader(Paced(0.001), batch_size=2, collate_fn=as_list), budget=1.5, trials=1, max_vram=1e9)
    assert "--max-vram could not be watched: the driver cannot be asked: driver not loaded." in tuned.report.notes
