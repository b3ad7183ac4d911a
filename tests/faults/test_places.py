"""Small shared memory, and nowhere to put a socket: what is said of it. That it is met in real places is asked in tests/system."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from pipefix.measurement import failing
from pipefix.system import resources

FULL = SimpleNamespace(f_bavail=1, f_blocks=16384, f_frsize=4096)
BUS = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory."


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/shm, as containers have it."""
    monkeypatch.setattr(resources.os, "statvfs", lambda path: FULL)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("unable to write to file </torch_7_1_0>: No space left on device (28)"),
        RuntimeError("unable to open shared memory object </torch_7_1_0> in read-write mode: Read-only file system (30)"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/dev/shm/pipefix"),
    ],
)
def test_shared_memory_that_holds_no_batch(error: Exception) -> None:
    told = failing.of_handover(error)
    assert "could not hand over its batch" in told.what
    assert "Shared memory (/dev/shm) has 4.10 kB free of 67.1 MB." in told.advice
    assert "--shm-size" in told.advice


def test_shared_memory_that_fills_up() -> None:
    told = failing.raised("The loader", RuntimeError(BUS), [SimpleNamespace(exitcode=-7)])
    assert "A worker process died while making a batch" in str(told)
    assert "/dev/shm) has 4.10 kB free of 67.1 MB" in str(told)
    assert "--shm-size" in str(told.advice)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("AF_UNIX path too long"), "try TMPDIR=/tmp"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "TMPDIR=DIR"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/dev/shm/sem.mp"), "--workers 0"),
    ],
)
def test_workers_that_cannot_be_started(error: Exception, words: str) -> None:
    told = failing.cannot_start(error, None)
    assert "The worker processes could not be started" in str(told)
    assert words in str(told.advice)
    assert told.exit_code == 3
