"""What every test may use: the drawn pictures, and the rule for tests that need a GPU."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A busy machine makes any example slow: timing is judged by scripts/bench_*, never by a test.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).resolve().parent.parent


MEASURED = ("planted", "measurement", "manners", "tuning", "fixes", "watch", "test_api.py")
"""Whose tests measure time for real, or what a process leaves behind on the machine: nothing else may run beside them, unless they
are marked ``beside``."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of what measures are ``alone``; tests marked ``gpu`` are skipped, with the reason, where there is no CUDA device."""
    for item in items:
        measured = item.path.relative_to(ROOT / "tests").parts[0] in MEASURED
        if measured and item.get_closest_marker("beside") is None:
            item.add_marker(pytest.mark.alone)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run scripts/gpu_check where there is one"))


@pytest.fixture(scope="session", autouse=True)
def no_thread_pool() -> None:
    """Torch computes in one thread here: a process forked from one whose OpenMP has made threads hangs when it makes its own."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def datasets() -> Path:
    """``fixtures/datasets`` with the demo's pictures drawn."""
    with open(ROOT / "tests" / "conftest.py", "rb") as turn:  # test processes draw them one after the other
        fcntl.flock(turn, fcntl.LOCK_EX)
        subprocess.run([sys.executable, str(ROOT / "scripts" / "make_fixtures.py")], check=True)
    return ROOT / "fixtures" / "datasets"


@pytest.fixture(scope="session")
def photos(datasets: Path) -> Path:
    """96 JPEGs of about 65 kB in four class folders."""
    return datasets / "photos"


@pytest.fixture(autouse=True)
def _no_seams_left() -> Iterator[None]:
    """A test that read through a cache of sources takes that process's seams out again: others would find calls timed already."""
    yield
    replay = sys.modules.get("pipefix.caches.replay")
    if replay is not None:
        replay.stop()
