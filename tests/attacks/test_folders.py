"""A few of the made-up folders; tests/system/attacks has 2,000 of them."""

from __future__ import annotations

from pathlib import Path

from tests.attacks.folders import Yard, campaign, told


def test_no_foreign_byte_changes_and_commands_end_as_documented(tmp_path: Path, cache_once: Path, fixed_once: Path) -> None:
    wrong = campaign(Yard(tmp_path, cache_once, fixed_once), 0, 5)
    assert not wrong, "\n".join(map(told, wrong))
