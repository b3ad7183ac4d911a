"""A rhythm in the waits is told where it was planted, and nowhere else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.diagnosis.rhythm import period


def waits(turn: list[float], batches: int, *, noise: float = 0.0, seed: int = 0) -> list[float]:
    generator = random.Random(seed)
    return [turn[place % len(turn)] + generator.uniform(0, noise) for place in range(batches)]


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_a_long_wait_every_turn_of_the_workers_is_seen(workers: int) -> None:
    turn = [40.0] + [0.1] * (workers - 1)
    assert period([waits(turn, 60), waits(turn, 64)], workers, between=10.0) == workers


def test_it_is_seen_through_noise_and_a_pause_of_the_machine() -> None:
    stretch = waits([30.0, 1.0, 1.0, 1.0], 80, noise=8.0)
    stretch[33] = 5_000.0
    assert period([stretch], 4, between=10.0) == 4


def test_two_slow_workers_of_four_bring_a_wait_every_second_batch() -> None:
    assert period([waits([30.0, 1.0, 29.0, 1.5], 60, noise=1.0)], 4, between=10.0) == 2


def test_two_neighbours_that_are_slow_belong_to_the_turn_of_four() -> None:
    assert period([waits([20.0, 22.0, 1.0, 1.0], 60, noise=1.0)], 4, between=10.0) == 4


@given(st.integers(0, 2**16), st.sampled_from([2, 3, 4, 6, 8]))
def test_waits_without_a_rhythm_have_no_period(seed: int, workers: int) -> None:
    generator = random.Random(seed)
    stretches = [[generator.expovariate(0.1) for _ in range(100)] for _ in range(3)]
    assert period(stretches, workers, between=10.0) is None


def test_a_rhythm_of_another_length_is_not_taken_for_the_workers() -> None:
    assert period([waits([30.0, 1.0, 1.0, 1.0, 1.0], 60)], 4, between=10.0) is None
    assert period([waits([30.0, 1.0, 1.0], 60)], 2, between=10.0) is None


def test_waits_that_grow_steadily_have_no_period() -> None:
    assert period([[float(place) for place in range(80)]], 4, between=10.0) is None


def test_steady_waits_have_no_period() -> None:
    assert period([[5.0] * 80], 4, between=10.0) is None


def test_a_rhythm_too_small_to_matter_is_not_told() -> None:
    turn = [0.05, 0.01, 0.01, 0.01]
    assert period([waits(turn, 80)], 4, between=10.0) is None
    assert period([waits(turn, 80)], 4, between=0.1) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_one_maker_takes_no_turns(workers: int) -> None:
    assert period([waits([30.0, 1.0], 80)], workers, between=10.0) is None


def test_too_few_turns_are_a_coincidence() -> None:
    assert period([waits([30.0, 1.0, 1.0, 1.0], 12)], 4, between=10.0) is None
    assert period([], 4, between=10.0) is None
