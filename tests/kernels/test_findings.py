"""The first cases that scripts/fuzz_kernels would try, and those that it found something with."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripts import script


@pytest.fixture
def module(native_kernel: Any) -> Any:
    from pipefix.kernels import _native

    before = _native.loops()
    yield _native
    _native.choose_loops(before)


def test_cases_pass(module: Any) -> None:
    fuzz = script("fuzz_kernels")
    corpus = fuzz.seeds()
    for number in range(400):
        rng = random.Random(number)
        fuzz.Case(module, fuzz.damaged(rng.choice(corpus), rng, corpus), number).run()
    for found in (Path(__file__).parent / "findings").glob("*.bin"):
        fuzz.Case(module, found.read_bytes(), int(found.name.partition("-")[0])).run()
