"""What a conversion would take, told from rounds of trial."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.caches.forecast import ConversionPace, pace_of


@given(st.floats(0.0, 2.0), st.floats(1e-5, 0.1), st.integers(1, 50), st.integers(2, 100))
def test_what_is_spent_once_is_told_from_what_each_sample_takes(once: float, each: float, few: int, more: int) -> None:
    truth, many = ConversionPace(once, each), few * more
    told = pace_of([(few, truth.of(few)), (many, truth.of(many))])
    if once <= each * many:  # else the round was too short: half of it may count as spent once, and no more
        assert told.of(1_000_000) == pytest.approx(truth.of(1_000_000))
    assert told.of(many) == pytest.approx(truth.of(many))


def test_one_round_alone_counts_wholly_for_its_samples() -> None:
    assert pace_of([(16, 0.8)]) == ConversionPace(0.0, pytest.approx(0.05))


@pytest.mark.parametrize("short", [0.001, 5.0])
def test_a_disturbed_round_does_not_turn_it_upside_down(short: float) -> None:
    """Files that were cold in the first round and are warm in the last, or the other way about."""
    told = pace_of([(100, short), (1000, 4.0)])
    assert 0.002 <= told.each <= 0.004
    assert told.of(1000) == pytest.approx(4.0)
