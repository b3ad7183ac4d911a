"""The states of random generators are noted, compared and put back in one place."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pipefix.vocabulary.random_state import RandomState, preserved, seeded

DRAWS: dict[str, Callable[[], Any]] = {
    "python": random.random,
    "python's second gauss": lambda: random.gauss(0, 1),
    "numpy": np.random.rand,
    "numpy's second gauss": np.random.randn,
    "torch": lambda: torch.rand(1).item(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_inside_is_not_missed_afterwards(name: str) -> None:
    expected = DRAWS[name]
    with preserved() as before:
        assert not before.changed()
        first = [expected() for _ in range(3)]
        assert before.changed()
    assert not before.changed()
    assert [expected() for _ in range(3)] == first


@pytest.mark.parametrize("make", [random.Random, np.random.default_rng, np.random.RandomState, torch.Generator])
def test_generators_handed_in_are_put_back_too(make: Callable[[], Any]) -> None:
    generator = make()
    draw = (lambda: torch.rand(1, generator=generator).item()) if make is torch.Generator else generator.random
    if make is np.random.RandomState:
        draw = generator.rand
    with preserved(generator) as before:
        first = draw()
        assert before.changed()
    assert draw() == first


def test_seeded_numbers_depend_on_the_seed_alone() -> None:
    def drawn(number: int) -> list[float]:
        with preserved() as before:
            with seeded(number):
                values = [draw() for draw in DRAWS.values()]
            assert not before.changed()
        return values

    assert drawn(5) == drawn(5) != drawn(6)
    assert drawn(2**40 + 1) != drawn(1)


def test_another_bit_generator_of_numpy_s_is_no_trouble() -> None:
    with preserved():
        kept = np.random.get_bit_generator()
        try:
            np.random.set_bit_generator(np.random.PCG64(3))
            before = RandomState()
            first = np.random.rand()
            assert before.changed()
            before.restore()
            assert np.random.rand() == first
        finally:
            np.random.set_bit_generator(kept)


def test_libraries_that_are_not_loaded_stay_so() -> None:
    code = (
        "import sys; from pipefix.vocabulary.random_state import seeded\n"
        "with seeded(1): pass\n"
        "assert not {'numpy', 'torch'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
