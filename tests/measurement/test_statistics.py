"""Medians, ratios and their intervals: properties that hold for any timings, and what one disturbed block may do to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.measurement.statistics import APART, FLOOR, bootstrap, interval, paired_ratio, ratio
from pipefix.vocabulary.quantity import Interval

rates = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12)
"""Samples a second of a few blocks."""


def width(around: Interval) -> float:
    return math.log(around.high / around.low)


class TestRatio:
    @given(rates, rates)
    def test_the_interval_holds_the_value_and_is_never_too_good(self, fast: list[float], base: list[float]) -> None:
        speedup = ratio(fast, base)
        assert speedup.low < speedup.value < speedup.high
        assert width(speedup) >= 2 * FLOOR * 0.999

    @given(rates, rates)
    def test_turned_round_it_is_the_inverse(self, fast: list[float], base: list[float]) -> None:
        there, back = ratio(fast, base), ratio(base, fast)
        assert there.value * back.value == pytest.approx(1)
        assert there.low <= 1 / back.value * (1 + 1e-9)
        assert 1 / back.value <= there.high * (1 + 1e-9)

    @given(rates, rates, st.floats(1e-2, 1e2))
    def test_a_speed_up_of_every_block_is_a_speed_up_of_the_whole(self, fast: list[float], base: list[float], by: float) -> None:
        assert ratio([rate * by for rate in fast], base).value == pytest.approx(ratio(fast, base).value * by)

    def test_a_single_block_knows_little(self) -> None:
        assert width(ratio([200.0], [100.0])) > 5 * width(ratio([200.0] * 6, [100.0] * 6))

    @pytest.mark.parametrize("pairs", [2, 4, 8])
    def test_pairs_that_agree_by_chance_are_not_believed_to_a_hundredth(self, pairs: int) -> None:
        """Of two that agreed, a second worker was told to bring 1.68x (1.66-1.70); it brought 1.47x."""
        agree = paired_ratio([(168.0, 100.0)] * pairs)
        assert (agree.value, width(agree)) == (pytest.approx(1.68), pytest.approx(2 * math.hypot(FLOOR, APART / pairs)))
        assert width(paired_ratio([(168.0, 100.0)])) == pytest.approx(2 * APART), "one is as one block"

    @pytest.mark.parametrize("wild", [1.0, 1e5])
    def test_one_wild_block_moves_the_value_little(self, wild: float) -> None:
        steady = [200.0, 201.0, 199.0, 200.5, 199.5, 200.2, 199.8]
        speedup = ratio([*steady, wild], [100.0, 101.0, 99.0, 100.5, 99.5])
        assert speedup.value == pytest.approx(2.0, rel=0.01)
        assert speedup.high / speedup.low < 1.2


class TestInterval:
    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.one_of(st.none(), st.floats(-1e6, 1e6)))
    def test_it_holds_its_value(self, draws: list[float], value: float | None) -> None:
        around = interval(np.asarray(draws), value)
        assert around.low <= around.value <= around.high
        assert value is None or around.value == value

    def test_it_is_the_middle_of_the_draws(self) -> None:
        around = interval(np.arange(1001.0))
        assert (around.low, around.value, around.high) == (25.0, 500.0, 975.0)


class TestBootstrap:
    @staticmethod
    def means(groups: list[list[float]]) -> np.ndarray:
        return bootstrap([np.asarray(group)[:, None] for group in groups], lambda rows: rows.mean(axis=0))[:, 0]

    def test_it_repeats(self) -> None:
        groups = [[1.0, 2.0, 5.0], [3.0, 8.0]]
        assert (self.means(groups) == self.means(groups)).all()

    def test_blocks_that_differ_widen_it_more_than_rows_that_do(self) -> None:
        """The rows of a block were disturbed together, so they are not as many observations as they seem."""
        between = self.means([[1.0] * 50, [2.0] * 50, [3.0] * 50])
        within = self.means([[1.0, 2.0, 3.0] * 17] * 3)
        assert between.std() > 3 * within.std()

    def test_empty_blocks_are_left_out(self) -> None:
        draws = bootstrap([np.zeros((0, 1)), np.ones((4, 1))], lambda rows: rows.sum(axis=0))
        assert set(draws[:, 0]) == {4.0}
