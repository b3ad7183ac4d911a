"""What every test may use: the drawn pictures, and the rule for tests that need a GPU."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.doubles.fence import fenced

# The gate draws the same few examples each time; PIPEFIX_HYPOTHESIS=random (scripts/nightly) draws many others.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=25, database=None)
hypothesis.settings.register_profile("random", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("PIPEFIX_HYPOTHESIS", "gate"))

ROOT = Path(__file__).resolve().parent.parent


TESTS = ROOT / "tests"
BY_HAND = (str(TESTS / "system"), str(TESTS / "frameworks"), str(TESTS / "gpu"))
"""Folders of tests that may wait for what is slow: no part of the gate, or for a device (the fake one has processes of its own)."""
LONGEST_SLEEP_S = 0.05


class TimingInTheGate(Exception):
    """A test slept: it is to wait for an event, or belongs to measured/."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in tests/system are marked ``system``; those marked ``gpu`` are skipped where there is no CUDA."""
    for item in items:
        if item.path.is_relative_to(TESTS / "system"):
            item.add_marker(pytest.mark.system)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run scripts/gpu_check where there is one"))


@pytest.fixture(scope="session", autouse=True)
def no_long_sleep() -> Iterator[None]:
    """``time.sleep`` of more than 50 ms, called by a file of the gate in a test's own process, is an error."""
    sleep, process = time.sleep, os.getpid()

    def short_sleep(seconds: float) -> None:
        if seconds > LONGEST_SLEEP_S and os.getpid() == process:
            caller = sys._getframe(1).f_code.co_filename
            if caller.startswith(str(TESTS)) and not caller.startswith(BY_HAND):
                raise TimingInTheGate(f"{caller} sleeps {seconds:g} s: wait for an event, or move it to measured/")
        sleep(seconds)

    time.sleep = short_sleep
    yield
    time.sleep = sleep


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """SIGINT is heard, and by the processes that tests start: a shell starts what runs in its background with it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@pytest.fixture(scope="session", autouse=True)
def no_thread_pool() -> None:
    """Torch computes in one thread here: a process forked from one whose OpenMP has made threads hangs when it makes its own."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def few_calibrating_calls() -> None:
    """What a timed call costs is told from 9 calls and not from 150: no test asks for more of it than that it is known."""
    from pipefix.measurement import calibrate

    calibrate.CALLS = 9


@pytest.fixture(scope="session", autouse=True)
def no_power_cut() -> None:
    """Whether the disk has a file already shows after a power cut alone: nobody waits for it, here and in forked processes."""
    os.fsync = lambda descriptor: None


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def datasets() -> Path:
    """``fixtures/datasets`` with the demo's pictures drawn."""
    with open(TESTS / "conftest.py", "rb") as turn:  # test processes draw them one after the other
        fcntl.flock(turn, fcntl.LOCK_EX)
        subprocess.run([sys.executable, str(ROOT / "scripts" / "make_fixtures.py")], check=True)
    return ROOT / "fixtures" / "datasets"


@pytest.fixture(scope="session")
def photos(datasets: Path) -> Path:
    """96 JPEGs of about 65 kB in four class folders."""
    return datasets / "photos"


@pytest.fixture(scope="session")
def preloaded() -> Iterator[str]:
    """What a shell line may begin with in the place of ``python -m pipefix``, or of ``python`` before ``-c`` and a file: the same,
    forked from a process that has imported torch. A test of signals, of process ids or of the start itself begins a process of its
    own."""
    script = ROOT / "tests" / "doubles" / "preloaded.py"
    with tempfile.TemporaryDirectory(prefix="pf") as folder:
        place = f"{folder}/door"
        server = [sys.executable, "-m", "tests.doubles.preloaded", place, "serve"]
        with subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT) as process:
            try:
                assert process.stdout is not None
                assert [process.stdout.readline(), process.stdout.readline()] == 2 * [b"ready\n"]
                yield f"{sys.executable} -S {script} {place}"
            finally:
                process.kill()  # also where it did not begin as it should: nobody waits for it


@pytest.fixture(scope="module")
def fence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For modules that ask the code to remove what it must not: nothing outside the temporary folders can be removed."""
    with fenced(tmp_path_factory.getbasetemp(), Path(tempfile.gettempdir()), Path("/dev/shm")):
        yield


@pytest.fixture
def children() -> Callable[[], list[Any]]:
    """The processes started since the test began and still there: an earlier test's loader may keep its workers for a while."""
    before = set(multiprocessing.active_children())
    return lambda: [child for child in multiprocessing.active_children() if child not in before]


@pytest.fixture(autouse=True)
def _no_hooks_left() -> Iterator[None]:
    """A test that read through a cache of sources takes that process's hooks out again: others would find calls timed already."""
    yield
    replay = sys.modules.get("pipefix.caches.replay")
    if replay is not None:
        replay.stop()
