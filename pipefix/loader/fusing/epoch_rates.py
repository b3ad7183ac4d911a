"""Threads or worker processes for fused batches: told from epochs that a loader has made, none of which is made for it.

Threads are the first choice: nothing travels, and nothing has to start. Where they were held up while the loop waited for them (by
a loop that keeps the interpreter to itself, or by a disk), the next epoch is made by processes, and whichever was quicker stays.
"""

from __future__ import annotations

THREADS, PROCESSES = "threads", "processes"
WAITED = 0.1
"""Of an epoch, from which on its batches are what is waited for."""
COMPUTED = 0.5
"""Of the time that threads had work, below which they were held up."""
FEW = 16
"""Batches of an epoch that say nothing."""


class EpochRates:
    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        """Batches a second of the latest epoch that each way made."""
        self.computed: float | None = None
        """Of the time of threads that were held up, what they computed for."""

    def ended(self, way: str, batches: int, seconds: float, waited: float = 0.0, computed: float = 1.0) -> None:
        """An epoch is over. ``waited``: the part of it that the loop waited; ``computed``: of the threads' time at work."""
        if batches < FEW or seconds <= 0:
            return
        self.rates[way] = batches / seconds
        if way == THREADS:
            self.computed = computed if waited > WAITED and computed < COMPUTED else None

    def processes(self) -> str | None:
        """Why processes make the next epoch; None: threads do."""
        if self.computed is None:
            return None
        if PROCESSES not in self.rates:
            return f"to be compared: threads were held up for {1 - self.computed:.0%} of their time"
        ours, theirs = self.rates[PROCESSES], self.rates[THREADS]
        return f"measured: {ours:.3g} batches a second, {theirs:.3g} by threads" if ours > theirs else None
