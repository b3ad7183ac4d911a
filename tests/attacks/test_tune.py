"""`tune` touches only what it made, keeps a plan of others, and refuses what cannot be meant (issue 31, designs 5 and 11)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tomllib

from tests.attacks.scene import Scene, changes, look, write

PLAN = 'format = "pipefix.plan/1"\n\n[loader]\n'


def tune(scene: Scene, *how: str):
    return scene.run("tune", "train.py", "-q", "--budget", "0.2", "--trials", "2", *how)


def test_shared_memory_of_other_programs_stays(scene: Scene) -> None:
    """Another job's files bear numbers that this one's processes may get."""
    here = os.getpid()
    planted = [Path(f"/dev/shm/torch_{number}_{here}_attacks") for number in range(here - 50, here + 250)]
    planted += [Path(f"/dev/shm/{name}_{here}_attacks") for name in ("pipefix", "pipefix-1", "psm", "pymp", "sem.mp")]
    try:
        for path in planted:
            path.write_bytes(b"theirs")
        before = look(*planted)
        tune(scene, "--workers", "1").ended_with(0)
        assert not changes(before, look(*planted))
    finally:
        for path in planted:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "amount",
    [("--step-ms", "2,5"), ("--max-cores", "4/s"), ("--max-memory", "8 elephants"), ("--stall", "nan"), ("--trials", "-1")],
)
def test_amounts_that_cannot_be_meant_are_refused(scene: Scene, amount: tuple[str, str]) -> None:
    scene.remember()
    told = tune(scene, *amount).ended_with(2)
    assert amount[0] in told.err
    scene.unchanged()
    assert scene.made() == []


def test_settings_that_fix_kept_stay(scene: Scene) -> None:
    write(scene.project / "pipefix.plan.toml", PLAN + 'num_workers = 0\nfuse = "exact"\n')
    tune(scene).ended_with(0)
    plan = tomllib.loads((scene.project / "pipefix.plan.toml").read_text())
    assert plan["loader"].get("fuse") == "exact"


@pytest.mark.parametrize("content", [b"[tool.other]\nx = 1\n", b"theirs", b"\xff\xfe"])
def test_a_plan_that_is_none_of_ours_is_not_replaced(scene: Scene, content: bytes) -> None:
    write(scene.project / "pipefix.plan.toml", content)
    scene.remember()
    tune(scene).of_the_table()
    scene.unchanged()
