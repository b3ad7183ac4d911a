"""What is computed from the figures of blocks; and the shortage that a full queue hides, on a loader made up batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipefix.tuning import block_figures as figures
from pipefix.tuning.block_figures import BatchTimes, TrialBlock, shortage, turns


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


# -- a shortage that a full queue hides ------------------------------------------------------------------------------------------

STEP = 0.02
BETWEEN = 0.0004
"""Handing over a batch, before the next is begun."""
FILLING = 10.0
"""Seconds that nobody takes a batch: the queue fills."""


@dataclass
class Line:
    """Workers that take turns, with ``prefetch`` batches in flight each, and a consumer that asks in order."""

    ratio: float
    """Supply over demand."""
    workers: int
    prefetch: int = 2
    jitter: float = 0.0
    seed: int = 0

    def run(self, batches: int) -> TrialBlock:
        """A block that begins when the queue is full, as a trial's does after the others had their turn."""
        draw = np.random.default_rng(self.seed)
        flight = self.workers * self.prefetch
        skipped = flight + self.workers
        making = self.workers * STEP / self.ratio - BETWEEN
        asked_s, got, done, batches_made = [], [], [], []
        for number in range(skipped + batches):
            room = got[number - flight] if number >= flight else 0.0
            before = batches_made[number - self.workers].ended if number >= self.workers else 0.0
            begun = max(room, before) + BETWEEN
            spent = making * float(np.exp(self.jitter * draw.standard_normal()))
            batches_made.append(BatchTimes(number % self.workers, room, begun, begun + spent))
            asked_s.append(done[-1] if done else FILLING)
            got.append(max(asked_s[-1], batches_made[-1].ended))
            done.append(got[-1] + STEP)
        shown = slice(skipped, None)
        waits = [taken - wanted for wanted, taken in zip(asked_s[shown], got[shown], strict=True)]
        return TrialBlock(
            done[-1] - asked_s[skipped], 8 * batches, tuple(waits), (STEP,) * batches,
            tuple(batch.ended - batch.begun for batch in batches_made[shown]), None, self.workers, 0.1, turns(batches_made[shown]),
        )  # fmt: skip


def in_the_long_run(line: Line) -> float:
    """What a consumer waits of a run that is long enough for the queue to make no difference."""
    return line.run(2400).waited


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("ratio", [0.3, 0.95, 1.0, 1.03, 3.0])
def test_the_stall_of_a_short_block_is_that_of_a_long_run(ratio: float, workers: int) -> None:
    block = Line(ratio, workers).run(-(-36 // workers) * workers)
    assert block.stall == pytest.approx(max(0.0, 1 - ratio), abs=0.005)
    assert figures.stall([block] * 3).value == pytest.approx(block.stall)
    assert block.rate == pytest.approx(8 / STEP * min(1.0, ratio), rel=0.01)


def test_waiting_alone_would_not_show_it() -> None:
    block = Line(0.95, 3).run(36)
    assert block.waited < 0.01
    assert block.stall == pytest.approx(0.05, abs=0.005)


@settings(deadline=None)
@given(
    ratio=st.floats(0.3, 3.0), workers=st.integers(1, 6), prefetch=st.integers(1, 4), jitter=st.floats(0.0, 0.08),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_uneven_batches_are_no_shortage(ratio: float, workers: int, prefetch: int, jitter: float, seed: int) -> None:
    line = Line(ratio, workers, prefetch, jitter, seed)
    few = 3 * jitter / np.sqrt(120)
    assert figures.stall([line.run(120)]).value == pytest.approx(in_the_long_run(line), abs=0.01 + few)


def test_a_full_queue_is_no_turn() -> None:
    """The second batch could be begun only when the consumer had made room for it."""
    batches = [BatchTimes(0, 0.0, 0.0, 1.0), BatchTimes(0, 5.0, 5.1, 6.1), BatchTimes(0, 5.5, 6.2, 7.2)]
    assert turns(batches) == pytest.approx((1.1, 1.1))
    assert turns(batches[:1]) == ()


def test_nothing_is_known_of_too_few() -> None:
    assert shortage(0.0, 2, STEP) == 0.0
    assert shortage(0.1, 0, STEP) == 0.0
    assert shortage(0.1, 2, 0.0) == 0.0
    assert shortage(0.1, 2, 0.04) == pytest.approx(0.2)
    block = TrialBlock(1.0, 8, (0.0,) * 4, (0.02,) * 4, (0.1,) * 4, None, 3, 0.1, (0.1, 0.1))
    assert block.stall == 0.0, "two turns of three workers tell nothing"
