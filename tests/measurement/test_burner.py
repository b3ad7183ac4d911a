"""The consumer alone, quiet and beside a burner that never outlives it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import pytest

from pipefix.measurement import burner
from pipefix.measurement.consumer import Consumer, Emulated
from pipefix.measurement.kept_batch import KeptBatch
from tests.doubles.ticks import MEASUREMENT, Ticks
from tests.measurement import planted


class Computes(Consumer):
    name = "computes"
    present = True

    def __call__(self, batch: Any) -> None:
        planted.burn(0.001)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks(0.0).given_to(MEASUREMENT, monkeypatch)


def test_the_consumer_alone_is_a_block_of_its_own_rate(ticks: Ticks) -> None:
    block = burner.alone(Emulated(0.005, name="5 ms"), KeptBatch(None), 8, 0.1, name="alone")
    steps = len(ticks.sleeps) - 1  # the first is a trial
    assert set(ticks.sleeps) == {0.005}
    assert (block.arm, block.rows, block.samples) == ("alone", (), 8 * steps)
    assert block.seconds == pytest.approx(0.005 * steps)
    assert 0.1 <= block.seconds < 0.2
    assert block.rate == pytest.approx(1600)


def test_a_step_longer_than_the_time_still_runs_twice(ticks: Ticks) -> None:
    assert burner.alone(Emulated(0.03, name="30 ms"), KeptBatch(None), 1, 0.001, name="alone").samples == 2


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are counted in /proc")
def test_burners_burn_and_are_gone_afterwards(children: Callable[[], list[Any]]) -> None:
    seen: list[list[Any]] = []

    class Looks(Computes):
        def __call__(self, batch: Any) -> None:
            seen.append(children())
            super().__call__(batch)

    block = burner.beside(Looks(), KeptBatch(None), 4, 0.05, 2, name="beside")
    assert block.arm == "beside"
    assert all(len(there) == 2 for there in seen)
    assert children() == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_burners_are_gone_when_the_consumer_raises(error: type[BaseException], children: Callable[[], list[Any]]) -> None:
    class Raises(Computes):
        def __call__(self, batch: Any) -> None:
            raise error

    with pytest.raises(error):
        burner.beside(Raises(), KeptBatch(None), 4, 0.05, 2, name="beside")
    assert children() == []


def test_a_burner_ends_with_its_parent() -> None:
    """Its parent is told by its id: a process whose parent is another has been left behind."""
    orphan = multiprocessing.get_context("fork").Process(target=burner._burn, args=(-1, 600.0), daemon=True)
    orphan.start()
    orphan.join()
    assert orphan.exitcode == 0
