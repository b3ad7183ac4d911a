"""What scripts/fuzz_kernels found once is tried again on every run, and so are the first cases it would try."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = sorted((Path(__file__).parent / "findings").glob("*.bin"))


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


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda path: path.stem)
def test_a_finding_is_found_no_more(finding: Path, fuzz: ModuleType, module: Any) -> None:
    fuzz.Case(module, finding.read_bytes(), int(finding.stem.split("-")[0])).run()


def test_the_first_cases_pass(fuzz: ModuleType, module: Any) -> None:
    corpus = fuzz.seeds()
    for number in range(400):
        rng = random.Random(number)
        fuzz.Case(module, fuzz.damaged(rng.choice(corpus), rng, corpus), number).run()


def test_cases_reach_the_decoder(fuzz: ModuleType, module: Any) -> None:
    """Damage that is always refused at the door would test nothing."""
    corpus, opened = fuzz.seeds(), 0
    for number in range(200):
        rng = random.Random(number)
        data = fuzz.damaged(rng.choice(corpus), rng, corpus)
        opened += len(module.jpeg_header(data)) == 6
    assert opened > 100
