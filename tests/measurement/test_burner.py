"""The consumer alone, quiet and beside a burner that never outlives it."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from pipefix.measurement import burner, calibrate
from pipefix.measurement.consumer import Consumer, Emulated
from tests.measurement import planted


class Computes(Consumer):
    name = "computes"
    present = True

    def __call__(self, batch: Any) -> None:
        planted.burn(0.001)


def test_the_consumer_alone_is_a_block_of_its_own_rate() -> None:
    spent: list[float] = []

    class Timed(Emulated):
        def __call__(self, batch: Any) -> None:
            begun = time.perf_counter()
            super().__call__(batch)
            spent.append(time.perf_counter() - begun)

    block = burner.alone(Timed(0.005, name="5 ms"), None, 8, 0.1, name="alone")
    steps = spent[1:]  # the first is a trial
    assert (block.arm, block.rows, block.samples) == ("alone", (), 8 * len(steps))
    assert block.seconds >= 0.1
    assert sum(steps) <= block.seconds < 2 * sum(steps), "whatever a step takes on a busy machine"
    assert block.rate < 1600


def test_a_step_longer_than_the_time_still_runs_twice() -> None:
    assert burner.alone(Emulated(0.03, name="30 ms"), None, 1, 0.001, name="alone").samples == 2


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are counted in /proc")
def test_burners_burn_and_are_gone_afterwards(children: Callable[[], list[Any]]) -> None:
    seen: list[list[Any]] = []

    class Looks(Computes):
        def __call__(self, batch: Any) -> None:
            seen.append(children())
            super().__call__(batch)

    block = burner.beside(Looks(), None, 4, 0.05, 2, name="beside")
    assert block.arm == "beside"
    assert all(len(there) == 2 for there in seen)
    assert children() == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_burners_are_gone_when_the_consumer_raises(error: type[BaseException], children: Callable[[], list[Any]]) -> None:
    class Raises(Computes):
        def __call__(self, batch: Any) -> None:
            raise error

    with pytest.raises(error):
        burner.beside(Raises(), None, 4, 0.05, 2, name="beside")
    assert children() == []


def test_a_burner_ends_with_its_parent() -> None:
    """Its parent is told by its id: a process whose parent is another has been left behind."""
    orphan = multiprocessing.get_context("fork").Process(target=burner._burn, args=(-1, 600.0), daemon=True)
    orphan.start()
    orphan.join(60.0)
    assert orphan.exitcode == 0


@pytest.mark.timing
def test_a_timed_call_costs_little_and_is_measured() -> None:
    """Generous, for a machine that is busy with other tests; scripts/bench cost holds the real limit."""
    assert 0 < calibrate.seam_cost() < 2e-5
