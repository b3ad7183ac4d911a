"""Runs killed for real. `scripts/bench fix_kills` does the same fifty times; `test_undo` walks through every moment."""

from __future__ import annotations

import pytest

from tests.fixes import killing


@pytest.mark.slow
def test_killed_runs_leave_what_can_be_settled(tmp_path):
    told = killing.campaign(tmp_path, 4, seed=3, budget=1.5, warm=True)
    assert told["kills"] == 4 and not told["wrong"], told
