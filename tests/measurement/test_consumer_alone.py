"""The consumer alone."""

from __future__ import annotations

import pytest

from pipefix.measurement import consumer_alone
from pipefix.measurement.consumer import Emulated
from pipefix.measurement.kept_batch import KeptBatch
from tests.doubles.ticks import MEASUREMENT, Ticks


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks(0.0).given_to(MEASUREMENT, monkeypatch)


def test_the_consumer_alone_is_a_block_of_its_own_rate(ticks: Ticks) -> None:
    block = consumer_alone.alone(Emulated(0.005, name="5 ms"), KeptBatch(None), 8, 0.1, name="alone")
    steps = len(ticks.sleeps) - 1  # the first is a trial
    assert set(ticks.sleeps) == {0.005}
    assert (block.arm, block.rows, block.samples) == ("alone", (), 8 * steps)
    assert block.seconds == pytest.approx(0.005 * steps)
    assert 0.1 <= block.seconds < 0.2
    assert block.rate == pytest.approx(1600)


def test_a_step_longer_than_the_time_still_runs_twice(ticks: Ticks) -> None:
    assert consumer_alone.alone(Emulated(0.03, name="30 ms"), KeptBatch(None), 1, 0.001, name="alone").samples == 2
