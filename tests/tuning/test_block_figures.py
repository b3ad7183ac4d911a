from __future__ import annotations

import math

import pytest

from pipefix.tuning import block_figures as figures
from pipefix.tuning.block_figures import TrialBlock


def block(waits: list[float], steps: list[float], making: float = 0.02, workers: int = 2) -> TrialBlock:
    count = len(waits)
    return TrialBlock(sum(waits) + sum(steps), 8 * count, tuple(waits), tuple(steps), (making,) * count, None, workers, 0.1)


def test_the_stall_is_the_share_of_the_time_waited() -> None:
    blocks = [block([0.01] * 20, [0.03] * 20), block([0.01] * 20, [0.03] * 20)]
    stall = figures.stall(blocks)
    assert stall.value == pytest.approx(0.25)
    assert stall.low <= stall.value <= stall.high
    assert blocks[0].stall == pytest.approx(0.25)
    assert blocks[0].demand == pytest.approx(8 / 0.03)


def test_uneven_waits_widen_its_interval() -> None:
    even = figures.stall([block([0.01] * 20, [0.03] * 20)] * 3)
    uneven = figures.stall([block([0.0] * 19 + [0.2], [0.03] * 20)] * 3)
    assert uneven.high - uneven.low > 5 * (even.high - even.low)


def test_waits_that_come_in_turns_of_the_workers_do_not_widen_it() -> None:
    """Four workers that are done at the same time: one wait for all four of their batches."""
    in_turns = [block([0.04, 0.0, 0.0, 0.0] * 10, [0.01] * 40, workers=4)] * 3
    stall = figures.stall(in_turns)
    assert (stall.value, stall.low, stall.high) == pytest.approx((0.5, 0.5, 0.5))


def test_what_the_workers_could_make() -> None:
    assert figures.potential([block([0.0] * 10, [0.1] * 10, making=0.02, workers=3)]) == pytest.approx(3 * 8 / 0.02)
    assert figures.potential([block([0.0] * 10, [0.1] * 10, workers=0)]) is None


def test_the_tail_needs_enough_batches() -> None:
    few = block([0.0] * 5, [0.1] * 5)
    assert figures.tail([few]) is None
    many = TrialBlock(1.0, 800, (0.0,) * 100, (0.01,) * 100, (0.01,) * 97 + (1.0,) * 3, None, 2, 0.1)
    assert figures.tail([many]) == pytest.approx(100, rel=0.05)


def test_a_few_ratios_are_never_believed_too_closely() -> None:
    assert figures.doubt([0.1, 0.1, 0.1]) > 0.008
    assert figures.doubt([0.0, 0.3, 0.6]) > figures.doubt([0.1, 0.1, 0.1])
    assert figures.doubt([0.1] * 50) == figures.LEAST_DOUBT
    low = figures.around(100.0, 0.1).low
    assert low == pytest.approx(100 * math.exp(-0.196))
