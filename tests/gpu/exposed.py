"""A step on the fake device that is fed as a plan of waits says: what the probe and the tuner say it waited, and what it did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from pipefix.diagnosis.attribution import exposed_share
from pipefix.measurement import consumer_alone, experiments
from pipefix.measurement.consumer import UserStep
from pipefix.measurement.kept_batch import KeptBatch
from pipefix.measurement.measurement import Block, Row
from pipefix.measurement.trace import BatchTrace
from pipefix.measurement.worker_probe import close_fetchers
from pipefix.tuning.child import trial_block
from tests.measurement import planted

WORKERS = 8
DEMANDS_MS = (3.0, 6.0)
SUPPLIES = {
    "even": [1.0] * 14,
    "bursts of 4": ([4.0] + [0.0] * 3) * 4,
    "bursts of 8": ([8.0] + [0.0] * 7) * 2,
    "a tail": [0.5] * 6 + [5.0] + [0.5] * 7,
    "a slow first batch": [6.0] + [0.7] * 13,
    "a long step between": [0.8] * 6 + [-4.0] + [0.8] * 7,  # no wait, and a step that takes so much more
}
"""Waits in multiples of the demand at a pace of 1."""
PACES = (0.4, 0.8, 1.0, 1.3, 2.0)


class _Pool:
    workers = serving = WORKERS

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer


def fed(demand: float, launch: float, waits: Sequence[float], device: int = 0) -> dict[str, float]:
    """Milliseconds: of a step on the device, of its call, and of each wait."""
    ends = []

    def step(more: float) -> None:
        with torch.cuda.device(device):
            torch.cuda._sleep(int((demand + more) * 1e6))
            end = torch.cuda.Event(enable_timing=True)
            end.record()
        ends.append(end)
        time.sleep(launch / 1e3)

    consumer = UserStep(step)
    consumer.settle()
    rows = []
    for wait in waits:
        asked = time.perf_counter_ns()
        time.sleep(max(0.0, wait) / 1e3)
        got = time.perf_counter_ns()
        consumer(max(0.0, -wait))
        rows.append((asked, got, time.perf_counter_ns()))
    times = consumer.settle()
    told = tuple(
        Row(*row, row[1] - row[0], 0, BatchTrace(0, 0, 0, 0, 1, 0, 0, 0, 0, 0), device=time.busy, idle=time.idle)
        for row, time in zip(rows, times, strict=True)
    )[1:]
    block = Block("plain", told, (rows[-1][2] - rows[0][2]) / 1e9, len(told))
    trial = trial_block(block, _Pool(consumer), 0.0)  # type: ignore[arg-type]
    # The device is busy for as long as its kernels say; the rest of the time between the first and the last of them it is not.
    whole = ends[0].elapsed_time(ends[-1])
    busy = sum(demand + max(0.0, -wait) for wait in waits[1:])
    idle = (whole - busy) / whole
    # Time that this machine took from the step beside what it was to take: it may lie between the step's begin and its kernel.
    lost = sum(max(0.0, (done - got) / 1e6 - launch) for _, got, done in rows) / whole
    return {"told": exposed_share([block], WORKERS), "trial": trial.waited, "idle": max(0.0, idle), "lost": lost}


def grid() -> dict[str, dict[str, float]]:
    torch.zeros(1, device="cuda")
    found = {}
    for demand in DEMANDS_MS:
        for name, shape in SUPPLIES.items():
            for pace in PACES:
                waits = [part * demand * (pace if part > 0 else 1) for part in shape]
                found[f"demand {demand:g} ms, {name}, pace {pace:g}"] = fed(demand, demand / 10, waits)
    return found


def on_another_device() -> dict[str, float]:
    """The step runs on the second device, and the first is the current one."""
    kept = torch.zeros(1, device="cuda:1")
    found = fed(6.0, 0.6, [0.6 * 6.0] * 14, kept.device.index)
    assert torch.cuda.current_device() == 0
    return found


def demand() -> dict[str, float]:
    """Batches a second that a step of 10 ms takes whose call returns at once, and how many come in a block of 0.2 s."""
    torch.zeros(1, device="cuda")
    consumer = UserStep(lambda _: torch.cuda._sleep(10_000_000))
    alone = consumer_alone.alone(consumer, KeptBatch(None), 1, 0.4, name="alone")
    running = planted.pool(DataLoader([torch.zeros(4)] * 4096, batch_size=1), UserStep(lambda _: torch.cuda._sleep(20_000_000)))
    try:
        block = running.block(experiments.PLAIN, 0.2)
    finally:
        running.close()
        close_fetchers()
    return {"alone": alone.rate, "rows": len(block.rows), "seconds": block.seconds}
