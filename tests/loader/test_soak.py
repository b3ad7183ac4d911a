"""A minute of epochs with a worker killed every few seconds; `scripts/bench_soak` goes on for twenty."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(500)
def test_nothing_is_lost_doubled_or_left_behind_while_workers_are_killed() -> None:
    """In a process of its own, whose memory and files are nobody else's."""
    command = [sys.executable, str(ROOT / "scripts" / "bench_soak"), "--minutes", "1", "--every", "3", "--print"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["wrong"] == []
    assert told["kills"] >= 10
    assert told["raised"] >= told["kills"] / 2
    assert told["left"] == []
    assert done.returncode == 0, done.stderr
