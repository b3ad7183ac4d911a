"""The first cases that scripts/fuzz_kernels would try."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("fuzz_kernels", str(ROOT / "scripts" / "fuzz_kernels"))
    spec = importlib.util.spec_from_loader("fuzz_kernels", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def module(native_kernel: Any) -> Any:
    from pipefix.kernels import _native

    before = _native.loops()
    yield _native
    _native.choose_loops(before)


def test_the_first_cases_pass(fuzz: ModuleType, module: Any) -> None:
    corpus = fuzz.seeds()
    for number in range(400):
        rng = random.Random(number)
        fuzz.Case(module, fuzz.damaged(rng.choice(corpus), rng, corpus), number).run()
