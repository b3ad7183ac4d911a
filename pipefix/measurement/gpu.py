"""How long the device was busy while the loop ran, by events; NVML's view is supporting evidence only.

No step is waited for. Events are recorded around each step and read after the block, when the device has finished anyway.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pipefix.hooks.torch_internals import forks_without_cuda as forks_without_cuda
from pipefix.vocabulary.nvml import job_handle, questions

EVERY_S = 0.2
"""NVML updates its utilisation figure a few times a second; asking more often tells nothing new."""
FURTHEST = 0.25
"""Seconds of steps that are launched ahead of the device at most."""
LEAST_AHEAD = 2
"""Steps that may be ahead however long they take, so that the device always has one."""


def present() -> bool:
    return bool(torch.cuda.is_available())


def other() -> str | None:
    """The kind of the accelerator where it is another than CUDA: steps are waited for there, and no copies are timed."""
    if present() or not torch.accelerator.is_available():
        return None
    accelerator = torch.accelerator.current_accelerator()
    return accelerator.type if accelerator is not None else None


def main_device() -> int:
    """The device on which this process has most memory, as CUDA counts; the current one where it has none."""
    return max(devices(), key=torch.cuda.memory_reserved)


def devices() -> list[int]:
    """Those that this process works on."""
    return _in_use() or [torch.cuda.current_device()]


class DeviceTime(NamedTuple):
    """Nanoseconds of the device around one step, by events."""

    busy: int
    """From the step's begin to its end there: what was queued before it does not count."""
    idle: int | None = None
    """With nothing to do between the end of the step before and its begin; None: not known."""


class StepEvents:
    """Pairs of events around steps, on the current stream of each device that this process uses."""

    def __init__(self) -> None:
        self._pairs: list[tuple[list[Any], list[Any] | None]] = []
        self._devices = _in_use()
        self._last: list[Any] | None = None
        """The end of the step before those of `_pairs`."""
        self._unfinished = 0
        """The first of `_pairs` that was not seen to be done."""
        self._each: float | None = None
        """Seconds of the latest step that was."""

    def begin(self) -> None:
        self._pairs.append((self._marks(), None))

    def end(self) -> None:
        self._pairs[-1] = (self._pairs[-1][0], self._marks())
        self._bound()

    def _bound(self) -> None:
        """Launch no further ahead than `FURTHEST`: a block would last until all that is done. The device has work meanwhile."""
        while self._unfinished < len(self._pairs):
            begun, ended = self._pairs[self._unfinished]
            ahead = len(self._pairs) - self._unfinished
            if ended is not None:
                if ahead > LEAST_AHEAD and (self._each is None or ahead * self._each > FURTHEST):
                    for end in ended:
                        end.synchronize()
                elif not all(end.query() for end in ended):
                    return
                self._each = max(map(_nanoseconds, begun, ended)) / 1e9
            self._unfinished += 1

    def _marks(self) -> list[Any]:
        return [_mark(torch.cuda.current_stream(device)) for device in self._devices] or [_mark()]

    def take(self) -> list[DeviceTime]:
        """The device's times of every step since the last call. Waits for the devices once.

        Of several devices, a step keeps the longest busy, and the one that had least time is idle.
        """
        torch.cuda.synchronize()
        for device in self._devices:
            torch.cuda.synchronize(device)
        self._unfinished = 0
        pairs, self._pairs = self._pairs, []
        last, times = self._last, []
        for begun, ended in pairs:
            if ended is None:
                last = None
                continue
            idle = None if last is None else min(map(_nanoseconds, last, begun))
            times.append(DeviceTime(max(map(_nanoseconds, begun, ended)), idle))
            last = ended
        before, self._devices = self._devices, _in_use()
        self._last = last if self._devices == before else None
        return times


class PartTimes:
    """Nanoseconds of the parts of a step between marks: by this process's clock, or by events on the current stream, from where a
    part could begin there to the end of its last work."""

    def __init__(self, *, by_events: bool) -> None:
        self._mark: Callable[[], Any] = _mark if by_events else time.perf_counter_ns
        self._between: Callable[[Any, Any], int] = _nanoseconds if by_events else lambda begun, ended: ended - begun
        self._pairs: list[list[Any]] = []
        """Part, begin and end of each."""

    def begin(self, part: str) -> None:
        self._pairs.append([part, self._mark(), None])

    def end(self, part: str) -> None:
        next(pair for pair in reversed(self._pairs) if pair[0] == part)[2] = self._mark()

    def spent(self) -> dict[str, int]:
        """Of all calls together. What it asks of a device is done: the step was waited for."""
        spent_ns: dict[str, int] = {}
        for part, begun, ended in self._pairs:
            if ended is not None:
                spent_ns[part] = spent_ns.get(part, 0) + self._between(begun, ended)
        return spent_ns


def _mark(*stream: Any) -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record(*stream)
    return event


def _nanoseconds(begun: Any, ended: Any) -> int:
    return max(0, int(begun.elapsed_time(ended) * 1e6))


def _in_use() -> list[int]:
    """Devices on which this process has memory, where there are several; a step may run on another than the current one."""
    if not torch.cuda.is_initialized() or torch.cuda.device_count() < 2:
        return []
    return [device for device in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(device)]


class NvmlWatch:
    """Samples utilisation, memory and power while it is entered. What NVML cannot tell (of a part of a device, say) is left out."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        """Means over the time it was entered."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: dict[str, list[float]] = {}

    def __enter__(self) -> NvmlWatch:
        if present():
            self._thread = threading.Thread(target=self._watch, daemon=True, name="pipefix-nvml")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.figures = {name: sum(readings) / len(readings) for name, readings in self._samples.items() if readings}

    def _watch(self) -> None:
        with contextlib.ExitStack() as begun:
            try:
                import pynvml

                pynvml.nvmlInit()
                begun.callback(pynvml.nvmlShutdown)
                readers = {f"nvml_{name}": ask for name, ask in questions(pynvml, job_handle(pynvml)).items()}
            except Exception:  # noqa: BLE001 - NVML is supporting evidence; without it nothing is lost
                return
            while readers and not self._stop.wait(EVERY_S):
                for name, ask in list(readers.items()):
                    try:
                        self._samples.setdefault(name, []).append(ask())
                    except Exception:  # noqa: BLE001 - as above
                        del readers[name]
