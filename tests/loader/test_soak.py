"""Epochs until a dozen workers were killed, a second apart; `scripts/bench soak` goes on for twenty minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(500)
def test_nothing_is_lost_doubled_or_left_behind_while_workers_are_killed(tmp_path: Path) -> None:
    """In a process of its own, whose memory and files are nobody else's."""
    asked = ["--minutes", "0", "--kills", "12", "--every", "1", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "soak", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, cwd=ROOT)
    told = json.loads((tmp_path / "soak.json").read_text())
    assert told["wrong"] == []
    assert told["kills"] >= 12
    assert told["raised"] >= told["kills"] / 2
    assert told["left"] == []
    assert done.returncode == 1, "this is none of the twenty minutes that the bar asks for"
