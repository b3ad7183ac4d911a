"""Times the consumer without a loader: its samples a second when a batch is always there, and the copy of a batch to the device,
pinned and pageable, by events on a copy stream of its own."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from pipefix.hooks.torch_internals import cuda_lost_by_fork
from pipefix.measurement import experiments, failing, gpu
from pipefix.measurement.budget import BudgetClock, MeasurementPlan
from pipefix.measurement.consumer import Consumer, UserStep
from pipefix.measurement.kept_batch import KeptBatch, copy_of
from pipefix.measurement.measurement import Block, Measurement
from pipefix.subject import failure
from pipefix.vocabulary.nested import leaves, map_leaves
from pipefix.vocabulary.stage import Stage

TOGETHER = 0.05
"""Seconds of steps that are launched before their device is waited for."""
LONGEST = 5.0
"""Times the seconds asked for that all of it may take, copies of the batch included."""
LATE_FIRST_STEP = 0.03
"""Part of the budget that a first step may take before it is asked whether others take as long."""
REPEATS = 20
"""Copies of a batch, of which the median counts."""
NOISE = 0.03
"""Part of a step below which what it takes more is not told from noise."""


class ConsumerAlone:
    """What a measurement tells of the consumer apart from the loader: its rate on a batch that is always there, on one that lies on
    the device already, the parts of its step, and what copying a batch takes."""

    def __init__(self, consumer: Consumer, plan: MeasurementPlan, clock: BudgetClock, measurement: Measurement) -> None:
        self.consumer, self.plan, self.clock, self.found = consumer, plan, clock, measurement

    def measure(self, kept_batch: KeptBatch, size: int) -> None:
        """On one batch of ``size`` samples, again and again."""
        measurement = self.found
        self.consumer.try_on(kept_batch())
        self._copies_where_awake(kept_batch)
        measurement.consumer, measurement.has_consumer = self.consumer.name, self.consumer.present
        measurement.why_none = self.consumer.why_none
        if not self.consumer.present:
            measurement.declined[experiments.ALONE] = "there is no consumer"
            return
        # What a first step takes beside others (compiling, above all) is not taken off the budget.
        self.clock.budget += self.consumer.first_seconds(kept_batch, LATE_FIRST_STEP * self.plan.budget)
        self._copies_where_awake(kept_batch)  # the user's step may have been the first to use the device
        if type(self.consumer) is UserStep:  # not one of our own making
            measurement.step_facts = self.consumer.scan(kept_batch())
        seconds = min(0.6, max(0.1, 0.01 * self.plan.budget))
        resident = self._resident(kept_batch)
        for _ in range(3):
            measurement.blocks.append(alone(self.consumer, kept_batch, size, seconds, name=experiments.ALONE))
            if resident is not None:
                measurement.blocks.append(alone(self.consumer, resident, size, seconds, name=experiments.RESIDENT))
        if resident is not None:
            on_host, moved = measurement.of(experiments.ALONE), measurement.of(experiments.RESIDENT)
            measurement.transfer["exposed"] = exposed_copy(on_host, moved, size)
        if isinstance(self.consumer, UserStep) and self.plan.budget >= 10:
            measurement.step_split = self.consumer.split(kept_batch)

    def _copies_where_awake(self, kept_batch: KeptBatch) -> None:
        if not would_wake_cuda():
            self.copies(kept_batch)

    def _resident(self, kept_batch: KeptBatch) -> KeptBatch | None:
        """The batch on the device, where the step takes one that lies there; None where there is nothing to compare."""
        if not self.found.transfer or not isinstance(self.consumer, UserStep):
            return None
        try:
            moved = KeptBatch(on_device(kept_batch.value), changed=kept_batch.changed)
            self.consumer.step_seconds(moved())
        except Exception as error:  # noqa: BLE001 - the step is the user's
            self.found.declined[experiments.RESIDENT] = f"the step cannot take a batch on the device: {failure.summary(error)}"
            return None
        return moved

    def copies(self, kept_batch: KeptBatch) -> None:
        """What copying a batch to the device takes. Where nothing has woken CUDA in this process yet, not before all workers are
        forked: those that use it themselves could not."""
        measurement, transfer = self.found, Stage.TRANSFER.value
        if measurement.transfer or transfer in measurement.declined:
            return
        if cuda_lost_by_fork():
            measurement.declined[transfer] = "the program uses the device, and its loader is probed in another process"
            return
        try:
            measurement.transfer = copy_seconds(kept_batch.value)
        except torch.OutOfMemoryError as error:
            measurement.declined[transfer] = f"the device has no room for a batch ({failure.summary(error).partition('. ')[0]})"
        except RuntimeError as error:
            raise failing.raised("Copying a batch to the device", error) from error
        else:
            if not measurement.transfer and gpu.present():
                measurement.declined[transfer] = "no tensor of a batch lies in the host's memory"
        if (kind := gpu.other()) is not None:
            only = "steps are waited for, and of copies only those to CUDA devices are timed"
            measurement.declined[transfer] = f"the device here is {kind}: {only}"


def alone(consumer: Consumer, kept_batch: KeptBatch, size: int, seconds: float, *, name: str) -> Block:
    """Feed one batch again and again for about ``seconds``, copied outside the clock. What the steps leave running on a device is
    waited for after so many of them that waiting costs nothing: their calls return long before."""
    consumer(kept_batch())
    consumer.settle()
    until = time.perf_counter() + LONGEST * seconds
    count, together, spent = 0, 1, 0.0
    while count < 2 or (spent < seconds and time.perf_counter() < until):
        batches = [kept_batch() for _ in range(together)]
        consumer.settle()
        begun = time.perf_counter()
        for batch in batches:
            consumer(batch)
        consumer.settle()
        spent += time.perf_counter() - begun
        count += together
        together = max(1, min(2 * together, int(TOGETHER * count / spent), kept_batch.most))
    return Block(name, (), spent, count * size)


def would_wake_cuda() -> bool:
    """Whether nobody has used the CUDA device in this process so far."""
    return torch.cuda.is_available() and not torch.cuda.is_initialized()


def copy_seconds(batch: Any) -> dict[str, float]:
    """Seconds a batch: ``pinned``, ``pageable``, and ``pinning`` (the copy into pinned memory); and its ``bytes``.

    Of copies to other devices that are in use, the same by names that end with the device.

    Empty without a CUDA device, or where no tensor of the batch lies in host memory.
    """
    tensors = [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"]
    if not tensors or not torch.cuda.is_available():
        return {}
    tensors = [copy_of(tensor) if tensor.is_pinned() else tensor for tensor in tensors]  # which the loader has pinned
    pinned, main = [tensor.pin_memory() for tensor in tensors], gpu.main_device()
    seconds = {"pinning": _pinning(tensors), "bytes": float(sum(tensor.nbytes for tensor in tensors))}
    for device in gpu.devices():
        to = f" to cuda:{device}" if device != main else ""
        seconds[f"pinned{to}"] = _copy(pinned, device, non_blocking=True)
        seconds[f"pageable{to}"] = _copy(tensors, device, non_blocking=False)
    return seconds


def exposed_copy(host: list[Block], resident: list[Block], size: int) -> float:
    """Seconds a batch of ``size`` samples that a step takes more where the batch is still to be copied; 0 within the noise."""
    whole, without = (statistics.median(size / block.rate for block in blocks) for blocks in (host, resident))
    return whole - without if without < (1 - NOISE) * whole else 0.0


def on_device(batch: Any) -> Any:
    """The same batch on the device."""
    there = torch.device("cuda", gpu.main_device())
    return map_leaves(lambda leaf: leaf.to(there) if isinstance(leaf, torch.Tensor) else leaf, batch)


def _copy(tensors: list[torch.Tensor], device: int, *, non_blocking: bool) -> float:
    """Median over repeats; the stream is waited for once, at the end, so copies queue as they do in training."""
    stream = torch.cuda.Stream(device)
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    with torch.cuda.stream(stream):
        for begun, ended in marks:
            begun.record(stream)
            for tensor in tensors:
                tensor.to(torch.device("cuda", device), non_blocking=non_blocking)
            ended.record(stream)
    stream.synchronize()
    return float(statistics.median(begun.elapsed_time(ended) / 1e3 for begun, ended in marks[2:]))


def _pinning(tensors: list[torch.Tensor]) -> float:
    """Median over repeats; page-locked memory that was freed is used again, as a loader's pinning thread does."""
    spent = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        held = [tensor.pin_memory() for tensor in tensors]
        spent.append(time.perf_counter() - begun)
        del held
    return sorted(spent)[len(spent) // 2]
