"""`Recording`: what crossed each hook while the pipeline ran once, in the memory of one process. Stages are replaced with it.

A recording belongs to the process that made it (every worker records its own share), stays within a byte budget and is
never written to disk.
"""

from __future__ import annotations

import math
from typing import Any

from pipefix.hooks.byte_ranges import ByteRanges
from pipefix.hooks.result_store import MISSING, ResultStore
from pipefix.hooks.snapshot import NotCopyable, nbytes, snapshot
from pipefix.vocabulary import quantity
from pipefix.vocabulary.stage import Stage

MOST = 4
"""Times the budget that is held at most. It is looked at between units; one that reads a whole shard is not kept to its end."""


class Recording(ResultStore):
    """Results by (unit, operation, how many times that operation was called in the unit)."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.files: ByteRanges = ByteRanges(MOST * budget)
        self.units: list[Any] = []
        """Units recorded whole, in the order in which the sampler gave them."""
        self.samples: dict[Any, Any] = {}
        self.batches: list[Any] = []
        self.refused: dict[str, str] = {}
        """Operations whose results cannot be kept, and why."""
        self._values: dict[tuple[Any, str, int], Any] = {}
        self._bytes = 0
        self._decoded: dict[tuple[Any, str], int] = {}

    @property
    def nbytes(self) -> int:
        return self._bytes + self.files.nbytes

    @property
    def full(self) -> bool:
        return self.nbytes >= self.budget or self.files.overflowed

    @property
    def decoded_bytes(self) -> float:
        """Bytes of a unit once it is decoded, on average: its largest decoded value; 0 where none was kept."""
        largest: dict[Any, int] = {}
        for (unit, _), size in self._decoded.items():
            largest[unit] = max(size, largest.get(unit, 0))
        return sum(largest.values()) / len(largest) if largest else 0.0

    def keep(self, unit: object, op: str, ordinal: int, stage: Stage, value: Any) -> None:
        if op in self.refused:
            return
        copy, size = self._copy(op, value, most=MOST * self.budget)
        if copy is MISSING:
            return
        if self.nbytes + size > MOST * self.budget:
            self.files.overflowed = True
            return
        self._values[(unit, op, ordinal)] = copy
        self._bytes += size
        if stage is Stage.DECODE:
            self._decoded[(unit, op)] = self._decoded.get((unit, op), 0) + size

    def find(self, unit: object, op: str, ordinal: int) -> Any:
        value = self._values.get((unit, op, ordinal), MISSING)
        return value if value is MISSING else snapshot(value)

    def complete(self, unit: Any, sample: Any) -> None:
        """A unit ran to its end: only from now on is it replayed, unless a part of it found no room."""
        if self.files.overflowed:
            return
        self.units.append(unit)
        copy, size = self._copy("sample", sample)
        if copy is not MISSING:
            self.samples[unit] = copy
            self._bytes += size

    def keep_batch(self, batch: Any) -> None:
        copy, size = self._copy("batch", batch)
        if copy is not MISSING:
            self.batches.append(copy)
            self._bytes += size

    def _copy(self, name: str, value: Any, *, most: float = math.inf) -> tuple[Any, int]:
        """With its size; `MISSING` for what cannot be kept, or holds more bytes than ``most``, which is noted under ``name``."""
        try:
            held = nbytes(value)
            if held > most:  # a mapped file, or all that a dataset has in memory: there may be no room for a copy
                raise NotCopyable(f"it holds {quantity.size(held)}, too much for --recording-budget (in Python recording_bytes)")
            return snapshot(value), held
        except NotCopyable as error:
            self.refused[name] = str(error)
            return MISSING, 0
