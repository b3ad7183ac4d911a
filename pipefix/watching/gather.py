"""Makes windows of what a meter has counted since the last one, and asks what the machine does meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import psutil

from pipefix.loader.metering.cost_record import BLIND, FAILED, TimedBatch, Totals
from pipefix.loader.metering.meter import Meter, MeteredStep
from pipefix.vocabulary.nvml import job_handle, questions
from pipefix.vocabulary.random_state import is_cuda_awake
from pipefix.vocabulary.stage import Stage
from pipefix.watching.window import Spread, StageSeconds, Window

LOOK_EVERY = 1.0
"""Seconds between two looks: NVML's own figures are of about as long."""
LEAST = 3
"""Looks that a window's figures rest on; fewer wait for those of the next window."""
MAKING = (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE)
_WHY_NOT = {
    BLIND: "the watch was asked not to look at stages",
    FAILED: "looking at stages failed where batches are made, and was given up",
}


class Gatherer:
    """Makes windows of one job, each of what its meter shows since the one before. Timed batches go to whoever asks first."""

    def __init__(self, meter: Meter, labels: dict[str, str] | None = None) -> None:
        meter.read = True
        self._meter, self.labels = meter, labels or {}
        self._number = 0
        self._then, self._sums, self._makers = meter.clock(), meter.sums(), Totals()
        self._waiting: list[TimedBatch] = []

    def window(self, *, time: float, workers: int = 0, makers: int = 0, died: Sequence[str] = (), ended: bool = False) -> Window:
        meter, then, sums_before, makers_before = self._meter, self._then, self._sums, self._makers
        self._then, self._sums, self._makers = meter.clock(), meter.sums(), meter.makers()
        self._number += 1
        seconds = (self._then - then) / 1e9
        passed = self._sums.since(sums_before)
        loop_ns = passed.wait_ns + passed.step_ns
        steps = meter.steps(sums_before.batches)
        self._waiting += [look for look in meter.looks() if look.samples > 0]
        looks: list[TimedBatch] = []
        if len(self._waiting) >= LEAST or ended:
            looks, self._waiting = self._waiting, []
        making_s = max(0, self._makers.made_ns - makers_before.made_ns) / 1e9
        cost = max(0, self._makers.cost_ns - makers_before.cost_ns) / 1e9
        return Window(
            time=time, number=self._number, seconds=seconds, batches=passed.batches, samples=passed.samples,
            rate=passed.samples / max(seconds, 1e-9),
            waiting=passed.wait_ns / loop_ns if loop_ns > 0 else None,
            wait=_spread([step.wait / 1e9 for step in steps if not step.first]),
            step=_spread([step.step / 1e9 for step in steps if step.step >= 0]),
            epochs=meter.epochs,
            starts=[step.wait / 1e9 for step in steps if step.first],
            stages=_stages(steps, looks, workers=meter.workers),
            declined=_WHY_NOT.get(self._makers.state) if meter.declined is None else meter.declined,
            bytes=median(look.bytes / look.samples for look in looks) if any(look.bytes for look in looks) else None,
            cpu=median(look.cpu / look.samples for look in looks) / 1e9 if looks else None,
            busy=min(1.0, making_s / max(seconds, 1e-9) / max(1, makers or workers)) if meter.workers else None,
            looking=cost / making_s if making_s > 0 else None,
            workers=workers, died=list(died), labels=self.labels, ended=ended,
        )  # fmt: skip


def _stages(steps: Sequence[MeteredStep], looks: Sequence[TimedBatch], *, workers: bool) -> dict[str, StageSeconds]:
    """Medians of seconds a sample, so that one slow batch in ten changes nothing."""
    costs: dict[str, StageSeconds] = {}
    for stage in MAKING:
        values = [getattr(look, stage.value) / look.samples for look in looks]
        if any(values):
            costs[stage.value] = StageSeconds(s=median(values) / 1e9, batches=len(values))
    if workers:
        handed = _handed(steps, looks)
        if handed is not None:
            costs[Stage.IPC.value] = handed
    stepped = [step.step / step.samples for step in steps if step.step >= 0 and step.samples]
    if stepped:
        costs[Stage.STEP.value] = StageSeconds(s=median(stepped) / 1e9, batches=len(stepped))
    return costs


def _handed(steps: Sequence[MeteredStep], looks: Sequence[TimedBatch]) -> StageSeconds | None:
    """Packing in the worker and taking over in the training process, by the processor time of both: waiting is not among it."""
    unpacked = [step.took / step.samples for step in steps if step.samples and not step.first]
    packed = [look.handed / look.sent / look.samples for look in looks if look.sent]
    if not unpacked or not packed:
        return None
    return StageSeconds(s=(median(unpacked) + median(packed)) / 1e9, batches=min(len(unpacked), len(packed)))


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95, 0.99))
    return Spread(p50=p50, p95=p95, p99=p99, max=ordered[-1])


class MachineFigures:
    """CPUs, memory, and the job's GPU by NVML: means over the looks since they were taken last. What cannot be asked is left out,
    and nothing here raises."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}
        self._nvml: Any = None
        self._gpu: dict[str, Callable[[], float]] = {}
        self._without_gpu = False
        psutil.cpu_percent()  # from now on

    def look(self) -> None:
        self._ask({"cpu": lambda: psutil.cpu_percent() / 100, "memory": lambda: psutil.virtual_memory().percent / 100})
        if self._nvml is None and not self._without_gpu and is_cuda_awake():
            self._begin()
        for name in self._ask(self._gpu):
            del self._gpu[name]

    def take(self) -> dict[str, float]:
        readings, self._seen = self._seen, {}
        return {name: round(sum(values) / len(values), 4) for name, values in readings.items()}

    def close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(Exception):  # the program has shut it down itself
                self._nvml.nvmlShutdown()
            self._nvml, self._gpu, self._without_gpu = None, {}, True

    def _ask(self, readers: dict[str, Callable[[], float]]) -> list[str]:
        """Those that could not be asked."""
        failed = []
        for name, ask in readers.items():
            try:
                value = ask()  # which may take its time: `take` may be called meanwhile
                self._seen.setdefault(name, []).append(value)
            except Exception:  # noqa: BLE001 - libraries and drivers raise what they like
                self._seen.pop(name, None)
                failed.append(name)
        return failed

    def _begin(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._gpu = {f"gpu_{name}": ask for name, ask in questions(pynvml, job_handle(pynvml)).items()}
        except Exception:  # noqa: BLE001 - as above
            self._without_gpu = True
