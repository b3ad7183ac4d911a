"""The consumer without a loader: quiet, and beside processes that burn the CPU a loader would use."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import Any

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


def beside(consumer: Consumer, kept: KeptBatch, size: int, seconds: float, burners: int, *, name: str) -> Block:
    """The same while ``burners`` processes compute: what a busy loader takes from the step even when data are free."""
    context: Any = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    processes = [context.Process(target=_burn, args=(os.getpid(), seconds + 30.0), daemon=True) for _ in range(burners)]
    for process in processes:
        process.start()
    try:
        time.sleep(0.02)
        return alone(consumer, kept, size, seconds, name=name)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _burn(parent: int, most: float) -> None:
    """Compute until killed; ends by itself when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends us
    until = time.monotonic() + most
    value = 1.0
    while time.monotonic() < until and os.getppid() == parent:
        for _ in range(20_000):
            value = value * 1.0000001 + 1e-9
