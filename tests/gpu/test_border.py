"""The border to a real device: copies, busy time, NVML, and that no step is ever waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pipefix.measurement import consumer_alone, experiments, gpu
from pipefix.measurement.consumer import ModelStep, UserStep
from pipefix.measurement.worker_probe import close_fetchers
from pipefix.vocabulary import quantity
from tests.gpu.conftest import Note
from tests.measurement import planted

pytestmark = pytest.mark.gpu


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[list[str]]:
    planted.forget_calls()
    yield planted.files(tmp_path)
    close_fetchers()
    planted.forget_calls()


def cycles_of(milliseconds: float) -> int:
    """How long the device must spin to be busy for so long."""
    trial = 20_000_000
    for _ in range(30):
        torch.cuda._sleep(trial)  # until its clock has risen
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    torch.cuda._sleep(trial)
    ended.record()
    torch.cuda.synchronize()
    return int(trial * milliseconds / begun.elapsed_time(ended))


class TestCopies:
    def test_pinned_and_pageable_are_plausible(self, note: Note) -> None:
        found = consumer_alone.copy_seconds((torch.zeros(64 << 18), torch.zeros(8, dtype=torch.int64)))
        assert found["bytes"] == (64 << 20) + 64
        rates = {way: found["bytes"] / found[way] for way in ("pinned", "pageable", "pinning")}
        for way, rate in rates.items():
            note(f"64 MiB batch, {way}", f"{quantity.seconds(found[way])} ({quantity.size(rate)}/s)")
        assert 1e9 < rates["pinned"] < 1e12
        assert 1e8 < rates["pageable"] < 1e12
        assert rates["pinned"] > 0.8 * rates["pageable"]

    def test_what_lies_on_the_device_already_is_not_copied(self) -> None:
        assert consumer_alone.copy_seconds(torch.zeros(10, device="cuda")) == {}


class TestBusy:
    def test_a_step_is_busy_as_long_as_its_kernel(self, note: Note) -> None:
        spin = cycles_of(5.0)
        step = UserStep(lambda batch: torch.cuda._sleep(spin))
        step.settle()
        for _ in range(10):
            step(None)
        busy = step.settle()
        note("5 ms kernel, busy by events", ", ".join(quantity.seconds(one.busy / 1e9) for one in busy[:3]))
        assert len(busy) == 10
        assert all(one.busy / 1e6 == pytest.approx(5.0, rel=0.1) for one in busy)
        assert step.settle() == []

    def test_launching_does_not_wait(self) -> None:
        spin = cycles_of(20.0)
        step = UserStep(lambda batch: torch.cuda._sleep(spin))
        step.settle()
        begun = time.perf_counter()
        for _ in range(5):
            step(None)
        launched = time.perf_counter() - begun
        step.settle()
        assert launched < 0.05 < 0.09 < time.perf_counter() - begun

    def test_a_block_waits_for_the_device_only_at_its_ends(self, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[str] = []
        for owner, name in ((torch.cuda, "synchronize"), (torch.cuda.Event, "synchronize"), (torch.cuda.Stream, "synchronize")):
            self.count(monkeypatch, owner, name, waits)
        spin = cycles_of(1.0)
        waits.clear()
        running = planted.pool(planted.loader("map", paths), UserStep(lambda batch: torch.cuda._sleep(spin)))
        block = running.block(experiments.REAL, 0.2)
        running.close()
        assert len(block.rows) > 20
        assert len(waits) <= 3, "and once for the third step, which would be launched too far ahead of steps of unknown length"
        assert all(row.device > 0 for row in block.rows)

    @staticmethod
    def count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, waits: list[str]) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            waits.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    def test_a_block_lasts_until_its_last_step_is_done(self, paths: list[str]) -> None:
        spin = cycles_of(5.0)
        running = planted.pool(planted.loader("map", paths), UserStep(lambda batch: torch.cuda._sleep(spin)))
        block = running.block(experiments.PLAIN, 0.1)
        running.close()
        assert block.seconds >= 0.9 * 0.005 * len(block.rows)


class TestNvml:
    def test_its_figures_are_those_of_a_busy_device(self, note: Note) -> None:
        spin = cycles_of(10.0)
        kept = torch.zeros(1 << 20, device="cuda")
        with gpu.NvmlWatch() as watch:
            until = time.perf_counter() + 1.5
            while time.perf_counter() < until:
                torch.cuda._sleep(spin)
                torch.cuda.synchronize()
        del kept
        for name, value in watch.figures.items():
            note(name, f"{value:.4g}")
        assert watch.figures
        if "nvml_utilisation" in watch.figures:
            assert 0.2 < watch.figures["nvml_utilisation"] <= 1
        if "nvml_memory_bytes" in watch.figures:
            assert watch.figures["nvml_memory_bytes"] > 1 << 22


class TestModel:
    def test_the_copy_trains_on_the_device_and_theirs_stays_where_it_is(self) -> None:
        model = nn.Linear(8, 2)
        before = model.weight.clone()
        step = ModelStep(model, nn.CrossEntropyLoss())
        for _ in range(3):
            step((torch.randn(4, 8), torch.tensor([0, 1, 1, 0])))
        assert all(one.busy > 0 for one in step.settle())
        assert model.weight.device.type == "cpu"
        assert torch.equal(model.weight, before)
        assert next(step._model.parameters()).is_cuda
