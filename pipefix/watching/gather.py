"""Readings of a meter made into windows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pipefix.loader.metering.meter import MeteredStep, MeterReading, TimedBatch, Totals
from pipefix.vocabulary.stage import Stage
from pipefix.watching.window import Spread, StageSeconds, Window

LEAST = 3
"""Looks that a window's figures rest on; fewer wait for those of the next window."""
MAKING = (Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE)


class Gatherer:
    """Makes windows of one job; it remembers what sums were at the last one."""

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.labels = labels or {}
        self._number = 0
        self._makers = Totals()
        self._waiting: list[TimedBatch] = []

    def window(
        self,
        reading: MeterReading,
        *,
        time: float,
        workers: int = 0,
        makers: int = 0,
        died: Sequence[str] = (),
        ended: bool = False,
    ) -> Window:
        self._number += 1
        loop = reading.waited_s + reading.worked_s
        seconds = max(reading.seconds, 1e-9)
        looks = self._enough(reading.looks, ended)
        making_s = max(0, reading.makers.made_ns - self._makers.made_ns) / 1e9
        cost = max(0, reading.makers.cost_ns - self._makers.cost_ns) / 1e9
        self._makers = reading.makers
        return Window(
            time=time,
            number=self._number,
            seconds=reading.seconds,
            batches=reading.batches,
            samples=reading.samples,
            rate=reading.samples / seconds,
            waiting=reading.waited_s / loop if loop > 0 else None,
            wait=_spread([step.wait / 1e9 for step in reading.steps if not step.first]),
            step=_spread([step.step / 1e9 for step in reading.steps if step.step >= 0]),
            epochs=reading.epochs,
            starts=reading.starts_s,
            stages=_stages(reading, looks),
            declined=reading.declined,
            bytes=median(look.bytes / look.samples for look in looks) if any(look.bytes for look in looks) else None,
            cpu=median(look.cpu / look.samples for look in looks) / 1e9 if looks else None,
            busy=min(1.0, making_s / seconds / max(1, makers or workers)) if reading.workers else None,
            workers=workers,
            died=list(died),
            looking=cost / making_s if making_s > 0 else None,
            labels=self.labels,
            ended=ended,
        )

    def _enough(self, new: Sequence[TimedBatch], ended: bool) -> list[TimedBatch]:
        self._waiting += [look for look in new if look.samples > 0]
        if len(self._waiting) < LEAST and not ended:
            return []
        looks, self._waiting = self._waiting, []
        return looks


def _stages(reading: MeterReading, looks: Sequence[TimedBatch]) -> dict[str, StageSeconds]:
    """Medians of seconds a sample, so that one slow batch in ten changes nothing."""
    costs: dict[str, StageSeconds] = {}
    for stage in MAKING:
        values = [getattr(look, stage.value) / look.samples for look in looks]
        if any(values):
            costs[stage.value] = StageSeconds(s=median(values) / 1e9, batches=len(values))
    if reading.workers:
        handed = _handed(reading.steps, looks)
        if handed is not None:
            costs[Stage.IPC.value] = handed
    steps = [step.step / step.samples for step in reading.steps if step.step >= 0 and step.samples]
    if steps:
        costs[Stage.STEP.value] = StageSeconds(s=median(steps) / 1e9, batches=len(steps))
    return costs


def _handed(steps: Sequence[MeteredStep], looks: Sequence[TimedBatch]) -> StageSeconds | None:
    """Packing in the worker and taking over in the training process, by the processor time of both: waiting is not among it."""
    taken = [step.took / step.samples for step in steps if step.samples and not step.first]
    packed = [look.handed / look.sent / look.samples for look in looks if look.sent]
    if not taken or not packed:
        return None
    return StageSeconds(s=(median(taken) + median(packed)) / 1e9, batches=min(len(taken), len(packed)))


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95, 0.99)]
    return Spread(p50=at[0], p95=at[1], p99=at[2], max=ordered[-1])
