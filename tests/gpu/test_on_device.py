"""What the fake device shows, on the real runtime: races, copies ahead, and idle time on the grid of supplies and demands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.gpu import ahead, exposed, races
from tests.gpu.conftest import Note
from tests.gpu.test_border import cycles_of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.cuda._sleep`` takes clock cycles, of which the fake device has one a nanosecond."""
    sleep, each = torch.cuda._sleep, cycles_of(20.0) / 20_000_000
    monkeypatch.setattr(torch.cuda, "_sleep", lambda nanoseconds: sleep(int(nanoseconds * each)))


def test_every_step_reads_its_own_batch(note: Note, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind steps of 2 ms: the copies of the next batches run beside them."""
    sleep = torch.cuda._sleep
    monkeypatch.setattr(torch.cuda, "_sleep", lambda _: sleep(2_000_000))
    found = races.walk()
    note(
        "batches of every kind, engine and pinning, behind steps that lag",
        f"{found['combinations']} ways, {len(found['wrong'])} wrong",
    )
    assert found["wrong"] == []


def test_fused_batches_are_their_own(colours: Path) -> None:
    assert races.fused(str(colours))["wrong"] == []


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_copies_begin_ahead(workers: int, note: Note) -> None:
    found = ahead.begun("processes", workers, False, 100)
    note(f"copies that begin ahead, {workers} workers", f"{found['ahead']} of {found['batches']} (wanted: 95)")
    assert found["ahead"] >= 95
    assert found["pinned"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_a_probe_keeps_stay_pinned(workers: int) -> None:
    pinned = ahead.kept_batch(workers)
    assert pinned and all(pinned)


def test_idle_time_on_the_grid(note: Note) -> None:
    found = exposed.grid()
    apart = {name: max(abs(one[who] - one["idle"]) for who in ("told", "trial")) - one["lost"] for name, one in found.items()}
    worst = max(apart, key=apart.__getitem__)
    note(
        f"idle share told against the device's own, {len(found)} shapes", f"at most {apart[worst]:.1%} apart ({worst}; wanted: 2 %)"
    )
    assert apart[worst] <= 0.02
