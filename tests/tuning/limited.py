"""Tunings within limits drawn at random, and what they left behind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from pipefix.tuning.limits import ResourceLimits
from pipefix.tuning.space import Settings
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.tuning.grids import Grid
from tests.tuning.machine import Appetite, Machine, breaches, tuned


def drawn(seed: int) -> tuple[Appetite, ResourceLimits, Settings]:
    """A pipeline's appetite, limits around it, and settings to begin with."""
    draw = np.random.default_rng(seed)

    def around(value: float, low: float, high: float) -> float:
        return float(value * np.exp(draw.uniform(np.log(low), np.log(high))))

    appetite = Appetite(
        process=around(300e6, 0.5, 3), worker=around(60e6, 0.3, 8), batch=around(8e6, 0.01, 10), storages=int(draw.integers(1, 60)),
        worker_files=around(9, 0.7, 1.3), growth=around(2e6, 0.1, 10) if draw.random() < 0.2 else 0.0,
    )  # fmt: skip
    limits = ResourceLimits(
        memory_bytes=around(appetite.process + 8 * appetite.worker, 0.2, 20) if draw.random() < 0.8 else None,
        shm_bytes=around(20 * appetite.batch, 0.05, 20) if draw.random() < 0.6 else None,
        files=around(200, 0.3, 10) if draw.random() < 0.6 else None,
        cores=around(4, 0.3, 5) if draw.random() < 0.3 else None,
    )
    return appetite, limits, Settings(int(draw.choice([0, 1, 2, 4, 8, 16, 32])), prefetch=int(draw.choice([2, 2, 4, 8])))


def made_up(seed: int, grids: Sequence[Grid]) -> dict[str, Any]:
    """One tuning on a machine that is made up."""
    appetite, limits, start = drawn(seed)
    grid = grids[seed % len(grids)]
    machine = Machine(grid, appetite, seed=seed, break_at=float(seed % 60) if seed % 10 == 3 else None)
    ending = "could not run at all"
    try:
        result = tuned(machine, start, limits)
        ending = "interrupted" if result.partial else "settings kept" if result.kept else "better settings"
    except (BadUsage, TargetError):
        pass
    return {
        "seed": seed, "grid": grid.name, "ending": ending, "trials": len(machine.started),
        "breaches": breaches(limits, machine.highest), "orphans": len(machine.running),
    }  # fmt: skip


class Hungry(Dataset[Any]):
    """Every worker keeps so many bytes more with every sample, up to a size; a sample takes at least ``seconds``."""

    def __init__(self, most: int, seconds: float = 0.001) -> None:
        self.most = most
        self.seconds = seconds
        self.held: list[bytearray] = []

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if sum(map(len, self.held)) < self.most:
            self.held.append(bytearray(b"x" * 1_000_000))
        time.sleep(self.seconds)
        return torch.zeros(20_000)
