"""200 kills each of `fix` and `--undo` at random moments; PIPEFIX_KILLS says another number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.attacks.scene import warm
from tests.system.attacks import kills


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", ["undo", "fix"])
def test_killed_at_any_moment_the_same_command_goes_on(tmp_path: Path, verb: str) -> None:
    warm()
    done, _, wrong = kills.campaign(tmp_path, verb, int(os.environ.get("PIPEFIX_KILLS", "200")), seed=0)
    assert not wrong, "\n".join(wrong)
    assert done
