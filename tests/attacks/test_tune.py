"""`tune` touches only what it made (issue 31)."""

from __future__ import annotations

import os
from pathlib import Path

from tests.attacks.scene import Scene, changes, look


def test_shared_memory_of_other_programs_stays(scene: Scene) -> None:
    """Another job's files bear numbers that this one's processes may get."""
    here = os.getpid()
    planted = [Path(f"/dev/shm/torch_{number}_{here}_attacks") for number in range(here - 50, here + 250)]
    planted += [Path(f"/dev/shm/{name}_{here}_attacks") for name in ("pipefix", "pipefix-1", "psm", "pymp", "sem.mp")]
    try:
        for path in planted:
            path.write_bytes(b"theirs")
        before = look(*planted)
        scene.run("tune", "train.py", "-q", "--budget", "0.2", "--trials", "2", "--workers", "1").ended_with(0)
        assert not changes(before, look(*planted))
    finally:
        for path in planted:
            path.unlink(missing_ok=True)
