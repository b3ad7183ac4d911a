"""Which hand-over is cheaper here: told from batches of the epoch itself, none of which is made twice.

While a trial runs, workers send one batch through a slot and the next as torch does, and say with each what it took them; the
receiver adds what it took here. The lower quartiles decide: what disturbs a machine only ever adds. Whichever way a batch takes,
it is the same batch.
"""

from __future__ import annotations

UNDECIDED, SLOTS, TORCH = 0, 1, 2
WARM = 4
"""A worker's first batches are not counted: their slots are new."""
ENOUGH = 8
"""Batches of each way that settle it."""


class HandoverTrial:
    def __init__(self) -> None:
        self.costs: dict[int, list[float]] = {SLOTS: [], TORCH: []}
        """Seconds of batches, worker and receiver together."""
        self.verdict = UNDECIDED

    def add(self, way: int, turn: int, seconds: float) -> None:
        """A worker's batch number ``turn`` has arrived."""
        if turn < WARM or self.verdict != UNDECIDED:
            return
        self.costs[way].append(seconds)
        if all(len(costs) >= ENOUGH for costs in self.costs.values()):
            self.verdict = SLOTS if _undisturbed(self.costs[SLOTS]) <= _undisturbed(self.costs[TORCH]) else TORCH

    def sentence(self) -> str:
        if self.verdict == UNDECIDED:
            return "DataLoader's way is still being compared with it."
        ours, theirs = (_undisturbed(self.costs[way]) * 1e3 for way in (SLOTS, TORCH))
        return f"Measured: {ours:.3g} ms a batch through slots, {theirs:.3g} ms in DataLoader's way."


def _undisturbed(costs: list[float]) -> float:
    """The lower quartile."""
    return sorted(costs)[len(costs) // 4]
