"""What a watch says of the machine: means of looks, and nothing where nothing can be asked."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from pipefix.watching import gather
from pipefix.watching.gather import MachineFigures
from pipefix.watching.watch import watch
from tests.doubles.driver import Driver


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver(used=8_000_000_000, busy=[40, 80])
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(gather, "is_cuda_awake", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return driver


def test_looks_are_averaged_and_begin_anew(driver: Driver) -> None:
    figures = MachineFigures()
    figures.look()
    figures.look()
    taken = figures.take()
    assert {name: taken[name] for name in taken if name.startswith("gpu_")} == {
        "gpu_utilisation": 0.6, "gpu_memory_bytes": 8e9, "gpu_temperature_c": 61.0, "gpu_throttled": 0.0,
    }  # fmt: skip
    assert 0 <= taken["cpu"] <= 1 and 0 < taken["memory"] <= 1
    assert figures.take() == {}
    assert driver.open == 1
    figures.close()
    figures.look()
    assert driver.open == 0 and "gpu_utilisation" not in figures.take()


def test_a_driver_that_the_program_has_shut_down_ends_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = MachineFigures()
    figures.look()
    monkeypatch.setattr(driver, "nvmlShutdown", lambda: 1 / 0)
    figures.close()


def test_a_device_that_is_lost_is_left_out(driver: Driver) -> None:
    driver.busy = [40]
    figures = MachineFigures()
    figures.look()
    figures.take()
    figures.look()
    assert "gpu_utilisation" not in figures.take(), "there was nothing more to pop"


def test_a_window_that_is_closed_during_a_look_ends_nothing() -> None:
    """As `close` does while a driver hangs: the last window was not written, for what was called a bug in pipefix."""
    figures = MachineFigures()

    def slow() -> float:
        assert figures.take() == {}
        return 0.5

    assert figures._ask({"gpu_utilisation": slow}) == []
    assert figures.take() == {"gpu_utilisation": 0.5}


@pytest.mark.parametrize("library", [None, SimpleNamespace()])
def test_without_a_driver_the_rest_is_told(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(gather, "is_cuda_awake", lambda: True)
    figures = MachineFigures()
    figures.look()
    assert figures.take().keys() == {"cpu", "memory"}


def test_a_job_that_uses_no_cuda_does_not_wake_it() -> None:
    figures = MachineFigures()
    figures.look()
    assert figures.take().keys() == {"cpu", "memory"}
    assert not torch.cuda.is_initialized()


def test_windows_of_a_watch_hold_them() -> None:
    with watch(DataLoader(range(8)), every=0.05) as watched:
        list(watched)
        until = time.monotonic() + 60
        while ((window := watched.window) is None or not window.machine) and time.monotonic() < until:
            time.sleep(0.01)
        assert window is not None
        assert window.machine.keys() == {"cpu", "memory"}
