"""CPU time that others used, out of made-up books of the kernel."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipefix.system import neighbours
from pipefix.system.neighbours import Neighbours

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that passed, and those of a CPU that this process and those it waited for used."""
    now = SimpleNamespace(time=100.0, own=5.0)
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: now.time)
    used = {resource.RUSAGE_SELF: lambda: now.own, resource.RUSAGE_CHILDREN: lambda: 0.0}
    monkeypatch.setattr(neighbours.resource, "getrusage", lambda who: SimpleNamespace(ru_utime=used[who](), ru_stime=0.0))
    return now


def books(path: Path, *, user: float, idle: float = 0.0, stolen: float = 0.0) -> None:
    columns = [round(seconds * TICKS) for seconds in (user, 0, 0, idle, 0, 0, 0, stolen, 0, 0)]
    path.write_text(f"cpu  {' '.join(map(str, columns))}\ncpu0 1 2 3\n")


def test_what_others_used_and_what_a_hypervisor_took(tmp_path: Path, clock: SimpleNamespace) -> None:
    books(tmp_path / "stat", user=50)
    watch = Neighbours(tmp_path / "stat")
    books(tmp_path / "stat", user=65, idle=90, stolen=2)
    clock.time, clock.own = 110.0, 12.0
    assert watch.cores() == pytest.approx((15 + 2 - 7) / 10)


def test_nobody_else(tmp_path: Path, clock: SimpleNamespace) -> None:
    books(tmp_path / "stat", user=50)
    watch = Neighbours(tmp_path / "stat")
    books(tmp_path / "stat", user=56)
    clock.time, clock.own = 110.0, 12.0
    assert watch.cores() == 0.0


@pytest.mark.parametrize("text", [None, "", "cpu\n", "cpu a b c d e f g h\n"])
def test_a_system_that_does_not_say(text: str | None, tmp_path: Path, clock: SimpleNamespace) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    watch = Neighbours(tmp_path / "stat")
    clock.time = 110.0
    assert watch.cores() is None
