"""The consumer alone, quiet and beside a burner that never outlives it."""

from __future__ import annotations

import multiprocessing
import os
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
    block = burner.alone(Emulated(0.005, name="5 ms"), None, 8, 0.1, name="alone")
    assert (block.arm, block.rows, block.samples % 8) == ("alone", (), 0)
    assert block.seconds >= 0.1
    assert 400 < block.rate < 1600


def test_a_step_longer_than_the_time_still_runs_twice() -> None:
    assert burner.alone(Emulated(0.03, name="30 ms"), None, 1, 0.001, name="alone").samples == 2


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are counted in /proc")
def test_burners_burn_and_are_gone_afterwards() -> None:
    seen: list[list[Any]] = []

    class Looks(Computes):
        def __call__(self, batch: Any) -> None:
            seen.append(multiprocessing.active_children())
            super().__call__(batch)

    block = burner.beside(Looks(), None, 4, 0.05, 2, name="beside")
    assert block.arm == "beside"
    assert all(len(children) == 2 for children in seen)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_burners_are_gone_when_the_consumer_raises(error: type[BaseException]) -> None:
    class Raises(Computes):
        def __call__(self, batch: Any) -> None:
            raise error

    with pytest.raises(error):
        burner.beside(Raises(), None, 4, 0.05, 2, name="beside")
    assert multiprocessing.active_children() == []


def test_a_burner_ends_with_its_parent() -> None:
    """Its parent is told by its id: a process whose parent is another has been left behind."""
    orphan = multiprocessing.get_context("fork").Process(target=burner._burn, args=(-1, 60.0))
    orphan.start()
    orphan.join(10.0)
    assert orphan.exitcode == 0


def test_a_timed_call_costs_little_and_is_measured() -> None:
    """Generous, for a machine that is busy with other tests; scripts/bench_cost holds the real limit."""
    assert 0 < calibrate.seam_cost() < 2e-5
