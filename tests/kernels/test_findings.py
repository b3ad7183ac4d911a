"""The first cases that scripts/fuzz_kernels would try."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.doubles.scripts import script


@pytest.fixture
def module(native_kernel: Any) -> Any:
    from pipefix.kernels import _native

    before = _native.loops()
    yield _native
    _native.choose_loops(before)


def test_the_first_cases_pass(module: Any) -> None:
    fuzz = script("fuzz_kernels")
    corpus = fuzz.seeds()
    for number in range(400):
        rng = random.Random(number)
        fuzz.Case(module, fuzz.damaged(rng.choice(corpus), rng, corpus), number).run()
