"""The consumer without a loader: how fast its step is when a batch is always there."""

from __future__ import annotations

import time

from pipefix.measurement.consumer import Consumer
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.measurement import Block

TOGETHER = 0.05
"""Seconds of steps that are launched before their device is waited for."""
LONGEST = 5.0
"""Times the seconds asked for that all of it may take, copies of the batch included."""


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
