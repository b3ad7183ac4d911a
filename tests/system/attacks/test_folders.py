"""2,000 made-up folders, a command in each: no foreign byte changes, ends as documented. PIPEFIX_CASES says another number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.attacks.folders import Yard, campaign, told
from tests.attacks.scene import warm


@pytest.mark.timeout(7200)
def test_two_thousand_folders(tmp_path: Path) -> None:
    warm()
    wrong = campaign(Yard(tmp_path), 0, int(os.environ.get("PIPEFIX_CASES", "2000")))
    assert not wrong, "\n".join(map(told, wrong))
