"""CPU time that others used, out of made-up books of the kernel."""

from __future__ import annotations

import resource
from types import SimpleNamespace

import pytest

from pipefix.system import neighbours
from pipefix.system.neighbours import Neighbours


def test_what_others_used_and_what_a_hypervisor_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(time=100.0, own=5.0, books={"user": 50.0, "idle": 0.0, "steal": 0.0})
    used = {resource.RUSAGE_SELF: lambda: now.own, resource.RUSAGE_CHILDREN: lambda: 0.0}
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: now.time)
    monkeypatch.setattr(neighbours.resource, "getrusage", lambda who: SimpleNamespace(ru_utime=used[who](), ru_stime=0.0))
    monkeypatch.setattr(neighbours.psutil, "cpu_times", lambda: SimpleNamespace(**now.books))
    watch = Neighbours()
    assert watch.cores() == 0.0, "no time has passed"
    now.time, now.own, now.books = 110.0, 12.0, {"user": 65.0, "idle": 90.0, "steal": 2.0}
    assert watch.cores() == pytest.approx((15 + 2 - 7) / 10)
    now.own = 23.0
    assert watch.cores() == 0.0, "all of it was this process's"
