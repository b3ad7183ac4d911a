"""The consumer without a loader: how fast its step is when a batch is always there."""

from __future__ import annotations

import time

import torch

from pipefix.measurement import experiments, failing, gpu, transfer
from pipefix.measurement.consumer import Consumer, UserStep
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.plan import BudgetClock, MeasurementPlan
from pipefix.subject import failure
from pipefix.vocabulary.stage import Stage

TOGETHER = 0.05
"""Seconds of steps that are launched before their device is waited for."""
LONGEST = 5.0
"""Times the seconds asked for that all of it may take, copies of the batch included."""

LATE_FIRST_STEP = 0.03
"""Part of the budget that a first step may take before it is asked whether others take as long."""


class ConsumerAlone:
    """What a measurement tells of the consumer apart from the loader: its rate on a batch that is always there, on one that lies on
    the device already, the parts of its step, and what copying a batch takes."""

    def __init__(self, consumer: Consumer, plan: MeasurementPlan, clock: BudgetClock, found: Measurement) -> None:
        self.consumer, self.plan, self.clock, self.found = consumer, plan, clock, found

    def measure(self, kept: KeptBatch, size: int) -> None:
        """On one batch of ``size`` samples, again and again."""
        found = self.found
        self.consumer.try_on(kept())
        if not transfer.would_wake_cuda():
            self.copies(kept)
        found.consumer, found.has_consumer, found.why_none = self.consumer.name, self.consumer.present, self.consumer.why_none
        if not self.consumer.present:
            found.declined[experiments.ALONE] = "there is no consumer"
            return
        self.first_step(kept)
        if type(self.consumer) is UserStep:  # not one of our own making
            found.step_facts = self.consumer.scan(kept())
        seconds = min(0.6, max(0.1, 0.01 * self.plan.budget))
        resident = self._resident(kept)
        for _ in range(3):
            found.blocks.append(alone(self.consumer, kept, size, seconds, name=experiments.ALONE))
            if resident is not None:
                found.blocks.append(alone(self.consumer, resident, size, seconds, name=experiments.RESIDENT))
        if resident is not None:
            found.transfer["exposed"] = transfer.exposed(found.of(experiments.ALONE), found.of(experiments.RESIDENT), size)
        if isinstance(self.consumer, UserStep) and self.plan.budget >= 10:
            self.consumer.split_step(kept)
            found.step_split = self.consumer.split()

    def first_step(self, kept: KeptBatch) -> None:
        """What a first call takes beside a step (compiling, above all) is not taken off the budget."""
        self.clock.extend(self.consumer.first_seconds(kept, LATE_FIRST_STEP * self.plan.budget))

    def _resident(self, kept: KeptBatch) -> KeptBatch | None:
        """The batch on the device, where the step takes one that lies there; None where there is nothing to compare."""
        if not self.found.transfer or not isinstance(self.consumer, UserStep):
            return None
        try:
            moved = KeptBatch(transfer.resident(kept.value), changed=kept.changed)
            self.consumer.step_seconds(moved())
        except Exception as error:  # noqa: BLE001 - the step is the user's
            self.found.declined[experiments.RESIDENT] = f"the step cannot take a batch on the device: {failure.summary(error)}"
            return None
        return moved

    def copies(self, kept: KeptBatch) -> None:
        """What copying a batch to the device takes. Where nothing has woken CUDA in this process yet, not before all workers are
        forked: those that use it themselves could not."""
        found = self.found
        if found.transfer or Stage.TRANSFER.value in found.declined:
            return
        try:
            found.transfer = transfer.measure(kept.value)
        except torch.OutOfMemoryError as error:
            found.declined[Stage.TRANSFER.value] = (
                f"the device has no room for a batch ({failure.summary(error).partition('. ')[0]})"
            )
        except RuntimeError as error:
            raise failing.raised("Copying a batch to the device", error) from error
        if gpu.other() is not None:
            found.declined[Stage.TRANSFER.value] = (
                f"the device here is {gpu.other()}: steps are waited for, and of copies only those to CUDA devices are timed"
            )


def alone(consumer: Consumer, kept: KeptBatch, size: int, seconds: float, *, name: str) -> Block:
    """Feed one batch again and again for about ``seconds``, copied outside the clock. What the steps leave running on a device is
    waited for after so many of them that waiting costs nothing: their calls return long before."""
    consumer(kept())
    consumer.settle()
    until = time.perf_counter() + LONGEST * seconds
    count, together, spent = 0, 1, 0.0
    while count < 2 or (spent < seconds and time.perf_counter() < until):
        batches = [kept() for _ in range(together)]
        consumer.settle()
        begun = time.perf_counter()
        for batch in batches:
            consumer(batch)
        consumer.settle()
        spent += time.perf_counter() - begun
        count += together
        together = max(1, min(2 * together, int(TOGETHER * count / spent), kept.most))
    return Block(name, (), spent, count * size)
