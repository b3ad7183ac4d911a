"""The ledger of planted pipelines: who charges what, from which process."""

from __future__ import annotations

import os

import pytest

from measured.planted import ledger
from measured.planted.ledger import Watch


def test_a_lap_is_charged_to_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, cpu = iter([0, 2_000_000, 2_000_000, 2_500_000, 2_500_000]), iter([0, 100, 100, 600, 600])
    monkeypatch.setattr(ledger, "perf_counter_ns", lambda: next(wall))  # fake clock
    monkeypatch.setattr(ledger, "thread_time_ns", lambda: next(cpu))  # fake clock
    ledger.clear()
    watch = Watch()
    watch.lap("storage", 2)
    watch.lap("decode")
    assert ledger.spent() == {
        "storage": ledger.Spent(wall_s=0.001, cpu_s=pytest.approx(50e-9), samples=2),
        "decode": ledger.Spent(wall_s=0.0005, cpu_s=pytest.approx(500e-9), samples=1),
    }


def test_workers_write_to_the_same_ledger() -> None:
    ledger.clear()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            Watch().lap("decode", 8)
            os._exit(0)
        os.waitpid(child, 0)
    assert ledger.spent()["decode"].samples == 16
