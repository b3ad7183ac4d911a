"""What every test may use: the drawn pictures, and the rule for tests that need a GPU."""

from __future__ import annotations

import fcntl
import multiprocessing
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.doubles.fence import fenced

# A busy machine makes any example slow: timing is judged by scripts/bench, never by a test.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).resolve().parent.parent


ALONE = ("planted", "manners")
"""Rooms beside whose tests nothing else may run: verdicts on planted pipelines are about what the machine does meanwhile, and what
a process leaves behind is looked for in folders that all processes share. Single tests elsewhere are marked ``alone``."""
LONGEST = (
    "programs/test_observe.py", "programs/test_inside.py", "programs/test_looks.py", "loader/test_contract.py",
    "faults/test_places.py", "loader/test_dying.py", "audit/test_audit.py", "faults/test_samples.py",
    "measurement/test_measure.py", "caches/test_replay.py", "caches/test_cached_dataset.py", "loader/test_portable.py",
    "subject/test_end_to_end.py", "augment/test_swap.py", "cli/test_fix.py", "augment/test_draws.py", "loader/test_slots.py",
    "gpu/test_program.py", "caches/test_convert.py", "caches/test_read_back.py", "fixes/test_kills.py",
    "measurement/test_stand_in.py", "gpu/test_verbs.py", "caches/test_kills.py", "loader/test_soak.py",
    "programs/test_launch.py", "augment/test_write.py", "fixes/test_edited_plans.py", "loader/test_torch_internals.py",
    "fixes/test_undo.py", "gpu/test_ahead.py", "fixes/test_hostile_log.py", "loader/test_resume.py", "fixes/test_fused.py",
    "caches/test_damaged_sources.py",
)  # fmt: skip
"""Files that take longest, the longest first: they begin first, so that all test processes end at about the same
time. (With pytest-xdist, ``--no-loadscope-reorder`` keeps this order.)"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin; rooms that measure are ``alone``; tests marked ``gpu`` are skipped, with the reason, where there is
    no CUDA device."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))
    for item in items:
        if item.path.relative_to(ROOT / "tests").parts[0] in ALONE and item.get_closest_marker("beside") is None:
            item.add_marker(pytest.mark.alone)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run scripts/gpu_check where there is one"))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """SIGINT is heard, and by the processes that tests start: a shell starts what runs in its background with it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
            assert process.stdout is not None
            assert [process.stdout.readline(), process.stdout.readline()] == 2 * [b"ready\n"]
            yield f"{sys.executable} -S {script} {place}"
            process.kill()


@pytest.fixture(scope="module")
def fence() -> Iterator[None]:
    """For modules that ask the code to remove what it must not: nothing outside the temporary folders can be removed."""
    with fenced(Path(tempfile.gettempdir()), Path("/dev/shm")):
        yield


@pytest.fixture
def children() -> Callable[[], list[Any]]:
    """The processes started since the test began and still there: an earlier test's loader may keep its workers for a while."""
    before = set(multiprocessing.active_children())
    return lambda: [child for child in multiprocessing.active_children() if child not in before]


@pytest.fixture(autouse=True)
def _no_seams_left() -> Iterator[None]:
    """A test that read through a cache of sources takes that process's seams out again: others would find calls timed already."""
    yield
    replay = sys.modules.get("pipefix.caches.replay")
    if replay is not None:
        replay.stop()
