"""The border to a device, with fakes in its place: what is asked of it, and that the answer is read as it is meant."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipefix.hooks.torch_internals import cuda_lost_by_fork
from pipefix.measurement import consumer_alone, gpu
from pipefix.vocabulary.nvml import IDLE
from tests.doubles.driver import Driver
from tests.doubles.ticks import Ticks

COPY_MS = {True: 2.0, False: 5.0}
"""What the fake device takes for a copy, from pinned memory and not."""


class Pinned(torch.Tensor):
    def is_pinned(self, *_: Any, **__: Any) -> bool:
        return True

    def clone(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor).clone()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Events and streams whose clock only copies advance."""
    # Of every copy: whether it was of pinned memory, and whether it did not block.
    device = SimpleNamespace(clock=0.0, copies=[], waits=0)
    ticks = Ticks(0.0).given_to(("pipefix.measurement.consumer_alone",), monkeypatch)

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: Any = None) -> None:
            self.at = device.clock

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    class Stream:
        def __init__(self, number: int) -> None:
            assert number == 0

        def synchronize(self) -> None:
            device.waits += 1

    def to(tensor: torch.Tensor, where: Any, *, non_blocking: bool = False) -> torch.Tensor:
        assert where == torch.device("cuda", 0)
        pinned = isinstance(tensor, Pinned)
        device.copies.append((pinned, non_blocking))
        device.clock += COPY_MS[pinned]
        return tensor

    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        ticks.passes(0.0 if isinstance(tensor, Pinned) else 0.001)
        return tensor.as_subclass(Pinned)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    return device


class TestTransfer:
    def test_pinned_and_pageable_are_told_apart(self, device: SimpleNamespace) -> None:
        seconds = consumer_alone.copy_seconds(torch.zeros(1000))
        assert seconds["pinned"] == pytest.approx(0.002)
        assert seconds["pageable"] == pytest.approx(0.005)
        assert seconds["pinning"] == pytest.approx(0.001)
        assert seconds["bytes"] == 4000
        assert set(device.copies) == {(True, True), (False, False)}, "pinned copies do not block"
        assert device.waits == 2, "the stream is waited for once a way"

    def test_what_the_loader_has_pinned_is_copied_from_ordinary_memory_too(self, device: SimpleNamespace) -> None:
        """Of a loader with pin_memory=True both ways were copies from pinned memory, and pinning took nothing."""
        seconds = consumer_alone.copy_seconds(torch.zeros(1000).as_subclass(Pinned))
        assert (seconds["pageable"], seconds["pinning"]) == (pytest.approx(0.005), pytest.approx(0.001))

    @pytest.mark.parametrize(
        ("batch", "tensors"),
        [
            ((torch.zeros(10), torch.zeros(5)), 2),
            ({"pixels": torch.zeros(10), "of": [torch.zeros(5), ("name", torch.zeros(1))]}, 3),
        ],
    )
    def test_every_tensor_of_a_batch_counts(self, device: SimpleNamespace, batch: Any, tensors: int) -> None:
        assert consumer_alone.copy_seconds(batch)["pinned"] == pytest.approx(0.002 * tensors)

    @pytest.mark.parametrize("batch", ["text", [], {"names": ["a"]}, None])
    def test_a_batch_without_tensors_has_no_transfer(self, device: SimpleNamespace, batch: Any) -> None:
        assert consumer_alone.copy_seconds(batch) == {}
        assert not device.copies


@pytest.mark.parametrize("devices", [0, 1])
def test_where_no_device_is_none_was_lost_by_a_fork(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run --probe` of a program on the CPU said that it uses the device: torch marks each fork after `is_available()`."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    assert cuda_lost_by_fork() == bool(devices)


class TestNvml:
    def watched(self, monkeypatch: pytest.MonkeyPatch, nvml: Driver, *, looks: int = 4) -> gpu.NvmlWatch:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        watch = gpu.NvmlWatch()
        monkeypatch.setattr(gpu, "present", lambda: True)
        waits = iter(looks * [False] + [True])
        monkeypatch.setattr(watch._stop, "wait", lambda seconds: next(waits))
        with watch:
            pass
        return watch

    def test_figures_are_means_over_the_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nvml = Driver(used=1_000_000, busy=[40, 60, 40, 60], reasons=(IDLE, 4), power=250_000)
        watch = self.watched(monkeypatch, nvml)
        assert watch.figures["nvml_utilisation"] == 0.5
        assert watch.figures["nvml_memory_bytes"] == 1_000_000
        assert watch.figures["nvml_power_w"] == 250
        assert watch.figures["nvml_temperature_c"] == 61
        assert watch.figures["nvml_throttled"] == 0.5, "idling is no throttling"
        assert nvml.open == 0

    def test_a_driver_that_does_not_answer_is_no_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        watch = self.watched(monkeypatch, Driver("Driver Not Loaded"))
        assert watch.figures == {}

    def test_a_figure_that_it_cannot_tell_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A part of a device has no utilisation of its own."""
        watch = self.watched(monkeypatch, Driver(power=250_000))
        assert watch.figures.keys() == {"nvml_memory_bytes", "nvml_power_w", "nvml_temperature_c", "nvml_throttled"}

    def test_without_a_device_nobody_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu, "present", lambda: False)
        nvml = Driver(busy=[40])
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        with gpu.NvmlWatch() as watch:
            pass
        assert (watch.figures, nvml.busy) == ({}, [40])
